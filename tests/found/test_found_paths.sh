#!/usr/bin/env bash
# A path that a command is given and that leads nowhere, through a file, in circles, or is too long to be one, is a refused input or output, 2, whichever the
# command and whichever the option: no failure while running, 1.
source "$TREADLE_SOURCE/tests/found/found.bash"
sequence=$TREADLE_SOURCE/examples/sequence policy=$TREADLE_SOURCE/examples/sequence/policy
cd "$folder"
echo x >file
ln -s nowhere/at/all dangling
ln -s loop loop
mkdir dir
long=$(printf 'n%.0s' {1..300})
echo '{"ids": [4, 5, 6], "mask": [0, 1, 1]}' >rows.jsonl
echo '{"token_ids": [4, 5, 6]}' >texts.jsonl
mkdir run
echo '{"step": 1, "critic/rewards/mean": 1}' >run/metrics.jsonl

train() {
  "$TREADLE" train "$TREADLE_SOURCE/examples/grpo-demo.yaml" "megatron_training.tokenizer_name_or_path=$sequence" megatron_training.val_path= \
    megatron_training.test_interval=0 actor_config.tensor_model_parallel_size=1 actor_config.pipeline_model_parallel_size=1 actor_config.save=run-1 "$@"
}
sft() {
  "$TREADLE" sft "$TREADLE_SOURCE/examples/sft-policy.yaml" "megatron_training.tokenizer_name_or_path=$sequence" actor_config.save=run-1 "$@"
}
for path in nowhere/x file/x dangling loop "$long"; do
  run 2 "$TREADLE" train "$path"
  run 2 "$TREADLE" sft "$path"
  run 2 "$TREADLE" train "$path" --plan
  run 2 train "actor_config.model=$policy" "megatron_training.data_path=$path"
  run 2 train "actor_config.model=$path/model" megatron_training.data_path=rows.jsonl
  run 2 sft "actor_config.model=$path" megatron_training.data_path=rows.jsonl
  run 2 sft "actor_config.model=$policy" "megatron_training.data_path=$path"
  run 2 "$TREADLE" eval "$policy" --reward math --data "$path"
  run 2 "$TREADLE" eval "$path" --reward math --data rows.jsonl
  run 2 "$TREADLE" grad "$policy" --file "$path"
  run 2 "$TREADLE" grad "$policy" --loss grpo --config "$path" --file rows.jsonl
  run 2 "$TREADLE" grad "$path" --file rows.jsonl
  run 2 "$TREADLE" generate --model "$policy" --file "$path"
  run 2 "$TREADLE" score --model "$policy" --file "$path"
  run 2 "$TREADLE" tokenize --tokenizer "$path" --text 1
  run 2 "$TREADLE" report "$path"
  run 2 "$TREADLE" convert "$path" made --from hf --to megatron
  [ ! -e run-1 ] && [ ! -e made ] || fail "there is a folder of what was refused: $path"
done
for path in nowhere/x file/x loop/x "$long" "$long/x" dir loop; do
  run 2 "$TREADLE" generate --model "$policy" --prompt-ids 4,5 --max-new-tokens 1 --out "$path"
  run 2 "$TREADLE" score --model "$policy" --file texts.jsonl --out "$path"
  run 2 "$TREADLE" score --model "$policy" --file texts.jsonl --logits "$path"
  run 2 "$TREADLE" grad "$policy" --file rows.jsonl --out "$path"
  run 2 "$TREADLE" report run --out "$path"
  run 2 "$TREADLE" switch --model "$policy" --train megatron --infer vllm --timeline "$path"
done
