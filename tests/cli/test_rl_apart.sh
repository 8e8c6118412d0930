#!/usr/bin/env bash
# treadle train with the controller apart, by examples/ppo-demo.yaml: the policy, its critic and its reference on pools of their own, or on one, have the rollouts, losses,
# weights and values of a run in which all ranks do everything; such a run goes on where the other one stopped, and back; ranks that die end
# it for all, by name; what each pool holds is what was foreseen, and a budget; refusals.
# ctest: label=mpi timeout=600
set -euo pipefail
source "$TREADLE_SOURCE/tests/cli/ranks.sh"
source "$TREADLE_SOURCE/tests/cli/listed.sh"
cd "$TREADLE_SOURCE"

"$TREADLE" data sequence --out "$folder/data" --seed 1 --noise 0.3 >/dev/null
keys=("megatron_training.data_path=$folder/data/train.jsonl" "megatron_training.val_path=$folder/data/test.jsonl" "actor_config.save=$folder/run"
  megatron_training.test_interval=2 megatron_training.train_iters=4 megatron_training.global_batch_size=8 megatron_training.save_interval=2
  megatron_training.max_ckpt_to_keep=0 rl_config.mini_batch_size=4 rl_config.val_n=1 rl_config.critic_warmup=1 actor_config.micro_batch_size=4
  generate_config.sampling_config.max_tokens=12 generate_config.kv_memory=64KiB "rl_config.dump_rollouts=$folder/dump"
  rl_config.use_kl_in_reward=true rl_config.init_kl_coef=0.1)
one='resource_pools={all: [2]}' both='mapping={ActorRollout: all, RefPolicy: all, Critic: all}'
pools='resource_pools={policy: [2], critic: [2]}' apart='mapping={ActorRollout: policy, RefPolicy: policy, Critic: critic}'

# run NAME RANKS KEYS: its figures are NAME, its samples NAME.dump, its digests NAME.digests
run() {
  local name=$1 ranks=$2
  shift 2
  rm -rf "$folder/run" "$folder/dump"
  "${launch[@]}" -n "$ranks" "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" "$@" --threads 1 --json >"$folder/$name" 2>"$folder/$name.err" ||
    { cat "$folder/$name.err"; fail "$name: failed"; }
  [ "$(value "$name" peak_bytes)" = "$(value "$name" peak_predicted_bytes)" ] || fail "$name: the peak is not what was foreseen"
  keep "$name"
}
keep() {
  mv "$folder/dump" "$folder/$1.dump"
  cp "$folder/run/global_step_4/digests.json" "$folder/$1.digests"
  grep -o '"critic/[a-z_/]*":[^,]*' "$folder/run/metrics.jsonl" >"$folder/$1.critic"
}
# same A B PARTS
same() {
  for key in weights_digest losses_digest logprob_differing; do
    [ "$(value "$1" $key)" = "$(value "$2" $key)" ] || fail "$2 has another $key than $1"
  done
  for part in ${3:-dump digests critic}; do
    diff -r "$folder/$1.$part" "$folder/$2.$part" >/dev/null || { diff -r "$folder/$1.$part" "$folder/$2.$part" | head -5; fail "$2 has another $part than $1"; }
  done
}
run together 2
run one_pool 2 "$one" "$both"
same together one_pool
run alone 3 "$one" "$both" # the controller is none of them
same together alone
run apart 5 "$pools" "$apart"
same together apart
listed "$folder/run/metrics.jsonl" control/calls control/row_bytes_by_workers
[ "$(grep -o '"control/row_bytes_by_controller":[^,}]*' "$folder/run/metrics.jsonl" | sort -u)" = '"control/row_bytes_by_controller":0' ] || fail "the controller had rows"
run blocking 5 "$pools" "$apart" rl_config.blocking=true
same together blocking
# The reference elsewhere: on ranks of its own, in a layout of its own; and beside the critic.
refs='resource_pools={policy: [2], critic: [2], ref: [2]}' elsewhere='mapping={ActorRollout: policy, RefPolicy: ref, Critic: critic}'
run reference 7 "$refs" "$elsewhere" ref_config.tensor_model_parallel_size=2 ref_config.micro_batch_size=3
same together reference
run beside 5 "$pools" 'mapping={ActorRollout: policy, RefPolicy: critic, Critic: critic}' ref_config.offload_param=false
same together beside
run small 4 'resource_pools={policy: [2], critic: [1]}' "$apart" # a pool of one rank
[ "$(value small logprob_differing)" = 0 ] || fail "small: log-probabilities differ"
run backwards 5 'resource_pools={critic: [2], policy: [2]}' "$apart" # other ranks
same together backwards
run elsewhere 5 "$pools" "$apart" --nodes 1,2,2 # the controller has a node of its own
same together elsewhere
run placed 5 'resource_pools={critic: [1], policy: [2], idle: [1]}' 'mapping={ActorRollout: policy, RefPolicy: policy, Critic: critic, RewardModel: idle}' critic_config.tensor_model_parallel_size=1 --nodes 1,2,2 # and pools are placed
same small placed

