/* What keys say together. Each rule is a function that refuses, with both keys and their lines, or settles a key that follows from
 * others. Rules that need the model or the ranks are elsewhere (config_layout.c). */
#include "run/config.h"

#include "base/real.h"
#include "base/utf8.h"
#include "layout/settings.h"

#include <string.h>

const treadle_train_settings *treadle_train_config_settings(const treadle_train_config *config) {
  return &config->settings;
}

bool treadle_train_config_is_given(const treadle_train_config *config, int key) {
  return config->sources[key].text != NULL;
}

bool treadle_train_config_is_default(const treadle_train_config *config, int key) {
  double a, b;
  const char *text = config->sources[key].text, *otherwise = treadle_train_keys[key].otherwise;
  if (!otherwise) return false;
  return strcmp(text, otherwise) == 0 ||
         (treadle_text_to_real(text, &a) && treadle_text_to_real(otherwise, &b) && a == b);
}

const char *treadle_train_config_place(const treadle_train_config *config, int key) {
  static _Thread_local char buffers[4][256];
  static _Thread_local unsigned turn;
  const treadle_train_source *source = &config->sources[key];
  const treadle_train_key *row = &treadle_train_keys[key];
  char *text = buffers[turn++ % 4];
  if (source->from == TREADLE_FROM_FILE)
    snprintf(text, sizeof *buffers, "%.200s (line %d)", source->name, source->line);
  else if (source->from == TREADLE_FROM_OVERRIDE)
    snprintf(text, sizeof *buffers, "%.200s (override)", source->name);
  else
    snprintf(text, sizeof *buffers, "%s%s%s (%s)", row->section, *row->section ? "." : "", row->key,
             source->from == TREADLE_FROM_RULE ? source->why : "default");
  return text;
}

#define KEY(member)   TREADLE_KEY_OF(member)
#define PLACE(member) treadle_train_config_place(config, KEY(member))
#define GIVEN(member) treadle_train_config_is_given(config, KEY(member))

void treadle_train_config_follow(treadle_train_config *config, int key, const char *why) {
  config->sources[key] = (treadle_train_source){.from = TREADLE_FROM_RULE, .why = why};
}

/* The key has no value. */
static void leave_out(treadle_train_config *config, int key, const char *why) {
  treadle_train_config_follow(config, key, why);
  config->sources[key].left_out = true;
}

/* ---- Batches -------------------------------------------------------------------------------------------- */

static treadle_status settle_micro_batch(treadle_train_config *config) {
  treadle_train_settings *s = &config->settings;
  if (!GIVEN(actor.max_tokens_per_micro)) {
    if (config->run == TREADLE_RUN_SFT && s->training.global_batch_size % s->actor.micro_batch_size != 0)
      REFUSE("%s: %s is %lld, which %s, %lld, does not divide", config->file,
             PLACE(training.global_batch_size), (long long)s->training.global_batch_size,
             PLACE(actor.micro_batch_size), (long long)s->actor.micro_batch_size);
    return TREADLE_OK;
  }
  if (GIVEN(actor.micro_batch_size))
    REFUSE("%s: %s and %s exclude each other", config->file, PLACE(actor.micro_batch_size),
           PLACE(actor.max_tokens_per_micro));
  if (GIVEN(training.seq_length) && s->training.seq_length > s->actor.max_tokens_per_micro)
    REFUSE("%s: %s is %lld: a row of %s, %lld, does not fit", config->file,
           PLACE(actor.max_tokens_per_micro), (long long)s->actor.max_tokens_per_micro,
           PLACE(training.seq_length), (long long)s->training.seq_length);
  s->actor.micro_batch_size = 0;
  leave_out(config, KEY(actor.micro_batch_size), "by max_tokens_per_micro");
  return TREADLE_OK;
}

static treadle_status check_schedule(treadle_train_config *config) {
  const treadle_train_settings *s = &config->settings;
  if (s->actor.min_lr > s->actor.lr)
    REFUSE("%s: %s is %g, more than %s, which is %g", config->file, PLACE(actor.min_lr), s->actor.min_lr,
           PLACE(actor.lr), s->actor.lr);
  if (s->training.test_interval > 0 && !s->training.val_path)
    REFUSE("%s: %s is %lld, and there is no val_path with rows to test with", config->file,
           PLACE(training.test_interval), (long long)s->training.test_interval);
  return TREADLE_OK;
}

/* ---- How ranks divide the model --------------------------------------------------------------------------- */

