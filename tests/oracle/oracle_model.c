/* The oracle's model: the canonical tensors of a dense decoder (facts 5.1) from a config.json object. */
#include "oracle/oracle_parts.h"

#include "base/hash.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool oracle_refuse(char *why, const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(why, ORACLE_WHY, format, values);
  va_end(values);
  return false;
}

void *oracle_memory(size_t count, size_t each) {
  void *memory = calloc(count ? count : 1, each);
  if (!memory) {
    fputs("oracle: no memory\n", stderr);
    abort();
  }
  return memory;
}

/* A field of the config; `otherwise` when it is absent or null, and -1 as `otherwise`: it must be there. */
static bool number(const json_t *config, const char *key, int64_t otherwise, int64_t *value_p, char *why) {
  const json_t *field = json_object_get(config, key);
  *value_p = json_is_integer(field) ? json_integer_value(field) : otherwise;
  if (field && !json_is_null(field) && !json_is_integer(field))
    return oracle_refuse(why, "%s is no number", key);
  return *value_p >= 1 || oracle_refuse(why, "%s is missing or below 1", key);
}

static void add_tensor(oracle_model *model, int64_t layer, const char *name, int ndim, int64_t rows,
                       int64_t cols) {
  oracle_tensor *tensor = &model->tensors[model->tensor_count++];
  if (layer < 0) {
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
  } else {
    snprintf(tensor->name, sizeof tensor->name, "model.layers.%lld.%s", (long long)layer, name);
  }
  tensor->layer = (int32_t)layer;
  tensor->ndim = ndim;
  tensor->shape[0] = rows;
  tensor->shape[1] = ndim == 2 ? cols : 1;
  tensor->elems = rows * tensor->shape[1];
  tensor->first = model->elems;
  for (const char *c = tensor->name; *c; c++) tensor->hash = treadle_hash_more(tensor->hash, (uint64_t)*c);
  model->elems += tensor->elems;
}

static void add_tensors(oracle_model *m) {
  m->tensors = oracle_memory((size_t)(3 + 20 * m->L), sizeof *m->tensors);
  add_tensor(m, -1, "model.embed_tokens.weight", 2, m->V, m->H);
  for (int64_t l = 0; l < m->L; l++) {
    add_tensor(m, l, "self_attn.q_proj.weight", 2, m->nh * m->hd, m->H);
    add_tensor(m, l, "self_attn.k_proj.weight", 2, m->ng * m->hd, m->H);
    add_tensor(m, l, "self_attn.v_proj.weight", 2, m->ng * m->hd, m->H);
    add_tensor(m, l, "self_attn.o_proj.weight", 2, m->H, m->nh * m->hd);
    if (m->qkv_bias) {
      add_tensor(m, l, "self_attn.q_proj.bias", 1, m->nh * m->hd, 0);
      add_tensor(m, l, "self_attn.k_proj.bias", 1, m->ng * m->hd, 0);
      add_tensor(m, l, "self_attn.v_proj.bias", 1, m->ng * m->hd, 0);
    }
    if (m->o_bias) add_tensor(m, l, "self_attn.o_proj.bias", 1, m->H, 0);
    if (m->qk_norm) {
      add_tensor(m, l, "self_attn.q_norm.weight", 1, m->hd, 0);
      add_tensor(m, l, "self_attn.k_norm.weight", 1, m->hd, 0);
    }
    add_tensor(m, l, "mlp.gate_proj.weight", 2, m->I, m->H);
    add_tensor(m, l, "mlp.up_proj.weight", 2, m->I, m->H);
    add_tensor(m, l, "mlp.down_proj.weight", 2, m->H, m->I);
    if (m->mlp_bias) {
      add_tensor(m, l, "mlp.gate_proj.bias", 1, m->I, 0);
      add_tensor(m, l, "mlp.up_proj.bias", 1, m->I, 0);
      add_tensor(m, l, "mlp.down_proj.bias", 1, m->H, 0);
    }
    add_tensor(m, l, "input_layernorm.weight", 1, m->H, 0);
    add_tensor(m, l, "post_attention_layernorm.weight", 1, m->H, 0);
  }
  add_tensor(m, -1, "model.norm.weight", 1, m->H, 0);
  if (!m->tied) add_tensor(m, -1, "lm_head.weight", 2, m->V, m->H);
}

static bool read_config(const json_t *config, oracle_model *m, char *why) {
  const char *type = json_string_value(json_object_get(config, "model_type"));
  if (!type || (strcmp(type, "llama") != 0 && strcmp(type, "qwen2") != 0 && strcmp(type, "qwen3") != 0))
    return oracle_refuse(why, "model_type %s is none of llama, qwen2, qwen3", type ? type : "(none)");
  snprintf(m->type, sizeof m->type, "%s", type);
  if (!number(config, "vocab_size", -1, &m->V, why) || !number(config, "hidden_size", -1, &m->H, why) ||
      !number(config, "num_hidden_layers", -1, &m->L, why) ||
      !number(config, "num_attention_heads", -1, &m->nh, why) ||
      !number(config, "intermediate_size", -1, &m->I, why) ||
      !number(config, "num_key_value_heads", m->nh, &m->ng, why) ||
      !number(config, "head_dim", strcmp(type, "qwen3") == 0 ? 128 : m->H / m->nh, &m->hd, why))
    return false;
  if (m->nh % m->ng != 0)
    return oracle_refuse(why, "%lld query heads, %lld KV heads", (long long)m->nh, (long long)m->ng);
  bool attention_bias = json_is_true(json_object_get(config, "attention_bias"));
  m->tied = json_is_true(json_object_get(config, "tie_word_embeddings"));
  m->qkv_bias = strcmp(type, "qwen2") == 0 || attention_bias;
  m->o_bias = strcmp(type, "qwen2") != 0 && attention_bias;
  m->mlp_bias = strcmp(type, "llama") == 0 && json_is_true(json_object_get(config, "mlp_bias"));
  m->qk_norm = strcmp(type, "qwen3") == 0;
  return true;
}

oracle_model *oracle_model_new(const json_t *config, char why[200]) {
  oracle_model *model = oracle_memory(1, sizeof *model);
  if (!read_config(config, model, why)) {
    oracle_model_free(model);
    return NULL;
  }
  add_tensors(model);
  return model;
}

void oracle_model_free(oracle_model *model) {
  if (!model) return;
  free(model->tensors);
  free(model);
}

int32_t oracle_model_find(const oracle_model *model, const char *name) {
  if (model->tied && strcmp(name, "lm_head.weight") == 0) name = "model.embed_tokens.weight";
  for (int32_t i = 0; i < model->tensor_count; i++) {
    if (strcmp(model->tensors[i].name, name) == 0) return i;
  }
  return -1;
}

uint64_t oracle_value(const oracle_model *model, int32_t tensor, int64_t index) {
  assert(tensor >= 0 && tensor < model->tensor_count && index >= 0 && index < model->tensors[tensor].elems);
  return treadle_hash_more(model->tensors[tensor].hash, (uint64_t)index);
}
