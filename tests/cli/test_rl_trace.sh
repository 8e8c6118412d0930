#!/usr/bin/env bash
# Who worked when: trace.jsonl of two ranks that do everything, of a run that goes on, and of roles on pools of their own on two nodes;
# control/idle_s is what calls leave of a step; bytes before and after each call.
# ctest: label=mpi timeout=300
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }
command -v python3 >/dev/null || { echo "no python3: not tested"; exit 0; }
launch=("$MPIEXEC")
case $("$MPIEXEC" --version 2>/dev/null) in *'Open MPI'* | *OpenRTE*) launch+=(--oversubscribe) ;; esac
cd "$TREADLE_SOURCE"
"$TREADLE" data sequence --out "$folder/data" --seed 1 --noise 0.3 >/dev/null
keys=("megatron_training.data_path=$folder/data/train.jsonl" megatron_training.val_path=null "actor_config.save=$folder/run"
  megatron_training.test_interval=0 megatron_training.train_iters=3 megatron_training.global_batch_size=8 megatron_training.save_interval=1
  megatron_training.max_ckpt_to_keep=0 rl_config.mini_batch_size=4 rl_config.val_n=1 actor_config.micro_batch_size=4
  generate_config.sampling_config.max_tokens=12 generate_config.kv_memory=64KiB rl_config.use_kl_in_reward=true rl_config.init_kl_coef=0.1)
train() {
  local ranks=$1
  shift
  "${launch[@]}" -n "$ranks" "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" "$@" --threads 1 --json >"$folder/out" 2>"$folder/err" || { cat "$folder/err"; fail "no run"; }
}

# check KIND: the lines are whole, of ranks that never do two things at once, in steps that rise.
cat >"$folder/check.py" <<'END'
import collections, json, sys
kind, run, figures = sys.argv[1:4]
lines = [json.loads(line) for line in open(run + "/trace.jsonl")]
keys = {"rank", "role", "method", "step", "start", "end", "bytes_before", "bytes_after"}
assert lines and all(set(l) == keys for l in lines), lines[0]
assert [l["step"] for l in lines] == sorted(l["step"] for l in lines)
assert {l["step"] for l in lines} == {1, 2, 3}
by_rank = collections.defaultdict(list)
for l in lines:
    assert 0 <= l["start"] <= l["end"] < 1000, l
    by_rank[l["rank"]].append(l)
for rank in by_rank.values():
    assert all(a["end"] <= b["start"] for a, b in zip(rank, rank[1:])), rank
policy, critic = ({1, 2}, {3, 4}) if kind == "apart" else ({0, 1}, {0, 1})
assert set(by_rank) == policy | critic, set(by_rank)
wanted = {"generate_sequences": 1, "compute_log_prob": 1, "compute_ref_log_prob": 1, "update": 2, "compute_values": 1, "update_critic": 2}
role_of = {"compute_ref_log_prob": "RefPolicy", "compute_values": "Critic", "update_critic": "Critic", "rest_critic": "Critic", "save_critic": "Critic"}
for step in 1, 2, 3:
    for method, count in wanted.items():
        # The policy learns from step 2 on: the critic warms up.
        if method == "update" and step < 2: count = 0
        for rank in critic if role_of.get(method) == "Critic" else policy:
            found = [l for l in by_rank[rank] if l["step"] == step and l["method"] == method]
            assert len(found) == count, (rank, step, method, len(found))
assert all(l["role"] == role_of.get(l["method"], "ActorRollout") for l in lines)

# Clocks that are off would be by hours: the critic's node begins and ends when the other one does.
if kind == "apart":
    of = lambda ranks: [l for rank in ranks for l in by_rank[rank]]
    for rank in critic:
        assert 0 < by_rank[rank][0]["start"] < max(l["end"] for l in of(policy)) + 5
        assert by_rank[rank][-1]["end"] > min(l["start"] for l in of(policy)) - 5

