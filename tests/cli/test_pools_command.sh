#!/usr/bin/env bash
# treadle pools: the example of S4, 32 + 16 + 8 slots on seven nodes of eight, its exact JSON and the text of docs/cli.md; nodes given and not given;
# pools that do not fit; bytes, which are those of treadle train --plan, role by role. And treadle train, which runs one pool with the results of a run
# without pools, and refuses another number of ranks.
# ctest: timeout=300
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }
s4=$TREADLE_SOURCE/examples/pools-s4.yaml
pools() { "$TREADLE" pools "$@" >"$folder/out" 2>"$folder/err" || { cat "$folder/err"; fail "pools $*: failed"; }; }
# refused WORDS COMMAND...
refused() {
  local words=$1 status=0
  shift
  "$TREADLE" "$@" >"$folder/out" 2>"$folder/err" || status=$?
  [ $status = 2 ] || { cat "$folder/err"; fail "$*: status $status"; }
  [ ! -s "$folder/out" ] || fail "$*: prints something"
  grep -qF -- "$words" "$folder/err" || { cat "$folder/err"; fail "$*: not '$words'"; }
}
row() { sed -n "s/^ *$1  *//p" "$folder/out" | head -1; }

# ---- S4 ----
list() { seq -s ', ' "$1" "$2"; }
nothing() { printf '"roles": ["%s"], "bytes": null, "role_bytes": {"%s": null}, "room_bytes": null, "fits": null' "$1" "$1"; }
wanted() {
  local rank node role
  printf '{\n  "slots": 56,\n  "controller": 0,\n  "train": null,\n  "pools": [\n'
  printf '    {"name": "actor_rollout", "ranks": [%s], "nodes": [0, 1, 2, 3], %s},\n' "$(list 1 32)" "$(nothing ActorRollout)"
  printf '    {"name": "critic", "ranks": [%s], "nodes": [4, 5], %s},\n' "$(list 33 48)" "$(nothing Critic)"
  printf '    {"name": "reward", "ranks": [%s], "nodes": [6], %s}],\n' "$(list 49 56)" "$(nothing RewardModel)"
  printf '  "ranks": ['
  for ((rank = 1; rank <= 56; rank++)); do
    node=$(((rank - 1) / 8))
    role=ActorRollout
    ((node < 4)) || role=Critic
    ((node < 6)) || role=RewardModel
    [ $rank = 1 ] || printf ','
    printf '\n    {"rank": %d, "node": %d, "local_rank": %d, "local_world": 8, "roles": ["%s"]}' $rank $node $(((rank - 1) % 8)) $role
  done
  printf ']\n}\n'
}
wanted >"$folder/wanted"
for nodes in 8,8,8,8,8,8,8 7; do
  pools "$s4" --nodes $nodes --json
  diff "$folder/wanted" "$folder/out" || fail "--nodes $nodes: another JSON"
done

# The document shows what is printed.
(cd "$TREADLE_SOURCE" && "$TREADLE" pools examples/pools-s4.yaml --nodes 8,8,8,8,8,8,8) >"$folder/out"
sed -n '/^    \$ treadle pools .*8,8,8,8,8,8,8$/,/^[^ ]/p' "$TREADLE_SOURCE/docs/cli.md" | sed '1d;$d' | sed 's/^    //' | sed '$d' >"$folder/shown"
diff "$folder/shown" "$folder/out" || fail "docs/cli.md shows another text"
refused "treadle pools: pool 'reward': Total available slots 48 is less than total desired slots 56" pools "$s4" --nodes 8,8,8,8,8,8
grep -qF "    $(cat "$folder/err")" "$TREADLE_SOURCE/docs/cli.md" || fail "docs/cli.md shows another message"

