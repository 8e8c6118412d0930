/* Megatron: the tensors of a rank, by the names of rules 7 and in the order of 7.10. */
#include "oracle/oracle_megatron.h"

#include <string.h>

typedef struct ranks { /* what of the coordinates cuts tensors */
  int64_t t, p, e, et;
} ranks;

/* ---- Attention ------------------------------------------------------------------------------- */

static void vector(const oracle_place *at, const char *name, const char *hf) {
  oracle_matrix from = oracle_hf(at, "%s", hf);
  oracle_rule_whole(at, oracle_add(at, from.rows, 0, "%s", name), from);
}

/* 7.1, 7.6, 7.7 */
static void attention(const oracle_place *at, const oracle_megatron *g, const ranks *r) {
  const oracle_model *m = at->model;
  int64_t rows = (m->nh * oracle_q_width(m) + 2 * m->ng * m->hd) / g->tp;
  oracle_window w;
  if (m->sinks) {
    w = oracle_add(at, m->nh / g->tp, 0, "self_attention.core_attention.softmax_offset");
    oracle_rule_rows(at, w, oracle_hf(at, "self_attn.sinks"), r->t);
  }
  w = oracle_add(at, m->H, m->nh * m->hd / g->tp, "self_attention.linear_proj.weight");
  oracle_rule_columns(at, w, oracle_hf(at, "self_attn.o_proj.weight"), r->t);
  if (m->o_bias) vector(at, "self_attention.linear_proj.bias", "self_attn.o_proj.bias");
  if (m->sandwich)
    vector(at, "self_attention.linear_proj.post_layernorm.weight", "post_attention_layernorm.weight");
  if (g->te) vector(at, "self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight");
  w = oracle_add(at, rows, m->H, "self_attention.linear_qkv.weight");
  oracle_rule_m_qkv(at, w, oracle_hf(at, "self_attn.q_proj.weight"),
                    oracle_hf(at, "self_attn.k_proj.weight"), oracle_hf(at, "self_attn.v_proj.weight"),
                    r->t);
  if (m->qkv_bias) {
    w = oracle_add(at, rows, 0, "self_attention.linear_qkv.bias");
    oracle_rule_m_qkv(at, w, oracle_hf(at, "self_attn.q_proj.bias"), oracle_hf(at, "self_attn.k_proj.bias"),
                      oracle_hf(at, "self_attn.v_proj.bias"), r->t);
  }
  if (m->qk_norm) {
    vector(at, "self_attention.q_layernorm.weight", "self_attn.q_norm.weight");
    vector(at, "self_attention.k_layernorm.weight", "self_attn.k_norm.weight");
  }
}

/* A down projection: whole in the TE spec, cut in the local one; 7.3. */
static void down(const oracle_place *at, const oracle_megatron *g, const ranks *r, const char *name,
                 const char *hf) {
  oracle_matrix from = oracle_hf(at, "%s", hf);
  if (g->te) {
    oracle_rule_whole(at, oracle_add(at, from.rows, from.cols, "%s", name), from);
  } else {
    oracle_rule_rows(at, oracle_add(at, from.rows / g->tp, from.cols, "%s", name), from, r->t);
  }
}

static void up(const oracle_place *at, const oracle_megatron *g, const ranks *r, const char *name,
               const char *hf) {
  oracle_matrix from = oracle_hf(at, "%s", hf);
  oracle_rule_rows(at, oracle_add(at, from.rows / g->tp, from.cols, "%s", name), from, r->t);
}

/* 7.3, 7.10; the fused down projection 4.7. The norms of the latents stand before the up projections in TE,
 * behind all in the local spec. */
