/* src/core/model/config.c, model/build.c and model.c: totals of public models, one refusal for each rule of a
 * config, the order of tensors and aliases. */
#include "test.h"

#include "io/file.h"
#include "io/json.h"
#include "model/model.h"

#define SHARED TREADLE_SOURCE_DIR "/../shared/data"

static json_t *parse(const char *text) {
  json_t *config = NULL;
  assert_ok(treadle_json_parse("config.json", text, strlen(text), &config));
  return config;
}

/* The model of a config text. */
static treadle_status make(const char *text, treadle_model **model_p) {
  json_t *config = parse(text);
  treadle_status status = treadle_model_from_config("config.json", config, NULL, model_p);
  json_decref(config);
  return status;
}

/* ---- Totals ------------------------------------------------------------------------------------ */

/* The configs and parameter counts of public models. */
static const struct row {
  const char *name, *type;
  int64_t V, H, L, nh, ng, hd, I;
  bool tied;
  int64_t elems;
} rows[] = {
    {"SmolLM2-135M", "llama", 49152, 576, 30, 9, 3, 64, 1536, true, 134515008},
    {"Qwen2.5-0.5B", "qwen2", 151936, 896, 24, 14, 2, 64, 4864, true, 494032768},
    {"Qwen2.5-1.5B", "qwen2", 151936, 1536, 28, 12, 2, 128, 8960, true, 1543714304},
    {"Qwen2.5-3B", "qwen2", 151936, 2048, 36, 16, 2, 128, 11008, true, 3085938688},
    {"Qwen2.5-7B", "qwen2", 152064, 3584, 28, 28, 4, 128, 18944, false, 7615616512},
    {"Qwen2.5-14B", "qwen2", 152064, 5120, 48, 40, 8, 128, 13824, false, 14770033664},
    {"Qwen2.5-32B", "qwen2", 152064, 5120, 64, 40, 8, 128, 27648, false, 32763876352},
    {"Qwen2.5-72B", "qwen2", 152064, 8192, 80, 64, 8, 128, 29568, false, 72706203648},
    {"Qwen3-0.6B", "qwen3", 151936, 1024, 28, 16, 8, 128, 3072, true, 596049920},
    {"Qwen3-1.7B", "qwen3", 151936, 2048, 28, 16, 8, 128, 6144, true, 1720574976},
    {"Qwen3-4B", "qwen3", 151936, 2560, 36, 32, 8, 128, 9728, true, 4022468096},
    {"Qwen3-8B", "qwen3", 151936, 4096, 36, 32, 8, 128, 12288, false, 8190735360},
    {"Qwen3-14B", "qwen3", 151936, 5120, 40, 40, 8, 128, 17408, false, 14768307200},
    {"Qwen3-32B", "qwen3", 151936, 5120, 64, 64, 8, 128, 25600, false, 32762123264},
    {"Llama-3.1-8B", "llama", 128256, 4096, 32, 32, 8, 128, 14336, false, 8030261248},
    {"Llama-3.1-70B", "llama", 128256, 8192, 80, 64, 8, 128, 28672, false, 70553706496},
    {"Llama-3.1-405B", "llama", 128256, 16384, 126, 128, 8, 128, 53248, false, 405853388800},
};

static void check_total(const struct row *row, const treadle_model *model, int64_t scales) {
  /* Tensors a layer: 12 of Qwen2, 11 of Qwen3, 9 of Llama. */
  int64_t layer = row->type[0] == 'l' ? 9 : row->type[4] == '2' ? 12 : 11;
  if (treadle_model_elems(model) != row->elems)
    fail_msg("%s has %lld", row->name, (long long)treadle_model_elems(model));
  if (model->is_fp8) /* a byte each, and scales; in full where they are not quantised */
    assert_true(treadle_model_bytes(model) > row->elems && treadle_model_bytes(model) < 2 * row->elems);
  else
    assert_int_equal(treadle_model_bytes(model), 2 * row->elems);
  assert_int_equal(treadle_model_tensor_count(model), (layer + scales) * row->L + 3);
  assert_int_equal(model->tied_count, row->tied);
  assert_string_equal(treadle_model_family(model), row->type);
  assert_false(treadle_model_has_weights(model));
}

