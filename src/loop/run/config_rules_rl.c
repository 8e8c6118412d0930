/* What keys of reinforcement learning say together. */
#include "run/config_given.h"

#include "base/real.h"
#include "base/text.h"
#include "base/utf8.h"

#include <string.h>

#define KEY(member)   TREADLE_KEY_OF(member)
#define PLACE(member) treadle_train_config_place(config, KEY(member))
#define GIVEN(member) treadle_train_config_is_given(config, KEY(member))

enum { GROUP_NORM, GRPO, RLOO, PLUS_PLUS, PLUS_PLUS_BASELINE, GAE };
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

/* Samples of a group are alike where their scores are, before a penalty: that is verl's score, and its acc where a score is right or wrong;
 * and MindSpeed-RL's name of a verifier, where that is the only one. */
static treadle_status check_metric(const treadle_train_config *config) {
  static const char *const scores[] = {"score", "acc", "seq_reward"};
  const treadle_train_settings *s = &config->settings;
  const char *metric = s->rl.filter_groups.metric;
  bool is_score = treadle_text_starts(config->sources[KEY(rl.filter_groups.metric)].name, "rl_config.") &&
                  s->rl.verifier.function.count < 2;
  for (size_t i = 0; i < sizeof scores / sizeof *scores; i++)
    is_score = is_score || strcmp(metric, scores[i]) == 0;
  if (!is_score)
    REFUSE("%s: %s is '%s': groups are left out by their scores alone, which is `score`", config->file,
           PLACE(rl.filter_groups.metric), treadle_text_shown(metric));
  if (strcmp(metric, "seq_reward") == 0 && s->rl.lengths.overlong_buffer_enable)
    REFUSE("%s: %s is seq_reward, which has the penalty of %s in it: groups are left out by their scores "
           "without it, which is `score`",
           config->file, PLACE(rl.filter_groups.metric), PLACE(rl.lengths.overlong_buffer_enable));
  return TREADLE_OK;
}

/* A template that is not used has no variables. */
static treadle_status check_template(treadle_train_config *config) {
  if (config->settings.rl.data.apply_chat_template || !GIVEN(rl.data.chat_template_kwargs))
    return TREADLE_OK;
  return treadle_train_config_warn_of(config, PLACE(rl.data.chat_template_kwargs),
                                      "has no effect without apply_chat_template");
}

static treadle_status check_filter(treadle_train_config *config) {
  const treadle_config_filter *filter = &config->settings.rl.filter_groups;
  const int keys[] = {KEY(rl.filter_groups.train_batch_size), KEY(rl.filter_groups.gen_batch_size)};
  treadle_status status = TREADLE_OK;
  if (filter->enable && GIVEN(rl.filter_groups.metric)) TRY(check_metric(config));
  for (size_t i = 0; !filter->enable && i < sizeof keys / sizeof *keys; i++)
    if (treadle_train_config_is_given(config, keys[i]) && !treadle_train_config_is_default(config, keys[i]))
      TRY(treadle_train_config_warn_of(config, treadle_train_config_place(config, keys[i]),
                                       "has no effect without filter_groups_enable"));
out:
  return status;
}

/* MindSpeed-RL's files have a seq_length that says nothing of prompts and responses, which have lengths of their own. */
static treadle_status settle_length(treadle_train_config *config) {
  treadle_train_settings *s = &config->settings;
  const int64_t most = s->rl.lengths.max_prompt_length + s->sampling.max_tokens;
  treadle_status status;
  if (!s->training.seq_length || !s->rl.lengths.max_prompt_length || !s->sampling.max_tokens ||
      s->training.seq_length >= most)
    return TREADLE_OK;
  status = treadle_train_config_warn(
      config, treadle_arena_format(&config->arena,
                                   "%s: %s is %lld, and gives way to %s and %s, %lld "
                                   "tokens together",
                                   config->file, PLACE(training.seq_length),
                                   (long long)s->training.seq_length, PLACE(rl.lengths.max_prompt_length),
                                   PLACE(sampling.max_tokens), (long long)most));
  s->training.seq_length = most;
  treadle_train_config_follow(config, KEY(training.seq_length), "prompt and response");
  return status;
}

/* ---- The optimizer ---- */

