#!/usr/bin/env bash
# treadle train with a reward model whose scores are known by hand (examples/make_reward_model.py): the same rollouts, losses and weights on one, two
# and four ranks, in layouts of the policy's and of the reward model's own, beside a critic and without one; with a verifier, and a weight; in tests and
# where groups that score alike are drawn anew; a run that stopped and goes on; what it holds, and when; refusals.
# ctest: label=mpi timeout=600
set -euo pipefail
source "$TREADLE_SOURCE/tests/cli/ranks.sh"
source "$TREADLE_SOURCE/tests/cli/listed.sh"
cd "$TREADLE_SOURCE"

# The score of an answer is that of its last token: an eighth of its number.
pairs=()
for id in $(seq 0 15); do pairs+=("$id=$(awk "BEGIN {print $id / 8}")"); done
python3 examples/make_reward_model.py examples/sequence/policy "$folder/model" "${pairs[@]}"
"$TREADLE" data sequence --out "$folder/data" --seed 1 --noise 0.3 >/dev/null
head -6 "$folder/data/test.jsonl" >"$folder/data/few.jsonl"
keys=("megatron_training.data_path=$folder/data/train.jsonl" "megatron_training.val_path=$folder/data/few.jsonl" "actor_config.save=$folder/run"
  megatron_training.test_interval=3 rl_config.val_n=1 megatron_training.train_iters=3 megatron_training.global_batch_size=8 megatron_training.save_interval=1
  megatron_training.max_ckpt_to_keep=0 rl_config.mini_batch_size=4 actor_config.micro_batch_size=4
  generate_config.sampling_config.max_tokens=11 generate_config.kv_memory=64KiB "rl_config.dump_rollouts=$folder/dump")
model=("reward_config.model=$folder/model")
grpo=(rl_config.adv_estimator=reinforce_plus_plus rl_config.verifier_function=null)
one=(actor_config.tensor_model_parallel_size=1)

