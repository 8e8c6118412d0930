#!/usr/bin/env bash
# What a run says of its samples, computed again from the dump by tools/check-rollouts, for every estimator and aggregation, with 1, 2 and 4 data
# parallel replicas; and the gradients of a dumped mini batch, which are those of the run.
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
# DAPO's penalty of long responses, which no score has.
rm -rf "$folder/run" "$folder/dump"
"$TREADLE" train "$folder/grpo.yaml" --threads 1 rl_config.overlong_buffer_enable=true rl_config.overlong_buffer=4 rl_config.overlong_buffer_penalty_factor=0.5 \
  rl_config.rollout_max_tokens=10 >"$folder/out" 2>&1 || { cat "$folder/out"; fail "a penalty of long responses"; }
"$TREADLE_SOURCE/tools/check-rollouts" "$folder/run/config.yaml" "$folder/run/metrics.jsonl" "$folder/dump" || fail "with a penalty of long responses: other numbers"
grep -q '"score": \([^,]*\), "reward": -' "$folder/dump/1.jsonl" || fail "no response was long"

kl=0 ranks=1
for estimator in group_norm rloo reinforce_plus_plus reinforce_plus_plus_baseline; do
  for mode in token-mean seq-mean-token-sum seq-mean-token-mean seq-mean-token-sum-norm; do
    rm -rf "$folder/run" "$folder/dump"
    kl=$(((kl + 1) % 3)) ranks=$((ranks == 4 ? 1 : 2 * ranks))
    "${launch[@]}" -n "$ranks" "$TREADLE" train "$folder/grpo.yaml" --threads 1 rl_config.adv_estimator=$estimator rl_config.loss_agg_mode=$mode \
      rl_config.use_kl_loss="$([ $kl = 1 ] && echo true || echo false)" rl_config.use_kl_in_reward="$([ $kl = 2 ] && echo true || echo false)" \
      rl_config.init_kl_coef=0.1 rl_config.entropy_coeff=0.01 rl_config.kl_ctrl_type=adaptive rl_config.kl_target=0.001 rl_config.kl_horizon=100 >"$folder/out" 2>&1 || { cat "$folder/out"; fail "$estimator, $mode: failed"; }
    "$TREADLE_SOURCE/tools/check-rollouts" "$folder/run/config.yaml" "$folder/run/metrics.jsonl" "$folder/dump" >"$folder/out" ||
      { cat "$folder/out"; fail "$estimator, $mode, $ranks ranks: other numbers"; }
  done
done
# The controller has moved the coefficient: what the run says of it is not what it began with.
grep -q '"actor/kl_coef":0.1,\|"actor/reward_kl_penalty_coeff":0.1,' <(tail -1 "$folder/run/metrics.jsonl") && fail "the KL's coefficient stays"
sed -i 's/"advantage": -\{0,1\}[0-9]/"advantage": 7/' "$folder/dump/1.jsonl"
if "$TREADLE_SOURCE/tools/check-rollouts" "$folder/run/config.yaml" "$folder/run/metrics.jsonl" "$folder/dump" >/dev/null; then fail "a wrong advantage is not seen"; fi

rm -rf "$folder/run" "$folder/dump"
"$TREADLE" train "$folder/grpo.yaml" --threads 1 megatron_training.train_iters=1 >/dev/null 2>&1
"$TREADLE" grad "$TREADLE_SOURCE/examples/sequence/policy" --loss grpo --config "$folder/grpo.yaml" --file "$folder/dump/1.jsonl" --json >"$folder/grad"
norm=$(sed -n 's/.*"grad_norm": \([^,]*\).*/\1/p' "$folder/grad")
grep -q "\"actor/grad_norm\":$norm" "$folder/run/metrics.jsonl" || fail "the gradients of the dump have norm $norm, those of the run another one"
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
"$TREADLE_SOURCE/tools/check-rollouts" "$folder/run/config.yaml" "$folder/run/metrics.jsonl" "$folder/dump" || fail "steered: other numbers"
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
