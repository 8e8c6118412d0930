#!/usr/bin/env bash
# treadle plan --config of files of MindSpeed-RL, RLinf and verl: the figures are those of the same plan by options, `config` says what the file
# says, options and words go before it, and broken files are refused by path and line. The blocks of the documents are read as they stand, where the
# documents are, and so are verl's generated files, in the folder TREADLE_VERL_FILES or beside the documents. What keys become is
# tests/loop/run/test_config_switch.c.
# ctest: timeout=120
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }
files=$TREADLE_SOURCE/tests/data/config
shared=$TREADLE_SOURCE/../shared
verl=${TREADLE_VERL_FILES:-$shared/data/verl-0.9.1}
"$TREADLE" make-model "$folder/model" --layers 8 --hidden 256 --vocab 1024 >"$folder/out" 2>&1 || { cat "$folder/out"; fail "no model"; }

# plan FILE OPTIONS...: its JSON in $folder/plan
plan() {
  local file=$1
  shift
  "$TREADLE" plan --config "$file" --json "$@" >"$folder/plan" 2>"$folder/err" || { cat "$folder/err"; fail "$file: no plan"; }
}
# config TEXT: the key of that plan
config() {
  local found
  found=$(tr -s '\n ' '  ' <"$folder/plan" | sed 's/.*"config": \({[^}]*}\).*/\1/')
  [ "$found" = "$1" ] || fail "config is $found, and not $1"
}
# figures FILE: all but times and `config`
figures() { sed '/"config"/,/}/d' "$1" | grep -v '"plan_'; }
# same OPTIONS...: a plan by options has the same figures
same() {
  "$TREADLE" plan --model "$folder/model" --json "$@" >"$folder/other" 2>"$folder/err" || { cat "$folder/err"; fail "no plan of $*"; }
  diff <(figures "$folder/plan") <(figures "$folder/other") || fail "other figures than with $*"
}
warned() { grep -q "warning: .*$1" "$folder/err" || { cat "$folder/err"; fail "nothing is said of $1"; }; }

plan "$files/verl-megatron.yaml" --model "$folder/model"
config '{"model": "~/models/tiny", "train": "megatron:tp=2,pp=2,first=3,dtype=bf16", "infer": "vllm:tp=2,dp=2,dtype=bf16", "ranks": 16, "nodes": 2, "offload": ["params", "grads", "optimizer"], "cap": 536870912, "source": "verl"}'
warned 'yaml:41: actor_rollout_ref.rollout.name is not said: taken as vllm'
warned 'known, and without effect here: .*data.train_batch_size (line 68)'
same --from megatron:tp=2,pp=2,first=3,dtype=bf16 --to vllm:tp=2,dp=2,dtype=bf16 --ranks 16 --nodes 2 --cap 512MiB
plan "$files/verl-megatron.yaml" --model "$folder/model" actor_rollout_ref.rollout.name=sglang trainer.nnodes=1 --cap 64MiB
same --from megatron:tp=2,pp=2,first=3,dtype=bf16 --to sglang:tp=4,dtype=bf16 --ranks 8 --cap 64MiB
plan "$files/verl-flattened.yaml" --model "$folder/model" --ranks 8
config '{"model": "~/models/tiny", "train": "fsdp", "infer": "vllm:dtype=bf16", "ranks": null, "nodes": null, "offload": ["params"], "cap": null, "source": "verl"}'
same --from fsdp --to vllm:dtype=bf16 --ranks 8
plan "$files/verl-flattened.yaml" --model "$folder/model" --ranks 4 --from megatron:tp=4 --to vllm:tp=2 --rank-map best --nodes 2
same --ranks 4 --from megatron:tp=4 --to vllm:tp=2 --rank-map best --nodes 2

# RLinf's engine is in strides, unless the layouts are others than the file's.
plan "$files/rlinf-megatron.yaml" --model "$folder/model" --ranks 8 actor.model.tensor_model_parallel_size=4 rollout.tensor_parallel_size=2
config '{"model": "./models/tiny", "train": "megatron:tp=4,dtype=fp16", "infer": "sglang:tp=2,dtype=fp16", "ranks": null, "nodes": 1, "offload": [], "cap": null, "source": "RLinf"}'
grep -q '"rank_map": "strided"' "$folder/plan" || fail "the map is not strided"
same --from megatron:tp=4,dtype=fp16 --to sglang:tp=2,dtype=fp16 --ranks 8 --rank-map strided
plan "$files/rlinf-megatron.yaml" --model "$folder/model" --ranks 8 --to sglang:tp=2
grep -q '"rank_map": "contiguous"' "$folder/plan" || fail "a layout of --to has the file's map"
plan "$files/rlinf-megatron.yaml" --model "$folder/model" "cluster.component_placement.actor,rollout,reward=null" cluster.component_placement.actor=4-7 cluster.component_placement.rollout=0-3
same --from megatron:tp=2,dtype=fp16,on=4-7 --to sglang:dtype=fp16,on=0-3 --ranks 8

