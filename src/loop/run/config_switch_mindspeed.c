/* MindSpeed-RL's trainer files (mindspeed_rl/config_cls, mindspeed_rl/workers/resharding), and treadle's own, which have their form. Trainer and
 * engine are on the same ranks; the engine is vLLM. */
#include "run/config_switch.h"

#include "base/utf8.h"

#include <string.h>

#define TRAINING "megatron_training."
#define GENERATE "generate_config."

static const char *const sections[] = {"megatron_training", "actor_config", "generate_config", "rl_config",
                                       NULL};

/* Of megatron_training and actor_config alike. */
static const treadle_switch_row rows[] = {
    {TRAINING "tokenizer_name_or_path", TREADLE_ASK_MODEL},
    {TRAINING "model", TREADLE_ASK_MODEL_NAME},
    {TRAINING "strategy", TREADLE_ASK_STRATEGY},
    {TRAINING "layout", TREADLE_ASK_LAYOUT},
    {TRAINING "tensor_model_parallel_size", TREADLE_ASK_TP},
    {TRAINING "pipeline_model_parallel_size", TREADLE_ASK_PP},
    {TRAINING "num_layers_per_virtual_pipeline_stage", TREADLE_ASK_CHUNK_LAYERS},
    {TRAINING "num_layers", TREADLE_ASK_LAYERS},
    {TRAINING "num_layer_list", TREADLE_ASK_LAYER_LIST},
    {TRAINING "context_parallel_size", TREADLE_ASK_CP},
    {TRAINING "expert_model_parallel_size", TREADLE_ASK_EP},
    {TRAINING "expert_tensor_parallel_size", TREADLE_ASK_ETP},
    {TRAINING "moe_tp_extend_ep", TREADLE_ASK_EP_OF_TP},
    {TRAINING "use_tp_pp_dp_mapping", TREADLE_ASK_PP_BEFORE_DP},
    {TRAINING "make_vocab_size_divisible_by", TREADLE_ASK_VOCAB_DIVISIBLE_BY},
    {TRAINING "bf16", TREADLE_ASK_BF16},
    {TRAINING "fp16", TREADLE_ASK_FP16},
    {TRAINING "fsdp_size", TREADLE_ASK_FSDP_SIZE},
    {GENERATE "layout", TREADLE_ASK_INFER_LAYOUT},
    {GENERATE "infer_tensor_parallel_size", TREADLE_ASK_INFER_TP},
    {GENERATE "infer_pipeline_parallel_size", TREADLE_ASK_INFER_PP},
    {GENERATE "infer_expert_parallel_size", TREADLE_ASK_INFER_EP},
    {GENERATE "data_parallel_size", TREADLE_ASK_INFER_DP},
    {GENERATE "enable_expert_parallel", TREADLE_ASK_INFER_EP_ON},
    {GENERATE "dtype", TREADLE_ASK_INFER_DTYPE},
    {GENERATE "offload_train_param", TREADLE_ASK_OFFLOAD_PARAMS},
    {GENERATE "offload_train_grad", TREADLE_ASK_OFFLOAD_GRADS},
    {GENERATE "offload_train_optimizer", TREADLE_ASK_OFFLOAD_OPTIMIZER},
    {"rl_config.actor_resource.num_npus", TREADLE_ASK_RANKS},
};

static const treadle_train_limit limits[] = {
    {TRAINING "noop_layers", {NULL}, "say --from with layout, which has the layers of each stage"},
    {TRAINING "lora_target_modules",
     {NULL},
     "an adapter is not the model's weights: what moves then is another thing"},
    {GENERATE "expert_map_path", {NULL}, "say --to with map=@FILE"},
    {"rl_config.is_multimodal", {"false"}, "the layouts here are of language models"},
};

/* actor_config.model is the name of a file with sizes; the folder of the model is that of its tokenizer. */
static void settle_model(treadle_config_reader *reader) {
  const char *folder = treadle_asked_text(reader, TREADLE_ASK_MODEL, NULL),
             *name = treadle_asked_text(reader, TREADLE_ASK_MODEL_NAME, NULL);
  reader->asked->info.model = name && (strchr(name, '/') || !folder) ? name : folder;
}

static treadle_status settle_train(treadle_config_reader *reader) {
  static const char *const strategies[] = {"megatron", "fsdp2", NULL};
  treadle_switch_config_info *info = &reader->asked->info;
  treadle_builder text = {0};
  const char *strategy, *layout = treadle_asked_text(reader, TREADLE_ASK_LAYOUT, NULL);
  int64_t tp;
  treadle_status status;
  TRY(treadle_asked_word(reader, TREADLE_ASK_STRATEGY, strategies, strategies[0], &strategy));
  if (layout)
    treadle_builder_add(&text, "%s", layout);
  else if (strcmp(strategy, "fsdp2") == 0)
    TRY(treadle_asked_add_fsdp(reader, &text, strategy, info->ranks));
  else
    TRY(treadle_asked_add_megatron(reader, &text, info->ranks, &tp));
  TRY(treadle_asked_keep(reader, &text, TREADLE_ASK_LAYOUT, &info->train));
out:
  treadle_builder_release(&text);
  return status;
}

