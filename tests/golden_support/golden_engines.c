/* The engines' ranks tensor by tensor: vllm_params*, sglang_params*, the draft models and the fp8 scales. */
#include "golden_support/golden_parts.h"

#include <stdlib.h>
#include <string.h>

/* Sizes of `parallel` in layout words; `ep` is a switch in vLLM's files. */
static void text_of_parallel(golden_case *c) {
  static const char *const sizes[] = {"tp", "pp", "dp", "pcp", "ep", "attn_dp", "attn_cp"};
  const json_t *parallel = json_object_get(c->item, "parallel");
  c->ranks = golden_int(parallel, "tp", 1) * golden_int(parallel, "pp", 1) * golden_int(parallel, "dp", 1) *
             golden_int(parallel, "pcp", 1);
  snprintf(c->text, sizeof c->text, "%s", strncmp(c->file, "vllm", 4) == 0 ? "vllm" : "sglang");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    int64_t size = golden_int(parallel, sizes[i], 1);
    if (size > 1) golden_option(c, "%s=%lld", sizes[i], (long long)size);
  }
  if (json_is_true(json_object_get(parallel, "ep"))) golden_option(c, "ep=on");
}

/* Whether SGLang keeps the shared expert with the routed ones: shared_experts_fusion_disable_reason() of the
 * model's class. Only DeepSeek can be ordered to; on a CUDA device DeepSeek-V3 with 256 experts and GLM-4.5 do so
 * by themselves, without expert parallelism and without an all-to-all backend (docs/rules.md 6.3). */
static bool fuses_shared(const golden_case *c) {
  const json_t *options = json_object_get(c->item, "options");
  const char *type = json_string_value(json_object_get(c->config, "model_type"));
  bool glm = strcmp(type, "glm4_moe") == 0, v3 = strcmp(type, "deepseek_v3") == 0;
  bool deepseek = v3 || strcmp(type, "deepseek_v2") == 0, dsa = strcmp(type, "glm_moe_dsa") == 0;
  if (json_is_true(json_object_get(options, "disable_shared_experts_fusion"))) return false;
  if (deepseek && json_is_true(json_object_get(options, "enforce_shared_experts_fusion"))) return true;
  if (strcmp(type, "glm4_moe_lite") == 0) glm = golden_int(c->config, "n_shared_experts", 0) == 1;
  bool alone = (v3 || dsa) && golden_int(c->config, "n_routed_experts", 0) == 256 &&
               golden_int(c->config, "n_shared_experts", 0) == 1;
  return (glm || alone) && json_is_true(json_object_get(options, "cuda_answers")) &&
         !json_object_get(options, "moe_a2a_backend") &&
         golden_int(json_object_get(c->item, "parallel"), "ep", 1) == 1;
}

/* These of SGLang's models do not look at a map; layouts refuse one for them. */
static bool places_in_order(const golden_case *c) {
  const char *type = json_string_value(json_object_get(c->config, "model_type"));
  return strcmp(type, "mixtral") == 0 || strcmp(type, "glm4_moe") == 0;
}

/* Engine options and their layout words; no word: an option that changes no weight, or that fuses_shared has
 * read. */
static const struct {
  const char *option, *word;
} words[] = {{"ep_num_redundant_experts", "redundant"},
             {"num_redundant_experts", "redundant"},
             {"expert_placement_strategy", "placement"},
             {"moe_dp_size", "moe_dp"},
             {"moe_dense_tp_size", "moe_dense_tp"},
             {"enable_dp_lm_head", "dp_lm_head"},
             {"enforce_shared_experts_fusion", NULL},
             {"moe_a2a_backend", "a2a"},
             {"moe_runner_backend", "moe"},
             {"VLLM_PP_LAYER_PARTITION", "partition"},
             {"SGLANG_PP_LAYER_PARTITION", "partition"},
             {"cuda_answers", NULL},
             {"model_class", NULL},
             {"SGLANG_DISABLE_DSA_INDEXER_FUSION", "indexer_fusion"},
             {"disable_shared_experts_fusion", NULL},
             {"attention_backend", NULL},
             {"enable_eplb", NULL},
             {"deepep_mode", NULL},
             {"decode_context_parallel_size", "dcp"}};

