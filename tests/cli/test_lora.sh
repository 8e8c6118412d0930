#!/usr/bin/env bash
# LoRA by the commands, of layers and of the head: a run of adapters stopped and resumed in another layout has the same bits; its checkpoint is peft's folder, from which gradients
# begin and with which a checkpoint is merged; what an adapter may not be is refused by name, and so is another base at resume.
# ctest: label=mpi timeout=300
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; [ ! -s "$folder/err" ] || cat "$folder/err"; exit 1; }
value() { sed -n "s/.*\"$2\": \"\{0,1\}\([^\",]*\).*/\1/p" "$folder/$1"; }
launch=("$MPIEXEC")
case $("$MPIEXEC" --version 2>/dev/null) in *'Open MPI'* | *OpenRTE*) launch+=(--oversubscribe) ;; esac

# setup NAME MODULES [ROWS]: a golden model, whose matrices of these names have adapters, and the model whose rows it trains on.
setup() {
  model=$TREADLE_SOURCE/tests/golden/models/$1
  rows=$TREADLE_SOURCE/tests/golden/grads/${3:-$1}/rows.jsonl
  modules=$2
  cat >"$folder/config.yaml" <<END
megatron_training:
  data_path: $rows
  train_iters: 4
  global_batch_size: 2
  save_interval: 2
actor_config:
  model: $model
  save: $folder/run
  lr: 1.0e-2
  lora_rank: 4
  lora_alpha: 8
  target_modules: [$modules]
END
}
# train NAME RANKS ARGUMENTS...
train() {
  local name=$1 ranks=$2 command=("$TREADLE")
  shift 2
  [ "$ranks" = 1 ] || command=("${launch[@]}" -n "$ranks" "$TREADLE")
  "${command[@]}" sft "$folder/config.yaml" "actor_config.save=$folder/$name" "$@" --json >"$folder/$name.json" 2>"$folder/err"
}
# check_run: `whole` and `cut`, runs of the setup, and its weights merged by the run and by convert.
check_run() {
  rm -rf "$folder"/{whole,cut,hurt,merged,cut-merged,cut-huggingface}
  train whole 1 actor_config.lora_save_merged=true
  train cut 4 actor_config.tensor_model_parallel_size=2 actor_config.pipeline_model_parallel_size=2 megatron_training.train_iters=4
  [ "$(value whole.json weights_digest)" = "$(value cut.json weights_digest)" ] || fail "other weights in another layout"
  rm -r "$folder/cut/global_step_4"
  train cut 2 actor_config.tensor_model_parallel_size=2 --resume
  [ "$(value whole.json weights_digest)" = "$(value cut.json weights_digest)" ] || fail "other weights after a resume"
  [ "$(value whole.json losses_digest)" = "$(value cut.json losses_digest)" ] || fail "other losses after a resume"
  actor=$folder/whole/global_step_4/actor
  cmp "$actor/lora_adapter/adapter_model.safetensors" "$folder/cut/global_step_4/actor/lora_adapter/adapter_model.safetensors" || fail "other adapters"
  [ ! -e "$folder/cut/global_step_4/actor/huggingface" ] || fail "merged weights that nobody asked for"
  "$TREADLE" inspect "$folder/whole" --check >"$folder/out" 2>"$folder/err" || fail "a checkpoint is not what it says"
  cp -r "$folder/whole" "$folder/hurt"
  printf x | dd of="$folder/hurt/global_step_4/actor/lora_adapter/adapter_model.safetensors" bs=1 seek=5000 conv=notrunc status=none
  "$TREADLE" inspect "$folder/hurt" --check >"$folder/out" 2>"$folder/err" && fail "damage is not seen"
  "$TREADLE" convert "$model" "$folder/merged" --from hf --to hf --lora "$actor/lora_adapter" >"$folder/out" 2>"$folder/err" || fail "convert"
  for name in merged whole/global_step_4/actor/huggingface; do
    "$TREADLE" convert "$folder/$name" "$folder/cut-$(basename $name)" --from hf --to megatron >"$folder/out" 2>"$folder/err" || fail "convert $name"
  done
  cmp "$folder"/cut-{merged,huggingface}/release/mp_rank_00/model_optim_rng.pt || fail "convert and the run have other merged weights"
  [ -e "$folder/merged/merged_adapter.json" ] && [ -e "$actor/huggingface/merged_adapter.json" ] || fail "no mark"
}
# names ADAPTER TENSOR MODULE: the folder is peft's.
names() {
  grep -q '"r": 4' "$1/adapter_config.json" || fail "no rank"
  grep -q "\"target_modules\": \[.*\"$3\"" "$1/adapter_config.json" || fail "$3 is not among the targets"
  grep -aq "base_model.model.$2.lora_A.weight" "$1/adapter_model.safetensors" || fail "no names of peft's"
}
setup llama-gqa-llama3rope 'q_proj, lm_head'
check_run
names "$actor/lora_adapter" lm_head lm_head
"$TREADLE" grad "$model" --file "$rows" --lora-rank 4 --lora-alpha 8 --target-modules q_proj,lm_head --lora "$actor/lora_adapter" \
  --out "$folder/head.safetensors" --json >"$folder/grad" 2>"$folder/err" || fail "grad with the head"
