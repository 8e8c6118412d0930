/* What keys of reinforcement learning say together. */
#include "run/config_given.h"

#include "base/real.h"
#include "base/text.h"
#include "base/utf8.h"

#include <string.h>

#define KEY(member)   TREADLE_KEY_OF(member)
#define PLACE(member) treadle_train_config_place(config, KEY(member))
#define GIVEN(member) treadle_train_config_is_given(config, KEY(member))

enum { GROUP_NORM, GRPO, RLOO, PLUS_PLUS, PLUS_PLUS_BASELINE };
enum { TOKEN_MEAN = 0, SEQ_MEAN_TOKEN_MEAN = 2 };

treadle_status treadle_train_config_warn_of(treadle_train_config *config, const char *place,
                                            const char *why) {
  return treadle_train_config_warn(
      config, treadle_arena_format(&config->arena, "%s: %s %s", config->file, place, why));
}

/* The key has no value: the resolved text says null. */
static void leave_out(treadle_train_config *config, int key, const char *why) {
  treadle_train_config_follow(config, key, why);
  config->sources[key].left_out = true;
}

/* As the resolved text of a run has it. */
static bool is_default(const treadle_train_config *config, int key) {
  double a, b;
  const char *text = config->sources[key].text, *otherwise = treadle_train_keys[key].otherwise;
  if (!otherwise) return false;
  return strcmp(text, otherwise) == 0 ||
         (treadle_text_to_real(text, &a) && treadle_text_to_real(otherwise, &b) && a == b);
}

/* Samples of a group are alike where their scores are, before a penalty: that is verl's score, and its acc where a score is right or wrong;
 * and MindSpeed-RL's name of a verifier, where that is the only one. */
static treadle_status check_metric(const treadle_train_config *config) {
  static const char *const scores[] = {"score", "acc", "seq_reward"};
  const treadle_train_settings *s = &config->settings;
  const char *metric = s->filter_groups_metric;
  bool is_score = treadle_text_starts(config->sources[KEY(filter_groups_metric)].name, "rl_config.") &&
                  s->verifier_function.count < 2;
  for (size_t i = 0; i < sizeof scores / sizeof *scores; i++)
    is_score = is_score || strcmp(metric, scores[i]) == 0;
  if (!is_score)
    REFUSE("%s: %s is '%s': groups are left out by their scores alone, which is `score`", config->file,
           PLACE(filter_groups_metric), treadle_text_shown(metric));
  if (strcmp(metric, "seq_reward") == 0 && s->overlong_buffer_enable)
    REFUSE("%s: %s is seq_reward, which has the penalty of %s in it: groups are left out by their scores "
           "without it, which is `score`",
           config->file, PLACE(filter_groups_metric), PLACE(overlong_buffer_enable));
  return TREADLE_OK;
}

/* A template that is not used has no variables. */
static treadle_status check_template(treadle_train_config *config) {
  if (config->settings.apply_chat_template || !GIVEN(chat_template_kwargs)) return TREADLE_OK;
  return treadle_train_config_warn_of(config, PLACE(chat_template_kwargs),
                                      "has no effect without apply_chat_template");
}

static treadle_status check_filter(treadle_train_config *config) {
  const treadle_train_settings *s = &config->settings;
  const int keys[] = {KEY(filter_groups_train_batch_size), KEY(gen_batch_size)};
  treadle_status status = TREADLE_OK;
  if (s->filter_groups_enable && GIVEN(filter_groups_metric)) TRY(check_metric(config));
  for (size_t i = 0; !s->filter_groups_enable && i < sizeof keys / sizeof *keys; i++)
    if (treadle_train_config_is_given(config, keys[i]) && !is_default(config, keys[i]))
      TRY(treadle_train_config_warn_of(config, treadle_train_config_place(config, keys[i]),
                                       "has no effect without filter_groups_enable"));
out:
  return status;
}