static void mla(const oracle_place *at, const oracle_megatron *g, const ranks *r) {
  const oracle_model *m = at->model;
  oracle_window w = oracle_add(at, m->H, m->nh * m->vd / g->tp, "self_attention.linear_proj.weight");
  oracle_rule_columns(at, w, oracle_hf(at, "self_attn.o_proj.weight"), r->t);
  if (g->mla_fused) {
    vector(at, "self_attention.linear_qkv_down_proj.layer_norm_weight", "input_layernorm.weight");
    w = oracle_add(at, (m->q_lora + m->kv_lora + m->rope) / g->tp, m->H,
                   "self_attention.linear_qkv_down_proj.weight");
    oracle_rule_pair(at, w, oracle_hf(at, "self_attn.q_a_proj.weight"),
                     oracle_hf(at, "self_attn.kv_a_proj_with_mqa.weight"), r->t);
  }
  if (m->q_lora) {
    if (!g->mla_fused)
      down(at, g, r, "self_attention.linear_q_down_proj.weight", "self_attn.q_a_proj.weight");
    if (g->te)
      vector(at, "self_attention.linear_q_up_proj.layer_norm_weight", "self_attn.q_a_layernorm.weight");
    up(at, g, r, "self_attention.linear_q_up_proj.weight", "self_attn.q_b_proj.weight");
  } else {
    up(at, g, r, "self_attention.linear_q_proj.weight", "self_attn.q_proj.weight");
  }
  if (!g->mla_fused)
    down(at, g, r, "self_attention.linear_kv_down_proj.weight", "self_attn.kv_a_proj_with_mqa.weight");
  if (g->te)
    vector(at, "self_attention.linear_kv_up_proj.layer_norm_weight", "self_attn.kv_a_layernorm.weight");
  up(at, g, r, "self_attention.linear_kv_up_proj.weight", "self_attn.kv_b_proj.weight");
  if (g->te) return;
  if (m->q_lora) vector(at, "self_attention.q_layernorm.weight", "self_attn.q_a_layernorm.weight");
  vector(at, "self_attention.kv_layernorm.weight", "self_attn.kv_a_layernorm.weight");
}

/* 7.5, 7.10; out_norm is stored minus 1: 7.8. */
static void linear(const oracle_place *at, const oracle_megatron *g, const ranks *r) {
  const oracle_model *m = at->model;
  const oracle_shard cut = {r->t, g->tp};
  int sections = ORACLE_Q | ORACLE_K | ORACLE_V | ORACLE_Z | ORACLE_B | ORACLE_A;
  oracle_window w = oracle_add(at, m->nv / g->tp, 0, "self_attention.dt_bias");
  oracle_rule_rows(at, w, oracle_hf(at, "linear_attn.dt_bias"), r->t);
  w = oracle_add(at, m->nv / g->tp, 0, "self_attention.A_log");
  oracle_rule_rows(at, w, oracle_hf(at, "linear_attn.A_log"), r->t);
  if (g->te) vector(at, "self_attention.in_proj.layer_norm_weight", "input_layernorm.weight");
  w = oracle_add(at, oracle_linear_rows(m, sections, g->tp), m->H, "self_attention.in_proj.weight");
  oracle_rule_linear(at, w, sections, cut);
  int64_t channels = oracle_linear_rows(m, ORACLE_Q | ORACLE_K | ORACLE_V, g->tp);
  oracle_rule_conv1d(at, oracle_add_conv(at, channels, m->K, "self_attention.conv1d.weight"), cut);
  vector(at, "self_attention.out_norm.weight", "linear_attn.norm.weight");
  oracle_last(at)->add = -1;
  w = oracle_add(at, m->H, m->nv * m->dv / g->tp, "self_attention.out_proj.weight");
  oracle_rule_columns(at, w, oracle_hf(at, "linear_attn.out_proj.weight"), r->t);
}

/* ---- MLP ------------------------------------------------------------------------------------- */

/* 7.1, 7.7 */
static void dense(const oracle_place *at, const oracle_megatron *g, const ranks *r) {
  const oracle_model *m = at->model;
  oracle_window w = oracle_add(at, 2 * m->I / g->tp, m->H, "mlp.linear_fc1.weight");
  oracle_rule_pair(at, w, oracle_hf(at, "mlp.gate_proj.weight"), oracle_hf(at, "mlp.up_proj.weight"), r->t);
  if (m->mlp_bias) {
    w = oracle_add(at, 2 * m->I / g->tp, 0, "mlp.linear_fc1.bias");
    oracle_rule_pair(at, w, oracle_hf(at, "mlp.gate_proj.bias"), oracle_hf(at, "mlp.up_proj.bias"), r->t);
  }
  w = oracle_add(at, m->H, m->I / g->tp, "mlp.linear_fc2.weight");
  oracle_rule_columns(at, w, oracle_hf(at, "mlp.down_proj.weight"), r->t);
  if (m->mlp_bias) vector(at, "mlp.linear_fc2.bias", "mlp.down_proj.bias");
  if (m->sandwich) vector(at, "mlp.linear_fc2.post_layernorm.weight", "post_feedforward_layernorm.weight");
}