static void totals(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    const struct row *row = &rows[i];
    json_t *config =
        json_pack("{ss ss sI sI sI sI sI sI sI sb}", "model_type", row->type, "torch_dtype", "bfloat16",
                  "vocab_size", (json_int_t)row->V, "hidden_size", (json_int_t)row->H, "num_hidden_layers",
                  (json_int_t)row->L, "num_attention_heads", (json_int_t)row->nh, "num_key_value_heads",
                  (json_int_t)row->ng, "intermediate_size", (json_int_t)row->I, "head_dim",
                  (json_int_t)row->hd, "tie_word_embeddings", (int)row->tied);
    treadle_model *model;
    assert_ok(treadle_model_from_config(row->name, config, NULL, &model));
    check_total(row, model, 0);
    treadle_model_close(model);
    json_decref(config);
  }
}

/* The same totals from the config.json files as published. */
static void published(void **state) {
  (void)state;
  static const struct {
    const char *file, *name;
  } files[] = {{"Qwen--Qwen2.5-1.5B", "Qwen2.5-1.5B"},
               {"Qwen--Qwen2.5-7B", "Qwen2.5-7B"},
               {"Qwen--Qwen2.5-32B", "Qwen2.5-32B"},
               {"Qwen--Qwen2.5-72B", "Qwen2.5-72B"},
               {"Qwen--Qwen3-0.6B", "Qwen3-0.6B"},
               {"Qwen--Qwen3-1.7B", "Qwen3-1.7B"},
               {"Qwen--Qwen3-8B", "Qwen3-8B"},
               {"Qwen--Qwen3-32B", "Qwen3-32B"},
               {"Qwen--Qwen3-32B-FP8", "Qwen3-32B"}, /* what is quantised is a matter of the weights */
               {"meta-llama--Meta-Llama-3.1-8B", "Llama-3.1-8B"},
               {"meta-llama--Meta-Llama-3.1-70B", "Llama-3.1-70B"}};
  if (!treadle_file_is_folder(SHARED "/configs")) {
    print_message("skipped: %s is not there\n", SHARED "/configs");
    skip();
  }
  for (size_t i = 0; i < TEST_COUNT(files); i++) {
    char path[400];
    treadle_model *model;
    size_t row = 0;
    while (strcmp(rows[row].name, files[i].name) != 0) row++;
    snprintf(path, sizeof path, "%s/configs/%s.config.json", SHARED, files[i].file);
    assert_ok(treadle_model_open(path, NULL, &model));
    check_total(&rows[row], model, strstr(files[i].file, "FP8") ? 7 : 0); /* of a layer's matrices */
    treadle_model_close(model);
  }
}

/* ---- Refusals ---------------------------------------------------------------------------------- */

/* A good config with one field replaced; NULL takes it away. */
static json_t *config_with(const char *field, const char *value) {
  json_t *config =
      parse("{\"model_type\": \"llama\", \"vocab_size\": 32, \"hidden_size\": 16,"
            " \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
            " \"intermediate_size\": 24, \"dtype\": \"float16\"}");
  char text[200];
  if (!value) {
    assert_int_equal(json_object_del(config, field), 0);
    return config;
  }
  snprintf(text, sizeof text, "{\"%s\": %s}", field, value);
  json_t *more = parse(text);
  assert_int_equal(json_object_update(config, more), 0);
  json_decref(more);
  return config;
}