/* MindSpeed-RL's files have a seq_length that says nothing of prompts and responses, which have lengths of their own. */
static treadle_status settle_length(treadle_train_config *config) {
  treadle_train_settings *s = &config->settings;
  const int64_t most = s->max_prompt_length + s->max_tokens;
  treadle_status status;
  if (!s->seq_length || !s->max_prompt_length || !s->max_tokens || s->seq_length >= most) return TREADLE_OK;
  status = treadle_train_config_warn(
      config, treadle_arena_format(&config->arena,
                                   "%s: %s is %lld, and gives way to %s and %s, %lld "
                                   "tokens together",
                                   config->file, PLACE(seq_length), (long long)s->seq_length,
                                   PLACE(max_prompt_length), PLACE(max_tokens), (long long)most));
  s->seq_length = most;
  treadle_train_config_follow(config, KEY(seq_length), "prompt and response");
  return status;
}

/* ---- The optimizer ---- */

static treadle_status take_beta(treadle_train_config *config, int key, size_t item) {
  const char *text = config->settings.adam_betas.items[item];
  double *to = (double *)((char *)&config->settings + treadle_train_keys[key].at), beta;
  if (!treadle_text_to_real(text, &beta) || beta < 0 || beta >= 1)
    REFUSE("%s: %s: item %zu is '%s', and must be a number, 0 to below 1", config->file, PLACE(adam_betas),
           item, treadle_text_shown(text));
  if (treadle_train_config_is_given(config, key) && beta != *to)
    REFUSE("%s: %s has %s, and %s is another one", config->file, PLACE(adam_betas), text,
           treadle_train_config_place(config, key));
  *to = beta;
  treadle_train_config_follow(config, key, "by adam_betas");
  return TREADLE_OK;
}

static treadle_status settle_betas(treadle_train_config *config) {
  treadle_train_settings *s = &config->settings;
  treadle_status status = TREADLE_OK;
  if (!GIVEN(adam_betas)) return TREADLE_OK;
  if (s->adam_betas.count != 2)
    REFUSE("%s: %s has %s, and must have two: adam_beta1 and adam_beta2", config->file, PLACE(adam_betas),
           treadle_text_of_count((int64_t)s->adam_betas.count, "item"));
  TRY(take_beta(config, KEY(adam_beta1), 0));
  TRY(take_beta(config, KEY(adam_beta2), 1));
  s->adam_betas = (treadle_train_list){0};
  leave_out(config, KEY(adam_betas), "adam_beta1 and adam_beta2");
out:
  return status;
}

/* A penalty for long responses, of which none is longer than `response`: it begins before that. Behind rollout_max_tokens it goes on to grow. */
static treadle_status check_penalty(const treadle_train_config *config, int64_t response) {
  const treadle_train_settings *s = &config->settings;
  const int64_t longest = s->rollout_max_tokens ? s->rollout_max_tokens : response;
  const int key = s->rollout_max_tokens ? KEY(rollout_max_tokens) : KEY(max_tokens);
  if (!s->overlong_buffer_enable || !longest) return TREADLE_OK;
  if (s->overlong_buffer > longest)
    REFUSE("%s: %s is %lld, more than %s, which is %lld", config->file, PLACE(overlong_buffer),
           (long long)s->overlong_buffer, treadle_train_config_place(config, key), (long long)longest);
  if (response && longest - s->overlong_buffer >= response)
    REFUSE("%s: %s is %lld, and %s %lld: the penalty begins behind %s, and responses have %lld "
           "at most, %s",
           config->file, PLACE(rollout_max_tokens), (long long)longest, PLACE(overlong_buffer),
           (long long)s->overlong_buffer, treadle_text_of_count(longest - s->overlong_buffer, "token"),
           (long long)response, PLACE(max_tokens));
  return TREADLE_OK;
}

treadle_status treadle_train_config_check_lengths(const treadle_train_config *config, int64_t prompt,
                                                  int64_t response) {
  const treadle_train_settings *s = &config->settings;
  if (s->max_model_len && prompt && response && s->max_model_len < prompt + response)
    REFUSE("%s: %s is %lld, less than prompts of %s, %s, and responses of %lld, %s", config->file,
           PLACE(max_model_len), (long long)s->max_model_len, treadle_text_of_count(prompt, "token"),
           PLACE(max_prompt_length), (long long)response, PLACE(max_tokens));
  return check_penalty(config, response);
}

/* ---- The estimator ---- */

