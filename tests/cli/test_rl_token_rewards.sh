#!/usr/bin/env bash
# treadle train with a reward command that gets ids and answers scores, one a token: returns are sums of them, on one and two ranks, with filtered groups,
# and beside another reward; all at the last token is the same as one score. What is not one number for each token is refused.
# ctest: label=mpi timeout=300
set -euo pipefail
source "$TREADLE_SOURCE/tests/cli/ranks.sh"
cd "$TREADLE_SOURCE"
"$TREADLE" data sequence --out "$folder/data" --seed 1 --noise 0.3 >/dev/null
cat >"$folder/verifier.py" <<'E2'
import json, sys
kind = sys.argv[1]
for line in sys.stdin:
    sample = json.loads(line)
    ids = sample["ids"]
    answer = {"id": sample["id"]}
    each = [i / 8 for i in ids]
    if kind == "each":
        answer["scores"] = each
    elif kind == "last":
        answer["scores"] = [0] * (len(ids) - 1) + [sum(each)]
    elif kind == "one":
        answer["score"] = sum(each)
    elif kind == "fewer":
        answer["scores"] = each[1:]
    elif kind == "both":
        answer |= {"scores": each, "score": 1}
    elif kind == "text":
        answer["scores"] = ["x"] * len(ids)
    print(json.dumps(answer), flush=True)
E2
keys=("megatron_training.data_path=$folder/data/train.jsonl" "megatron_training.val_path=null" "actor_config.save=$folder/run"
  megatron_training.test_interval=0 megatron_training.train_iters=2 megatron_training.global_batch_size=8 rl_config.mini_batch_size=4
  actor_config.micro_batch_size=4 generate_config.sampling_config.max_tokens=11 "rl_config.dump_rollouts=$folder/dump" rl_config.gamma=0.5)

# run NAME RANKS KIND KEYS
run() {
  local name=$1 ranks=$2 kind=$3
  shift 3
  rm -rf "$folder/run" "$folder/dump"
  "${launch[@]}" -n "$ranks" "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" "actor_config.tensor_model_parallel_size=$ranks" \
    "rl_config.verifier_command=python3 $folder/verifier.py $kind" "$@" --threads 1 --json >"$folder/$name" 2>"$folder/$name.err" ||
    { cat "$folder/$name.err"; fail "$name: failed"; }
  mv "$folder/dump" "$folder/$name.dump"
  cp "$folder/run/metrics.jsonl" "$folder/$name.metrics"
}
same() {
  for key in weights_digest losses_digest; do
    [ "$(value "$1" $key)" = "$(value "$2" $key)" ] || fail "$2 has another $key than $1"
  done
  diff -r "$folder/$1.dump" "$folder/$2.dump" >/dev/null || fail "$2 has other samples than $1"
}
# returns NAME WEIGHT LENGTH: those with gamma 0.5 where each token gets WEIGHT * id / 8, and the last one LENGTH * tokens / 11. With lam 1 those of
# gae are the same sums: values cancel.
returns() {
  python3 - "$folder/$1" "$2" "$3" <<'E2' || fail "$1: returns are not those of the tokens' rewards"
import json, sys
name, weight, length = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
steps = [json.loads(line) for line in open(name + ".metrics")]
for number in (1, 2):
    found = []
    for line in open(f"{name}.dump/{number}.jsonl"):
        row = json.loads(line)
        rewards = [weight * i / 8 for i in row["ids"]]
        extra = length * len(rewards) / 11
        assert abs(row["score"] - sum(rewards) - extra) < 1e-9, row["uid"]
        rewards[-1] += extra
        running = 0
        for reward in reversed(rewards):
            running = reward + 0.5 * running
            found.append(running)
    step = next(s for s in steps if s.get("step") == number)
    for key, value in (("max", max(found)), ("min", min(found)), ("mean", sum(found) / len(found))):
        assert abs(step["critic/returns/" + key] - value) < 1e-9, (number, key, step["critic/returns/" + key], value)
E2
}
alone=(rl_config.adv_estimator=reinforce_plus_plus "rl_config.verifier_function=[command]")
run each 1 each "${alone[@]}"
returns each 1 0
run each_two 2 each "${alone[@]}"
same each each_two
run beside 1 each rl_config.adv_estimator=reinforce_plus_plus "rl_config.verifier_function=[length:target=11,command]" "rl_config.verifier_weight=[3,-0.5]"
returns beside -0.5 3
run filter 1 each "${alone[@]}" rl_config.filter_groups_enable=true rl_config.filter_groups_max_batches=0
returns filter 1 0
grep -q '"training/groups_left_out":[1-9]' "$folder/filter.metrics" || fail "no group was left out"
run last 1 last "${alone[@]}"
run one 1 one "${alone[@]}"
same last one
run gae 1 each rl_config.adv_estimator=gae "rl_config.verifier_function=[command]"
returns gae 1 0
[ "$(value gae losses_digest)" != "$(value each losses_digest)" ] || fail "gae is reinforce_plus_plus"

refuses() {
  rm -rf "$folder/run" "$folder/dump"
  "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" "${alone[@]}" actor_config.tensor_model_parallel_size=1 \
    "rl_config.verifier_command=python3 $folder/verifier.py $1" --threads 1 >"$folder/out" 2>"$folder/err" && fail "not refused: $1"
  grep -q -- "$2" "$folder/err" || { cat "$folder/err"; fail "no '$2'"; }
}
refuses fewer 'its scores are not a list with one for each of its ids'
refuses both 'it has both a score and scores'
refuses text 'its score is not a finite number'
