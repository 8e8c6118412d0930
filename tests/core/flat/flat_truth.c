/* Modules written out, and storage tensors compared with them. */
#include "flat_truth.h"

#include "base/dtype.h"
#include "test.h"

#include <inttypes.h>
#include <jansson.h>

const char *const flat_configs[] = {
    "{\"model_type\": \"llama\", \"vocab_size\": 22, \"hidden_size\": 6, \"intermediate_size\": 10, "
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 3, "
    "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}",
    "{\"model_type\": \"qwen2\", \"vocab_size\": 22, \"hidden_size\": 6, \"intermediate_size\": 10, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"head_dim\": 3, "
    "\"tie_word_embeddings\": true, \"torch_dtype\": \"float32\"}",
    "{\"model_type\": \"qwen3\", \"vocab_size\": 18, \"hidden_size\": 10, \"intermediate_size\": 14, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"head_dim\": 5, "
    "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}",
    "{\"model_type\": \"mixtral\", \"vocab_size\": 22, \"hidden_size\": 6, \"intermediate_size\": 10, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"head_dim\": 3, "
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 1, \"tie_word_embeddings\": false, "
    "\"torch_dtype\": \"bfloat16\"}",
    "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 22, \"hidden_size\": 6, \"intermediate_size\": 10, "
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"head_dim\": 3, "
    "\"moe_intermediate_size\": 4, \"num_experts\": 6, \"num_experts_per_tok\": 1, "
    "\"decoder_sparse_step\": 1, "
    "\"mlp_only_layers\": [0], \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}",
    "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 22, \"hidden_size\": 6, \"intermediate_size\": 10, "
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"q_lora_rank\": 5, "
    "\"kv_lora_rank\": 4, \"qk_nope_head_dim\": 3, \"qk_rope_head_dim\": 2, \"v_head_dim\": 3, "
    "\"moe_intermediate_size\": 4, \"n_routed_experts\": 4, \"n_shared_experts\": 1, \"n_group\": 2, "
    "\"num_experts_per_tok\": 1, \"first_k_dense_replace\": 1, \"moe_layer_freq\": 1, \"topk_method\": "
    "\"noaux_tc\", "
    "\"num_nextn_predict_layers\": 0, \"tie_word_embeddings\": false, \"torch_dtype\": \"float32\"}"};

/* The order in which modules register; of names that a layer lacks nothing comes. '!': a buffer. */
static const char *const layer_names[] = {"self_attn.q_proj.weight",
                                          "self_attn.q_proj.bias",
                                          "self_attn.k_proj.weight",
                                          "self_attn.k_proj.bias",
                                          "self_attn.v_proj.weight",
                                          "self_attn.v_proj.bias",
                                          "self_attn.q_a_proj.weight",
                                          "self_attn.q_a_layernorm.weight",
                                          "self_attn.q_b_proj.weight",
                                          "self_attn.kv_a_proj_with_mqa.weight",
                                          "self_attn.kv_a_layernorm.weight",
                                          "self_attn.kv_b_proj.weight",
                                          "self_attn.o_proj.weight",
                                          "self_attn.q_norm.weight",
                                          "self_attn.k_norm.weight",
                                          "block_sparse_moe.gate.weight",
                                          "experts",
                                          "mlp.gate.weight",
                                          "!mlp.gate.e_score_correction_bias",
                                          "mlp.shared_experts.gate_proj.weight",
                                          "mlp.shared_experts.up_proj.weight",
                                          "mlp.shared_experts.down_proj.weight",
                                          "mlp.gate_proj.weight",
                                          "mlp.up_proj.weight",
                                          "mlp.down_proj.weight",
                                          "input_layernorm.weight",
                                          "post_attention_layernorm.weight"};

treadle_model *flat_model(const char *config) {
  treadle_model *model;
  json_t *json = json_loads(config, 0, NULL);
  assert_non_null(json);
  assert_ok(treadle_model_from_config("config", json, NULL, &model));
  json_decref(json);
  return model;
}

static void push(flat_elems *elems, int32_t tensor, int64_t index, int8_t add) {
  if ((elems->count & (elems->count - 1)) == 0) { /* full at powers of two */
    elems->items = realloc(elems->items, (size_t)(2 * elems->count + 1) * sizeof *elems->items);
    assert_non_null(elems->items);
  }
  elems->items[elems->count++] = (flat_elem){tensor, index, add};
}