# Stopped together, it goes on apart; and the other way round.
run half 2
rm -r "$folder/run/global_step_4"
"${launch[@]}" -n 5 "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" "$pools" "$apart" --threads 1 --resume --json >"$folder/on" 2>"$folder/err" || { cat "$folder/err"; fail "no resuming apart"; }
keep on
same together on 'digests critic'
rm -r "$folder/run/global_step_4"
"${launch[@]}" -n 2 "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" --threads 1 --resume --json >"$folder/back" 2>"$folder/err" || { cat "$folder/err"; fail "no resuming together"; }
keep back
same together back 'digests critic'

# The reference of a run that goes on is the policy as it began.
rm -r "$folder/run/global_step_4"
"${launch[@]}" -n 7 "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" "$refs" "$elsewhere" --threads 1 --resume --json >"$folder/other" 2>"$folder/err" || { cat "$folder/err"; fail "no resuming with the reference elsewhere"; }
keep other
same together other 'digests critic'

# Other pools begin with the samples that have come: 8 prompts of 2 samples, three prompts at a time, the last time two. They are called for each portion.
run portions 7 "$refs" "$elsewhere" ref_config.tensor_model_parallel_size=2 ref_config.micro_batch_size=3 rl_config.actor_rollout_dispatch_size=5
same together portions
for method in generate_sequences compute_values compute_ref_log_prob; do
  [ "$(grep -c "\"method\":\"$method\",\"step\":1[,}]" "$folder/run/trace.jsonl")" = 6 ] || { head -40 "$folder/run/trace.jsonl"; fail "step 1 has not three portions on two ranks of $method"; }
done
[ "$(grep -o '"control/row_bytes_by_controller":[^,}]*' "$folder/run/metrics.jsonl" | sort -u)" = '"control/row_bytes_by_controller":0' ] || fail "the controller had rows"

# Where what is drawn is cut, a reference elsewhere gets the ids that tokens were drawn from.
run kept 2 generate_config.sampling_config.top_k=5
run kept_apart 7 "$refs" "$elsewhere" generate_config.sampling_config.top_k=5
same kept kept_apart
run kept_portions 7 "$refs" "$elsewhere" generate_config.sampling_config.top_k=5 rl_config.actor_rollout_dispatch_size=4
same kept kept_portions
# Two roles of one pool read the same portions.
run kept_pair 5 "$pools" 'mapping={ActorRollout: policy, RefPolicy: critic, Critic: critic}' generate_config.sampling_config.top_k=5 rl_config.actor_rollout_dispatch_size=4
same kept kept_pair

# Actor and Rollout on pools of their own, and all others, too: weights go from one to the other, and across nodes. It goes on in other ways, and back.
sides='resource_pools={rollout: [2], critic: [2], ref: [1], actor: [2]}' theirs='mapping={Actor: actor, Rollout: rollout, RefPolicy: ref, Critic: critic}'
run sides 8 "$sides" "$theirs" ref_config.tensor_model_parallel_size=1 rl_config.actor_rollout_dispatch_size=8 --nodes 5,3
same together sides
[ "$(grep -o '"control/row_bytes_by_controller":[^,}]*' "$folder/run/metrics.jsonl" | sort -u)" = '"control/row_bytes_by_controller":0' ] || fail "the controller had rows"
# The peak is of all pools: here of the critic's, which the policy's ranks know nothing of. With a budget the cache of Rollout takes what is left, and no more.
whole=("$sides" "$theirs" ref_config.tensor_model_parallel_size=1)
plan() { "$TREADLE" train --plan examples/ppo-demo.yaml "${keys[@]}" "$@" --threads 1 --json; }
of_pool() { sed -n "s/.*\"name\": \"$1\".*\"$2\": \([0-9a-z]*\).*/\1/p" "$folder/plan"; }
plan "${whole[@]}" >"$folder/plan"
[ "$(value plan peak_bytes | head -1)" = "$(value sides peak_bytes)" ] && [ "$(of_pool critic bytes)" = "$(value sides peak_bytes)" ] ||
  fail "the peak of the run is not that of the critic's pool: $(value sides peak_bytes)"
