/* Keys of others that change results where treadle has nothing for them: they may say what it does anyway, and are refused with another
 * value. What each of MindSpeed-RL's and of RLinf's means is in their configurations; verl's are those of its generated trainer files. */
#include "train/config.h"

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
#define REWARDS "rewards are those of rl_config.verifier_function"
#define DTYPES  "both engines compute as megatron_training.bf16 says"

const treadle_train_limit treadle_train_limits[TREADLE_TRAIN_LIMITS] = {
    {"attention_dropout", {"0"}, NULL},
    {"context_parallel_size", {"1"}, NULL},
    {"expert_model_parallel_size", {"1"}, NULL},
    {"expert_tensor_parallel_size", {"1"}, NULL},
    {"fp16", {"false"}, NULL},
    {"hidden_dropout", {"0"}, NULL},
    {"lora_target_modules", {NULL}, NULL},
    {"moe_tp_extend_ep", {"false"}, NULL},
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
    {ACTOR "router_replay.mode", {"disabled"}, NULL},
    {ACTOR "megatron.context_parallel_size", {"1"}, NULL},
    {ACTOR "megatron.expert_model_parallel_size", {"1"}, NULL},
    {ACTOR "megatron.expert_tensor_parallel_size", {"1"}, NULL},
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
    {ROLLOUT "enable_rollout_routing_replay", {"false"}, NULL},
    {ROLLOUT "multi_turn.enable", {"false"}, NULL},
    {ROLLOUT "agent.default_agent_loop", {"single_turn_agent"}, NULL},
    {ROLLOUT "dtype", {"bfloat16", "bf16", "auto", "float32", "fp32"}, DTYPES},
    {MODEL "lora_rank", {"0"}, NULL},
    {MODEL "lora.rank", {"0"}, NULL},
    {MODEL "lora_adapter_path", {NULL}, NULL},
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
    {"data.train_max_samples", {"-1"}, "give a file with so many prompts as megatron_training.data_path"},
    {"data.val_max_samples", {"-1"}, "give a file with so many prompts as megatron_training.val_path"},
    {"data.truncation", {"error"}, "no prompt is cut: rl_config.too_long=leave_out leaves long ones out"},
    {"data.custom_cls.path", {NULL}, NULL},
    {"data.sampler.class_path", {NULL}, NULL},
    {"data.datagen.path", {NULL}, NULL},
    {"data.apply_chat_template_kwargs", {NULL}, NULL},
    {"trainer.critic_warmup", {"0"}, NULL},
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