# The bytes: the most are the peak, and each call begins with what the one before has left.
if kind != "apart":
    assert max(l["bytes_after"] for l in lines) == json.load(open(figures))["peak_bytes"]
    for rank in by_rank.values():
        assert all(a["bytes_after"] == b["bytes_before"] or kind == "resumed" and a["step"] < b["step"] == 3 for a, b in zip(rank, rank[1:])), rank
    values = next(l for l in lines if l["method"] == "compute_values")
    rest = next(l for l in lines if l["method"] == "rest_critic")
    assert values["bytes_before"] == rest["bytes_after"] < values["bytes_after"] == rest["bytes_before"]

# Idle is what is left of a step.
for metrics in map(json.loads, open(run + "/metrics.jsonl")):
    work = [l["end"] - l["start"] for l in lines if l["step"] == metrics["step"] and not l["method"].startswith(("save", "weights_digest"))]
    idle = metrics["timing_s/step"] - sum(work) / len(by_rank)
    assert metrics["control/idle_s"] >= 0 and abs(metrics["control/idle_s"] - idle) < 1e-4, (metrics["step"], metrics["control/idle_s"], idle)
END
check() {
  local roles ranks
  python3 "$folder/check.py" "$1" "$folder/run" "$folder/out" || fail "the trace of $1 is wrong"
  "$TREADLE" report "$folder/run" --trace "$folder/trace.json" >/dev/null || fail "no report of $1"
  [ "$(grep -c '"ph": "X"' "$folder/trace.json")" = "$(wc -l <"$folder/run/trace.jsonl")" ] || fail "$1: not each line is an event"
  roles=$(grep -c '<div class="role">' "$folder/run/report.html") ranks=$(grep -c '<div class="track"><span>rank' "$folder/run/report.html")
  [ "$roles $ranks" = "3 6" ] || fail "$1: $roles roles with $ranks tracks"
}

train 2
check together

# The run goes on after step 2: lines up to there stay, and later ones are of later times.
cp "$folder/run/trace.jsonl" "$folder/before"
rm -r "$folder/run/global_step_3"
train 2 --resume
check resumed
kept=$(grep -c '"step":[12],' "$folder/run/trace.jsonl")
[ "$kept" -gt 20 ] || fail "$kept lines of steps 1 and 2"
head -"$((kept - 2))" "$folder/before" | cmp - <(head -"$((kept - 2))" "$folder/run/trace.jsonl") || fail "lines before the checkpoint are others"

# Roles on pools, on two nodes: the controller, which does none of it, has no lines.
rm -r "$folder/run"
train 5 --nodes 3,2 'resource_pools={policy: [2], critic: [2]}' 'mapping={ActorRollout: policy, RefPolicy: policy, Critic: critic}'
check apart
[ "$(grep -c '"method":"save_critic"' "$folder/run/trace.jsonl")" = 6 ] || fail "not each save of the critic has a line"

# A reference and a reward model have nothing on the device outside their calls, and their weights where these stay.
python3 examples/make_reward_model.py examples/sequence/policy "$folder/model" 1=1.0
cat >"$folder/rest.py" <<'END'
import json, sys
run, stays = sys.argv[1], sys.argv[2] == "stay"
for role in "RefPolicy", "RewardModel":
    lines = [l for l in map(json.loads, open(run + "/trace.jsonl")) if l["role"] == role]
    assert {l["method"] for l in lines} == {"compute_ref_log_prob" if role == "RefPolicy" else "compute_rm_score"}
    assert len(lines) == 3 and {l["step"] for l in lines} == {1, 2, 3}, lines
    assert all((l[key] > 0) == stays for l in lines for key in ("bytes_before", "bytes_after")), lines
peaks = [json.loads(line)["memory/params_peak"] for line in open(run + "/metrics.jsonl")]
assert min(peaks) > 0, peaks
END
for weights in leave stay; do
  offload=$([ $weights = leave ] && echo true || echo false)
  rm -rf "$folder/run"
  train 5 'resource_pools={ref: [1], policy: [2], reward: [1]}' 'mapping={ActorRollout: policy, RefPolicy: ref, RewardModel: reward}' \
    rl_config.adv_estimator=group_norm "reward_config.model=$folder/model" reward_config.tensor_model_parallel_size=1 reward_config.offload_param="$offload" \
    ref_config.tensor_model_parallel_size=1 ref_config.offload_param="$offload"
  python3 "$folder/rest.py" "$folder/run" $weights || fail "bytes outside of calls where weights $weights"
done