static treadle_status check_groups(const treadle_train_config *config) {
  const treadle_train_settings *s = &config->settings;
  if (s->adv_estimator != PLUS_PLUS && s->n_samples_per_prompt < 2)
    REFUSE("%s: %s is %lld, and %s, %s, compares the samples of a prompt: 2 at least", config->file,
           PLACE(n_samples_per_prompt), (long long)s->n_samples_per_prompt, PLACE(adv_estimator),
           treadle_train_keys[KEY(adv_estimator)].words[s->adv_estimator]);
  return TREADLE_OK;
}

/* ---- Sampling ---- */

bool treadle_train_cuts(const treadle_train_settings *s) {
  return s->top_k > 0 || s->top_p < 1 || s->min_p > 0;
}

/* Below GREEDY the largest logit is taken, as in vLLM: that has no distribution to train. */
static treadle_status check_sampling(treadle_train_config *config) {
  static const double GREEDY = 1e-5;
  const treadle_train_settings *s = &config->settings;
  const bool full = s->sampling_support == TREADLE_SUPPORT_FULL, cuts = treadle_train_cuts(s);
  treadle_status status = TREADLE_OK;
  if (s->temperature < GREEDY)
    REFUSE("%s: %s is %g: all samples of a prompt would be the same, since below %g the most probable "
           "token is taken, which is not a distribution to train",
           config->file, PLACE(temperature), s->temperature, GREEDY);
  if (!full && (s->top_k == 1 || s->min_p >= 1 || (cuts && s->top_k <= 0 && s->sampling_support_most == 1)))
    REFUSE("%s: %s leaves one token of each distribution: all samples of a prompt would be the same, "
           "and their log-probabilities 0, which has no gradient",
           config->file,
           s->top_k == 1   ? PLACE(top_k)
           : s->min_p >= 1 ? PLACE(min_p)
                           : PLACE(sampling_support_most));
  if (full && cuts)
    TRY(treadle_train_config_warn_of(
        config, PLACE(sampling_support),
        "is full: tokens are drawn from what top_p, top_k and min_p leave, and log-probabilities are "
        "of the whole vocabulary, which is a bias"));
  if (GIVEN(sampling_support_most) && !is_default(config, KEY(sampling_support_most)) &&
      (full || !cuts || s->top_k > 0))
    TRY(treadle_train_config_warn_of(config, PLACE(sampling_support_most),
                                     full ? "has no effect with sampling_support: full"
                                     : s->top_k > 0
                                         ? "has no effect beside top_k, which is the most that a cut leaves"
                                         : "has no effect without top_p or min_p"));
out:
  return status;
}

/* ---- The loss ---- */

/* One of two bounds: MindSpeed-RL has a switch for both, verl has none. */
static treadle_status settle_bound(treadle_train_config *config, int key, double *bound) {
  const treadle_train_settings *s = &config->settings;
  const bool is_given = treadle_train_config_is_given(config, key);
  treadle_status status = TREADLE_OK;
  if (s->clip_higher_enable && is_given) return TREADLE_OK;
  if (is_given && *bound != s->clip_ratio)
    status = treadle_train_config_warn_of(config, treadle_train_config_place(config, key),
                                          "has no effect without clip_higher_enable");
  *bound = s->clip_ratio;
  treadle_train_config_follow(config, key, "as clip_ratio");
  return status;
}

static treadle_status settle_bounds(treadle_train_config *config) {
  treadle_train_settings *s = &config->settings;
  const int keys[] = {KEY(clip_ratio_low), KEY(clip_ratio_high)};
  treadle_status status;
  for (size_t i = 0; i < sizeof keys / sizeof *keys && !GIVEN(clip_higher_enable); i++)
    if (treadle_train_config_is_given(config, keys[i]) &&
        treadle_given_is_of_verl(config->sources[keys[i]].name)) {
      s->clip_higher_enable = true;
      treadle_train_config_follow(config, KEY(clip_higher_enable), "by its bounds");
    }
  TRY(settle_bound(config, keys[0], &s->clip_ratio_low));
  TRY(settle_bound(config, keys[1], &s->clip_ratio_high));
out:
  return status;
}

