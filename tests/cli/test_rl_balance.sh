#!/usr/bin/env bash
# treadle train with rl_config.balance_batch: on one data parallel rank the bits of a run without it; on two and four the same samples in step 1,
# tokens that lie closer together, the same bits again; micro batches by rows and by tokens, stages, PPO's critic and a reward model.
# ctest: label=mpi timeout=600
set -euo pipefail
source "$TREADLE_SOURCE/tests/cli/ranks.sh"
cd "$TREADLE_SOURCE"

"$TREADLE" data sequence --out "$folder/data" --seed 1 --noise 0.3 >/dev/null
keys=("megatron_training.data_path=$folder/data/train.jsonl" megatron_training.val_path=null "actor_config.save=$folder/run"
  megatron_training.test_interval=0 megatron_training.train_iters=3 megatron_training.global_batch_size=6 megatron_training.save_interval=0
  rl_config.mini_batch_size=3 rl_config.epochs=2
  actor_config.pipeline_model_parallel_size=1 generate_config.sampling_config.max_tokens=24 "rl_config.dump_rollouts=$folder/dump")
on=(rl_config.balance_batch=true)
one=(actor_config.tensor_model_parallel_size=1)
by_rows=(actor_config.micro_batch_size=2 rl_config.shuffle_mini_batch=true)
by_tokens=(actor_config.micro_batch_size=null actor_config.max_tokens_per_micro=64)

# run NAME RANKS KEYS: its figures are NAME, its samples NAME.dump, its lines of metrics NAME.metrics
run() {
  local name=$1 ranks=$2
  shift 2
  rm -rf "$folder/run" "$folder/dump"
  timeout 300 "${launch[@]}" -n "$ranks" "$TREADLE" train "$config" "${keys[@]}" "$@" --threads 1 --json >"$folder/$name" 2>"$folder/$name.err" ||
    { cat "$folder/$name.err"; fail "$name: failed"; }
  mv "$folder/dump" "$folder/$name.dump"
  mv "$folder/run/metrics.jsonl" "$folder/$name.metrics"
  [ "$(value "$name" logprob_differing)" = 0 ] || fail "$name: log-probabilities differ"
  [ "$(value "$name" logprob_tokens)" -gt 100 ] || fail "$name: nothing was compared"
  [ "$(value "$name" peak_bytes)" = "$(value "$name" peak_predicted_bytes)" ] || fail "$name: the peak is not what was foreseen"
}
same() {
  for key in weights_digest losses_digest; do
    [ "$(value "$1" $key)" = "$(value "$2" $key)" ] || fail "$2 has another $key than $1"
  done
  diff -r "$folder/$1.dump" "$folder/$2.dump" >/dev/null || fail "$2 has another dump than $1"
}
# What is drawn in step 1 and found of it before the update does not depend on who trains on it.
same_step() {
  for name in "$1" "$2"; do
    sed 's/"log_probs": \[[^]]*\]//; s/"entropies": \[[^]]*\]//' "$folder/$name.dump/1.jsonl" >"$folder/$name.step"
  done
  cmp "$folder/$1.step" "$folder/$2.step" || fail "$2 has other samples in step 1 than $1"
}
# figures NAME KEY: of each step
figures() { sed -n "s|.*\"global_seqlen/$2\":\([0-9.]*\).*|\1|p" "$folder/$1.metrics"; }
# Tokens of a step's samples, by its dump.
tokens() {
  sed 's/.*"prompt_ids": \[\([^]]*\)\], "ids": \[\([^]]*\)\].*/\1,\2/' "$1" | tr ',' '\n' | wc -l
}
# Tokens of ranks, of each of three steps: `is` what those after balancing are to those before.
check_tokens() {
  local name=$1 ranks=$2 is=$3
  for step in 1 2 3; do
    [ "$(figures "$name" mean | sed -n "${step}p" | awk -v ranks="$ranks" '{ print $1 * ranks }')" = "$(tokens "$folder/$name.dump/$step.jsonl")" ] || fail "$name: the mean of tokens of step $step"
  done
  paste <(figures "$name" min) <(figures "$name" max) <(figures "$name" minmax_diff) <(figures "$name" balanced_min) <(figures "$name" balanced_max) <(figures "$name" mean) >"$folder/figures"
  awk -v is="$is" 'NF != 6 || $2 - $1 != $3 || $1 > $6 || $2 < $6 || $4 > $6 || $5 < $6 { bad = 1 }
    is == "equal" && ($1 != $4 || $2 != $5) { bad = 1 }
    is == "one" && ($1 != $2 || $4 != $1 || $5 != $1 || $6 != $1) { bad = 1 }
    is == "closer" && $5 - $4 > $3 { bad = 1 }
    { before += $3; after += $5 - $4 }
    END { exit bad || NR != 3 || (is == "closer" && after >= before / 2) }' "$folder/figures" || { cat "$folder/figures"; fail "$name: tokens of ranks"; }
}

