/* The layout that sizes describe, on a number of ranks. */
#include "run/config_pools.h"

#include "base/divisor.h"
#include "base/text.h"
#include "base/utf8.h"
#include "layout/settings.h"

#include <stdio.h>
#include <string.h>

#define PLACE(member) treadle_train_config_place(config, TREADLE_KEY_OF(member))

const char *treadle_train_config_place_of_context(const treadle_train_config *config) {
  const treadle_config_actor *actor = &config->settings.actor;
  treadle_arena arena = {0};
  treadle_settings words = {0};
  int64_t cp = 1;
  if (actor->ulysses_sequence_parallel_size > 1) return PLACE(actor.ulysses_sequence_parallel_size);
  if (actor->context_parallel_size > 1) return PLACE(actor.context_parallel_size);
  if (actor->layout && !treadle_settings_parse(actor->layout, &arena, &words))
    (void)treadle_settings_size(&words, "cp", 1, &cp);
  treadle_arena_release(&arena);
  return cp > 1 ? PLACE(actor.layout) : NULL;
}

/* Whose layout it is: the actor, or a role beside it, which has keys of the same names. */
typedef struct divided {
  const treadle_train_config *config;
  const treadle_config_actor *sizes;
  size_t at; /* of them in the settings */
  treadle_pool_role role;
} divided;
#define PLACE_OF(whose, member)                                                                            \
  treadle_train_config_place((whose)->config,                                                              \
                             treadle_train_key_at((whose)->at + offsetof(treadle_config_actor, member)))

static divided divided_of(const treadle_train_config *config, treadle_train_part part) {
  const treadle_train_settings *s = &config->settings;
  switch (part) {
  case TREADLE_PART_CRITIC:
    return (divided){config, &s->critic.trained, offsetof(treadle_train_settings, critic.trained),
                     TREADLE_POOL_ROLE_CRITIC};
  case TREADLE_PART_REWARD:
    return (divided){config, &s->reward.scored, offsetof(treadle_train_settings, reward.scored),
                     TREADLE_POOL_ROLE_REWARD_MODEL};
  case TREADLE_PART_REFERENCE:
    return (divided){config, &s->reference.frozen, offsetof(treadle_train_settings, reference.frozen),
                     TREADLE_POOL_ROLE_REF_POLICY};
  default:
    return (divided){config, &s->actor, offsetof(treadle_train_settings, actor), TREADLE_POOL_ROLE_ACTOR};
  }
}

/* Chunks of a stage; 1 without virtual stages. */
static treadle_status count_chunks(const divided *whose, int64_t layers, int64_t *chunks_p) {
  const treadle_config_actor *actor = whose->sizes;
  int64_t pp = actor->pipeline_model_parallel_size, each = actor->num_layers_per_virtual_pipeline_stage;
  char instead[TREADLE_DIVISORS_ROOM];
  *chunks_p = 1;
  if (!each) return TREADLE_OK;
  if (layers % pp != 0 || layers / pp % each != 0)
    REFUSE("%s: %s not divided by %s, %lld, times %s, %lld; %s", whose->config->file,
           treadle_text_count_is(layers, "layer"), PLACE_OF(whose, pipeline_model_parallel_size),
           (long long)pp, PLACE_OF(whose, num_layers_per_virtual_pipeline_stage), (long long)each,
           layers % pp ? treadle_divisors_near("pipeline_model_parallel_size", layers, pp, 1, instead)
                       : treadle_divisors_near("num_layers_per_virtual_pipeline_stage", layers / pp, each,
                                               1, instead));
  *chunks_p = layers / pp / each;
  return TREADLE_OK;
}

static int64_t context_ranks(const divided *whose) {
  return whose->sizes->context_parallel_size > 1 ? whose->sizes->context_parallel_size : 1;
}