# The first pool that does not fit is named: the critic, where it comes last.
cat >"$folder/last.yaml" <<END
resource_pools: {actor_rollout: [8, 8, 8, 8], reward: [8], critic: [8, 8]}
mapping: {ActorRollout: actor_rollout, RewardModel: reward, Critic: critic}
END
refused "pools: pool 'critic': Total available slots 48 is less than total desired slots 56" pools "$folder/last.yaml" --nodes 8,8,8,8,8,8 --json
refused "pool 'critic': no node has room for entry 1, 8 slots that must all be on one node (STRICT_PACK); free are: 4 on node 6, 4 on node 7" \
  pools "$folder/last.yaml" --nodes 8,8,8,8,8,8,4,4
pools "$folder/last.yaml" --nodes 7 --json
[ "$(grep -o '"name": "[a-z_]*"' "$folder/out" | tr -d '\n')" = '"name": "actor_rollout""name": "reward""name": "critic"' ] || fail "not the order of the file"

# ---- Nodes ----
pools "$s4"
grep -q '^56 slots on 1 node, as --nodes does not say on which; the controller is rank 0, and works alone$' "$folder/out" || fail "without --nodes: $(head -1 "$folder/out")"
[ "$(row 'node 0')" = "$(printf 'a%.0s' $(seq 32); printf 'b%.0s' $(seq 16); printf 'c%.0s' $(seq 8))" ] || fail "no picture of one node"
pools "$s4" --nodes 60,
grep -q '^4 more slots are left over$' "$folder/out" || fail "nothing is said of slots that are left over"
# An entry goes to the first node with room; ranks of a pool stand in the order of its entries; slots without a pool have no rank.
pools "$s4" "resource_pools={actor_rollout: [3], critic: [4, 1], reward: [2]}" --nodes 4,5,3 --json
grep -qF '{"name": "actor_rollout", "ranks": [1, 2, 3], "nodes": [0],' "$folder/out" || { cat "$folder/out"; fail "another actor"; }
grep -qF '{"name": "critic", "ranks": [5, 6, 7, 8, 4], "nodes": [0, 1],' "$folder/out" || { cat "$folder/out"; fail "another critic"; }
grep -qF '{"name": "reward", "ranks": [9, 10], "nodes": [2],' "$folder/out" || { cat "$folder/out"; fail "another reward"; }
grep -qF '{"rank": 10, "node": 2, "local_rank": 1, "local_world": 2, "roles": ["RewardModel"]}' "$folder/out" || fail "another node of rank 10"
refused "--nodes is 6, which does not divide the 56 slots that the pools ask for: give the slots of each node" pools "$s4" --nodes 6
for bad in x 0 8,0 -3 8,,8 99999999999; do
  refused "--nodes is '$bad', and must be the number of nodes, or the slots of each" pools "$s4" --nodes $bad
done
refused "needs CONFIG.yaml" pools
refused "role ActorRollout has no pool" pools "$s4" mapping.ActorRollout=null
pools "$s4" resource_pools=null mapping=null
grep -q '^the configuration says nothing of pools: all slots are one$' "$folder/out" || { cat "$folder/out"; fail "null does not take pools away"; }
refused "mapping.Reward" pools "$s4" mapping.RewardModel=other

