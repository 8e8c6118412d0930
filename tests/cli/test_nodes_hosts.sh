#!/usr/bin/env bash
# treadle switch between two hosts, which are network namespaces with a cable between them: the bits, the kernel's count of bytes, and a cable
# that is pulled. Ranks find by themselves who is where.
# ctest: timeout=400
set -euo pipefail
source "${TREADLE_SOURCE:-$(dirname "$0")/../..}/tests/cli/hosts.sh"
fail() {
  echo "$1"
  head -50 "$folder"/said.* "$folder"/why.*
  exit 1
}
ranks=8
begin() { # JOB OPTIONS...: half of the ranks on each host
  local job=$1 rank
  shift
  pids=()
  for ((rank = 0; rank < ranks; rank++)); do
    (hosts_run $((rank * 2 / ranks)) "$TREADLE" switch --model "$folder/config.json" --train megatron:tp=4,pp=2 --infer vllm:tp=4 "$@" \
      --meet 10.77.0.1:7000 --job "$job" --rank $rank --ranks $ranks) >"$folder/said.$rank" 2>"$folder/why.$rank" &
    pids+=($!)
  done
}
all_end() { # STATUS
  local rank status
  for ((rank = 0; rank < ranks; rank++)); do
    status=0
    wait "${pids[rank]}" || status=$?
    [ "$status" = "$1" ] || fail "rank $rank ended with $status, not $1"
  done
  pids=()
}
value() { sed -n 's/^  "'"$1"'": "\?\([^",]*\)"\?,\?$/\1/p' "$folder/said.0"; }

cat >"$folder/config.json" <<'END'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8,
 "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 8192, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
 "max_position_embeddings": 2048, "rope_theta": 10000.0, "torch_dtype": "bfloat16"}
END

# What enters a host, and what the kernel saw: headers, acknowledgements, the meeting. One way, so all that is counted is one switch.
hosts_make || fail "no hosts"
for host in 0 1; do before[host]=$(hosts_read $host rx_bytes); done
begin bytes --cycles 0 --check --json
all_end 0
[ "$(value check)" = pass ] && [ "$(value nodes)" = 2 ] && [ "$(value node_ratio)" = 1 ] || fail "not what it should be"
for host in 0 1; do
  received=$(($(hosts_read $host rx_bytes) - before[host]))
  moved=$(sed -n 's/.*"node": '$host', "ranks": 4, "moved_bytes": \([0-9]*\),.*/\1/p' "$folder/said.0")
  [ "$moved" -gt 100000000 ] || fail "host $host: only $moved bytes moved"
  awk -v received=$received -v moved="$moved" -v host=$host 'BEGIN {
    printf "host %d: %d bytes moved, %d received, %.4f\n", host, moved, received, received / moved
    exit !(received >= moved && received <= 1.03 * moved + 1048576) }' || fail "host $host received $received bytes for $moved"
done

# There and back again, and again: the same digest as on one host.
digest=$(value digest)
begin again --cycles 3 --check --json
all_end 0
[ "$(value check)" = pass ] && [ "$(value digest)" = "$digest" ] || fail "another digest"

# The cable is pulled while bytes go over it: all come back on both sides, with their weights.
hosts_remove
hosts_make 100mbit || fail "no hosts"
begin cut --cycles 0 --keep host --timeout 4 --cap 16MiB
for ((try = 0; try < 600; try++)); do
  [ "$(hosts_read 1 rx_bytes)" -lt 8000000 ] || break
  sleep 0.05
done
[ $try -lt 600 ] || fail "no bytes came"
hosts_cut
start=$(date +%s%N)
all_end 1
seconds=$((($(date +%s%N) - start) / 1000000))
echo "cut: all ranks were back after $seconds ms"
[ $seconds -le 8000 ] || fail "the ranks came back after $seconds ms"
for host in 0 1; do # ranks that can reach each other say it once
  other=$((1 - host))
  cat "$folder"/why.[$((host * 4))-$((host * 4 + 3))] >"$folder/side"
  grep -q "for rank [0-9] on node $other\|on node $other .*cannot be reached" "$folder/side" || fail "host $host does not name the other node"
  grep -q 'the train weights stand as they were' "$folder/side" || fail "host $host does not say where its weights are"
done
echo good
