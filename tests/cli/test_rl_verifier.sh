#!/usr/bin/env bash
# A reward command that hangs, and what ends the run then: Ctrl-C once, in a step and in a test, twice, SIGKILL. Nothing that the command has started
# is left, and what was before the step is kept.
# ctest: timeout=120
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }
"$TREADLE" data sequence --out "$folder/data" --seed 1 >/dev/null
cat >"$folder/grpo.yaml" <<END
megatron_training:
  tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence
  data_path: $folder/data/train.jsonl
  train_iters: 3
  global_batch_size: 4
actor_config:
  model: $TREADLE_SOURCE/examples/sequence/policy
  save: $folder/run
  micro_batch_size: 4
  lr: 1.0e-3
generate_config:
  sampling_config: {max_tokens: 12}
rl_config:
  n_samples_per_prompt: 4
  max_prompt_length: 10
  verifier_function: [command]
  verifier_timeout: 600
  verifier_parallel: 2
  verifier_command: sh $folder/verifier
END
# Scores all but what begins with $hangs: then it hangs, with a child, and both are in $folder/pids.
cat >"$folder/verifier" <<'END'
while read -r line; do
  id=${line#*: ?}
  id=${id%%\"*}
  case $id in
  "$hangs"*)
    echo $$ >>"$folder/pids"
    sleep 1000 &
    echo $! >>"$folder/pids"
    wait
    ;;
  esac
  echo "{\"id\": \"$id\", \"score\": 0.5}"
done
END
# begin WHERE KEYS...: a run that hangs at samples whose ids begin with WHERE
begin() {
  hangs=$1
  shift
  rm -rf "$folder/run" "$folder/pids"
  folder=$folder hangs=$hangs "$TREADLE" train "$folder/grpo.yaml" --threads 1 "$@" >"$folder/out" 2>"$folder/err" &
  process=$!
  for ((i = 0; i < 3000; i++)); do
    [ -f "$folder/pids" ] && [ "$(wc -l <"$folder/pids")" = 4 ] && return
    kill -0 $process 2>/dev/null || { cat "$folder/err"; fail "$hangs: the run ended"; }
    sleep 0.01
  done
  fail "$hangs: the command does not hang"
}
# end SIGNAL STATUS: the run ends by this signal, with this status, soon
end() {
  local status=0 from=${EPOCHREALTIME/./} took
  kill -"$1" $process
  wait $process 2>/dev/null || status=$?
  took=$(((${EPOCHREALTIME/./} - from) / 1000))
  [ $status = "$2" ] || { cat "$folder/err"; fail "$hangs, $1: status $status"; }
  [ $took -lt 5000 ] || fail "$hangs, $1: it took $took ms"
  left
}
# Processes that have ended may be zombies for a while.
left() {
  while read -r pid; do
    for ((i = 0; i < 300; i++)); do
      grep -q '^State:.*[^Z] (' "/proc/$pid/status" 2>/dev/null || continue 2
      sleep 0.01
    done
    ps -o pid,ppid,args "$pid"
    fail "$hangs: a process of the command is left"
  done <"$folder/pids"
}
saved() { [ "$(cat "$folder/run/latest_checkpointed_iteration.txt")" = "$1" ] || fail "$hangs: the last checkpoint is not $1"; }
# goes_on STEPS: it goes on from the checkpoint, and has the losses of a run that nobody stopped
goes_on() {
  folder=$folder hangs=none "$TREADLE" train "$folder/grpo.yaml" --threads 1 --resume --json >"$folder/resumed" 2>"$folder/err" || { cat "$folder/err"; fail "$hangs: it does not go on"; }
  grep -q "\"steps\": $1," "$folder/resumed" || { cat "$folder/resumed"; fail "$hangs: not $1 steps"; }
  grep -q "\"losses_digest\": \"$losses\"" "$folder/resumed" || { cat "$folder/resumed"; fail "$hangs: other losses"; }
}
folder=$folder hangs=none "$TREADLE" train "$folder/grpo.yaml" --threads 1 --json >"$folder/whole" 2>"$folder/err" || { cat "$folder/err"; fail "the whole run"; }
losses=$(sed -n 's/.*"losses_digest": "\([0-9a-f]*\)".*/\1/p' "$folder/whole")

# In a step: it is not taken, what was before it is saved.
begin 2-
end INT 130
grep -q '^stopped: 1 step,' "$folder/out" || { cat "$folder/out"; fail "no word of stopping"; }
saved 1
goes_on 2
# In the first step, nothing is there to be saved.
begin 1-
end TERM 130
grep -q '^stopped before a step was taken: the run is at step 0' "$folder/out" || { cat "$folder/out"; fail "no word of stopping in step 1"; }
[ ! -e "$folder/run/latest_checkpointed_iteration.txt" ] || fail "a checkpoint of no step"
# While groups that score alike are drawn anew.
begin 1-3 rl_config.filter_groups_enable=true rl_config.filter_groups_max_batches=10
end INT 130
# In a test, before the first step and behind one.
begin test-0- "megatron_training.val_path=$folder/data/test.jsonl"
end INT 130
begin test-2- "megatron_training.val_path=$folder/data/test.jsonl" rl_config.val_before_train=false megatron_training.test_interval=2
end INT 130
saved 2
grep -q '"step":2,' "$folder/run/metrics.jsonl" || { cat "$folder/run/metrics.jsonl"; fail "the step before the test is not in metrics.jsonl"; }
# Twice, and by a signal that nobody can wait for: the checkpoint before is as it was.
begin 2- megatron_training.save_interval=1
kill -INT $process
sleep 0.2
end INT 130
saved 1
begin 3- megatron_training.save_interval=1
end KILL 137
saved 2
goes_on 1