static void refusals(void **state) {
  (void)state;
  static const struct {
    const char *field, *value, *words;
  } cases[] = {
      {"hidden_size", NULL, "config.json: hidden_size is missing, needed by dim H of family llama"},
      {"hidden_size", "null", "config.json: hidden_size is missing, needed by dim H of family llama"},
      {"hidden_size", "\"16\"", "config.json: hidden_size is \"16\", not a whole number from 0 to 2^40"},
      {"hidden_size", "16.0", "hidden_size is 16.0, not a whole number"},
      {"hidden_size", "16.5", "hidden_size is 16.5, not a whole number"},
      {"hidden_size", "-16", "hidden_size is -16, not a whole number"},
      {"hidden_size", "[16]", "hidden_size is [16], not a whole number"},
      {"hidden_size", "1099511627777", "hidden_size is 1099511627777, not a whole number"},
      {"vocab_size", "0", "config.json: V = vocab_size is 0; model.embed_tokens.weight of family llama"},
      {"vocab_size", "true", "V = vocab_size is 1 (true or false)"},
      {"head_dim", "0", "hd = head_dim ?? H / nh is 0"},
      {"vocab_size", NULL, "vocab_size is missing, needed by dim V"},
      {"intermediate_size", NULL, "intermediate_size is missing, needed by dim I"},
      {"num_attention_heads", NULL, "num_attention_heads is missing, needed by dim nh"},
      {"num_attention_heads", "0", "nh = num_attention_heads = 0): head_dim ?? H / nh: 16 is divided by 0"},
      {"num_attention_heads", "3",
       "dim hd of family llama (H = hidden_size = 16, nh = num_attention_heads = 3): head_dim ?? H / nh: "
       "16 is not divisible by 3"},
      {"num_key_value_heads", "3",
       "dim q of family llama (nh = num_attention_heads = 4, ng = num_key_value_heads ?? nh = 3): nh / ng: "
       "4 is "
       "not divisible by 3"},
      {"num_key_value_heads", "0", "nh / ng: 4 is divided by 0"},
      {"num_key_value_heads", "8", "nh / ng: 4 is not divisible by 8"},
      {"num_hidden_layers", NULL, "num_hidden_layers is missing, needed by dim L"},
      {"num_hidden_layers", "0", "num_hidden_layers is 0, not a number of layers from 1 to 100000"},
      {"num_hidden_layers", "100001", "num_hidden_layers is 100001, not a number of layers"},
      {"num_hidden_layers", "true", "num_hidden_layers is 1, not a number of layers"},
      {"tie_word_embeddings", "\"yes\"", "tie_word_embeddings is \"yes\""},
      {"model_type", NULL, "config.json: model_type is missing"},
      {"model_type", "7", "model_type is 7, not a text"},
      {"model_type", "\"lama\"", "no family covers model_type 'lama'; the nearest is 'llama'"},
      {"model_type", "\"qwen4\"", "the nearest is 'qwen"},
      {"dtype", "\"float8\"", "dtype is \"float8\", not float32, bfloat16 or float16"},
      {"dtype", "\"auto\"", "dtype is \"auto\""},
      {"dtype", "16", "dtype is 16"}};
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    treadle_model *model = NULL;
    json_t *config = config_with(cases[i].field, cases[i].value);
    assert_refused(cases[i].words, treadle_model_from_config("config.json", config, NULL, &model));
    assert_null(model);
    json_decref(config);
  }
}

static void too_large(void **state) {
  (void)state;
  treadle_model *model;
  assert_refused("embed_tokens.weight of family llama has 9.223e+18 elements (V = 1099511627776, H = "
                 "8388608); at most 2^50",
                 make("{\"model_type\": \"llama\", \"vocab_size\": 1099511627776, \"hidden_size\": 8388608,"
                      "\"num_hidden_layers\": 1, \"num_attention_heads\": 1, \"intermediate_size\": 1}",
                      &model));
  assert_refused("with lm_head.weight, which has 562949953421312, the model has 1125899907",
                 make("{\"model_type\": \"llama\", \"vocab_size\": 1099511627776, \"hidden_size\": 512,"
                      "\"num_hidden_layers\": 1, \"num_attention_heads\": 1, \"intermediate_size\": 1}",
                      &model));
  assert_refused("the top level is not an object", make("[1]", &model));
}