grep -aq 'base_model.model.lm_head.lora_B.weight' "$folder/head.safetensors" || fail "no gradients of the head's adapter"
setup dsv3-yarn all-linear qwen2-tied
check_run
names "$actor/lora_adapter" model.layers.0.self_attn.kv_b_proj kv_b_proj
setup qwen2-tied 'q_proj, o_proj, down_proj'
check_run
names "$actor/lora_adapter" model.layers.0.self_attn.q_proj q_proj

# refused WORDS COMMAND...: exit status 2, and these words.
refused() {
  local words=$1 status=0
  shift
  "$TREADLE" "$@" >"$folder/out" 2>"$folder/err" || status=$?
  [ $status = 2 ] || fail "status $status for: $*"
  grep -q -- "$words" "$folder/err" || fail "no '$words' for: $*"
}
for twice in "$folder/merged" "$actor/huggingface"; do
  refused 'have these adapters in them already' convert "$twice" "$folder/none" --from hf --to hf --lora "$actor/lora_adapter"
done
# changed SED: a copy of the adapters with another config.
changed() {
  rm -rf "$folder/changed"
  cp -r "$actor/lora_adapter" "$folder/changed"
  sed -i "$1" "$folder/changed/adapter_config.json"
}
convert_changed() { refused "$1" convert "$model" "$folder/none" --from hf --to hf --lora "$folder/changed"; }
changed 's/"lora_dropout": 0.0/"lora_dropout": 0.1/'; convert_changed 'lora_dropout is set: adapters with dropout are not known'
changed 's/"use_dora": false/"use_dora": true/'; convert_changed 'use_dora is set: adapters with DoRA'
changed 's/"use_rslora": false/"use_rslora": true/'; convert_changed 'use_rslora is set'
changed 's/"bias": "none"/"bias": "all"/'; convert_changed "bias is 'all'"
changed 's/"r": 4/"r": 8/'; convert_changed 'an adapter of this rank for this model has \[8, '
changed 's/"o_proj"/"lm_head"/'; convert_changed 'lm_head is tied to model.embed_tokens.weight (tie_word_embeddings)'
changed 's/"o_proj"/"k_proj"/'; convert_changed 'is of no matrix'
changed 's/"LORA"/"IA3"/'; convert_changed 'peft_type is IA3'
rm -rf "$folder/changed/adapter_model.safetensors"; convert_changed 'adapter_model.safetensors'
[ ! -e "$folder/none" ] || fail "something was written"

# Gradients begin with them, if they are those of the command line.
"$TREADLE" grad "$model" --file "$rows" --lora-rank 4 --lora-alpha 8 --target-modules q_proj,o_proj,down_proj --lora "$actor/lora_adapter" \
  --out "$folder/g.safetensors" --json >"$folder/grad" 2>"$folder/err" || fail "grad"
grep -aq 'q_proj.lora_B.weight' "$folder/g.safetensors" || fail "no gradients of adapters"
refused 'the adapters have rank 4, those of this run 8' grad "$model" --file "$rows" --lora-rank 8 --lora-alpha 8 --lora "$actor/lora_adapter"
refused 'alpha 8, those of this run 16' grad "$model" --file "$rows" --lora-rank 4 --lora "$actor/lora_adapter"
refused 'adapters are of other matrices' grad "$model" --file "$rows" --lora-rank 4 --lora-alpha 8 --lora "$actor/lora_adapter"
refused 'lm_head is tied to model.embed_tokens.weight' grad "$model" --file "$rows" --lora-rank 4 --target-modules lm_head
refused 'lm_head is tied to model.embed_tokens.weight' sft "$folder/config.yaml" "actor_config.save=$folder/none" 'actor_config.target_modules=[all-linear, lm_head]'
refused "is named 'wrong'" grad "$model" --file "$rows" --lora-rank 4 --target-modules wrong
refused "target_modules (override): .*is named 'wrong'" sft "$folder/config.yaml" "actor_config.save=$folder/none" 'actor_config.target_modules=[wrong]'
refused 'give --lora-rank' grad "$model" --file "$rows" --lora "$actor/lora_adapter"

# A folder of adapters is not a model.
refused 'an adapter (adapter_config.json), and not a model; treadle convert --lora' generate --model "$actor/lora_adapter" --prompt 7

# Another base at resume: merged weights have the names and shapes.
rm -r "$folder/cut/global_step_4"
echo 2 >"$folder/cut/latest_checkpointed_iteration.txt"
refused 'trained beside other weights' sft "$folder/config.yaml" "actor_config.save=$folder/cut" "actor_config.model=$folder/merged" --resume
refused 'those of this run 2' sft "$folder/config.yaml" "actor_config.save=$folder/cut" actor_config.lora_rank=2 --resume