void flat_add(flat_elems *elems, const flat_elems *more) {
  for (int64_t i = 0; i < more->count; i++)
    push(elems, more->items[i].tensor, more->items[i].index, more->items[i].add);
}

void flat_pad(flat_elems *elems, int64_t count) {
  for (int64_t i = 0; i < count; i++) push(elems, -1, 0, 0);
}

void flat_free(flat_elems *elems) {
  free(elems->items);
  *elems = (flat_elems){0};
}

/* ---- Parameters ---- */

/* The number of a tensor, -1: the model has none, or it is a copy. */
static int32_t find(const treadle_model *model, const char *name, treadle_tensor_info *info_p) {
  int64_t number = treadle_hash_map_get(&model->by_name, name, -1);
  if (number < 0) return -1;
  assert_ok(treadle_model_tensor(model, (int32_t)number, info_p));
  return strcmp(info_p->name, name) == 0 ? (int32_t)number : -1;
}

static flat_param *new_param(flat_module *module, int32_t layer, const char *name) {
  module->params = realloc(module->params, (size_t)(module->count + 1) * sizeof *module->params);
  assert_non_null(module->params);
  flat_param *param = &module->params[module->count++];
  *param = (flat_param){.layer = layer};
  snprintf(param->name, sizeof param->name, "%s", name);
  return param;
}

/* Rows [r0, r1) and columns [c0, c1). */
static void push_matrix(flat_param *param, int32_t tensor, int64_t columns, int64_t r0, int64_t r1,
                        int64_t c0, int64_t c1) {
  for (int64_t r = r0; r < r1; r++)
    for (int64_t c = c0; c < c1; c++) push(&param->elems, tensor, r * columns + c, 0);
}

static bool has(const char *name, const char *part) { return strstr(name, part) != NULL; }

static void add_plain(flat_module *module, int32_t layer, const char *name, bool buffer, int64_t tp,
                      int64_t t) {
  treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
  int32_t tensor = find(module->model, name, &info);
  treadle_tensor_info latent = TREADLE_INIT(treadle_tensor_info);
  bool mla = find(module->model, "model.layers.0.self_attn.kv_b_proj.weight", &latent) >= 0;
  if (tensor < 0) return;
  int64_t rows = info.shape[0], columns = info.ndim > 1 ? info.shape[1] : 1;
  bool attention = has(name, "self_attn"), norm = has(name, "norm");
  bool by_rows = has(name, "embed_tokens") || has(name, "lm_head") || has(name, "gate_proj") ||
                 has(name, "up_proj") || (attention && !norm && !mla && !has(name, "o_proj"));
  bool by_columns = has(name, "down_proj") || (attention && !mla && has(name, "o_proj.weight"));
  int64_t r0 = by_rows ? rows / tp * t : 0, r1 = by_rows ? rows / tp * (t + 1) : rows;
  int64_t c0 = by_columns ? columns / tp * t : 0, c1 = by_columns ? columns / tp * (t + 1) : columns;
  flat_param *param = new_param(module, layer, name);
  param->buffer = buffer;
  param->shape[0] = r1 - r0;
  if (info.ndim > 1) param->shape[1] = c1 - c0;
  push_matrix(param, tensor, columns, r0, r1, c0, c1);
}

/* The gate (0), up (1) or down (2) matrix of an expert, -1: there is none. */
static int32_t find_expert(const flat_module *module, int32_t layer, int expert, int part,
                           treadle_tensor_info *info_p) {
  static const char *const names[] = {"gate_proj", "up_proj", "down_proj"}, *const mixtral[] = {"w1", "w3",
                                                                                                "w2"};
  char name[160];
  snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s.weight", layer, expert, names[part]);
  int32_t tensor = find(module->model, name, info_p);
  if (tensor >= 0) return tensor;
  snprintf(name, sizeof name, "model.layers.%d.block_sparse_moe.experts.%d.%s.weight", layer, expert,
           mixtral[part]);
  return find(module->model, name, info_p);
}

/* Parts [first, last] of all experts, stacked: gate_up_proj is [experts, gate rows and up rows, hidden]. */
static void add_stack(flat_module *module, int32_t layer, const char *of, int first, int last) {
  treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
  if (find_expert(module, layer, 0, first, &info) < 0) return;
  char name[160];
  snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%s", layer, of);
  flat_param *param = new_param(module, layer, name);
  param->shape[1] = info.shape[0] * (last - first + 1);
  param->shape[2] = info.shape[1];
  for (int e = 0; find_expert(module, layer, e, first, &info) >= 0; e++) {
    param->shape[0] = e + 1;
    for (int part = first; part <= last; part++)
      push_matrix(param, find_expert(module, layer, e, part, &info), info.shape[1], 0, info.shape[0], 0,
                  info.shape[1]);
  }
}

