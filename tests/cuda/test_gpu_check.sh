#!/usr/bin/env bash
# tools/gpu-check on the stand-in of the driver: all stages but the rates (those of torch where that is installed), one that fails, one that is ended, and a
# machine without a device. What compute-sanitizer says of a program is not tried: here it runs the program.
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

mkdir "$folder/tools"
cat >"$folder/tools/compute-sanitizer" <<'END'
#!/usr/bin/env bash
[[ $1 == --tool && $3 == --error-exitcode ]] || exit 2
shift 4
if [[ $1 == --report-api-errors ]]; then shift 2; fi # of memcheck alone
exec "$@"
END
chmod +x "$folder/tools/compute-sanitizer"
export PATH=$folder/tools:$PATH

for stage in driver boxes pages grid large torch peers kill sanitizer; do
  check --only $stage || fail "stage $stage: status $?"
  level=ok
  [[ $stage != @(torch|peers) ]] || level='\(ok\|skipped\)' # without torch
  grep -q "^$level  *$stage " "$folder/out" || fail "stage $stage: no line says ok"
  grep -q '^stand-in of the driver' "$folder/out" ||
    fail "stage $stage: nothing says that the driver is the stand-in"
  grep -q '"stand_in": true, "pass": true' "$folder/files/gpu-check.json" ||
    fail "stage $stage: the JSON object does not say that all passed"
  grep -q "^{\"stage\": \"$stage\",.* \"pass\": true, .*\"seconds\": [0-9.]*}$" "$folder/files/stages.jsonl" ||
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

# Whoever ends it ends what its stage has started, even what does not listen.
mkdir "$folder/build"
ln -s "$TREADLE_BUILD/treadle" "$folder/build/treadle"
cat >"$folder/build/gpu_check" <<END
#!/usr/bin/env bash
(trap '' TERM; echo \$BASHPID >"$folder/deaf.part"; mv "$folder/deaf.part" "$folder/deaf"; exec sleep 1000) &
wait
END
chmod +x "$folder/build/gpu_check"
BUILD=$folder/build LD_LIBRARY_PATH=$TREADLE_BUILD/fake-cuda "$TREADLE_SOURCE/tools/gpu-check" --only driver \
  --out "$folder/files" >"$folder/out" 2>"$folder/err" &
until [ -e "$folder/deaf" ]; do sleep 0.05; done
kill -TERM $!
status=0
wait $! || status=$?
[ $status = 143 ] || fail "ended: status $status"
lives() { grep -qs '^State:[[:space:]]*[^Z[:space:]]' "/proc/$(cat "$folder/deaf")/status"; }
for _ in {1..100}; do
  lives || break
  sleep 0.05
done
! lives || { kill -KILL "$(cat "$folder/deaf")"; fail "ended: what its stage had started lives"; }

# Without a device there is nothing to check.
status=0
FAKE_CUDA_DEVICES=0 check || status=$?
[ $status = 2 ] || fail "no device: status $status"
grep -q 'gpu-check: no CUDA devices: .*CUDA_ERROR_NO_DEVICE' "$folder/err" || fail "no device: nothing says so"
status=0
check --only reates || status=$?
[ $status = 2 ] || fail "an unknown stage: status $status"
