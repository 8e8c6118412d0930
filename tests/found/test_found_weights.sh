#!/usr/bin/env bash
# Weights that are not found are refused by every command that needs some, whatever lies in the folder in their place; they are made up
# where that is asked for, and then it is said. ctest: timeout=300
source "$(dirname "$0")/found.bash"
threads=(--threads 1)

# One model with its weights, and what all commands need beside it.
"$TREADLE" make-model "$folder/made" --layers 1 --hidden 64 --vocab 64 >/dev/null 2>"$folder/err"
said "the weights of $folder/made are made up"
whole=$folder/whole sequence=$TREADLE_SOURCE/examples/sequence
cp -r "$sequence/policy" "$whole"
"$TREADLE" data sequence --out "$folder/data" --seed 1 >/dev/null
echo '{"ids": [3, 4, 5, 6], "mask": [0, 1, 1, 1]}' >"$folder/rows.jsonl"
echo '{"token_ids": [3, 4, 5, 6]}' >"$folder/texts.jsonl"
head -1 "$folder/data/test.jsonl" >"$folder/prompts.jsonl"
cat >"$folder/sft.yaml" <<END
megatron_training: {tokenizer_name_or_path: $sequence, train_iters: 1, global_batch_size: 1, data_path: $folder/rows.jsonl}
actor_config: {model: $whole, save: $folder/run}
END
cat >"$folder/grpo.yaml" <<END
megatron_training: {tokenizer_name_or_path: $sequence, train_iters: 1, global_batch_size: 1, data_path: $folder/prompts.jsonl}
actor_config: {model: $whole, save: $folder/run}
generate_config: {sampling_config: {max_tokens: 4}}
rl_config: {n_samples_per_prompt: 2, max_prompt_length: 12, verifier_function: [sequence]}
END

# command NAME MODEL [OPTION...]: one of those that need values, with that model.
command_of() {
  local name=$1 model=$2
  shift 2
  rm -rf "$folder/run" "$folder/out.megatron"
  case $name in
    score) set -- score --model "$model" --file "$folder/texts.jsonl" "${threads[@]}" "$@" ;;
    generate) set -- generate --model "$model" --prompt-ids 3,4 --max-new-tokens 2 "${threads[@]}" "$@" ;;
    generate_switched) set -- generate --model "$model" --prompt-ids 3,4 --max-new-tokens 2 --train megatron:tp=1 "${threads[@]}" "$@" ;;
    switch) set -- switch --model "$model" --train megatron:tp=1 --infer vllm:tp=1 --check --cycles 1 "$@" ;;
    switch_own) set -- switch --model "$model" --train megatron:tp=1 --infer vllm:tp=1 --check --cycles 1 --own train "$@" ;;
    grad) set -- grad "$model" --file "$folder/rows.jsonl" "${threads[@]}" "$@" ;;
    sft) set -- sft "$folder/sft.yaml" "${threads[@]}" "$@" "actor_config.model=$model" ;;
    train) set -- train "$folder/grpo.yaml" "${threads[@]}" "$@" "actor_config.model=$model" ;;
    eval) set -- eval "$model" --data "$folder/prompts.jsonl" --reward sequence --max-new-tokens 4 --tokenizer "$sequence" "${threads[@]}" "$@" ;;
    convert) set -- convert --from hf --to megatron:tp=1 "$@" "$model" "$folder/out.megatron" ;;
  esac
  line=("$TREADLE" "$@")
}
needing=(score generate generate_switched switch switch_own grad sft train eval convert)

# ---- Folders that hold something else ----

