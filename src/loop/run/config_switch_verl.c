/* verl 0.9's generated trainer files: what its workers make of the keys (verl/workers/engine, verl/workers/rollout). Trainer and engine are on
 * the same ranks, unless trainer.v1.trainer_mode is separate_async: then the engine has nodes of its own, after the trainer's. */
#include "run/config_switch.h"

#include "base/utf8.h"

#include <string.h>

#define ACTOR    "actor_rollout_ref.actor."
#define MEGATRON "actor_rollout_ref.actor.megatron."
#define OVERRIDE "actor_rollout_ref.actor.megatron.override_transformer_config."
#define FSDP     "actor_rollout_ref.actor.fsdp_config."
#define ROLLOUT  "actor_rollout_ref.rollout."
#define VLLM     "actor_rollout_ref.rollout.engine_kwargs.vllm."
#define SGLANG   "actor_rollout_ref.rollout.engine_kwargs.sglang."
#define MODEL    "actor_rollout_ref.model."

static const char *const sections[] = {"actor_rollout_ref", NULL};

static const treadle_switch_row rows[] = {
    {MODEL "path", TREADLE_ASK_MODEL},
    {ACTOR "strategy", TREADLE_ASK_STRATEGY},
    {MEGATRON "tensor_model_parallel_size", TREADLE_ASK_TP},
    {MEGATRON "pipeline_model_parallel_size", TREADLE_ASK_PP},
    {MEGATRON "virtual_pipeline_model_parallel_size", TREADLE_ASK_VPP},
    {MEGATRON "context_parallel_size", TREADLE_ASK_CP},
    {MEGATRON "expert_model_parallel_size", TREADLE_ASK_EP},
    {MEGATRON "expert_tensor_parallel_size", TREADLE_ASK_ETP},
    {MEGATRON "dtype", TREADLE_ASK_MEGATRON_DTYPE},
    {ACTOR "megatron_config.tensor_parallel_size", TREADLE_ASK_TP}, /* as its documents show them */
    {ACTOR "megatron_config.pipeline_parallel_size", TREADLE_ASK_PP},
    {ACTOR "megatron_config.expert_parallel_size", TREADLE_ASK_EP},
    {ROLLOUT "tensor_parallel_size", TREADLE_ASK_INFER_TP},
    {OVERRIDE "num_layers_in_first_pipeline_stage", TREADLE_ASK_FIRST},
    {OVERRIDE "num_layers_in_last_pipeline_stage", TREADLE_ASK_LAST},
    {OVERRIDE "account_for_embedding_in_pipeline_split", TREADLE_ASK_EMBEDDING_SPLIT},
    {OVERRIDE "account_for_loss_in_pipeline_split", TREADLE_ASK_LOSS_SPLIT},
    {OVERRIDE "pipeline_model_parallel_layout", TREADLE_ASK_STAGES},
    {FSDP "fsdp_size", TREADLE_ASK_FSDP_SIZE},
    {FSDP "model_dtype", TREADLE_ASK_FSDP_DTYPE},
    {FSDP "use_orig_params", TREADLE_ASK_ORIG_PARAMS},
    {FSDP "offload_policy", TREADLE_ASK_ON_HOST},
    {ROLLOUT "name", TREADLE_ASK_ENGINE},
    {ROLLOUT "tensor_model_parallel_size", TREADLE_ASK_INFER_TP},
    {ROLLOUT "pipeline_model_parallel_size", TREADLE_ASK_INFER_PP},
    {ROLLOUT "data_parallel_size", TREADLE_ASK_INFER_DP},
    {ROLLOUT "expert_parallel_size", TREADLE_ASK_INFER_EP},
    {SGLANG "enable_dp_attention", TREADLE_ASK_INFER_ATTENTION_DP},
    {ROLLOUT "dtype", TREADLE_ASK_INFER_DTYPE},
    {"trainer.nnodes", TREADLE_ASK_NODES},
    {"trainer.n_gpus_per_node", TREADLE_ASK_NODE_RANKS},
    {"trainer.v1.trainer_mode", TREADLE_ASK_MODE},
    {ROLLOUT "nnodes", TREADLE_ASK_INFER_NODES},
    {ROLLOUT "n_gpus_per_node", TREADLE_ASK_INFER_NODE_RANKS},
    {MEGATRON "param_offload", TREADLE_ASK_OFFLOAD_PARAMS},
    {MEGATRON "grad_offload", TREADLE_ASK_OFFLOAD_GRADS},
    {MEGATRON "optimizer_offload", TREADLE_ASK_OFFLOAD_OPTIMIZER},
    {FSDP "param_offload", TREADLE_ASK_FSDP_OFFLOAD_PARAMS},
    {FSDP "optimizer_offload", TREADLE_ASK_FSDP_OFFLOAD_OPTIMIZER},
    {ROLLOUT "checkpoint_engine.update_weights_bucket_megabytes", TREADLE_ASK_CAP_MIB},
    {ROLLOUT "update_weights_bucket_megabytes", TREADLE_ASK_CAP_MIB},
};

