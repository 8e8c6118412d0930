#!/usr/bin/env bash
# treadle train with a critic, by examples/ppo-demo.yaml: the same rollouts, losses, weights and values on one, two and four ranks, in layouts of the
# policy's and of the critic's own; a run that stopped and goes on; a warm-up; what the critic holds, and when; refusals.
# ctest: label=mpi timeout=600
set -euo pipefail
source "$TREADLE_SOURCE/tests/cli/ranks.sh"
source "$TREADLE_SOURCE/tests/cli/listed.sh"
cd "$TREADLE_SOURCE"

"$TREADLE" data sequence --out "$folder/data" --seed 1 --noise 0.3 >/dev/null
keys=("megatron_training.data_path=$folder/data/train.jsonl" "megatron_training.val_path=null" "actor_config.save=$folder/run"
  megatron_training.test_interval=0 megatron_training.train_iters=3 megatron_training.global_batch_size=8 megatron_training.save_interval=1
  megatron_training.max_ckpt_to_keep=0 rl_config.mini_batch_size=4 actor_config.micro_batch_size=4 
  generate_config.sampling_config.max_tokens=12 generate_config.kv_memory=64KiB "rl_config.dump_rollouts=$folder/dump"
  rl_config.use_kl_in_reward=true rl_config.init_kl_coef=0.1 rl_config.lam=0.9)
one=(actor_config.tensor_model_parallel_size=1)

# run NAME RANKS KEYS: its figures are NAME, its samples NAME.dump, its digests NAME.digests
run() {
  local name=$1 ranks=$2
  shift 2
  rm -rf "$folder/run" "$folder/dump"
  "${launch[@]}" -n "$ranks" "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" "$@" --threads 1 --json >"$folder/$name" 2>"$folder/$name.err" ||
    { cat "$folder/$name.err"; fail "$name: failed"; }
  mv "$folder/dump" "$folder/$name.dump"
  sed -n 's/.*"\(actor\|critic\)\/huggingface": "\(.*\)".*/\1 \2/p' "$folder/run/global_step_3/digests.json" >"$folder/$name.weights"
  grep -o '"critic/[a-z_/]*":[^,]*' "$folder/run/metrics.jsonl" | grep -v grad_norm >"$folder/$name.critic" # a norm is a sum over ranks
  [ "$(value "$name" logprob_differing)" = 0 ] || fail "$name: log-probabilities differ"
  [ "$(value "$name" peak_bytes)" = "$(value "$name" peak_predicted_bytes)" ] || fail "$name: the peak is not what was foreseen"
}
same() {
  for key in weights_digest losses_digest; do
    [ "$(value "$1" $key)" = "$(value "$2" $key)" ] || fail "$2 has another $key than $1"
  done
  for part in dump weights critic; do
    diff -r "$folder/$1.$part" "$folder/$2.$part" >/dev/null || { diff -r "$folder/$1.$part" "$folder/$2.$part" | head -5; fail "$2 has another $part than $1"; }
  done
}
run one 1 "${one[@]}"
[ "$(wc -l <"$folder/one.weights")" = 2 ] || fail "the checkpoint has no digests of both models"
run two 2
same one two
run two_critic 2 "${one[@]}" critic_config.tensor_model_parallel_size=2
same one two_critic
run four 4 actor_config.pipeline_model_parallel_size=2 critic_config.strategy=fsdp2 critic_config.tensor_model_parallel_size=null
same one four
run stays 1 "${one[@]}" critic_config.offload_param=false critic_config.offload_optimizer=false
same one stays

# Figures. The head begins with zeros: so do values, which then explain nothing; later they do.
for key in vf_loss vf_clipfrac vpred_mean lr values/mean values/max values/min vf_explained_var; do
  [ "$(grep -c "\"critic/$key\":" "$folder/one.critic")" = 3 ] || fail "metrics.jsonl has not critic/$key of each step"
done
[ "$(grep -m1 critic/values/max "$folder/one.critic")" = '"critic/values/max":0.0' ] || fail "values of step 1 are not 0"
[ "$(grep -c '"critic/values/max":0.0$' "$folder/one.critic")" = 1 ] || fail "values stay 0"
listed "$folder/run/metrics.jsonl" timing_s/values timing_s/update_critic actor/reward_kl_penalty