/* One of an expert's four tensors into a window: 4.6, 4.9. */
enum { FC1_WEIGHT, FC1_BIAS, FC2_WEIGHT, FC2_BIAS };

static void expert(const oracle_place *at, const ranks *r, oracle_window w, int tensor, int64_t e) {
  if (tensor == FC1_WEIGHT)
    oracle_rule_pair(at, w, oracle_expert(at, e, ORACLE_GATE), oracle_expert(at, e, ORACLE_UP), r->et);
  if (tensor == FC1_BIAS)
    oracle_rule_pair(at, w, oracle_expert_bias(at, e, ORACLE_GATE), oracle_expert_bias(at, e, ORACLE_UP),
                     r->et);
  if (tensor == FC2_WEIGHT) oracle_rule_columns(at, w, oracle_expert(at, e, ORACLE_DOWN), r->et);
  if (tensor == FC2_BIAS) oracle_rule_whole(at, w, oracle_expert_bias(at, e, ORACLE_DOWN));
}

/* 6.1, 7.2, 7.10: E / EP experts of this rank, named by their local numbers. */
static void experts(const oracle_place *at, const oracle_megatron *g, const ranks *r) {
  const oracle_model *m = at->model;
  static const char *const names[] = {"linear_fc1.weight", "linear_fc1.bias", "linear_fc2.weight",
                                      "linear_fc2.bias"};
  const int64_t rows[] = {2 * m->Im / g->etp, 2 * m->Im / g->etp, m->H, m->H};
  const int64_t cols[] = {m->H, 0, m->Im / g->etp, 0};
  int64_t local = m->E / g->ep, first = r->e * local;
  int each = m->packed ? 1 : 2; /* with biases or without */
  for (int64_t i = 0; g->experts == 1 && i < local; i++) {
    for (int k = 0; k < 4; k += each) {
      oracle_window w =
          oracle_add(at, rows[k], cols[k], "mlp.experts.local_experts.%d.%s", (int)i, names[k]);
      expert(at, r, w, k, first + i);
    }
  }
  for (int fc = 0; g->experts == 0 && fc < 4; fc += 2) { /* weight0, bias0, weight1, ... */
    for (int64_t i = 0; i < local; i++) {
      for (int k = fc; k < fc + 2; k += each)
        expert(at, r, oracle_add(at, rows[k], cols[k], "mlp.experts.%s%d", names[k], (int)i), k, first + i);
    }
  }
  for (int k = 0; g->experts == 2 && k < 4; k += each) {
    oracle_window stack = oracle_add_stack(at, local, rows[k], cols[k], "mlp.experts.%s", names[k]);
    for (int64_t i = 0; i < local; i++) expert(at, r, oracle_step(stack, i), k, first + i);
  }
}

/* 4.6: the storage of the removed GroupedMLP. weight1 is called [H, experts * 2 Im / ETP] and is (experts, H,
 * 2 Im / ETP) in memory, each expert's matrix by columns; weight2 the same with [experts * Im / ETP, H]. */
static void legacy_experts(const oracle_place *at, const oracle_megatron *g, const ranks *r) {
  const oracle_model *m = at->model;
  int64_t local = m->E / g->ep, width = m->Im / g->etp;
  for (int tensor = FC1_WEIGHT; tensor <= FC2_WEIGHT; tensor += 2) {
    bool is_fc1 = tensor == FC1_WEIGHT;
    int64_t rows = is_fc1 ? 2 * width : m->H, cols = is_fc1 ? m->H : width;
    oracle_window all = is_fc1 ? oracle_add(at, m->H, local * rows, "mlp.experts.weight1")
                               : oracle_add(at, local * cols, m->H, "mlp.experts.weight2");
    for (int64_t i = 0; i < local; i++) {
      oracle_window w = all;
      w.first = i * rows * cols;
      w.rows = rows;
      w.cols = cols;
      w.row_step = 1;
      w.col_step = rows;
      expert(at, r, w, tensor, r->e * local + i);
    }
  }
}

