#!/usr/bin/env bash
# The program of docs/tutorial.md compiles against what is installed, and runs as the page says; so do its commands.
# ctest: label=mpi
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
cmake --install "$TREADLE_BUILD" --prefix "$folder/treadle" >/dev/null
library=$(dirname "$(find "$folder/treadle" -name libtreadle.a)")
export PATH=$folder/treadle/bin:$PATH LD_LIBRARY_PATH=$library
flags() { PKG_CONFIG_PATH="$library/pkgconfig" pkg-config --define-variable=prefix="$folder/treadle" "$@" treadle_mpi; }
sanitize=$(grep '^TREADLE_SANITIZE:' "$TREADLE_BUILD/CMakeCache.txt" | sed 's/.*=//; s/;/,/g')
page=$TREADLE_SOURCE/docs/tutorial.md

awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' "$page" >"$folder/program.c"
[ -s "$folder/program.c" ] || { echo "the page has no program"; exit 1; }
cd "$folder"
mpicc ${sanitize:+-fsanitize=$sanitize} -std=c11 -Wall -Wextra -Werror program.c $(flags --cflags --libs) -o program

# Its commands from make-model to the switch, as they stand.
awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on && /treadle (make-model|inspect|plan|layout|switch)/' "$page" >commands
[ "$(wc -l <commands)" = 5 ] || { echo "other commands than expected:"; cat commands; exit 1; }
sh -e commands >said || { cat said; exit 1; }
[ "$(tail -1 said)" = PASS ] || { tail -3 said; exit 1; }

mpirun --oversubscribe -n 4 ./program model >said
[ "$(grep -c '^step [1-3]: version [1-3], [1-9][0-9]* bytes from other ranks, digest ' said)" = 3 ] || { cat said; exit 1; }
[ "$(grep -o 'digest .*' said | sort -u | wc -l)" = 3 ] || { echo "steps with one digest:"; cat said; exit 1; }
[ "$(tail -1 said)" = "no difference" ] || { cat said; exit 1; }
