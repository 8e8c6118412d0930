# What the scripts of this folder share: a folder of their own, and words for what a command should do. Each test_found_NAME.sh is one
# kind of fault that somebody met outside; its small inputs are in NAME/ beside it, or made by the script.
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }

# run STATUS COMMAND...: it ends with that status; what it said is in $folder/out and $folder/err.
run() {
  local want=$1 status=0
  shift
  "$@" >"$folder/out" 2>"$folder/err" </dev/null || status=$?
  [ $status = "$want" ] || { tail -n 5 "$folder/out" "$folder/err"; fail "status $status, not $want: $*"; }
}
# refused TEXT COMMAND...: it ends with status 2, and its standard error has the text.
refused() {
  local text=$1
  shift
  run 2 "$@"
  said "$text"
}
# said TEXT, printed TEXT: standard error, or standard output, of the last run has it.
said() { grep -qF -- "$1" "$folder/err" || { tail -n 5 "$folder/err"; fail "standard error has no '$1'"; }; }
printed() { grep -qF -- "$1" "$folder/out" || { tail -n 5 "$folder/out"; fail "standard output has no '$1'"; }; }