/* 7.2: the router, routed experts cut by ETP, the shared expert by TP. */
static void moe(const oracle_place *at, const oracle_megatron *g, const ranks *r) {
  const oracle_model *m = at->model;
  const oracle_names *names = oracle_expert_names(m);
  oracle_rule_whole(at, oracle_add(at, m->E, m->H, "mlp.router.weight"),
                    oracle_hf(at, "%s.%s.weight", names->block, names->router));
  if (m->router_bias) vector(at, "mlp.router.bias", "mlp.router.bias");
  if (g->experts == 3) {
    legacy_experts(at, g, r);
  } else {
    experts(at, g, r);
  }
  if (m->shared_gate)
    oracle_rule_whole(at, oracle_add(at, 1, m->H, "mlp.shared_experts.gate_weight"),
                      oracle_hf(at, "mlp.shared_expert_gate.weight"));
  if (!m->Is) return;
  oracle_window w = oracle_add(at, 2 * m->Is / g->tp, m->H, "mlp.shared_experts.linear_fc1.weight");
  oracle_rule_pair(at, w, oracle_shared(at, ORACLE_GATE), oracle_shared(at, ORACLE_UP), r->t);
  w = oracle_add(at, m->H, m->Is / g->tp, "mlp.shared_experts.linear_fc2.weight");
  oracle_rule_columns(at, w, oracle_shared(at, ORACLE_DOWN), r->t);
}

/* ---- Layers ---------------------------------------------------------------------------------- */

/* Norms stand inside the projections of the TE spec, but for those of MLA and of experts; 7.1 to 7.3, 7.9. */
static void layer(const oracle_place *at, const oracle_megatron *g, const ranks *r) {
  const oracle_model *m = at->model;
  const char *before_mlp =
      m->sandwich ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight";
  if (!g->te || (m->mla && !g->mla_fused)) vector(at, "input_layernorm.weight", "input_layernorm.weight");
  if (m->linear[at->layer]) {
    linear(at, g, r);
  } else if (m->mla) {
    mla(at, g, r);
  } else {
    attention(at, g, r);
  }
  if (m->moe[at->layer]) {
    vector(at, "pre_mlp_layernorm.weight", before_mlp);
    moe(at, g, r);
  } else {
    vector(at, g->te ? "mlp.linear_fc1.layer_norm_weight" : "pre_mlp_layernorm.weight", before_mlp);
    dense(at, g, r);
  }
}

/* 7.4 */
static void mtp_layer(const oracle_place *outer, const oracle_megatron *g, const ranks *r, int64_t k) {
  const oracle_model *m = outer->model;
  int64_t l = m->L + k;
  oracle_place at = oracle_in(outer, m->next_mtp ? -1 : l, "mtp.layers.%d.", (int)k);
  vector(&at, "enorm.weight", m->next_mtp ? "mtp.pre_fc_norm_embedding.weight" : "enorm.weight");
  vector(&at, "hnorm.weight", m->next_mtp ? "mtp.pre_fc_norm_hidden.weight" : "hnorm.weight");
  oracle_window w = oracle_add(&at, m->H / g->tp, 2 * m->H, "eh_proj.weight");
  oracle_rule_rows(&at, w, oracle_hf(&at, m->next_mtp ? "mtp.fc.weight" : "eh_proj.weight"), r->t);
  oracle_place inner = oracle_in(outer, l, "mtp.layers.%d.transformer_layer.", (int)k);
  layer(&inner, g, r);
  vector(&at, "final_layernorm.weight", m->next_mtp ? "mtp.norm.weight" : "shared_head.norm.weight");
}

