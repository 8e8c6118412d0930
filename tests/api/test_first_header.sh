# A program that was compiled with the first header whose structs say their size runs with the library of today. The copy in
# tests/api/first is never changed, but where an interface was taken back before a release.
set -eu
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
sanitize=$(grep '^TREADLE_SANITIZE:' "$TREADLE_BUILD/CMakeCache.txt" | sed 's/.*=//; s/;/,/g')
"$CC" -std=c11 -Wall -Wextra -Werror ${sanitize:+-fsanitize=$sanitize} -I"$TREADLE_SOURCE/tests/api/first" \
  "$TREADLE_SOURCE/tests/api/first/program.c" "$TREADLE_BUILD/libtreadle.so" \
  -Wl,-rpath,"$TREADLE_BUILD" -o "$folder/program"
"$TREADLE" make-model "$folder/model" --layers 1 --hidden 64 --vocab 128 >"$folder/made"
"$folder/program" "$folder/model" | grep -q '^works$'
