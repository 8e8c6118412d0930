/* RLinf's files for reasoning with Megatron or FSDP (rlinf/config.py, rlinf/utils/placement.py). Actor and rollout are on the same accelerators,
 * or on others. On the same ones the engine's ranks go in strides, so that each trainer feeds one engine: the rank map `strided`. */
#include "run/config_switch.h"

#include "base/utf8.h"

#include <string.h>

static const char *const sections[] = {"cluster", "runner", "rollout", "actor", "megatron", NULL};

static const treadle_switch_row rows[] = {
    {"model.model_path", TREADLE_ASK_MODEL},
    {"rollout.model.model_path", TREADLE_ASK_MODEL},
    {"rollout.model_dir", TREADLE_ASK_MODEL},
    {"actor.training_backend", TREADLE_ASK_STRATEGY},
    {"model.tensor_model_parallel_size", TREADLE_ASK_TP},
    {"model.pipeline_model_parallel_size", TREADLE_ASK_PP},
    {"model.virtual_pipeline_model_parallel_size", TREADLE_ASK_VPP},
    {"model.context_parallel_size", TREADLE_ASK_CP},
    {"model.expert_model_parallel_size", TREADLE_ASK_EP},
    {"model.expert_tensor_parallel_size", TREADLE_ASK_ETP},
    {"model.precision", TREADLE_ASK_MEGATRON_DTYPE},
    {"actor.fsdp_config.strategy", TREADLE_ASK_FSDP_TYPE},
    {"actor.fsdp_config.fsdp_size", TREADLE_ASK_FSDP_SIZE},
    {"actor.fsdp_config.use_orig_params", TREADLE_ASK_ORIG_PARAMS},
    {"rollout.rollout_backend", TREADLE_ASK_ENGINE},
    {"rollout.tensor_parallel_size", TREADLE_ASK_INFER_TP},
    {"rollout.pipeline_parallel_size", TREADLE_ASK_INFER_PP},
    {"rollout.model.precision", TREADLE_ASK_INFER_DTYPE},
    {"cluster.num_nodes", TREADLE_ASK_NODES},
    {"cluster.component_placement", TREADLE_ASK_PLACEMENT},
    {"actor.enable_offload", TREADLE_ASK_OFFLOAD},
    {"actor.offload_weight", TREADLE_ASK_OFFLOAD_PARAMS},
    {"actor.offload_grad", TREADLE_ASK_OFFLOAD_GRADS},
    {"actor.offload_optimizer", TREADLE_ASK_OFFLOAD_OPTIMIZER},
};

static const treadle_train_limit limits[] = {
    {"actor.fsdp_config.sharding_strategy",
     {"full_shard", "shard_grad_op"},
     "say --from with replicate for copies of the model"},
    {"model.sharding_strategy",
     {"full_shard", "shard_grad_op"},
     "say --from with replicate for copies of the model"},
    {"model.is_lora", {"false"}, "an adapter is not the model's weights: what moves then is another thing"},
    {"rollout.data_parallel_size", {"1"}, "replicas follow from the accelerators"},
    {"rollout.expert_parallel_size", {"1"}, "say --to with ep"},
    {"cluster.auto_scheduler",
     {"false"},
     "accelerators that change hands are several layouts: say --from and --to for one of them"},
    {"runner.task_type",
     {"reasoning", "reasoning_eval", "coding_online_rl"},
     "the layouts here are of language models"},
};

/* ---- Where they are --------------------------------------------------------------------------------------- */

typedef struct rlinf_places {
  treadle_switch_span actor, rollout;
  int64_t train, infer; /* ranks; 0: not known */
  bool is_apart;
} rlinf_places;

static const char *head_of(const treadle_config_reader *reader, const treadle_switch_span *range) {
  return treadle_given_head_at(reader->config, range->path, range->line);
}

