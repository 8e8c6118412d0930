/* The oracle's model: what a config.json object says of a family. The tensors are made in oracle_tensors.c. */
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

/* ---- Fields ---------------------------------------------------------------------------------- */

/* A config on its way into a model. `good` falls with the first field that is wrong. */
typedef struct reading {
  const json_t *config, *outer; /* text_config, or the config itself */
  bool good;
  char *why;
} reading;

static const json_t *field(const reading *r, const char *key) {
  const json_t *value = json_object_get(r->config, key);
  if (!value) value = json_object_get(r->outer, key);
  return json_is_null(value) ? NULL : value;
}

/* A whole number from `least` on; `otherwise` when it is absent or null. -1 as otherwise: it must be there. */
static int64_t number(reading *r, const char *key, int64_t otherwise, int64_t least) {
  const json_t *value = field(r, key);
  int64_t found = json_is_integer(value) ? json_integer_value(value) : otherwise;
  if (r->good && ((value && !json_is_integer(value)) || found < least))
    r->good = oracle_refuse(r->why, "%s is missing, no number or below %lld", key, (long long)least);
  return found;
}

static bool flag(const reading *r, const char *key, bool otherwise) {
  const json_t *value = field(r, key);
  return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static bool list_has(const json_t *list, int64_t number) {
  for (size_t i = 0; i < json_array_size(list); i++) {
    if (json_integer_value(json_array_get(list, i)) == number) return true;
  }
  return false;
}

/* ---- Families -------------------------------------------------------------------------------- */

enum { GQA, MLA, HYBRID }; /* attention */
enum { DENSE, ALL_MOE, SPARSE_STEP, FIRST_DENSE };

/* What the name of a family says, rules 5. */
static const struct family {
  const char *type;
  int attention, layers; /* which layers have experts */
  int64_t head_dim;      /* when the field is absent; 0: H / nh */
  bool tied;             /* when the field is absent */
  bool qkv_bias, qk_norm;
  const char *experts, *mtp; /* the fields with their counts */
} families[] = {
    {"llama", GQA, DENSE, 0, false, false, false, NULL, NULL},
    {"smollm3", GQA, DENSE, 0, true, false, false, NULL, NULL},
    {"qwen2", GQA, DENSE, 0, false, true, false, NULL, NULL},
    {"qwen3", GQA, DENSE, 128, false, false, true, NULL, NULL},
    {"gemma3_text", GQA, DENSE, 256, true, false, true, NULL, NULL},
    {"mixtral", GQA, ALL_MOE, 0, false, false, false, "num_local_experts", NULL},
    {"qwen2_moe", GQA, SPARSE_STEP, 0, false, true, false, "num_experts", NULL},
    {"qwen3_moe", GQA, SPARSE_STEP, 0, false, false, true, "num_experts", NULL},
    {"qwen3_vl_moe_text", GQA, ALL_MOE, 0, false, false, true, "num_experts", NULL},
    {"deepseek_ocr", GQA, FIRST_DENSE, 0, false, false, false, "n_routed_experts", NULL},
    {"deepseek_v2", MLA, FIRST_DENSE, 0, false, false, false, "n_routed_experts", NULL},
    {"deepseek_v3", MLA, FIRST_DENSE, 0, false, false, false, "n_routed_experts",
     "num_nextn_predict_layers"},
    {"glm4_moe", GQA, FIRST_DENSE, 128, false, false, false, "n_routed_experts",
     "num_nextn_predict_layers"},
    {"gpt_oss", GQA, ALL_MOE, 64, false, true, false, "num_local_experts", NULL},
    {"qwen3_next", HYBRID, SPARSE_STEP, 256, false, false, true, "num_experts", "mtp_num_hidden_layers"},
    {"qwen3_5_text", HYBRID, DENSE, 256, false, false, true, NULL, "mtp_num_hidden_layers"},
    {"qwen3_5_moe_text", HYBRID, ALL_MOE, 256, false, false, true, "num_experts", "mtp_num_hidden_layers"},
};

bool oracle_is(const oracle_model *model, const char *type) { return strcmp(model->type, type) == 0; }

static const struct family *family_of(const reading *r) {
  static const char *const others[][2] = {{"kimi_k2", "deepseek_v3"},
                                          {"gemma3", "gemma3_text"},
                                          {"qwen3_5", "qwen3_5_text"},
                                          {"qwen3_5_moe", "qwen3_5_moe_text"}};
  const char *type = json_string_value(field(r, "model_type"));
  for (size_t i = 0; type && i < sizeof others / sizeof *others; i++) {
    if (strcmp(others[i][0], type) == 0) type = others[i][1];
  }
  for (size_t i = 0; type && i < sizeof families / sizeof *families; i++) {
    if (strcmp(families[i].type, type) == 0) return &families[i];
  }
  oracle_refuse(r->why, "model_type %s is none of the oracle's", type ? type : "(none)");
  return NULL;
}

/* 5.1, 5.2: sizes and biases of attention and dense MLP. */
static void read_common(reading *r, const struct family *f, oracle_model *m) {
  snprintf(m->type, sizeof m->type, "%s", f->type);
  m->V = number(r, "vocab_size", -1, 1);
  m->H = number(r, "hidden_size", -1, 1);
  m->L = number(r, "num_hidden_layers", -1, 1);
  m->nh = number(r, "num_attention_heads", -1, 1);
  m->I = number(r, "intermediate_size", f->layers == ALL_MOE ? 0 : -1, 0);
  m->ng = number(r, "num_key_value_heads", m->nh, 1);
  m->hd = number(r, "head_dim", f->head_dim || m->nh < 1 ? f->head_dim : m->H / m->nh,
                 f->attention == MLA ? 0 : 1);
  if (r->good && f->attention != MLA && m->nh % m->ng != 0)
    r->good = oracle_refuse(r->why, "%lld query heads, %lld KV heads", (long long)m->nh, (long long)m->ng);
  m->tied = flag(r, "tie_word_embeddings", f->tied);
  bool biased = flag(r, "attention_bias", oracle_is(m, "gpt_oss"));
  if (oracle_is(m, "mixtral")) biased = false; /* its modules have none */
  bool own_bias = oracle_is(m, "qwen2_moe") ? flag(r, "qkv_bias", true) : f->qkv_bias;
  m->qkv_bias = oracle_is(m, "gpt_oss") ? biased : own_bias || biased;
  m->o_bias = biased && !f->qkv_bias && !oracle_is(m, "glm4_moe");
  if (oracle_is(m, "gpt_oss")) m->o_bias = biased;
  m->mlp_bias = (oracle_is(m, "llama") || oracle_is(m, "smollm3")) && flag(r, "mlp_bias", false);
  m->qk_norm = oracle_is(m, "glm4_moe") ? flag(r, "use_qk_norm", false) : f->qk_norm;
  const char *dtype = json_string_value(field(r, "dtype"));
  if (!dtype) dtype = json_string_value(field(r, "torch_dtype"));
  m->elem_bytes = dtype && strcmp(dtype, "float32") == 0 ? 4 : 2;
  m->wrapped = r->config != r->outer;
  m->sandwich = oracle_is(m, "gemma3_text");
  m->sinks = oracle_is(m, "gpt_oss");
}

/* 5.3 */
static void read_mla(reading *r, oracle_model *m) {
  m->mla = true;
  m->q_lora = number(r, "q_lora_rank", 0, 0);
  m->kv_lora = number(r, "kv_lora_rank", 512, 1);
  m->nope = number(r, "qk_nope_head_dim", 128, 1);
  m->rope = number(r, "qk_rope_head_dim", 64, 1);
  m->vd = number(r, "v_head_dim", 128, 1);
}

/* 4.8 */
static void read_linear(reading *r, oracle_model *m) {
  m->gated = true;
  m->split_in_proj = !oracle_is(m, "qwen3_next");
  m->nk = number(r, "linear_num_key_heads", 16, 1);
  m->nv = number(r, "linear_num_value_heads", 32, 1);
  m->dk = number(r, "linear_key_head_dim", 128, 1);
  m->dv = number(r, "linear_value_head_dim", 128, 1);
  m->K = number(r, "linear_conv_kernel_dim", 4, 1);
  if (r->good && m->nv % m->nk != 0)
    r->good = oracle_refuse(r->why, "%lld value heads, %lld key heads", (long long)m->nv, (long long)m->nk);
}

/* 5.2 */
static void read_experts(reading *r, const struct family *f, oracle_model *m) {
  m->E = number(r, f->experts, -1, 1);
  bool own_width = !oracle_is(m, "mixtral") && !oracle_is(m, "gpt_oss");
  m->Im = own_width ? number(r, "moe_intermediate_size", -1, 1) : m->I;
  if (r->good && m->Im < 1) r->good = oracle_refuse(r->why, "intermediate_size is missing");
  if (f->layers == FIRST_DENSE) {
    m->shared = number(r, "n_shared_experts", oracle_is(m, "deepseek_v2") ? 2 : 1, 0);
    m->Is = m->shared * m->Im;
    m->groups = number(r, "n_group", oracle_is(m, "deepseek_v3") ? 8 : 1, 1);
  } else if (oracle_is(m, "qwen2_moe") || f->attention == HYBRID) {
    m->Is = number(r, "shared_expert_intermediate_size", 0, 0);
    m->shared_gate = m->Is > 0;
  }
  m->halves = oracle_is(m, "qwen3_vl_moe_text");
  m->packed = m->router_bias = oracle_is(m, "gpt_oss");
  m->correction_bias = oracle_is(m, "deepseek_v3") || oracle_is(m, "glm4_moe");
}

/* Which layers have experts, which have linear attention. An MTP layer has full attention. */
static void read_layers(reading *r, const struct family *f, oracle_model *m) {
  m->moe = oracle_memory((size_t)(m->L + m->mtp), sizeof *m->moe);
  m->linear = oracle_memory((size_t)(m->L + m->mtp), sizeof *m->linear);
  int64_t first = number(r, "first_k_dense_replace", oracle_is(m, "deepseek_v3") ? 3 : 1, 0);
  int64_t step = number(r, "decoder_sparse_step", 1, 1);
  int64_t freq = f->layers == FIRST_DENSE ? number(r, "moe_layer_freq", 1, 1) : 1;
  int64_t interval = number(r, "full_attention_interval", 4, 1);
  const json_t *only_mlp = field(r, "mlp_only_layers"), *types = field(r, "layer_types");
  for (int64_t l = 0; l < m->L + m->mtp; l++) {
    if (f->layers == ALL_MOE) m->moe[l] = true;
    if (f->layers == SPARSE_STEP) m->moe[l] = l >= m->L || (!list_has(only_mlp, l) && (l + 1) % step == 0);
    if (f->layers == FIRST_DENSE) m->moe[l] = l >= first && l % freq == 0; /* MTP layers as well */
    if (f->attention != HYBRID || l >= m->L) continue;
    const char *type = json_string_value(json_array_get(types, (size_t)l));
    m->linear[l] = type ? strcmp(type, "linear_attention") == 0 : (l + 1) % interval != 0;
  }
}

oracle_model *oracle_model_new(const json_t *config, char why[200]) {
  oracle_model *model = oracle_memory(1, sizeof *model);
  reading r = {.config = json_object_get(config, "text_config"), .outer = config, .good = true, .why = why};
  if (!r.config) r.config = config;
  const struct family *family = family_of(&r);
  r.good = family != NULL;
  if (r.good) read_common(&r, family, model);
  if (r.good && family->attention == MLA) read_mla(&r, model);
  if (r.good && family->attention == HYBRID) read_linear(&r, model);
  if (r.good && family->layers != DENSE) read_experts(&r, family, model);
  if (r.good && family->mtp) {
    model->mtp = number(&r, family->mtp, 0, 0);
    model->next_mtp = family->attention == HYBRID;
    if (r.good && model->next_mtp && model->mtp > 1)
      r.good = oracle_refuse(why, "%lld MTP layers share one mtp.fc", (long long)model->mtp);
  }
  if (r.good) read_layers(&r, family, model);
  if (!r.good) {
    oracle_model_free(model);
    return NULL;
  }
  oracle_blocks_read(config, model);
  oracle_tensors_make(model);
  oracle_scales_make(model);
  return model;
}

void oracle_model_free(oracle_model *model) {
  if (!model) return;
  free(model->tensors);
  free(model->moe);
  free(model->linear);
  free(model);
}

/* ---- Names ----------------------------------------------------------------------------------- */

void oracle_layer_name(const oracle_model *model, int64_t l, const char *name, char full[ORACLE_NAME]) {
  if (l < 0) {
    snprintf(full, ORACLE_NAME, "%s", name);
  } else if (l >= model->L && model->next_mtp) {
    snprintf(full, ORACLE_NAME, "mtp.layers.%lld.%s", (long long)(l - model->L), name);
  } else {
    snprintf(full, ORACLE_NAME, "model.layers.%lld.%s", (long long)l, name);
  }
}

int32_t oracle_model_find(const oracle_model *model, const char *name) {
  for (int64_t l = model->L; l < model->L + model->mtp && !model->next_mtp; l++) { /* 5.4: copies */
    char copy[ORACLE_NAME];
    oracle_layer_name(model, l, "embed_tokens.weight", copy);
    if (strcmp(name, copy) == 0) name = "model.embed_tokens.weight";
    oracle_layer_name(model, l, "shared_head.head.weight", copy);
    if (strcmp(name, copy) == 0) name = "lm_head.weight";
  }
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