# place NAME FILE...: a folder with config.json and these files.
place() {
  local name=$1 file
  shift
  mkdir -p "$folder/$name"
  cp "$whole/config.json" "$folder/$name"
  for file; do mkdir -p "$(dirname "$folder/$name/$file")"; cp "$whole/model.safetensors" "$folder/$name/$file"; done
}
place alone
place shards model-00001-of-00002.safetensors model-00002-of-00002.safetensors
place other consolidated.safetensors
place bin pytorch_model.bin
place bins pytorch_model-00001-of-00002.bin pytorch_model.bin.index.json
place pth consolidated.00.pth
place gguf model-Q4_K_M.gguf
place adapter adapter_config.json adapter_model.safetensors
place trainer tokenizer.json tokenizer_config.json generation_config.json
place megatron latest_checkpointed_iteration.txt
place inside checkpoint-9/model.safetensors checkpoint-9/config.json
place trained global_step_4/actor/huggingface/model.safetensors
place flax flax_model.msgpack
place unknown weights.xyz
words() {
  case $1 in
    alone | unknown) echo "it has no file that may hold weights" ;;
    shards) echo "safetensors without an index (model-00001-of-00002.safetensors and 1 more)" ;;
    other) echo "safetensors without an index (consolidated.safetensors)" ;;
    bin) echo "files of torch (pytorch_model.bin)" ;;
    bins) echo "files of torch (pytorch_model-00001-of-00002.bin and 1 more)" ;;
    pth) echo "files of torch (consolidated.00.pth)" ;;
    gguf) echo "GGUF files (model-Q4_K_M.gguf)" ;;
    adapter) echo "an adapter (adapter_config.json and 1 more)" ;;
    trainer) echo "config and tokenizer alone" ;;
    megatron) echo "a checkpoint of Megatron" ;;
    inside) echo "its folder checkpoint-9 has weights" ;;
    trained) echo "its folder global_step_4/actor/huggingface has weights: name that one" ;;
    flax) echo "weights of another framework (flax_model.msgpack)" ;;
  esac
}
kinds=(alone shards other bin bins pth gguf adapter trainer megatron inside trained flax unknown)
for kind in "${kinds[@]}"; do # every kind with one command, the first kinds with all
  command_of generate "$folder/$kind"
  refused "$folder/$kind: has no weights: neither model.safetensors nor shards with an index" "${line[@]}"
  said "$(words "$kind")"
done
for name in "${needing[@]}"; do
  for kind in shards trainer; do
    command_of "$name" "$folder/$kind"
    refused "$folder/$kind: has no weights: neither" "${line[@]}"
    said "$(words "$kind")"
    if [ "$name" != convert ]; then
      said 'Weights are made up where that is asked for'
    elif grep -q 'made up' "$folder/err"; then
      fail "convert makes no weights up"
    fi
    [ ! -e "$folder/run" ] || fail "$name: a refused run has left a folder"
  done
done
# An index whose shards are not there.
place index
echo '{"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}' >"$folder/index/model.safetensors.index.json"
for name in "${needing[@]}"; do
  command_of "$name" "$folder/index"
  refused "$folder/index: its weights are not all there: $folder/index/model-00001-of-00002.safetensors: cannot open" "${line[@]}"
  said "Copy what is missing"
done
# Without a config.json, too.
rm "$folder/gguf/config.json" "$folder/adapter/config.json"
for kind in gguf adapter; do
  command_of score "$folder/$kind"
  refused "$folder/$kind: config.json is missing in this folder; it has $(words "$kind")" "${line[@]}"
done

# ---- Asked for ----

# made_up NAME MODEL [OPTION...]: it works, and says so on standard error and in JSON.
made_up() {
  command_of "$@"
  run 0 "${line[@]}" --json
  said "the weights of $2 are made up, not read from files"
  printed '"weights_source": "made_up"'
}
for name in score generate generate_switched switch switch_own grad sft train eval; do
  made_up "$name" "$folder/shards" --weights random
done
# Before anything else that eval says, which takes long.
command_of eval "$folder/shards" --weights random
run 0 "${line[@]}"
[[ $(head -n 1 "$folder/err") == *"the weights of $folder/shards are made up, not read from files" ]] || { cat "$folder/err"; fail "eval does not begin with it"; }
for name in score switch grad sft train; do
  made_up "$name" "$folder/alone/config.json"
  command_of "$name" "$folder/alone/config.json" --weights files
  refused "weights are to come from files, and this is a config.json alone" "${line[@]}"
done
command_of sft "$folder/alone" actor_config.weights=random
run 0 "${line[@]}" --json
printed '"weights_source": "made_up"'
command_of switch "$whole" --scale-down 1
run 0 "${line[@]}" --json
printed '"weights_source": "made_up"'
command_of switch "$whole" --scale-down 1 --weights files
refused "a model that is scaled down has none" "${line[@]}"

# Files are read, and nothing is said.
for name in score generate switch switch_own grad sft train; do
  options=(--weights files)
  [ "$name" != score ] && [ "$name" != sft ] || options=()
  command_of "$name" "$whole" "${options[@]}"
  run 0 "${line[@]}" --json
  ! grep -q "made up" "$folder/err" || fail "$name: read weights are said to be made up"
  printed '"weights_source": "files"'
