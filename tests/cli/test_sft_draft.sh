#!/usr/bin/env bash
# A model with a draft layer over pipeline stages: the last stage has a copy of the embedding, which nothing but its first stage's gradient moves. A run
# cut so saves the bytes of one rank, and goes on from them.
# ctest: label=mpi timeout=120
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }
sed 's/"num_nextn_predict_layers": [0-9]*/"num_nextn_predict_layers": 1/' "$TREADLE_SOURCE/tests/golden/models/dsv3-yarn/config.json" >"$folder/draft.json"
rows=$TREADLE_SOURCE/tests/golden/grads/qwen2-tied/rows.jsonl
cat >"$folder/sft.yaml" <<END
megatron_training: {data_path: $rows, train_iters: 4, global_batch_size: 4, save_interval: 2}
actor_config: {model: $folder/draft.json, lr: 1.0e-2}
END
# train NAME RANKS ARGUMENTS...
train() {
  local name=$1 ranks=$2
  shift 2
  "$MPIEXEC" -n "$ranks" "$TREADLE" sft "$folder/sft.yaml" actor_config.save="$folder/$name" "$@" >"$folder/$name.out" 2>&1 || { cat "$folder/$name.out"; fail "$name"; }
}
cut=(actor_config.tensor_model_parallel_size=2 actor_config.pipeline_model_parallel_size=2)
train one 1
train cut 4 "${cut[@]}"
for step in 2 4; do
  cmp "$folder"/{one,cut}/global_step_$step/actor/huggingface/model.safetensors || fail "other weights after step $step"
  for part in master exp_avg exp_avg_sq; do
    cmp "$folder"/{one,cut}/global_step_$step/actor/optimizer/$part/model.safetensors || fail "another $part after step $step"
  done
done
rm -r "$folder/cut/global_step_4"
train cut 2 actor_config.pipeline_model_parallel_size=2 --resume
cmp "$folder"/{one,cut}/global_step_4/actor/huggingface/model.safetensors || fail "other weights after a resume"
