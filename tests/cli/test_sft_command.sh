#!/usr/bin/env bash
# treadle sft: the same losses and weights, to the bit, on one rank and in layouts of several, stopped and killed at any moment and resumed, in
# another layout, too; what a run's folder has in it; and refusals that name key, line and numbers.
#   TREADLE_KILLS=N   how often a run is killed (10, and fewer with TREADLE_PERCENT)
# ctest: label=mpi timeout=600
set -euo pipefail
source "$TREADLE_SOURCE/tests/cli/listed.sh"
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
trap 'cat "$folder/err" 2>/dev/null' ERR
fail() { echo "$1"; [ ! -s "$folder/err" ] || cat "$folder/err"; exit 1; }
value() { sed -n "s/.*\"$2\": \"\{0,1\}\([^\",]*\).*/\1/p" "$folder/$1"; }
launch=("$MPIEXEC")
case $("$MPIEXEC" --version 2>/dev/null) in *'Open MPI'* | *OpenRTE*) launch+=(--oversubscribe) ;; esac

"$TREADLE" data sequence --out "$folder/data" --json >"$folder/out"
[ "$(value out sft)" = 40000 ] || fail "no 40000 rows"
head -40 "$folder/data/sft.jsonl" >"$folder/rows.jsonl"
head -6 "$folder/data/sft.jsonl" >"$folder/val.jsonl"
cat >"$folder/config.yaml" <<EOF
megatron_training:
  tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence
  data_path: $folder/rows.jsonl
  val_path: $folder/val.jsonl
  train_iters: 8
  global_batch_size: 8
  save_interval: 2
  test_interval: 4
actor_config:
  model: $TREADLE_SOURCE/examples/sequence/config.json
  save: $folder/run
  micro_batch_size: 2
  lr: 1.0e-3
EOF
tp=actor_config.tensor_model_parallel_size pp=actor_config.pipeline_model_parallel_size
layers=actor_config.num_layers_per_virtual_pipeline_stage

# train NAME RANKS ARGUMENTS...: figures into NAME, the run into run-NAME.
train() {
  local name=$1 ranks=$2 command=("$TREADLE")
  shift 2
  [ "$ranks" = 1 ] || command=("${launch[@]}" -n "$ranks" "$TREADLE")
  "${command[@]}" sft "$folder/config.yaml" "actor_config.save=$folder/run-$name" "$@" --json >"$folder/$name" 2>"$folder/err"
}
# same NAME OTHER: the same losses and weights.
same() {
  for key in losses_digest weights_digest; do
    [ -n "$(value "$1" $key)" ] && [ "$(value "$1" $key)" = "$(value "$2" $key)" ] || fail "$1 and $2: other $key"
  done
}

# ---- One rank, and many ----
train one 1
train four 4 $tp=2 $pp=2 megatron_training.sequence_parallel=true
train deep 4 $pp=4 megatron_training.recompute_granularity=full
train wide 4 $tp=4
train chunks 2 $pp=2 $layers=1
for name in four deep wide chunks; do same one $name; done
train fp32 1 megatron_training.bf16=false
train fp32four 4 megatron_training.bf16=false $tp=2 $pp=2
same fp32 fp32four
[ "$(value one losses_digest)" != "$(value fp32 losses_digest)" ] || fail "bf16 changes no bit: the digest shows nothing"
train replicas 4 $tp=2
train divided 4 $tp=2 megatron_training.use_distributed_optimizer=true
same replicas divided
train tokens 1 actor_config.micro_batch_size=null actor_config.max_tokens_per_micro=64
for name in one four deep wide chunks fp32 replicas divided; do
  [ "$(value $name peak_bytes)" = "$(value $name peak_predicted_bytes)" ] || fail "$name: memory is not what was predicted"
done
train shards 4 actor_config.strategy=fsdp2 megatron_training.bf16=false
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(d < 1e-4 && d > -1e-4) }'; }
near "$(value shards loss_last)" "$(value fp32 loss_last)" || fail "fsdp2: another loss"

# ---- The folder of a run ----
run=$folder/run-one
for file in config.yaml metrics.jsonl latest_checkpointed_iteration.txt global_step_8/data.json global_step_8/rng.json \
  global_step_8/actor/huggingface/{config.json,model.safetensors,tokenizer_config.json} \
  global_step_8/actor/optimizer/{master,exp_avg,exp_avg_sq}/model.safetensors; do
  [ -s "$run/$file" ] || fail "the run has no $file"
