#!/usr/bin/env bash
# Answers by which no completion can be right, as gsm8k finds no number in them (an answer key that names another column): said, with how many and which, and not learned from in
# silence.
source "$TREADLE_SOURCE/tests/found/found.bash"
sequence=$TREADLE_SOURCE/examples/sequence
cd "$folder"
train() {
  rm -rf run-1
  "$TREADLE" train "$TREADLE_SOURCE/examples/grpo-demo.yaml" "megatron_training.tokenizer_name_or_path=$sequence" "actor_config.model=$sequence/policy" \
    megatron_training.data_path=prompts.jsonl megatron_training.val_path= megatron_training.test_interval=0 megatron_training.global_batch_size=1 \
    megatron_training.train_iters=1 actor_config.micro_batch_size=4 actor_config.tensor_model_parallel_size=1 actor_config.pipeline_model_parallel_size=1 \
    rl_config.n_samples_per_prompt=4 actor_config.save=run-1 --threads 1 "$@"
}
# answers REWARD JSON...: a prompt for each.
answers() {
  local reward=$1
  shift
  for answer in "$@"; do echo "{\"prompt\": \"1,2:9,3\", \"answer\": $answer}"; done >prompts.jsonl
  run 0 train "rl_config.verifier_function=[$reward]"
}
answers gsm8k '"abc"' '"72"' '""' '"about $5"'
printed "no completion of 3 of 4 prompts can be right by the reward gsm8k: the first is line 1, whose answer is 'abc'"
answers gsm8k '"9 - 4 = 5 apples\n#### 5"' 72 -7.5 '" 1,234 "' '"#### 3 left"'
if grep -q 'can be right' out; then fail "answers that can be right are said to be none"; fi
answers sequence '"abc"' '""'
if grep -q 'can be right' out; then fail "sequence can match any text"; fi