static treadle_status take_beta(treadle_train_config *config, int key, size_t item) {
  const char *text = config->settings.actor.adam_betas.items[item];
  double *to = (double *)((char *)&config->settings + treadle_train_keys[key].at), beta;
  if (!treadle_text_to_real(text, &beta) || beta < 0 || beta >= 1)
    REFUSE("%s: %s: item %zu is '%s', and must be a number, 0 to below 1", config->file,
           PLACE(actor.adam_betas), item, treadle_text_shown(text));
  if (treadle_train_config_is_given(config, key) && beta != *to)
    REFUSE("%s: %s has %s, and %s is another one", config->file, PLACE(actor.adam_betas), text,
           treadle_train_config_place(config, key));
  *to = beta;
  treadle_train_config_follow(config, key, "by adam_betas");
  return TREADLE_OK;
}

static treadle_status settle_betas(treadle_train_config *config) {
  treadle_train_list *betas = &config->settings.actor.adam_betas;
  treadle_status status = TREADLE_OK;
  if (!GIVEN(actor.adam_betas)) return TREADLE_OK;
  if (betas->count != 2)
    REFUSE("%s: %s has %s, and must have two: adam_beta1 and adam_beta2", config->file,
           PLACE(actor.adam_betas), treadle_text_of_count((int64_t)betas->count, "item"));
  TRY(take_beta(config, KEY(actor.adam_beta1), 0));
  TRY(take_beta(config, KEY(actor.adam_beta2), 1));
  *betas = (treadle_train_list){0};
  leave_out(config, KEY(actor.adam_betas), "adam_beta1 and adam_beta2");
out:
  return status;
}

/* A penalty for long responses, of which none is longer than `response`: it begins before that. Behind rollout_max_tokens it goes on to grow. */
static treadle_status check_penalty(const treadle_train_config *config, int64_t response) {
  const treadle_config_lengths *lengths = &config->settings.rl.lengths;
  const int64_t longest = lengths->rollout_max_tokens ? lengths->rollout_max_tokens : response;
  const int key =
      lengths->rollout_max_tokens ? KEY(rl.lengths.rollout_max_tokens) : KEY(sampling.max_tokens);
  if (!lengths->overlong_buffer_enable || !longest) return TREADLE_OK;
  if (lengths->overlong_buffer > longest)
    REFUSE("%s: %s is %lld, more than %s, which is %lld", config->file, PLACE(rl.lengths.overlong_buffer),
           (long long)lengths->overlong_buffer, treadle_train_config_place(config, key),
           (long long)longest);
  if (response && longest - lengths->overlong_buffer >= response)
    REFUSE("%s: %s is %lld, and %s %lld: the penalty begins behind %s, and responses have %lld "
           "at most, %s",
           config->file, PLACE(rl.lengths.rollout_max_tokens), (long long)longest,
           PLACE(rl.lengths.overlong_buffer), (long long)lengths->overlong_buffer,
           treadle_text_of_count(longest - lengths->overlong_buffer, "token"), (long long)response,
           PLACE(sampling.max_tokens));
  return TREADLE_OK;
}

treadle_status treadle_train_config_check_lengths(const treadle_train_config *config, int64_t prompt,
                                                  int64_t response) {
  const int64_t most = config->settings.generate.max_model_len;
  if (most && prompt && response && most < prompt + response)
    REFUSE("%s: %s is %lld, less than prompts of %s, %s, and responses of %lld, %s", config->file,
           PLACE(generate.max_model_len), (long long)most, treadle_text_of_count(prompt, "token"),
           PLACE(rl.lengths.max_prompt_length), (long long)response, PLACE(sampling.max_tokens));
  return check_penalty(config, response);
}

/* ---- The estimator ---- */

static treadle_status check_groups(const treadle_train_config *config) {
  const treadle_train_settings *s = &config->settings;
  if (s->rl.advantage.estimator != PLUS_PLUS && s->rl.advantage.estimator != GAE &&
      s->rl.batches.n_samples_per_prompt < 2)
    REFUSE("%s: %s is %lld, and %s, %s, compares the samples of a prompt: 2 at least", config->file,
           PLACE(rl.batches.n_samples_per_prompt), (long long)s->rl.batches.n_samples_per_prompt,
           PLACE(rl.advantage.estimator),
           treadle_train_keys[KEY(rl.advantage.estimator)].words[s->rl.advantage.estimator]);
  return TREADLE_OK;
}

/* ---- Sampling ---- */

bool treadle_train_cuts(const treadle_config_sampling *s) {
  return s->top_k > 0 || s->top_p < 1 || s->min_p > 0;
}