static golden_verdict say_options(golden_case *c, const json_t *options) {
  const char *option;
  json_t *value;
  golden_verdict verdict = GOLDEN_EQUAL;
  json_object_foreach((json_t *)(uintptr_t)options, option, value) {
    size_t i = 0, count = sizeof words / sizeof *words;
    const char *text = json_string_value(value);
    if (json_is_object(value)) { /* env, eplb */
      verdict = say_options(c, value);
      continue;
    }
    if (strcmp(option, "init_expert_location") == 0 && places_in_order(c)) continue;
    if (strcmp(option, "init_expert_location") == 0) {
      json_t *maps = json_loads(text, 0, NULL);
      golden_option_map(c, maps);
      json_decref(maps);
      continue;
    }
    while (i < count && strcmp(words[i].option, option) != 0) i++;
    if (i == count) return golden_differ(c, "nobody knows option %s", option);
    const char *word = words[i].word;
    if (!word) continue;
    if (json_is_integer(value)) golden_option(c, "%s=%lld", word, (long long)json_integer_value(value));
    if (json_is_true(value)) golden_option(c, "%s=on", word);
    if (strcmp(word, "indexer_fusion") == 0) text = "off";
    if (text && strcmp(text, "triton_kernel") == 0) text = "triton_kernels"; /* as SGLang spells it */
    if (text) golden_option(c, strchr(text, ',') ? "%s=\"%s\"" : "%s=%s", word, text);
  }
  return verdict;
}

/* The layout text of a case. The files have one too ("layout"), made by whoever recorded them; this one comes
 * from what the engine was told. */
static golden_verdict say_case(golden_case *c) {
  text_of_parallel(c);
  if (fuses_shared(c)) golden_option(c, "shared_fusion=on");
  return say_options(c, json_object_get(c->item, "options"));
}

/* A weight of the file that lies on no rank. */
static bool drops_weights(const json_t *ranks) {
  const json_t *first = json_object_get(json_array_get(ranks, 0), "unused");
  for (size_t i = 0; i < json_array_size(first); i++) {
    size_t lacking = 0;
    for (size_t r = 0; r < json_array_size(ranks); r++) {
      const json_t *unused = json_object_get(json_array_get(ranks, r), "unused");
      for (size_t k = 0; k < json_array_size(unused); k++)
        lacking += golden_at(unused, k) == golden_at(first, i);
    }
    if (lacking == json_array_size(ranks)) return true;
  }
  return false;
}

/* SGLang gives every layer of some families experts, whatever the config says, and never writes those of dense
 * layers; its Llama drops the biases of the MLP. A subject may refuse such a model, where the engine would
 * serve noise. */
static bool is_refused_for_holes(const golden_case *c) {
  if (!json_object_get(c->item, "never_written") && !drops_weights(json_object_get(c->item, "ranks")))
    return false;
  void *layout = c->subject->open(c->config, c->text, c->ranks);
  if (layout) c->subject->close(layout);
  return !layout;
}

/* Engines and model types, a pair a line, of which no family speaks yet. */
static const char coming_path[] = TREADLE_SOURCE_DIR "/tests/golden/COMING.txt";

/* Cases of those are skipped, which is said; what has come must be taken off the list. */
static golden_verdict check_coming(golden_case *c) {
  const char *type = json_string_value(json_object_get(c->config, "model_type"));
  char line[128], wanted[128], engine[16];
  snprintf(engine, sizeof engine, "%.*s", (int)strcspn(c->file, "_"), c->file);
  const json_t *options = json_object_get(c->item, "options");
  bool sparse = strcmp(type, "glm_moe_dsa") == 0 || strcmp(type, "deepseek_v32") == 0;
  if (sparse && strcmp(engine, "vllm") == 0 && !json_object_get(options, "model_class"))
    snprintf(engine, sizeof engine,
             "vllm-generic"); /* the class that vLLM takes without CUDA; families have the other */
  snprintf(wanted, sizeof wanted, "%s %s\n", engine, type);
  FILE *file = fopen(coming_path, "r");
  if (!file) return golden_differ(c, "%s cannot be read", coming_path);
  bool listed = false;
  while (!listed && fgets(line, sizeof line, file)) listed = strcmp(line, wanted) == 0;
  fclose(file);
  if (!listed) return GOLDEN_EQUAL;
  void *layout = c->subject->open(c->config, engine, 1);
  if (layout) c->subject->close(layout);
  if (layout) return golden_differ(c, "%s is listed in %s, and there is a layout of it", type, coming_path);
  fprintf(c->out, "%s case %d: skipped, no family for %s yet\n", c->file, c->number, type);
  return GOLDEN_SKIPPED;
}