/* No size beside a layout. */
static treadle_status refuse_sizes(treadle_train_config *config) {
  const int sizes[] = {KEY(actor.tensor_model_parallel_size),
                       KEY(actor.pipeline_model_parallel_size),
                       KEY(actor.expert_model_parallel_size),
                       KEY(actor.expert_tensor_parallel_size),
                       KEY(actor.moe_tp_extend_ep),
                       KEY(actor.num_layers_per_virtual_pipeline_stage),
                       KEY(actor.fsdp_size),
                       KEY(actor.context_parallel_size)};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    if (treadle_train_config_is_given(config, sizes[i]))
      REFUSE("%s: %s and %s exclude each other", config->file, treadle_train_config_place(config, sizes[i]),
             PLACE(actor.layout));
    leave_out(config, sizes[i], "by layout");
  }
  return TREADLE_OK;
}

/* Type and dtype of the layout's text, which the keys beside it may repeat. */
static treadle_status settle_type(treadle_train_config *config, treadle_settings *words) {
  treadle_train_settings *s = &config->settings;
  const char *dtype = treadle_settings_get(words, "dtype");
  int32_t strategy = strcmp(words->type, "fsdp2") == 0 ? TREADLE_STRATEGY_FSDP2 : TREADLE_STRATEGY_MEGATRON;
  if (strategy == TREADLE_STRATEGY_MEGATRON && strcmp(words->type, "megatron") != 0 &&
      strcmp(words->type, "hf") != 0)
    REFUSE("%s: %s is '%s': a layout to train in is megatron, fsdp2, or hf on one rank", config->file,
           PLACE(actor.layout), treadle_text_shown(s->actor.layout));
  if (GIVEN(actor.strategy) && s->actor.strategy != strategy)
    REFUSE("%s: %s is %s, and %s is '%s'", config->file, PLACE(actor.strategy),
           treadle_train_keys[KEY(actor.strategy)].words[s->actor.strategy], PLACE(actor.layout),
           treadle_text_shown(s->actor.layout));
  if (!GIVEN(actor.strategy)) treadle_train_config_follow(config, KEY(actor.strategy), "by layout");
  s->actor.strategy = strategy;
  if (!dtype) return TREADLE_OK;
  bool bf16 = strcmp(dtype, "bf16") == 0;
  if (!bf16 && strcmp(dtype, "fp32") != 0)
    REFUSE("%s: %s has dtype=%s: training is in bf16 or fp32", config->file, PLACE(actor.layout),
           treadle_text_shown(dtype));
  if (GIVEN(training.bf16) && s->training.bf16 != bf16)
    REFUSE("%s: %s is %s, and %s has dtype=%s", config->file, PLACE(training.bf16),
           s->training.bf16 ? "true" : "false", PLACE(actor.layout), dtype);
  if (!GIVEN(training.bf16)) treadle_train_config_follow(config, KEY(training.bf16), "by layout");
  s->training.bf16 = bf16;
  return TREADLE_OK;
}

static treadle_status refuse_with_fsdp2(treadle_train_config *config) {
  const treadle_train_settings *s = &config->settings;
  const treadle_config_actor *actor = &config->settings.actor;
  const char *other = actor->tensor_model_parallel_size > 1     ? PLACE(actor.tensor_model_parallel_size)
                      : actor->pipeline_model_parallel_size > 1 ? PLACE(actor.pipeline_model_parallel_size)
                      : actor->expert_model_parallel_size > 1   ? PLACE(actor.expert_model_parallel_size)
                      : actor->expert_tensor_parallel_size > 1  ? PLACE(actor.expert_tensor_parallel_size)
                      : actor->moe_tp_extend_ep                 ? PLACE(actor.moe_tp_extend_ep)
                      : actor->num_layers_per_virtual_pipeline_stage
                          ? PLACE(actor.num_layers_per_virtual_pipeline_stage)
                      : actor->context_parallel_size > 1      ? PLACE(actor.context_parallel_size)
                      : s->training.use_distributed_optimizer ? PLACE(training.use_distributed_optimizer)
                                                              : NULL;
  if (other) REFUSE("%s: %s is of Megatron, and %s is fsdp2", config->file, other, PLACE(actor.strategy));
  return TREADLE_OK;
}

