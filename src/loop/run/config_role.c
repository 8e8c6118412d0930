/* What a role beside the actor has from actor_config, and what it may say of its own. */
#include "run/config_role.h"
#include "run/others.h"

#include "base/utf8.h"
#include "layout/settings.h"

#include <string.h>

#define PLACE(member)     treadle_train_config_place(config, TREADLE_KEY_OF(member))
#define OWN_KEY(member)   treadle_train_key_at(role->at + offsetof(treadle_config_actor, member))
#define OWN_PLACE(member) treadle_train_config_place(config, OWN_KEY(member))
#define OWN_GIVEN(member) treadle_train_config_is_given(config, OWN_KEY(member))

static treadle_config_actor *own_of(const treadle_config_role *role) {
  return (treadle_config_actor *)(void *)((char *)&role->config->settings + role->at);
}

/* The key has no value: the resolved text says null. */
static void leave_out(treadle_train_config *config, int key, const char *why) {
  treadle_train_config_follow(config, key, why);
  config->sources[key].left_out = true;
}

/* ---- From the actor ---------------------------------------------------------------------------------------- */

treadle_status treadle_config_role_check_twin(treadle_config_reader *reader,
                                              const treadle_given_value *given, const char *twin, int key,
                                              const char *whose) {
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
    REFUSE("%s is '%s', and %s %s%s%s: %s has this from the actor", treadle_given_head(reader, given),
           treadle_text_shown(mine), twin, treadle_train_is_null(its) ? "is not given" : "is '",
           treadle_train_is_null(its) ? "" : treadle_text_shown(its), treadle_train_is_null(its) ? "" : "'",
           whose);
out:
  return status;
}

treadle_status treadle_config_role_place_forward(treadle_config_reader *reader,
                                                 const treadle_given_value *given, const char *whose,
                                                 const char *const *shared, bool *taken_p) {
  const char *rest = strchr(given->path, '.');
  const treadle_train_limit *limit;
  char twin[TREADLE_TRAIN_PATH];
  if (!given->text || !rest || strlen(given->path) + 24 >= TREADLE_TRAIN_PATH) return TREADLE_OK;
  *taken_p = true;
  snprintf(twin, sizeof twin, "actor_config%s", rest);
  if ((limit = treadle_train_limit_find(given->path, TREADLE_RUN_RL)) ||
      (limit = treadle_train_limit_find(twin, TREADLE_RUN_RL)))
    return treadle_given_check_limit(reader, given, limit);
  const int key = treadle_train_key_find(twin, TREADLE_RUN_RL);
  for (; key >= 0 && *shared; shared++)
    if (strcmp(treadle_train_keys[key].key, *shared) == 0)
      return treadle_config_role_check_twin(reader, given, twin, key, whose);
  if (key < 0 && treadle_train_known_key(twin, TREADLE_RUN_RL, &limit) == TREADLE_KNOWN_NOT)
    return treadle_given_refuse(reader, given);
  return treadle_train_config_warn(reader->config,
                                   treadle_arena_format(&reader->config->arena,
                                                        "%s is without effect: %s goes forward only",
                                                        treadle_given_head(reader, given), whose));
}

/* Where the actor has what is at `at` of the role. */
static size_t actors(const treadle_config_role *role, size_t at) {
  return at - role->at + offsetof(treadle_train_settings, actor);
}

static size_t bytes_of(const treadle_train_key *key) {
  return key->type == TREADLE_KEY_CHOICE ? sizeof(int32_t) : sizeof(int64_t);
}

void treadle_config_role_inherit(const treadle_config_role *role, int key) {
  treadle_train_config *config = role->config;
  const treadle_train_key *row = &treadle_train_keys[key];
  const int actor = treadle_train_key_at(actors(role, row->at));
  char *settings = (char *)&config->settings;
  memcpy(settings + row->at, settings + actors(role, row->at), bytes_of(row));
  treadle_train_config_follow(config, key, "as actor_config");
  config->sources[key].left_out = config->sources[actor].left_out;
}

void treadle_config_role_inherit_all(const treadle_config_role *role, const int *keys, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!treadle_train_config_is_given(role->config, keys[i])) treadle_config_role_inherit(role, keys[i]);
}

/* ---- Micro batches ------------------------------------------------------------------------------------------- */

treadle_status treadle_config_role_settle_micro_batch(const treadle_config_role *role) {
  treadle_train_config *config = role->config;
  treadle_train_settings *s = &config->settings;
  treadle_config_actor *own = own_of(role);
  const int keys[] = {OWN_KEY(micro_batch_size), OWN_KEY(max_tokens_per_micro)};
  const bool rows = OWN_GIVEN(micro_batch_size), tokens = OWN_GIVEN(max_tokens_per_micro);
  if (rows && tokens)
    REFUSE("%s: %s and %s exclude each other", config->file, OWN_PLACE(micro_batch_size),
           OWN_PLACE(max_tokens_per_micro));
  if (!rows && !tokens) treadle_config_role_inherit_all(role, keys, sizeof keys / sizeof *keys);
  if (tokens) leave_out(config, keys[0], "by max_tokens_per_micro");
  if (tokens && s->training.seq_length > own->max_tokens_per_micro)
    REFUSE("%s: %s is %lld: a row of %s, %lld, does not fit", config->file, OWN_PLACE(max_tokens_per_micro),
           (long long)own->max_tokens_per_micro, PLACE(training.seq_length),
           (long long)s->training.seq_length);
  if (role->trains && own->micro_batch_size &&
      s->rl.batches.mini_batch_samples % own->micro_batch_size != 0)
    REFUSE("%s: a mini batch has %lld samples, which %s, %lld, does not divide", config->file,
           (long long)s->rl.batches.mini_batch_samples, OWN_PLACE(micro_batch_size),
           (long long)own->micro_batch_size);
  return TREADLE_OK;
}