config=examples/grpo-demo.yaml
for kind in rows tokens; do
  if [ $kind = rows ]; then with=("${by_rows[@]}"); else with=("${by_tokens[@]}"); fi
  # One data parallel rank, or one with two tensor parallel ranks: nothing changes.
  run one.$kind 1 "${with[@]}" "${one[@]}"
  run one.on.$kind 1 "${with[@]}" "${on[@]}" "${one[@]}"
  same one.$kind one.on.$kind
  check_tokens one.on.$kind 1 one
  run one.two.$kind 2 "${with[@]}" "${on[@]}" actor_config.tensor_model_parallel_size=2
  same one.$kind one.two.$kind

  run off.$kind 2 "${with[@]}" "${one[@]}"
  check_tokens off.$kind 2 equal
  run on.$kind 2 "${with[@]}" "${on[@]}" "${one[@]}"
  check_tokens on.$kind 2 closer
  same_step off.$kind on.$kind
  run again.$kind 2 "${with[@]}" trainer.balance_batch=true "${one[@]}"
  same on.$kind again.$kind
done

# Replicas in stages, whose micro batches are as many.
keys=("${keys[@]/actor_config.pipeline_model_parallel_size=1/actor_config.pipeline_model_parallel_size=2}")
run off.stages 4 "${by_tokens[@]}" "${one[@]}"
run on.stages 4 "${by_tokens[@]}" "${one[@]}" "${on[@]}"
check_tokens on.stages 2 closer
same_step off.stages on.stages

# PPO: the critic's values and updates come back to their tokens, too. Mini batches have 9 samples, which two replicas do not divide.
config=examples/ppo-demo.yaml
keys=("${keys[@]/actor_config.pipeline_model_parallel_size=2/actor_config.pipeline_model_parallel_size=1}")
ppo=("${one[@]}" rl_config.n_samples_per_prompt=3 rl_config.critic_warmup=0 actor_config.micro_batch_size=1)
critics() { grep -o '"critic/[a-z_/]*":[^,]*' "$folder/$1.metrics" | grep -v grad_norm; }
run ppo.off 2 "${ppo[@]}"
run ppo.on 2 "${ppo[@]}" "${on[@]}"
run ppo.again 2 "${ppo[@]}" "${on[@]}"
same ppo.on ppo.again
check_tokens ppo.on 2 closer
same_step ppo.off ppo.on
[ "$(critics ppo.on | wc -l)" -ge 24 ] || fail "no figures of the critic"
[ "$(critics ppo.on)" = "$(critics ppo.again)" ] || fail "the critic is another"

# The same with the controller and the critic apart, on nodes of their own.
run ppo.apart 5 "${ppo[@]}" "${on[@]}" 'resource_pools={policy: [2], critic: [2]}' 'mapping={ActorRollout: policy, Critic: critic}' --nodes 1,2,2
same ppo.on ppo.apart
[ "$(critics ppo.on)" = "$(critics ppo.apart)" ] || fail "the critic apart is another"
check_tokens ppo.apart 2 closer
