/* What others say in other words, or by two keys together. Values first, one by one; then what RLinf's keys say with each other, when all of the
 * file is known: its KL in the loss and in the rewards, its entropy that is computed or not, its scale of rewards, two learning rates at the end. */
#include "run/config_given.h"

#include "base/real.h"
#include "base/utf8.h"

#include <string.h>

#define KEY(member) TREADLE_KEY_OF(member)

/* ---- Values ----------------------------------------------------------------------------------------------- */

/* NULL as `from`: null. */
static const struct {
  const char *path, *from, *to;
} words[] = {
    {"data.shuffle", "true", "false"},
    {"data.shuffle", "false", "true"},
    {"data.filter_overlong_prompts", "true", "leave_out"},
    {"data.filter_overlong_prompts", "false", "error"},
    {"actor_rollout_ref.rollout.val_kwargs.do_sample", "true", "false"},
    {"actor_rollout_ref.rollout.val_kwargs.do_sample", "false", "true"},
    {"algorithm.adv_type", "reinpp", "reinforce_plus_plus"},
    {"algorithm.clip_ratio_c", NULL, "1e+30"}, /* no second clip */
    {"algorithm.importance_sampling_fix", "true", "token"},
    {"algorithm.importance_sampling_fix", "false", "none"},
    {"data.filter_prompt_by_length", "true", "leave_out"},
    {"data.filter_prompt_by_length", "false", "error"},
    {"runner.max_steps", "-1", "null"},
    {"actor.training_backend", "fsdp", "fsdp2"},
    {"model.precision", "bf16", "true"},
    {"model.precision", "bfloat16", "true"},
    {"model.precision", "bf16-mixed", "true"},
    {"model.precision", "fp16", "true"},
    {"model.precision", "float16", "true"},
    {"model.precision", "16", "true"},
    {"model.precision", "16-mixed", "true"},
    {"model.precision", "fp32", "false"},
    {"model.precision", "float32", "false"},
    {"model.precision", "32", "false"},
};

static bool is_word(const char *text, const char *word) {
  bool a, b;
  if (!word) return treadle_train_is_null(text);
  if (treadle_yaml_truth(text, &a) && treadle_yaml_truth(word, &b)) return a == b;
  return strcasecmp(text, word) == 0;
}

/* verl's FSDP is done as FSDP2, which differs from it in how tensors are cut alone. */
static treadle_status take_strategy(treadle_config_reader *reader, treadle_given_value *given) {
  treadle_train_config *config = reader->config;
  if (strcmp(given->text, "fsdp") != 0 ||
      (!treadle_given_is_of_verl(given->path) && strcmp(given->path, "actor.training_backend") != 0))
    return TREADLE_OK;
  given->text = "fsdp2";
  return treadle_train_config_warn(
      config, treadle_arena_format(&config->arena, "%s is fsdp: taken as fsdp2, which has the same results",
                                   treadle_given_head(reader, given)));
}

treadle_status treadle_others_take_word(treadle_config_reader *reader, int key,
                                        treadle_given_value *given) {
  treadle_train_config *config = reader->config;
  const char *path = treadle_train_short_path(given->path);
  if (key == KEY(actor.strategy) || key == KEY(critic.trained.strategy) ||
      key == KEY(reward.scored.strategy))
    return take_strategy(reader, given);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcmp(path, words[i].path) != 0 || !is_word(given->text, words[i].from)) continue;
    const bool is_half = key == KEY(training.bf16) && strstr(given->text, "16") && *given->text != 'b';
    given->text = words[i].to;
    if (!is_half) return TREADLE_OK;
    return treadle_train_config_warn(
        config,
        treadle_arena_format(&config->arena, "%s is fp16: computed in bf16, as there is no fp16 here",
                             treadle_given_head(reader, given)));
  }
  return TREADLE_OK;
}

/* ---- Keys together ------------------------------------------------------------------------------------------ */

/* The value of a path of the file or an override; NULL: null, or it is not given. */
static treadle_status value_of(const treadle_config_reader *reader, const char *path, const char **text_p) {
  char name[128];
  const char *text;
  treadle_status status;
  *text_p = NULL;
  snprintf(name, sizeof name, "${oc.select:%s,null}", path);
  TRY(treadle_train_expand(&reader->names, path, NULL, name, &text));
  if (!treadle_train_is_null(text)) *text_p = text;
out:
  return status;
}

