/* A critic: which runs have one, and what it has from the actor. Without one, its keys are known names without effect. What verl's critic says
 * of a thing that the actor has alone must be the actor's value. */
#include "run/config_given.h"
#include "run/others.h"

#include "base/utf8.h"
#include "layout/settings.h"

#include <string.h>

#define KEY(member)   TREADLE_KEY_OF(member)
#define PLACE(member) treadle_train_config_place(config, KEY(member))
#define GIVEN(member) treadle_train_config_is_given(config, KEY(member))

/* The key has no value: the resolved text says null. */
static void leave_out(treadle_train_config *config, int key, const char *why) {
  treadle_train_config_follow(config, key, why);
  config->sources[key].left_out = true;
}

/* ---- What a file says ------------------------------------------------------------------------------------- */

treadle_status treadle_critic_look(treadle_config_reader *reader) {
  static const char *const names[] = {"rl_config.adv_estimator", "rl_config.adv-estimator",
                                      "algorithm.adv_estimator"};
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char name[64];
    const char *text;
    snprintf(name, sizeof name, "${oc.select:%s,null}", names[i]);
    TRY(treadle_train_expand(&reader->names, names[i], NULL, name, &text));
    reader->has_critic = reader->has_critic || strcmp(text, "gae") == 0;
  }
out:
  return status;
}

/* Of a path of a critic's, MindSpeed-RL's or verl's, the actor's. */
static bool find_twin(const char *path, char twin[TREADLE_TRAIN_PATH]) {
  static const struct {
    const char *critic, *actor;
  } places[] = {{"critic_config.", "actor_config."},
                {"critic.model.fsdp_config.", "actor_rollout_ref.actor.fsdp_config."},
                {"critic.model.", "actor_rollout_ref.model."},
                {"critic.", "actor_rollout_ref.actor."}};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    const char *rest = path + strlen(places[i].critic);
    if (!treadle_text_starts(path, places[i].critic) || strlen(path) + 24 >= TREADLE_TRAIN_PATH) continue;
    snprintf(twin, TREADLE_TRAIN_PATH, "%s%s", places[i].actor, rest);
    return true;
  }
  return false;
}

/* Both have the value, or the critic says nothing. */
static treadle_status check_twin(treadle_config_reader *reader, const treadle_given_value *given,
                                 const char *twin, int key) {
  const treadle_key_info *row = treadle_train_other_of("verl", twin);
  const char *mine, *its, *otherwise = row ? row->otherwise : treadle_train_keys[key].otherwise;
  char name[TREADLE_TRAIN_PATH + 24];
  treadle_status status;
  TRY(treadle_train_expand(&reader->names, treadle_given_head(reader, given), given->path, given->text,
                           &mine));
  if (treadle_train_is_null(mine)) return TREADLE_OK;
  snprintf(name, sizeof name, "${oc.select:%s,null}", twin);
  TRY(treadle_train_expand(&reader->names, twin, NULL, name, &its));
  if (treadle_train_is_null(its) && otherwise && *otherwise != '$') its = otherwise;
  if (!treadle_given_is_same(mine, its))
    REFUSE("%s is '%s', and %s %s%s%s: a critic has this from the actor", treadle_given_head(reader, given),
           treadle_text_shown(mine), twin, treadle_train_is_null(its) ? "is not given" : "is '",
           treadle_train_is_null(its) ? "" : treadle_text_shown(its),
           treadle_train_is_null(its) ? "" : "'");
out:
  return status;
}

/* A key of a critic's that treadle has not. */
static treadle_status place_other(treadle_config_reader *reader, const treadle_given_value *given,
                                  bool *taken_p) {
  const treadle_train_limit *limit;
  char twin[TREADLE_TRAIN_PATH];
  int key;
  bool on = true;
  if (strcmp(given->path, "critic.enable") == 0) {
    *taken_p = true;
    if (given->text && treadle_yaml_truth(given->text, &on) && !on)
      REFUSE("%s is false, and adv_estimator is gae, which needs a critic",
             treadle_given_head(reader, given));
    return TREADLE_OK;
  }
  if (!given->text || !find_twin(given->path, twin)) return TREADLE_OK;
  *taken_p = true;
  if ((limit = treadle_train_limit_find(twin, TREADLE_RUN_RL)))
    return treadle_given_check_limit(reader, given, limit);
  if ((key = treadle_train_key_find(twin, TREADLE_RUN_RL)) >= 0)
    return check_twin(reader, given, twin, key);
  if (treadle_text_starts(given->path, "critic_config.") &&
      treadle_train_known_key(twin, TREADLE_RUN_RL, &limit) == TREADLE_KNOWN_NOT)
    return treadle_given_refuse(reader, given);
  treadle_given_ignore(reader, given);
  return TREADLE_OK;
}

