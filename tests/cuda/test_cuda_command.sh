#!/usr/bin/env bash
# treadle switch --device cuda on the stand-in of the driver (tests/cuda/fake_cuda.h): it prints what the same command prints on the cpu, and
# moves the bytes by kernels alone; what it had of the card is given back; and what is refused.
# ctest: label=mpi timeout=300
set -euo pipefail
unset RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE PMIX_RANK
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
export FAKE_CUDA_CARD=$folder/card FAKE_CUDA_LEDGER=$folder/ledger
library=$TREADLE_BUILD/fake-cuda
"$TREADLE" make-model "$folder/model" --layers 4 --hidden 256 --vocab 8000 >/dev/null 2>&1

fail() {
  echo "$1"
  head -50 "$folder/said" "$folder/why"
  exit 1
}
# run STATUS RANKS DEVICE OPTIONS...
run() {
  local expected=$1 ranks=$2 device=$3 status=0
  shift 3
  rm -f "$FAKE_CUDA_LEDGER"
  LD_LIBRARY_PATH=$library "$MPIEXEC" -n "$ranks" "$TREADLE" switch --model "${model:-$folder/model}" --page-size "${page:-2MiB}" \
    --timeout 60 --device "$device" "$@" >"$folder/said" 2>"$folder/why" || status=$?
  [ "$status" = "$expected" ] || fail "'$*' on $device ended with $status, not $expected"
}
says() { grep -qF -- "$1" "$folder/why" || fail "it does not say: $1"; }

# NAME: of the ledger, added up over the ranks, each of which has a line.
sum() { grep -o "\"$1\": [0-9]*" "$FAKE_CUDA_LEDGER" | awk '{ all += $2 } END { printf "%d\n", all }'; }
gives_back() { # RANKS
  local name
  [ "$(wc -l <"$FAKE_CUDA_LEDGER")" = "$1" ] || fail "not every rank has a ledger"
  for name in handles ranges objects mappings mapped_bytes accessible_bytes pinned_bytes waiting; do
    [ "$(sum "$name")" = 0 ] || fail "$name is $(sum "$name") at the end"
  done
  ! compgen -G "$FAKE_CUDA_CARD*" >/dev/null || fail "a process still has a card"
}
value() { sed -n 's/^  "'"$1"'": "\?\([^",]*\)"\?,\?$/\1/p' "$folder/said"; } # KEY: of the last JSON
same() { # the last JSON without what depends on time, and what only devices have; and only host memory is sent from where it lies
  sed -E '/^  "[a-z_]*seconds[a-z_]*"|^  "rate_|^  "(net_window_bytes|device|kernel_launches|waves_in_flight|table_bytes|slab_bytes)"/d; s/"[a-z_]*seconds[a-z_]*": [^,}]*,?//g' "$folder/said"
}

# alike RANKS OPTIONS...: both devices; on the card every byte that the switch copies is written by a kernel.
alike() {
  local ranks=$1
  shift
  run 0 "$ranks" cpu "$@" --check --json
  same >"$folder/cpu"
  run 0 "$ranks" cuda "$@" --check --json
  same >"$folder/cuda"
  diff "$folder/cpu" "$folder/cuda" || fail "'$*' says something else on the device"
  gives_back "$ranks"
  [ "$(value check)" = pass ] || fail "$* did not pass"
  [ "$(sum kernel_bytes)" -ge "$(($(value copied_bytes) * $(value cycles)))" ] || fail "$* copied bytes without kernels"
}
pair=(--train megatron:tp=2,pp=2 --infer vllm:tp=4)
alike 4 "${pair[@]}" --cap 8MiB --cycles 2
alike 1 --train hf --infer vllm:tp=1 --cap 8MiB --cycles 1
alike 4 "${pair[@]}" --cap 8MiB --cycles 1 --keep host
alike 4 "${pair[@]}" --cap 16MiB --cycles 1 --offload params,grads=keep,optimizer
alike 4 "${pair[@]}" --cap 16MiB --cycles 1 --update 2
alike 4 "${pair[@]}" --cap 16MiB --cycles 1 --alias off
alike 4 "${pair[@]}" --cap 16MiB --cycles 1 --nodes 2 --net tcp
[ "$(value net_window_bytes)" = 0 ] || fail "windows on the device were sent from"
page=16KiB FAKE_CUDA_GRANULARITY=4096 alike 4 "${pair[@]}" --cap 1MiB --cycles 1