/* SGLang and transformers matched modules_to_not_convert as plain text when these were recorded, so that a router's entry took the
 * dense gate_proj of its layer with it. treadle goes by the borders of paths, as both do since, and needs to be told. */
static void match_plain_text(golden_case *c) {
  json_t *quantisation = json_object_get(c->config, "quantization_config");
  json_t *list = json_object_get(quantisation, "modules_to_not_convert");
  for (size_t i = 0, count = json_array_size(list); i < count; i++) {
    char more[200];
    const char *entry = json_string_value(json_array_get(list, i));
    size_t length = entry ? strlen(entry) : 0;
    if (length < 9 || strcmp(entry + length - 9, ".mlp.gate") != 0) continue;
    snprintf(more, sizeof more, "%s_proj", entry);
    json_array_append_new(list, json_string(more));
  }
}

/* `part` of every rank's parameters. The first name of a parameter counts (`also` has the others), and
 * strides and dtypes of the engines are left out: the windows are dense and the runs in logical order. */
static golden_verdict check_params(golden_case *c, golden_part part) {
  const json_t *models = json_object_get(c->root, "models");
  const json_t *model = json_array_get(models, (size_t)golden_int(c->item, "model", 0));
  c->config = json_deep_copy(json_object_get(model, "config"));
  match_plain_text(c);
  golden_verdict verdict = check_coming(c);
  if (verdict != GOLDEN_EQUAL) return verdict;
  verdict = say_case(c);
  if (part == GOLDEN_SCALES) golden_option(c, "dtype=fp8");
  if (verdict == GOLDEN_EQUAL) verdict = golden_open(c, is_refused_for_holes(c));
  if (verdict != GOLDEN_EQUAL) return verdict;

  int32_t *numbers = NULL;
  verdict = golden_compare_model(c, json_object_get(model, "tensors"), part, &numbers);
  const json_t *ranks = json_object_get(c->item, "ranks");
  for (size_t r = 0; verdict == GOLDEN_EQUAL && r < json_array_size(ranks); r++) {
    const json_t *rank = json_array_get(ranks, r), *params = json_object_get(rank, "params");
    golden_list list = {0};
    for (size_t i = 0; verdict == GOLDEN_EQUAL && i < json_array_size(params); i++) {
      const json_t *param = json_array_get(params, i), *attributes = json_array_get(param, 3);
      golden_expected *wanted = golden_expect(&list, json_string_value(json_array_get(param, 0)),
                                              part == GOLDEN_DRAFT, json_array_get(param, 1));
      wanted->derived = json_is_true(json_object_get(attributes, "derived"));
      verdict = golden_read_runs(c, json_array_get(param, 2), numbers, wanted);
    }
    if (verdict == GOLDEN_EQUAL)
      verdict = golden_compare_rank(c, golden_int(rank, "rank", -1), part, &list);
    golden_list_release(&list);
  }
  free(numbers);
  return verdict;
}

/* Models with MTP layers, whose draft model is not in the file. */
golden_verdict golden_check_engine_main(golden_case *c) { return check_params(c, GOLDEN_MAIN); }
golden_verdict golden_check_engine_params(golden_case *c) { return check_params(c, GOLDEN_ALL); }

/* The draft model is an object of its own in the engines and chunk 1 of the whole model's layout here. */
golden_verdict golden_check_engine_draft(golden_case *c) { return check_params(c, GOLDEN_DRAFT); }

golden_verdict golden_check_engine_scales(golden_case *c) { return check_params(c, GOLDEN_SCALES); }
