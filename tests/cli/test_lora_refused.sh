#!/usr/bin/env bash
# Adapters that would give other weights than they were trained for are refused by name: values that are infinite or not
# a number, as they are or once they are merged; adapters that began with a change of the weights; weights that have them
# already, whatever form they came in; folders that are not there; numbers that say nothing; and checkpoints of the other
# kind at resume.
# ctest: timeout=300
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; [ ! -s "$folder/err" ] || cat "$folder/err"; exit 1; }
model=$TREADLE_SOURCE/tests/golden/models/qwen2-tied
rows=$TREADLE_SOURCE/tests/golden/grads/qwen2-tied/rows.jsonl
cat >"$folder/config.yaml" <<END
megatron_training:
  data_path: $rows
  train_iters: 2
  global_batch_size: 2
actor_config:
  model: $model
  lr: 1.0e-2
END
run() { "$TREADLE" "$@" >"$folder/out" 2>"$folder/err" || fail "failed: $*"; }
# refused WORDS COMMAND...: exit status 2, and these words.
refused() {
  local words=$1 status=0
  shift
  "$TREADLE" "$@" >"$folder/out" 2>"$folder/err" || status=$?
  [ $status = 2 ] || fail "status $status for: $*"
  grep -q -- "$words" "$folder/err" || fail "no '$words' for: $*"
}
adapters=(actor_config.lora_rank=4 actor_config.lora_alpha=8)
run sft "$folder/config.yaml" "actor_config.save=$folder/run" "${adapters[@]}"
run sft "$folder/config.yaml" "actor_config.save=$folder/whole"
lora=$folder/run/global_step_2/actor/lora_adapter
# changed SED: a copy of the adapters with another config.
changed() {
  rm -rf "$folder/changed"
  cp -r "$lora" "$folder/changed"
  sed -i "$1" "$folder/changed/adapter_config.json"
}
grad=(grad "$model" --file "$rows" --lora-rank 4)
merge_changed() {
  refused "$1" convert "$model" "$folder/none" --from hf --to "${2:-hf}" --lora "$folder/changed"
  [ ! -e "$folder/none" ] || fail "something was written"
}

# Values.
changed ''
weights=$folder/changed/adapter_model.safetensors
printf '\0\0\300\177' | dd of="$weights" bs=1 seek=$(($(stat -c %s "$weights") - 4)) conv=notrunc status=none
merge_changed "adapter_model.safetensors: element \[.*\] of 'base_model.*lora_.*' is infinite or not a number"
refused "element \[.*\] of 'base_model.*' is infinite or not a number" "${grad[@]}" --lora-alpha 8 --lora "$folder/changed"
changed 's/"lora_alpha": 8/"lora_alpha": 1e16/'
merge_changed 'proj.weight: element \[.*\] with its adapter is infinite or not a number in fp16' hf:dtype=fp16
changed 's/"lora_alpha": 8/"lora_alpha": 1e-46/'
merge_changed 'alpha / rank, 2.5e-47, is beyond the numbers of fp32'
changed 's/"lora_alpha": 8/"lora_alpha": 1e300/'
merge_changed 'alpha / rank, 2.5e+299, is beyond the numbers of fp32'
refused 'alpha / rank, 2.5e-47, is beyond' "${grad[@]}" --lora-alpha 1e-46
refused '--lora-alpha 0: a number above 0' "${grad[@]}" --lora-alpha 0
refused '--z-loss-coeff -1: a number from 0 on' "${grad[@]}" --z-loss-coeff -1

# Beginnings.
for name in pissa pissa_niter_4 OLoRA corda loftq lora_ga; do
  changed "s/\"init_lora_weights\": true/\"init_lora_weights\": \"$name\"/"
  merge_changed "init_lora_weights is '$name', which changes the weights beside the adapters"
