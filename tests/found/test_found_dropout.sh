#!/usr/bin/env bash
# A config with dropout was trained without it and without a word: transformers trains with it. One line at the start says so, in train and sft alone.
. "$(dirname "$0")/found.bash"
policy=$TREADLE_SOURCE/examples/sequence/policy
cd "$folder"
cp -r "$policy" model
"$TREADLE" data sequence --out data --seed 1 >/dev/null
sft() { "$TREADLE" sft --plan "$TREADLE_SOURCE/examples/sft-policy.yaml" megatron_training.tokenizer_name_or_path= megatron_training.data_path=data/sft.jsonl actor_config.model=model --ranks 1; }
train() {
  "$TREADLE" train --plan "$TREADLE_SOURCE/examples/grpo-demo.yaml" megatron_training.tokenizer_name_or_path= megatron_training.data_path=data/train.jsonl \
    megatron_training.val_path= megatron_training.test_interval=0 actor_config.model=model actor_config.tensor_model_parallel_size=1 \
    actor_config.pipeline_model_parallel_size=1 --ranks 1
}
config() { sed "s/^{/{ $1/" "$policy/config.json" >model/config.json; }
for command in sft train; do
  config '"attention_dropout": 0.1, "resid_pdrop": 0.25, "embd_pdrop": 0.0, "classifier_dropout": 0.5, "hidden_dropout": null,'
  run 0 $command
  said "treadle $command: warning: model/config.json: attention_dropout is 0.1, resid_pdrop is 0.25, and treadle trains without dropout"
  config '"attention_dropout": 0.0, "hidden_dropout": null, "classifier_dropout": 0.5,'
  run 0 $command
  if grep -q dropout err; then fail "$command: a word about no dropout"; fi
done
config '"attention_dropout": 0.1,'
run 0 "$TREADLE" generate --model model --prompt-ids 4,5 --max-new-tokens 1
if grep -q dropout err; then fail "generate has no dropout"; fi
