#!/usr/bin/env bash
# treadle train on two hosts, which are network namespaces with a cable between them: controller and policy on one, the critic on the other. Weights and
# losses are those of a run of two ranks that do everything. A rank on the other host that dies is named, and so is the other host's rank when the cable is pulled.
# ctest: timeout=300
set -euo pipefail
source "${TREADLE_SOURCE:-$(dirname "$0")/../..}/tests/cli/hosts.sh"
fail() {
  echo "$1"
  head -50 "$folder"/out.* "$folder"/err.*
  exit 1
}

"$TREADLE" data sequence --out "$folder/data" --seed 1 --noise 0.3 >/dev/null
keys=("megatron_training.data_path=$folder/data/train.jsonl" "megatron_training.val_path=$folder/data/test.jsonl" "actor_config.save=$folder/run"
  megatron_training.test_interval=2 megatron_training.global_batch_size=8 megatron_training.save_interval=1
  rl_config.mini_batch_size=4 rl_config.val_n=1 rl_config.critic_warmup=1 actor_config.micro_batch_size=4
  generate_config.sampling_config.max_tokens=12 generate_config.kv_memory=64KiB rl_config.use_kl_in_reward=true rl_config.init_kl_coef=0.1)
pools=('resource_pools={policy: [2], critic: [2]}' 'mapping={ActorRollout: policy, RefPolicy: policy, Critic: critic}')

# begin JOB HOSTS ADDRESS KEYS...: a rank on each host of the list; its files are out.RANK and err.RANK
begin() {
  local job=$1 at=$3 rank
  local -a hosts
  read -ra hosts <<<"$2"
  shift 3
  rm -rf "$folder/run"
  pids=()
  for ((rank = 0; rank < ${#hosts[@]}; rank++)); do
    (hosts_run "${hosts[rank]}" "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" "$@" --threads 1 --json \
      --meet "$at" --job "$job" --rank $rank --ranks ${#hosts[@]}) >"$folder/out.$rank" 2>"$folder/err.$rank" &
    pids+=($!)
  done
}
ends() { # STATUS RANK...
  local wanted=$1 rank status
  shift
  for rank in "$@"; do
    status=0
    wait "${pids[rank]}" || status=$?
    [ $status = "$wanted" ] || fail "rank $rank ended with $status, not $wanted"
  done
}
digests() { grep -o '"[a-z]*_digest": "[0-9a-f]*"' "$folder/out.0" | tr '\n' ' '; }

hosts_make || fail "no hosts"
begin together '0 0' 10.77.0.1:7000 megatron_training.train_iters=4
ends 0 0 1
together=$(digests)
[ -n "$together" ] || fail "no digests"
begin apart '0 0 0 1 1' 10.77.0.1:7000 "${pools[@]}" megatron_training.train_iters=4
ends 0 0 1 2 3 4
[ "$(digests)" = "$together" ] || fail "other bits: $(digests), not $together"

# long: a run that goes on until somebody ends it, and has its first checkpoint
long() {
  begin "$1" '0 0 0 1 1' 10.77.0.1:7000 "${pools[@]}" megatron_training.train_iters=100000 rl_config.timeout=8
  until [ -e "$folder/run/latest_checkpointed_iteration.txt" ]; do
    kill -0 "${pids[0]}" 2>/dev/null || fail "the run has ended"
    sleep 0.05
  done
}
says() { grep -Eq -- "$2" "$folder/err.$1" || fail "rank $1 does not say '$2'"; }
long dies
kill -KILL "${pids[4]}"
ends 137 4
ends 1 0 1 2 3
for rank in 0 1 2 3; do says $rank "rank 4 \(Critic, pool 'critic', node 1\) is lost in [a-z_]+: "; done

long cut
hosts_cut
ends 1 0 1 2 3 4
for rank in 0 1 2; do says $rank "rank [34] \(Critic, pool 'critic', node 1\) is lost in [a-z_]+: it was silent for 4 seconds"; done
for rank in 3 4; do says $rank "rank 0 \(controller, node 0\) is lost in [a-z_]+: it was silent for 4 seconds"; done
pids=()
echo good