static treadle_status truth_of(const treadle_config_reader *reader, const char *path, bool otherwise,
                               bool *truth_p) {
  const char *text;
  treadle_status status;
  *truth_p = otherwise;
  TRY(value_of(reader, path, &text));
  if (text && !treadle_yaml_truth(text, truth_p))
    REFUSE("%s: %s is '%s', and must be true or false", reader->config->file, path,
           treadle_text_shown(text));
out:
  return status;
}

static treadle_status number_of(const treadle_config_reader *reader, const char *path, double otherwise,
                                double *number_p) {
  const char *text, *number;
  char digits[TREADLE_YAML_NUMBER];
  treadle_status status;
  *number_p = otherwise;
  TRY(value_of(reader, path, &text));
  number = text ? treadle_yaml_number(text, digits) : NULL;
  if (text && (!number || !treadle_text_to_real(number, number_p)))
    REFUSE("%s: %s is '%s', and must be a number", reader->config->file, path, treadle_text_shown(text));
out:
  return status;
}

static bool is_from(const treadle_train_config *config, int key, const char *name) {
  return config->sources[key].name && strcmp(config->sources[key].name, name) == 0;
}

static void settle_as(treadle_train_config *config, int key, const char *text, const char *why) {
  config->sources[key] = (treadle_train_source){.from = TREADLE_FROM_RULE, .text = text, .why = why};
}

/* Its KL in the loss is kl_beta; that of REINFORCE++ in the rewards reinpp_kl_beta. */
static treadle_status settle_kl(treadle_config_reader *reader) {
  treadle_train_config *config = reader->config;
  const bool is_plus =
      config->sources[KEY(rl.advantage.estimator)].text &&
      strncmp(config->sources[KEY(rl.advantage.estimator)].text, "reinforce_plus_plus", 19) == 0;
  double loss, rewards;
  treadle_status status;
  TRY(number_of(reader, "algorithm.kl_beta", 0, &loss));
  TRY(number_of(reader, "algorithm.reinpp_kl_beta", 0, &rewards));
  if (!is_plus) rewards = 0;
  if (loss > 0 && rewards > 0)
    REFUSE("%s: algorithm.kl_beta is %g, and algorithm.reinpp_kl_beta %g: the KL would count twice",
           config->file, loss, rewards);
  if (loss > 0 && !config->sources[KEY(rl.kl.in_loss)].text &&
      is_from(config, KEY(rl.kl.init_coef), "algorithm.kl_beta"))
    settle_as(config, KEY(rl.kl.in_loss), "true", "by algorithm.kl_beta");
  if (rewards > 0 && !config->sources[KEY(rl.kl.in_reward)].text &&
      is_from(config, KEY(rl.kl.init_coef), "algorithm.reinpp_kl_beta"))
    settle_as(config, KEY(rl.kl.in_reward), "true", "by algorithm.reinpp_kl_beta");
out:
  return status;
}

static treadle_status settle_estimator(treadle_config_reader *reader) {
  treadle_train_config *config = reader->config;
  treadle_train_source *source = &config->sources[KEY(rl.advantage.estimator)];
  bool has_baseline, has_entropy, has_scale;
  treadle_status status;
  TRY(truth_of(reader, "algorithm.use_reinpp_baseline", false, &has_baseline));
  TRY(truth_of(reader, "algorithm.calculate_entropy", true, &has_entropy));
  TRY(truth_of(reader, "algorithm.use_valid_token_scale", true, &has_scale));
  if (has_baseline && source->text && is_from(config, KEY(rl.advantage.estimator), "algorithm.adv_type") &&
      strcmp(source->text, "reinforce_plus_plus") == 0)
    source->text = "reinforce_plus_plus_baseline";
  if (source->text && is_from(config, KEY(rl.advantage.estimator), "algorithm.adv_type") &&
      strcmp(source->text, "gae") == 0)
    REFUSE("%s: algorithm.adv_type is 'gae', and keys of RLinf's critic are not read here: say "
           "rl_config.adv_estimator=gae and critic_config",
           config->file);
  if (!has_entropy && is_from(config, KEY(rl.loss.entropy_coeff), "algorithm.entropy_bonus"))
    settle_as(config, KEY(rl.loss.entropy_coeff), "0", "by algorithm.calculate_entropy");
  if (!has_scale && is_from(config, KEY(rl.loss.agg_mode), "algorithm.loss_agg_func") &&
      strcmp(config->sources[KEY(rl.loss.agg_mode)].text, "token-mean") == 0)
    TRY(treadle_train_config_warn(
        config,
        treadle_arena_format(&config->arena,
                             "%s: algorithm.loss_agg_func=token-mean is over each mini batch, as with "
                             "use_valid_token_scale=True; of micro batches of one sample, as without, "
                             "it is seq-mean-token-mean",
                             config->file)));
out:
  return status;
}