# ---- Bytes ----
demo=$TREADLE_SOURCE/examples/grpo-demo.yaml
cd "$TREADLE_SOURCE"
peak() { "$TREADLE" train "$@" --plan --ranks 8 --json | sed -n 's/^  "peak_bytes": \([0-9]*\).*/\1/p'; }
bytes() { sed -n "s/.*\"name\": \"$1\".*\"bytes\": \([0-9a-z]*\).*/\1/p" "$folder/out"; }
two=("resource_pools={policy: [4, 4], judge: [2]}" "mapping={ActorRollout: policy, RewardModel: judge}")
pools "$demo" "${two[@]}" --nodes 10, --json
[ "$(bytes policy)" = "$(peak "$demo")" ] || fail "$(bytes policy) bytes of the policy, not $(peak "$demo")"
[ "$(bytes judge)" = null ] || fail "bytes of a reward model"
pools "$demo" "resource_pools={policy: [8]}" "mapping={ActorRollout: policy, Critic: policy}" --json
[ "$(bytes policy)" = null ] || fail "bytes of a pool with a role that has no model"
pools "$demo" --nodes 4,4
grep -q '^the configuration says nothing of pools: all slots are one$' "$folder/out" || fail "nothing is said of a configuration without pools"
grep -q '^8 slots on 2 nodes; the controller is rank 0, and also works$' "$folder/out" || fail "another controller of one pool"
pools examples/ppo-demo.yaml
[ "$(row 'a')" = "all   ActorRollout, Critic  0      0      -" ] || fail "the one pool of a run with a critic: $(row 'a')"
kl=rl_config.use_kl_loss=true
# The reference apart: the policy is alone, and the reference has the layout of the policy or its own, on its own ranks. It has no gradients.
apart=("resource_pools={policy: [8], ref: [4]}" "mapping={ActorRollout: policy, RefPolicy: ref}")
pools "$demo" $kl "${apart[@]}" --json
[ "$(bytes policy)" = "$(peak "$demo")" ] || fail "$(bytes policy) bytes of a policy whose reference is apart, not $(peak "$demo")"
quarter=$(bytes ref)
pools "$demo" $kl "${apart[@]}" ref_config.tensor_model_parallel_size=1 --json
((quarter > 0 && $(bytes ref) > quarter && $(bytes ref) < $(bytes policy))) || fail "$(bytes ref) bytes of a whole reference, $quarter of a quarter"
pools "$demo" "${apart[@]}" --json
[ "$(bytes ref)" = null ] || fail "bytes of a reference without a KL"
refused "pool 'ref' has 1 slot, which ref_config.tensor_model_parallel_size (as actor_config), 2, times ref_config.pipeline_model_parallel_size (as actor_config), 2, does not divide; give it a multiple of 4 slots" pools "$demo" $kl "${apart[@]}" resource_pools.ref=[1]
# A critic apart is none of the policy's bytes.
critics=("resource_pools={policy: [4], critic: [2]}" "mapping={ActorRollout: policy, Critic: critic}")
pools examples/ppo-demo.yaml "${critics[@]}" --json
alone=$(bytes policy)
pools examples/ppo-demo.yaml "${critics[@]}" rl_config.adv_estimator=reinforce_plus_plus --json
[ -n "$alone" ] && [ "$alone" = "$(bytes policy)" ] || fail "$alone bytes of a policy whose critic is apart, not $(bytes policy)"
# Each role by itself, and those that share ranks: never less than the largest, nor more than all. A reward model without files can be planned.
role() { sed -n "s/.*\"name\": \"$1\".*\"$2\": \([0-9a-z]*\).*/\1/p" "$folder/out"; }
config=examples/sequence/policy/config.json
all=(examples/ppo-demo.yaml reward_config.model=$config rl_config.use_kl_in_reward=true)
apart=("resource_pools={actor: [2], rollout: [2], critic: [2], others: [2]}" "mapping={Actor: actor, Rollout: rollout, Critic: critic, RefPolicy: others, RewardModel: others}")
pools "${all[@]}" "${apart[@]}" --json
for pair in actor:Actor rollout:Rollout critic:Critic; do
  [ "$(role ${pair%:*} ${pair#*:})" = "$(bytes ${pair%:*})" ] || fail "${pair#*:} alone is another than its pool"
done
critic=$(bytes critic) others=$(bytes others)
((others >= $(role others RefPolicy) && others >= $(role others RewardModel) && others < $(role others RefPolicy) + $(role others RewardModel))) || { cat "$folder/out"; fail "bytes of two roles"; }
pools "${all[@]}" "resource_pools={policy: [2]}" "mapping={ActorRollout: policy, Critic: policy, RefPolicy: policy, RewardModel: policy}" --json
[ "$(role policy Critic)" = "$critic" ] || fail "a critic beside the policy is another"
(($(bytes policy) > $(role policy ActorRollout) && $(role policy RefPolicy) > 0 && $(role policy RefPolicy) < others)) || { cat "$folder/out"; fail "bytes of all roles together"; }
pools "${all[@]}" "${apart[@]}" generate_config.device_memory=$((critic - 1)) generate_config.gpu_memory_utilization=1 --json
[ "$(role critic fits) $(role others fits) $(role critic room_bytes)" = "false true $((critic - 1))" ] || { cat "$folder/out"; fail "what fits"; }
pools "${all[@]}" "${apart[@]}" generate_config.device_memory=$((critic - 1)) generate_config.gpu_memory_utilization=1
grep -q '^c  critic .* MiB; more than [0-9.]* MiB$' "$folder/out" || { cat "$folder/out"; fail "the table does not say what does not fit"; }
# The plan of a run says the same of each pool, for the processes that it has.
pools "${all[@]}" "${apart[@]}" --json
cp "$folder/out" "$folder/pools"
"$TREADLE" train "${all[@]}" "${apart[@]}" --plan --json >"$folder/plan"
for name in actor rollout critic others; do
  of() { grep -o "\"name\": \"$name\".*\"fits\": true" "$folder/$1" | sed 's/"nodes": [^]]*\], //'; }
  [ -n "$(of pools)" ] && [ "$(of pools)" = "$(of plan)" ] || { of pools; of plan; fail "the plan says something else of $name"; }
done
[ "$(grep -o '"rank": [0-9]*' "$folder/plan" | tr -dc '0-9\n' | tr '\n' ' ')" = "1 2 3 4 5 6 7 8 " ] || fail "the plan has other ranks"
"$TREADLE" train "${all[@]}" "${apart[@]}" --plan --ranks 9 --json | cmp - "$folder/plan" || fail "another plan with --ranks"
"$TREADLE" train "${all[@]}" "${apart[@]}" --plan >"$folder/out"
grep -q "^pool 'others': [0-9.]* MiB of a rank: RefPolicy [0-9.]* MiB, RewardModel [0-9.]* MiB$" "$folder/out" || { cat "$folder/out"; fail "the plan has no line of a pool"; }
# Where sampling cuts, ids are kept: their bytes do not ask for a layout on one rank.
"$TREADLE" train "$demo" --plan --ranks 8 generate_config.sampling_config.top_k=5 --json >"$folder/out" 2>"$folder/err" || { cat "$folder/err"; fail "no plan of a run that cuts"; }
grep -q '"kept_bytes": [1-9]' "$folder/out" || fail "no bytes of kept ids"
together=("resource_pools={policy: [8]}" "mapping={ActorRollout: policy, RefPolicy: policy}")
pools "$demo" $kl "${together[@]}" --json
[ "$(bytes policy)" = "$(peak "$demo" $kl "${together[@]}")" ] || fail "other bytes of a policy with its reference"
refused "does not divide; start a multiple of 4 ranks" pools "$demo" "resource_pools={policy: [6]}" "mapping={ActorRollout: policy}"

# ---- Other forms ----
pools "$demo" trainer.n_gpus_per_node=4 trainer.nnodes=2 --nodes 4,4
[ "$(row 'a')" = "global_pool  ActorRollout  0-7    0-1    25.88 MiB" ] || fail "verl's form: $(row 'a')"
pools "$demo" cluster.component_placement.actor=4-7 cluster.component_placement.rollout=0-3 --nodes 8, 2>&1
[ "$(row 'a')" = "actor    Actor    5-8    0      22.31 MiB" ] || fail "RLinf's form: $(row 'a')"
refused "slot 7 is out of range: there are 4, 0 to 3" pools "$demo" cluster.component_placement.actor=4-7 cluster.component_placement.rollout=0-3 --nodes 4,

# ---- treadle train ----
# What it needs has a place for the controller, too; the figures are those with which test_rl_apart runs it.
ppo=("$TREADLE_SOURCE/examples/ppo-demo.yaml" 'mapping={ActorRollout: policy, Critic: critic}' actor_config.tensor_model_parallel_size=1
  "actor_config.model=$TREADLE_SOURCE/examples/sequence/policy" "critic_config.model=$TREADLE_SOURCE/examples/sequence/policy"
  "megatron_training.tokenizer_name_or_path=$TREADLE_SOURCE/examples/sequence")