flat_module flat_module_make(const treadle_model *model, int64_t tp, int64_t t) {
  flat_module module = {.model = model};
  char name[160];
  add_plain(&module, -1, "model.embed_tokens.weight", false, tp, t);
  for (int32_t layer = 0; layer < model->layers; layer++)
    for (size_t i = 0; i < TEST_COUNT(layer_names); i++) {
      const char *of = layer_names[i];
      bool buffer = *of == '!';
      snprintf(name, sizeof name, "model.layers.%d.%s", layer, of + buffer);
      if (strcmp(of, "experts") == 0)
        add_stack(&module, layer, "gate_up_proj", 0, 1), add_stack(&module, layer, "down_proj", 2, 2);
      else
        add_plain(&module, layer, name, buffer, tp, t);
      if (has(of, "block_sparse_moe") && has(module.params[module.count - 1].name, "block_sparse_moe"))
        snprintf(module.params[module.count - 1].name, sizeof name - 32, "model.layers.%d.mlp.gate.weight",
                 layer);
    }
  add_plain(&module, -1, "model.norm.weight", false, tp, t);
  add_plain(&module, -1, "lm_head.weight", false, tp, t);
  return module;
}

void flat_module_free(flat_module *module) {
  for (int i = 0; i < module->count; i++) free(module->params[i].elems.items);
  free(module->params);
  *module = (flat_module){0};
}

/* ---- Storage tensors ---- */

treadle_layout *flat_layout(const treadle_model *model, const char *text, int64_t ranks) {
  treadle_layout *layout, *again;
  if (treadle_layout_create(model, text, ranks, NULL, &layout) != TREADLE_OK)
    fail_msg("%s on %" PRId64 " ranks: %s", text, ranks, treadle_error_message());
  assert_ok(treadle_layout_create(model, treadle_layout_text(layout), ranks, NULL, &again));
  assert_string_equal(treadle_layout_text(layout), treadle_layout_text(again));
  assert_true(layout->digest == again->digest);
  treadle_layout_destroy(again);
  return layout;
}

void flat_check(const treadle_layout *layout, int64_t rank, int32_t storage, const char *name,
                const flat_elem *elems, int64_t count) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  treadle_run *runs;
  size_t run_count;
  assert_ok(treadle_layout_storage(layout, rank, storage, &info));
  assert_ok(treadle_layout_runs(layout, rank, storage, &runs, &run_count));
  assert_string_equal(info.name, name);
  int64_t held = 1, at = 0;
  for (int d = 0; d < info.ndim; d++) held *= info.shape[d];
  if (held != count || info.bytes != (size_t)count * treadle_dtype_bytes(info.dtype))
    fail_msg("%s, rank %" PRId64 ": %s has %" PRId64 " elements for %" PRId64, layout->text, rank, name,
             held, count);
  for (size_t r = 0; r < run_count; r++)
    for (int64_t i = 0; i < runs[r].count; i++, at++) {
      int64_t index = runs[r].tensor < 0 ? 0 : runs[r].start + i * runs[r].stride;
      if (at >= count || runs[r].local_start + i != at || runs[r].tensor != elems[at].tensor ||
          runs[r].add != elems[at].add || index != elems[at].index)
        fail_msg("%s, rank %" PRId64 ": %s, element %" PRId64 ": tensor %d[%" PRId64 "] for %d[%" PRId64
                 "]",
                 layout->text, rank, name, at, runs[r].tensor, index, at < count ? elems[at].tensor : -2,
                 at < count ? elems[at].index : 0);
    }
  assert_int_equal(at, count);
  free(runs);
}

void flat_check_buffers(const treadle_layout *layout, int64_t rank, int32_t storage,
                        const flat_module *module) {
  for (int i = 0; i < module->count; i++) {
    const flat_param *param = &module->params[i];
    if (param->buffer)
      flat_check(layout, rank, storage++, param->name, param->elems.items, param->elems.count);
  }
  assert_int_equal(storage, treadle_layout_storage_count(layout, rank));
}