/* It is MindSpeed-RL's default that few would guess. */
static treadle_status warn_of_tp(treadle_config_reader *reader) {
  treadle_train_config *config = reader->config;
  if (treadle_asked_is_given(reader, TREADLE_ASK_INFER_TP)) return TREADLE_OK;
  return treadle_train_config_warn(
      config, treadle_arena_format(&config->arena,
                                   "%s: " GENERATE "infer_tensor_parallel_size is not given: 8, as "
                                   "MindSpeed-RL takes it",
                                   config->file));
}

/* Its expert parallel groups are infer_expert_parallel_size tp groups, which are vLLM's data parallel ranks of one engine. */
static treadle_status add_engine(treadle_config_reader *reader, treadle_builder *text) {
  int64_t tp, pp, ep, dp;
  bool has_ep;
  treadle_status status;
  TRY(warn_of_tp(reader));
  TRY(treadle_asked_size(reader, TREADLE_ASK_INFER_TP, 1, 8, &tp));
  TRY(treadle_asked_size(reader, TREADLE_ASK_INFER_PP, 1, 1, &pp));
  TRY(treadle_asked_size(reader, TREADLE_ASK_INFER_EP, 1, 1, &ep));
  TRY(treadle_asked_size(reader, TREADLE_ASK_INFER_DP, 1, ep, &dp));
  TRY(treadle_asked_truth(reader, TREADLE_ASK_INFER_EP_ON, ep > 1, &has_ep));
  if (ep > 1 && !has_ep)
    REFUSE("%s is %lld, and enable_expert_parallel is false",
           treadle_asked_head(reader, TREADLE_ASK_INFER_EP), (long long)ep);
  if (ep > 1 && ep != dp)
    REFUSE("%s is %lld, and data_parallel_size %lld: vLLM's expert parallel ranks are all of tp and dp",
           treadle_asked_head(reader, TREADLE_ASK_INFER_EP), (long long)ep, (long long)dp);
  TRY(treadle_asked_check_ranks(reader, TREADLE_ASK_INFER_TP, "tp * pp * dp", reader->asked->info.ranks,
                                tp * pp * dp));
  treadle_builder_add(text, "vllm");
  treadle_asked_add_size(text, "tp", tp);
  treadle_asked_add_size(text, "pp", pp);
  treadle_asked_add_size(text, "dp", dp);
  if (has_ep && tp * dp > 1) treadle_asked_add_word(text, "ep", "on");
out:
  return status;
}

static treadle_status settle_infer(treadle_config_reader *reader) {
  treadle_switch_config_info *info = &reader->asked->info;
  treadle_builder text = {0};
  const char *dtype, *layout = treadle_asked_text(reader, TREADLE_ASK_INFER_LAYOUT, NULL);
  treadle_status status;
  if (layout) {
    treadle_builder_add(&text, "%s", layout);
  } else {
    TRY(add_engine(reader, &text));
    TRY(treadle_asked_dtype(reader, TREADLE_ASK_INFER_DTYPE, &dtype));
    treadle_asked_add_word(&text, "dtype", dtype);
  }
  TRY(treadle_asked_keep(reader, &text, TREADLE_ASK_INFER_LAYOUT, &info->infer));
out:
  treadle_builder_release(&text);
  return status;
}

static treadle_status settle(treadle_config_reader *reader) {
  treadle_switch_config_info *info = &reader->asked->info;
  treadle_status status;
  settle_model(reader);
  TRY(treadle_asked_size(reader, TREADLE_ASK_RANKS, 1, 0, &info->ranks));
  TRY(treadle_asked_truth(reader, TREADLE_ASK_OFFLOAD_PARAMS, false, &info->offload_params));
  TRY(treadle_asked_truth(reader, TREADLE_ASK_OFFLOAD_GRADS, false, &info->offload_grads));
  TRY(treadle_asked_truth(reader, TREADLE_ASK_OFFLOAD_OPTIMIZER, false, &info->offload_optimizer));
  TRY(settle_train(reader));
  TRY(settle_infer(reader));
out:
  return status;
}

const treadle_switch_project treadle_switch_mindspeed = {.facts = &treadle_train_others_mindspeed,
                                                         .sections = sections,
                                                         .rows = rows,
                                                         .count = sizeof rows / sizeof *rows,
                                                         .limits = limits,
                                                         .limit_count = sizeof limits / sizeof *limits,
                                                         .settle = settle};