#define LORA "an adapter is not the model's weights: what moves then is another thing"
#define ONLINE                                                                                             \
  "what is quantised while it is loaded has no layout here; say --to with dtype=fp8 for a model with fp8 " \
  "blocks"
#define SAY(key) "say actor_rollout_ref.rollout." key

static const treadle_train_limit limits[] = {
    {MEGATRON "use_megatron_fsdp", {"false"}, "Megatron's own FSDP has no layout here"},
    {MEGATRON "override_mcore_model_config", {NULL}, "the model is what its config.json says"},
    {FSDP "wrap_policy.min_num_params", {"0"}, "units of FSDP are decoder layers"},
    {FSDP "wrap_policy.transformer_layer_cls_to_wrap", {NULL}, "units of FSDP are decoder layers"},
    {FSDP "wrap_policy.disable", {"false"}, "say --from fsdp:wrap=none"},
    {FSDP "qat.enable", {"false"}, ONLINE},
    {MEGATRON "qat.enable", {"false"}, ONLINE},
    {ACTOR "qat.enable", {"false"}, ONLINE},
    {MODEL "lora_rank", {"0"}, LORA},
    {MODEL "lora.rank", {"0"}, LORA},
    {MODEL "lora_adapter_path", {NULL}, LORA},
    {MODEL "lora.adapter_path", {NULL}, LORA},
    {MODEL "hf_config_path", {NULL}, "say --model with that config.json"},
    {MODEL "override_config", {NULL}, "change the config.json of --model"},
    {ROLLOUT "quantization", {NULL}, ONLINE},
    {ROLLOUT "quantization_config_file", {NULL}, ONLINE},
    {ROLLOUT "disaggregation.enabled",
     {"false"},
     "two kinds of replicas are two layouts: say --to for one"},
    {VLLM "quantization", {NULL}, ONLINE},
    {VLLM "dtype", {NULL}, SAY("dtype")},
    {VLLM "tensor_parallel_size", {NULL}, SAY("tensor_model_parallel_size")},
    {VLLM "pipeline_parallel_size", {NULL}, SAY("pipeline_model_parallel_size")},
    {VLLM "data_parallel_size", {NULL}, SAY("data_parallel_size")},
    {VLLM "enable_expert_parallel", {NULL}, SAY("expert_parallel_size")},
    {VLLM "prefill_context_parallel_size", {"1"}, "say --to with pcp"},
    {VLLM "decode_context_parallel_size", {"1"}, "say --to with dcp"},
    {VLLM "enable_eplb", {"false"}, "say --to with redundant and map"},
    {SGLANG "quantization", {NULL}, ONLINE},
    {SGLANG "dtype", {NULL}, SAY("dtype")},
    {SGLANG "tp_size", {NULL}, SAY("tensor_model_parallel_size")},
    {SGLANG "pp_size", {NULL}, SAY("pipeline_model_parallel_size")},
    {SGLANG "dp_size", {NULL}, SAY("data_parallel_size")},
    {SGLANG "ep_size", {NULL}, SAY("expert_parallel_size")},
    {SGLANG "moe_dense_tp_size", {NULL}, "say --to with moe_dense_tp"},
    {SGLANG "enable_dp_lm_head", {"false"}, "say --to with dp_lm_head=on"},
    {SGLANG "moe_a2a_backend", {"none"}, "say --to with a2a"},
    {SGLANG "ep_num_redundant_experts", {"0"}, "say --to with redundant"},
    {"actor_rollout_ref.hybrid_engine",
     {"true"},
     "an engine with ranks of its own is trainer.v1.trainer_mode=separate_async"},
    {"trainer.v1.separate_async.hybrid_rollout.enable_switch",
     {"false"},
     "replicas that come and go are several layouts: say --to for one of them"},
};

/* ---- Ranks ------------------------------------------------------------------------------------------------ */

typedef struct verl_ranks {
  int64_t train, infer; /* infer 0: the engine is on the trainer's */
} verl_ranks;