static void dtypes(void **state) {
  (void)state;
  static const struct {
    const char *field, *value;
    treadle_dtype dtype;
  } cases[] = {{"dtype", NULL, TREADLE_FP32},
               {"dtype", "\"bfloat16\"", TREADLE_BF16},
               {"dtype", "\"float32\"", TREADLE_FP32},
               {"dtype", "null", TREADLE_FP32},
               {"torch_dtype", "\"float32\"", TREADLE_FP16}}; /* dtype is the newer name and wins */
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    treadle_model *model;
    json_t *config = config_with(cases[i].field, cases[i].value);
    assert_ok(treadle_model_from_config("config.json", config, NULL, &model));
    assert_int_equal(model->tensors[0].dtype, cases[i].dtype);
    treadle_model_close(model);
    json_decref(config);
  }
}

/* ---- What comes out ---------------------------------------------------------------------------- */

static const char tied_config[] =
    "{\"model_type\": \"qwen3\", \"vocab_size\": 32, \"hidden_size\": 16, \"num_hidden_layers\": 3,"
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 6, \"intermediate_size\": 24,"
    "\"tie_word_embeddings\": true, \"attention_bias\": false}";

static int32_t kind_of(const treadle_model *model, const char *name) {
  for (int32_t k = 0; k < model->family->pattern_count; k++)
    if (strcmp(model->family->patterns[k].name, name) == 0) return k;
  fail_msg("no kind %s", name);
  return -1;
}

static void order(void **state) {
  (void)state;
  treadle_model *model;
  treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
  assert_ok(make(tied_config, &model));
  assert_int_equal(model->tensor_count, 2 + 3 * 11);
  assert_int_equal(treadle_model_tensor_count(model), model->tensor_count + 1);
  assert_string_equal(model->tensors[0].name, "model.embed_tokens.weight");
  assert_string_equal(model->tensors[1].name, "model.layers.0.self_attn.q_proj.weight");
  assert_string_equal(model->tensors[12].name, "model.layers.1.self_attn.q_proj.weight");
  assert_string_equal(model->tensors[34].name, "model.norm.weight");

  const treadle_tensor *q = &model->tensors[12];
  assert_int_equal(q->layer, 1);
  assert_int_equal(q->ndim, 2);
  assert_int_equal(q->shape[0], 24);
  assert_int_equal(q->shape[1], 16);
  assert_int_equal(q->naxes, 4);
  assert_int_equal(q->axis[0], 2);
  assert_int_equal(q->axis[1], 2);
  assert_int_equal(q->axis[2], 6);
  assert_string_equal(q->axis_name[0], "ng");
  assert_int_equal(q->elems, 24 * 16);

  assert_ok(treadle_model_tensor(model, 12, &info));
  assert_string_equal(info.name, q->name);
  assert_null(info.same_as);
  assert_int_equal(info.shape[0], 24);
  assert_int_equal(info.layer, 1);
  assert_int_equal(info.dtype, TREADLE_FP32);
  assert_ok(treadle_model_tensor(model, 35, &info));
  assert_string_equal(info.name, "lm_head.weight");
  assert_string_equal(info.same_as, "model.embed_tokens.weight");
  assert_int_equal(info.elems, 32 * 16);
  assert_int_equal(info.layer, -1);
  assert_refused("tensor 36 is none of the model's 36", treadle_model_tensor(model, 36, &info));
  assert_refused("tensor -1 is none", treadle_model_tensor(model, -1, &info));

  assert_int_equal(treadle_hash_map_get(&model->by_name, "lm_head.weight", -1), 0);
  assert_int_equal(treadle_model_find(model, kind_of(model, "lm_head.weight"), -1), 0);
  assert_int_equal(treadle_model_find(model, kind_of(model, "model.norm.weight"), -1), 34);
  int32_t pattern = kind_of(model, "model.layers.{l}.self_attn.k_proj.weight");
  for (int32_t layer = 0; layer < 3; layer++) {
    const treadle_tensor *k = &model->tensors[treadle_model_find(model, pattern, layer)];
    assert_int_equal(k->pattern, pattern);
    assert_int_equal(k->layer, layer);
  }
  assert_int_equal(treadle_model_find(model, pattern, 3), -1);
  assert_int_equal(treadle_model_find(model, pattern, -1), -1);
  pattern = kind_of(model, "model.layers.{l}.self_attn.q_proj.bias");
  assert_int_equal(treadle_model_find(model, pattern, 0), -1);
  treadle_model_close(model);
}

