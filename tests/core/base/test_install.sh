# What is installed is enough to build and run programs, with the shared libraries and with the static ones; a shared library shows the names of the
# public headers, and to those above it what they use; a program of the core alone has nothing of the engines; C++ reads the headers.
set -eu
prefix=$(mktemp -d /tmp/treadle-install-XXXXXX)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$TREADLE_BUILD" --prefix "$prefix" >/dev/null
library=$(dirname "$(find "$prefix" -name libtreadle.a)")
ls "$prefix"/share/treadle/families/llama.yaml >/dev/null
fail() { echo "$*"; exit 1; }

cat >"$prefix/core.c" <<'END'
#include <stdio.h>
#include <treadle.h>
int main(void) {
  printf("%s %s\n", TREADLE_VERSION, treadle_status_text(TREADLE_REFUSED));
  return 0;
}
END
# Each library words a failure, and one store has the messages of all: the last one is the reward's, whose names are the loop's.
cat >"$prefix/loop.c" <<'END'
#include <stdio.h>
#include <treadle_loop.h>
int main(void) {
  treadle_group *group;
  treadle_tokenizer *tokenizer;
  treadle_reward *reward;
  const treadle_reward_options options = {.struct_size = sizeof options, .name = "sequense"};
  if (treadle_group_open("", 0, 1, 1, &group) != TREADLE_REFUSED) return 1;
  fprintf(stderr, "%s\n", treadle_error_message());
  if (treadle_tokenizer_open("/nothing/there", &tokenizer) == TREADLE_OK) return 1;
  puts(treadle_error_message());
  if (treadle_reward_create(&options, &reward) != TREADLE_REFUSED) return 1;
  puts(treadle_error_message());
  return 0;
}
END
# The .pc files have the prefix that was configured; --define-variable gives them this one.
flags() { PKG_CONFIG_PATH="$library/pkgconfig" pkg-config --define-variable=prefix="$prefix" "$@"; }
sanitize=$(grep '^TREADLE_SANITIZE:' "$TREADLE_BUILD/CMakeCache.txt" | sed 's/.*=//; s/;/,/g')
make_program() { # NAME PACKAGE OUTPUT FLAGS...: with what pkg-config says
  local name=$1 package=$2 output=$3
  shift 3
  # shellcheck disable=SC2046
  "$CC" ${sanitize:+-fsanitize=$sanitize} "$prefix/$name.c" $(flags "$@" --cflags --libs "$package") -o "$prefix/$output"
}
says_all() { "$@" 2>"$prefix/errors" >"$prefix/said" && grep -q /nothing/there "$prefix/said" && grep -q "sequense.*sequence" "$prefix/said"; }

make_program core treadle shared
LD_LIBRARY_PATH="$library" "$prefix/shared" | grep -q '^[0-9.]* refused$'
make_program loop treadle_loop loop
LD_LIBRARY_PATH="$library" says_all "$prefix/loop" || fail "a program of libtreadle_loop: $(cat "$prefix/said" "$prefix/errors")"

# A program of the core alone: no engine, and nothing that only engines need.
needed=$(LD_LIBRARY_PATH="$library" ldd "$prefix/shared")
for name in treadle_engine treadle_loop pcre2 utf8proc libmpi; do
  case $needed in *"$name"*) fail "a program of libtreadle needs $name" ;; esac
done

# C++ reads every header, where there is a compiler of it.
if command -v c++ >/dev/null; then
  for header in "$prefix"/include/*.h; do
    printf '#include <%s>\n' "${header##*/}" >"$prefix/header.cc"
    c++ -Wall -Wextra -Werror -fsyntax-only "$prefix/header.cc" -I"$prefix/include" || fail "C++ does not read ${header##*/}"
  done
fi

rm "$library"/libtreadle*.so*
make_program core treadle static --static
"$prefix/static" | grep -q '^[0-9.]* refused$'
if nm "$prefix/static" | grep -E ' T treadle_(engine|trainer|tokenizer|chat|actor|rl)_'; then fail "a program of libtreadle.a has functions of engines"; fi
make_program loop treadle_loop loop_static --static
says_all "$prefix/loop_static" || fail "a program of libtreadle_loop.a: $(cat "$prefix/said" "$prefix/errors")"

for name in treadle treadle_engine treadle_loop; do
  shown=$(nm -D --defined-only "$TREADLE_BUILD/lib$name.so" | awk '$2 ~ /[TDBR]/ {print $3}' | grep -v -E '^(_init|_fini|__)')
  hidden=$(for symbol in $(grep -v 'TREADLE_PRIVATE' <<<"$shown"); do
    grep -q -w "${symbol%%@*}" "$TREADLE_SOURCE"/include/*.h || echo "$symbol"
  done)
  [ -z "$hidden" ] || fail "lib$name.so shows $hidden in public"
  hidden=$(for symbol in $(grep 'TREADLE_PRIVATE' <<<"$shown"); do
    if grep -q -w "${symbol%%@*}" "$TREADLE_SOURCE"/include/*.h; then echo "$symbol"; fi
  done)
  [ -z "$hidden" ] || fail "lib$name.so shows $hidden, of a public header, in private"
done

# The libraries are for processes without MPI, or with another one; so is the command.
for file in "$TREADLE_BUILD"/libtreadle{,_engine,_loop}.so "$TREADLE_BUILD/treadle"; do
  if readelf -d "$file" | grep -q 'NEEDED.*libmpi'; then fail "$file needs libmpi"; fi
done