/* Below GREEDY the largest logit is taken, as in vLLM: that has no distribution to train. */
static treadle_status check_sampling(treadle_train_config *config) {
  static const double GREEDY = 1e-5;
  const treadle_config_sampling *sampling = &config->settings.sampling;
  const treadle_config_logprobs *logprobs = &config->settings.rl.logprobs;
  const bool full = logprobs->sampling_support == TREADLE_SUPPORT_FULL, cuts = treadle_train_cuts(sampling);
  treadle_status status = TREADLE_OK;
  if (sampling->temperature < GREEDY)
    REFUSE("%s: %s is %g: all samples of a prompt would be the same, since below %g the most probable "
           "token is taken, which is not a distribution to train",
           config->file, PLACE(sampling.temperature), sampling->temperature, GREEDY);
  if (!full && (sampling->top_k == 1 || sampling->min_p >= 1 ||
                (cuts && sampling->top_k <= 0 && logprobs->sampling_support_most == 1)))
    REFUSE("%s: %s leaves one token of each distribution: all samples of a prompt would be the same, "
           "and their log-probabilities 0, which has no gradient",
           config->file,
           sampling->top_k == 1   ? PLACE(sampling.top_k)
           : sampling->min_p >= 1 ? PLACE(sampling.min_p)
                                  : PLACE(rl.logprobs.sampling_support_most));
  if (full && cuts)
    TRY(treadle_train_config_warn_of(
        config, PLACE(rl.logprobs.sampling_support),
        "is full: tokens are drawn from what top_p, top_k and min_p leave, and log-probabilities are "
        "of the whole vocabulary, which is a bias"));
  if (GIVEN(rl.logprobs.sampling_support_most) &&
      !treadle_train_config_is_default(config, KEY(rl.logprobs.sampling_support_most)) &&
      (full || !cuts || sampling->top_k > 0))
    TRY(treadle_train_config_warn_of(config, PLACE(rl.logprobs.sampling_support_most),
                                     full ? "has no effect with sampling_support: full"
                                     : sampling->top_k > 0
                                         ? "has no effect beside top_k, which is the most that a cut leaves"
                                         : "has no effect without top_p or min_p"));
out:
  return status;
}

/* ---- The loss ---- */

/* One of two bounds: MindSpeed-RL has a switch for both, verl has none. */
static treadle_status settle_bound(treadle_train_config *config, int key, double *bound) {
  const treadle_config_loss *loss = &config->settings.rl.loss;
  const bool is_given = treadle_train_config_is_given(config, key);
  treadle_status status = TREADLE_OK;
  if (loss->clip_higher_enable && is_given) return TREADLE_OK;
  if (is_given && *bound != loss->clip_ratio)
    status = treadle_train_config_warn_of(config, treadle_train_config_place(config, key),
                                          "has no effect without clip_higher_enable");
  *bound = loss->clip_ratio;
  treadle_train_config_follow(config, key, "as clip_ratio");
  return status;
}

static treadle_status settle_bounds(treadle_train_config *config) {
  treadle_config_loss *loss = &config->settings.rl.loss;
  const int keys[] = {KEY(rl.loss.clip_ratio_low), KEY(rl.loss.clip_ratio_high)};
  treadle_status status;
  for (size_t i = 0; i < sizeof keys / sizeof *keys && !GIVEN(rl.loss.clip_higher_enable); i++)
    if (treadle_train_config_is_given(config, keys[i]) &&
        treadle_given_is_of_verl(config->sources[keys[i]].name)) {
      loss->clip_higher_enable = true;
      treadle_train_config_follow(config, KEY(rl.loss.clip_higher_enable), "by its bounds");
    }
  TRY(settle_bound(config, keys[0], &loss->clip_ratio_low));
  TRY(settle_bound(config, keys[1], &loss->clip_ratio_high));
out:
  return status;
}

static treadle_status settle_loss(treadle_train_config *config) {
  treadle_config_loss *loss = &config->settings.rl.loss;
  treadle_status status;
  TRY(settle_bounds(config));
  if (loss->clip_ratio_low > 1)
    REFUSE("%s: %s is %g: a ratio is never below 0, so 1 at most", config->file,
           PLACE(rl.loss.clip_ratio_low), loss->clip_ratio_low);
  if (GIVEN(rl.loss.token_level) && GIVEN(rl.loss.agg_mode))
    REFUSE("%s: %s and %s exclude each other", config->file, PLACE(rl.loss.token_level),
           PLACE(rl.loss.agg_mode));
  if (GIVEN(rl.loss.agg_mode)) {
    leave_out(config, KEY(rl.loss.token_level), "by loss_agg_mode");
    return TREADLE_OK;
  }
  loss->agg_mode = loss->token_level ? TOKEN_MEAN : SEQ_MEAN_TOKEN_MEAN;
  leave_out(config, KEY(rl.loss.agg_mode), "by token_level_loss");
out:
  return status;
}