# run NAME RANKS KEYS: its figures are NAME, its samples NAME.dump, its digests NAME.digests
run() {
  local name=$1 ranks=$2
  shift 2
  rm -rf "$folder/run" "$folder/dump"
  "${launch[@]}" -n "$ranks" "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" "${model[@]}" "$@" --threads 1 --json >"$folder/$name" 2>"$folder/$name.err" ||
    { cat "$folder/$name.err"; fail "$name: failed"; }
  mv "$folder/dump" "$folder/$name.dump"
  sed -n 's/.*"\(actor\|critic\)\/huggingface": "\(.*\)".*/\1 \2/p' "$folder/run/global_step_3/digests.json" >"$folder/$name.weights"
  [ "$(value "$name" logprob_differing)" = 0 ] || fail "$name: log-probabilities differ"
  [ "$(value "$name" peak_bytes)" = "$(value "$name" peak_predicted_bytes)" ] || fail "$name: the peak is not what was foreseen"
}
same() {
  for key in weights_digest losses_digest; do
    [ "$(value "$1" $key)" = "$(value "$2" $key)" ] || fail "$2 has another $key than $1"
  done
  for part in dump weights; do
    diff -r "$folder/$1.$part" "$folder/$2.$part" >/dev/null || { diff -r "$folder/$1.$part" "$folder/$2.$part" | head -5; fail "$2 has another $part than $1"; }
  done
}
# scores NAME WEIGHT LENGTH: each sample's score is WEIGHT times that of its last token, and LENGTH times its tokens over 11
scores() {
  cat "$folder/$1.dump"/*.jsonl | python3 -c '
import json, sys
weight, length, seen = float(sys.argv[1]), float(sys.argv[2]), set()
for line in sys.stdin:
    row = json.loads(line)
    expected = weight * (row["prompt_ids"] + row["ids"])[-1] / 8 + length * len(row["ids"]) / 11
    assert abs(row["score"] - expected) < 1e-5, (row["uid"], row["score"], expected)
    seen.add(round(row["score"], 3))
assert len(seen) > 2, seen' "$2" "$3" || fail "$1: scores are not those of the last tokens"
}
run one 1 "${one[@]}" "${grpo[@]}"
scores one 1 0
listed "$folder/run/metrics.jsonl" critic/rm_score/mean
[ ! -e "$folder/run/global_step_3/reward" ] && [ "$(wc -l <"$folder/one.weights")" = 1 ] || fail "the checkpoint has more than the policy"
run two 2 "${grpo[@]}"
same one two
run two_model 2 "${one[@]}" "${grpo[@]}" reward_config.tensor_model_parallel_size=2 reward_config.micro_batch_size=3
same one two_model
run four 4 actor_config.pipeline_model_parallel_size=2 "${grpo[@]}" reward_config.strategy=fsdp2 reward_config.max_tokens_per_micro=64
same one four
run stays 1 "${one[@]}" "${grpo[@]}" reward_config.offload_param=false
same one stays
run weighs 1 "${one[@]}" rl_config.adv_estimator=group_norm reward_config.weight=-0.5 "rl_config.verifier_function=[length:target=11]" "rl_config.verifier_weight=[3]"
scores weighs -0.5 3

# With a critic, in other layouts of both.
run ppo 1 "${one[@]}" rl_config.verifier_function=null
[ "$(wc -l <"$folder/ppo.weights")" = 2 ] || fail "the checkpoint has no digests of both models"
scores ppo 1 0
run ppo_two 2 critic_config.tensor_model_parallel_size=2 reward_config.tensor_model_parallel_size=1 rl_config.verifier_function=null
same ppo ppo_two

# With the controller apart: in a pool of its own, and beside the critic. Rows go from pool to pool, and none to the controller.
stays() { [ "$(grep -o '"control/row_bytes_by_controller":[^,}]*' "$folder/run/metrics.jsonl" | sort -u)" = '"control/row_bytes_by_controller":0' ] || fail "$1: the controller had rows"; }
run pools 5 'resource_pools={reward: [1], policy: [2], critic: [1]}' 'mapping={ActorRollout: policy, Critic: critic, RewardModel: reward}' \
  rl_config.verifier_function=null reward_config.tensor_model_parallel_size=1
same ppo pools
stays pools
grep -q '"control/row_bytes_by_workers":[1-9]' "$folder/run/metrics.jsonl" || fail "no rows went from pool to pool"
run beside 5 'resource_pools={policy: [2], others: [2]}' 'mapping={ActorRollout: policy, Critic: others, RewardModel: others}' rl_config.verifier_function=null
same ppo beside
stays beside
run grpo_pools 4 'resource_pools={policy: [2], reward: [1]}' 'mapping={ActorRollout: policy, RewardModel: reward}' "${grpo[@]}" reward_config.tensor_model_parallel_size=1
same one grpo_pools
run beside_actor 4 'resource_pools={actor: [2], rollout: [1]}' 'mapping={Actor: actor, Rollout: rollout, RewardModel: actor, Critic: actor}' rl_config.verifier_function=null
same ppo beside_actor
run portions 4 'resource_pools={policy: [2], reward: [1]}' 'mapping={ActorRollout: policy, RewardModel: reward}' "${grpo[@]}" reward_config.tensor_model_parallel_size=1 rl_config.actor_rollout_dispatch_size=4
same one portions
run unused 1 "${one[@]}" "${grpo[@]}" rl_config.actor_rollout_dispatch_size=4
grep -q 'rl_config.actor_rollout_dispatch_size.* is not used: no other pool works on samples' "$folder/unused.err" || { cat "$folder/unused.err"; fail "a key that does nothing is not said"; }

# Tests are scored alike, and groups that are drawn anew.
run filter 2 rl_config.adv_estimator=group_norm rl_config.verifier_function=null rl_config.filter_groups_enable=true \
  rl_config.filter_groups_max_batches=0
scores filter 1 0
awk -v mean="$(value filter val_last)" 'BEGIN {exit !(mean > 0.12)}' || fail "tests are not scored by the reward model: $(value filter val_last)"

# A run goes on, in another layout.
run stopped 1 "${one[@]}" "${grpo[@]}"
rm -r "$folder/run/global_step_3" "$folder/run/global_step_2"
"${launch[@]}" -n 2 "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" "${model[@]}" "${grpo[@]}" --threads 1 --resume --json >"$folder/resumed" 2>"$folder/err" ||
  { cat "$folder/err"; fail "no resuming"; }
[ "$(value resumed steps)" = 2 ] || fail "resuming took $(value resumed steps) steps"
for key in weights_digest losses_digest; do [ "$(value resumed $key)" = "$(value one $key)" ] || fail "resumed, $key is another"; done

# Outside its call the device has nothing of the reward model, and in it neither gradients nor optimizer state: in the stages that runs without one have,
# too, each class has at most what it has there.
points() { tr -d '\n ' <"$folder/run/memory.json" | grep -o '"stage":"[^"]*","bytes":\[[0-9,]*' | sed 's/"stage":"\([^"]*\)","bytes":\[/\1,/'; }
most() { points | awk -F, '{for (i = 2; i <= NF; i++) if ($i + 0 > most[$1, i]) most[$1, i] = $i; stages[$1]} END {for (s in stages) for (i = 2; i <= NF; i++) print s, i, most[s, i] + 0}' |
  grep "^generate\|^oldlog-probabilities\|^update " | sort; }
model=()
run alone 1 "${one[@]}" rl_config.adv_estimator=reinforce_plus_plus
model=("reward_config.model=$folder/model")
most >"$folder/alone.most"
run one 1 "${one[@]}" "${grpo[@]}"
most >"$folder/one.most"
[ "$(wc -l <"$folder/one.most")" = 21 ] || fail "memory.json lacks stages"
paste -d' ' "$folder/alone.most" "$folder/one.most" | awk '$1 != $4 || $2 != $5 || $6 > $3 {print; more = 1} END {exit more}' || fail "other stages have something of the reward model on the device"
params=$(awk '$1 == "oldlog-probabilities" && $2 == 2 {print $3}' "$folder/one.most")
points | grep '^rewardmodel,' >"$folder/points" || fail "memory.json has no stage of the reward model"
awk -F, -v params="$params" '$2 > params {above = 1} END {exit !above}' "$folder/points" || fail "in its call the device has no parameters of the reward model"
"$TREADLE" train --plan examples/ppo-demo.yaml "${keys[@]}" "${model[@]}" "${one[@]}" "${grpo[@]}" --ranks 1 --threads 1 --json >"$folder/plan"
[ "$(value plan peak_bytes | head -1)" = "$(value one peak_bytes)" ] || fail "the plan does not have the reward model"

# Refused, each with a sentence.
rm -r "$folder/run"
refuses() {
  local words=$1
  shift
  "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" "${one[@]}" "${grpo[@]}" --threads 1 "$@" >"$folder/out" 2>"$folder/err" && fail "not refused: $words"
  grep -q -- "$words" "$folder/err" || { cat "$folder/err"; fail "no '$words'"; }
}
change() { # NAME EDIT: a reward model with another config.json
  rm -rf "$folder/$1"
  cp -r "$folder/model" "$folder/$1"
  sed -i "$2" "$folder/$1/config.json"
}
refuses 'reward_config.model (override): .*score.weight' "reward_config.model=$PWD/examples/sequence/policy"
"${launch[@]}" -n 4 "$TREADLE" train examples/ppo-demo.yaml "${keys[@]}" "${model[@]}" rl_config.verifier_function=null rl_config.filter_groups_enable=true --threads 1 \
  'resource_pools={policy: [2], reward: [1]}' 'mapping={ActorRollout: policy, RewardModel: reward}' rl_config.adv_estimator=group_norm reward_config.tensor_model_parallel_size=1 >"$folder/out" 2>"$folder/err" && fail "filtered groups with a reward model apart"
grep -q "map RewardModel to the policy's pool" "$folder/err" || { cat "$folder/err"; fail "no word on filtered groups"; }
change labels 's/"num_labels": 1/"num_labels": 2/'
refuses 'reward_config.model (override): .*num_labels is 2: a score head has one label' reward_config.model="$folder/labels"
change short 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 20/'
refuses 'prompts of 10 and responses of 11 tokens are 21 together, and the reward model takes 20' reward_config.model="$folder/short"
refuses 'is a config.json, without weights' reward_config.model="$folder/model/config.json"
mkdir "$folder/small"
cp examples/sequence/policy/config.json "$folder/small"
sed -i 's/"vocab_size": [0-9]*/"vocab_size": 8/' "$folder/small/config.json"
python3 - "$folder/model/model.safetensors" "$folder/small/model.safetensors" <<'P'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
(count,) = struct.unpack("<Q", data[:8])
header, body, out, at, parts = json.loads(data[8:8 + count]), data[8 + count:], {}, 0, []
for name, entry in header.items():
    begin, end = entry["data_offsets"]
    if name == "model.embed_tokens.weight":
        entry["shape"][0], end = 8, begin + (end - begin) // 2
    out[name] = {**entry, "data_offsets": [at, at + end - begin]}
    at += end - begin
    parts.append(body[begin:end])
text = json.dumps(out).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + b"".join(parts))
P
refuses 'its vocabulary has 8 ids, and that of the policy 16' reward_config.model="$folder/small"
refuses 'no such file\|there is no\|cannot' reward_config.model="$folder/nowhere"
refuses 'verifier_function' reward_config.model=null
echo "one, two and four ranks: weights $(value one weights_digest), losses $(value one losses_digest)"
