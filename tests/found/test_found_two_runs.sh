#!/usr/bin/env bash
# Two runs into one folder: while the first runs the other is refused, with who has it; the first is whole. Two fresh
# starts, a requeued job beside its old one, with train and with sft; a folder of dumped rollouts that two share. The
# first run is stopped (SIGSTOP) at a line of its output, or when its lock is there: the second meets it alive however
# slow the machine is. What a killed run leaves keeps nobody out.
#   TREADLE_ROUNDS=N   rounds of each way (2)
# ctest: stage=gcc timeout=900
source "$TREADLE_SOURCE/tests/found/found.bash"
rounds=${TREADLE_ROUNDS:-2}
first=
trap '[ -z "$first" ] || kill -9 $first 2>/dev/null; rm -rf "$folder"' EXIT
"$TREADLE" data sequence --out "$folder/data" --seed 1 --noise 0.3 >/dev/null
head -40 "$folder/data/sft.jsonl" >"$folder/rows.jsonl"
cat >"$folder/train.yaml" <<END
megatron_training: {tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence, data_path: $folder/data/train.jsonl, train_iters: 4, global_batch_size: 2,
  save_interval: 1, max_ckpt_to_keep: 2}
actor_config: {model: $TREADLE_SOURCE/examples/sequence/policy, save: $folder/run, micro_batch_size: 4, lr: 4.0e-4}
generate_config: {sampling_config: {max_tokens: 8}}
rl_config: {n_samples_per_prompt: 4, max_prompt_length: 10, verifier_function: [sequence]}
END
cat >"$folder/sft.yaml" <<END
megatron_training: {tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence, data_path: $folder/rows.jsonl, train_iters: 4, global_batch_size: 4,
  save_interval: 1, max_ckpt_to_keep: 2}
actor_config: {model: $TREADLE_SOURCE/examples/sequence/policy, save: $folder/run, micro_batch_size: 2, lr: 1.0e-3}
END

# digests RUN: of the weights at the end, and the norms of all steps.
digests() {
  sha256sum <"$folder/$1/global_step_4/actor/huggingface/model.safetensors"
  sed 's/.*"step":\([0-9]*\).*grad_norm":\([^,]*\).*/\1 \2/' "$folder/$1/metrics.jsonl"
}
# whole COMMAND SEED: the run is that of nobody else, and nothing but it is there.
whole() {
  [ "$(digests run)" = "$(cat "$folder/is-$1-$2")" ] || fail "$1: the first run is not what it is alone"
  [ "$(ls "$folder/run" | grep -c 'global_step_[0-9]*$')" = 2 ] || fail "$1: it has $(ls "$folder/run")"
  [ ! -e "$folder/run/treadle.lock" ] || fail "$1: its lock is left"
  ! ls "$folder/run" | grep -q tmp || fail "$1: something is left: $(ls "$folder/run")"
}
# start COMMAND SEED KEYS...: in the background, as $first.
start() {
  local command=$1 seed=$2
  shift 2
  "$TREADLE" "$command" "$folder/$command.yaml" megatron_training.seed="$seed" --threads 1 "$@" >>"$folder/first.out" 2>"$folder/first.err" </dev/null &
  first=$!
}
# halt STEP: stops the first run after a step; 0: when it has its lock. Fails where the run has ended before the signal
# came.
halt() {
  until if [ "$1" = 0 ]; then [ -s "$folder/run/treadle.lock" ]; else grep -q "^step $1 of" "$folder/first.out"; fi; do
    [ "$(state)" != Z ] || { cat "$folder/first.err"; fail "the first run ended before it was stopped"; }
    sleep 0.002
  done
  kill -STOP $first 2>/dev/null || return 1
  until [[ "$(state)" = [TZ] ]]; do sleep 0.002; done
  [ "$(state)" = T ]
}
# Z: it has ended, and the shell may have taken notice.
state() { sed 's/.*) \(.\).*/\1/' "/proc/$first/stat" 2>/dev/null || echo Z; }
# begin STEP COMMAND SEED KEYS...: it runs, and is stopped there; begun again where it was over too soon.
begin() {
  local step=$1
  shift
  for ((try = 0; try < 20; try++)); do
    rm -rf "$folder/run"
    : >"$folder/first.out"
    start "$@"
    ! halt "$step" || return 0
    wait $first || fail "the first run ended with $?"
  done
  fail "20 runs were over before they could be stopped"
}
# meets COMMAND SEED KEYS...: the other is refused, with who has the folder.
meets() {
  local command=$1 seed=$2
  shift 2
  refused "another treadle writes here: process $first on $(hostname), since " "$TREADLE" "$command" "$folder/$command.yaml" \
    megatron_training.seed="$seed" --threads 1 "$@"
  said "actor_config.save (line"
}
goes_on() {
  local status=0
  kill -CONT $first
  wait $first || status=$?
  first=
  [ $status = 0 ] || { cat "$folder/first.err"; fail "the first run ended with $status"; }
}

for command in train sft; do
  for seed in 1 2; do
    run 0 "$TREADLE" "$command" "$folder/$command.yaml" megatron_training.seed=$seed actor_config.save="$folder/alone" --threads 1
    digests alone >"$folder/is-$command-$seed"
    rm -r "$folder/alone"
  done
  ! cmp -s "$folder/is-$command-1" "$folder/is-$command-2" || fail "$command: the seed changes nothing"
  for ((round = 0; round < rounds; round++)); do
    begin $((round % 3)) "$command" $((1 + round % 2))
    meets "$command" $((2 - round % 2))
    goes_on
    whole "$command" $((1 + round % 2))

    begin $((round % 3)) "$command" 1 --resume
    meets "$command" 1 --resume
    if ((round % 2)); then
      kill -9 $first # its job is gone now: the requeued one goes on, whatever is left
      wait $first 2>/dev/null || true
      mkdir -p "$folder/run/global_step_9.77-1.tmp/actor" # of a run before it
      start "$command" 1 --resume
    fi
    goes_on
    whole "$command" 1
  done
done

# A folder of dumped rollouts that is not part of the run's.
begin 1 train 1 rl_config.dump_rollouts="$folder/rolls"
refused "$folder/rolls: another treadle writes here: process $first on" "$TREADLE" train "$folder/train.yaml" \
  actor_config.save="$folder/other" rl_config.dump_rollouts="$folder/rolls"
said "rl_config.dump_rollouts"
[ ! -e "$folder/other" ] || fail "a run that is refused leaves its folder"
goes_on
whole train 1
[ "$(ls "$folder/rolls" | tr '\n' ' ')" = "1.jsonl 2.jsonl 3.jsonl 4.jsonl " ] || fail "rolls has $(ls "$folder/rolls")"
run 0 "$TREADLE" train "$folder/train.yaml" actor_config.save="$folder/both" rl_config.dump_rollouts="$folder/both" # one folder, one lock
[ -s "$folder/both/3.jsonl" ] || fail "no rollouts beside the run"