/* Ranks that the sizes do not divide: of the run, or where roles have several pools the slots of this role's one. */
static treadle_status refuse_ranks(const divided *whose, int64_t ranks) {
  const int64_t tp = whose->sizes->tensor_model_parallel_size,
                pp = whose->sizes->pipeline_model_parallel_size;
  const int64_t cp = context_ranks(whose);
  const treadle_config_pool *pool = treadle_config_pools_of(whose->config->pools, whose->role);
  char what[160], context[200] = "";
  if (pool)
    snprintf(what, sizeof what, "pool '%.80s' has %s, which", treadle_text_shown(pool->name),
             treadle_text_of_count(ranks, "slot"));
  else
    snprintf(what, sizeof what, "the run has %s, which", treadle_text_of_count(ranks, "rank"));
  if (cp > 1)
    snprintf(context, sizeof context, " times %.120s, %lld,", PLACE_OF(whose, context_parallel_size),
             (long long)cp);
  REFUSE("%s: %s %s, %lld, times %s, %lld,%s does not divide; %s a multiple of %s", whose->config->file,
         what, PLACE_OF(whose, tensor_model_parallel_size), (long long)tp,
         PLACE_OF(whose, pipeline_model_parallel_size), (long long)pp, context, pool ? "give it" : "start",
         treadle_text_of_count(tp * pp * cp, pool ? "slot" : "rank"));
}

/* Megatron's grid of experts; with moe_tp_extend_ep, MindSpeed-RL's. */
static treadle_status add_experts(const divided *whose, treadle_builder *text) {
  const treadle_config_actor *actor = whose->sizes;
  const int64_t tp = actor->tensor_model_parallel_size;
  int64_t ep = actor->expert_model_parallel_size, etp = actor->expert_tensor_parallel_size;
  if (actor->moe_tp_extend_ep && etp > 1)
    REFUSE("%s: %s is %lld, and %s is true: experts are then not split", whose->config->file,
           PLACE_OF(whose, expert_tensor_parallel_size), (long long)etp, PLACE_OF(whose, moe_tp_extend_ep));
  if (actor->moe_tp_extend_ep) ep *= tp, etp = 1;
  if (ep > 1) treadle_builder_add(text, "ep=%lld,", (long long)ep);
  if (etp && etp != tp) treadle_builder_add(text, "etp=%lld,", (long long)etp);
  return TREADLE_OK;
}

static treadle_status add_megatron(const divided *whose, int64_t layers, int64_t ranks,
                                   treadle_builder *text) {
  const treadle_config_actor *actor = whose->sizes;
  int64_t tp = actor->tensor_model_parallel_size, pp = actor->pipeline_model_parallel_size, chunks;
  if (ranks % (tp * pp * context_ranks(whose)) != 0) return refuse_ranks(whose, ranks);
  treadle_status status = count_chunks(whose, layers, &chunks);
  if (status) return status;
  if (tp > 1) treadle_builder_add(text, "tp=%lld,", (long long)tp);
  if (pp > 1) treadle_builder_add(text, "pp=%lld,", (long long)pp);
  if (chunks > 1) treadle_builder_add(text, "vpp=%lld,", (long long)chunks);
  if (context_ranks(whose) > 1) treadle_builder_add(text, "cp=%lld,", (long long)context_ranks(whose));
  return add_experts(whose, text);
}

static treadle_status add_fsdp2(const divided *whose, int64_t ranks, treadle_builder *text) {
  int64_t size = whose->sizes->fsdp_size;
  char instead[TREADLE_DIVISORS_ROOM];
  if (size < 1) size = ranks;
  if (ranks % size != 0)
    REFUSE("%s: %s not divided by %s, %lld; %s", whose->config->file, treadle_text_count_is(ranks, "rank"),
           PLACE_OF(whose, fsdp_size), (long long)size,
           treadle_divisors_near("fsdp_size", ranks, size, 1, instead));
  if (size > 1) treadle_builder_add(text, "dp=%lld,", (long long)size);
  if (ranks > size) treadle_builder_add(text, "replicate=%lld,", (long long)(ranks / size));
  return TREADLE_OK;
}

