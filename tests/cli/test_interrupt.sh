#!/usr/bin/env bash
# Ctrl-C while weights are switched: a clean end that says which weights stand. Before, and where it is ignored: as ever.
# ctest: label=mpi
set -euo pipefail
set -m # or the signal would be ignored in what runs in the background
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
"$TREADLE" make-model "$folder/model" --layers 2 --hidden 256 --vocab 512 >"$folder/made"
switch=("$TREADLE" switch --model "$folder/model" --train megatron:tp=1 --infer vllm:tp=1 --cycles)

in_cycles() { # it has its memory, and then a while
  until grep -q memfd:treadle-pool "/proc/$1/maps"; do
    kill -0 "$1" || { echo "it is over:"; cat "$folder/out" "$folder/err"; exit 1; }
    sleep 0.1
  done
  sleep 1
}

for keep in host infer; do
  "${switch[@]}" 1000000 --keep $keep --alias off >"$folder/out" 2>"$folder/err" &
  process=$!
  in_cycles $process
  kill -INT $process
  result=0
  wait $process || result=$?
  test $result -eq 1 || { echo "ended with $result, and says:"; cat "$folder/err"; exit 1; }
  grep -Eq 'the switch was cancelled on rank 0; .*(weights stand as they were|nothing is bound|the weights are lost)' "$folder/err" ||
    { echo "says:"; cat "$folder/err"; exit 1; }
done

trap '' INT # as nohup does
"${switch[@]}" 3000 >"$folder/out" 2>"$folder/err" &
process=$!
in_cycles $process
kill -INT $process || echo "it was over before the signal"
wait $process || { cat "$folder/out" "$folder/err"; exit 1; }
