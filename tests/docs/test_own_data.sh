#!/usr/bin/env bash
# The file at the top of docs/grpo.md is complete: with a model, prompts and answers where it says, it plans and runs, and its last step is tested
# and saved. Sizes alone come from here.
# ctest: timeout=120
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }
cd "$folder"
awk '/^```yaml$/ { on = 1; next } /^```/ { if (on) exit } on' "$TREADLE_SOURCE/docs/grpo.md" >own.yaml
[ "$(wc -l <own.yaml)" = 20 ] || { cat own.yaml; fail "not 20 lines"; }
mkdir -p models/policy data
cp "$TREADLE_SOURCE"/examples/sequence/policy/* models/policy
for file in "$TREADLE_SOURCE"/examples/sequence/*; do
  [ -d "$file" ] || cp -n "$file" models/policy
done
for number in 1 2 3 4; do printf '{"prompt": "%s", "answer": "%s"}\n' "$number" $((number + 1)); done >data/train.jsonl
cp data/train.jsonl data/test.jsonl
sizes=(megatron_training.train_iters=1 megatron_training.global_batch_size=2 generate_config.sampling_config.max_tokens=4 rl_config.max_prompt_length=16 rl_config.mini_batch_size=2)
"$TREADLE" train own.yaml --plan --ranks 8 rl_config.max_prompt_length=16 generate_config.sampling_config.max_tokens=4 >said 2>&1 || { cat said; fail "no plan"; }
"$TREADLE" train own.yaml --threads 1 "${sizes[@]}" >said 2>&1 || { cat said; fail "no run"; }
grep -q 'val-core/test/reward/mean@1' runs/first/metrics.jsonl || fail "no test"
[ -f runs/first/global_step_1/actor/huggingface/config.json ] || fail "no model at the end"
! grep -q 'warning' said || { cat said; fail "the page's file has keys without effect"; }
