#!/usr/bin/env bash
# --device of the benches on the stand-in of the driver (tests/cuda/fake_cuda.h): each compares what it has moved, moves it by kernels, and gives
# back what it had of the card. Times are not looked at. What works on the processor alone refuses a device by name.
# ctest: label=mpi timeout=300
set -euo pipefail
unset RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE PMIX_RANK
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
export FAKE_CUDA_CARD=$folder/card FAKE_CUDA_LEDGER=$folder/ledger
for bench in switch offload alias own attach plan rows values delta train tcp; do
  [ -x "$TREADLE_BUILD/bench_$bench" ] || { echo "bench_$bench is not built: skipped"; exit 77; }
done
fail() {
  echo "$1"
  head -50 "$folder/said" "$folder/why"
  exit 1
}
# on_card STATUS COMMAND: with the stand-in.
on_card() {
  local expected=$1 status=0
  shift
  rm -f "$FAKE_CUDA_LEDGER"
  LD_LIBRARY_PATH=$TREADLE_BUILD/fake-cuda "$@" >"$folder/said" 2>"$folder/why" || status=$?
  [ "$status" = "$expected" ] || fail "'$*' ended with $status, not $expected"
}
sum() { grep -o "\"$1\": [0-9]*" "$FAKE_CUDA_LEDGER" | awk '{ all += $2 } END { printf "%d\n", all }'; }
# moves BENCH RANKS OPTIONS: on a card.
moves() {
  local bench=$1 ranks=$2 name
  shift 2
  on_card 0 "$MPIEXEC" -n "$ranks" "$TREADLE_BUILD/bench_$bench" "$@" --scale-down 4 --device cuda --rounds 1
  [ "$(wc -l <"$FAKE_CUDA_LEDGER")" = "$ranks" ] || fail "bench_$bench: not every rank has a ledger"
  [ "$(sum kernel_bytes)" -gt 0 ] || fail "bench_$bench: nothing was moved by kernels"
  for name in handles ranges objects mappings mapped_bytes pinned_bytes waiting; do
    [ "$(sum "$name")" = 0 ] || fail "bench_$bench: $name is $(sum "$name") at the end"
  done
}
says() { grep -qF -- "$1" "$folder/$2" || fail "it does not say: $1"; }

moves switch 2 --train megatron:tp=2 --infer vllm:tp=1 --json
says '"device": "cuda"' said
says '"rate_over_memcpy"' said
! grep -q alltoallw "$folder/said" || fail "bench_switch: MPI's ways ran beside a device"
moves offload 2
moves alias 2 --shapes qwen2.5-7b
moves own 2 --train megatron:tp=2 --infer vllm:tp=1
on_card 0 "$TREADLE_BUILD/bench_attach" --scale-down 4 --rounds 1 --device cuda
says 'a killed holder is dropped' said
! grep -q 'mmap' "$folder/said" || fail "bench_attach: the window was in memory of the host"

# Plans of a device have its pages and its cap, and fewer waves.
waves() { sed -n 's/.*"waves": \([0-9]*\),.*/\1/p' "$folder/said" | head -1; }
on_card 0 "$TREADLE_BUILD/bench_plan" --runs 1 --json --device cpu
on_host=$(waves)
on_card 0 "$TREADLE_BUILD/bench_plan" --runs 1 --json --device cuda
[ "$(waves)" -lt "$on_host" ] || fail "bench_plan: $(waves) waves on a device, $on_host on the host"

if command -v python3 >/dev/null; then
  on_card 0 python3 "$TREADLE_SOURCE/bench/nodes" --build "$TREADLE_BUILD" --runs 1 --parts loopback --pairs bf16 --cycles 1 --layers 2 --device cuda
  says '"speed_over_mpi"' said
  [ "$(sum kernel_bytes)" -gt 0 ] || fail "bench/nodes: nothing was moved by kernels"
fi

# On the processor alone.
for bench in rows values delta; do
  on_card 1 "$TREADLE_BUILD/bench_$bench" --device cuda
  says "bench_$bench: --device cuda: " why
done
on_card 1 "$MPIEXEC" -n 1 "$TREADLE_BUILD/bench_train" "$folder" --device cuda
says "--device cuda: the built-in trainer computes on the host" why
on_card 1 "$TREADLE_BUILD/bench_attach" --device gpu
says "--device is 'gpu': it is cpu, cuda, cuda:I or auto" why