done
ls "$run"/events.out.tfevents.* >/dev/null
[ "$(cat "$run/latest_checkpointed_iteration.txt")" = 8 ] || fail "the latest checkpoint is not of step 8"
[ "$(wc -l <"$run/metrics.jsonl")" = 8 ] || fail "not one line of metrics for each step"
listed "$run/metrics.jsonl" train/loss train/grad_norm train/lr train/skipped val/loss perf/total_num_tokens perf/throughput \
  perf/max_memory_allocated_gb timing_s/step
"$TREADLE" sft "$run"/config.yaml "actor_config.save=$folder/run-again" --json >"$folder/again"
same one again
"$TREADLE" generate --model "$run/global_step_8/actor/huggingface" --prompt 1,2:9,2 --chat --max-new-tokens 3 >/dev/null
train kept 1 megatron_training.max_ckpt_to_keep=2
[ "$(cd "$folder/run-kept" && echo global_step_*)" = "global_step_6 global_step_8" ] || fail "other checkpoints are kept"

# ---- Going on ----
train half 1 megatron_training.train_iters=4 actor_config.lr_decay_style=constant
train constant 1 actor_config.lr_decay_style=constant
cp -r "$folder/run-half" "$folder/run-tp" && cp -r "$folder/run-half" "$folder/run-pp" && cp -r "$folder/run-half" "$folder/run-fsdp"
if train half 1 actor_config.lr_decay_style=constant; then fail "a run with checkpoints is not refused"; fi
grep -q 'has checkpoints, the newest of step 4: say --resume' "$folder/err" || fail "no word of --resume"
train half 1 actor_config.lr_decay_style=constant --resume
train tp 4 actor_config.lr_decay_style=constant $tp=4 --resume "$folder/run-tp/global_step_4"
train pp 4 actor_config.lr_decay_style=constant $pp=4 --resume auto
for name in half tp pp; do same constant $name; done
train fsdp 4 actor_config.lr_decay_style=constant actor_config.strategy=fsdp2 --resume
near "$(value fsdp loss_last)" "$(value constant loss_last)" || fail "resumed as fsdp2: another loss"
train never 1 --resume auto # there is nothing yet
same one never

# ---- Stopped and killed ----
long=(megatron_training.train_iters=60 megatron_training.save_interval=5 megatron_training.test_interval=0)
train whole 1 "${long[@]}"
status=0
"$TREADLE" sft "$folder/config.yaml" "actor_config.save=$folder/run-stopped" "${long[@]}" >"$folder/lines" 2>"$folder/err" &
process=$!
until grep -q '^step 3' "$folder/lines"; do kill -0 $process; done
kill -INT $process
wait $process || status=$?
[ $status = 130 ] || fail "a run that was stopped ends with $status"
[ -e "$folder/run-stopped/latest_checkpointed_iteration.txt" ] || fail "a run that was stopped has saved nothing"
train stopped 1 "${long[@]}" --resume
same whole stopped
for ((i = 0; i < ${TREADLE_KILLS:-$((4 + 6 * ${TREADLE_PERCENT:-100} / 100))}; i++)); do
  "$TREADLE" sft "$folder/config.yaml" "actor_config.save=$folder/run-killed" "${long[@]}" --resume >"$folder/lines" 2>"$folder/err" &
  process=$!
  sleep "0.0$((RANDOM % 90 + 10))"
  sleep "0.$((RANDOM % 3))"
  kill -KILL $process 2>/dev/null || true
  wait $process 2>/dev/null || true
done
train killed 1 "${long[@]}" --resume
same whole killed

# ---- Refused ----
# refused WORDS RANKS ARGUMENTS...: exit status 2, a message with these words, and no checkpoint.
refused() {
  local words=$1 ranks=$2 status=0
  shift 2
  train none "$ranks" "$@" || status=$?
  [ $status = 2 ] || fail "status $status for: $*"
  grep -q -- "$words" "$folder/err" || fail "no '$words' for: $*"
  [ ! -e "$folder/run-none/latest_checkpointed_iteration.txt" ] || fail "a checkpoint is left for: $*"
}
refused 'actor_config.lrr.*lr' 1 actor_config.lrr=1
refused 'global_batch_size' 1 megatron_training.global_batch_size=0
refused 'tensor' 2 $tp=3
refused 'seq_length.*3000 tokens.*2048' 1 megatron_training.seq_length=3000
refused 'line 1: has 2[0-9] tokens; a row may have 12' 1 megatron_training.seq_length=12
refused 'none.jsonl' 1 "megatron_training.data_path=$folder/none.jsonl"
refused 'data_path (override): .* is a folder' 1 "megatron_training.data_path=$folder"
refused 'ranks 2 is of --plan: say mpirun -n 2' 1 --ranks 2
echo '{"prompt": "1,2:9,1"}' >"$folder/bad.jsonl"
refused 'line 1: has a prompt and no response' 1 "megatron_training.data_path=$folder/bad.jsonl"
echo '{"prompt": ' >"$folder/bad.jsonl"
refused 'line 1' 1 "megatron_training.data_path=$folder/bad.jsonl"
: >"$folder/bad.jsonl"
refused 'has no rows' 1 "megatron_training.data_path=$folder/bad.jsonl"
refused 'not a folder of a checkpoint' 1 --resume="$folder/data"
cp -r "$folder/run-one" "$folder/run-broken"
rm "$folder/run-broken/global_step_8/actor/optimizer/exp_avg/model.safetensors"
echo 8 >"$folder/run-broken/latest_checkpointed_iteration.txt"
if "$TREADLE" sft "$folder/config.yaml" "actor_config.save=$folder/run-broken" --resume "$folder/run-broken/global_step_8" 2>"$folder/err"; then
  fail "a checkpoint without a part is not refused"
