# shellcheck shell=bash
# For tests of tutorials.
#
#   installed            installs the build into a new folder, $folder/treadle, for programs and commands
#   follow PAGE          runs the page from its section 2 on, word by word, in an empty folder, $folder/empty
#
# A block of code goes into the file that the text before it names ("Save this as `x`"); blocks of commands are run. What
# they say must have the lines of the blocks without a language, in this order, with any numbers. "..." is any lines.
# $folder/said has all that was said.
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }

installed() {
  local sanitize library
  cmake --install "$TREADLE_BUILD" --prefix "$folder/treadle" >/dev/null
  library=$(dirname "$(find "$folder/treadle" -name libtreadle.a)")
  sed -i "s|^prefix=.*|prefix=$folder/treadle|" "$library"/pkgconfig/*.pc
  export PATH=$folder/treadle/bin:$PATH LD_LIBRARY_PATH=$library PKG_CONFIG_PATH=$library/pkgconfig
  sanitize=$(grep '^TREADLE_SANITIZE:' "$TREADLE_BUILD/CMakeCache.txt" | sed 's/.*=//; s/;/,/g')
  [ -n "$sanitize" ] || return 0
  printf '#!/bin/sh\nexec %s -fsanitize=%s "$@"\n' "$CC" "$sanitize" >"$folder/treadle/bin/cc"
  chmod +x "$folder/treadle/bin/cc"
  export OMPI_CC=$folder/treadle/bin/cc MPICH_CC=$folder/treadle/bin/cc
}

# Numbers, and spaces that line them up, do not matter; nor which step it is that a run is stopped in, and that is saved then.
plain() { sed -E 's/digest( of the weights)? [0-9a-f]{16}/digest\1 N/g; s/-?([0-9][0-9,]*(\.[0-9]+)?(e[-+]?[0-9]+)?|\binf\b|\bnan\b)/N/g; s/ +/ /g; s/ $//; s/ saved [^ ]+$//' "$1"; }

follow() {
  : >"$folder/expected"
  awk -v expected="$folder/expected" '
    /^## 2\./ { on = 1 }
    !on { next }
    !inside && /Save this as `[^`]*`/ { file = $0; sub(/.*Save this as `/, "", file); sub(/`.*/, "", file); next }
    !inside && /^```sh$/ { inside = "commands"; next }
    !inside && /^```$/ { inside = "said"; next }
    !inside && /^```/ { inside = file ? "file" : "other"; if (file) print "cat >" file " <<\"END OF BLOCK\""; next }
    /^```$/ { if (inside == "file") { print "END OF BLOCK"; file = "" } inside = ""; next }
    inside == "commands" || inside == "file" { print }
    inside == "said" { print >expected }
  ' "$1" >"$folder/commands"
  mkdir "$folder/empty"
  (cd "$folder/empty" && bash -euo pipefail "$folder/commands") >"$folder/said" 2>&1 </dev/null || { cat "$folder/said"; fail "a command of the page failed"; }
  plain "$folder/expected" | grep -v '^\.\.\.$' >"$folder/expected.plain"
  plain "$folder/said" | awk '
    NR == FNR { wanted[++n] = $0; next }
    at < n && $0 == wanted[at + 1] { at++ }
    END { if (at < n) { print "the page says, and nothing else did: " wanted[at + 1]; exit 1 } }
  ' "$folder/expected.plain" - || { cat "$folder/said"; fail "the page is wrong"; }
}
