#!/usr/bin/env bash
# MindSpeed-RL's mini_batch_size counts prompts: where it is global_batch_size, as in its published files, a step has one update; above the step's
# prompts it has one, too. A smaller one has as many updates as it divides them into.
# ctest: timeout=120
source "$(dirname "$0")/found.bash"
"$TREADLE" data sequence --out "$folder/data" --seed 1 >/dev/null

# updates WANTED PROMPTS SAMPLES MINI: steps of the optimizer in one step of the run
updates() {
  local wanted=$1
  rm -rf "$folder/run"
  cat >"$folder/run.yaml" <<END
megatron_training:
  tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence
  data_path: $folder/data/train.jsonl
  train_iters: 1
  global_batch_size: $2
actor_config: {model: $TREADLE_SOURCE/examples/sequence/policy, save: $folder/run}
generate_config: {sampling_config: {max_tokens: 2}}
rl_config: {n_samples_per_prompt: $3, mini_batch_size: $4, max_prompt_length: 10, verifier_function: [sequence]}
END
  run 0 "$TREADLE" train "$folder/run.yaml" --threads 1
  grep -q "\"step\": $wanted[,}]" "$folder/run/global_step_1/actor/optimizer/state.json" ||
    { cat "$folder/run/global_step_1/actor/optimizer/state.json"; fail "$2 prompts x $3, mini_batch_size $4: not $wanted updates"; }
}
updates 1 2 2 2
updates 1 2 4 4
updates 1 2 2 64
updates 2 2 4 1
updates 1 2 2 0
refused 'global_batch_size (line 5) is 2 prompts, which actor_rollout_ref.actor.ppo_mini_batch_size (override), 4, does not divide' \
  "$TREADLE" train "$folder/run.yaml" actor_rollout_ref.actor.ppo_mini_batch_size=4
