#!/usr/bin/env bash
# The gradients of a dumped mini batch, which are those of the run, in another layout, too, and of a later step; and dumped lines that no run has
# written.
# ctest: label=mpi timeout=300
set -euo pipefail
command -v python3 >/dev/null || { echo "no python3 here: skipped"; exit 0; }
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }
launch=("$MPIEXEC")
case $("$MPIEXEC" --version 2>/dev/null) in *'Open MPI'* | *OpenRTE*) launch+=(--oversubscribe) ;; esac
"$TREADLE" data sequence --out "$folder/data" --seed 1 >/dev/null
cat >"$folder/grpo.yaml" <<END
megatron_training:
  tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence
  data_path: $folder/data/train.jsonl
  train_iters: 2
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
  dump_rollouts: $folder/dump
END
"$TREADLE" train "$folder/grpo.yaml" --threads 1 megatron_training.train_iters=1 >/dev/null 2>&1
"$TREADLE" grad "$TREADLE_SOURCE/examples/sequence/policy" --loss grpo --config "$folder/grpo.yaml" --file "$folder/dump/1.jsonl" --json >"$folder/grad"
python3 "$TREADLE_SOURCE/tests/tools/same_norm.py" "$folder/grad" "$folder/run/metrics.jsonl" || fail "a dump has other gradients"
"${launch[@]}" -n 4 "$TREADLE" grad "$TREADLE_SOURCE/examples/sequence/policy" --loss grpo --config "$folder/grpo.yaml" --file "$folder/dump/1.jsonl" \
  --layout megatron:tp=2,pp=2 --json >"$folder/grad4"
for key in digest pg_loss entropy; do
  [ "$(grep "\"$key\"" "$folder/grad")" = "$(grep "\"$key\"" "$folder/grad4")" ] || fail "tp=2,pp=2 has another $key"
done
# The gradients of a later step, of its own policy: advantages of each token, a length that no key names, a coefficient that a controller has moved.
rm -rf "$folder/run" "$folder/dump"
sed -e '/sampling_config/d; /generate_config/d' -e 's/global_batch_size/save_interval: 1\n  seq_length: 30\n  global_batch_size/' "$folder/grpo.yaml" >"$folder/later.yaml"
cat >>"$folder/later.yaml" <<END
  adv_estimator: reinforce_plus_plus
  loss_agg_mode: seq-mean-token-sum-norm
  gamma: 0.9
  use_kl_loss: true
  init_kl_coef: 0.5
  kl_ctrl_type: adaptive
  kl_target: 0.0001
  kl_horizon: 20
END
"$TREADLE" train "$folder/later.yaml" --threads 1 >"$folder/out" 2>&1 || { cat "$folder/out"; fail "a run with a KL that is steered"; }
for step in 1 2; do
  model=$TREADLE_SOURCE/examples/sequence/policy
  [ $step = 1 ] || model=$folder/run/global_step_1/actor/huggingface
  "$TREADLE" grad "$model" --loss grpo --config "$folder/later.yaml" --file "$folder/dump/$step.jsonl" --json >"$folder/grad"
  python3 - "$folder/grad" "$folder/run/metrics.jsonl" $step <<'END' || fail "step $step: the dump has other gradients than the run"
import json, sys
dump, run = json.load(open(sys.argv[1])), [json.loads(line) for line in open(sys.argv[2])][int(sys.argv[3]) - 1]
for key in 'grad_norm', 'kl_loss', 'pg_loss', 'entropy':
    assert abs(dump[key] - run['actor/' + key]) <= 1e-9, (key, dump[key], run['actor/' + key])
END
done

status=0
"$TREADLE" grad "$TREADLE_SOURCE/examples/sequence/policy" --loss grpo --config "$folder/grpo.yaml" --file "$folder/dump/1.jsonl" --mini-batch 9 2>"$folder/err" || status=$?
[ $status = 2 ] && grep -q 'no sample with tokens is of mini batch 9' "$folder/err" || fail "a mini batch that is not there"

# Lines that no run has written.
refused() {
  local status=0
  sed -i "2 s/$2/$3/" "$folder/spoiled.jsonl"
  "$TREADLE" grad "$TREADLE_SOURCE/examples/sequence/policy" --loss grpo --config "$folder/later.yaml" --file "$folder/spoiled.jsonl" >"$folder/out" 2>"$folder/err" || status=$?
  [ $status = 2 ] && grep -q "spoiled.jsonl: line 2: $1" "$folder/err" || { cat "$folder/err"; fail "status $status, and no '$1'"; }
  cp "$folder/dump/1.jsonl" "$folder/spoiled.jsonl"
}
cp "$folder/dump/1.jsonl" "$folder/spoiled.jsonl"
refused 'has no prompt_ids, which must be token ids' '"prompt_ids"' '"other"'
refused 'has no mini_batch, which must be a whole number' '"mini_batch"' '"other"'
refused 'old_log_probs must be a list of' '"old_log_probs": \[' '&0, '
refused 'ref_log_probs is null, and the loss has a KL' '"ref_log_probs": \[[^]]*\]' '"ref_log_probs": null'
refused 'prompt_ids and ids have .* tokens, and a sequence has 30 at most' '"prompt_ids": \[' '&0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '
