#!/usr/bin/env bash
# R3: the generator records which experts each token chose, R2 (at the end) the trainer. In exact mode the check finds that training chooses the same ones. Where the generator
# computes in another type, the trainer goes by the record, says how many tokens would have gone elsewhere, and a mini batch of the dump has the
# run's loss, with that record and not without it.
# ctest: stage=gcc label=mpi timeout=180
set -euo pipefail
source "$TREADLE_SOURCE/tests/cli/listed.sh"
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }
cd "$TREADLE_SOURCE"
"$TREADLE" data sequence --out "$folder/data" --noise 0.3 --seed 1 >/dev/null
train() {
  local name=$1
  shift
  "$MPIEXEC" -n 4 "$TREADLE" train examples/grpo-moe.yaml megatron_training.data_path="$folder/data/train.jsonl" \
    megatron_training.val_path=null megatron_training.test_interval=0 megatron_training.train_iters=2 megatron_training.global_batch_size=16 \
    megatron_training.save_interval=-1 actor_config.save="$folder/$name" \
    rl_config.dump_rollouts="$folder/$name.dump" rl_config.val_before_train=false "$@" >"$folder/$name.out" 2>&1 || { cat "$folder/$name.out"; fail "$name"; }
}
# value NAME KEY: of the first step.
value() { sed -n "1s~.*\"$2\":[ ]*\([^,}]*\).*~\1~p" "$folder/$1/metrics.jsonl"; }
replay=actor_config.router_replay.mode=R3

same=generate_config.infer_expert_parallel_size=4
train plain $same
train exact $same $replay
[ -z "$(value plain actor/router_differing)" ] || fail "experts are compared, and none are recorded"
[ "$(value exact actor/router_differing)" = 0 ] || fail "in exact mode $(value exact actor/router_differing) tokens differ"
listed "$folder/exact/metrics.jsonl" actor/aux_loss actor/expert_load/max_over_mean
[ "$(value exact actor/loss)" = "$(value plain actor/loss)" ] || fail "to record experts changes the loss"
for split in rl_config.mini_batch_size=4 rl_config.exact_check=1; do
  train split $same $replay $split
  [ "$(value split actor/router_differing)" = 0 ] || fail "with $split $(value split actor/router_differing) tokens differ"
  rm -r "$folder/split" "$folder/split.dump"
done

other=(generate_config.infer_tensor_parallel_size=null generate_config.infer_expert_parallel_size=null
  generate_config.layout=vllm:tp=2,dp=2,ep=on,dtype=fp32 actor_config.exact=false)
train without "${other[@]}"
train with "${other[@]}" $replay
[ "$(value with actor/router_differing)" -gt 0 ] || fail "no token differs: the test shows nothing"
[ "$(value with actor/loss)" != "$(value without actor/loss)" ] || fail "the record changes nothing"
figure() { sed -n "s/.*\"$1\": \([^,]*\).*/\1/p"; }
again() { "$TREADLE" grad examples/sequence/moe --loss grpo --config "$folder/with/config.yaml" --file "$1" --json; }
[ "$(again "$folder/with.dump/1.jsonl" | figure loss)" = "$(value with actor/loss)" ] || fail "the dump has another loss than the run"
grep -q '"experts": \[\[\[' "$folder/with.dump/1.jsonl" || fail "the dump has no experts"
sed 's/, "experts": \[.*\]\]\]//' "$folder/with.dump/1.jsonl" >"$folder/cut.jsonl"
if again "$folder/cut.jsonl" >"$folder/none" 2>"$folder/err"; then fail "a dump without experts is taken"; fi
grep -q 'line 1: it has no experts' "$folder/err" || { cat "$folder/err"; fail "why?"; }

status=0
"$TREADLE" train examples/grpo-demo.yaml --plan $replay --ranks 8 >"$folder/out" 2>"$folder/err" || status=$?
[ $status = 2 ] && grep -q 'router_replay.mode.* is R3: the model of .* has no experts to record' "$folder/err" || { cat "$folder/err"; fail "a dense model"; }
# R2: of the pass of old log-probabilities, whose choice the first update makes by itself; later ones go by it.
second=actor_config.router_replay.mode=R2
train r2 "${other[@]}" $second
[ "$(value r2 actor/loss)" = "$(value without actor/loss)" ] || fail "the same choice gives another loss"
grep -q '"experts": \[\[\[' "$folder/r2.dump/1.jsonl" || fail "the trainer's experts are not in the dump"
cmp -s <(grep -o '"experts": .*' "$folder/r2.dump/1.jsonl") <(grep -o '"experts": .*' "$folder/with.dump/1.jsonl") && fail "they are the generator's"
many=(rl_config.mini_batch_size=2 actor_config.lr=0.05)
train many "${other[@]}" "${many[@]}" $second
train alone "${other[@]}" "${many[@]}"
[ "$(value many actor/loss)" != "$(value alone actor/loss)" ] || fail "later updates choose by themselves"
status=0
"$TREADLE" train --plan examples/grpo-moe.yaml $second --ranks 8 >"$folder/out" 2>"$folder/err" || status=$?
[ $status = 2 ] && grep -q "router_replay.mode (override) is R2, and actor_config.exact (default) is true" "$folder/err" || { cat "$folder/err"; fail "R2 with exact"; }
