#!/usr/bin/env bash
# treadle switch --handle-file and treadle attach: another process sees each rank's weights, version for version, while the ranks switch; what
# is refused, and what the end of the switch leaves. ctest: label=mpi timeout=120
set -euo pipefail
set -m # or the signal would be ignored in what runs in the background
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
process=
trap '[[ -z $process ]] || kill -KILL $process; rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }
value() { sed -n "s/^  \"$2\": \"\{0,1\}\([^\",]*\).*/\1/p" "$folder/$1"; }
sums() { grep -o '"name": "[^"]*"\|"sum": "[0-9a-f]*"' "$folder/$1"; }
refused() { # status words command...
  local wanted=$1 words=$2 got=0
  shift 2
  "$@" >"$folder/out" 2>"$folder/err" || got=$?
  [[ $got -eq $wanted ]] || fail "$*: status $got, $(cat "$folder/err")"
  grep -q "$words" "$folder/err" || fail "$*: says $(cat "$folder/err")"
}

"$TREADLE" make-model "$folder/model" --layers 2 --hidden 256 --vocab 512 >"$folder/made"
switch=("$TREADLE" switch --model "$folder/model" --train megatron:tp=1 --infer vllm:tp=1)
refused 2 'leave out one of them' "$MPIEXEC" -n 2 "$TREADLE" switch --model "$folder/model" --train megatron:tp=2 --infer vllm:tp=2 \
  --handle-file "$folder/h" --fault kill:rank=0,wave=0
refused 2 'handle-file' "${switch[@]}" --handle-file "$folder/nowhere/h"

# One rank; its file is there once it is in mode infer for the first time.
"${switch[@]}" --cycles 1000000 --alias off --handle-file "$folder/h" >"$folder/switch" 2>"$folder/said" &
process=$!
until [[ -s $folder/h.0 ]]; do
  kill -0 $process || fail "it is over: $(cat "$folder/switch" "$folder/said")"
  sleep 0.1
done
"$TREADLE" attach "$folder/h.0" --json >"$folder/first"
[[ $(value first process) == "$process" ]] || fail "another process: $(value first process)"
[[ "$(value first rank) $(value first ranks) $(value first layout)" == "0 1 vllm" ]] || fail "$(cat "$folder/first")"
version=$(value first version)
((version >= 1)) || fail "version $version"
later=$((version + 20))
"$TREADLE" attach "$folder/h.0" --wait $later --json >"$folder/second"
(($(value second version) >= later)) || fail "waited for $later, got $(value second version)"
diff <(sums first) <(sums second) || fail "the same weights have other sums"
"$TREADLE" layout --model "$folder/model" --layout vllm:tp=1 --ranks 1 --rank 0 --json >"$folder/layout"
names() { grep -o '"name": "[^"]*"' "$folder/$1"; }
diff <(names first) <(names layout) || fail "other storage tensors"
"$TREADLE" attach "$folder/h.0" >"$folder/text"
grep -q "^rank 0 of 1, process $process, vllm: version [0-9]*, .* storage tensors" "$folder/text" || fail "$(cat "$folder/text")"
while read -r sum; do grep -q "^$sum  " "$folder/text" || fail "the text lacks $sum"; done < <(sed -n 's/.*"sum": "\([0-9a-f]*\)".*/\1/p' "$folder/first")
refused 1 'version 1000000000 of rank 0 did not come in 0.3 s' "$TREADLE" attach "$folder/h.0" --wait 1000000000 --timeout 0.3

head -c 60 "$folder/h.0" >"$folder/cut"
refused 2 'the handle was cut: 60 of its' "$TREADLE" attach "$folder/cut"
refused 2 'not a handle of treadle' "$TREADLE" attach "$folder/made"
head -c 5000 /dev/zero >"$folder/long"
refused 2 'no handle is longer' "$TREADLE" attach "$folder/long"
refused 2 'No such file' "$TREADLE" attach "$folder/nothing"
refused 2 'needs FILE.RANK' "$TREADLE" attach

# A waiting reader hears of the owner's end.
"$TREADLE" attach "$folder/h.0" --wait 1000000000 >"$folder/out" 2>"$folder/err" &
reader=$!
sleep 0.5
kill -INT $process
result=0
wait $process || result=$?
[[ $result -eq 1 ]] || fail "the switch ended with $result: $(cat "$folder/said")"
process=
result=0
wait $reader || result=$?
[[ $result -eq 1 ]] && grep -q 'has died\|has destroyed its switch' "$folder/err" || fail "the reader ended with $result: $(cat "$folder/err")"
refused 1 'has ended' "$TREADLE" attach "$folder/h.0"

# Two ranks, a file each; with a way there alone the handles are written all the same.
"$MPIEXEC" -n 2 "$TREADLE" switch --model "$folder/model" --train megatron:tp=2 --infer vllm:tp=2 --cycles 0 --handle-file "$folder/two" >"$folder/out"
[[ -s $folder/two.0 && -s $folder/two.1 ]] || fail "no file for each rank"
cmp -s "$folder/two.0" "$folder/two.1" && fail "two ranks have one handle"
exit 0