static treadle_status settle_loss(treadle_train_config *config) {
  treadle_train_settings *s = &config->settings;
  treadle_status status;
  TRY(settle_bounds(config));
  if (s->clip_ratio_low > 1)
    REFUSE("%s: %s is %g: a ratio is never below 0, so 1 at most", config->file, PLACE(clip_ratio_low),
           s->clip_ratio_low);
  if (GIVEN(token_level_loss) && GIVEN(loss_agg_mode))
    REFUSE("%s: %s and %s exclude each other", config->file, PLACE(token_level_loss), PLACE(loss_agg_mode));
  if (GIVEN(loss_agg_mode)) {
    leave_out(config, KEY(token_level_loss), "by loss_agg_mode");
    return TREADLE_OK;
  }
  s->loss_agg_mode = s->token_level_loss ? TOKEN_MEAN : SEQ_MEAN_TOKEN_MEAN;
  leave_out(config, KEY(loss_agg_mode), "by token_level_loss");
out:
  return status;
}

/* MindSpeed-RL's GRPO has no switch for the KL: the loss has it, with its coefficient. */
static void settle_kl_loss(treadle_train_config *config) {
  treadle_train_settings *s = &config->settings;
  const treadle_train_source *coefficient = &config->sources[KEY(init_kl_coef)];
  if (GIVEN(use_kl_loss) || GIVEN(use_kl_in_reward) || !GIVEN(init_kl_coef)) return;
  if (!treadle_text_starts(coefficient->name, "rl_config.") || s->init_kl_coef == 0) return;
  s->use_kl_loss = true;
  treadle_train_config_follow(config, KEY(use_kl_loss), "by init_kl_coef");
}

static treadle_status settle_kl(treadle_train_config *config) {
  const treadle_train_settings *s = &config->settings;
  const int keys[] = {KEY(kl_penalty), KEY(kl_ctrl_type), KEY(kl_target), KEY(kl_horizon), KEY(ref_model)};
  treadle_status status = TREADLE_OK;
  settle_kl_loss(config);
  if (s->use_kl_loss && s->use_kl_in_reward)
    REFUSE("%s: %s and %s: the KL would count twice", config->file, PLACE(use_kl_loss),
           PLACE(use_kl_in_reward));
  for (size_t i = 0; !s->use_kl_loss && !s->use_kl_in_reward && i < sizeof keys / sizeof *keys; i++)
    if (treadle_train_config_is_given(config, keys[i]) && !is_default(config, keys[i]))
      TRY(treadle_train_config_warn_of(config, treadle_train_config_place(config, keys[i]),
                                       "has no effect without use_kl_loss or use_kl_in_reward"));
out:
  return status;
}

/* ---- Rewards ---- */

/* RLinf's two rewards, so far apart as its scale and bounds say. */
static treadle_status settle_spread(treadle_train_config *config) {
  treadle_train_list *list = &config->settings.verifier_weight;
  const size_t count = config->settings.verifier_function.count;
  char digits[TREADLE_REAL_BYTES];
  if (config->reward_spread == 0 || GIVEN(verifier_weight) || !count) return TREADLE_OK;
  treadle_text_of_real(digits, config->reward_spread);
  const char *text = treadle_arena_copy_text(&config->arena, digits);
  const char **items = treadle_arena_alloc_array(&config->arena, count, sizeof *items);
  if (!text || !items) return treadle_given_no_memory(config);
  for (size_t i = 0; i < count; i++) items[i] = text;
  *list = (treadle_train_list){items, count};
  treadle_train_config_follow(config, KEY(verifier_weight), "by reward.reward_scale");
  return TREADLE_OK;
}