done
refused "init_lora_weights is 'lora_ga'" "${grad[@]}" --lora-alpha 8 --lora "$folder/changed"
changed 's/"init_lora_weights": true/"init_lora_weights": "gaussians"/'; merge_changed "init_lora_weights is 'gaussians', which is not known"
changed 's/"init_lora_weights": true/"init_lora_weights": 3/'; merge_changed 'init_lora_weights is neither a name, true nor false'
changed 's/"init_lora_weights": true/"corda_config": {"corda_method": "kpm"}/'; merge_changed 'corda_config is set, of a method which changes'
changed 's/"init_lora_weights": true/"kasa_config": {"beta": 1}/'; merge_changed 'kasa_config is set'
for value in false null '"Gaussian"' '"eva"' '"orthogonal"' 'true, "corda_config": {"corda_method": "kpm"}' 'true, "loftq_config": {}'; do
  changed "s/\"init_lora_weights\": true/\"init_lora_weights\": $value/"
  run convert "$model" "$folder/fine" --from hf --to hf --lora "$folder/changed"
  rm -r "$folder/fine"
done

# Folders.
for command in "convert $model $folder/none --from hf --to hf" "${grad[*]} --lora-alpha 8"; do
  refused "$folder/nowhere: there is no such folder; adapters are a folder with adapter_config.json" $command --lora "$folder/nowhere"
  refused "$model: has no adapters: adapter_config.json is not there" $command --lora "$model"
  refused "$rows: it is not a folder" $command --lora "$rows"
done
begin() { refused "$1" sft "$folder/config.yaml" "actor_config.save=$folder/none" "${adapters[@]}" "${@:2}"; }
begin "$folder/nowhere: there is no such folder" "actor_config.lora_adapter_path=$folder/nowhere"
begin "'': there is no such folder" "actor_config.lora_adapter_path=''"

# Merged once is enough: in each form, with the model of another folder or its own.
run convert "$model" "$folder/merged" --from hf --to hf --lora "$lora"
begin "$folder/merged/merged_adapter.json: the weights have these adapters in them already" "actor_config.model=$folder/merged" \
  "actor_config.lora_adapter_path=$lora"
refused 'have these adapters in them already' grad "$folder/merged" --file "$rows" --lora-rank 4 --lora-alpha 8 --lora "$lora"
for form in megatron torch_dist; do
  run convert "$model" "$folder/$form" --from hf --to "$form" --lora "$lora"
  for of in "" "--model $model"; do
    refused "$folder/$form/hf/merged_adapter.json: the weights have these adapters" convert "$folder/$form" "$folder/again" --from "$form" --to hf $of --lora "$lora"
  done
  run convert "$folder/$form" "$folder/back-$form" --from "$form" --to hf --model "$model"
  cmp "$folder/back-$form/merged_adapter.json" "$folder/merged/merged_adapter.json" || fail "the mark is gone"
done

# Megatron's files in place of the model's own.
policy=$TREADLE_SOURCE/examples/sequence/policy
"$TREADLE" data sequence --out "$folder/data" --seed 1 >"$folder/out"
cat >"$folder/grpo.yaml" <<END
megatron_training:
  tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence
  data_path: $folder/data/train.jsonl
  train_iters: 1
  global_batch_size: 2
actor_config: {model: $policy, lora_rank: 2, lr: 1.0e-3}
generate_config: {sampling_config: {max_tokens: 8}}
rl_config: {n_samples_per_prompt: 2, max_prompt_length: 10, verifier_function: [sequence]}
END
run train "$folder/grpo.yaml" "actor_config.save=$folder/policy"
lora=$folder/policy/global_step_1/actor/lora_adapter
run convert "$policy" "$folder/files" --from hf --to megatron --lora "$lora"
refused "$folder/files/hf/merged_adapter.json: the weights have these adapters" train "$folder/grpo.yaml" \
  "actor_config.save=$folder/none" "actor_config.load=$folder/files" "actor_config.lora_adapter_path=$lora"

# Checkpoints of the other kind.
refused 'of a run that trained the weights, and this one trains adapters, with lora_rank 4' sft "$folder/config.yaml" "actor_config.save=$folder/whole" \
  megatron_training.train_iters=3 "${adapters[@]}" --resume
refused 'of a run that trained adapters, and this one trains the weights' sft "$folder/config.yaml" "actor_config.save=$folder/run" \
  megatron_training.train_iters=3 --resume
[ ! -e "$folder/none/global_step_2" ] || fail "a refused run trained"