[ "$(value sides kv_blocks)" = "$(of_pool rollout kv_blocks)" ] || fail "blocks of ranks that do not generate"
few=$(of_pool rollout kv_blocks)
run full 8 "${whole[@]}" generate_config.device_memory=64MiB generate_config.gpu_memory_utilization=0.5
same together full
plan "${whole[@]}" generate_config.device_memory=64MiB generate_config.gpu_memory_utilization=0.5 >"$folder/plan"
[ "$(value full kv_blocks)" = "$(of_pool rollout kv_blocks)" ] && (($(of_pool rollout kv_blocks) > 10 * few)) || fail "$(value full kv_blocks) blocks of the cache"
(($(value full peak_bytes) <= 32 << 20 && $(value full peak_bytes) > 31 << 20)) || fail "$(value full peak_bytes) bytes of a budget of 32 MiB"
run sides 8 "${whole[@]}" --nodes 5,3
rm -r "$folder/run/global_step_4"
"${launch[@]}" -n 2 "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" --threads 1 --resume --json >"$folder/joined" 2>"$folder/err" || { cat "$folder/err"; fail "no resuming together"; }
keep joined
same together joined 'digests critic'
rm -r "$folder/run/global_step_4"
"${launch[@]}" -n 8 "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" "$sides" "$theirs" ref_config.tensor_model_parallel_size=1 --threads 1 --resume --json >"$folder/sided" 2>"$folder/err" ||
  { cat "$folder/err"; fail "no resuming on pools"; }
keep sided
same together sided 'digests critic'

# Rollout alone on its pool, and all other roles with Actor, or one of them elsewhere.
run trainers 5 'resource_pools={actor: [2], rollout: [2]}' 'mapping={Actor: actor, Rollout: rollout, RefPolicy: actor, Critic: actor}' --nodes 3,2
same together trainers
[ "$(value trainers peak_bytes)" = "$(value trainers peak_predicted_bytes)" ] || fail "trainers: the peak is not what was foreseen"
[ "$(grep -o '"role":"[A-Za-z]*","method":"[a-z_]*"' "$folder/run/trace.jsonl" | sort -u | grep -c '"Rollout","method":"generate_sequences"\|"Actor","method":"update"\|"Critic","method":"update_critic"')" = 3 ] || fail "the trace does not say who has which role"
! grep -q '"role":"ActorRollout"' "$folder/run/trace.jsonl" || fail "a rank of one of the two is said to be both"
! grep -q '"rank":[34],"role":"Critic"' "$folder/run/trace.jsonl" || fail "a rank of Rollout is said to be Critic"
rm -r "$folder/run/global_step_4"
"${launch[@]}" -n 6 "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" 'resource_pools={actor: [2], critic: [2], rollout: [1]}' 'mapping={Actor: actor, Rollout: rollout, RefPolicy: actor, Critic: critic}' --threads 1 --resume --json >"$folder/mixed" 2>"$folder/err" ||
  { cat "$folder/err"; fail "no resuming with the reference beside Actor"; }
keep mixed
same together mixed 'digests critic'