static void lookup(void **state) {
  (void)state;
  treadle_model *model;
  bool found;
  int64_t value;
  assert_ok(make(tied_config, &model));
  assert_ok(treadle_model_lookup(model, "q", NULL, &value, &found));
  assert_true(found && value == 2);
  assert_ok(treadle_model_lookup(model, "tied", NULL, &value, &found));
  assert_true(found && value == 1);
  assert_ok(treadle_model_lookup(model, "num_attention_heads", NULL, &value, &found));
  assert_true(found && value == 4);
  assert_ok(treadle_model_lookup(model, "pp", NULL, &value, &found));
  assert_false(found);
  assert_refused("config.json: model_type is \"qwen3\"",
                 treadle_model_lookup(model, "model_type", NULL, &value, &found));
  treadle_model_close(model);
}

#define GEMMA                                                                                              \
  "{\"model_type\": \"gemma4_text\", \"vocab_size\": 20, \"hidden_size\": 8, \"intermediate_size\": 4, "   \
  "\"num_hidden_layers\": 8, \"num_global_key_value_heads\": 1, \"attention_k_eq_v\": true%s}"

/* Where layer_types is absent, every sixth layer has full attention, and the last one always; heads have other sizes there
 * and no values. Models with what the family does not speak of are refused. */
static void shapes_of_layers(void **state) {
  (void)state;
  treadle_model *model;
  char text[1000];
  snprintf(text, sizeof text, GEMMA, ", \"hidden_size_per_layer_input\": 0");
  assert_ok(make(text, &model));
  for (int32_t l = 0; l < 8; l++) {
    treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
    char name[100];
    bool full = l == 5 || l == 7;
    snprintf(name, sizeof name, "model.layers.%d.self_attn.k_proj.weight", (int)l);
    assert_ok(treadle_model_tensor(model, (int32_t)treadle_hash_map_get(&model->by_name, name, -1), &info));
    assert_int_equal(info.shape[0], full ? 512 : 4 * 256);
    snprintf(name, sizeof name, "model.layers.%d.self_attn.v_proj.weight", (int)l);
    assert_int_equal(treadle_hash_map_get(&model->by_name, name, -1) < 0, full);
  }
  treadle_model_close(model);
  snprintf(text, sizeof text, GEMMA, "");
  assert_refused(
      "of Gemma 4, models with inputs for each layer or with layers that share keys and values (E2B, "
      "E4B) are not known ((hidden_size_per_layer_input ?? 256) == 0 and",
      make(text, &model));
  snprintf(text, sizeof text, GEMMA, ", \"hidden_size_per_layer_input\": 0, \"num_kv_shared_layers\": 2");
  assert_refused("of Gemma 4, models with inputs for each layer", make(text, &model));
}

#define MIMO                                                                                               \
  "{\"model_type\": \"mimo_v2_flash\", \"vocab_size\": 20, \"hidden_size\": 8, \"intermediate_size\": 4, " \
  "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 1, \"head_dim\": 6, "    \
  "\"v_head_dim\": 5, \"swa_num_attention_heads\": 4, \"swa_num_key_value_heads\": 2, \"swa_head_dim\": "  \
  "3, "                                                                                                    \
  "\"swa_v_head_dim\": 2, \"n_routed_experts\": 2, \"moe_intermediate_size\": 4, "                         \
  "\"add_swa_attention_sink_bias\": true%s}"

/* Rows of a tensor of a layer; 0: there is none. */
static int64_t rows_of(const treadle_model *model, int layer, const char *name) {
  treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
  char whole[100];
  snprintf(whole, sizeof whole, "model.layers.%d.%s", layer, name);
  int32_t entry = (int32_t)treadle_hash_map_get(&model->by_name, whole, -1);
  if (entry >= 0) assert_ok(treadle_model_tensor(model, entry, &info));
  return info.shape[0];
}

