#!/usr/bin/env bash
# Strangers that connect to every port of a switch over tcp, 20 at a time, and say nothing: the ranks meet all the same. In a network namespace of its
# own, so that nobody else's ports are knocked at. TREADLE_ROUNDS=N: this many switches.
# ctest: timeout=120
. "$(dirname "$0")/found.bash"
command -v python3 >/dev/null || { echo "no python3 here: skipped"; exit 77; }
command -v ip >/dev/null || { echo "no 'ip' here (iproute2): skipped"; exit 77; }
if [ "${1:-}" != inside ]; then
  unshare -n true 2>/dev/null || { echo "no network namespaces here (unshare -n): skipped"; exit 77; }
  exec unshare -n bash "$0" inside
fi
ip link set lo up
strangers=
trap '[ -z "$strangers" ] || kill $strangers 2>/dev/null; rm -rf "$folder"' EXIT
"$TREADLE" make-model "$folder/model" >/dev/null
await() {
  while [ ! -e "$folder/$1" ]; do
    kill -0 $strangers || fail "no strangers"
    sleep 0.01
  done
}
for round in $(seq "${TREADLE_ROUNDS:-2}"); do
  python3 "$TREADLE_SOURCE/tests/found/silent_strangers/strangers.py" 20 "$folder/ready" "$folder/come" "$folder/end" &
  strangers=$!
  await ready
  ranks=()
  for rank in 0 1; do
    "$TREADLE" switch --model "$folder/model" --train megatron:tp=2 --infer vllm:tp=1 --meet "127.0.0.1:$((7850 + round))" --job night \
      --rank $rank --ranks 2 --nodes 2 --cycles 1 --check --timeout 60 >"$folder/out.$rank" 2>"$folder/err.$rank" &
    ranks+=($!)
    await come # before rank 1
  done
  for rank in 0 1; do
    wait "${ranks[rank]}" || { cat "$folder"/err.?; fail "round $round: rank $rank failed"; }
  done
  touch "$folder/end"
  wait $strangers
  strangers=
  rm "$folder/ready" "$folder/come" "$folder/end"
done
