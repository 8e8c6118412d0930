#!/usr/bin/env bash
# treadle train --plan of files as MindSpeed-RL, verl and RLinf have them, and of the blocks of S0 and S3 where the documents are: nothing but the paths of
# models is said beside them. What keys become is tests/loop/run/test_config_files.c.
# ctest: timeout=120
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }
files=$TREADLE_SOURCE/tests/data/config
documents=$TREADLE_SOURCE/../shared/documents
policy=$TREADLE_SOURCE/examples/sequence/policy

# plan FILE RANKS KEYS...
plan() {
  local file=$1 ranks=$2
  shift 2
  "$TREADLE" train "$file" --plan --ranks "$ranks" --json "$@" >"$folder/plan" 2>"$folder/err" || { cat "$folder/err"; fail "$file: no plan"; }
  grep -q '"fits": true' "$folder/plan" || fail "$file: does not fit"
  [ "$(grep -c '"rank":' "$folder/plan")" = "$ranks" ] || fail "$file: not the plan of $ranks ranks"
}
# bytes MODE CLASS: of rank 0
bytes() { sed -n "s/.*\"rank\": 0,.*\"$1\": {[^}]*\"$2\": \([0-9]*\).*/\1/p" "$folder/plan"; }

# A mere name of a model is that of the tokenizer's folder.
plan "$files/mindspeed-grpo.yaml" 8 megatron_training.tokenizer_name_or_path="$policy"
grep -q 'known, and without effect here: defaults' "$folder/err" || fail "nothing is said of keys without effect"
[ "$(bytes infer params)" -gt 0 ] || fail "offload_train_param: false is not heard"
[ "$(bytes forward reference)" -gt 0 ] || fail "init_kl_coef brings no reference"
plan "$files/verl-flattened.yaml" 2 actor_rollout_ref.model.path="$policy"
[ "$(bytes infer params)" = 0 ] || fail "param_offload: true is not heard"
grep -q 'strategy is fsdp: taken as fsdp2' "$folder/err" || fail "nothing is said of FSDP"
plan "$files/rlinf-megatron.yaml" 2 rollout.model_dir="$policy" rl_config.n_samples_per_prompt=4
[ ! -e logs ] || fail "a plan has converted"

status=0
"$TREADLE" train "$files/verl-flattened.yaml" --plan actor_rollout_ref.model.path="$policy" actor_rollout_ref.actor.clip_ration_c=2 >/dev/null 2>"$folder/err" || status=$?
[ $status = 2 ] || fail "a key that is misspelt: status $status"
grep -q "did you mean 'clip_ratio_c'" "$folder/err" || { cat "$folder/err"; fail "no suggestion"; }

if [ ! -d "$documents" ]; then
  echo "$documents is not there: its blocks are skipped"
  exit 0
fi
for name in S0_mindspeed_rl_resharding S1_mindspeed_rl_hybrid_actor; do
  sed -n '/^```yaml/,/^```$/p' "$documents/$name.md" | grep -v '^```' >"$folder/$name.yaml"
  plan "$folder/$name.yaml" 8 actor_config.model="$policy" rl_config.n_samples_per_prompt=4
done
awk '/^\.\. code-block:: yaml/ { n++; inside = 1; next } inside && /^[^ ]/ { inside = 0 } inside { print substr($0, 4) > ("'"$folder"'/S3-" n ".yaml") }' \
  "$documents/S3_rlinf_new_model_megatron_sglang.rst"
for number in 1 2 3; do
  plan "$folder/S3-$number.yaml" 2 rollout.model_dir="$policy" runner.output_dir="$folder/out" runner.experiment_name=x rl_config.n_samples_per_prompt=4
done
[ ! -e "$folder/out" ] || fail "a plan has converted"