/* Lists of numbers, or of words, say which layers have a window, and which experts. */
static void lists_of_numbers(void **state) {
  (void)state;
  static const char *const lists[] = {
      ", \"hybrid_layer_pattern\": [0, 1, 0], \"moe_layer_freq\": [0, 0, 1]",
      ", \"layer_types\": [\"full_attention\", \"sliding_attention\", \"full_attention\"], "
      "\"mlp_layer_types\": [\"dense\", \"dense\", \"sparse\"]"};
  treadle_model *model;
  char text[1000];
  for (size_t i = 0; i < TEST_COUNT(lists); i++) {
    snprintf(text, sizeof text, MIMO, lists[i]);
    assert_ok(make(text, &model));
    for (int l = 0; l < 3; l++) {
      assert_int_equal(rows_of(model, l, "self_attn.q_proj.weight"), l == 1 ? 4 * 3 : 4 * 6);
      assert_int_equal(rows_of(model, l, "self_attn.k_proj.weight"), l == 1 ? 2 * 3 : 6);
      assert_int_equal(rows_of(model, l, "self_attn.v_proj.weight"), l == 1 ? 2 * 2 : 5);
      assert_int_equal(rows_of(model, l, "self_attn.attention_sink_bias"), l == 1 ? 4 : 0);
      assert_int_equal(rows_of(model, l, "mlp.gate.weight"), l == 2 ? 2 : 0);
    }
    treadle_model_close(model);
  }
  snprintf(text, sizeof text, MIMO, ", \"moe_layer_freq\": [0, \"1\", 1]");
  assert_refused("moe_layer_freq is [0,\"1\",1], not a list of whole numbers", make(text, &model));
  snprintf(text, sizeof text, MIMO, ", \"moe_layer_freq\": 1");
  assert_refused("moe_layer_freq is 1, not a list of whole numbers", make(text, &model));
}

#define HYBRID                                                                                             \
  "{\"model_type\": \"qwen3_next\", \"vocab_size\": 20, \"hidden_size\": 8, \"num_attention_heads\": "     \
  "4, "                                                                                                    \
  "\"num_key_value_heads\": 2, \"num_hidden_layers\": 2, \"head_dim\": 4, \"full_attention_interval\": "   \
  "2, "                                                                                                    \
  "\"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, \"linear_key_head_dim\": 2, "               \
  "\"linear_value_head_dim\": 2, \"moe_intermediate_size\": 4, \"shared_expert_intermediate_size\": 4, "   \
  "\"num_experts\": 2%s}"

/* layer_types has the say; where it is absent, every second layer has full attention here. */
static void kinds_of_layers(void **state) {
  (void)state;
  static const struct {
    const char *types;
    bool full[2];
  } layers[] = {{"", {false, true}},
                {", \"layer_types\": null", {false, true}},
                {", \"layer_types\": [\"linear_attention\", \"full_attention\"]", {false, true}},
                {", \"layer_types\": [\"full_attention\", \"linear_attention\"]", {true, false}},
                {", \"layer_types\": [\"full_attention\", \"full_attention\"]", {true, true}}};
  treadle_model *model;
  char text[1000];
  for (size_t i = 0; i < TEST_COUNT(layers); i++) {
    snprintf(text, sizeof text, HYBRID, layers[i].types);
    assert_ok(make(text, &model));
    int32_t attention = kind_of(model, "model.layers.{l}.self_attn.k_proj.weight"),
            linear = kind_of(model, "model.layers.{l}.linear_attn.A_log");
    for (int32_t l = 0; l < 2; l++) {
      assert_int_equal(treadle_model_find(model, attention, l) >= 0, layers[i].full[l]);
      assert_int_equal(treadle_model_find(model, linear, l) >= 0, !layers[i].full[l]);
    }
    treadle_model_close(model);
  }
  snprintf(text, sizeof text, HYBRID, ", \"layer_types\": [1, 2]");
  assert_refused("layer_types is [1,2], not a list of words", make(text, &model));
  snprintf(text, sizeof text, HYBRID, ", \"layer_types\": {\"full_attention\": 3}");
  assert_refused("layer_types.full_attention is 3, not a list of whole numbers", make(text, &model));
}

