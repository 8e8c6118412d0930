#!/usr/bin/env bash
# What a run says of its samples, computed again from the dump by tools/check-rollouts: for every estimator and aggregation, with 1, 2 and 4 data
# parallel replicas, two mini batches a step and a learning rate at which every clip and clamp is reached.
# TREADLE_PERCENT=P: of the usual runs; 300: each estimator and aggregation with each number of replicas.
# ctest: label=mpi timeout=300
set -euo pipefail
command -v python3 >/dev/null || { echo "no python3 here: skipped"; exit 0; }
percent=${TREADLE_PERCENT:-100}
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }
launch=("$MPIEXEC")
case $("$MPIEXEC" --version 2>/dev/null) in *'Open MPI'* | *OpenRTE*) launch+=(--oversubscribe) ;; esac
"$TREADLE" data sequence --out "$folder/data" --seed 1 >/dev/null
# A small model of random weights, whose responses have all lengths.
mkdir "$folder/model"
sed -e 's/"hidden_size": [0-9]*/"hidden_size": 32/; s/"intermediate_size": [0-9]*/"intermediate_size": 64/; s/"num_hidden_layers": [0-9]*/"num_hidden_layers": 2/' \
  "$TREADLE_SOURCE/examples/sequence/policy/config.json" >"$folder/model/config.json"
cat >"$folder/grpo.yaml" <<END
megatron_training:
  tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence
  data_path: $folder/data/train.jsonl
  train_iters: 2
  global_batch_size: 4
actor_config:
  model: $folder/model
  weights: random
  save: $folder/run
  micro_batch_size: 4
  lr: 0.1
generate_config:
  sampling_config: {max_tokens: 12}
rl_config:
  n_samples_per_prompt: 4
  max_prompt_length: 10
  mini_batch_size: 8
  clip_ratio_low: 0.1
  clip_ratio_high: 0.3
  clip_ratio_c: 1.5
  verifier_function: ["length:target=6"]
  dump_rollouts: $folder/dump
END

# check RANKS KEYS...: a run, and its dump; what its tokens have reached is added to $folder/seen
check() {
  local ranks=$1 start=()
  shift
  [ "$ranks" = 1 ] || start=("${launch[@]}" -n "$ranks")
  rm -rf "$folder/run" "$folder/dump"
  "${start[@]}" "$TREADLE" train "$folder/grpo.yaml" --threads 1 "$@" >"$folder/out" 2>&1 || { cat "$folder/out"; fail "failed: $*"; }
  again >"$folder/out" || { cat "$folder/out"; fail "other numbers with $ranks ranks: $*"; }
  sed -n 's/^tokens: //p' "$folder/out" | tr ',' '\n' >>"$folder/seen"
}
again() { "$TREADLE_SOURCE/tools/check-rollouts" "$folder/run/config.yaml" "$folder/run/metrics.jsonl" "$folder/dump"; }
# due NUMBER: is this one of the share that is asked for?
due() { [ "$percent" -ge 100 ] || [ $(($1 * percent / 100)) != $((($1 + 1) * percent / 100)) ]; }

estimators=(group_norm rloo reinforce_plus_plus reinforce_plus_plus_baseline)
modes=(token-mean seq-mean-token-sum seq-mean-token-mean seq-mean-token-sum-norm)
kinds=(low_var_kl kl abs mse k1 k2 k3 k3+)
number=0
for ranks in 1 2 4; do
  for e in 0 1 2 3; do
    for m in 0 1 2 3; do
      # with replicas, usually each estimator once and each aggregation once
      [ $ranks = 1 ] || [ "$percent" -ge 300 ] || [ $(((m - e + 4) % 4)) = $((ranks / 2)) ] || continue
      number=$((number + 1))
      due $number || continue
      keys=("rl_config.adv_estimator=${estimators[e]}" "rl_config.loss_agg_mode=${modes[m]}")
      case $((number % 3)) in
        0) keys+=(rl_config.use_kl_loss=true) ;;
        1) keys+=(rl_config.use_kl_in_reward=true) ;;
      esac
      [ $((number % 3)) = 2 ] || keys+=("rl_config.kl_penalty=${kinds[number % 8]}" rl_config.init_kl_coef=0.1 rl_config.kl_ctrl_type=adaptive rl_config.kl_target=0.001 rl_config.kl_horizon=100)
      [ $((number % 2)) = 0 ] || keys+=(rl_config.entropy_coeff=0.01)
      [ $e != 2 ] || keys+=(rl_config.gamma=0.9)
      [ $e != 0 ] || [ $((m % 2)) = 0 ] || keys+=(rl_config.norm_adv_by_std=false)
      check $ranks "${keys[@]}"
    done
  done
done
# DAPO's penalty of long responses, which no score has.
check 1 rl_config.overlong_buffer_enable=true rl_config.overlong_buffer=4 rl_config.overlong_buffer_penalty_factor=0.5 rl_config.rollout_max_tokens=10
grep -q '"score": \([^,]*\), "reward": -' "$folder/dump/1.jsonl" || fail "no response was long"
# Mini batches in another order; entropies of steps with a pass before the update, and without.
check 1 rl_config.shuffle_mini_batch=true rl_config.mini_batch_size=4 rl_config.exact_check=2
# A longest response that no key names.
check 1 rl_config.loss_agg_mode=seq-mean-token-sum-norm generate_config.sampling_config.max_tokens=0 megatron_training.seq_length=30
# Importance, where the trainer's log-probabilities are not the generator's.
check 2 actor_config.exact=false actor_config.tensor_model_parallel_size=2 rl_config.rollout_is_threshold=1.00001
# Of several epochs the losses cannot be computed, and it says so; a controller has moved the coefficient, and what is wrong is seen.
check 1 rl_config.epochs=2 rl_config.use_kl_loss=true rl_config.init_kl_coef=0.1 rl_config.kl_ctrl_type=adaptive rl_config.kl_target=0.001 rl_config.kl_horizon=100
grep -q '^not checked: the losses of 2 steps with several epochs' "$folder/out" || { cat "$folder/out"; fail "no word of epochs"; }
check 1 rl_config.use_kl_loss=true rl_config.init_kl_coef=0.1 rl_config.kl_ctrl_type=adaptive rl_config.kl_target=0.001 rl_config.kl_horizon=100
grep -q '"actor/kl_coef":0.1,' <(tail -1 "$folder/run/metrics.jsonl") && fail "the KL's coefficient stays"
for key in score reward advantage mini_batch kl_coef old_log_probs log_probs ref_log_probs entropies; do
  cp "$folder/dump/1.jsonl" "$folder/kept"
  sed -i "1 s/\"$key\": \(\[*\)-*[0-9]/\"$key\": \17/" "$folder/dump/1.jsonl"
  cmp -s "$folder/dump/1.jsonl" "$folder/kept" && fail "$key is not there"
  if again >/dev/null 2>&1; then fail "a wrong $key is not seen"; fi
  mv "$folder/kept" "$folder/dump/1.jsonl"
done
again >/dev/null || fail "the dump is not what it was"
if [ "$percent" -ge 100 ]; then
  for what in 'clipped above' 'clipped below' 'at clip_ratio_c' 'of other importance' 'KLs held'; do
    grep -q "[1-9][0-9]* $what" "$folder/seen" || { cat "$folder/seen"; fail "no token is $what"; }
  done
fi
