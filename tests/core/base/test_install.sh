# What is installed is enough to build and run a program, with the shared library and with the static one;
# and the shared library shows the names of the public headers and no others.
set -eu
prefix=$(mktemp -d /tmp/treadle-install-XXXXXX)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$TREADLE_BUILD" --prefix "$prefix" >/dev/null
library=$(dirname "$(find "$prefix" -name libtreadle.a)")
ls "$prefix"/share/treadle/families/llama.yaml >/dev/null

cat >"$prefix/program.c" <<'END'
#include <stdio.h>
#include <treadle.h>
int main(void) {
  printf("%s %s\n", TREADLE_VERSION, treadle_status_text(TREADLE_REFUSED));
  return 0;
}
END
# treadle.pc has the prefix that was configured; --define-variable gives it this one.
flags() { PKG_CONFIG_PATH="$library/pkgconfig" pkg-config --define-variable=prefix="$prefix" "$@" treadle; }
sanitize=$(grep '^TREADLE_SANITIZE:' "$TREADLE_BUILD/CMakeCache.txt" | sed 's/.*=//; s/;/,/g')
"$CC" ${sanitize:+-fsanitize=$sanitize} "$prefix/program.c" $(flags --cflags --libs) -o "$prefix/shared"
LD_LIBRARY_PATH="$library" "$prefix/shared" | grep -q '^[0-9.]* refused$'
rm "$library"/libtreadle.so*
"$CC" ${sanitize:+-fsanitize=$sanitize} "$prefix/program.c" $(flags --static --cflags --libs) -o "$prefix/static"
"$prefix/static" | grep -q '^[0-9.]* refused$'

hidden=$(nm -D --defined-only "$TREADLE_BUILD/libtreadle.so" | awk '$2 ~ /[TDBR]/ {print $3}' |
  grep -v -E '^(_init|_fini|__)' | while read -r name; do
  grep -q -w "$name" "$TREADLE_SOURCE"/include/*.h || echo "$name"
done)
[ -z "$hidden" ] || { echo "the shared library shows: $hidden"; exit 1; }

# libtreadle is for processes without MPI, or with another one; so is the command.
for file in "$TREADLE_BUILD/libtreadle.so" "$TREADLE_BUILD/treadle"; do
  if readelf -d "$file" | grep -q 'NEEDED.*libmpi'; then echo "$file needs libmpi"; exit 1; fi
done