# needs WORDS JSON ARGUMENTS
needs() {
  local words=$1 json=$2
  shift 2
  pools "${ppo[@]}" "$@"
  grep -qxF "treadle train: $words" "$folder/out" || { cat "$folder/out"; fail "$*: not '$words'"; }
  pools "${ppo[@]}" "$@" --json
  tr -d '\n ' <"$folder/out" | grep -qF "\"train\":$json," || { cat "$folder/out"; fail "$*: not $json"; }
}
needs '5 processes, --nodes 4,1; the controller is one more on the first node' '{"processes":5,"nodes":[4,1]}' 'resource_pools={policy: [3], critic: [1]}' --nodes 3,1
needs '5 processes, --nodes 4,1; the controller is one more on the first node' '{"processes":5,"nodes":[4,1]}' 'resource_pools={policy: [3], critic: [1]}' --nodes 3,8
needs '5 processes; the controller is one more on the first node' '{"processes":5,"nodes":[5]}' 'resource_pools={policy: [3], critic: [1]}'
needs '2 processes' '{"processes":2,"nodes":[2]}' 'resource_pools={all: [2]}' 'mapping={ActorRollout: all, Critic: all}'
needs "refuses them: pool 'policy' is on several nodes, and in this version a role is on one" null 'resource_pools={policy: [2, 2], critic: [1]}' --nodes 2,3
refused "asks for 10 slots, and the controller is a process of its own: plan with --ranks 11, or leave it out" train "$demo" "${two[@]}" --plan --ranks 8
refused "pool 'policy' has 8 slots, and the run has 4 ranks: start 8" train "$demo" "resource_pools={policy: [8]}" "mapping={ActorRollout: policy}" --plan --ranks 4
"$TREADLE" data sequence --out "$folder/data" --seed 1 >/dev/null
small=("megatron_training.data_path=$folder/data/train.jsonl" megatron_training.val_path=null megatron_training.test_interval=0 megatron_training.train_iters=2
  megatron_training.global_batch_size=2 actor_config.pipeline_model_parallel_size=1 actor_config.micro_batch_size=4)
# train NAME RANKS KEYS...
train() {
  local name=$1 ranks=$2
  shift 2
  "$MPIEXEC" -n "$ranks" "$TREADLE" train "$demo" "${small[@]}" actor_config.save="$folder/$name" "$@" --threads 1 --json >"$folder/$name.json" 2>"$folder/$name.err" ||
    { cat "$folder/$name.err"; fail "$name: failed"; }
}
digests() { grep -o '"[a-z]*_digest": "[0-9a-f]*"' "$folder/$1.json" | tr '\n' ' '; }
one=("mapping={ActorRollout: all, RewardModel: all}")
train plain 2
train pool 2 "resource_pools={all: [2]}" "${one[@]}"
train entries 2 "resource_pools={all: [1, 1]}" "${one[@]}"
train verl 2 trainer.n_gpus_per_node=8
[ -n "$(digests plain)" ] || fail "no digests: $(cat "$folder/plain.json")"
for name in pool entries verl; do
  [ "$(digests plain)" = "$(digests $name)" ] || fail "$name: other bits: $(digests plain), $(digests $name)"
done
grep -q 'trainer.n_gpus_per_node (override) asks for 8 slots, and the run has 2 ranks' "$folder/verl.err" || fail "nothing is said of another number of ranks: $(cat "$folder/verl.err")"
! grep -q 'slots' "$folder/pool.err" || fail "a run with one pool says something: $(cat "$folder/pool.err")"
status=0
"$MPIEXEC" -n 2 "$TREADLE" train "$demo" "${small[@]}" actor_config.save="$folder/none" "resource_pools={all: [3]}" "${one[@]}" >/dev/null 2>"$folder/err" || status=$?
[ $status = 2 ] && grep -q "pool 'all' has 3 slots, and the run has 2 ranks: start 3" "$folder/err" || { cat "$folder/err"; fail "a pool of 3 on 2 ranks: status $status"; }
[ ! -e "$folder/none" ] || fail "a run that is refused has made its folder"