static treadle_status refuse_with_megatron(treadle_train_config *config) {
  const treadle_config_actor *actor = &config->settings.actor;
  const char *other = actor->fsdp_size > 0    ? PLACE(actor.fsdp_size)
                      : actor->offload_policy ? PLACE(actor.offload_policy)
                                              : NULL;
  if (other) REFUSE("%s: %s is of fsdp2, and %s is megatron", config->file, other, PLACE(actor.strategy));
  if (actor->num_layers_per_virtual_pipeline_stage && actor->pipeline_model_parallel_size == 1)
    REFUSE("%s: %s needs pipeline_model_parallel_size above 1", config->file,
           PLACE(actor.num_layers_per_virtual_pipeline_stage));
  return TREADLE_OK;
}

/* Tokens are divided in one way. cp: of the layout. */
static treadle_status refuse_both(treadle_train_config *config, int64_t cp) {
  const treadle_config_actor *actor = &config->settings.actor;
  if (actor->ulysses_sequence_parallel_size > 1 && (cp > 1 || actor->context_parallel_size > 1))
    REFUSE("%s: %s, %lld, and %s, which has %lld context parallel ranks, exclude each other", config->file,
           PLACE(actor.ulysses_sequence_parallel_size), (long long)actor->ulysses_sequence_parallel_size,
           cp > 1 ? PLACE(actor.layout) : PLACE(actor.context_parallel_size),
           (long long)(cp > 1 ? cp : actor->context_parallel_size));
  return TREADLE_OK;
}

/* As Megatron: without tensor parallelism there is nothing to divide a sequence among. */
static treadle_status settle_sequence(treadle_train_config *config, int64_t tp) {
  treadle_train_settings *s = &config->settings;
  if (!s->training.sequence_parallel || tp > 1) return TREADLE_OK;
  treadle_status status = treadle_train_config_warn(
      config, treadle_arena_format(&config->arena, "%s: %s has no effect without tensor parallelism",
                                   config->file, PLACE(training.sequence_parallel)));
  s->training.sequence_parallel = false;
  treadle_train_config_follow(config, KEY(training.sequence_parallel), "without tensor parallelism");
  return status;
}

static treadle_status settle_layout(treadle_train_config *config) {
  treadle_train_settings *s = &config->settings;
  treadle_settings words = {0};
  int64_t tp = s->actor.tensor_model_parallel_size, cp = 1;
  treadle_status status = TREADLE_OK;
  if (s->actor.layout) {
    TRY(refuse_sizes(config));
    status = treadle_settings_parse(s->actor.layout, &config->arena, &words);
    if (status) {
      treadle_fail_in(status, "%s: %s: ", config->file, PLACE(actor.layout));
      goto out;
    }
    TRY(settle_type(config, &words));
    TRY(treadle_settings_size(&words, "tp", 1, &tp));
    TRY(treadle_settings_size(&words, "cp", 1, &cp));
  }
  TRY(refuse_both(config, cp));
  TRY(s->actor.strategy == TREADLE_STRATEGY_FSDP2 ? refuse_with_fsdp2(config)
                                                  : refuse_with_megatron(config));
  TRY(settle_sequence(config, s->actor.strategy == TREADLE_STRATEGY_FSDP2 ? 1 : tp));
out:
  return status;
}

treadle_status treadle_train_config_settle(treadle_train_config *config) {
  treadle_status status;
  if (config->has_pools_alone && !GIVEN(actor.model))
    return treadle_train_config_settle_pools_alone(config);
  TRY(settle_micro_batch(config));
  TRY(check_schedule(config));
  TRY(treadle_train_config_settle_routers(config));
  TRY(settle_layout(config));
  TRY(treadle_train_config_settle_lora(config));
  if (config->run == TREADLE_RUN_RL) TRY(treadle_train_config_settle_rl(config));
out:
  return status;
}

treadle_status treadle_train_config_need(const treadle_train_config *config, bool plan) {
  treadle_builder missing = {0};
  treadle_status status = TREADLE_OK;
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) {
    const treadle_train_key *row = &treadle_train_keys[i];
    bool needed = row->need == TREADLE_NEED_TO_PLAN || (row->need == TREADLE_NEED_TO_RUN && !plan);
    needed = needed && treadle_train_key_is_of(row, config->run);
    if (i == KEY(rl.verifier.function) && treadle_train_has_reward_model(&config->settings)) needed = false;
    if (needed && !treadle_train_config_is_given(config, i))
      treadle_builder_add(&missing, "%s%s.%s", missing.length ? ", " : "", row->section, row->key);
  }
  if (missing.failed)
    status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for the names of keys", config->file);
  else if (missing.length)
    status = treadle_fail(TREADLE_REFUSED, "%s: these are needed, and not given: %s", config->file,
                          missing.text);
  treadle_builder_release(&missing);
  return status;
}
