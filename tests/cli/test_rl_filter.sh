#!/usr/bin/env bash
# Groups whose samples score alike: how many prompts are drawn and how many make a step, by the keys of MindSpeed-RL and of verl; a filter that
# nothing passes ends, or is stopped, and what was before it stays. And sources of tests have any names, and any number of them.
# ctest: timeout=300
set -euo pipefail
source "$TREADLE_SOURCE/tests/cli/listed.sh"
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }
"$TREADLE" data sequence --out "$folder/data" --seed 1 >/dev/null
cat >"$folder/grpo.yaml" <<END
megatron_training:
  tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence
  data_path: $folder/data/train.jsonl
  train_iters: 2
  global_batch_size: 8
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
  filter_groups_max_batches: 10
  verifier_function: [sequence]
  dump_rollouts: $folder/dump
END
train() {
  rm -rf "$folder/run" "$folder/dump"
  "$TREADLE" train "$folder/grpo.yaml" --threads 1 "$@" >"$folder/out" 2>"$folder/err"
}
# drawn STEP: prompts of the run so far, by the checkpoint of that step
drawn() { sed 's/.*"drawn": \([0-9]*\).*/\1/' "$folder/run/global_step_$1/data.json"; }
on=(rl_config.filter_groups_enable=true megatron_training.save_interval=1)

# MindSpeed-RL: batches of global_batch_size prompts, and filter_groups_train_batch_size groups of them are a step.
train "${on[@]}" rl_config.filter_groups_train_batch_size=3 || { cat "$folder/err"; fail "MindSpeed-RL's keys"; }
[ "$(wc -l <"$folder/dump/1.jsonl")" = 12 ] || fail "a step of 3 groups has $(wc -l <"$folder/dump/1.jsonl") samples"
[ $(($(drawn 1) % 8)) = 0 ] || fail "$(drawn 1) prompts were drawn, and not batches of 8"
# verl: batches of gen_batch_size prompts until there are train_batch_size groups.
train "${on[@]}" data.gen_batch_size=3 || { cat "$folder/err"; fail "verl's keys"; }
[ "$(wc -l <"$folder/dump/1.jsonl")" = 32 ] || fail "a step of 8 groups has $(wc -l <"$folder/dump/1.jsonl") samples"
[ $(($(drawn 1) % 3)) = 0 ] || fail "$(drawn 1) prompts were drawn, and not batches of 3"
listed "$folder/run/metrics.jsonl" training/groups_left_out
python3 - "$folder/dump/1.jsonl" <<'END' || fail "a group whose samples score alike is there"
import collections, json, sys
groups = collections.defaultdict(set)
for line in open(sys.argv[1]):
    row = json.loads(line)
    groups[row["uid"].rsplit("-", 1)[0]].add(row["score"])
sys.exit(any(len(scores) < 2 for scores in groups.values()) or len(groups) != 8)
END
# One sample is never equal to others.
train "${on[@]}" rl_config.n_samples_per_prompt=1 rl_config.adv_estimator=reinforce_plus_plus || { cat "$folder/err"; fail "groups of one"; }
# Without a filter its keys do nothing, and that is said.
train rl_config.filter_groups_train_batch_size=3 || fail "no filter"
grep -q 'filter_groups_train_batch_size (override) has no effect without filter_groups_enable' "$folder/err" || fail "no word of a key without effect"

# All score alike: a whole pass over the prompts is enough to see it.
head -20 "$folder/data/train.jsonl" >"$folder/few.jsonl"
status=0
train "${on[@]}" rl_config.filter_groups_max_batches=-1 'rl_config.verifier_function=["regex:never"]' "megatron_training.data_path=$folder/few.jsonl" || status=$?
[ $status = 1 ] && grep -q 'step 1: 24 prompts one after the other, all of .*data_path.* score alike' "$folder/err" || { cat "$folder/err"; fail "nothing passes: status $status"; }

# Ctrl-C while it draws: the steps before are kept, and the run goes on from there.
cat >"$folder/judge" <<'END'
#!/bin/sh
# Scores differ in step 1 alone.
exec sed -u -n 's/.*"id": "\(1-[0-9]*-\)\([0-9]*\)".*/{"id": "\1\2", "score": 0.\2}/p; t; s/.*"id": "\([^"]*\)".*/{"id": "\1", "score": 1}/p'
END
chmod +x "$folder/judge"
rm -rf "$folder/run" "$folder/dump"
touch "$folder/lines"
status=0
"$TREADLE" train "$folder/grpo.yaml" --threads 1 rl_config.filter_groups_enable=true rl_config.filter_groups_max_batches=-1 'rl_config.verifier_function=[command]' \
  "rl_config.verifier_command=$folder/judge" >"$folder/lines" 2>"$folder/err" &
process=$!
until grep -q '^step 1' "$folder/lines"; do kill -0 $process; done
sleep 0.3
kill -INT $process
wait $process || status=$?
[ $status = 130 ] || { cat "$folder/err"; fail "stopped while it draws: status $status"; }
[ "$(cat "$folder/run/latest_checkpointed_iteration.txt")" = 1 ] || fail "step 1 is not kept"
[ "$(wc -l <"$folder/run/metrics.jsonl")" = 1 ] || fail "a step that was not taken has figures"

# Names of sources are texts of the data: with quotes, and many of them.
python3 - "$folder/data/test.jsonl" "$folder/sources.jsonl" <<'END'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])][:60]
with open(sys.argv[2], "w") as out:
    for i, row in enumerate(rows):
        row["data_source"] = 'math "hard" \\ %d' % i
        out.write(json.dumps(row) + "\n")
END
train "megatron_training.val_path=$folder/sources.jsonl" megatron_training.train_iters=1 || { cat "$folder/err"; fail "many sources"; }
python3 - "$folder/run/metrics.jsonl" <<'END' || fail "metrics.jsonl lacks figures"
import json, sys
line = [json.loads(line) for line in open(sys.argv[1])][-1]
assert all('val-core/math "hard" \\ %d/reward/mean@1' % i in line for i in range(60)) and "timing_s/save_checkpoint" in line and "timing_s/testing" in line, line
END
"$TREADLE" train "$folder/grpo.yaml" --threads 1 "megatron_training.val_path=$folder/sources.jsonl" --resume >"$folder/out" 2>"$folder/err" || { cat "$folder/err"; fail "the run does not go on"; }
cp "$folder/run/memory.json" "$folder/memory.json"
"$TREADLE" train "$folder/grpo.yaml" --threads 1 "megatron_training.val_path=$folder/sources.jsonl" --resume >"$folder/out" 2>"$folder/err" || fail "a run that is at its end"
cmp -s "$folder/run/memory.json" "$folder/memory.json" || fail "a start without steps has changed memory.json"