# A run goes on, and in another layout; a checkpoint that is damaged, or has no critic, is refused.
run stopped 1 "${one[@]}"
rm -r "$folder/run/global_step_3" "$folder/run/global_step_2"
"${launch[@]}" -n 2 "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" --threads 1 --resume --json >"$folder/resumed" 2>"$folder/err" || { cat "$folder/err"; fail "no resuming"; }
[ "$(value resumed steps)" = 2 ] || fail "resuming took $(value resumed steps) steps"
for key in weights_digest losses_digest; do [ "$(value resumed $key)" = "$(value one $key)" ] || fail "resumed, $key is another"; done
sed -n 's/.*"\(actor\|critic\)\/huggingface": "\(.*\)".*/\1 \2/p' "$folder/run/global_step_3/digests.json" >"$folder/resumed.weights"
cmp "$folder/one.weights" "$folder/resumed.weights" || fail "resumed, the weights in the checkpoint are others"
# refuses WORDS ARGUMENTS
refuses() {
  local words=$1
  shift
  "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" "${one[@]}" --threads 1 "$@" >"$folder/out" 2>"$folder/err" && fail "not refused: $words"
  grep -q -- "$words" "$folder/err" || { cat "$folder/err"; fail "no '$words'"; }
}
printf x | dd of="$folder/run/global_step_3/critic/optimizer/exp_avg/model.safetensors" bs=1 seek=5000 conv=notrunc 2>/dev/null
refuses 'critic/optimizer/exp_avg is damaged' --resume "$folder/run/global_step_3"
mv "$folder/run/global_step_2/critic" "$folder/critic"
refuses 'has no file critic/huggingface' --resume "$folder/run/global_step_2"
rm "$folder/run/global_step_2/digests.json"
mkdir "$folder/run/global_step_2/critic"
refuses 'it has no critic/huggingface/config.json' --resume "$folder/run/global_step_2"
rm -r "$folder/run"
"$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" "${one[@]}" rl_config.adv_estimator=grpo --threads 1 >/dev/null 2>"$folder/err" || { cat "$folder/err"; fail "no run without a critic"; }
[ ! -e "$folder/run/global_step_1/critic" ] || fail "a run without a critic has one"
if grep -q critic_config "$folder/run/config.yaml"; then fail "a run without a critic has its keys"; fi
refuses "'critic_steps' is missing" --resume "$folder/run/global_step_1"

# Warm-up: before that step the policy stays as it is.
run warm 1 "${one[@]}" rl_config.critic_warmup=3
[ "$(grep -c '"actor/pg_loss"' "$folder/run/metrics.jsonl")" = 1 ] || fail "the policy is updated before the warm-up is over"
grep -q '"step":3,.*"actor/pg_loss"' "$folder/run/metrics.jsonl" || fail "the policy is not updated after the warm-up"
digest() { sed -n 's/.*"'"$2"'\/huggingface": "\(.*\)".*/\1/p' "$folder/run/global_step_$1/digests.json"; }
[ "$(digest 1 actor)" = "$(digest 2 actor)" ] && [ "$(digest 2 actor)" != "$(digest 3 actor)" ] || fail "the policy's weights change in the wrong step"
[ "$(digest 1 critic)" != "$(digest 2 critic)" ] || fail "the critic does not learn in the warm-up"

# Outside its calls the device has nothing of the critic: in the stages that runs without one have, too, each class has at most what it has there.
points() { tr -d '\n ' <"$folder/run/memory.json" | grep -o '"stage":"[^"]*","bytes":\[[0-9,]*' | sed 's/"stage":"\([^"]*\)","bytes":\[/\1,/'; }
most() { points | awk -F, '{for (i = 2; i <= NF; i++) if ($i + 0 > most[$1, i]) most[$1, i] = $i; stages[$1]} END {for (s in stages) for (i = 2; i <= NF; i++) print s, i, most[s, i] + 0}' |
  grep "^generate\|^oldlog-probabilities\|^update " | sort; }
run alone 1 "${one[@]}" rl_config.adv_estimator=reinforce_plus_plus
most >"$folder/alone.most"
run one 1 "${one[@]}"
most >"$folder/one.most"
[ "$(wc -l <"$folder/one.most")" = 21 ] || fail "memory.json lacks stages"
cmp "$folder/alone.most" "$folder/one.most" || fail "other stages have something of the critic on the device"
points >"$folder/points"
for stage in values updateofthecritic; do
  [ "$(grep "^$stage," "$folder/points" | tail -1 | cut -d, -f2-)" = "$(grep "^oldlog-probabilities," "$folder/points" | tail -1 | cut -d, -f2-)" ] ||
    fail "after $stage the device has more than the policy's parameters"
done
peak=$(value one peak_bytes)
[ "$peak" -gt "$(value alone peak_bytes)" ] || fail "the critic's bytes are not counted"
"$TREADLE" train --plan examples/ppo-demo.yaml "${keys[@]}" "${one[@]}" --ranks 1 --threads 1 --json >"$folder/plan"
[ "$(value plan peak_bytes | head -1)" = "$peak" ] || fail "the plan does not have the critic"
rm -r "$folder/run"
refuses "rank 0 needs $peak: mode forward has $peak" generate_config.device_memory=$peak

# Refused: a critic of another vocabulary, keys that do not suit.
mkdir "$folder/other"
sed 's/"vocab_size": [0-9]*/"vocab_size": 64/' examples/sequence/policy/config.json >"$folder/other/config.json"
refuses 'critic_config.model (override): .*vocabulary has 64 ids' critic_config.model="$folder/other/config.json"
refuses 'critic_config.offload_grad (override) is false' critic_config.offload_grad=false
refuses 'no such file\|there is no\|cannot' critic_config.model="$folder/nowhere"
echo "one, two and four ranks: weights $(value one weights_digest), losses $(value one losses_digest)"
