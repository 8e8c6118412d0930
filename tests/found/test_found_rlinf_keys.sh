#!/usr/bin/env bash
# RLinf's algorithm, optimizer, schedule and sampling are what the run has: not one of them is "without effect", and REINFORCE++ is not GRPO. What
# cannot be done is refused, all of it in one message.
# ctest: timeout=120
source "$(dirname "$0")/found.bash"
"$TREADLE" data sequence --out "$folder/data" --seed 1 >/dev/null
cat >"$folder/run.yaml" <<END
runner: {task_type: reasoning, max_epochs: 1, max_steps: 2, save_interval: 1, seq_length: 60, output_dir: out, experiment_name: t}
algorithm:
  group_size: 4
  n_minibatches: 2
  training_batch_size_per_gpu: 2
  adv_type: reinpp
  use_reinpp_baseline: True
  kl_beta: 0.0
  reinpp_kl_beta: 0.07
  kl_penalty_type: k1
  ratio_clip_eps: 0.15
  clip_ratio_high: 0.4
  clip_ratio_c: null
  entropy_bonus: 0.002
  calculate_entropy: on
  loss_agg_func: seq-mean-token-sum
  normalize_advantages: True
  early_stop_imp_ratio: 5.0
  shuffle_rollout: yes
  sampling_params: {do_sample: True, temperature: 0.9, top_k: 1000000, top_p: 1.0, repetition_penalty: 1.0, max_new_tokens: '\${subtract:\${runner.seq_length}, \${data.max_prompt_length}}'}
rollout: {model: {model_path: $TREADLE_SOURCE/examples/sequence/policy}, tensor_parallel_size: 1, eos: null}
data: {type: math, rollout_batch_size: 4, max_prompt_length: 50, filter_prompt_by_length: True, train_data_paths: [$folder/data/train.jsonl], answer_key: answer, apply_chat_template: False, seed: 017}
actor:
  training_backend: megatron
  tokenizer: {tokenizer_model: $TREADLE_SOURCE/examples/sequence}
  model: {precision: fp32, tensor_model_parallel_size: 1}
  optim: {optimizer: adam, lr: 3.0e-5, adam_beta1: 0.85, adam_beta2: 0.97, adam_eps: 1.0e-6, weight_decay: 0.03, clip_grad: 0.7, min_lr: 1.0e-6}
  lr_sched: {lr_warmup_fraction: 0.5, lr_decay_iters: 2, lr_warmup_iters: 0, lr_decay_style: constant, min_lr: 0.0, max_lr: 3.0e-5}
reward: {reward_type: sequence, reward_scale: 5.0, use_reward_model: false}
critic: {use_critic_model: false}
END
run 0 "$TREADLE" train "$folder/run.yaml" --threads 1 actor_config.save="$folder/run"
for key in algorithm data.seed actor.optim actor.lr_sched.lr runner.max_steps reward.reward_scale; do
  grep -q "without effect here.* $key" "$folder/err" && fail "$key is said to have no effect"
done
# has KEY VALUE: of the resolved file
has() { grep -Eq "^  $1: +$2 " "$folder/run/config.yaml" || { grep -E "^  $1:" "$folder/run/config.yaml"; fail "$1 is not $2"; }; }
has train_iters 2; has global_batch_size 4; has seed 15; has mini_batch_size 2; has micro_batch_size 2; has n_samples_per_prompt 4
has adv_estimator reinforce_plus_plus_baseline; has use_kl_loss false; has use_kl_in_reward true; has init_kl_coef 0.07; has kl_penalty k1
has clip_ratio 0.15; has clip_higher_enable true; has clip_ratio_low 0.15; has clip_ratio_high 0.4; has clip_ratio_c 1e\\+30
has entropy_coeff 0.002; has loss_agg_mode seq-mean-token-sum; has normalize_advantages true; has shuffle_mini_batch true; has early_stop_imp_ratio 5
has temperature 0.9; has top_k 1000000; has max_tokens 10; has max_prompt_length 50; has too_long leave_out; has bf16 false; has apply_chat_template false
has lr 3e-05; has adam_beta1 0.85; has adam_beta2 0.97; has adam_eps 1e-06; has weight_decay 0.03; has clip_grad 0.7; has min_lr 1e-06
has lr_warmup_fraction 0.25; has lr_decay_style constant; has verifier_weight '\["10"\]'
# An update in each of two mini batches of each of two steps.
grep -q '"step": 4[,}]' "$folder/run/global_step_2/actor/optimizer/state.json" || fail "not 4 updates"

refused '${mul:2} is not looked up' "$TREADLE" train "$folder/run.yaml" 'runner.seq_length=${mul:2}'
run 2 "$TREADLE" train "$folder/run.yaml" algorithm.loss_type=embodied critic.use_critic_model=True algorithm.adv_type=gae actor.optim.optimizer=muon
said '4 keys are refused'
for key in 'algorithm.loss_type is .embodied' 'critic.use_critic_model is .True' 'algorithm.adv_type is .gae' 'actor.optim.optimizer is .muon'; do
  grep -q "$key" "$folder/err" || fail "no word of $key"
done
refused 'the KL would count twice' "$TREADLE" train "$folder/run.yaml" algorithm.kl_beta=0.1
refused 'cannot be' "$TREADLE" train "$folder/run.yaml" '~algorithm.kl_beta'
