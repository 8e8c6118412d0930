#!/usr/bin/env bash
# treadle switch over nodes without MPI: two groups of ranks on this machine talk over loopback. Figures, digests, what is refused.
# ctest: timeout=400
set -euo pipefail
unset RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE PMIX_RANK
has_ucx=1
[[ $(PATH=$PATH:/usr/sbin:/sbin ldconfig -p) == *libucp.so.0* ]] || has_ucx=
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
pids=()
trap 'for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; rm -rf "$folder"' EXIT
host=127.$((1 + $$ / 256 % 250)).$(($$ % 256)).252
port=7000
made=$folder/made # of the page sizes and the cap here: some waves
"$TREADLE" make-model "$made" --layers 4 --hidden 256 --vocab 1000 >/dev/null

fail() {
  echo "$1"
  head -50 "$folder"/said.* "$folder"/why.*
  exit 1
}
# RANKS STATUS OPTIONS...: all ranks of one job, each of which ends with that status.
run() {
  local ranks=$1 expected=$2 rank status
  shift 2
  port=$((port + 1))
  rm -f "$folder"/said.* "$folder"/why.*
  pids=()
  for ((rank = 0; rank < ranks; rank++)); do
    "$TREADLE" switch --page-size 4KiB --cap "${cap:-1MiB}" --timeout 60 "$@" --meet "$host:$port" --job nodes --rank "$rank" --ranks "$ranks" \
      >"$folder/said.$rank" 2>"$folder/why.$rank" &
    pids+=($!)
  done
  for ((rank = 0; rank < ranks; rank++)); do
    status=0
    wait "${pids[rank]}" || status=$?
    [ "$status" = "$expected" ] || fail "rank $rank of '$*' ended with $status, not $expected"
  done
  pids=()
}
value() { # KEY: of rank 0's JSON, not of a row in it
  sed -n 's/^  "'"$1"'": "\?\([^",]*\)"\?,\?$/\1/p' "$folder/said.0"
}
is() { [ "$(value "$1")" = "$2" ] || fail "$1 is '$(value "$1")', not '$2'"; }
all_say() { # RANKS WORDS
  local rank
  for ((rank = 0; rank < $1; rank++)); do grep -q -- "$2" "$folder/why.$rank" || fail "rank $rank does not say: $2"; done
}

# One node is the machine: no figure of nodes, and the digest to compare with.
pair=(--model "$made" --train megatron:tp=2,pp=2 --infer vllm:tp=4 --check --json)
run 4 0 "${pair[@]}" --cycles 1
is check pass
is nodes ""
digest=$(value digest)
run 4 0 "${pair[@]}" --cycles 1 --nodes 1
is nodes ""
is digest "$digest"

# Two nodes: every key, the figures of the plan, and no byte twice.
run 4 0 "${pair[@]}" --cycles 2 --nodes 2 --net tcp
is check pass
is digest "$digest"
is nodes 2
is node_ratio 1
is net tcp
"$TREADLE" plan --model "$made" --from megatron:tp=2,pp=2 --to vllm:tp=4 --ranks 4 --nodes 2 --page-size 4KiB --cap 1MiB --json >"$folder/plan"
for key in node_moved_bytes node_lower_bound_bytes node_inbound_max_bytes node_outbound_max_bytes node_link_load_max_over_mean relayed_bytes; do
  planned=$(sed -n 's/^  "'$key'": \([^,]*\),\?$/\1/p' "$folder/plan")
  [ -n "$planned" ] || fail "the plan has no $key"
  is $key "$planned"
done
[ "$(value node_moved_bytes)" -gt 1000000 ] || fail "only $(value node_moved_bytes) bytes moved"
# Eight messages of 128 KiB each way, with heads of 64 bytes, whatever the cap.
for key in staging_bytes staging_peak_bytes; do is $key $((2 * 8 * (131072 + 64))); done
awk -v seconds="$(value net_seconds)" 'BEGIN { exit !(seconds > 0) }' || fail "net_seconds is $(value net_seconds)"
[ "$(grep -c '{"node": [01], "ranks": 2, "moved_bytes": [0-9]*, "lower_bound_bytes": [0-9]*, "sent_bytes": [0-9]*}' "$folder/said.0")" = 2 ] ||
  fail "by_node has not two rows"
