/* The oracle's layouts: a rank's tensors are made one by one, and each of their elements is set once.
 *
 * Every rule is a function `rule_*` that says, for each local row and column, which row and column of which
 * Hugging Face tensor it is. Section numbers are those of the facts. */
#include "oracle/oracle_parts.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Building a rank ------------------------------------------------------------------------- */

enum { UNSET = -2, MAX_STORAGES = 4096 };

typedef struct place { /* where tensors are put now */
  const oracle_model *model;
  oracle_rank *rank;
  int chunk;
} place;

/* A new tensor of rows x cols elements; cols 0: a vector. */
static oracle_storage *add(const place *at, int64_t rows, int64_t cols, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static oracle_storage *add(const place *at, int64_t rows, int64_t cols, const char *format, ...) {
  assert(at->rank->count < MAX_STORAGES);
  oracle_storage *storage = &at->rank->storages[at->rank->count++];
  va_list values;
  va_start(values, format);
  vsnprintf(storage->name, sizeof storage->name, format, values);
  va_end(values);
  storage->chunk = at->chunk;
  storage->ndim = cols ? 2 : 1;
  storage->shape[0] = rows;
  storage->shape[1] = cols ? cols : 1;
  storage->elems = rows * storage->shape[1];
  storage->tensor = oracle_memory((size_t)storage->elems, sizeof *storage->tensor);
  storage->index = oracle_memory((size_t)storage->elems, sizeof *storage->index);
  for (int64_t i = 0; i < storage->elems; i++) storage->tensor[i] = UNSET;
  return storage;
}

/* Element (row, col) of the local tensor is element (hf_row, hf_col) of a canonical one. */
static void set(const oracle_model *model, oracle_storage *storage, int64_t row, int64_t col,
                int32_t tensor, int64_t hf_row, int64_t hf_col) {
  assert(row >= 0 && row < storage->shape[0] && col >= 0 && col < storage->shape[1]);
  int64_t i = row * storage->shape[1] + col;
  assert(storage->tensor[i] == UNSET);
  storage->tensor[i] = tensor;
  if (tensor == ORACLE_PADDING) return;
  const oracle_tensor *hf = &model->tensors[tensor];
  assert(hf->ndim == storage->ndim && hf_row >= 0 && hf_row < hf->shape[0] && hf_col >= 0 &&
         hf_col < hf->shape[1]);
  storage->index[i] = hf_row * hf->shape[1] + hf_col;
}

/* The canonical tensor of a name outside layers, or of layer l. */
static int32_t hf(const oracle_model *model, int64_t l, const char *name) {
  char full[128];
  snprintf(full, sizeof full, "model.layers.%lld.%s", (long long)l, name);
  int32_t tensor = oracle_model_find(model, l < 0 ? name : full);
  assert(tensor >= 0);
  return tensor;
}

/* ---- The rules ------------------------------------------------------------------------------- */

/* All of a tensor ("rep"). */
static void rule_whole(const place *at, oracle_storage *s, int32_t tensor) {
  for (int64_t row = 0; row < s->shape[0]; row++) {
    for (int64_t col = 0; col < s->shape[1]; col++) set(at->model, s, row, col, tensor, row, col);
  }
}

/* Dimension 1 cut in equal parts ("R"): o_proj and down_proj; 4.1, 4.3. */
static void rule_columns(const place *at, oracle_storage *s, int32_t tensor, int64_t t) {
  for (int64_t row = 0; row < s->shape[0]; row++) {
    for (int64_t col = 0; col < s->shape[1]; col++)
      set(at->model, s, row, col, tensor, row, t * s->shape[1] + col);
  }
}

/* Embedding and head: contiguous rows, zeros from row V on; 3. */
static void rule_vocabulary(const place *at, oracle_storage *s, int32_t tensor, int64_t t) {
  for (int64_t row = 0; row < s->shape[0]; row++) {
    int64_t word = t * s->shape[0] + row;
    for (int64_t col = 0; col < s->shape[1]; col++)
      set(at->model, s, row, col, word < at->model->V ? tensor : ORACLE_PADDING, word, col);
  }
}

/* M-QKV, weight or bias: a global matrix of blocks (q query heads, one key head, one value head) for each
 * group, cut in equal contiguous parts; 4.1. */
static void rule_m_qkv(const place *at, oracle_storage *s, int32_t q_proj, int32_t k_proj, int32_t v_proj,
                       int64_t t) {
  const oracle_model *m = at->model;
  int64_t q = m->nh / m->ng, block = (q + 2) * m->hd;
  for (int64_t row = 0; row < s->shape[0]; row++) {
    int64_t r = t * s->shape[0] + row; /* of the global matrix */
    int64_t g = r / block, o = r % block;
    for (int64_t col = 0; col < s->shape[1]; col++) {
      if (o < q * m->hd) {
        set(m, s, row, col, q_proj, g * q * m->hd + o, col);
      } else if (o < (q + 1) * m->hd) {
        set(m, s, row, col, k_proj, g * m->hd + (o - q * m->hd), col);
      } else {
        set(m, s, row, col, v_proj, g * m->hd + (o - (q + 1) * m->hd), col);
      }
    }
  }
}

/* The gate's part, below it the same part of up; weight or bias. M-FC1 4.3 and E-GU 4.5. */
static void rule_gate_up(const place *at, oracle_storage *s, int32_t gate, int32_t up, int64_t t) {
  int64_t part = s->shape[0] / 2;
  for (int64_t row = 0; row < part; row++) {
    for (int64_t col = 0; col < s->shape[1]; col++) {
      set(at->model, s, row, col, gate, t * part + row, col);
      set(at->model, s, part + row, col, up, t * part + row, col);
    }
  }
}

/* KV heads on one of tp ranks in the engines; 4.4. */
static int64_t e_kv_heads(const oracle_model *m, int64_t tp) { return tp <= m->ng ? m->ng / tp : 1; }

/* E-QKV, weight or bias: own query heads, own key heads, own value heads; 4.4. */
static void rule_e_qkv(const place *at, oracle_storage *s, int32_t q_proj, int32_t k_proj, int32_t v_proj,
                       int64_t t, int64_t tp) {
  const oracle_model *m = at->model;
  int64_t q_rows = m->nh / tp * m->hd, kv_rows = e_kv_heads(m, tp) * m->hd;
  int64_t kv_head = tp <= m->ng ? t * (m->ng / tp) : t / (tp / m->ng); /* the first one */
  for (int64_t col = 0; col < s->shape[1]; col++) {
    for (int64_t row = 0; row < q_rows; row++) set(m, s, row, col, q_proj, t * q_rows + row, col);
    for (int64_t row = 0; row < kv_rows; row++) {
      set(m, s, q_rows + row, col, k_proj, kv_head * m->hd + row, col);
      set(m, s, q_rows + kv_rows + row, col, v_proj, kv_head * m->hd + row, col);
    }
  }
}

/* ---- What all layouts need ------------------------------------------------------------------- */

static int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

static void note_coordinate(oracle_rank *rank, const char *name, int64_t index) {
  for (int i = 0; i < 7; i++) {
    if (rank->at[i].name[0]) continue;
    snprintf(rank->at[i].name, sizeof rank->at[i].name, "%s", name);
    rank->at[i].index = index;
    return;
  }
}

/* May attention and MLP be cut in tp parts? 4.1, 4.3, 4.4. */
static bool check_cut(const oracle_model *m, int64_t attention_tp, int64_t mlp_tp, char *why) {
  if (m->nh % attention_tp != 0)
    return oracle_refuse(why, "%lld heads do not divide by %lld", (long long)m->nh,
                         (long long)attention_tp);
  if (m->ng % attention_tp != 0 && attention_tp % m->ng != 0)
    return oracle_refuse(why, "%lld KV heads and %lld ranks", (long long)m->ng, (long long)attention_tp);
  if (m->I % mlp_tp != 0)
    return oracle_refuse(why, "MLP width %lld does not divide by %lld", (long long)m->I, (long long)mlp_tp);
  return true;
}

static bool check_experts(oracle_options *options, char *why) {
  const char *ep = oracle_option_text(options, "ep");
  if (ep && strcmp(ep, "1") != 0 && strcmp(ep, "off") != 0)
    return oracle_refuse(why, "ep=%s, and the model has no experts", ep);
  return true;
}

/* ---- Hugging Face ---------------------------------------------------------------------------- */

static bool build_hf(oracle_layout *layout, oracle_options *options, char *why) {
  const oracle_model *m = layout->model;
  const char *root = oracle_option_text(options, "root");
  int64_t only = root ? strtoll(root, NULL, 10) : -1;
  if (root && (only < 0 || only >= layout->ranks)) return oracle_refuse(why, "root=%s", root);
  if (!oracle_options_end(options, why)) return false;
  for (int64_t r = 0; r < layout->ranks; r++) {
    const place at = {m, &layout->rank[r], 0};
    note_coordinate(at.rank, "dp", r);
    if (root && r != only) continue;
    for (int32_t i = 0; i < m->tensor_count; i++) {
      const oracle_tensor *tensor = &m->tensors[i];
      rule_whole(
          &at, add(&at, tensor->shape[0], tensor->ndim == 2 ? tensor->shape[1] : 0, "%s", tensor->name), i);
    }
  }
  return true;
}

/* ---- Megatron -------------------------------------------------------------------------------- */

typedef struct megatron {
  int64_t tp, pp, cp, dp;
  bool te;
  int64_t padded; /* vocabulary rows */
  struct {
    char name[4];
    int64_t size;
  } order[8]; /* fastest first; ended by an empty name */
} megatron;

/* The order of the dense grid; 1.1, 16.1. */
static bool megatron_order(const char *text, megatron *m, char *why) {
  const struct {
    const char *name;
    int64_t size;
  } sizes[] = {{"tp", m->tp}, {"cp", m->cp}, {"ep", 1}, {"dp", m->dp}, {"pp", m->pp}};
  size_t length = strlen(text);
  int count = 0;
  for (const char *word = text; *word;) {
    size_t end = strcspn(word, "-");
    int known = -1;
    for (int i = 0; i < 5; i++) {
      if (end == 2 && strncmp(word, sizes[i].name, 2) == 0) known = i;
    }
    if (known < 0 || count == 5) return oracle_refuse(why, "order=%s", text);
    for (int i = 0; i < count; i++) {
      if (strcmp(m->order[i].name, sizes[known].name) == 0) return oracle_refuse(why, "order=%s", text);
    }
    memcpy(m->order[count].name, sizes[known].name, 3);
    m->order[count++].size = sizes[known].size;
    word += end + (word[end] == '-');
  }
  for (int i = 0; i < 5; i++) {
    bool named = sizes[i].size == 1;
    for (int j = 0; j < count; j++) named |= strcmp(m->order[j].name, sizes[i].name) == 0;
    if (!named) return oracle_refuse(why, "order=%s lacks %s", text, sizes[i].name);
  }
  /* Not ending in pp, with pp > 1: EDP must be DP. Without experts ETP is TP and EP is 1, so CP must be 1.
   */
  if (m->pp > 1 && m->cp > 1 && strcmp(text + length - 2, "pp") != 0)
    return oracle_refuse(why, "order=%s does not end in pp, and cp > 1", text);
  return true;
}

/* One decoder layer; 7.1, in the order of 7.10. */
static void megatron_layer(const place *at, const megatron *g, int64_t l, int local, int64_t t) {
  const oracle_model *m = at->model;
  int64_t qkv_rows = (m->nh + 2 * m->ng) * m->hd / g->tp;
  oracle_storage *s;
  if (!g->te) {
    s = add(at, m->H, 0, "decoder.layers.%d.input_layernorm.weight", local);
    rule_whole(at, s, hf(m, l, "input_layernorm.weight"));
  }
  s = add(at, m->H, m->nh * m->hd / g->tp, "decoder.layers.%d.self_attention.linear_proj.weight", local);
  rule_columns(at, s, hf(m, l, "self_attn.o_proj.weight"), t);
  if (m->o_bias) {
    s = add(at, m->H, 0, "decoder.layers.%d.self_attention.linear_proj.bias", local);
    rule_whole(at, s, hf(m, l, "self_attn.o_proj.bias"));
  }
  if (g->te) {
    s = add(at, m->H, 0, "decoder.layers.%d.self_attention.linear_qkv.layer_norm_weight", local);
    rule_whole(at, s, hf(m, l, "input_layernorm.weight"));
  }
  s = add(at, qkv_rows, m->H, "decoder.layers.%d.self_attention.linear_qkv.weight", local);
  rule_m_qkv(at, s, hf(m, l, "self_attn.q_proj.weight"), hf(m, l, "self_attn.k_proj.weight"),
             hf(m, l, "self_attn.v_proj.weight"), t);
  if (m->qkv_bias) {
    s = add(at, qkv_rows, 0, "decoder.layers.%d.self_attention.linear_qkv.bias", local);
    rule_m_qkv(at, s, hf(m, l, "self_attn.q_proj.bias"), hf(m, l, "self_attn.k_proj.bias"),
               hf(m, l, "self_attn.v_proj.bias"), t);
  }
  if (m->qk_norm) {
    s = add(at, m->hd, 0, "decoder.layers.%d.self_attention.q_layernorm.weight", local);
    rule_whole(at, s, hf(m, l, "self_attn.q_norm.weight"));
    s = add(at, m->hd, 0, "decoder.layers.%d.self_attention.k_layernorm.weight", local);
    rule_whole(at, s, hf(m, l, "self_attn.k_norm.weight"));
  }
  if (g->te) {
    s = add(at, m->H, 0, "decoder.layers.%d.mlp.linear_fc1.layer_norm_weight", local);
  } else {
    s = add(at, m->H, 0, "decoder.layers.%d.pre_mlp_layernorm.weight", local);
  }
  rule_whole(at, s, hf(m, l, "post_attention_layernorm.weight"));
  s = add(at, 2 * m->I / g->tp, m->H, "decoder.layers.%d.mlp.linear_fc1.weight", local);
  rule_gate_up(at, s, hf(m, l, "mlp.gate_proj.weight"), hf(m, l, "mlp.up_proj.weight"), t);
  if (m->mlp_bias) {
    s = add(at, 2 * m->I / g->tp, 0, "decoder.layers.%d.mlp.linear_fc1.bias", local);
    rule_gate_up(at, s, hf(m, l, "mlp.gate_proj.bias"), hf(m, l, "mlp.up_proj.bias"), t);
  }
  s = add(at, m->H, m->I / g->tp, "decoder.layers.%d.mlp.linear_fc2.weight", local);
  rule_columns(at, s, hf(m, l, "mlp.down_proj.weight"), t);
  if (m->mlp_bias) {
    s = add(at, m->H, 0, "decoder.layers.%d.mlp.linear_fc2.bias", local);
    rule_whole(at, s, hf(m, l, "mlp.down_proj.bias"));
  }
}

/* One rank, chunk by chunk; what stands outside layers: 2.3. */
static void megatron_rank(oracle_layout *layout, const megatron *g, const oracle_stages *stages,
                          int64_t r) {
  const oracle_model *m = layout->model;
  int64_t t = 0, p = 0, stride = 1;
  for (int i = 0; g->order[i].name[0]; i++) {
    int64_t index = r / stride % g->order[i].size;
    stride *= g->order[i].size;
    if (strcmp(g->order[i].name, "tp") == 0) t = index;
    if (strcmp(g->order[i].name, "pp") == 0) p = index;
    note_coordinate(&layout->rank[r], g->order[i].name, index);
  }
  static const char *const names[] = {"tp", "cp", "dp", "pp"}; /* of size 1 and not in the order */
  for (int i = 0; i < 4; i++) {
    if (oracle_layout_coordinate(layout, r, names[i]) < 0) note_coordinate(&layout->rank[r], names[i], 0);
  }
  for (int64_t v = 0; v < stages->vpp; v++) {
    const place at = {m, &layout->rank[r], (int)v};
    if (p == 0 && v == 0) {
      oracle_storage *s = add(&at, g->padded / g->tp, m->H, "embedding.word_embeddings.weight");
      rule_vocabulary(&at, s, hf(m, -1, "model.embed_tokens.weight"), t);
    }
    int local = 0;
    for (int64_t l = 0; l < m->L; l++) {
      if (stages->p[l] == p && stages->v[l] == v) megatron_layer(&at, g, l, local++, t);
    }
    if (p != g->pp - 1 || v != stages->vpp - 1) continue;
    rule_whole(&at, add(&at, m->H, 0, "decoder.final_layernorm.weight"), hf(m, -1, "model.norm.weight"));
    if (m->tied && g->pp == 1) continue;
    oracle_storage *s = add(&at, g->padded / g->tp, m->H, "output_layer.weight");
    rule_vocabulary(&at, s, hf(m, -1, "lm_head.weight"), t);
  }
}

static bool megatron_read(oracle_layout *layout, oracle_options *options, const oracle_stages *stages,
                          megatron *g, char *why) {
  const oracle_model *m = layout->model;
  int64_t dp, multiple, padded;
  if (!oracle_option_number(options, "tp", 1, &g->tp, why) ||
      !oracle_option_number(options, "cp", 1, &g->cp, why) ||
      !oracle_option_number(options, "dp", 0, &dp, why) ||
      !oracle_option_number(options, "vocab_divisible_by", 128, &multiple, why) ||
      !oracle_option_number(options, "padded_vocab_size", 0, &padded, why))
    return false;
  g->pp = stages->pp;
  int64_t model_ranks = g->tp * g->cp * g->pp;
  if (layout->ranks % model_ranks != 0 || (dp && dp * model_ranks != layout->ranks))
    return oracle_refuse(why, "%lld ranks, and tp * cp * pp is %lld", (long long)layout->ranks,
                         (long long)model_ranks);
  g->dp = layout->ranks / model_ranks;
  const char *order = oracle_option_text(options, "order");
  const char *spec = oracle_option_text(options, "spec");
  if (spec && strcmp(spec, "te") != 0 && strcmp(spec, "local") != 0)
    return oracle_refuse(why, "spec=%s", spec);
  g->te = !spec || strcmp(spec, "te") == 0;
  g->padded = padded ? padded : round_up(m->V, multiple * g->tp);
  if (g->padded < m->V || g->padded % g->tp != 0)
    return oracle_refuse(why, "padded_vocab_size %lld, vocabulary %lld", (long long)g->padded,
                         (long long)m->V);
  if (!megatron_order(order ? order : "tp-cp-ep-dp-pp", g, why) || !check_cut(m, g->tp, g->tp, why) ||
      !check_experts(options, why) || !oracle_options_end(options, why))
    return false;
  int64_t rows = (m->nh + 2 * m->ng) * m->hd; /* of QKV; 4.1 */
  return rows % g->tp == 0 ||
         oracle_refuse(why, "%lld rows of QKV do not divide by %lld", (long long)rows, (long long)g->tp);
}

static bool build_megatron(oracle_layout *layout, oracle_options *options, char *why) {
  oracle_stages stages = {0};
  megatron grid = {0};
  bool good = oracle_stages_megatron(layout->model->L, options, &stages, why) &&
              megatron_read(layout, options, &stages, &grid, why);
  for (int64_t r = 0; good && r < layout->ranks; r++) megatron_rank(layout, &grid, &stages, r);
  oracle_stages_free(&stages);
  return good;
}

/* ---- vLLM and SGLang ------------------------------------------------------------------------- */

typedef struct shard { /* part t of tp */
  int64_t t, tp;
} shard;

static void engine_norms(const place *at, int64_t l) {
  const oracle_model *m = at->model;
  oracle_storage *s = add(at, m->hd, 0, "model.layers.%d.self_attn.q_norm.weight", (int)l);
  rule_whole(at, s, hf(m, l, "self_attn.q_norm.weight"));
  s = add(at, m->hd, 0, "model.layers.%d.self_attn.k_norm.weight", (int)l);
  rule_whole(at, s, hf(m, l, "self_attn.k_norm.weight"));
}

/* One decoder layer; 8 and 9. SGLang registers the norms of q and k before the projections. */
static void engine_layer(const place *at, int64_t l, shard attention, shard mlp, bool norms_first) {
  const oracle_model *m = at->model;
  int64_t qkv_rows = (m->nh / attention.tp + 2 * e_kv_heads(m, attention.tp)) * m->hd;
  oracle_storage *s;
  if (m->qk_norm && norms_first) engine_norms(at, l);
  s = add(at, qkv_rows, m->H, "model.layers.%d.self_attn.qkv_proj.weight", (int)l);
  rule_e_qkv(at, s, hf(m, l, "self_attn.q_proj.weight"), hf(m, l, "self_attn.k_proj.weight"),
             hf(m, l, "self_attn.v_proj.weight"), attention.t, attention.tp);
  if (m->qkv_bias) {
    s = add(at, qkv_rows, 0, "model.layers.%d.self_attn.qkv_proj.bias", (int)l);
    rule_e_qkv(at, s, hf(m, l, "self_attn.q_proj.bias"), hf(m, l, "self_attn.k_proj.bias"),
               hf(m, l, "self_attn.v_proj.bias"), attention.t, attention.tp);
  }
  s = add(at, m->H, m->nh * m->hd / attention.tp, "model.layers.%d.self_attn.o_proj.weight", (int)l);
  rule_columns(at, s, hf(m, l, "self_attn.o_proj.weight"), attention.t);
  if (m->o_bias) {
    s = add(at, m->H, 0, "model.layers.%d.self_attn.o_proj.bias", (int)l);
    rule_whole(at, s, hf(m, l, "self_attn.o_proj.bias"));
  }
  if (m->qk_norm && !norms_first) engine_norms(at, l);
  s = add(at, 2 * m->I / mlp.tp, m->H, "model.layers.%d.mlp.gate_up_proj.weight", (int)l);
  rule_gate_up(at, s, hf(m, l, "mlp.gate_proj.weight"), hf(m, l, "mlp.up_proj.weight"), mlp.t);
  if (m->mlp_bias) {
    s = add(at, 2 * m->I / mlp.tp, 0, "model.layers.%d.mlp.gate_up_proj.bias", (int)l);
    rule_gate_up(at, s, hf(m, l, "mlp.gate_proj.bias"), hf(m, l, "mlp.up_proj.bias"), mlp.t);
  }
  s = add(at, m->H, m->I / mlp.tp, "model.layers.%d.mlp.down_proj.weight", (int)l);
  rule_columns(at, s, hf(m, l, "mlp.down_proj.weight"), mlp.t);
  if (m->mlp_bias) {
    s = add(at, m->H, 0, "model.layers.%d.mlp.down_proj.bias", (int)l);
    rule_whole(at, s, hf(m, l, "mlp.down_proj.bias"));
  }
  s = add(at, m->H, 0, "model.layers.%d.input_layernorm.weight", (int)l);
  rule_whole(at, s, hf(m, l, "input_layernorm.weight"));
  s = add(at, m->H, 0, "model.layers.%d.post_attention_layernorm.weight", (int)l);
  rule_whole(at, s, hf(m, l, "post_attention_layernorm.weight"));
}

static void engine_embedding(const place *at, const char *name, int64_t padded, shard cut) {
  oracle_storage *s = add(at, padded / cut.tp, at->model->H, "%s", name);
  rule_vocabulary(at, s, hf(at->model, -1, name), cut.t);
}

/* Layout rank i sits on this physical rank (see oracle_layout_new). */
static int64_t physical_rank(int64_t i, int64_t tp, int64_t strides) {
  int64_t g = i / tp, t = i % tp;
  return g / strides * (strides * tp) + g % strides + strides * t;
}

static bool check_ranks(const oracle_layout *layout, int64_t engine, int64_t tp, int64_t strides,
                        char *why) {
  if (layout->ranks % engine != 0)
    return oracle_refuse(why, "%lld ranks, and one engine takes %lld", (long long)layout->ranks,
                         (long long)engine);
  if (strides < 1 || layout->ranks % (strides * tp) != 0)
    return oracle_refuse(why, "%lld ranks, tp %lld, stride %lld", (long long)layout->ranks, (long long)tp,
                         (long long)strides);
  return true;
}

/* 1.2, 2.4, 8. */
static bool build_vllm(oracle_layout *layout, oracle_options *options, int64_t strides, char *why) {
  const oracle_model *m = layout->model;
  int64_t tp, dp, pcp, padded = round_up(m->V, 64);
  oracle_stages stages = {0};
  bool good =
      oracle_stages_vllm(m->L, options, &stages, why) && oracle_option_number(options, "tp", 1, &tp, why) &&
      oracle_option_number(options, "dp", 1, &dp, why) &&
      oracle_option_number(options, "pcp", 1, &pcp, why) && check_experts(options, why) &&
      oracle_options_end(options, why) && check_cut(m, tp, tp, why) &&
      check_ranks(layout, tp * pcp * stages.pp * dp, tp, strides, why) &&
      (padded % tp == 0 ||
       oracle_refuse(why, "%lld vocabulary rows do not divide by %lld", (long long)padded, (long long)tp));
  for (int64_t i = 0; good && i < layout->ranks; i++) {
    const place at = {m, &layout->rank[physical_rank(i, tp, strides)], 0};
    const shard cut = {i % tp, tp};
    int64_t p = i / tp / pcp % stages.pp;
    bool is_first = p == 0, is_last = p == stages.pp - 1;
    note_coordinate(at.rank, "tp", cut.t);
    note_coordinate(at.rank, "pcp", i / tp % pcp);
    note_coordinate(at.rank, "pp", p);
    note_coordinate(at.rank, "dp", i / tp / pcp / stages.pp % dp);
    if (is_first || (is_last && m->tied)) engine_embedding(&at, "model.embed_tokens.weight", padded, cut);
    for (int64_t l = 0; l < m->L; l++) {
      if (stages.p[l] == p) engine_layer(&at, l, cut, cut, false);
    }
    if (!is_last) continue;
    rule_whole(&at, add(&at, m->H, 0, "model.norm.weight"), hf(m, -1, "model.norm.weight"));
    if (!m->tied) engine_embedding(&at, "lm_head.weight", padded, cut);
  }
  oracle_stages_free(&stages);
  return good;
}

/* 1.3, 2.5, 9, 17.9 to 17.11. */
static bool build_sglang(oracle_layout *layout, oracle_options *options, int64_t strides, char *why) {
  const oracle_model *m = layout->model;
  bool is_llama = strcmp(m->type, "llama") == 0, is_qwen3 = strcmp(m->type, "qwen3") == 0;
  int64_t tp, attn_dp, attn_cp;
  oracle_stages stages = {0};
  bool good = oracle_stages_sglang(m->L, options, &stages, why) &&
              oracle_option_number(options, "tp", 1, &tp, why) &&
              oracle_option_number(options, "attn_dp", 1, &attn_dp, why) &&
              oracle_option_number(options, "attn_cp", 1, &attn_cp, why) && check_experts(options, why) &&
              oracle_options_end(options, why) && check_ranks(layout, tp * stages.pp, tp, strides, why) &&
              (tp % (attn_dp * attn_cp) == 0 ||
               oracle_refuse(why, "tp %lld does not divide by attn_dp %lld * attn_cp %lld", (long long)tp,
                             (long long)attn_dp, (long long)attn_cp));
  if (good) {
    int64_t attn_tp = tp / (attn_dp * attn_cp);
    good = check_cut(m, is_qwen3 ? attn_tp : tp, tp, why); /* only Qwen3 cuts attention by attn_tp; 17.10 */
    for (int64_t i = 0; good && i < layout->ranks; i++) {
      const place at = {m, &layout->rank[physical_rank(i, tp, strides)], 0};
      const shard full = {i % tp, tp}, attn = {i % tp % attn_tp, attn_tp};
      /* The embedding follows attn_tp in Qwen2 and Qwen3, where attention dp is on. */
      const shard cut = !is_llama && attn_dp > 1 ? attn : full;
      int64_t p = i / tp % stages.pp, rows = round_up(m->V, 64), cut_rows = rows;
      if (rows % tp != 0) rows = round_up(m->V, 64 * tp);
      if (cut_rows % cut.tp != 0) cut_rows = round_up(m->V, 64 * cut.tp);
      bool is_last = p == stages.pp - 1;
      note_coordinate(at.rank, "tp", full.t);
      note_coordinate(at.rank, "pp", p);
      note_coordinate(at.rank, "attn_tp", attn.t);
      note_coordinate(at.rank, "attn_cp", full.t / attn_tp % attn_cp);
      note_coordinate(at.rank, "attn_dp", full.t / (attn_tp * attn_cp));
      if (p == 0) engine_embedding(&at, "model.embed_tokens.weight", cut_rows, cut);
      for (int64_t l = 0; l < m->L; l++) {
        if (stages.p[l] == p) engine_layer(&at, l, is_qwen3 ? attn : full, full, true);
      }
      if (is_last) rule_whole(&at, add(&at, m->H, 0, "model.norm.weight"), hf(m, -1, "model.norm.weight"));
      /* The head: Llama has it on every stage, and none when tied. Qwen has it on the last stage; when tied
       * and there is one stage it is the embedding, with more stages a tensor of its own. */
      if (is_llama ? !m->tied : is_last && (!m->tied || stages.pp > 1))
        engine_embedding(&at, "lm_head.weight", rows, full);
    }
  }
  oracle_stages_free(&stages);
  return good;
}

/* ---- The door -------------------------------------------------------------------------------- */

oracle_layout *oracle_layout_new(const oracle_model *model, const char *text, int64_t ranks,
                                 int64_t strides, char why[200]) {
  oracle_options options;
  if (!oracle_options_parse(text, &options, why)) return NULL;
  oracle_option_text(&options, "dtype");
  oracle_layout *layout = oracle_memory(1, sizeof *layout);
  layout->model = model;
  layout->ranks = ranks;
  layout->rank = oracle_memory((size_t)ranks, sizeof *layout->rank);
  int64_t most = 3 + 20 * model->L;
  if (most > MAX_STORAGES) most = MAX_STORAGES;
  for (int64_t r = 0; r < ranks; r++)
    layout->rank[r].storages = oracle_memory((size_t)most, sizeof *layout->rank[r].storages);

  bool good;
  if (strcmp(options.kind, "vllm") == 0) {
    good = build_vllm(layout, &options, strides, why);
  } else if (strcmp(options.kind, "sglang") == 0) {
    good = build_sglang(layout, &options, strides, why);
  } else if (strides != 1) {
    good = oracle_refuse(why, "a rank map belongs to an inference layout");
  } else if (strcmp(options.kind, "megatron") == 0) {
    good = build_megatron(layout, &options, why);
  } else if (strcmp(options.kind, "hf") == 0) {
    good = build_hf(layout, &options, why);
  } else {
    good = oracle_refuse(why, "unknown kind of layout '%s'", options.kind);
  }
  if (!good) {
    oracle_layout_free(layout);
    return NULL;
  }
  for (int64_t r = 0; r < ranks; r++) { /* every local element was set */
    for (int i = 0; i < layout->rank[r].count; i++) {
      const oracle_storage *s = &layout->rank[r].storages[i];
      for (int64_t e = 0; e < s->elems; e++) assert(s->tensor[e] != UNSET);
    }
  }
  return layout;
}

void oracle_layout_free(oracle_layout *layout) {
  if (!layout) return;
  for (int64_t r = 0; r < layout->ranks; r++) {
    for (int i = 0; i < layout->rank[r].count; i++) {
      free(layout->rank[r].storages[i].tensor);
      free(layout->rank[r].storages[i].index);
    }
    free(layout->rank[r].storages);
  }
  free(layout->rank);
  free(layout);
}

int64_t oracle_layout_coordinate(const oracle_layout *layout, int64_t rank, const char *dimension) {
  for (int i = 0; layout->rank[rank].at[i].name[0]; i++) {
    if (strcmp(layout->rank[rank].at[i].name, dimension) == 0) return layout->rank[rank].at[i].index;
  }
  return -1;
}

const oracle_storage *oracle_layout_find(const oracle_layout *layout, int64_t rank, int chunk,
                                         const char *name) {
  const oracle_rank *r = &layout->rank[rank];
  for (int i = 0; i < r->count; i++) {
    if (r->storages[i].chunk == chunk && strcmp(r->storages[i].name, name) == 0) return &r->storages[i];
  }
  return NULL;
}