# begin: five ranks without a launcher, which would end them together. The run has its first checkpoint then, and would go on.
begin() {
  local at=127.$((RANDOM % 250 + 1)).$((RANDOM % 250 + 1)).$((RANDOM % 250 + 1)):7000 rank
  pids=()
  rm -rf "$folder/run" "$folder/dump"
  for rank in 0 1 2 3 4; do
    "$TREADLE" train examples/ppo-demo.yaml "${keys[@]/train_iters=4/train_iters=100000}" "$pools" "$apart" rl_config.timeout=8 --threads 1 --nodes 3,2 \
      --meet "$at" --job dies --rank $rank --ranks 5 >"$folder/out.$rank" 2>"$folder/err.$rank" &
    pids[rank]=$!
  done
  until [ -e "$folder/run/latest_checkpointed_iteration.txt" ]; do
    kill -0 "${pids[0]}" 2>/dev/null || { cat "$folder"/err.*; fail "the run that was to be killed has ended"; }
    sleep 0.05
  done
}
# dies RANK WORDS [SIGNAL]: the rank is killed, or stopped, and rank 0 says which one it was; 0: rank 1 says it.
dies() {
  local rank
  begin
  kill -"${3:-KILL}" "${pids[$1]}"
  for rank in 0 1 2 3 4; do [ "$rank" = "$1" ] || ! wait "${pids[rank]}" || fail "rank $rank goes on without rank $1"; done
  [ "${3:-KILL}" = KILL ] || kill -KILL "${pids[$1]}"
  wait "${pids[$1]}" || true
  grep -Eq -- "$2" "$folder/err.$((1 - ($1 > 0)))" || { cat "$folder"/err.*; fail "no '$2'"; }
}
dies 2 "rank 2 \(ActorRollout, RefPolicy, pool 'policy', node 0\) is lost in [a-z_]+: "
dies 4 "rank 4 \(Critic, pool 'critic', node 1\) is lost in [a-z_]+: "
dies 1 "rank 1 \(ActorRollout, RefPolicy, pool 'policy', node 0\) is lost in [a-z_]+: .*silent" STOP
dies 0 'rank 0 \(controller, node 0\) is lost in [a-z_]+: '

# The controller has no part of any pool of memory; all others have. It alone is asked to stop: all end after the step at hand.
begin
for rank in 0 1 2 3 4; do
  { cat "/proc/${pids[rank]}/maps"; ls -l "/proc/${pids[rank]}/fd" 2>/dev/null || true; } >"$folder/maps" # a file that is closed meanwhile is none
  count=$(grep -c memfd:treadle-pool "$folder/maps" || true)
  ((rank ? count > 0 : count == 0)) || fail "rank $rank has $count pools of memory, mapped or open"
done
kill -USR1 "${pids[0]}"
for rank in 0 1 2 3 4; do
  status=0
  wait "${pids[rank]}" || status=$?
  [ $status = 130 ] || { cat "$folder"/err.*; fail "rank $rank has stopped with $status"; }
done
grep -q '^stopped: ' "$folder/out.0" || { cat "$folder/out.0"; fail "it does not say that it stopped"; }

# A rank that does not come to the meeting is named.
for rank in 0 1; do
  "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" "$pools" "$apart" --nodes 3,2 --meet 127.77.0.1:7000 --job missing --rank $rank --ranks 5 --timeout 0.5 \
    >/dev/null 2>"$folder/err.$rank" &
  pids[rank]=$!
done
for rank in 0 1; do
  ! wait "${pids[rank]}" || fail "rank $rank goes on without others"
  grep -q 'rank 2, 3, 4 did not come in time' "$folder/err.$rank" || { cat "$folder/err.$rank"; fail "rank $rank does not name those that are missing"; }
done

# A rank with another configuration, as one whose node has an old file: its pool would work by its numbers.
for rank in 0 1 2 3 4; do
  more=()
  [ $rank != 3 ] || more=(critic_config.lr=2.0e-3)
  "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" "$pools" "$apart" "${more[@]}" --threads 1 --nodes 3,2 --meet 127.78.0.1:7000 --job differs --rank $rank --ranks 5 \
    >/dev/null 2>"$folder/err.$rank" &
  pids[rank]=$!
done
for rank in 0 1 2 3 4; do ! wait "${pids[rank]}" || fail "rank $rank goes on though rank 3 has another configuration"; done
grep -q 'rank 3: critic_config.lr (override) is 0.002, and rank 0 has another value' "$folder/err.0" || { cat "$folder/err.0"; fail "another configuration is not named"; }