/* A reward is one of two numbers there, times a scale; advantages do not depend on where they lie, but on how far they are apart. */
static treadle_status settle_rewards(treadle_config_reader *reader) {
  double scale, least, most;
  const char *given;
  treadle_status status;
  TRY(value_of(reader, "reward.reward_scale", &given));
  TRY(number_of(reader, "reward.reward_scale", 1, &scale));
  TRY(number_of(reader, "reward.reward_min_val", -1, &least));
  TRY(number_of(reader, "reward.reward_max_val", 1, &most));
  if (given) reader->config->reward_spread = scale * (most - least);
  TRY(number_of(reader, "actor.lr_sched.lr_decay_iters", 0, &reader->config->lr_decay_iters));
out:
  return status;
}

/* A key that a file of RLinf has from one of its schedules gets what it has without it. */
static bool drop(treadle_train_config *config, int key, const char *name, const char *text) {
  if (!is_from(config, key, name)) return false;
  settle_as(config, key, text, "FSDP reads actor.optim alone");
  return true;
}

/* With FSDP RLinf reads actor.optim alone, and its optimizer is never Megatron's. Its learning rate stays what it is where no style is given. */
static treadle_status settle_optimizer(treadle_config_reader *reader) {
  treadle_train_config *config = reader->config;
  const treadle_train_source *backend = &config->sources[KEY(actor.strategy)];
  bool drops = false;
  if (is_from(config, KEY(actor.strategy), "actor.training_backend") &&
      strcmp(backend->text, "fsdp2") == 0) {
    drops |= drop(config, KEY(actor.lr_warmup_fraction), "actor.lr_sched.lr_warmup_fraction", NULL);
    drops |= drop(config, KEY(actor.min_lr), "actor.lr_sched.min_lr", NULL);
    drops |= drop(config, KEY(actor.lr_decay_style), "actor.lr_sched.lr_decay_style", "constant");
    drop(config, KEY(training.use_distributed_optimizer), "actor.optim.use_distributed_optimizer", NULL);
    config->lr_decay_iters = 0;
  }
  if (is_from(config, KEY(actor.lr), "actor.optim.lr") && !config->sources[KEY(actor.lr_decay_style)].text)
    settle_as(config, KEY(actor.lr_decay_style), "constant", "RLinf's default");
  return drops
             ? treadle_train_config_warn(
                   config, treadle_arena_format(&config->arena,
                                                "%s: actor.lr_sched has no effect with FSDP, as in RLinf, "
                                                "where actor.optim has the schedule",
                                                config->file))
             : TREADLE_OK;
}

/* In exact mode the generator's log-probabilities are the trainer's, to the bit: else which of the two are the old ones matters. */
static treadle_status check_old(treadle_config_reader *reader) {
  const char *exact = reader->config->sources[KEY(actor.exact)].text;
  bool computes_again, is_exact = true;
  treadle_status status;
  TRY(truth_of(reader, "algorithm.recompute_logprobs", true, &computes_again));
  if (exact) (void)treadle_yaml_truth(exact, &is_exact);
  if (!computes_again && !is_exact)
    REFUSE("%s: algorithm.recompute_logprobs is false: without actor_config.exact the old "
           "log-probabilities are "
           "always computed again",
           reader->config->file);
out:
  return status;
}

/* Runs of others end after this many passes over their data, too. */
static treadle_status settle_epochs(treadle_config_reader *reader) {
  double of_verl, of_rlinf;
  treadle_status status;
  TRY(number_of(reader, "trainer.total_epochs", 0, &of_verl));
  TRY(number_of(reader, "runner.max_epochs", 0, &of_rlinf));
  reader->config->most_epochs = of_verl > 0 ? of_verl : of_rlinf;
out:
  return status;
}

treadle_status treadle_others_settle(treadle_config_reader *reader) {
  treadle_status status;
  TRY(settle_epochs(reader));
  TRY(check_old(reader));
  TRY(settle_estimator(reader));
  TRY(settle_kl(reader));
  TRY(settle_rewards(reader));
  TRY(settle_optimizer(reader));
out:
  return status;
}