treadle_status treadle_critic_place(treadle_config_reader *reader, const treadle_given_value *given,
                                    int key, bool *taken_p) {
  static const treadle_train_limit no_warmup = {"trainer.critic_warmup", {"0"}, NULL};
  const bool is_critics = key >= 0 && treadle_train_keys[key].critic;
  *taken_p = false;
  if (reader->has_critic) return key < 0 ? place_other(reader, given, taken_p) : TREADLE_OK;
  if (!is_critics && strcmp(given->path, "critic_config") != 0) return TREADLE_OK;
  *taken_p = true;
  if (strcmp(given->path, no_warmup.path) == 0) return treadle_given_check_limit(reader, given, &no_warmup);
  treadle_given_ignore(reader, given);
  return TREADLE_OK;
}

/* ---- What it has from the actor ------------------------------------------------------------------------------ */

/* Where the actor has what is at `at` of the critic. */
static size_t actors(size_t at) {
  return at - offsetof(treadle_train_settings, critic.trained) + offsetof(treadle_train_settings, actor);
}

static size_t bytes_of(const treadle_train_key *key) {
  return key->type == TREADLE_KEY_CHOICE ? sizeof(int32_t) : sizeof(int64_t);
}

/* The value of the actor's key, with whether it is left out. */
static void inherit(treadle_train_config *config, int key) {
  const treadle_train_key *row = &treadle_train_keys[key];
  const int actor = treadle_train_key_at(actors(row->at));
  char *settings = (char *)&config->settings;
  memcpy(settings + row->at, settings + actors(row->at), bytes_of(row));
  treadle_train_config_follow(config, key, "as actor_config");
  config->sources[key].left_out = config->sources[actor].left_out;
}

static void inherit_if_not_given(treadle_train_config *config, const int *keys, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!treadle_train_config_is_given(config, keys[i])) inherit(config, keys[i]);
}

static void settle_model(treadle_train_config *config) {
  treadle_train_settings *s = &config->settings;
  s->critic.trained.weights = s->actor.weights;
  s->critic.trained.exact = s->actor.exact;
  s->critic.trained.adam_eps = s->actor.adam_eps;
  if (!GIVEN(critic.trained.model)) inherit(config, KEY(critic.trained.model));
}

static treadle_status settle_micro_batch(treadle_train_config *config) {
  treadle_train_settings *s = &config->settings;
  treadle_config_actor *critic = &s->critic.trained;
  const int keys[] = {KEY(critic.trained.micro_batch_size), KEY(critic.trained.max_tokens_per_micro)};
  const bool rows = GIVEN(critic.trained.micro_batch_size),
             tokens = GIVEN(critic.trained.max_tokens_per_micro);
  if (rows && tokens)
    REFUSE("%s: %s and %s exclude each other", config->file, PLACE(critic.trained.micro_batch_size),
           PLACE(critic.trained.max_tokens_per_micro));
  if (!rows && !tokens) inherit_if_not_given(config, keys, sizeof keys / sizeof *keys);
  if (tokens) leave_out(config, keys[0], "by max_tokens_per_micro");
  if (tokens && s->training.seq_length > critic->max_tokens_per_micro)
    REFUSE("%s: %s is %lld: a row of %s, %lld, does not fit", config->file,
           PLACE(critic.trained.max_tokens_per_micro), (long long)critic->max_tokens_per_micro,
           PLACE(training.seq_length), (long long)s->training.seq_length);
  if (critic->micro_batch_size && s->rl.batches.mini_batch_samples % critic->micro_batch_size != 0)
    REFUSE("%s: a mini batch has %lld samples, which %s, %lld, does not divide", config->file,
           (long long)s->rl.batches.mini_batch_samples, PLACE(critic.trained.micro_batch_size),
           (long long)critic->micro_batch_size);
  return TREADLE_OK;
}

static treadle_status settle_optimizer(treadle_train_config *config) {
  const int keys[] = {KEY(critic.trained.lr_decay_style), KEY(critic.trained.lr_warmup_fraction),
                      KEY(critic.trained.weight_decay),   KEY(critic.trained.adam_beta1),
                      KEY(critic.trained.adam_beta2),     KEY(critic.trained.clip_grad)};
  const treadle_config_actor *critic = &config->settings.critic.trained;
  inherit_if_not_given(config, keys, sizeof keys / sizeof *keys);
  if (critic->min_lr > critic->lr)
    REFUSE("%s: %s is %g, more than %s, which is %g", config->file, PLACE(critic.trained.min_lr),
           critic->min_lr, PLACE(critic.trained.lr), critic->lr);
  return TREADLE_OK;
}

/* ---- How ranks divide it --------------------------------------------------------------------------------------- */

