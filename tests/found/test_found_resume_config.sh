#!/usr/bin/env bash
# --resume with a config.json that computes something else with the same tensors (another epsilon, other positions) than the one that the run has saved: refused, by what
# differs. Words that change nothing, and another way of saying the same, are taken.
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
