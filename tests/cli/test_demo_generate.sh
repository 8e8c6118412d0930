#!/usr/bin/env bash
# tools/demo-generate without the models that it knows: it says so, and five runs of a small model have one digest.
# ctest: label=mpi timeout=300
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT

DATA=$folder "$TREADLE_SOURCE/tools/demo-generate" >"$folder/out" || { cat "$folder/out"; exit 1; }
fail() { echo "$1:"; cat "$folder/out"; exit 1; }
[ "$(tail -1 "$folder/out")" = PASS ] || fail "no PASS"
[ "$(grep -c "is not in $folder" "$folder/out")" = 3 ] || fail "what is missing is not said"
[ "$(grep -c ' digest [0-9a-f]\{16\}, [1-9]' "$folder/out")" = 5 ] || fail "there are not five runs"
[ "$(grep -o ' digest [0-9a-f]*' "$folder/out" | sort -u | wc -l)" = 1 ] || fail "more than one digest"

# A model that is not there is a failure.
if DATA=$folder MODEL=$folder/none "$TREADLE_SOURCE/tools/demo-generate" >"$folder/out" 2>&1; then fail "no failure"; fi
[ "$(tail -1 "$folder/out")" = FAIL ] || fail "no FAIL"