static treadle_status settle_apart(treadle_config_reader *reader, int64_t each, verl_ranks *ranks) {
  treadle_train_config *config = reader->config;
  treadle_switch_config_info *info = &reader->asked->info;
  int64_t nodes, of_node;
  treadle_status status;
  TRY(treadle_asked_size(reader, TREADLE_ASK_INFER_NODES, 0, 0, &nodes));
  TRY(treadle_asked_size(reader, TREADLE_ASK_INFER_NODE_RANKS, 1, each, &of_node));
  if (!nodes)
    REFUSE("%s is separate_async, which needs " ROLLOUT "nnodes above 0",
           treadle_asked_head(reader, TREADLE_ASK_MODE));
  ranks->infer = nodes * of_node;
  info->ranks += ranks->infer;
  info->nodes = of_node == each ? info->nodes + nodes : 0;
  if (of_node != each)
    TRY(treadle_train_config_warn(
        config,
        treadle_arena_format(&config->arena,
                             "%s is %lld, and a node of the trainer has %lld: bytes between nodes are "
                             "told for nodes of one size alone",
                             treadle_asked_head(reader, TREADLE_ASK_INFER_NODE_RANKS), (long long)of_node,
                             (long long)each)));
out:
  return status;
}

static treadle_status settle_ranks(treadle_config_reader *reader, verl_ranks *ranks) {
  static const char *const modes[] = {"sync", "colocate_async", "separate_async", NULL};
  treadle_switch_config_info *info = &reader->asked->info;
  const char *mode;
  int64_t each;
  treadle_status status;
  TRY(treadle_asked_size(reader, TREADLE_ASK_NODES, 1, 0, &info->nodes));
  TRY(treadle_asked_size(reader, TREADLE_ASK_NODE_RANKS, 1, 0, &each));
  TRY(treadle_asked_word(reader, TREADLE_ASK_MODE, modes, "sync", &mode));
  ranks->train = info->ranks = info->nodes * each;
  if (strcmp(mode, "separate_async") != 0) return TREADLE_OK;
  if (!info->ranks)
    REFUSE("%s is separate_async, which needs trainer.nnodes and trainer.n_gpus_per_node",
           treadle_asked_head(reader, TREADLE_ASK_MODE));
  TRY(settle_apart(reader, each, ranks));
out:
  return status;
}

/* ---- Layouts ---------------------------------------------------------------------------------------------- */

/* Megatron's gradients go with its parameters; FSDP's are not there in generation. */
static treadle_status settle_offload(treadle_config_reader *reader, bool is_megatron) {
  treadle_switch_config_info *info = &reader->asked->info;
  bool on_host = false, grads = false;
  treadle_status status;
  if (is_megatron) {
    TRY(treadle_asked_truth(reader, TREADLE_ASK_OFFLOAD_PARAMS, false, &info->offload_params));
    TRY(treadle_asked_truth(reader, TREADLE_ASK_OFFLOAD_GRADS, false, &grads));
    TRY(treadle_asked_truth(reader, TREADLE_ASK_OFFLOAD_OPTIMIZER, false, &info->offload_optimizer));
    info->offload_grads = grads || info->offload_params;
    return TREADLE_OK;
  }
  TRY(treadle_asked_truth(reader, TREADLE_ASK_FSDP_OFFLOAD_PARAMS, false, &info->offload_params));
  TRY(treadle_asked_truth(reader, TREADLE_ASK_FSDP_OFFLOAD_OPTIMIZER, false, &info->offload_optimizer));
  TRY(treadle_asked_truth(reader, TREADLE_ASK_ON_HOST, false, &on_host));
  info->offload_params = info->offload_params || on_host;
  info->offload_optimizer = info->offload_optimizer || on_host;
out:
  return status;
}

static treadle_status settle_train(treadle_config_reader *reader, const verl_ranks *ranks) {
  static const char *const strategies[] = {"fsdp", "fsdp2", "megatron", NULL};
  treadle_switch_config_info *info = &reader->asked->info;
  treadle_builder text = {0};
  const char *strategy;
  int64_t tp;
  treadle_status status;
  TRY(treadle_asked_word(reader, TREADLE_ASK_STRATEGY, strategies, "fsdp", &strategy));
  TRY(settle_offload(reader, strcmp(strategy, "megatron") == 0));
  if (strcmp(strategy, "megatron") == 0)
    TRY(treadle_asked_add_megatron(reader, &text, ranks->train, &tp));
  else
    TRY(treadle_asked_add_fsdp(reader, &text, strategy, ranks->train));
  if (ranks->infer) treadle_asked_add_ranks(&text, 0, ranks->train - 1, info->ranks);
  TRY(treadle_asked_keep(reader, &text, TREADLE_ASK_STAGES, &info->train));
out:
  treadle_builder_release(&text);
  return status;
}

