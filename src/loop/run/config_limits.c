/* Keys of others that change results where treadle has nothing for them: they may say what it does anyway, and are refused with another
 * value. What each of MindSpeed-RL's and of RLinf's means is in their configurations; verl's are those of its generated trainer files. */
#include "run/config.h"

#include <string.h>

#define ACTOR   "actor_rollout_ref.actor."
#define OPTIM   "actor_rollout_ref.actor.optim."
#define ROLLOUT "actor_rollout_ref.rollout."
#define MODEL   "actor_rollout_ref.model."

#define PENALTY                                                                                            \
  "log-probabilities are of what tokens were drawn from, which is cut by top_k, top_p and min_p alone"
#define OWN_REWARD                                                                                         \
  "a reward of your own is a process: rl_config.verifier_function=[command] and "                          \
  "rl_config.verifier_command (docs/rewards.md)"
#define REWARDS      "rewards are those of rl_config.verifier_function"
#define DTYPES       "both engines compute as megatron_training.bf16 says"
#define CONFIG       "change the config.json in the folder of the model"
#define MODEL_IS     "the model is what its config.json says"
#define POLICY_ALONE "adapters are the policy's: a critic trains whole"
#define TRANSFORMER  "actor_rollout_ref.actor.megatron.override_transformer_config."