static void vocabulary(const oracle_place *at, const oracle_megatron *g, const ranks *r, const char *name,
                       const char *hf) {
  oracle_rule_vocabulary(at, oracle_add(at, g->padded / g->tp, at->model->H, "%s", name),
                         oracle_hf(at, "%s", hf), r->t);
}

/* Persistent buffers come behind all parameters of a chunk; 7.2, 7.9. */
static void buffer(const oracle_place *at) {
  if (at->model->correction_bias && at->model->moe[at->layer])
    vector(at, "mlp.router.expert_bias", "mlp.gate.e_score_correction_bias");
}

/* One chunk; what stands outside layers: 2.3. */
static void chunk(const oracle_place *at, const oracle_megatron *g, const ranks *r) {
  const oracle_model *m = at->model;
  const oracle_stages *stages = &g->stages;
  int64_t v = at->chunk;
  bool has_mtp = m->mtp > 0 && stages->mtp_p == r->p && stages->mtp_v == v;
  bool is_first = r->p == 0 && v == 0, is_last = r->p == g->pp - 1 && v == stages->vpp - 1;
  bool has_end = stages->p[m->L - 1] == r->p && stages->v[m->L - 1] == v; /* the last decoder layer */
  if (is_first || has_mtp)
    vocabulary(at, g, r, "embedding.word_embeddings.weight", "model.embed_tokens.weight");
  int local = 0;
  for (int64_t l = 0; l < m->L; l++) {
    if (stages->p[l] != r->p || stages->v[l] != v) continue;
    oracle_place in = oracle_in(at, l, "decoder.layers.%d.", local++);
    layer(&in, g, r);
  }
  if (m->mtp > 0 ? has_end : is_last) vector(at, "decoder.final_layernorm.weight", "model.norm.weight");
  for (int64_t k = 0; has_mtp && k < m->mtp; k++) mtp_layer(at, g, r, k);
  if (is_last && !(m->tied && g->pp == 1)) vocabulary(at, g, r, "output_layer.weight", "lm_head.weight");
  local = 0;
  for (int64_t l = 0; l < m->L; l++) {
    if (stages->p[l] != r->p || stages->v[l] != v) continue;
    oracle_place in = oracle_in(at, l, "decoder.layers.%d.", local++);
    buffer(&in);
  }
  for (int64_t k = 0; has_mtp && k < m->mtp; k++) {
    oracle_place in = oracle_in(at, m->L + k, "mtp.layers.%d.transformer_layer.", (int)k);
    buffer(&in);
  }
}

/* ---- Grids ----------------------------------------------------------------------------------- */

/* Sizes by the words of the order; the expert grid has etp and edp where the dense one has tp and dp, and no
 * cp. 1.1 */
static int64_t size_of(const oracle_megatron *g, const char *word, bool of_experts) {
  if (strncmp(word, "tp", 2) == 0) return of_experts ? g->etp : g->tp;
  if (strncmp(word, "cp", 2) == 0) return of_experts ? 1 : g->cp;
  if (strncmp(word, "ep", 2) == 0) return of_experts ? g->ep : 1;
  if (strncmp(word, "dp", 2) == 0) return of_experts ? g->edp : g->dp;
  return g->pp;
}

/* The index of rank r in the dimension of a word; 0 where the order does not name it. */
static int64_t index_of(const oracle_megatron *g, int64_t r, const char *wanted, bool of_experts) {
  int64_t stride = 1;
  for (const char *word = g->order; *word; word += word[2] ? 3 : 2) {
    int64_t size = size_of(g, word, of_experts);
    if (strncmp(word, wanted, 2) == 0) return r / stride % size;
    stride *= size;
  }
  return 0;
}

void oracle_megatron_rank(oracle_layout *layout, const oracle_megatron *g, int64_t r) {
  oracle_rank *rank = &layout->rank[r];
  const ranks own = {index_of(g, r, "tp", false), index_of(g, r, "pp", false), index_of(g, r, "ep", true),
                     index_of(g, r, "tp", true)};
  oracle_coordinate(rank, "tp", own.t);
  oracle_coordinate(rank, "cp", index_of(g, r, "cp", false));
  oracle_coordinate(rank, "dp", index_of(g, r, "dp", false));
  oracle_coordinate(rank, "pp", own.p);
  oracle_coordinate(rank, "ep", own.e);
  oracle_coordinate(rank, "etp", own.et);
  oracle_coordinate(rank, "edp", index_of(g, r, "dp", true));
  for (int64_t v = 0; v < g->stages.vpp; v++) {
    const oracle_place at = {.model = layout->model, .rank = rank, .chunk = (int)v, .layer = -1};
    chunk(&at, g, &own);
  }
}