/* All of a given text but its type and dtype. */
static treadle_status add_given(const divided *whose, treadle_arena *arena, treadle_builder *text) {
  treadle_settings words;
  treadle_status status = treadle_settings_parse(whose->sizes->layout, arena, &words);
  for (int i = 0; !status && i < words.count; i++) {
    const char *quote = strchr(words.words[i].value, ',') ? "\"" : "";
    if (strcmp(words.words[i].key, "dtype") != 0)
      treadle_builder_add(text, "%s=%s%s%s,", words.words[i].key, quote, words.words[i].value, quote);
  }
  return status;
}

/* "megatron", "hf", "fsdp2"; or the one that the distributed optimizer has. */
static const char *type_of(const divided *whose, treadle_train_part part) {
  const treadle_train_settings *s = &whose->config->settings;
  if (whose->sizes->strategy == TREADLE_STRATEGY_FSDP2) return "fsdp2";
  if (part == TREADLE_PART_MASTERS && s->training.use_distributed_optimizer) return "distopt";
  return whose->sizes->layout && treadle_text_starts(whose->sizes->layout, "hf") ? "hf" : "megatron";
}

treadle_status treadle_train_config_layout(const treadle_train_config *config, treadle_train_part part,
                                           int64_t layers, int64_t ranks, char *text, size_t room) {
  const treadle_train_settings *s = &config->settings;
  const divided whose = divided_of(config, part);
  treadle_builder whole = {0};
  treadle_arena arena = {0};
  treadle_status status;
  treadle_builder_add(&whole, "%s:", type_of(&whose, part));
  if (whose.sizes->layout)
    TRY(add_given(&whose, &arena, &whole));
  else if (whose.sizes->strategy == TREADLE_STRATEGY_FSDP2)
    TRY(add_fsdp2(&whose, ranks, &whole));
  else
    TRY(add_megatron(&whose, layers, ranks, &whole));
  treadle_builder_add(&whole, "dtype=%s",
                      s->training.bf16 && part != TREADLE_PART_MASTERS ? "bf16" : "fp32");
  if (whole.failed)
    status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for the text of a layout", config->file);
  else if (whole.length >= room)
    status = treadle_fail(TREADLE_REFUSED, "%s: %s is longer than %zu characters", config->file,
                          PLACE_OF(&whose, layout), room - 1);
  else
    memcpy(text, whole.text, whole.length + 1);
out:
  treadle_builder_release(&whole);
  treadle_arena_release(&arena);
  return status;
}

treadle_status treadle_train_config_micro_batches(const treadle_train_config *config, int64_t dp,
                                                  int64_t pp, int64_t *count_p) {
  const treadle_train_settings *s = &config->settings;
  int64_t rows = s->training.global_batch_size, micro = s->actor.micro_batch_size;
  *count_p = 0;
  if (rows % dp != 0)
    REFUSE("%s: %s is %s, which %lld data parallel ranks do not divide", config->file,
           PLACE(training.global_batch_size), treadle_text_of_count(rows, "row"), (long long)dp);
  if (!micro) return TREADLE_OK;
  if (rows / dp % micro != 0)
    REFUSE("%s: %s is %s, %lld on each of %s, which %s, %lld, does not divide", config->file,
           PLACE(training.global_batch_size), treadle_text_of_count(rows, "row"), (long long)(rows / dp),
           treadle_text_of_count(dp, "data parallel rank"), PLACE(actor.micro_batch_size),
           (long long)micro);
  int64_t count = rows / dp / micro;
  if (s->actor.num_layers_per_virtual_pipeline_stage && count % pp != 0)
    REFUSE("%s: the micro batches of a rank, %lld, are not divided by %s, %lld, as %s needs", config->file,
           (long long)count, PLACE(actor.pipeline_model_parallel_size), (long long)pp,
           PLACE(actor.num_layers_per_virtual_pipeline_stage));
  *count_p = count;
  return TREADLE_OK;
}