/* tp and dp are of one replica. SGLang counts dp in tp, and cuts attention less with enable_dp_attention alone. */
static treadle_status add_engine(treadle_config_reader *reader, treadle_builder *text, const char *engine,
                                 int64_t ranks) {
  const bool is_vllm = strcmp(engine, "vllm") == 0;
  int64_t tp, pp, dp, ep;
  bool has_attention_dp = false;
  treadle_status status;
  TRY(treadle_asked_size(reader, TREADLE_ASK_INFER_TP, 1, 2, &tp)); /* verl's default */
  TRY(treadle_asked_size(reader, TREADLE_ASK_INFER_PP, 1, 1, &pp));
  TRY(treadle_asked_size(reader, TREADLE_ASK_INFER_DP, 1, 1, &dp));
  TRY(treadle_asked_size(reader, TREADLE_ASK_INFER_EP, 1, 1, &ep));
  if (!is_vllm) TRY(treadle_asked_truth(reader, TREADLE_ASK_INFER_ATTENTION_DP, false, &has_attention_dp));
  if (ep > 1 && ep != tp * dp)
    REFUSE("%s is %lld, and must be 1 or tensor_model_parallel_size times data_parallel_size, %lld",
           treadle_asked_head(reader, TREADLE_ASK_INFER_EP), (long long)ep, (long long)(tp * dp));
  TRY(treadle_asked_check_ranks(reader, TREADLE_ASK_INFER_TP, "tp * dp * pp", ranks, tp * dp * pp));
  treadle_builder_add(text, "%s", engine);
  treadle_asked_add_size(text, "tp", is_vllm ? tp : tp * dp);
  treadle_asked_add_size(text, "pp", pp);
  if (is_vllm)
    treadle_asked_add_size(text, "dp", dp);
  else if (has_attention_dp)
    treadle_asked_add_size(text, "attn_dp", dp);
  if (ep > 1 && is_vllm)
    treadle_asked_add_word(text, "ep", "on");
  else
    treadle_asked_add_size(text, "ep", ep);
out:
  return status;
}

/* The generated file leaves the engine to who runs it. */
static treadle_status settle_engine(treadle_config_reader *reader, const char **engine_p) {
  static const char *const engines[] = {"vllm", "sglang", NULL};
  treadle_train_config *config = reader->config;
  const bool has_place = reader->asked->of[TREADLE_ASK_ENGINE].path != NULL;
  treadle_status status;
  TRY(treadle_asked_word(reader, TREADLE_ASK_ENGINE, engines, NULL, engine_p));
  if (*engine_p) goto out;
  *engine_p = engines[0];
  TRY(treadle_train_config_warn(
      config, treadle_arena_format(
                  &config->arena, "%s%s is not said: taken as vllm; say " ROLLOUT "name=sglang for SGLang",
                  treadle_asked_head(reader, TREADLE_ASK_ENGINE), has_place ? "" : ": " ROLLOUT "name")));
out:
  return status;
}

static treadle_status settle_infer(treadle_config_reader *reader, const verl_ranks *ranks) {
  treadle_switch_config_info *info = &reader->asked->info;
  treadle_builder text = {0};
  const char *engine, *dtype;
  treadle_status status;
  TRY(settle_engine(reader, &engine));
  TRY(add_engine(reader, &text, engine, ranks->infer ? ranks->infer : ranks->train));
  TRY(treadle_asked_dtype(reader, TREADLE_ASK_INFER_DTYPE, &dtype));
  treadle_asked_add_word(&text, "dtype", dtype);
  if (ranks->infer) treadle_asked_add_ranks(&text, ranks->train, info->ranks - 1, info->ranks);
  TRY(treadle_asked_keep(reader, &text, TREADLE_ASK_ENGINE, &info->infer));
out:
  treadle_builder_release(&text);
  return status;
}

static treadle_status settle(treadle_config_reader *reader) {
  treadle_switch_config_info *info = &reader->asked->info;
  verl_ranks ranks = {0};
  int64_t mib;
  treadle_status status;
  info->model = treadle_asked_text(reader, TREADLE_ASK_MODEL, NULL);
  TRY(settle_ranks(reader, &ranks));
  TRY(settle_train(reader, &ranks));
  TRY(settle_infer(reader, &ranks));
  TRY(treadle_asked_size(reader, TREADLE_ASK_CAP_MIB, 1, 0, &mib));
  info->cap_bytes = (size_t)mib << 20;
out:
  return status;
}

const treadle_switch_project treadle_switch_verl = {.facts = &treadle_train_others_verl,
                                                    .sections = sections,
                                                    .rows = rows,
                                                    .count = sizeof rows / sizeof *rows,
                                                    .limits = limits,
                                                    .limit_count = sizeof limits / sizeof *limits,
                                                    .settle = settle};
