#!/usr/bin/env bash
# Ranks by the environment of torchrun, and what is refused: half an environment, ranks elsewhere, MPI without its library.
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
unset RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE PMIX_RANK
"$TREADLE" make-model "$folder/model" --layers 2 --hidden 256 --vocab 128 >/dev/null
switch=("$TREADLE" switch --model "$folder/model" --train megatron:tp=2,pp=2 --infer vllm:tp=2 --check --cycles 1 --page-size 4KiB --cap 1MiB --timeout 60)

job=$((RANDOM % 1000))$$
for rank in 0 1 2 3; do
  RANK=$rank WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=$job TORCHELASTIC_RUN_ID=t \
    "${switch[@]}" >"$folder/said.$rank" 2>&1 &
  ranks[rank]=$!
done
for rank in 0 1 2 3; do wait "${ranks[rank]}" || { cat "$folder"/said.*; exit 1; }; done
[ "$(tail -1 "$folder/said.0")" = PASS ] || { cat "$folder/said.0"; exit 1; }
grep -q 'on 4 ranks' "$folder/said.0"
[ ! -s "$folder/said.3" ] || { cat "$folder/said.3"; exit 1; }

# Ranks of several nodes meet at the port behind torchrun's own.
port=$((20000 + RANDOM % 10000))
for rank in 0 1 2 3; do
  RANK=$rank WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TORCHELASTIC_RUN_ID=t \
    "${switch[@]}" --nodes 1,3 >"$folder/said.$rank" 2>&1 &
  ranks[rank]=$!
done
for rank in 0 1 2 3; do wait "${ranks[rank]}" || { cat "$folder"/said.*; exit 1; }; done
[ "$(tail -1 "$folder/said.0")" = PASS ] || { cat "$folder/said.0"; exit 1; }
grep -q 'between nodes' "$folder/said.0" || { cat "$folder/said.0"; exit 1; }

refused() { # WORDS VARIABLES...
  local words=$1
  shift
  env "$@" "${switch[@]}" >"$folder/said" 2>&1 && { echo "$* was not refused"; exit 1; }
  grep -q "$words" "$folder/said" || { echo "$*:"; cat "$folder/said"; exit 1; }
}
torchrun=(MASTER_ADDR=localhost MASTER_PORT=$job)
refused "RANK is '-1', and must be a whole number from 0" RANK=-1 WORLD_SIZE=2 "${torchrun[@]}"
refused "WORLD_SIZE is 'two'" RANK=0 WORLD_SIZE=two "${torchrun[@]}"
refused "RANK is 2, and WORLD_SIZE 2" RANK=2 WORLD_SIZE=2 "${torchrun[@]}"
refused "torchrun: MASTER_ADDR is 'localhost' and MASTER_PORT 65535: ranks of several nodes meet at the next port" RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=65535
refused "Slurm has 4 tasks (SLURM_NTASKS), and this process was given no way to find the others: start it by srun --mpi=pmix" SLURM_NTASKS=4
refused "tp=2" RANK=0 WORLD_SIZE=1 "${torchrun[@]}"

# The command alone, away from its library.
cp "$TREADLE" "$folder/treadle"
switch[0]=$folder/treadle
refused "an MPI launcher started this process (PMI_SIZE is set), but libtreadle_mpi.so.2 cannot be loaded" PMI_SIZE=2
echo good