/* Its own layout, in which type and dtype may stand. */
static treadle_status settle_text(treadle_train_config *config, const int *sizes, size_t count) {
  treadle_train_settings *s = &config->settings;
  const char *text = s->critic.trained.layout;
  treadle_settings words = {0};
  treadle_status status;
  for (size_t i = 0; i < count; i++) {
    if (treadle_train_config_is_given(config, sizes[i]))
      REFUSE("%s: %s and %s exclude each other", config->file, treadle_train_config_place(config, sizes[i]),
             PLACE(critic.trained.layout));
    leave_out(config, sizes[i], "by layout");
  }
  status = treadle_settings_parse(text, &config->arena, &words);
  if (status) return treadle_fail_in(status, "%s: %s: ", config->file, PLACE(critic.trained.layout));
  const bool is_fsdp2 = strcmp(words.type, "fsdp2") == 0;
  const char *dtype = treadle_settings_get(&words, "dtype"), *needs = s->training.bf16 ? "bf16" : "fp32";
  if (!is_fsdp2 && strcmp(words.type, "megatron") != 0 && strcmp(words.type, "hf") != 0)
    REFUSE("%s: %s is '%s': a layout to train in is megatron, fsdp2, or hf on one rank", config->file,
           PLACE(critic.trained.layout), treadle_text_shown(text));
  if (dtype && strcmp(dtype, needs) != 0)
    REFUSE("%s: %s has dtype=%s, and the run computes in %s (%s)", config->file,
           PLACE(critic.trained.layout), treadle_text_shown(dtype), needs, PLACE(training.bf16));
  s->critic.trained.strategy = is_fsdp2 ? TREADLE_STRATEGY_FSDP2 : TREADLE_STRATEGY_MEGATRON;
  treadle_train_config_follow(config, KEY(critic.trained.strategy), "by layout");
  return TREADLE_OK;
}

/* Sizes of its own: the others are those of a model that is not divided. */
static treadle_status settle_sizes(treadle_train_config *config) {
  treadle_config_actor *critic = &config->settings.critic.trained;
  if (!GIVEN(critic.trained.strategy)) inherit(config, KEY(critic.trained.strategy));
  if (!GIVEN(critic.trained.tensor_model_parallel_size)) critic->tensor_model_parallel_size = 1;
  if (!GIVEN(critic.trained.pipeline_model_parallel_size)) critic->pipeline_model_parallel_size = 1;
  if (!GIVEN(critic.trained.fsdp_size)) critic->fsdp_size = -1;
  leave_out(config, KEY(critic.trained.layout), "by its sizes");
  if (critic->num_layers_per_virtual_pipeline_stage && critic->pipeline_model_parallel_size == 1)
    REFUSE("%s: %s needs pipeline_model_parallel_size above 1", config->file,
           PLACE(critic.trained.num_layers_per_virtual_pipeline_stage));
  return TREADLE_OK;
}

static treadle_status check_strategy(const treadle_train_config *config) {
  const treadle_train_settings *s = &config->settings;
  const treadle_config_actor *critic = &s->critic.trained;
  const bool is_fsdp2 = critic->strategy == TREADLE_STRATEGY_FSDP2;
  const char *other =
      !is_fsdp2 ? critic->fsdp_size > 0 ? PLACE(critic.trained.fsdp_size) : NULL
      : critic->tensor_model_parallel_size > 1   ? PLACE(critic.trained.tensor_model_parallel_size)
      : critic->pipeline_model_parallel_size > 1 ? PLACE(critic.trained.pipeline_model_parallel_size)
      : s->training.use_distributed_optimizer    ? PLACE(training.use_distributed_optimizer)
                                                 : NULL;
  if (other)
    REFUSE("%s: %s is of %s, and %s is %s", config->file, other, is_fsdp2 ? "Megatron" : "fsdp2",
           PLACE(critic.trained.strategy), is_fsdp2 ? "fsdp2" : "megatron");
  return TREADLE_OK;
}

static treadle_status settle_layout(treadle_train_config *config) {
  const int sizes[] = {
      KEY(critic.trained.tensor_model_parallel_size), KEY(critic.trained.pipeline_model_parallel_size),
      KEY(critic.trained.num_layers_per_virtual_pipeline_stage), KEY(critic.trained.fsdp_size)};
  const size_t count = sizeof sizes / sizeof *sizes;
  bool has_own = GIVEN(critic.trained.strategy);
  treadle_status status;
  for (size_t i = 0; i < count; i++) has_own = has_own || treadle_train_config_is_given(config, sizes[i]);
  if (GIVEN(critic.trained.layout))
    TRY(settle_text(config, sizes, count));
  else if (has_own)
    TRY(settle_sizes(config));
  else {
    inherit(config, KEY(critic.trained.strategy));
    inherit(config, KEY(critic.trained.layout));
    inherit_if_not_given(config, sizes, count);
  }
  TRY(check_strategy(config));
out:
  return status;
}

/* The parameters go last: what is derived from them has no use without them. */
static treadle_status check_offload(const treadle_train_config *config) {
  const treadle_config_critic *critic = &config->settings.critic;
  const char *stays = !critic->offload_grad        ? PLACE(critic.offload_grad)
                      : !critic->offload_optimizer ? PLACE(critic.offload_optimizer)
                                                   : NULL;
  if (critic->offload_param && stays)
    REFUSE("%s: %s is false, and %s true: gradients and optimizer state stay on the device with the "
           "parameters alone",
           config->file, stays, PLACE(critic.offload_param));
  return TREADLE_OK;
}

treadle_status treadle_train_config_settle_critic(treadle_train_config *config) {
  treadle_status status;
  if (!treadle_train_has_critic(&config->settings)) return TREADLE_OK;
  settle_model(config);
  TRY(settle_micro_batch(config));
  TRY(settle_optimizer(config));
  TRY(settle_layout(config));
  TRY(check_offload(config));
out:
  return status;
}