const treadle_train_limit treadle_train_limits[TREADLE_TRAIN_LIMITS] = {
    {"attention_dropout", {"0"}, NULL},
    {"fp16", {"false"}, NULL},
    {"hidden_dropout", {"0"}, NULL},
    {"noop_layers", {NULL}, NULL},
    {"num_layer_list", {NULL}, NULL},
    {"optimizer", {"adam"}, NULL},
    {"pretrained_checkpoint", {NULL}, "weights to begin with are those of actor_config.model"},
    {"skip_train", {"false"}, NULL},
    {"use_tp_pp_dp_mapping", {"false"}, NULL},

    {"rl_config.is_multimodal", {"false"}, NULL},
    {"rl_config.multi_turn_enable", {"false"}, NULL},
    {"rl_config.partial_rollout_max_split", {"1"}, NULL},
    {"rl_config.rule_reward", {"true"}, REWARDS},
    {"rl_config.share_backbone", {"false"}, NULL},
    {"generate_config.n", {"1"}, "samples of a prompt are rl_config.n_samples_per_prompt"},
    {"generate_config.dtype", {"bfloat16", "bf16", "auto", "float32", "fp32"}, DTYPES},

    {OPTIM "optimizer", {"AdamW", "adam"}, NULL},
    {OPTIM "optimizer_impl", {"torch.optim"}, NULL},
    {OPTIM "lr_warmup_steps",
     {"-1", "0"},
     "the warm-up is actor_config.lr_warmup_fraction, a share of the steps"},
    {OPTIM "lr_warmup_init", {"0"}, NULL},
    {OPTIM "lr_decay_steps", {NULL}, "the decay ends with the run's last step"},
    {OPTIM "min_lr_ratio", {"0"}, "say actor_config.min_lr"},
    {OPTIM "num_cycles", {"0.5"}, NULL},
    {OPTIM "weight_decay_incr_style", {"constant"}, NULL},
    {OPTIM "use_checkpoint_opt_param_scheduler", {"false"}, NULL},
    {OPTIM "override_optimizer_config",
     {NULL},
     "of AdamW there are actor_config.adam_beta1, adam_beta2, adam_eps and weight_decay"},
    {ACTOR "policy_loss.loss_mode",
     {"vanilla"},
     "the loss of a policy is PPO's, with clip_ratio_low, clip_ratio_high and clip_ratio_c"},
    {ACTOR "loss_scale_factor",
     {NULL},
     "seq-mean-token-sum-norm divides by the longest response, generate_config.sampling_config.max_tokens"},
    {ACTOR "tis_imp_ratio_cap", {"-1"}, "say rl_config.rollout_is_threshold"},
    {ACTOR "fsdp_config.ulysses_sequence_parallel_size",
     {"1"},
     "say it as actor_rollout_ref.actor.ulysses_sequence_parallel_size"},
    {ACTOR "megatron.use_dist_checkpointing",
     {"false"},
     "a checkpoint to begin with is actor.checkpoint_load_path"},
    {ACTOR "megatron.override_transformer_config.attention_dropout", {"0"}, NULL},
    {ACTOR "megatron.override_transformer_config.hidden_dropout", {"0"}, NULL},
    {ROLLOUT "do_sample", {"true"}, "all samples of a prompt would be the same"},
    {ROLLOUT "over_sample_rate", {"0"}, NULL},
    {ROLLOUT "repetition_penalty", {"1"}, NULL},
    {ROLLOUT "skip_rollout", {"false"}, NULL},
    {ROLLOUT "quantization", {NULL}, NULL},
    {ROLLOUT "enable_rollout_routing_replay",
     {"false", "true"},
     "experts are recorded where actor.router_replay.mode is R3"},
    {ROLLOUT "multi_turn.enable", {"false"}, NULL},
    {ROLLOUT "agent.default_agent_loop", {"single_turn_agent"}, NULL},
    {ROLLOUT "dtype", {"bfloat16", "bf16", "auto", "float32", "fp32"}, DTYPES},
    {MODEL "exclude_modules", {NULL}, "say actor_config.target_modules"},
    {MODEL "custom_chat_template", {NULL}, "the template is that of the tokenizer's folder"},
    {MODEL "mtp.enable", {"false"}, NULL},

    {"algorithm.use_pf_ppo", {"false"}, NULL},
    {"algorithm.rollout_correction.rollout_rs", {NULL}, "no token is rejected"},
    {"algorithm.rollout_correction.bypass_mode",
     {"false"},
     "with actor_config.exact the log-probabilities of the rollouts are the old ones, to the bit"},
    {"algorithm.rollout_correction.loss_type", {"ppo_clip"}, NULL},
    {"algorithm.rollout_correction.rollout_is_batch_normalize", {"false"}, NULL},
    {"custom_reward_function.path", {NULL}, OWN_REWARD},
    {"reward.custom_reward_function.path", {NULL}, OWN_REWARD},
    {"reward_manager.module.path", {NULL}, OWN_REWARD},
    {"reward_model.enable", {"false"}, REWARDS},
    {"reward.reward_model.enable", {"false"}, REWARDS},
    {"reward_model.reward_manager", {"naive", "dapo", "batch"}, REWARDS},
    {"data.train_max_samples", {"-1"}, "give a file with this many prompts as megatron_training.data_path"},
    {"data.val_max_samples", {"-1"}, "give a file with this many prompts as megatron_training.val_path"},
    {"data.truncation", {"error"}, "no prompt is cut: rl_config.too_long=leave_out leaves long ones out"},
    {"data.custom_cls.path", {NULL}, NULL},
    {"data.sampler.class_path", {NULL}, NULL},
    {"data.datagen.path", {NULL}, NULL},
    {"trainer.val_only", {"false"}, "say treadle eval"},

    {"megatron.ckpt_format", {"torch"}, NULL},
    {"megatron.use_dist_ckpt", {"false"}, NULL},

    /* Of how tokens are drawn, in any section: the distribution would follow from the tokens before, or from lists. */
    {"*.repetition_penalty", {"1"}, PENALTY},
    {"*.presence_penalty", {"0"}, PENALTY},
    {"*.frequency_penalty", {"0"}, PENALTY},
    {"*.encoder_repetition_penalty", {"1"}, PENALTY},
    {"*.no_repeat_ngram_size", {"0"}, PENALTY},
    {"*.logit_bias", {NULL}, PENALTY},
    {"*.bad_words", {NULL}, PENALTY},
    {"*.allowed_token_ids", {NULL}, PENALTY},
    {"*.logits_processors", {NULL}, PENALTY},
    {"*.min_tokens", {"0"}, "say generate_config.sampling_config.ignore_eos for responses of max_tokens"},
    {"*.typical_p", {"1"}, "what cuts is top_k, top_p and min_p"},
    {ACTOR "fsdp_config.dtype", {"bfloat16", "bf16", "auto", "float32", "fp32"}, DTYPES},
    {ACTOR "megatron.dtype", {"bfloat16", "bf16", "auto", "float32", "fp32"}, DTYPES},
    {ACTOR "fsdp_config.mixed_precision.param_dtype",
     {"bfloat16", "bf16", "auto", "float32", "fp32"},
     DTYPES},
    {ACTOR "fsdp_config.model_dtype", {"fp32", "float32"}, "the optimizer has weights in fp32"},
    {ACTOR "qat.enable", {"false"}, NULL},
    {ACTOR "fsdp_config.qat.enable", {"false"}, NULL},
    {ACTOR "megatron.qat.enable", {"false"}, NULL},
    {ACTOR "freeze_vision_tower", {"false"}, NULL},
    {ACTOR "megatron.override_transformer_config", {NULL}, MODEL_IS},
    {TRANSFORMER "context_parallel_size", {"1"}, NULL},
    {ACTOR "megatron.override_mcore_model_config", {NULL}, MODEL_IS},
    {OPTIM "exp_avg_dtype", {"fp32"}, NULL},
    {OPTIM "exp_avg_sq_dtype", {"fp32"}, NULL},
    {OPTIM "main_grads_dtype", {"fp32"}, NULL},
    {OPTIM "total_training_steps",
     {"-1"},
     "the schedule ends with the run's last step, megatron_training.train_iters"},
    {OPTIM "zero_indexed_step", {"true"}, NULL},
    {MODEL "external_lib", {NULL}, NULL},
    {MODEL "hf_config_path", {NULL}, CONFIG},
    {MODEL "override_config", {NULL}, CONFIG},
    {MODEL "mtp.enable_train", {"false"}, NULL},
    {ROLLOUT "agent.agent_loop_config_path", {NULL}, NULL},
    {ROLLOUT "agent.custom_async_server.path", {NULL}, NULL},
    {ROLLOUT "quantization_config_file", {NULL}, NULL},
    {ROLLOUT "engine_kwargs.vllm.quantization", {NULL}, NULL},
    {ROLLOUT "engine_kwargs.vllm.kv_cache_dtype", {"auto"}, NULL},
    {ROLLOUT "engine_kwargs.vllm.dtype", {"bfloat16", "bf16", "auto", "float32", "fp32"}, DTYPES},
    {ROLLOUT "engine_kwargs.sglang.quantization", {NULL}, NULL},
    {ROLLOUT "engine_kwargs.sglang.kv_cache_dtype", {"auto"}, NULL},
    {ROLLOUT "engine_kwargs.sglang.dtype", {"bfloat16", "bf16", "auto", "float32", "fp32"}, DTYPES},
    {ROLLOUT "multi_turn.function_tool_path", {NULL}, NULL},
    {ROLLOUT "multi_turn.tool_config_path", {NULL}, NULL},
    {"algorithm.rollout_correction",
     {NULL},
     "of it there are rollout_is (none, token) and rollout_is_threshold"},
    {"reward.reward_manager.name", {"naive", "dapo", "batch"}, REWARDS},
    {"reward.reward_manager.module.path", {NULL}, OWN_REWARD},
    {"reward_model.reward_loop_module_path", {NULL}, OWN_REWARD},
    {"reward.sandbox_fusion.url", {NULL}, REWARDS},
    {"sandbox_fusion.url", {NULL}, REWARDS},
    {"data.tokenizer", {NULL}, "say megatron_training.tokenizer_name_or_path"},
    {"data.tool_config_path", {NULL}, NULL},
    {"data.function_tool_path", {NULL}, NULL},
    {"trainer.v1.trainer_mode", {"sync"}, NULL},
    {"skip.rollout.enable", {"false"}, NULL},
    {"skip.async_rollout.enable", {"false"}, NULL},
    {"skip.rollout_tq.enable", {"false"}, NULL},
    {"distillation.enabled", {"false"}, NULL},
    {"critic.enable", {"false"}, "a critic is there with algorithm.adv_estimator=gae alone"},
    {ROLLOUT "skip.enable", {"false"}, NULL},
    {ROLLOUT "use_fire_sampling", {"false"}, NULL},
    {"algorithm.rollout_is", {"false"}, "say algorithm.rollout_correction.rollout_is=token"},
    {"data.continuous_token.enable", {"false"}, NULL},
    {"reward_manager.name", {"naive", "dapo", "batch"}, REWARDS},
    {"reward_model.sandbox_fusion.url", {NULL}, REWARDS},

    {"algorithm.loss_type", {"actor"}, "the loss of a policy is PPO's"},
    {"algorithm.clip_log_ratio_min", {NULL}, NULL},
    {"algorithm.clip_log_ratio_max", {NULL}, NULL},
    {"algorithm.max_num_gen_batches", {"1"}, "prompts are drawn anew by rl_config.filter_groups_enable"},
    {"algorithm.critic_warmup_steps", {"0"}, NULL},
    {"algorithm.sampling_params.do_sample", {"true"}, "all samples of a prompt would be the same"},
    {"algorithm.sampling_params.repetition_penalty", {"1"}, NULL},
    {"algorithm.sampling_params", {NULL}, "of it there are temperature, top_p, top_k and max_new_tokens"},
    {"runner.task_type", {"reasoning"}, NULL},
    {"runner.only_eval", {"false"}, "say treadle eval"},
    {"rollout.eos", {NULL}, "the end tokens are those of the tokenizer's folder"},
    {"data.type", {"math"}, NULL},
    {"data.data_size", {"-1"}, "give a file with this many prompts as megatron_training.data_path"},
    {"data.system_prompt", {NULL}, "write it into the prompts, as a message of the system"},
    {"data.use_chat_template", {"true"}, "say rl_config.apply_chat_template=false"},
    {"data.image_keys", {NULL}, NULL},
    {"model.is_lora", {"false"}, NULL},
    {"actor.optim.optimizer", {"adam", "adamw"}, NULL},
    {"actor.optim.total_training_steps",
     {"-1", "0"},
     "the schedule ends with the run's last step, megatron_training.train_iters"},
    {"actor.optim.lr_warmup_steps",
     {"-1", "0"},
     "the warm-up is actor_config.lr_warmup_fraction, a share of the steps"},
    {"actor.optim.num_cycles", {"0.5"}, NULL},
    {"actor.optim.min_lr_rate", {NULL}, "say actor_config.min_lr"},
    {"actor.lr_sched.lr_warmup_init", {"0"}, NULL},
    {"actor.lr_sched.lr_warmup_iters",
     {"0"},
     "the warm-up is actor_config.lr_warmup_fraction, a share of the steps"},
    {"actor.lr_sched.weight_decay_incr_style", {"constant"}, NULL},
    {"actor.lr_sched.start_weight_decay", {NULL}, "say actor_config.weight_decay"},
    {"actor.lr_sched.end_weight_decay", {NULL}, "say actor_config.weight_decay"},
    {"critic.use_critic_model", {"false"}, "say rl_config.adv_estimator=gae and critic_config"},
    {"reward.use_reward_model", {"false"}, REWARDS},
    {"reward.reward_weights", {NULL}, "say rl_config.verifier_weight"},

    {"critic_config.lora_rank", {"0"}, POLICY_ALONE},
    {"critic_config.lora_r", {"0"}, POLICY_ALONE},
    {"critic.model.lora_rank", {"0"}, POLICY_ALONE},
    {"critic.model.lora.rank", {"0"}, POLICY_ALONE},
    {"reward_config.lora_rank", {"0"}, POLICY_ALONE},
    {"critic_config.context_parallel_size", {"1"}, NULL},
    {"critic_config.ulysses_sequence_parallel_size", {"1"}, NULL},
    {"critic.megatron.context_parallel_size", {"1"}, NULL},
    {"critic.ulysses_sequence_parallel_size", {"1"}, NULL},
    {"ref_config.context_parallel_size", {"1"}, NULL},
    {"reward_config.context_parallel_size", {"1"}, NULL},

    {"megatron_training.stage",
     {"ray_grpo", "ray_dapo"},
     "rl_config.adv_estimator says how rewards become advantages"},
    {"actor_config.stage",
     {"ray_grpo", "ray_dapo"},
     "rl_config.adv_estimator says how rewards become advantages"},
};