/* 1.1: known words, each once, every size above 1 named; the pipeline groups of both grids the same. */
static bool check_order(const oracle_layout *layout, const oracle_megatron *g, char *why) {
  static const char *const words[] = {"tp", "cp", "ep", "dp", "pp"};
  int seen[5] = {0};
  size_t length = strlen(g->order);
  for (size_t i = 0; i < length; i += 3) {
    int known = -1;
    for (int k = 0; k < 5; k++) {
      if (strncmp(g->order + i, words[k], 2) == 0) known = k;
    }
    if (known < 0 || seen[known]++ || (i + 2 < length && g->order[i + 2] != '-') || i + 3 == length)
      return oracle_refuse(why, "order=%s", g->order);
  }
  for (int k = 0; k < 5; k++) {
    if (!seen[k] && (size_of(g, words[k], false) > 1 || size_of(g, words[k], true) > 1))
      return oracle_refuse(why, "order=%s lacks %s", g->order, words[k]);
  }
  if (g->pp == 1 || (length > 1 && strcmp(g->order + length - 2, "pp") == 0)) return true;
  if (g->edp != g->dp)
    return oracle_refuse(why, "order=%s does not end in pp, and dp %lld is not edp %lld", g->order,
                         (long long)g->dp, (long long)g->edp);
  /* Two ranks are in one dense pipeline group when all but pp is the same; so it must be among experts. */
  for (int64_t a = 0; a < layout->ranks; a++) {
    for (int64_t b = 0; b < a; b++) {
      bool dense_group = true, expert_group = true;
      for (int k = 0; k < 4; k++) {
        dense_group &= index_of(g, a, words[k], false) == index_of(g, b, words[k], false);
        expert_group &= index_of(g, a, words[k], true) == index_of(g, b, words[k], true);
      }
      if (dense_group != expert_group)
        return oracle_refuse(why, "order=%s: the pipeline groups of dense and expert grid differ",
                             g->order);
    }
  }
  return true;
}

/* ---- Options --------------------------------------------------------------------------------- */

static bool read_sizes(const oracle_layout *layout, oracle_options *options, oracle_megatron *g,
                       char *why) {
  int64_t dp, edp_ranks;
  if (!oracle_option_number(options, "tp", 1, &g->tp, why) ||
      !oracle_option_number(options, "cp", 1, &g->cp, why) ||
      !oracle_option_number(options, "dp", 0, &dp, why) ||
      !oracle_option_number(options, "etp", g->tp, &g->etp, why))
    return false;
  const char *ep = oracle_option_text(options, "ep");
  g->ep = 1;
  if (ep && strcmp(ep, "off") != 0 && !oracle_option_number(options, "ep", 1, &g->ep, why)) return false;
  int64_t dense_ranks = g->tp * g->cp * g->pp;
  edp_ranks = g->etp * g->ep * g->pp;
  if (layout->ranks % dense_ranks != 0 || (dp && dp * dense_ranks != layout->ranks))
    return oracle_refuse(why, "%lld ranks, and tp * cp * pp is %lld", (long long)layout->ranks,
                         (long long)dense_ranks);
  if (layout->ranks % edp_ranks != 0)
    return oracle_refuse(why, "%lld ranks, and etp * ep * pp is %lld", (long long)layout->ranks,
                         (long long)edp_ranks);
  g->dp = layout->ranks / dense_ranks;
  g->edp = layout->ranks / edp_ranks;
  return true;
}

