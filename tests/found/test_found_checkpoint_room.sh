#!/usr/bin/env bash
# A run whose first checkpoint does not fit on the disk of its folder is refused before it begins, with the numbers; one that has no step to take is not.
source "$TREADLE_SOURCE/tests/found/found.bash"
sequence=$TREADLE_SOURCE/examples/sequence
cd "$folder"
echo '{"ids": [4, 5, 6], "mask": [0, 1, 1]}' >rows.jsonl
echo '{"prompt": "1,2:9,3", "answer": "3,4,5"}' >prompts.jsonl
# 10^15 parameters: no disk has 14 PB.
sed -e 's/"hidden_size": [0-9]*/"hidden_size": 1048576/; s/"intermediate_size": [0-9]*/"intermediate_size": 4194304/; s/"num_hidden_layers": [0-9]*/"num_hidden_layers": 60/' \
  -e 's/"num_attention_heads": [0-9]*/"num_attention_heads": 8192/; s/"num_key_value_heads": [0-9]*/"num_key_value_heads": 8192/' "$sequence/config.json" >config.json
common=("megatron_training.tokenizer_name_or_path=$sequence" megatron_training.train_iters=1 megatron_training.global_batch_size=1 actor_config.save=runs/1 --threads 1)
train() {
  "$TREADLE" train "$TREADLE_SOURCE/examples/grpo-demo.yaml" megatron_training.data_path=prompts.jsonl megatron_training.val_path= megatron_training.test_interval=0 \
    actor_config.micro_batch_size=4 actor_config.tensor_model_parallel_size=1 actor_config.pipeline_model_parallel_size=1 rl_config.n_samples_per_prompt=4 "${common[@]}" "$@"
}
sft() { "$TREADLE" sft "$TREADLE_SOURCE/examples/sft-policy.yaml" megatron_training.data_path=rows.jsonl actor_config.micro_batch_size=1 "${common[@]}" "$@"; }
for command in train sft; do
  rm -rf runs
  mkdir runs
  refused 'actor_config.save (override): no room for a checkpoint: ' $command actor_config.model=config.json
  grep -qE 'there is room for [0-9.]+ [KMGTP]?i?B on its disk, and [0-9.]+ [A-Z]iB are to be written' err || { cat err; fail "no numbers"; }
  [ ! -e runs/1/metrics.jsonl ] || fail "$command: the run has begun"
  rm -rf runs/1
  run 0 $command "actor_config.model=$sequence/policy"
done