/* MindSpeed-RL's GRPO has no switch for the KL: the loss has it, with its coefficient. */
static void settle_kl_loss(treadle_train_config *config) {
  treadle_config_kl *kl = &config->settings.rl.kl;
  const treadle_train_source *coefficient = &config->sources[KEY(rl.kl.init_coef)];
  if (GIVEN(rl.kl.in_loss) || GIVEN(rl.kl.in_reward) || !GIVEN(rl.kl.init_coef)) return;
  if (!treadle_text_starts(coefficient->name, "rl_config.") || kl->init_coef == 0) return;
  kl->in_loss = true;
  treadle_train_config_follow(config, KEY(rl.kl.in_loss), "by init_kl_coef");
}

static treadle_status settle_kl(treadle_train_config *config) {
  const treadle_config_kl *kl = &config->settings.rl.kl;
  const int keys[] = {KEY(rl.kl.penalty), KEY(rl.kl.ctrl_type), KEY(rl.kl.target), KEY(rl.kl.horizon),
                      KEY(rl.kl.ref_model)};
  treadle_status status = TREADLE_OK;
  settle_kl_loss(config);
  if (kl->in_loss && kl->in_reward)
    REFUSE("%s: %s and %s: the KL would count twice", config->file, PLACE(rl.kl.in_loss),
           PLACE(rl.kl.in_reward));
  for (size_t i = 0; !kl->in_loss && !kl->in_reward && i < sizeof keys / sizeof *keys; i++)
    if (treadle_train_config_is_given(config, keys[i]) && !treadle_train_config_is_default(config, keys[i]))
      TRY(treadle_train_config_warn_of(config, treadle_train_config_place(config, keys[i]),
                                       "has no effect without use_kl_loss or use_kl_in_reward"));
out:
  return status;
}

/* ---- Rewards ---- */

/* RLinf's two rewards, so far apart as its scale and bounds say. */
static treadle_status settle_spread(treadle_train_config *config) {
  treadle_train_list *list = &config->settings.rl.verifier.weight;
  const size_t count = config->settings.rl.verifier.function.count;
  char digits[TREADLE_REAL_BYTES];
  if (config->reward_spread == 0 || GIVEN(rl.verifier.weight) || !count) return TREADLE_OK;
  treadle_text_of_real(digits, config->reward_spread);
  const char *text = treadle_arena_copy_text(&config->arena, digits);
  const char **items = treadle_arena_alloc_array(&config->arena, count, sizeof *items);
  if (!text || !items) return treadle_given_no_memory(config);
  for (size_t i = 0; i < count; i++) items[i] = text;
  *list = (treadle_train_list){items, count};
  treadle_train_config_follow(config, KEY(rl.verifier.weight), "by reward.reward_scale");
  return TREADLE_OK;
}

static treadle_status check_rewards(const treadle_train_config *config) {
  const treadle_config_verifier *verifier = &config->settings.rl.verifier;
  const treadle_config_lengths *lengths = &config->settings.rl.lengths;
  double weight;
  bool commands = false;
  for (size_t i = 0; i < verifier->weight.count; i++)
    if (!treadle_text_to_real(verifier->weight.items[i], &weight))
      REFUSE("%s: %s: item %zu is '%s', and must be a number", config->file, PLACE(rl.verifier.weight), i,
             treadle_text_shown(verifier->weight.items[i]));
  if (verifier->weight.count && verifier->weight.count != verifier->function.count)
    REFUSE("%s: %s has %s, and %s %zu: there must be as many", config->file, PLACE(rl.verifier.weight),
           treadle_text_of_count((int64_t)verifier->weight.count, "item"), PLACE(rl.verifier.function),
           verifier->function.count);
  for (size_t i = 0; i < verifier->function.count; i++)
    commands = commands || strcmp(verifier->function.items[i], "command") == 0;
  if (commands && !verifier->command)
    REFUSE("%s: %s has `command`, and needs rl_config.verifier_command: what is run", config->file,
           PLACE(rl.verifier.function));
  if (lengths->overlong_buffer_enable && lengths->overlong_buffer < 1)
    REFUSE("%s: %s needs rl_config.overlong_buffer, 1 token at least", config->file,
           PLACE(rl.lengths.overlong_buffer_enable));
  return TREADLE_OK;
}