static treadle_status check_rewards(const treadle_train_config *config) {
  const treadle_train_settings *s = &config->settings;
  double weight;
  bool commands = false;
  for (size_t i = 0; i < s->verifier_weight.count; i++)
    if (!treadle_text_to_real(s->verifier_weight.items[i], &weight))
      REFUSE("%s: %s: item %zu is '%s', and must be a number", config->file, PLACE(verifier_weight), i,
             treadle_text_shown(s->verifier_weight.items[i]));
  if (s->verifier_weight.count && s->verifier_weight.count != s->verifier_function.count)
    REFUSE("%s: %s has %s, and %s %zu: there must be as many", config->file, PLACE(verifier_weight),
           treadle_text_of_count((int64_t)s->verifier_weight.count, "item"), PLACE(verifier_function),
           s->verifier_function.count);
  for (size_t i = 0; i < s->verifier_function.count; i++)
    commands = commands || strcmp(s->verifier_function.items[i], "command") == 0;
  if (commands && !s->verifier_command)
    REFUSE("%s: %s has `command`, and needs rl_config.verifier_command: what is run", config->file,
           PLACE(verifier_function));
  if (s->overlong_buffer_enable && s->overlong_buffer < 1)
    REFUSE("%s: %s needs rl_config.overlong_buffer, 1 token at least", config->file,
           PLACE(overlong_buffer_enable));
  return TREADLE_OK;
}

/* ---- Tests ---- */

static treadle_status settle_tests(treadle_train_config *config) {
  treadle_train_settings *s = &config->settings;
  if (!GIVEN(val_temperature)) {
    s->val_temperature = s->temperature;
    treadle_train_config_follow(config, KEY(val_temperature), "as sampling_config.temperature");
  }
  if (s->val_temperature == 0 && !s->val_greedy && GIVEN(val_greedy))
    REFUSE("%s: %s is 0, and by %s a test draws", config->file, PLACE(val_temperature), PLACE(val_greedy));
  if (s->val_temperature == 0 && !s->val_greedy) {
    s->val_greedy = true;
    treadle_train_config_follow(config, KEY(val_greedy), "by val_temperature");
  }
  if (!GIVEN(val_top_p)) {
    s->val_top_p = s->top_p;
    treadle_train_config_follow(config, KEY(val_top_p), "as sampling_config.top_p");
  }
  if (!GIVEN(val_top_k)) {
    s->val_top_k = s->top_k;
    treadle_train_config_follow(config, KEY(val_top_k), "as sampling_config.top_k");
  }
  return TREADLE_OK;
}

/* ---- The layout ---- */

static treadle_status check_infer(treadle_train_config *config) {
  const treadle_train_settings *s = &config->settings;
  const int sizes[] = {KEY(infer_tensor_parallel_size), KEY(infer_pipeline_parallel_size),
                       KEY(infer_expert_parallel_size)};
  for (size_t i = 0; s->infer_layout && i < sizeof sizes / sizeof *sizes; i++) {
    if (treadle_train_config_is_given(config, sizes[i]))
      REFUSE("%s: %s and %s exclude each other", config->file, treadle_train_config_place(config, sizes[i]),
             PLACE(infer_layout));
    leave_out(config, sizes[i], "by generate_config.layout");
  }
  if (s->infer_expert_parallel_size > 1)
    REFUSE("%s: %s is %lld: training takes no experts yet", config->file, PLACE(infer_expert_parallel_size),
           (long long)s->infer_expert_parallel_size);
  if (s->max_model_len && s->seq_length && s->max_model_len < s->seq_length)
    REFUSE("%s: %s is %lld, less than %s, which is %lld", config->file, PLACE(max_model_len),
           (long long)s->max_model_len, PLACE(seq_length), (long long)s->seq_length);
  return TREADLE_OK;
}

treadle_status treadle_train_config_settle_rl(treadle_train_config *config) {
  treadle_status status;
  if (!GIVEN(sampling_seed)) {
    config->settings.sampling_seed = config->settings.seed;
    treadle_train_config_follow(config, KEY(sampling_seed), "as megatron_training.seed");
  }
  TRY(settle_betas(config));
  TRY(treadle_train_config_settle_batches(config));
  TRY(check_filter(config));
  TRY(check_template(config));
  TRY(settle_length(config));
  TRY(check_groups(config));
  TRY(check_sampling(config));
  TRY(settle_loss(config));
  TRY(settle_kl(config));
  TRY(settle_spread(config));
  TRY(check_rewards(config));
  TRY(treadle_train_config_check_lengths(config, config->settings.max_prompt_length,
                                         config->settings.max_tokens));
  TRY(settle_tests(config));
  TRY(check_infer(config));
  TRY(treadle_train_config_settle_start(config));
out:
  return status;
}