plan "$files/mindspeed-grpo.yaml" megatron_training.tokenizer_name_or_path="$folder/model"
config "{\"model\": \"$folder/model\", \"train\": \"megatron:tp=2,pp=2,dtype=bf16\", \"infer\": \"vllm:dtype=bf16\", \"ranks\": 8, \"nodes\": null, \"offload\": [\"grads\", \"optimizer\"], \"cap\": null, \"source\": \"MindSpeed-RL\"}"
same --from megatron:tp=2,pp=2,dtype=bf16 --to vllm:dtype=bf16 --ranks 8

"$TREADLE" plan --config "$files/mindspeed-grpo.yaml" --model "$folder/model" >"$folder/text" 2>/dev/null
grep -qx "config            $files/mindspeed-grpo.yaml, of MindSpeed-RL" "$folder/text" || fail "the report does not name its file"
grep -qx 'offload           grads, optimizer during inference' "$folder/text" || fail "the report does not say what is offloaded"
status=0
"$TREADLE" plan --config "$files/mindspeed-grpo.yaml" --model "$folder/model" --budget 1MiB >/dev/null 2>&1 || status=$?
[ $status = 1 ] || fail "a plan that does not fit: status $status"

# refused WORDS OPTIONS...: status 2, a message with these words, and nothing else
refused() {
  local words=$1 status=0
  shift
  "$TREADLE" plan "$@" >"$folder/out" 2>"$folder/err" || status=$?
  [ $status = 2 ] || fail "plan $*: status $status"
  [ ! -s "$folder/out" ] || fail "plan $*: prints"
  grep -qF -- "$words" "$folder/err" || { cat "$folder/err"; fail "plan $*: does not say $words"; }
}
refused "the model '~/models/tiny' is neither a folder nor a file here, such as a hub's name: give --model" --config "$files/verl-megatron.yaml"
refused 'does not say how many ranks there are: give --ranks N' --config "$files/verl-flattened.yaml" --model "$folder/model"
refused 'does not say which model it is: give --model' --config "$files/verl-flattened.yaml" actor_rollout_ref.model.path=null --ranks 8
refused "$files/verl-megatron.yaml: layout 'megatron:tp=3'" --config "$files/verl-megatron.yaml" --model "$folder/model" --from megatron:tp=3
refused "'a=b' is one word too many" --model "$folder/model" --from hf --to hf --ranks 1 a=b
refused '--from LAYOUT is missing' --model "$folder/model" --to hf --ranks 1
refused "override 'a': expected section.key=value" --config "$files/verl-megatron.yaml" a
refused 'cannot open: No such file' --config "$folder/nothing.yaml"

# Broken variants: of the file, line LINE is TEXT.
count=0
broken() {
  local file=$1 line=$2 text=$3 words=$4
  sed "${line}s|.*|$text|" "$files/$file.yaml" >"$folder/broken.yaml"
  refused "$folder/broken.yaml:$line: $words" --config "$folder/broken.yaml" --model "$folder/model" --ranks 8
  count=$((count + 1))
}
megatron=actor_rollout_ref.actor.megatron
rollout=actor_rollout_ref.rollout
broken verl-megatron 11 '      tensor_model_parallel_size: 2.5' "$megatron.tensor_model_parallel_size is '2.5', and must be a whole number"
broken verl-megatron 11 '      tensor_model_parallel_size: [2]' "$megatron.tensor_model_parallel_size is a list, and must be one value"
broken verl-megatron 11 '      tensor_model_parallel_size: 3' "$megatron.tensor_model_parallel_size: tp * pp * cp makes 6"
broken verl-megatron 11 '      tensor_modle_parallel_size: 2' "$megatron.tensor_modle_parallel_size: no key of verl that is known here; did you mean 'tensor_model_parallel_size'?"
broken verl-megatron 11 '      tensor_model_parallel_size: ${oc.env:TP}' "$megatron.tensor_model_parallel_size: \${oc.env:TP} is of the environment"
broken verl-megatron 11 '      tensor_model_parallel_size: ${.tensor_model_parallel_size}' "$megatron.tensor_model_parallel_size: \${.tensor_model_parallel_size}: names that lead to names"
broken verl-megatron 11 '      tensor_model_parallel_size: ${..nothing}' "$megatron.tensor_model_parallel_size: \${..nothing}: there is no such value"
broken verl-megatron 11 '      tensor_model_parallel_size: ${......x}' "$megatron.tensor_model_parallel_size: \${......x} leads out of the file"
broken verl-megatron 28 '      use_megatron_fsdp: true' "$megatron.use_megatron_fsdp is 'true': here it can only be false"
broken verl-megatron 29 '      dtype: fp4' "$megatron.dtype is 'fp4': a layout has bf16, fp16 or fp32"
broken verl-megatron 30 '    strategy: veomni' "actor_rollout_ref.actor.strategy is 'veomni'"
broken verl-megatron 41 '    name: trtllm' "$rollout.name is 'trtllm'"
broken verl-megatron 49 '    expert_parallel_size: 3' "$rollout.expert_parallel_size is 3, and must be 1 or"
broken verl-megatron 57 '      update_weights_bucket_megabytes: much' "$rollout.checkpoint_engine.update_weights_bucket_megabytes is 'much'"
broken verl-megatron 58 '    quantization: fp8' "$rollout.quantization: this cannot be done here"
broken verl-megatron 65 '    lora_rank: 16' "actor_rollout_ref.model.lora_rank is '16': here it can only be 0"
broken verl-megatron 70 'actor_config:' "actor_config is MindSpeed-RL's, and actor_rollout_ref on line 2 verl's"
broken rlinf-megatron 8 '    actor,rollout,reward: 0-3,2' "cluster.component_placement.actor,rollout,reward is '0-3,2': accelerators must ascend"
broken rlinf-megatron 8 '    actor,rollout,reward: 3-0' "cluster.component_placement.actor,rollout,reward is '3-0': 3-0 ends before it begins"
broken rlinf-megatron 8 '    actor: 0-3' "cluster.component_placement.actor: cluster.component_placement has no place for rollout"
broken rlinf-megatron 8 '    actor,rollout: some' "cluster.component_placement.actor,rollout is 'some': a placement is"
broken rlinf-megatron 22 '  training_backend: jax' "actor.training_backend is 'jax'"
broken rlinf-megatron 27 '    precision: int4' "actor.model.precision is 'int4'"
broken mindspeed-grpo 42 '  tensor_model_parallel_size: no' "actor_config.tensor_model_parallel_size is 'no'"
broken mindspeed-grpo 43 '  noop_layers: 0,3' 'actor_config.noop_layers: this cannot be done here'
broken mindspeed-grpo 103 '  offload_train_param: perhaps' "generate_config.offload_train_param is 'perhaps'"
[ $count -ge 20 ] || fail "only $count variants"

