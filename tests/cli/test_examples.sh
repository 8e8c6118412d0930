#!/usr/bin/env bash
# The programs of examples/ run, and say what they should. The build says where they are.
# ctest: label=mpi
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
model=$folder/model
"$TREADLE" make-model "$model" --layers 2 --hidden 256 --vocab 512 >"$folder/made"

expect() { # the words that the last output must have
  grep -q -- "$1" "$folder/out" || { echo "no '$1' in:"; cat "$folder/out"; exit 1; }
}

# A golden model, with a tokenizer of six letters.
engine=$folder/engine
mkdir "$engine"
for file in config.json model.safetensors; do
  ln -s "$TREADLE_SOURCE/tests/golden/models/qwen2-tied/$file" "$engine/$file"
done
echo '{"model": {"type": "BPE", "merges": [], "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "f": 5}}}' \
  >"$engine/tokenizer.json"
"$TREADLE_BUILD/example_generate" "$engine" abc >"$folder/out"
expect '^[1-9][0-9]* new tokens'
expect '^[1-9][0-9]* log-probabilities scored, 0 differ'

"$TREADLE_BUILD/example_print_plan" "$model" megatron:tp=4 vllm:tp=2 4 1 >"$folder/out"
expect 'moves .* bytes'
expect 'wave 0'
"$TREADLE_BUILD/example_switch_in_process" "$model" >"$folder/out"
expect 'the same weights'
"$TREADLE_BUILD/example_own_pieces" "$model" vllm:tp=2 4 >"$folder/out"
expect 'rank 3: .* moves'
"$TREADLE_BUILD/example_own_net" "$model" megatron:tp=4 vllm:tp=2 >"$folder/out"
expect 'node 1: version 1, [1-9][0-9]* bytes from the other node'
"$MPIEXEC" -n 4 "$TREADLE_BUILD/example_switch_mpi" "$model" megatron:tp=4 vllm:tp=2 >"$folder/out"
expect 'version 3: '
"$MPIEXEC" -n 4 "$TREADLE_BUILD/example_training_engine" "$model" megatron:tp=2,pp=2 vllm:tp=2 >"$folder/out"
expect 'version 3: loss .* beside a KV cache of [1-9]'
expect '^0 digests differ'
"$MPIEXEC" -n 4 "$TREADLE_BUILD/example_start_and_cancel" "$model" megatron:tp=4 vllm:tp=2 >"$folder/out"
expect 'the switch was cancelled on rank 3'
expect 'the train weights stand as they were'
expect 'version 1, the same weights'

# The same points, whoever draws them.
"$TREADLE_BUILD/example_controller" >"$folder/alone"
for ranks in 2 6; do
  "$MPIEXEC" -n $ranks "$TREADLE_BUILD/example_controller" >"$folder/out"
  expect '^step 3: pi is about 3.1434 (235758 of 300003)'
  diff <(grep '^step' "$folder/alone") <(grep '^step' "$folder/out")
done

# A loop of one's own has the weights of the run that it is like, bit for bit.
source=$TREADLE_SOURCE
"$TREADLE" data sequence --out "$folder/data" --noise 0.3 --seed 1 >"$folder/made"
"$MPIEXEC" -n 8 "$TREADLE_BUILD/example_own_loop" "$source/examples/sequence/policy" "$source/examples/sequence" \
  "$folder/data/train.jsonl" 2 >"$folder/out"
expect '^step 2: score'
weights=$(sed -n 's/^weights //p' "$folder/out")
(cd "$source" && "$MPIEXEC" -n 8 "$TREADLE" train examples/grpo-demo.yaml "megatron_training.data_path=$folder/data/train.jsonl" \
  "megatron_training.val_path=$folder/data/test.jsonl" megatron_training.train_iters=2 rl_config.val_before_train=false \
  "actor_config.save=$folder/run" --json) >"$folder/out" 2>"$folder/err"
expect "\"weights_digest\": \"$weights\""