/* Equal models have equal digests; each of these changes gives another. */
static void digests(void **state) {
  (void)state;
  static const char *const changes[][2] = {{"dtype", "\"float16\""},   {"dtype", "\"bfloat16\""},
                                           {"vocab_size", "33"},       {"num_key_value_heads", "4"},
                                           {"num_hidden_layers", "3"}, {"tie_word_embeddings", "true"},
                                           {"attention_bias", "true"}, {"model_type", "\"qwen2\""}};
  uint64_t digests[TEST_COUNT(changes)];
  for (size_t i = 0; i < TEST_COUNT(changes); i++) {
    for (int twice = 0; twice < 2; twice++) {
      treadle_model *model;
      json_t *config = config_with(changes[i][0], changes[i][1]);
      assert_ok(treadle_model_from_config("config.json", config, NULL, &model));
      if (twice) assert_true(model->digest == digests[i]);
      digests[i] = model->digest;
      treadle_model_close(model);
      json_decref(config);
    }
    for (size_t j = 0; j < i; j++) assert_true(digests[j] != digests[i]);
  }
}

/* HF's defaults for what a config leaves out. */
static void defaults(void **state) {
  (void)state;
  treadle_model *model;
  int64_t value;
  bool found;
  assert_ok(make("{\"model_type\": \"qwen3\", \"vocab_size\": 32, \"hidden_size\": 16,"
                 "\"num_hidden_layers\": 1, \"num_attention_heads\": 64, \"intermediate_size\": 24}",
                 &model));
  assert_ok(treadle_model_lookup(model, "hd", NULL, &value, &found));
  assert_int_equal(value, 128);
  assert_ok(treadle_model_lookup(model, "ng", NULL, &value, &found));
  assert_int_equal(value, 32); /* as Qwen3Config of transformers has it */
  assert_int_equal(model->tied_count, 0);
  treadle_model_close(model);
}

/* Views, experts, MTP layers and tensors by layer. */
static const char deepseek_config[] =
    "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 32, \"hidden_size\": 16, \"num_hidden_layers\": 2,"
    "\"num_attention_heads\": 2, \"intermediate_size\": 24, \"moe_intermediate_size\": 8,"
    "\"n_routed_experts\": 4, \"n_group\": 2, \"n_shared_experts\": 1, \"first_k_dense_replace\": 1,"
    "\"moe_layer_freq\": 1, \"q_lora_rank\": 4, \"kv_lora_rank\": 4, \"qk_nope_head_dim\": 4,"
    "\"qk_rope_head_dim\": 2, \"v_head_dim\": 4, \"num_nextn_predict_layers\": 1}";

static treadle_status make_and_close(json_t *config, const char *families) {
  treadle_model *model;
  const treadle_model_options options = {.struct_size = sizeof(treadle_model_options),
                                         .families = families};
  treadle_status status = treadle_model_from_config("config.json", config, &options, &model);
  if (status == TREADLE_OK) treadle_model_close(model);
  return status;
}

static void without_memory(void **state) {
  (void)state;
  json_t *dense = parse(tied_config), *experts = parse(deepseek_config);
  const char *folder = test_folder();
  test_copy_family(folder, "qwen3");
  TEST_EACH_ALLOCATION(make_and_close(dense, folder));
  test_remove(folder);
  folder = test_folder();
  test_copy_family(folder, "deepseek_v3");
  TEST_EACH_ALLOCATION(make_and_close(experts, folder));
  test_remove(folder);
  json_decref(dense);
  json_decref(experts);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(totals),
                                     cmocka_unit_test(published),
                                     cmocka_unit_test(refusals),
                                     cmocka_unit_test(kinds_of_layers),
                                     cmocka_unit_test(shapes_of_layers),
                                     cmocka_unit_test(lists_of_numbers),
                                     cmocka_unit_test(too_large),
                                     cmocka_unit_test(dtypes),
                                     cmocka_unit_test(order),
                                     cmocka_unit_test(lookup),
                                     cmocka_unit_test(digests),
                                     cmocka_unit_test(defaults),
                                     cmocka_unit_test(without_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
