#!/usr/bin/env bash
# tools/gpu-check on the stand-in of the driver: the stages that are quick, one that fails, and a machine without a
# device.
# ctest: stage=gcc timeout=300
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; cat "$folder"/{out,err,files/log.txt} 2>/dev/null; exit 1; }
grep -q '^TREADLE_SANITIZE:[A-Z]*=.' "$TREADLE_BUILD/CMakeCache.txt" &&
  { echo "not with sanitizers: skipped"; exit 77; }

export BUILD=$TREADLE_BUILD FAKE_CUDA_CARD=$folder/card
unset FAKE_CUDA_FAIL FAKE_CUDA_DEVICES FAKE_CUDA_TOTAL FAKE_CUDA_GRANULARITY
check() {
  LD_LIBRARY_PATH=$TREADLE_BUILD/fake-cuda "$TREADLE_SOURCE/tools/gpu-check" --out "$folder/files" "$@" \
    >"$folder/out" 2>"$folder/err"
}

for stage in driver boxes pages kill; do
  check --only $stage || fail "stage $stage: status $?"
  grep -q "^ok  *$stage " "$folder/out" || fail "stage $stage: no line says ok"
  grep -q '^stand-in of the driver' "$folder/out" ||
    fail "stage $stage: nothing says that the driver is the stand-in"
  grep -q '"stand_in": true, "pass": true' "$folder/files/gpu-check.json" ||
    fail "stage $stage: the JSON object does not say that all passed"
  grep -q "^{\"stage\": \"$stage\", .*\"pass\": true, .*\"seconds\": [0-9.]*}$" "$folder/files/stages.jsonl" ||
    fail "stage $stage: no line of JSON"
  [ "$(ls "$folder/files" | wc -l)" -le 8 ] || fail "more than eight files"
  if command -v python3 >/dev/null; then
    python3 -m json.tool "$folder/files/gpu-check.json" >/dev/null || fail "stage $stage: not JSON"
  fi
done

# A failure says what it was, and is the exit status.
status=0
FAKE_CUDA_FAIL=launch:3 check --only boxes || status=$?
[ $status = 1 ] || fail "a stage that fails: status $status"
grep -q '^FAIL  *boxes .*CUDA_ERROR_LAUNCH_FAILED' "$folder/out" || fail "a stage that fails: no line says why"
grep -q '"pass": false' "$folder/files/gpu-check.json" ||
  fail "a stage that fails: the JSON object says that all passed"

# Without a device there is nothing to check.
status=0
FAKE_CUDA_DEVICES=0 check || status=$?
[ $status = 2 ] || fail "no device: status $status"
grep -q 'gpu-check: no CUDA devices: .*CUDA_ERROR_NO_DEVICE' "$folder/err" || fail "no device: nothing says so"
status=0
check --only reates || status=$?
[ $status = 2 ] || fail "an unknown stage: status $status"