static treadle_status check_apart(const treadle_config_reader *reader, const rlinf_places *places) {
  const treadle_switch_span *actor = &places->actor, *rollout = &places->rollout;
  if (actor->is_all != rollout->is_all)
    REFUSE("%s: all for one of actor and rollout alone; number the accelerators of both",
           head_of(reader, rollout));
  if (places->is_apart && actor->first <= rollout->last && rollout->first <= actor->last)
    REFUSE("%s: rollout is on %lld-%lld and actor on %lld-%lld: they share all accelerators or none",
           head_of(reader, rollout), (long long)rollout->first, (long long)rollout->last,
           (long long)actor->first, (long long)actor->last);
  const treadle_switch_span *inference = &reader->asked->placed[TREADLE_PLACED_INFERENCE];
  if (!places->is_apart && inference->path)
    REFUSE("%s: inference has no accelerators of its own where actor and rollout share theirs",
           head_of(reader, inference));
  return TREADLE_OK;
}

static treadle_status settle_places(treadle_config_reader *reader, rlinf_places *places) {
  struct treadle_switch_values *asked = reader->asked;
  treadle_switch_span *actor = &places->actor, *rollout = &places->rollout;
  treadle_status status;
  TRY(treadle_asked_size(reader, TREADLE_ASK_NODES, 1, 0, &asked->info.nodes));
  *actor = asked->placed[TREADLE_PLACED_ACTOR];
  *rollout = asked->placed[TREADLE_PLACED_ROLLOUT];
  if (!actor->path && !rollout->path) return TREADLE_OK;
  if ((!actor->path || !rollout->path) && reader->refusals) return TREADLE_OK; /* it is said already */
  if (!actor->path || !rollout->path)
    REFUSE("%s: cluster.component_placement has no place for %s",
           head_of(reader, actor->path ? actor : rollout), actor->path ? "rollout" : "actor");
  places->is_apart = !actor->is_all && (actor->first != rollout->first || actor->last != rollout->last);
  TRY(check_apart(reader, places));
  if (actor->is_all) return TREADLE_OK;
  places->train = actor->count;
  places->infer = rollout->count;
  asked->info.ranks = asked->highest + 1;
out:
  return status;
}

/* ---- Layouts ---------------------------------------------------------------------------------------------- */

static treadle_status settle_offload(treadle_config_reader *reader) {
  treadle_switch_config_info *info = &reader->asked->info;
  bool all;
  treadle_status status;
  TRY(treadle_asked_truth(reader, TREADLE_ASK_OFFLOAD, false, &all));
  TRY(treadle_asked_truth(reader, TREADLE_ASK_OFFLOAD_PARAMS, all, &info->offload_params));
  TRY(treadle_asked_truth(reader, TREADLE_ASK_OFFLOAD_GRADS, all, &info->offload_grads));
  TRY(treadle_asked_truth(reader, TREADLE_ASK_OFFLOAD_OPTIMIZER, all, &info->offload_optimizer));
out:
  return status;
}

/* FSDP's parameters have the model's precision, too. */
static treadle_status add_fsdp(treadle_config_reader *reader, treadle_builder *text, int64_t ranks) {
  static const char *const types[] = {"fsdp", "fsdp2", NULL};
  const char *type;
  treadle_status status;
  TRY(treadle_asked_word(reader, TREADLE_ASK_FSDP_TYPE, types, "fsdp", &type));
  reader->asked->of[TREADLE_ASK_FSDP_DTYPE] = reader->asked->of[TREADLE_ASK_MEGATRON_DTYPE];
  reader->asked->of[TREADLE_ASK_MEGATRON_DTYPE].is_used = true;
  TRY(treadle_asked_add_fsdp(reader, text, type, ranks));
out:
  return status;
}