if [ -d "$verl" ]; then
  for name in ppo ppo_megatron; do
    plan "$verl/_generated_${name}_trainer.yaml" --model "$folder/model"
    [ "$(grep -c '"rank":' "$folder/plan")" = 8 ] || fail "verl's $name: not the plan of 8 ranks"
    [ "$(grep -c 'without effect here' "$folder/err")" = 1 ] || fail "verl's $name: not one warning"
  done
  config '{"model": "~/models/deepseek-llm-7b-chat", "train": "megatron:dtype=bf16", "infer": "vllm:tp=2,dtype=bf16", "ranks": 8, "nodes": 1, "offload": [], "cap": 2147483648, "source": "verl"}'
  plan "$verl/_generated_ppo_trainer.yaml" --model "$folder/model"
  config '{"model": "~/models/deepseek-llm-7b-chat", "train": "fsdp:dtype=fp32", "infer": "vllm:tp=2,dtype=bf16", "ranks": 8, "nodes": 1, "offload": [], "cap": 2147483648, "source": "verl"}'
else
  echo "$verl is not there: verl's generated files are skipped"
fi

documents=$shared/documents
if [ ! -d "$documents" ]; then
  echo "$documents is not there: its blocks are skipped"
  exit 0
fi
for name in S0_mindspeed_rl_resharding S1_mindspeed_rl_hybrid_actor; do
  sed -n '/^```yaml/,/^```$/p' "$documents/$name.md" | grep -v '^```' >"$folder/$name.yaml"
done
plan "$folder/S0_mindspeed_rl_resharding.yaml" --model "$folder/model" --ranks 8
config '{"model": null, "train": "megatron:tp=4,pp=2", "infer": "vllm:tp=2", "ranks": null, "nodes": null, "offload": ["params", "grads", "optimizer"], "cap": null, "source": "MindSpeed-RL"}'
plan "$folder/S1_mindspeed_rl_hybrid_actor.yaml" --model "$folder/model" --ranks 8
config '{"model": null, "train": "megatron:tp=4", "infer": "vllm:tp=4", "ranks": null, "nodes": null, "offload": ["params", "grads", "optimizer"], "cap": null, "source": "MindSpeed-RL"}'
awk '/^\.\. code-block:: yaml/ { n++; inside = 1; next } inside && /^[^ ]/ { inside = 0 } inside { print substr($0, 4) > ("'"$folder"'/S3-" n ".yaml") }' \
  "$documents/S3_rlinf_new_model_megatron_sglang.rst"
for number in 1 2; do
  plan "$folder/S3-$number.yaml" --model "$folder/model" --ranks 4
  config '{"model": null, "train": "megatron", "infer": "sglang", "ranks": null, "nodes": null, "offload": [], "cap": null, "source": "RLinf"}'
done
plan "$folder/S3-3.yaml" --model "$folder/model" --ranks 4
config '{"model": null, "train": "megatron:tp=2,dtype=fp16", "infer": "sglang:dtype=fp16", "ranks": null, "nodes": null, "offload": [], "cap": null, "source": "RLinf"}'