/* 4.1, 4.3, 4.7, 6.1, 7.5, 4.9, 7.3 */
static bool check_cuts(const oracle_model *m, const oracle_megatron *g, char *why) {
  int64_t rows = m->nh * oracle_q_width(m) + 2 * m->ng * m->hd;
  if (!oracle_divides(m->nh, g->tp, "heads", why) || !oracle_check_attention(m, g->tp, why) ||
      (!m->mla && oracle_any(m, m->linear, false) && !oracle_divides(rows, g->tp, "rows of QKV", why)))
    return false;
  if (oracle_any(m, m->moe, false) && !oracle_divides(m->I, g->tp, "rows of the MLP", why)) return false;
  if (m->mtp && !oracle_divides(m->H, g->tp, "rows of eh_proj", why)) return false;
  if (oracle_any(m, m->linear, true) && (!oracle_divides(m->nk, g->tp * g->cp, "linear key heads", why) ||
                                         !oracle_divides(m->nv, g->tp * g->cp, "linear value heads", why)))
    return false;
  if (m->mla && (!g->te || g->mla_fused) &&
      (!oracle_divides(m->kv_lora + m->rope, g->tp, "rows of kv_a", why) ||
       !oracle_divides(m->q_lora, g->tp, "rows of q_a", why)))
    return false;
  if (!m->E)
    return (g->ep == 1 && g->etp == g->tp) || oracle_refuse(why, "ep or etp, and the model has no experts");
  if (m->packed && g->experts == 3) return oracle_refuse(why, "legacy experts have no biases");
  if (m->packed && g->etp > 1) return oracle_refuse(why, "biases of experts need etp 1");
  return oracle_divides(m->E, g->ep, "experts", why) &&
         oracle_divides(m->Im, g->etp, "rows of experts", why) &&
         oracle_divides(m->Is, g->tp, "rows of the shared expert", why);
}

bool oracle_megatron_read(const oracle_layout *layout, oracle_options *options, oracle_megatron *g,
                          char *why) {
  const oracle_model *m = layout->model;
  static const char *const specs[] = {"te", "local", NULL};
  static const char *const forms[] = {"grouped", "sequential", "stacked", "legacy", NULL};
  int64_t multiple, padded;
  int spec;
  if (!oracle_stages_megatron(m->L, m->mtp, options, &g->stages, why)) return false;
  g->pp = g->stages.pp;
  if (!read_sizes(layout, options, g, why) ||
      !oracle_option_number(options, "vocab_divisible_by", 128, &multiple, why) ||
      !oracle_option_number(options, "padded_vocab_size", 0, &padded, why) ||
      !oracle_option_word(options, "spec", specs, &spec, why) ||
      !oracle_option_switch(options, "mla_down_proj_fusion", &g->mla_fused, why))
    return false;
  g->te = spec == 0;
  if (g->mla_fused && !m->mla) return oracle_refuse(why, "mla_down_proj_fusion, and the model has no MLA");
  g->mla_fused &=
      g->te && m->q_lora > 0; /* the local spec does not look at it; nothing to fuse without q_a */
  bool has_form = oracle_option_text(options, "experts") != NULL;
  if (!oracle_option_word(options, "experts", forms, &g->experts, why)) return false;
  if (!has_form && !g->te) g->experts = 1;
  const char *order = oracle_option_text(options, "order");
  if (order && strlen(order) >= sizeof g->order) return oracle_refuse(why, "order=%s", order);
  strcpy(g->order, order ? order : "tp-cp-ep-dp-pp");
  g->padded = padded ? padded : oracle_round_up(m->V, multiple * g->tp);
  if (g->padded < m->V || g->padded % g->tp != 0)
    return oracle_refuse(why, "padded_vocab_size %lld, vocabulary %lld", (long long)g->padded,
                         (long long)m->V);
  return check_order(layout, g, why) && check_cuts(m, g, why);
}

bool oracle_build_megatron(oracle_layout *layout, oracle_options *options, char *why) {
  oracle_megatron grid = {0};
  bool good = oracle_megatron_read(layout, options, &grid, why) && oracle_options_end(options, why);
  for (int64_t r = 0; good && r < layout->ranks; r++) oracle_megatron_rank(layout, &grid, r);
  oracle_stages_free(&grid.stages);
  return good;
}
