#!/usr/bin/env bash
# A run whose terminal goes away (SIGHUP) ends after the step at hand, with a checkpoint, but for nohup; one whose reader goes away (a pipe that is closed) goes
# on to its end; under mpirun it says how it is stopped.
# ctest: label=mpi
source "$TREADLE_SOURCE/tests/found/found.bash"
set -m # or some signals would be ignored in what runs in the background
sequence=$TREADLE_SOURCE/examples/sequence
"$TREADLE" data sequence --out "$folder/data" --seed 1 >"$folder/out"
saves=$folder/run
sft=("$TREADLE" sft "$TREADLE_SOURCE/examples/sft-policy.yaml" "megatron_training.tokenizer_name_or_path=$sequence" "actor_config.model=$sequence/config.json"
  "megatron_training.data_path=$folder/data/sft.jsonl" "actor_config.save=$saves" actor_config.micro_batch_size=1 megatron_training.global_batch_size=1)
train=("$TREADLE" train "$TREADLE_SOURCE/examples/grpo-demo.yaml" "megatron_training.tokenizer_name_or_path=$sequence" "actor_config.model=$sequence/policy"
  "megatron_training.data_path=$folder/data/train.jsonl" megatron_training.val_path= megatron_training.test_interval=0 "actor_config.save=$saves"
  megatron_training.global_batch_size=4 rl_config.n_samples_per_prompt=4)
one=(actor_config.tensor_model_parallel_size=1 actor_config.pipeline_model_parallel_size=1)

begun() { # of the process: a first step is there
  until [ -s "$saves/metrics.jsonl" ]; do
    kill -0 "$1" 2>/dev/null || { cat "$folder/err"; fail "it is over before its first step"; }
    sleep 0.05
  done
}
ended() { # PROCESS STATUS
  local status=0
  wait "$1" || status=$?
  [ $status = "$2" ] || { cat "$folder/err"; fail "status $status, not $2"; }
}
last() { tail -1 "$saves/metrics.jsonl" | sed -E 's/^\{"step":([0-9]+).*/\1/'; }

for command in sft train; do
  many=1000000
  declare -n words=$command
  rm -rf "$saves"
  "${words[@]}" "${one[@]}" megatron_training.train_iters=$many >"$folder/out" 2>"$folder/err" &
  begun $!
  kill -HUP $!
  ended $! 130
  [ -d "$saves/global_step_$(last)" ] || fail "$command: no checkpoint of the last step"

  # The reader takes one line.
  rm -rf "$saves"
  mkfifo "$folder/pipe"
  "${words[@]}" "${one[@]}" megatron_training.train_iters=20 >"$folder/pipe" 2>"$folder/err" &
  read -r line <"$folder/pipe"
  rm "$folder/pipe"
  ended $! 1
  said 'the output could not be written'
  [ "$(last)" = 20 ] && [ -d "$saves/global_step_20" ] || fail "$command: the run ended with its reader"
done

# nohup
rm -rf "$saves"
(trap '' HUP && exec "${sft[@]}" "${one[@]}" megatron_training.train_iters=300) >"$folder/out" 2>"$folder/err" &
begun $!
kill -HUP $! || echo "it was over before the signal"
ended $! 0

# Open MPI's launcher: what it says stops the run.
if "$MPIEXEC" --version 2>/dev/null | grep -q 'Open MPI\|OpenRTE'; then
  rm -rf "$saves"
  "$MPIEXEC" -n 2 "${train[@]}" actor_config.tensor_model_parallel_size=2 actor_config.pipeline_model_parallel_size=1 megatron_training.train_iters=1000000 >"$folder/out" 2>"$folder/err" &
  begun $!
  line=$(sed -n 's/^treadle train: \(kill -USR1 [0-9]*\) (rank 0) ends the run after the step at hand.*/\1/p' "$folder/err")
  [ -n "$line" ] || fail "it does not say how it is stopped"
  $line
  status=0
  wait $! || status=$?
  [ $status != 0 ] && [ -d "$saves/global_step_$(last)" ] || { cat "$folder/err"; fail "status $status; the run was not stopped by '$line'"; }
fi
