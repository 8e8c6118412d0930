#!/usr/bin/env bash
# --resume with a config.json that computes something else with the same tensors (another epsilon, other positions) than the one that the run has saved: refused, by what
# differs. Words that change nothing, and another way of saying the same, are taken.
# ctest: stage=gcc
source "$TREADLE_SOURCE/tests/found/found.bash"
sequence=$TREADLE_SOURCE/examples/sequence
cd "$folder"
"$TREADLE" data sequence --out data --seed 1 >out
# model CHANGE: the policy with config.json edited by sed.
model() {
  rm -rf model
  cp -r "$sequence/policy" model
  sed -i "$1" model/config.json
}
train() {
  "$TREADLE" train "$TREADLE_SOURCE/examples/grpo-demo.yaml" "megatron_training.tokenizer_name_or_path=$sequence" actor_config.model=model \
    megatron_training.data_path=data/train.jsonl megatron_training.val_path= megatron_training.test_interval=0 megatron_training.global_batch_size=4 \
    rl_config.n_samples_per_prompt=4 actor_config.tensor_model_parallel_size=1 actor_config.pipeline_model_parallel_size=1 actor_config.save=run --threads 1 "$@"
}
sft() {
  "$TREADLE" sft "$TREADLE_SOURCE/examples/sft-policy.yaml" "megatron_training.tokenizer_name_or_path=$sequence" actor_config.model=model \
    megatron_training.data_path=data/sft.jsonl actor_config.save=run --threads 1 "$@"
}
for command in train sft; do
  model ''
  rm -rf run began
  run 0 $command megatron_training.train_iters=1
  mv run began
  again() { # CHANGE STATUS [TEXT]
    model "$1"
    grep -q . model/config.json
    cmp -s model/config.json "$sequence/policy/config.json" && [ -n "$1" ] && fail "'$1' changes nothing"
    rm -rf run
    cp -r began run
    run "$2" $command megatron_training.train_iters=2 --resume
    [ -z "${3:-}" ] || said "$3"
    [ "$2" = 0 ] || [ ! -e run/global_step_2 ] || fail "a step was taken"
  }
  again 's/"rms_norm_eps": 1e-06/"rms_norm_eps": 1e-05/' 2 'epsilon of norms is 9.99999997e-07, and in model/config.json it is 9.99999975e-06'
  [ $command = train ] || continue # both go on by one function
  again 's/"rope_theta": 10000.0/"rope_theta": 500000.0/' 2 'rope_theta is 10000, and in model/config.json it is 500000'
  again 's/"rope_theta": 10000.0/"rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 2.0}/' 2 'factor of rope is 1, and in model/config.json it is 2'
  again 's/"rope_theta": 10000.0/"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}/' 0
  again 's/"initializer_range": 0.02/"transformers_version": "5.0.0", "use_cache": false/' 0
done

# Where a run goes on is said where latest_checkpointed_iteration.txt, a newer checkpoint or a name like a checkpoint's speaks against it.
model ''
rm -rf run began
run 0 train megatron_training.train_iters=2 megatron_training.save_interval=1 megatron_training.max_ckpt_to_keep=0
! grep -q "global_step" err || fail "something is said of a run's own checkpoints"
mv run began
goes_on() { # LATEST TEXT...
  rm -rf run
  cp -r began run
  echo "$1" >run/latest_checkpointed_iteration.txt
  mkdir -p run/global_step_02
  run 0 train megatron_training.train_iters=3 --resume
  said "run/global_step_02 is named like a checkpoint and is none"
  shift
  local text
  for text; do said "$text"; done
}
goes_on 2
[ "$(grep -c "global_step" err)" = 1 ] || fail "more is said than the name"
goes_on 1 "run: the run goes on from global_step_1, and global_step_2 is newer"
goes_on 7 "run/latest_checkpointed_iteration.txt says '7', which is not a whole checkpoint: the run goes on from global_step_2"
goes_on garbage "latest_checkpointed_iteration.txt says 'garbage', which is not a whole checkpoint"
goes_on '' "latest_checkpointed_iteration.txt says '', which is not a whole checkpoint"
for option in '' --resume; do # a folder that has nothing else, and both commands
  rm -rf run
  mkdir -p run/global_step_02
  echo 2 >run/latest_checkpointed_iteration.txt
  run 0 sft megatron_training.train_iters=1 $option
  said "run/global_step_02 is named like a checkpoint and is none"
  said "latest_checkpointed_iteration.txt says '2', and there is no checkpoint: the run begins anew"
done