# Blocks of fp8, which are asked for together, however many there are: in one piece, and cut between ranks.
cat >"$folder/blocks.json" <<'EOF'
{"model_type": "qwen3", "vocab_size": 2000, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
 "num_key_value_heads": 4, "head_dim": 32, "intermediate_size": 640, "torch_dtype": "bfloat16", "tie_word_embeddings": false,
 "quantization_config": {"quant_method": "fp8", "weight_block_size": [32, 32]}}
EOF
for blocks in "1 hf vllm:tp=1" "2 megatron:tp=2 vllm:tp=1" "2 hf:root=0 vllm:tp=2"; do
  read -r ranks train infer <<<"$blocks"
  model=$folder/blocks.json alike "$ranks" --train "$train" --infer "$infer" --cap 16MiB --cycles 1 --keep host
  launches=$(value kernel_launches)
  "$TREADLE" plan --model "$folder/blocks.json" --from "$train" --to "$infer" --ranks "$ranks" --page-size 2MiB --cap 16MiB --json >"$folder/said"
  [ "$launches" -le "$((5 * ranks * $(value waves)))" ] || fail "$blocks: $launches launches in $(value waves) waves"
done

# Two cards: ranks read each other's memory by peer access. Without it, the ranks of each card are a node.
FAKE_CUDA_DEVICES=2 alike 4 "${pair[@]}" --cap 8MiB --cycles 1
export FAKE_CUDA_DEVICES=2 FAKE_CUDA_PEERS=0
run 2 4 cuda "${pair[@]}"
says "where there is peer access between the two"
apart=("$TREADLE" switch --model "$folder/model" "${pair[@]}" --nodes 2 --cap 16MiB --page-size 2MiB --cycles 1 --check)
LD_LIBRARY_PATH=$library "$MPIEXEC" -n 2 "${apart[@]}" --device cuda:0 : -n 2 "${apart[@]}" --device cuda:1 \
  >"$folder/said" 2>"$folder/why" || fail "a node for each card: status $?"
unset FAKE_CUDA_DEVICES FAKE_CUDA_PEERS
rm -f "$FAKE_CUDA_CARD"* # of ranks that mpirun has ended

# A switch more copies nothing to or from the host.
copies() { # CYCLES: what the driver copied so
  run 0 4 cuda "${pair[@]}" --cap 8MiB --cycles "$1" --json
  echo $(($(sum host_to_device) + $(sum device_to_host)))
}
few=$(copies 1) many=$(copies 4)
[ $((many - few)) -lt 100000 ] || fail "three cycles copied $((many - few)) bytes by the driver"

# Mistakes on purpose.
run 0 4 cuda "${pair[@]}" --cap 8MiB --cycles 1 --check=prove
gives_back 4

# Refused.
run 2 2 cuda --train megatron:tp=2 --infer vllm:tp=2 --own both
says "--own: the command's own memory is host memory"
run 2 2 cuda --train megatron:tp=2 --infer vllm:tp=2 --update 1 --double on
says "leave out double_infer"
page=4KiB run 2 2 cuda --train megatron:tp=2 --infer vllm:tp=2
says "pages of 4.00 KiB: the driver has pages of 2.00 MiB"
FAKE_CUDA_TOTAL=$((8 << 20)) run 2 2 cuda --train megatron:tp=2 --infer vllm:tp=2
says "device cuda:0 leaves 8.00 MiB of 8.00 MiB"
FAKE_CUDA_DEVICES=0 run 2 2 cuda --train megatron:tp=2 --infer vllm:tp=2
says "CUDA_ERROR_NO_DEVICE"
run 2 2 cuda:1 --train megatron:tp=2 --infer vllm:tp=2
says "there is no device 1: this process sees 1"
mkdir "$folder/none" && echo no >"$folder/none/libcuda.so.1" # whatever the machine has
library=$folder/none run 2 2 cuda --train megatron:tp=2 --infer vllm:tp=2
says "there is no driver library"
FAKE_CUDA_FAIL=cuMemMap:3 run 2 2 cuda --train megatron:tp=2 --infer vllm:tp=2
says "cuMemMap: CUDA_ERROR_OUT_OF_MEMORY"
library=$folder/none run 0 2 auto --train megatron:tp=2 --infer vllm:tp=2
