# The public headers compile alone, as C11 and as C++17, without warnings, and in either order.
set -eu
headers=$(cd "$TREADLE_SOURCE/include" && echo *.h)
reverse=$(printf '%s\n' $headers | sort -r)
check() { # WHAT TEXT
  printf '%s\n' "$2" | "$CC" -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$TREADLE_SOURCE/include" -fsyntax-only -x c - ||
    { echo "$1 does not compile as C11"; exit 1; }
  command -v c++ >/dev/null || return 0
  printf '%s\n' "$2" | c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -I"$TREADLE_SOURCE/include" -fsyntax-only -x c++ - ||
    { echo "$1 does not compile as C++17"; exit 1; }
}
for header in $headers; do check "$header" "#include \"$header\""; done
check "all headers" "$(printf '#include "%s"\n' $headers $headers)"
check "all headers, reversed" "$(printf '#include "%s"\n' $reverse)"
