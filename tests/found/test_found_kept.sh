#!/usr/bin/env bash
# What a run keeps: by itself a checkpoint each 100 steps, the newest two; with verl's null all of them. SIGTERM with
# notice, from a scheduler to the ranks and once more through their launcher, ends it after the step under way, saved.
# Ranks under a launcher say at the start what to send to whom.
# ctest: label=mpi timeout=300
source "$TREADLE_SOURCE/tests/found/found.bash"
launch=("$MPIEXEC")
case $("$MPIEXEC" --version 2>/dev/null) in *'Open MPI'* | *OpenRTE*) launch+=(--oversubscribe) ;; esac
"$TREADLE" data sequence --out "$folder/data" --seed 1 --noise 0.3 >/dev/null
head -20 "$folder/data/sft.jsonl" >"$folder/rows.jsonl"
cat >"$folder/train.yaml" <<END
megatron_training: {tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence, data_path: $folder/data/train.jsonl, train_iters: 100000, global_batch_size: 2}
actor_config: {model: $TREADLE_SOURCE/examples/sequence/policy, save: $folder/run, micro_batch_size: 4, lr: 4.0e-4}
generate_config: {sampling_config: {max_tokens: 8}}
rl_config: {n_samples_per_prompt: 4, max_prompt_length: 10, verifier_function: [sequence]}
END
cat >"$folder/sft.yaml" <<END
megatron_training: {tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence, data_path: $folder/rows.jsonl, train_iters: 100000, global_batch_size: 1}
actor_config: {model: $TREADLE_SOURCE/examples/sequence/policy, save: $folder/run, micro_batch_size: 1, lr: 1.0e-3}
END
steps() { ls "$folder/run" | grep '^global_step_[0-9]*$' | LC_ALL=C sort | tr '\n' ' '; }
# ended: the newest checkpoint is that of the last step.
ended() {
  local last
  last=$(sed -n '$s/.*"step":\([0-9]*\).*/\1/p' "$folder/run/metrics.jsonl")
  [ "$(cat "$folder/run/latest_checkpointed_iteration.txt")" = "$last" ] || fail "$1: step $last is not kept: $(steps)"
  [ -d "$folder/run/global_step_$last" ] || fail "$1: no checkpoint of step $last"
  rm -rf "$folder/run"
}
# line TEXT: waits for it in what a run prints.
line() { until grep -q "$1" "$folder/first.out"; do kill -0 $first || { cat "$folder/first.err"; fail "it ended without '$1'"; }; sleep 0.01; done; }
start() {
  : >"$folder/first.out"
  "$@" >>"$folder/first.out" 2>"$folder/first.err" </dev/null &
  first=$!
}

run 0 "$TREADLE" sft "$folder/sft.yaml" --threads 1 megatron_training.train_iters=201
[ "$(steps)" = "global_step_200 global_step_201 " ] || fail "by itself a run keeps $(steps)"
rm -rf "$folder/run"
echo 'trainer: {max_actor_ckpt_to_keep: null, save_freq: 1}' >>"$folder/train.yaml"
run 0 "$TREADLE" train "$folder/train.yaml" --threads 1 megatron_training.train_iters=4
[ "$(steps)" = "global_step_1 global_step_2 global_step_3 global_step_4 " ] || fail "with null a run keeps $(steps)"
rm -rf "$folder/run"
run 0 "$TREADLE" train "$folder/train.yaml" --threads 1 megatron_training.train_iters=4 trainer.max_actor_ckpt_to_keep=null
[ "$(steps)" = "global_step_1 global_step_2 global_step_3 global_step_4 " ] || fail "with null on the command line a run keeps $(steps)"
rm -rf "$folder/run"
sed -i '/^trainer:/d' "$folder/train.yaml"

for command in train sft; do
  start "$TREADLE" $command "$folder/$command.yaml" --threads 1
  line "^step 1 of"
  kill -TERM $first
  kill -TERM $first
  status=0
  wait $first || status=$?
  [ $status = 130 ] || { cat "$folder/first.err"; fail "$command: after SIGTERM status $status"; }
  ! grep -q 'kill -USR1' "$folder/first.err" || fail "$command: one rank has nobody to tell"
  ended "$command, SIGTERM"
  start "${launch[@]}" -n 2 "$TREADLE" $command "$folder/$command.yaml" --threads 1 actor_config.tensor_model_parallel_size=2
  line "^step 1 of"
  rank=$(sed -n 's/^treadle [a-z]*: kill -USR1 \([0-9]*\) (rank 0) ends the run.*/\1/p' "$folder/first.err")
  [ -n "$rank" ] || fail "$command: it does not say how it is stopped"
  status=0 # another run of two ranks: all of them end together, and one of them says why
  "${launch[@]}" -n 2 "$TREADLE" $command "$folder/$command.yaml" --threads 1 actor_config.tensor_model_parallel_size=2 >"$folder/out" 2>"$folder/err" \
    </dev/null || status=$?
  [ $status != 0 ] || fail "$command: a second run beside one of two ranks is taken"
  [ "$(grep -c "another treadle writes here: process $rank on" "$folder/err")" = 1 ] || { cat "$folder/err"; fail "$command: it is not said once"; }
  kill -USR1 "$rank"
  wait $first || true
  ended "$command under mpirun"
done