done

# ---- From elsewhere ----

# A run goes on from its checkpoint where the model has no weights any more.
command_of sft "$whole" megatron_training.save_interval=1
run 0 "${line[@]}"
cp -r "$folder/run" "$folder/kept"
run 0 "$TREADLE" sft "$folder/sft.yaml" "${threads[@]}" --json --resume "actor_config.model=$folder/alone" "actor_config.save=$folder/kept" megatron_training.train_iters=2
printed '"weights_source": "files"'
# So does one of reinforcement learning; but a reference, which is the policy as it began, is not made up.
command_of train "$whole" megatron_training.save_interval=1
run 0 "${line[@]}"
cp -r "$folder/run" "$folder/kept_rl"
again=("$TREADLE" train "$folder/grpo.yaml" "${threads[@]}" --resume "actor_config.model=$folder/alone" "actor_config.save=$folder/kept_rl" megatron_training.train_iters=2)
refused "$folder/alone: has no weights" "${again[@]}" rl_config.use_kl_loss=true
run 0 "${again[@]}"
# A reference of its own has weights of its own.
command_of train "$whole" rl_config.use_kl_loss=true "ref_config.model=$folder/shards"
refused "ref_config.model (override): $folder/shards: has no weights" "${line[@]}"
command_of train "$whole" rl_config.use_kl_loss=true "ref_config.model=$folder/alone/config.json"
refused "is a config.json, without weights" "${line[@]}"
# A path that leads nowhere does not ask for other weights. A mere name of a model stands for the tokenizer's folder where that has weights, and it is said.
ln -s nowhere "$folder/dangling"
for path in nowhere dangling whole/model.safetensors; do
  command_of train "$whole" "actor_config.load=$folder/$path"
  refused "actor_config.load (override): $folder/$path: " "${line[@]}"
done
command_of train "$whole" "actor_config.load=$folder/data"
run 0 "${line[@]}"
printed "is not a checkpoint of Megatron: weights begin as those of $whole"
command_of train qwen25-7b
refused "actor_config.model (override): there is no file or folder qwen25-7b, and that of tokenizer_name_or_path" "${line[@]}"
command_of train qwen25-7b "megatron_training.tokenizer_name_or_path=$whole"
run 0 "${line[@]}" --json
said "there is no file or folder qwen25-7b: the model is that of tokenizer_name_or_path, $whole"
printed '"weights_source": "files"'
for name in sft train; do # a path is not a name
  command_of "$name" "$folder/nowhere" "megatron_training.tokenizer_name_or_path=$whole"
  refused "$folder/nowhere: there is no such file or folder" "${line[@]}"
done

# A checkpoint of Megatron.
"$TREADLE" convert --from hf --to megatron:tp=1 "$whole" "$folder/dist" >/dev/null
command_of train "$folder/alone" "actor.checkpoint_load_path=$folder/dist"
run 0 "${line[@]}" --json
printed '"weights_source": "files"'
# One that was converted of the model once: the weights need not be kept. Where there is none yet, they are needed.
cp -r "$whole" "$folder/source"
converting=(actor.megatron.use_hf_ckpt=true "actor.megatron.ckpt_convertor.save_path=$folder/once")
command_of train "$folder/alone" "${converting[@]}"
refused "actor.megatron.use_hf_ckpt (override): $folder/alone: has no weights" "${line[@]}"
command_of train "$folder/source" "${converting[@]}"
run 0 "${line[@]}"
rm "$folder/source/model.safetensors"
command_of train "$folder/source" "${converting[@]}"
run 0 "${line[@]}" --json
printed '"weights_source": "files"'
command_of train "$folder/source" "${converting[@]}" --weights random
refused "exclude each other" "${line[@]}"

# ---- Needs none ----

run 0 "$TREADLE" plan --model "$folder/shards" --from megatron:tp=1 --to vllm:tp=1 --ranks 1
run 0 "$TREADLE" layout --model "$folder/shards" --layout megatron:tp=1 --ranks 1 --rank 0
run 0 "$TREADLE" inspect "$folder/shards"
run 0 "$TREADLE" sft "$folder/sft.yaml" --plan "actor_config.model=$folder/shards"
run 0 "$TREADLE" train "$folder/grpo.yaml" --plan "actor_config.model=$folder/shards"
echo "weights are found, refused or asked for"
