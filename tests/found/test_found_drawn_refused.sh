#!/usr/bin/env bash
# What is drawn in a way that has no distribution to train is refused before a run begins: temperatures at which the best token is taken, penalties,
# and what else forbids or favours tokens, by their names in any section of the configurations that treadle reads.
. "$TREADLE_SOURCE/tests/found/found.bash"
"$TREADLE" data sequence --out "$folder/data" --seed 1 >/dev/null
cat >"$folder/grpo.yaml" <<END
megatron_training:
  tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence
  data_path: $folder/data/train.jsonl
  train_iters: 1
  global_batch_size: 4
actor_config:
  model: $TREADLE_SOURCE/examples/sequence/policy
  save: $folder/run
  micro_batch_size: 4
  lr: 1.0e-3
generate_config:
  sampling_config: {max_tokens: 12}
rl_config:
  n_samples_per_prompt: 4
  max_prompt_length: 10
  verifier_function: [sequence]
END
S=generate_config.sampling_config
train() { "$TREADLE" train "$folder/grpo.yaml" --threads 1 "$@"; }
for temperature in 0 9e-6 9.99e-6 1e-30; do
  for more in actor_config.exact=true actor_config.exact=false rl_config.adv_estimator=reinforce_plus_plus; do
    refused "$S.temperature (override) is $(printf %g $temperature): all samples of a prompt would be the same" train $S.temperature=$temperature $more
  done
done
# So do cuts that leave one token.
for cut in "$S.top_k=1" "$S.min_p=1" "$S.top_p=0.9 rl_config.sampling_support_most=1" "$S.min_p=0.1 rl_config.sampling_support_most=1"; do
  # shellcheck disable=SC2086
  refused "leaves one token of each distribution" train $cut
done
[ ! -e "$folder/run" ] || fail "a run was begun"
# At 1e-5, and with a greedy test, it runs.
run 0 train $S.temperature=1.001e-5 rl_config.val_greedy=true megatron_training.val_path="$folder/data/test.jsonl" megatron_training.test_interval=1
printed '0 of '
rm -rf "$folder/run"
for key in $S.repetition_penalty=1.1 $S.presence_penalty=0.2 $S.frequency_penalty=-0.5 $S.min_tokens=3 $S.no_repeat_ngram_size=3 \
  actor_rollout_ref.rollout.repetition_penalty=1.05 actor_rollout_ref.rollout.presence_penalty=1 rollout.sampling_params.frequency_penalty=0.1 \
  "$S.logit_bias=[1]" "$S.bad_words=[a]" "$S.allowed_token_ids=[1, 2]"; do
  refused "${key%%=*}" train "$key"
done
cp "$folder/grpo.yaml" "$folder/plain.yaml"
sed -i 's/{max_tokens: 12}/{max_tokens: 12, logit_bias: {3: 5}}/' "$folder/grpo.yaml"
refused 'logit_bias' train
cp "$folder/plain.yaml" "$folder/grpo.yaml"
# Values that say what is so anyway are no matter.
run 0 train $S.repetition_penalty=1.0 $S.presence_penalty=0 $S.frequency_penalty=0.0 $S.logit_bias=null actor_rollout_ref.rollout.repetition_penalty=1
# And a reward may have a penalty of that name.
rm -rf "$folder/run"
run 0 train reward_model.reward_kwargs.repetition_penalty=0.5
# A generation_config.json with a penalty does not reach training.
rm -rf "$folder/run"
mkdir "$folder/model"
cp "$TREADLE_SOURCE/examples/sequence/policy/"* "$folder/model/"
echo '{"repetition_penalty": 1.3, "eos_token_id": 1, "top_p": 0.5, "top_k": 2}' >"$folder/model/generation_config.json"
run 0 train actor_config.model="$folder/model"
printed '0 of '
# One that no generator can read is refused before the run begins.
rm -rf "$folder/run"
for text in '[]' '{"temperature": NaN}' '{"top_p": 2}' '{"repetition_penalty": 0}'; do
  echo "$text" >"$folder/model/generation_config.json"
  refused 'generation_config.json: ' train actor_config.model="$folder/model"
  [ ! -e "$folder/run" ] || fail "a run was begun with $text"
done
# A limit that does nothing is said.
rm -rf "$folder/run"
run 0 train rl_config.sampling_support_most=5
said 'rl_config.sampling_support_most (override) has no effect without top_p or min_p'