static treadle_status settle_train(treadle_config_reader *reader, const rlinf_places *places,
                                   int64_t *tp_p) {
  static const char *const backends[] = {"megatron", "fsdp", NULL};
  treadle_switch_config_info *info = &reader->asked->info;
  treadle_builder text = {0};
  const char *backend;
  treadle_status status;
  *tp_p = 1;
  TRY(treadle_asked_word(reader, TREADLE_ASK_STRATEGY, backends, "megatron", &backend));
  TRY(settle_offload(reader));
  if (strcmp(backend, "fsdp") == 0)
    TRY(add_fsdp(reader, &text, places->train));
  else
    TRY(treadle_asked_add_megatron(reader, &text, places->train, tp_p));
  if (places->train) treadle_asked_add_ranks(&text, places->actor.first, places->actor.last, info->ranks);
  TRY(treadle_asked_keep(reader, &text, TREADLE_ASK_STRATEGY, &info->train));
out:
  treadle_builder_release(&text);
  return status;
}

/* Strides of train tp / infer tp, unless the engine's tp is the larger one. */
static treadle_status settle_map(treadle_config_reader *reader, const rlinf_places *places, int64_t train,
                                 int64_t infer) {
  if (places->is_apart || train <= infer) return TREADLE_OK;
  if (train % infer != 0)
    REFUSE("%s is %lld, which does not divide tensor_model_parallel_size of the actor, %lld",
           treadle_asked_head(reader, TREADLE_ASK_INFER_TP), (long long)infer, (long long)train);
  reader->asked->info.rank_map = TREADLE_STRIDED;
  return TREADLE_OK;
}

static treadle_status settle_infer(treadle_config_reader *reader, const rlinf_places *places,
                                   int64_t train_tp) {
  static const char *const engines[] = {"sglang", "vllm", NULL};
  treadle_switch_config_info *info = &reader->asked->info;
  treadle_builder text = {0};
  const char *engine, *dtype;
  int64_t tp, pp;
  treadle_status status;
  TRY(treadle_asked_word(reader, TREADLE_ASK_ENGINE, engines, "sglang", &engine)); /* RLinf's default */
  TRY(treadle_asked_size(reader, TREADLE_ASK_INFER_TP, 1, 1, &tp));
  TRY(treadle_asked_size(reader, TREADLE_ASK_INFER_PP, 1, 1, &pp));
  TRY(treadle_asked_check_ranks(reader, TREADLE_ASK_INFER_TP, "tp * pp", places->infer, tp * pp));
  TRY(settle_map(reader, places, train_tp, tp));
  treadle_builder_add(&text, "%s", engine);
  treadle_asked_add_size(&text, "tp", tp);
  treadle_asked_add_size(&text, "pp", pp);
  TRY(treadle_asked_dtype(reader,
                          treadle_asked_is_given(reader, TREADLE_ASK_INFER_DTYPE)
                              ? TREADLE_ASK_INFER_DTYPE
                              : TREADLE_ASK_MEGATRON_DTYPE,
                          &dtype));
  treadle_asked_add_word(&text, "dtype", dtype);
  if (places->infer)
    treadle_asked_add_ranks(&text, places->rollout.first, places->rollout.last, info->ranks);
  TRY(treadle_asked_keep(reader, &text, TREADLE_ASK_ENGINE, &info->infer));
out:
  treadle_builder_release(&text);
  return status;
}

static treadle_status settle(treadle_config_reader *reader) {
  rlinf_places places = {0};
  int64_t train_tp;
  treadle_status status;
  reader->asked->info.model = treadle_asked_text(reader, TREADLE_ASK_MODEL, NULL);
  TRY(settle_places(reader, &places));
  TRY(settle_train(reader, &places, &train_tp));
  TRY(settle_infer(reader, &places, train_tp));
out:
  return status;
}

const treadle_switch_project treadle_switch_rlinf = {.facts = &treadle_train_others_rlinf,
                                                     .sections = sections,
                                                     .rows = rows,
                                                     .count = sizeof rows / sizeof *rows,
                                                     .limits = limits,
                                                     .limit_count = sizeof limits / sizeof *limits,
                                                     .settle = settle};