/* ---- Tests ---- */

static treadle_status settle_tests(treadle_train_config *config) {
  treadle_config_validation *validation = &config->settings.rl.validation;
  const treadle_config_sampling *sampling = &config->settings.sampling;
  if (!GIVEN(rl.validation.temperature)) {
    validation->temperature = sampling->temperature;
    treadle_train_config_follow(config, KEY(rl.validation.temperature), "as sampling_config.temperature");
  }
  if (validation->temperature == 0 && !validation->greedy && GIVEN(rl.validation.greedy))
    REFUSE("%s: %s is 0, and by %s a test draws", config->file, PLACE(rl.validation.temperature),
           PLACE(rl.validation.greedy));
  if (validation->temperature == 0 && !validation->greedy) {
    validation->greedy = true;
    treadle_train_config_follow(config, KEY(rl.validation.greedy), "by val_temperature");
  }
  if (!GIVEN(rl.validation.top_p)) {
    validation->top_p = sampling->top_p;
    treadle_train_config_follow(config, KEY(rl.validation.top_p), "as sampling_config.top_p");
  }
  if (!GIVEN(rl.validation.top_k)) {
    validation->top_k = sampling->top_k;
    treadle_train_config_follow(config, KEY(rl.validation.top_k), "as sampling_config.top_k");
  }
  return TREADLE_OK;
}

/* ---- The layout ---- */

static treadle_status check_infer(treadle_train_config *config) {
  const treadle_config_generate *generate = &config->settings.generate;
  const int64_t seq_length = config->settings.training.seq_length;
  const int sizes[] = {KEY(generate.infer_tensor_parallel_size), KEY(generate.infer_pipeline_parallel_size),
                       KEY(generate.infer_expert_parallel_size)};
  for (size_t i = 0; generate->layout && i < sizeof sizes / sizeof *sizes; i++) {
    if (treadle_train_config_is_given(config, sizes[i]))
      REFUSE("%s: %s and %s exclude each other", config->file, treadle_train_config_place(config, sizes[i]),
             PLACE(generate.layout));
    leave_out(config, sizes[i], "by generate_config.layout");
  }
  if (generate->infer_expert_parallel_size > 1 &&
      generate->infer_expert_parallel_size % generate->infer_tensor_parallel_size != 0)
    REFUSE("%s: %s is %lld: 1, or a multiple of %s, which is %lld", config->file,
           PLACE(generate.infer_expert_parallel_size), (long long)generate->infer_expert_parallel_size,
           PLACE(generate.infer_tensor_parallel_size), (long long)generate->infer_tensor_parallel_size);
  if (generate->max_model_len && seq_length && generate->max_model_len < seq_length)
    REFUSE("%s: %s is %lld, less than %s, which is %lld", config->file, PLACE(generate.max_model_len),
           (long long)generate->max_model_len, PLACE(training.seq_length), (long long)seq_length);
  return TREADLE_OK;
}

treadle_status treadle_train_config_settle_pools_alone(treadle_train_config *config) {
  treadle_status status;
  TRY(settle_kl(config)); /* whether there is a reference */
  TRY(treadle_train_config_settle_pools(config));
out:
  return status;
}

treadle_status treadle_train_config_settle_rl(treadle_train_config *config) {
  treadle_status status;
  if (!GIVEN(sampling.seed)) {
    config->settings.sampling.seed = config->settings.training.seed;
    treadle_train_config_follow(config, KEY(sampling.seed), "as megatron_training.seed");
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
  TRY(treadle_train_config_check_lengths(config, config->settings.rl.lengths.max_prompt_length,
                                         config->settings.sampling.max_tokens));
  TRY(settle_tests(config));
  TRY(check_infer(config));
  TRY(treadle_train_config_settle_start(config));
  TRY(treadle_train_config_settle_pools(config));
  TRY(treadle_train_config_settle_critic(config));
  TRY(treadle_train_config_settle_reward(config));
  TRY(treadle_train_config_settle_reference(config));
out:
  return status;
}