/* ---- How ranks divide it --------------------------------------------------------------------------------------- */

/* Its own layout, in which type and dtype may stand. */
static treadle_status settle_text(const treadle_config_role *role, const int *sizes, size_t count) {
  treadle_train_config *config = role->config;
  treadle_train_settings *s = &config->settings;
  const char *text = own_of(role)->layout;
  treadle_settings words = {0};
  treadle_status status;
  for (size_t i = 0; i < count; i++) {
    if (treadle_train_config_is_given(config, sizes[i]))
      REFUSE("%s: %s and %s exclude each other", config->file, treadle_train_config_place(config, sizes[i]),
             OWN_PLACE(layout));
    leave_out(config, sizes[i], "by layout");
  }
  status = treadle_settings_parse(text, &config->arena, &words);
  if (status) return treadle_fail_in(status, "%s: %s: ", config->file, OWN_PLACE(layout));
  const bool is_fsdp2 = strcmp(words.type, "fsdp2") == 0;
  const char *dtype = treadle_settings_get(&words, "dtype"), *needs = s->training.bf16 ? "bf16" : "fp32";
  if (!is_fsdp2 && strcmp(words.type, "megatron") != 0 && strcmp(words.type, "hf") != 0)
    REFUSE("%s: %s is '%s': a layout to train in is megatron, fsdp2, or hf on one rank", config->file,
           OWN_PLACE(layout), treadle_text_shown(text));
  if (dtype && strcmp(dtype, needs) != 0)
    REFUSE("%s: %s has dtype=%s, and the run computes in %s (%s)", config->file, OWN_PLACE(layout),
           treadle_text_shown(dtype), needs, PLACE(training.bf16));
  own_of(role)->strategy = is_fsdp2 ? TREADLE_STRATEGY_FSDP2 : TREADLE_STRATEGY_MEGATRON;
  treadle_train_config_follow(config, OWN_KEY(strategy), "by layout");
  return TREADLE_OK;
}

/* Sizes of its own: the others are those of a model that is not divided. */
static treadle_status settle_sizes(const treadle_config_role *role) {
  treadle_train_config *config = role->config;
  treadle_config_actor *own = own_of(role);
  if (!OWN_GIVEN(strategy)) treadle_config_role_inherit(role, OWN_KEY(strategy));
  if (!OWN_GIVEN(tensor_model_parallel_size)) own->tensor_model_parallel_size = 1;
  if (!OWN_GIVEN(pipeline_model_parallel_size)) own->pipeline_model_parallel_size = 1;
  if (!OWN_GIVEN(fsdp_size)) own->fsdp_size = -1;
  leave_out(config, OWN_KEY(layout), "by its sizes");
  if (own->num_layers_per_virtual_pipeline_stage && own->pipeline_model_parallel_size == 1)
    REFUSE("%s: %s needs pipeline_model_parallel_size above 1", config->file,
           OWN_PLACE(num_layers_per_virtual_pipeline_stage));
  return TREADLE_OK;
}

static treadle_status check_strategy(const treadle_config_role *role) {
  treadle_train_config *config = role->config;
  const treadle_train_settings *s = &config->settings;
  const treadle_config_actor *own = own_of(role);
  const bool is_fsdp2 = own->strategy == TREADLE_STRATEGY_FSDP2;
  const char *other = !is_fsdp2 ? own->fsdp_size > 0 ? OWN_PLACE(fsdp_size) : NULL
                      : own->tensor_model_parallel_size > 1   ? OWN_PLACE(tensor_model_parallel_size)
                      : own->pipeline_model_parallel_size > 1 ? OWN_PLACE(pipeline_model_parallel_size)
                      : role->trains && s->training.use_distributed_optimizer
                          ? PLACE(training.use_distributed_optimizer)
                          : NULL;
  if (other)
    REFUSE("%s: %s is of %s, and %s is %s", config->file, other, is_fsdp2 ? "Megatron" : "fsdp2",
           OWN_PLACE(strategy), is_fsdp2 ? "fsdp2" : "megatron");
  return TREADLE_OK;
}

/* Sizes that have no key in the role's section. */
static void inherit_experts(const treadle_config_role *role) {
  const treadle_config_actor *actor = &role->config->settings.actor;
  treadle_config_actor *own = own_of(role);
  own->expert_model_parallel_size = actor->expert_model_parallel_size;
  own->expert_tensor_parallel_size = actor->expert_tensor_parallel_size;
  own->moe_tp_extend_ep = actor->moe_tp_extend_ep;
}

treadle_status treadle_config_role_settle_layout(const treadle_config_role *role) {
  treadle_train_config *config = role->config;
  const int sizes[] = {OWN_KEY(tensor_model_parallel_size), OWN_KEY(pipeline_model_parallel_size),
                       OWN_KEY(num_layers_per_virtual_pipeline_stage), OWN_KEY(fsdp_size)};
  const size_t count = sizeof sizes / sizeof *sizes;
  bool has_own = OWN_GIVEN(strategy);
  treadle_status status;
  for (size_t i = 0; i < count; i++) has_own = has_own || treadle_train_config_is_given(config, sizes[i]);
  if (OWN_GIVEN(layout))
    TRY(settle_text(role, sizes, count));
  else if (has_own)
    TRY(settle_sizes(role));
  else {
    treadle_config_role_inherit(role, OWN_KEY(strategy));
    treadle_config_role_inherit(role, OWN_KEY(layout));
    treadle_config_role_inherit_all(role, sizes, count);
    inherit_experts(role);
  }
  TRY(check_strategy(role));
out:
  return status;
}
