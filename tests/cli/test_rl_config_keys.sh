#!/usr/bin/env bash
# Keys of MindSpeed-RL and verl that say what a run does: no_shuffle and data.shuffle, val_kwargs, resume_mode, load, rollout_is. Which values are refused is
# tests/loop/run/test_config_rules_rl.c.
# ctest: timeout=300
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }
value() { sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\).*/\1/p" "$folder/$1"; }

"$TREADLE" data sequence --out "$folder/data" --seed 1 --noise 0.3 >/dev/null
cat >"$folder/grpo.yaml" <<END
megatron_training:
  tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence
  data_path: $folder/data/train.jsonl
  val_path: $folder/data/test.jsonl
  train_iters: 2
  global_batch_size: 2
actor_config: {model: $TREADLE_SOURCE/examples/sequence/policy, save: $folder/run, micro_batch_size: 4, lr: 1.0e-3}
generate_config: {sampling_config: {max_tokens: 8}}
rl_config: {n_samples_per_prompt: 4, max_prompt_length: 10, verifier_function: [sequence], val_before_train: false}
END
# run NAME KEYS...
run() {
  local name=$1
  shift
  "$TREADLE" train "$folder/grpo.yaml" "$@" --threads 1 --json >"$folder/$name" 2>"$folder/$name.err" || { cat "$folder/$name.err"; fail "$name: failed"; }
}
same() { [ "$(value "$1" losses_digest)" = "$(value "$2" losses_digest)" ] || fail "$1 and $2 have other losses"; }
differ() { [ "$(value "$1" losses_digest)" != "$(value "$2" losses_digest)" ] || fail "$1 and $2 have the same losses"; }
fresh() { rm -rf "$folder/run"; run "$@"; }

fresh plain rl_config.dump_rollouts="$folder/dump"
fresh in_order data.shuffle=false rl_config.dump_rollouts="$folder/dump"
differ plain in_order
sed -n '1,4s/.*"prompt": *"\([^"]*\)".*/\1/p' "$folder/data/train.jsonl" >"$folder/first"
cat "$folder/dump/1.jsonl" "$folder/dump/2.jsonl" | sed -n 's/.*"prompt": *"\([^"]*\)".*/\1/p' | uniq >"$folder/drawn"
cmp "$folder/first" "$folder/drawn" || fail "data.shuffle=false: prompts are not in the order of the data"
# On from a checkpoint, in the same order only; resume_mode is --resume, which goes before it.
status=0
"$TREADLE" train "$folder/grpo.yaml" trainer.resume_mode=auto >/dev/null 2>"$folder/err" || status=$?
[ $status = 2 ] && grep -q 'the checkpoint has no_shuffle 1, this run 0' "$folder/err" || { cat "$folder/err"; fail "another order of prompts: status $status"; }
run on data.shuffle=false trainer.resume_mode=auto megatron_training.train_iters=3
[ "$(value on steps)" = 1 ] || fail "resume_mode=auto: $(value on steps) steps"
run on data.shuffle=false trainer.resume_mode=resume_path trainer.resume_from_path="$folder/run/global_step_2" actor_config.save="$folder/other" megatron_training.train_iters=3
[ "$(value on steps)" = 1 ] || fail "resume_from_path: $(value on steps) steps"
status=0
"$TREADLE" train "$folder/grpo.yaml" data.shuffle=false trainer.resume_mode=auto --resume never >/dev/null 2>"$folder/err" || status=$?
[ $status = 2 ] && grep -q 'say --resume' "$folder/err" || { cat "$folder/err"; fail "--resume never: status $status"; }

# Tests: greedy ones are the same whatever the seed is.
test_of() { sed -n 's/.*"val-core\/sequence\/reward\/mean@1": *\([0-9.e-]*\).*/\1/p' "$folder/run/metrics.jsonl" | tail -1; }
verl=(actor_config.lr=0 megatron_training.train_iters=1 rl_config.val_before_train=true)
fresh greedy "${verl[@]}" actor_rollout_ref.rollout.val_kwargs.do_sample=false
greedy=$(test_of)
fresh greedy "${verl[@]}" actor_rollout_ref.rollout.val_kwargs.temperature=0 actor_rollout_ref.rollout.seed=7
[ "$greedy" = "$(test_of)" ] || fail "greedy tests differ: $greedy and $(test_of)"
fresh drawn "${verl[@]}" rl_config.val_temperature=4
[ "$greedy" != "$(test_of)" ] || fail "val_temperature says nothing"
for cut in top_k=1 top_p=1e-6; do
  fresh drawn "${verl[@]}" rl_config.val_temperature=4 "actor_rollout_ref.rollout.val_kwargs.$cut"
  [ "$greedy" = "$(test_of)" ] || fail "val_kwargs.$cut is not greedy: $greedy and $(test_of)"
done

# load: a checkpoint of Megatron, or a folder that has none yet.
mkdir "$folder/nothing"
fresh named actor_config.load="$folder/nothing"
grep -q "^actor_config.load (override): $folder/nothing is not a checkpoint of Megatron: weights begin as those of" "$folder/named.err" || { cat "$folder/named.err"; fail "nothing is said of load"; }
same plain named
"$TREADLE" convert --from hf --to megatron:tp=1 "$TREADLE_SOURCE/examples/sequence/policy" "$folder/megatron" >/dev/null
cp -r "$TREADLE_SOURCE/examples/sequence/policy" "$folder/bare"
rm "$folder/bare/model.safetensors"
fresh unfilled actor_config.model="$folder/bare" actor_config.weights=random
differ plain unfilled
fresh loaded actor_config.model="$folder/bare" actor_config.load="$folder/megatron"
same plain loaded

# Importance of tokens is of fast mode.
fast=(actor_config.exact=false generate_config.sampling_config.temperature=1)
fresh fast "${fast[@]}" rl_config.rollout_is_threshold=1e-3
fresh none "${fast[@]}" rl_config.rollout_is=none
[ "$(value fast weights_digest)" != "$(value none weights_digest)" ] || fail "rollout_is says nothing"