fi
grep -q 'exp_avg' "$folder/err" || fail "the part that is missing is not named"
# broken WORDS COMMAND...: a copy of a run in whose newest checkpoint the command does something; its going on is refused.
broken() {
  local words=$1 at=$folder/run-broken/global_step_8
  shift
  rm -rf "$folder/run-broken" && cp -r "$folder/run-one" "$folder/run-broken"
  (cd "$at" && "$@")
  (cd "$folder/run-broken" && find . -type f -exec sha256sum {} + | LC_ALL=C sort) >"$folder/before"
  if "$TREADLE" sft "$folder/config.yaml" "actor_config.save=$folder/run-broken" megatron_training.train_iters=9 --resume "$at" 2>"$folder/err"; then
    fail "not refused: $*"
  fi
  grep -q -- "$words" "$folder/err" || fail "no '$words' for: $*"
  (cd "$folder/run-broken" && find . -type f -exec sha256sum {} + | LC_ALL=C sort) | cmp - "$folder/before" || fail "something was changed by: $*"
}
broken 'exp_avg_sq.*model.safetensors' truncate -s 5000 actor/optimizer/exp_avg_sq/model.safetensors
broken 'model.norm.weight' sed -i 's/"model.norm.weight"/"model.morn.weight"/' actor/optimizer/master/model.safetensors
broken 'model.norm.weight' sed -i 's/"model.norm.weight"/"model.morn.weight"/' actor/huggingface/model.safetensors
broken 'data.json' rm data.json
broken 'data.json' sh -c 'echo "{\"step\": 8" >data.json'
broken "data.json is damaged" sed -i 's/"step": 8/"step": 7/' data.json
broken "'step' is 7" sh -c 'rm digests.json; sed -i "s/\"step\": 8/\"step\": 7/" data.json'

# Weights of another shape: those of a model with another vocabulary.
cp -r "$TREADLE_SOURCE/examples/sequence" "$folder/small"
sed -i 's/"vocab_size": [0-9]*/"vocab_size": 8/' "$folder/small/config.json"
refused 'ids, the model of .* a vocabulary of 8' 1 "actor_config.model=$folder/small/config.json"
refused 'the budget of 262144 bytes is [0-9]* too small: rank 0 needs [0-9]*, which are .* of work; .* bytes still' 1 --budget 256KiB
refused 'the budget of 23068672 bytes is [0-9]* too small.* would fit: [0-9]* bytes' 1 actor_config.micro_batch_size=8 --budget 22MiB
remedy=$(sed -n 's/.*of work[^;]*; \(.*\) would fit: \([0-9]*\) bytes/\2 \1/p' "$folder/err")
status=0
"$TREADLE" sft "$folder/config.yaml" --plan --ranks 2 --budget 256KiB >"$folder/out" 2>"$folder/err" || status=$?
[ $status = 1 ] || fail "a plan that does not fit ends with $status"
grep -q 'ranks 0 to 1 .*peak' "$folder/out" || fail "a plan that does not fit is not shown"
train fits 1 ${remedy#* } --budget "${remedy%% *}" 2>/dev/null || fail "what would fit does not: $remedy"
"$TREADLE" sft --help-config >"$folder/out"
grep -q 'num_layers_per_virtual_pipeline_stage' "$folder/out" || fail "--help-config lacks a key"
"$TREADLE" sft --plan "$folder/config.yaml" --ranks 4 $tp=2 --json >"$folder/out"
[ "$(grep -c '"rank":' "$folder/out")" = 4 ] || fail "--plan has not four ranks"
