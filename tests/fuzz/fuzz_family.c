/* Any text as a family file; one that is taken is made a model of a small config, and all of it is read. */
#include "base/alloc.h"
#include "base/dtype.h"
#include "io/json.h"
#include "io/yaml.h"
#include "layout/layout.h"
#include "model/build.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char config_text[] =
    "{\"vocab_size\": 32, \"hidden_size\": 16, \"num_hidden_layers\": 3, \"num_attention_heads\": 4,"
    " \"num_key_value_heads\": 2, \"intermediate_size\": 24, \"tie_word_embeddings\": true,"
    " \"n_routed_experts\": 4, \"num_local_experts\": 4, \"num_experts\": 4, \"moe_intermediate_size\": 8,"
    " \"n_shared_experts\": 1, \"first_k_dense_replace\": 1, \"moe_layer_freq\": 1, \"kv_lora_rank\": 4,"
    " \"q_lora_rank\": 4, \"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 2, \"v_head_dim\": 4, "
    "\"n_group\": 2,"
    " \"num_nextn_predict_layers\": 1}";

static treadle_status look_up(void *model, const char *name, const int64_t *member, int64_t *value_p,
                              bool *found_p) {
  return treadle_model_lookup(model, name, member, value_p, found_p);
}

/* What a layout would do with a model: every pattern in every layer, every condition. */
static void use(treadle_model *model) {
  const treadle_family *family = model->family;
  int64_t value, elems = 0;
  for (int32_t k = 0; k < family->pattern_count; k++)
    for (int32_t layer = -1; layer <= model->layers; layer++) {
      int32_t tensor = treadle_model_find(model, k, layer);
      assert(tensor >= -1 && tensor < model->tensor_count);
      assert(tensor < 0 || family->patterns[k].same_as >= 0 || model->tensors[tensor].pattern == k);
    }
  for (int32_t i = 0; i < model->tensor_count; i++) elems += model->tensors[i].elems;
  assert(elems == treadle_model_elems(model));
  for (int32_t e = 0; e < family->engine_count; e++)
    for (int32_t r = 0; r < family->engines[e].count; r++) {
      const char *when = family->engines[e].rules[r].when;
      if (when) (void)treadle_expr_evaluate("rule", when, look_up, model, &value);
    }
}

/* Layouts of the model; most are refused. */
static void lay_out(const treadle_model *model) {
  static const char *const texts[] = {"hf",
                                      "megatron:tp=2",
                                      "megatron:ep=2,spec=local",
                                      "vllm:tp=2,ep=on",
                                      "sglang:tp=2",
                                      "sglang:tp=2,shared_fusion=on"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    treadle_layout *layout;
    treadle_pieces pieces = {0};
    int64_t bytes = 0;
    if (treadle_layout_create(model, texts[i], 2, NULL, &layout) != TREADLE_OK) continue;
    treadle_status status = treadle_layout_pieces(layout, 1, &pieces);
    assert(status == TREADLE_OK);
    for (size_t p = 0; p < pieces.count; p++)
      bytes +=
          treadle_box_elems(&pieces.items[p].box) * (int64_t)treadle_dtype_bytes(pieces.items[p].dtype);
    for (int32_t s = 0; s < treadle_layout_storage_count(layout, 1); s++) {
      treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
      status = treadle_layout_storage(layout, 1, s, &info);
      assert(status == TREADLE_OK);
      bytes -= (int64_t)info.bytes;
    }
    assert(bytes == 0);
    treadle_array_release(&pieces);
    treadle_layout_destroy(layout);
  }
}

static void build(treadle_family *family) {
  json_t *config = NULL;
  treadle_model *model = treadle_alloc(sizeof *model);
  assert(treadle_json_parse("config", config_text, strlen(config_text), &config) == TREADLE_OK);
  family->layers = "3"; /* not 100,000 */
  model->path = "config.json";
  model->config = config;
  model->family = family;
  if (treadle_model_fill(model) == TREADLE_OK) {
    use(model);
    lay_out(model);
  }
  treadle_model_close(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  treadle_arena arena = {0};
  const treadle_yaml *root;
  treadle_family *family;
  if (treadle_yaml_parse("fuzz.yaml", (const char *)data, size, &arena, &root) == TREADLE_OK &&
      treadle_family_read("fuzz.yaml", root, NULL, &arena, &family) == TREADLE_OK)
    build(family);
  treadle_arena_release(&arena);
  return 0;
}