# refuses WORDS RANKS ARGUMENTS
refuses() {
  local words=$1 ranks=$2
  shift 2
  "${launch[@]}" -n "$ranks" "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" --threads 1 "$@" >"$folder/out" 2>"$folder/err" && fail "not refused: $words"
  grep -q -- "$words" "$folder/err" || { cat "$folder/err"; fail "no '$words'"; }
}
refuses "asks for 4 slots, and the run has 3 ranks beside the controller: start 5 processes" 4 "$pools" "$apart"
refuses "Rollout is in pool 'critic' with Critic: where Actor and Rollout have two pools, other roles may be with Actor" 5 "$pools" 'mapping={Actor: policy, Rollout: critic, RefPolicy: policy, Critic: critic}'
refuses 'asks for 2 slots, and the run has 1 rank beside the controller: start 3 processes' 2 'resource_pools={policy: [1], critic: [1]}' "$apart"
uneven='resource_pools={policy: [3], critic: [1]}'
refuses 'start 5 processes, with --nodes 4,1$' 4 "$uneven" "$apart" --nodes 3,1
refuses 'free are: 2 on node 0, 2 on node 1; they fit with --nodes 4,1, where the controller is on the first node' 5 "$uneven" "$apart" --nodes 3,2
refuses 'they fit with --nodes 1,3,1, where' 5 "$uneven" "$apart" --nodes 2,2,1
two='resource_pools={actor: [2], rollout: [2]}' alone='mapping={Actor: actor, Rollout: rollout}' plain=(rl_config.adv_estimator=group_norm)
keys=("${keys[@]/use_kl_in_reward=true/use_kl_in_reward=false}")

rm -rf "$folder/run"
refuses 'generate_config.infer_tensor_parallel_size (override): layout .*: 2 ranks are not divisible by tp' 7 'resource_pools={actor: [2], rollout: [2], critic: [2]}' 'mapping={Actor: actor, Rollout: rollout, Critic: critic, RefPolicy: actor}' generate_config.infer_tensor_parallel_size=4

# A byte less than a rank of a pool needs is refused before the run starts, by role, pool, rank and numbers: of the pool that needs the most.
# tight POOL WHO KEYS
tight() {
  local pool=$1 who=$2 bytes
  shift 2
  plan "${whole[@]}" generate_config.gpu_memory_utilization=1 "$@" >"$folder/plan"
  bytes=$(of_pool "$pool" bytes)
  [ "$bytes" = "$(value plan peak_bytes | head -1)" ] || fail "the pool of $who does not need the most: $bytes"
  rm -rf "$folder/run"
  refuses "leaves $((bytes - 1)) bytes, and $who needs $bytes: " 8 "${whole[@]}" generate_config.gpu_memory_utilization=1 "$@" generate_config.device_memory=$((bytes - 1))
  [ ! -e "$folder/run" ] || [ -z "$(ls "$folder/run")" ] || fail "a run that does not fit has begun: $(ls "$folder/run")"
  status=0
  plan "${whole[@]}" generate_config.gpu_memory_utilization=1 "$@" generate_config.device_memory=$((bytes - 1)) >"$folder/plan" 2>"$folder/err" || status=$?
  [ $status = 1 ] && [ "$(of_pool "$pool" fits)" = false ] && grep -q "$who needs $bytes: " "$folder/err" || fail "the plan of $who fits: $status"
}
keys=("${keys[@]/use_kl_in_reward=false/use_kl_in_reward=true}")
tight critic "rank 3 of Critic (pool 'critic')"
tight ref "rank 5 of RefPolicy (pool 'ref')" ref_config.micro_batch_size=128
keys=("${keys[@]/micro_batch_size=4/micro_batch_size=8}")
tight actor "rank 6 of Actor (pool 'actor')" critic_config.micro_batch_size=1 critic_config.tensor_model_parallel_size=2
keys=("${keys[@]/micro_batch_size=8/micro_batch_size=4}")
keys=("${keys[@]/kv_memory=64KiB/kv_memory=64MiB}")
tight rollout "rank 1 of Rollout (pool 'rollout')"
keys=("${keys[@]/kv_memory=64MiB/kv_memory=64KiB}")
keys=("${keys[@]/use_kl_in_reward=true/use_kl_in_reward=false}")
rm -rf "$folder/run"
run idle 5 "$pools" 'mapping={ActorRollout: policy, Critic: critic}' "${plain[@]}"
grep -q "warning: Critic (pool 'critic') has nothing to do in this run: its ranks are idle" "$folder/idle.err" || { cat "$folder/idle.err"; fail "no word of idle ranks"; }
rm -r "$folder/run"
keys=("${keys[@]/kv_memory=64KiB/kv_memory=1KiB}")
refuses "rank 3 of Rollout (pool 'rollout') has room for 0: give it more memory (generate_config.kv_memory" 5 "$two" "$alone" "${plain[@]}"