[ "$(grep -o '"moved_bytes": [0-9]*, "lower' "$folder/said.0" | tr -dc '0-9\n' | awk '{ sum += $1 } END { printf "%.0f", sum }')" = "$(value node_moved_bytes)" ] ||
  fail "the rows of by_node are not the sum"

# Own tensors on both sides: the same bytes between nodes, and what neighbours relay crosses staging.
own=(--model "$made" --train megatron:tp=4 --infer vllm:tp=1 --check --json --cycles 2 --nodes 2)
run 4 0 "${own[@]}" --offload optimizer
moved=$(value node_moved_bytes) relayed=$(value relayed_bytes)
is staged_bytes 0
run 4 0 "${own[@]}" --own both
is check pass
is digest "$digest"
is node_ratio 1
is node_moved_bytes "$moved"
is relayed_bytes "$relayed"
[ "$(value staged_bytes)" -ge "$relayed" ] && [ "$relayed" -gt 0 ] || fail "staged $(value staged_bytes) bytes, relayed $relayed"

# The map with the fewest bytes between nodes: half as many as with places in the order of ranks.
run 4 0 --model "$made" --train megatron:pp=2 --infer vllm:tp=2 --check --json --cycles 1 --nodes 2
moved=$(value node_moved_bytes)
run 4 0 --model "$made" --train megatron:pp=2 --infer vllm:tp=2 --check --json --cycles 1 --nodes 2 --rank-map best
is check pass
is node_ratio 1
[ "$(value node_moved_bytes)" -lt $((moved * 6 / 10)) ] || fail "best moves $(value node_moved_bytes) bytes between nodes, contiguous $moved"
run 4 0 --model "$made" --train megatron:pp=2 --infer vllm:tp=2 --check --cycles 1 --nodes 2 --rank-map best
grep -q 'strided:2' "$folder/said.0" || fail "the map is not said"

if [[ -n $has_ucx ]]; then
  # The leak sanitizer cannot always halt the threads of UCX ("does not work under ptrace"), and ends the process then.
  ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 run 4 0 "${pair[@]}" --cycles 2 --nodes 2 --net ucx
  is check pass
  is digest "$digest"
  is node_ratio 1
  is net ucx
else
  echo "libucp.so.0 is not on this machine (Debian: libucx0): --net ucx is skipped"
fi

# Other pairs: nodes of one rank each; shards of rows; casts before the wire; ranks of trainer and engine apart, on both, updated.
pairs=(
  "4 4 --train megatron:tp=2,pp=2 --infer vllm:tp=4 --cycles 1 --keep host"
  "4 2 --train fsdp --infer vllm:tp=2 --cycles 1"
  "4 2 --train megatron:tp=4 --infer vllm:tp=2 --cycles 1 --offload grads,optimizer"
  "3 3 --train zero3 --infer sglang:tp=1 --cycles 1 --forward"
  "2 2 --train megatron:pp=2,dtype=fp32 --infer vllm:tp=2,dtype=fp32 --cycles 1"
  "4 2 --train megatron:tp=2,on=0-1 --infer vllm:tp=2,on=2-3 --cycles 1 --update 2"
  "4 2 --train fsdp2:on=0-2 --infer vllm:tp=2,on=1-2 --cycles 1 --update 2"
)
for one in "${pairs[@]}"; do
  read -r ranks nodes rest <<<"$one"
  # shellcheck disable=SC2086 # options are words
  run "$ranks" 0 --model "$made" --check --json --nodes "$nodes" $rest
  is check pass
  is nodes "$nodes"
  is node_ratio 1
  [[ $rest == *dtype=fp32* ]] || is digest "$digest"
done
# fp8 blocks: made on the node that has their values, cut and whole; of values of several ranks (tp cuts experts inside of blocks); and turned
# into values. As many bytes as the plan says, and few more than the bound, which has no scales.
cat >"$folder/blocks.json" <<'EOF'
{"model_type": "qwen3_moe", "vocab_size": 96, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 8,
 "num_key_value_heads": 4, "head_dim": 32, "moe_intermediate_size": 96, "num_experts": 4, "num_experts_per_tok": 2,
 "intermediate_size": 128, "decoder_sparse_step": 1, "torch_dtype": "bfloat16",
 "quantization_config": {"quant_method": "fp8", "weight_block_size": [32, 32]}}
EOF
blocks=(
  "4 2 1.010 megatron:tp=2,pp=2,etp=1 vllm:tp=4"
  "4 2 1.010 megatron:pp=2 vllm:tp=2,dp=2,ep=on"
  "4 2 1.6 megatron:tp=2,pp=2 vllm:tp=4"
  "4 2 1.010 hf:root=1 megatron:tp=2,pp=2,etp=1"
)
for one in "${blocks[@]}"; do
  read -r ranks nodes most train infer <<<"$one"
  run "$ranks" 0 --model "$folder/blocks.json" --check --json --nodes "$nodes" --train "$train" --infer "$infer" --cycles 1 --keep host
  is check pass
  "$TREADLE" plan --model "$folder/blocks.json" --from "$train" --to "$infer" --ranks "$ranks" --nodes "$nodes" --page-size 4KiB --cap 1MiB --json >"$folder/plan"
  for key in moved_bytes node_moved_bytes node_lower_bound_bytes relayed_bytes; do
    is $key "$(sed -n 's/^  "'$key'": \([^,]*\),\?$/\1/p' "$folder/plan")"
  done
  [ "$(value node_moved_bytes)" -gt 100000 ] || fail "only $(value node_moved_bytes) bytes moved"
  awk -v ratio="$(value node_ratio)" -v most="$most" 'BEGIN { exit !(ratio <= most) }' || fail "$one: the ratio is $(value node_ratio)"
done
# Planted mistakes are caught in copies that come in messages, too.
run 4 0 --model "$folder/blocks.json" --check=prove --nodes 2 --train megatron:tp=2,pp=2,etp=1 --infer vllm:tp=4 --cycles 0 --keep host
[ "$(tail -1 "$folder/said.0")" = PASS ] || fail "no PASS of what is planted"
[ "$(grep -c '^prove: .* caught: ' "$folder/said.0")" -ge 6 ] || fail "too few mistakes are caught"

small=${TREADLE_SOURCE:-$PWD}/../shared/data/stories260K/hf
[ -e "$small/config.json" ] || small=$made/config.json # its values are made up, and as good
run 4 0 --model "$small" --train megatron:tp=2,pp=1 --infer vllm:tp=1 --check --cycles 1 --nodes 2
[ "$(tail -1 "$folder/said.0")" = PASS ] || fail "no PASS of $small"
grep -q '^between nodes, to infer: .* by tcp, ratio 1.000' "$folder/said.0" || fail "no line of nodes"
cat "$folder"/why.* "$folder"/said.[123] >"$folder/rest"
[ ! -s "$folder/rest" ] || fail "more was said"

# Changes alone: the same digest, few bytes; casts on either side of the wire; and nothing where there is one node.
deltas=(
  "0 0.004 --train megatron:tp=2,pp=2 --infer vllm:tp=4 --update 3"
  "0.01 0.05 --train megatron:tp=2,on=0-1 --infer vllm:tp=2,on=2-3 --update 3"
  "0.01 0.05 --train megatron:tp=2,pp=2,dtype=fp32 --infer vllm:tp=4 --update 2 --keep infer"
  "0.01 0.05 --train megatron:tp=2,pp=2 --infer vllm:tp=4,dtype=fp32 --update 2"
  "1 1.01 --train megatron:tp=2,pp=2 --infer vllm:tp=4 --update 2"
)
cap=16MiB
for one in "${deltas[@]}"; do
  read -r changed most rest <<<"$one"
  # shellcheck disable=SC2086 # options are words
  run 4 0 --model "$made" --check --json --nodes 2 --cycles 1 --delta on --changed "$changed" $rest
  is check pass
  [[ $rest == *dtype=fp32* ]] || is digest "$digest"
  awk -v dense="$(value dense_bytes)" -v delta="$(value delta_bytes)" -v moved="$(value node_moved_bytes)" -v most="$most" \
    'BEGIN { exit !(dense >= moved && dense <= 1.02 * moved && delta > 0 && delta <= most * dense) }' ||
    fail "$(value delta_bytes) of $(value dense_bytes) bytes, and $most is the most"
done
cap=
run 4 0 "${pair[@]}" --cycles 1 --update 2 --delta on --changed 0.5
is check pass
is digest "$digest"
run 4 0 "${pair[@]}" --cycles 1 --update 2 --nodes 2 --changed 0.5
is check pass
is dense_bytes 0

# What cannot be is refused by all ranks alike.
two=(--model "$made" --train megatron:tp=2,pp=2 --infer vllm:tp=4)
run 4 2 "${two[@]}" --nodes 3
all_say 4 "--nodes is 3, and 4 ranks cannot be divided evenly among that many"
run 4 2 "${two[@]}" --fault killnode:node=0,wave=1
all_say 1 "--fault is 'killnode:node=0,wave=1', and all ranks are on one node: give --nodes"
run 4 2 "${two[@]}" --nodes 2 --fault killnode:node=2,wave=1
all_say 1 "node '2' is none of the 2 nodes"
run 4 2 "${two[@]}" --nodes 2 --net-devices none7
grep -q "network devices: 'none7' is none of this machine's" "$folder"/why.* || fail "none7 is not a device"
run 4 2 "${two[@]}" --nodes 2 --cap 4KiB
grep -q "cap" "$folder"/why.* || fail "no word of the cap"
echo good