/* What stands behind the section and its point; NULL: the path is not in it. */
static const char *within(const char *path, const char *section) {
  size_t length = strlen(section);
  return strncmp(path, section, length) == 0 && path[length] == '.' ? path + length + 1 : NULL;
}

/* The two sections that supervised training has, too. */
static const char *key_of_both(const char *path) {
  const char *key = within(path, "megatron_training");
  return key ? key : within(path, "actor_config");
}

/* Is it that path? "*.x": x of any section but those of rewards, which have penalties of their own. */
static bool is_of(const char *path, const char *limit) {
  const char *last = strrchr(path, '.');
  if (limit[0] != '*') return strcmp(path, limit) == 0;
  return last && strcmp(last, limit + 1) == 0 && strncmp(path, "reward", 6) != 0;
}

const treadle_train_limit *treadle_train_limit_find(const char *path, treadle_train_run run) {
  const char *key = key_of_both(path), *whole = treadle_train_short_path(path);
  for (int i = 0; i < TREADLE_TRAIN_LIMITS; i++) {
    const treadle_train_limit *limit = &treadle_train_limits[i];
    bool both = !strchr(limit->path, '.');
    if (both && key && strcmp(key, limit->path) == 0) return limit;
    if (!both && run == TREADLE_RUN_RL && is_of(whole, limit->path)) return limit;
  }
  return NULL;
}

bool treadle_train_limit_is_section(const char *path, treadle_train_run run) {
  const char *whole = treadle_train_short_path(path);
  for (int i = 0; run == TREADLE_RUN_RL && i < TREADLE_TRAIN_LIMITS; i++)
    if (within(treadle_train_limits[i].path, whole)) return true;
  return false;
}
