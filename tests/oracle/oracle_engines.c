/* The tensors of vLLM and SGLang: attention, MLP, experts, by rules 8 and 9. In which order and on which stage
 * they come is said in oracle_vllm.c and oracle_sglang.c. */
#include "oracle/oracle_engines.h"

#include <stdio.h>
#include <string.h>

void oracle_engine_vector(const oracle_place *at, const char *name, const char *hf) {
  oracle_matrix from = oracle_hf(at, "%s", hf);
  oracle_rule_whole(at, oracle_add(at, from.rows, 0, "%s", name), from);
}

static void same_vector(const oracle_place *at, const char *name) { oracle_engine_vector(at, name, name); }

/* ---- Attention ------------------------------------------------------------------------------- */

void oracle_engine_qk_norms(const oracle_place *at, const char *self_attn) {
  char name[ORACLE_NAME];
  if (!at->model->qk_norm) return;
  snprintf(name, sizeof name, "%sq_norm.weight", self_attn);
  oracle_engine_vector(at, name, "self_attn.q_norm.weight");
  snprintf(name, sizeof name, "%sk_norm.weight", self_attn);
  oracle_engine_vector(at, name, "self_attn.k_norm.weight");
}

/* 4.4. self_attn: what stands before the names, "self_attn." mostly. */
static void qkv_proj(const oracle_place *at, const oracle_engine *e, const char *self_attn) {
  const oracle_model *m = at->model;
  const oracle_shard cut = e->attention;
  int64_t rows = m->nh / cut.tp * oracle_q_width(m) + 2 * oracle_kv_heads(m, cut.tp) * m->hd;
  oracle_window w = oracle_add(at, rows, m->H, "%sqkv_proj.weight", self_attn);
  oracle_rule_e_qkv(at, w, oracle_hf(at, "self_attn.q_proj.weight"),
                    oracle_hf(at, "self_attn.k_proj.weight"), oracle_hf(at, "self_attn.v_proj.weight"),
                    cut);
  if (m->qkv_bias) {
    w = oracle_add(at, rows, 0, "%sqkv_proj.bias", self_attn);
    oracle_rule_e_qkv(at, w, oracle_hf(at, "self_attn.q_proj.bias"), oracle_hf(at, "self_attn.k_proj.bias"),
                      oracle_hf(at, "self_attn.v_proj.bias"), cut);
  }
}

static void o_proj(const oracle_place *at, const oracle_engine *e, const char *self_attn) {
  const oracle_model *m = at->model;
  const oracle_shard cut = e->attention;
  oracle_window w = oracle_add(at, m->H, m->nh * m->hd / cut.tp, "%so_proj.weight", self_attn);
  oracle_rule_columns(at, w, oracle_hf(at, "self_attn.o_proj.weight"), cut.t);
  if (m->o_bias) {
    char name[ORACLE_NAME];
    snprintf(name, sizeof name, "%so_proj.bias", self_attn);
    oracle_engine_vector(at, name, "self_attn.o_proj.bias");
  }
}

/* qkv_proj, o_proj, sinks: 4.4, 4.1. */
void oracle_engine_attention(const oracle_place *at, const oracle_engine *e, const char *self_attn) {
  const oracle_model *m = at->model;
  if (m->sinks) {
    oracle_window w = oracle_add(at, m->nh / e->attention.tp, 0, "%ssinks", self_attn);
    oracle_rule_rows(at, w, oracle_hf(at, "self_attn.sinks"), e->attention.t);
  }
  qkv_proj(at, e, self_attn);
  o_proj(at, e, self_attn);
}

static void mla_cut(const oracle_place *at, const oracle_engine *e, const char *name) {
  oracle_matrix from = oracle_hf(at, "%s", name);
  oracle_rule_rows(at, oracle_add(at, from.rows / e->attention.tp, from.cols, "%s", name), from,
                   e->attention.t);
}

static void mla_whole(const oracle_place *at, const char *name) {
  oracle_matrix from = oracle_hf(at, "%s", name);
  oracle_rule_whole(at, oracle_add(at, from.rows, from.cols, "%s", name), from);
}

/* 4.7: q_a above kv_a in one replicated tensor. The engines differ in the order of the rest. */
void oracle_engine_mla(const oracle_place *at, const oracle_engine *e) {
  const oracle_model *m = at->model;
  if (m->q_lora) {
    oracle_window w = oracle_add(at, m->q_lora + m->kv_lora + m->rope, m->H,
                                 "self_attn.fused_qkv_a_proj%s.weight", e->sglang ? "_with_mqa" : "");
    oracle_rule_pair(at, w, oracle_hf(at, "self_attn.q_a_proj.weight"),
                     oracle_hf(at, "self_attn.kv_a_proj_with_mqa.weight"), 0);
    same_vector(at, "self_attn.q_a_layernorm.weight");
    mla_cut(at, e, "self_attn.q_b_proj.weight");
  } else if (e->sglang) {
    mla_cut(at, e, "self_attn.q_proj.weight");
    mla_whole(at, "self_attn.kv_a_proj_with_mqa.weight");
  } else {
    mla_whole(at, "self_attn.kv_a_proj_with_mqa.weight");
    mla_cut(at, e, "self_attn.q_proj.weight");
  }
  if (!e->sglang) same_vector(at, "self_attn.kv_a_layernorm.weight");
  mla_cut(at, e, "self_attn.kv_b_proj.weight");
  oracle_window w = oracle_add(at, m->H, m->nh * m->vd / e->attention.tp, "self_attn.o_proj.weight");
  oracle_rule_columns(at, w, oracle_hf(at, "self_attn.o_proj.weight"), e->attention.t);
  if (e->sglang) same_vector(at, "self_attn.kv_a_layernorm.weight");
}

void oracle_engine_derived(const oracle_place *at, const oracle_engine *e) {
  const oracle_model *m = at->model;
  oracle_matrix kv_b = oracle_hf(at, "self_attn.kv_b_proj.weight");
  int64_t heads = m->nh / e->attention.tp;
  const char *uk = e->sglang ? "self_attn.w_kc" : "self_attn.mla_attn.mla_attn.W_UK_T";
  const char *uv = e->sglang ? "self_attn.w_vc" : "self_attn.mla_attn.mla_attn.W_UV";
  oracle_rule_w_uk(at, oracle_add_stack(at, heads, m->nope, m->kv_lora, "%s", uk), heads, kv_b,
                   e->attention.t);
  oracle_last(at)->derived = true;
  oracle_rule_w_uv(at, oracle_add_stack(at, heads, m->kv_lora, m->vd, "%s", uv), heads, kv_b,
                   e->attention.t);
  oracle_last(at)->derived = true;
}

/* Rows of a tensor and its bias; a bias of what is cut by columns is whole. */
static void module(const oracle_place *at, const char *name, oracle_shard cut, bool by_rows) {
  oracle_matrix from = oracle_hf(at, "%s.weight", name);
  if (by_rows) {
    oracle_rule_rows(at, oracle_add(at, from.rows / cut.tp, from.cols, "%s.weight", name), from, cut.t);
  } else {
    oracle_rule_columns(at, oracle_add(at, from.rows, from.cols / cut.tp, "%s.weight", name), from, cut.t);
  }
  oracle_matrix bias = oracle_hf_or_zeros(at, from.rows, 0, "%s.bias", name);
  if (bias.tensor == ORACLE_PADDING) return;
  int64_t parts = by_rows ? cut.tp : 1;
  oracle_rule_rows(at, oracle_add(at, bias.rows / parts, 0, "%s.bias", name), bias, by_rows ? cut.t : 0);
}

void oracle_engine_modules(const oracle_place *at, const oracle_engine *e) {
  static const char *const rows[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  for (int i = 0; i < 3; i++) module(at, rows[i], e->attention, true);
  module(at, "self_attn.o_proj", e->attention, false);
  module(at, "mlp.gate_proj", e->dense, true);
  module(at, "mlp.up_proj", e->dense, true);
  module(at, "mlp.down_proj", e->dense, false);
}

static void sections(const oracle_place *at, const oracle_engine *e, const char *name, int which) {
  const oracle_model *m = at->model;
  oracle_window w =
      oracle_add(at, oracle_linear_rows(m, which, e->attention.tp), m->H, "linear_attn.%s.weight", name);
  oracle_rule_linear(at, w, which, e->attention);
}

/* 4.8: Qwen3-Next keeps the file's blocks of key heads, which a plain cut by rows does not part; Qwen3.5 has
 * sections, fused to two tensors (in SGLang 0.5.23 as well; older forks have four). */
void oracle_engine_linear(const oracle_place *at, const oracle_engine *e) {
  const oracle_model *m = at->model;
  const oracle_shard cut = e->attention;
  static const char *const plain[] = {"in_proj_qkvz", "in_proj_ba"};
  oracle_window w = oracle_add(at, m->nv / cut.tp, 0, "linear_attn.dt_bias");
  oracle_rule_rows(at, w, oracle_hf(at, "linear_attn.dt_bias"), cut.t);
  w = oracle_add(at, m->nv / cut.tp, 0, "linear_attn.A_log");
  oracle_rule_rows(at, w, oracle_hf(at, "linear_attn.A_log"), cut.t);
  int64_t channels = oracle_linear_rows(m, ORACLE_Q | ORACLE_K | ORACLE_V, cut.tp);
  oracle_rule_conv1d(at, oracle_add_conv(at, channels, m->K, "linear_attn.conv1d.weight"), cut);
  for (int i = 0; i < 2 && !m->split_in_proj; i++) {
    oracle_matrix from = oracle_hf(at, "linear_attn.%s.weight", plain[i]);
    w = oracle_add(at, from.rows / cut.tp, m->H, "linear_attn.%s.weight", plain[i]);
    oracle_rule_rows(at, w, from, cut.t);
  }
  if (m->split_in_proj) {
    sections(at, e, "in_proj_qkvz", ORACLE_Q | ORACLE_K | ORACLE_V | ORACLE_Z);
    sections(at, e, "in_proj_ba", ORACLE_B | ORACLE_A);
  }
  same_vector(at, "linear_attn.norm.weight");
  w = oracle_add(at, m->H, m->nv * m->dv / cut.tp, "linear_attn.out_proj.weight");
  oracle_rule_columns(at, w, oracle_hf(at, "linear_attn.out_proj.weight"), cut.t);
}

/* ---- MLP ------------------------------------------------------------------------------------- */

/* 4.5 */
static void gate_up_proj(const oracle_place *at, const oracle_engine *e) {
  const oracle_model *m = at->model;
  const oracle_shard cut = e->dense;
  oracle_window w = oracle_add(at, 2 * m->I / cut.tp, m->H, "mlp.gate_up_proj.weight");
  oracle_rule_pair(at, w, oracle_hf(at, "mlp.gate_proj.weight"), oracle_hf(at, "mlp.up_proj.weight"),
                   cut.t);
  if (m->mlp_bias) {
    w = oracle_add(at, 2 * m->I / cut.tp, 0, "mlp.gate_up_proj.bias");
    oracle_rule_pair(at, w, oracle_hf(at, "mlp.gate_proj.bias"), oracle_hf(at, "mlp.up_proj.bias"), cut.t);
  }
}

static void down_proj(const oracle_place *at, const oracle_engine *e) {
  const oracle_model *m = at->model;
  oracle_window w = oracle_add(at, m->H, m->I / e->dense.tp, "mlp.down_proj.weight");
  oracle_rule_columns(at, w, oracle_hf(at, "mlp.down_proj.weight"), e->dense.t);
  if (m->mlp_bias) same_vector(at, "mlp.down_proj.bias");
}

void oracle_engine_dense(const oracle_place *at, const oracle_engine *e) {
  gate_up_proj(at, e);
  down_proj(at, e);
}

/* What vLLM fuses comes behind what it leaves alone. */
void oracle_engine_fused_modules(const oracle_place *at, const oracle_engine *e) {
  o_proj(at, e, "self_attn.");
  qkv_proj(at, e, "self_attn.");
  down_proj(at, e);
  gate_up_proj(at, e);
}

void oracle_engine_router(const oracle_place *at) {
  const oracle_model *m = at->model;
  const oracle_names *n = oracle_expert_names(m);
  oracle_rule_whole(at, oracle_add(at, m->E, m->H, "%s.%s.weight", n->block, n->router),
                    oracle_hf_or_zeros(at, m->E, m->H, "%s.%s.weight", n->block, n->router));
  if (m->router_bias) same_vector(at, "mlp.router.bias");
  if (m->correction_bias) same_vector(at, "mlp.gate.e_score_correction_bias");
}

void oracle_engine_shared(const oracle_place *at, const oracle_engine *e) {
  const oracle_model *m = at->model;
  const char *name = oracle_expert_names(m)->shared;
  if (!m->Is || e->fused) return;
  oracle_window w = oracle_add(at, 2 * m->Is / e->shared.tp, m->H, "mlp.%s.gate_up_proj.weight", name);
  oracle_rule_pair(at, w, oracle_shared(at, ORACLE_GATE), oracle_shared(at, ORACLE_UP), e->shared.t);
  w = oracle_add(at, m->H, m->Is / e->shared.tp, "mlp.%s.down_proj.weight", name);
  oracle_rule_columns(at, w, oracle_shared(at, ORACLE_DOWN), e->shared.t);
}

void oracle_engine_shared_gate(const oracle_place *at) {
  const oracle_model *m = at->model;
  if (m->shared_gate)
    oracle_rule_whole(at, oracle_add(at, 1, m->H, "mlp.shared_expert_gate.weight"),
                      oracle_hf_or_zeros(at, 1, m->H, "mlp.shared_expert_gate.weight"));
}

/* w13: gate above up, in gpt-oss in turn; 4.5, 4.9. */
static void first_half(const oracle_place *at, oracle_window w, oracle_matrix gate, oracle_matrix up,
                       int64_t t) {
  if (at->model->packed) {
    oracle_rule_interleaved(at, w, gate, up, t);
  } else {
    oracle_rule_pair(at, w, gate, up, t);
  }
}

/* [slots, 2 Im / mtp, H] and [slots, H, Im / mtp], or each matrix by columns; 4.6. */
static void expert_weights(const oracle_place *at, const oracle_engine *e, const char *name, bool is_w13) {
  const oracle_model *m = at->model;
  const oracle_shard cut = e->moe;
  int64_t slots = oracle_slots_count(e->slots, e->ep_rank), inner = m->Im / cut.tp;
  int64_t rows = is_w13 ? 2 * inner : m->H, cols = is_w13 ? m->H : inner;
  oracle_window stack = oracle_add_stack(at, slots + e->fused, e->transposed ? cols : rows,
                                         e->transposed ? rows : cols, "%s", name);
  for (int64_t i = 0; i < slots + e->fused; i++) {
    bool is_shared = i == slots; /* 6.3: expert number E is the shared one */
    int64_t expert = is_shared ? 0 : oracle_slots_expert(m, e->slots, at->layer, e->ep_rank, i);
    oracle_matrix part[3];
    for (int k = 0; k < 3; k++)
      part[k] = is_shared ? oracle_shared(at, (oracle_part)k) : oracle_expert(at, expert, (oracle_part)k);
    oracle_window w = oracle_step(stack, i);
    if (e->transposed) w = oracle_transposed(w);
    if (is_w13) {
      first_half(at, w, part[ORACLE_GATE], part[ORACLE_UP], cut.t);
    } else {
      oracle_rule_columns(at, w, part[ORACLE_DOWN], cut.t);
    }
  }
}

/* gpt-oss: the bias of w2 is on MoE tp rank 0, zero elsewhere; 4.9. */
static void expert_biases(const oracle_place *at, const oracle_engine *e, const char *name, bool is_w13) {
  const oracle_model *m = at->model;
  const oracle_shard cut = e->moe;
  int64_t slots = oracle_slots_count(e->slots, e->ep_rank);
  oracle_window stack = oracle_add_stack(at, slots, is_w13 ? 2 * m->Im / cut.tp : m->H, 0, "%s", name);
  for (int64_t i = 0; i < slots; i++) {
    int64_t expert = oracle_slots_expert(m, e->slots, at->layer, e->ep_rank, i);
    oracle_window w = oracle_step(stack, i);
    if (is_w13) {
      oracle_rule_interleaved(at, w, oracle_expert_bias(at, expert, ORACLE_GATE),
                              oracle_expert_bias(at, expert, ORACLE_UP), cut.t);
    } else if (cut.t == 0) {
      oracle_rule_whole(at, w, oracle_expert_bias(at, expert, ORACLE_DOWN));
    } else {
      oracle_rule_zeros(at, w);
    }
  }
}

void oracle_engine_experts(const oracle_place *at, const oracle_engine *e) {
  const oracle_model *m = at->model;
  const char *level = e->sglang || e->old_names ? "" : "routed_experts.";
  const char *bias = e->sglang ? "_weight_bias" : "_bias";
  for (int half = 0; half < 2; half++) {
    char name[ORACLE_NAME];
    const char *matrix = half ? "w2" : "w13", *block = oracle_expert_names(m)->block;
    snprintf(name, sizeof name, "%s.experts.%s%s_weight", block, level, matrix);
    expert_weights(at, e, name, half == 0);
    snprintf(name, sizeof name, "%s.experts.%s%s%s", block, level, matrix, bias);
    if (m->packed) expert_biases(at, e, name, half == 0);
  }
}

void oracle_engine_experts_apart(const oracle_place *at, const oracle_engine *e) {
  const oracle_model *m = at->model;
  const oracle_shard cut = e->full;
  for (int64_t i = 0; i < m->E; i++) {
    oracle_window w =
        oracle_add(at, 2 * m->Im / cut.tp, m->H, "mlp.experts.%d.gate_up_proj.weight", (int)i);
    oracle_rule_pair(at, w, oracle_expert(at, i, ORACLE_GATE), oracle_expert(at, i, ORACLE_UP), cut.t);
    w = oracle_add(at, m->H, m->Im / cut.tp, "mlp.experts.%d.down_proj.weight", (int)i);
    oracle_rule_columns(at, w, oracle_expert(at, i, ORACLE_DOWN), cut.t);
  }
}

/* ---- The rest -------------------------------------------------------------------------------- */

void oracle_engine_norms(const oracle_place *at) {
  same_vector(at, "input_layernorm.weight");
  same_vector(at, "post_attention_layernorm.weight");
  if (!at->model->sandwich) return;
  same_vector(at, "pre_feedforward_layernorm.weight");
  same_vector(at, "post_feedforward_layernorm.weight");
}

static void vocabulary(const oracle_place *at, const char *name, const char *hf, int64_t rows,
                       oracle_shard cut) {
  oracle_place outside = *at;
  outside.layer = -1;
  oracle_rule_vocabulary(at, oracle_add(at, rows / cut.tp, at->model->H, "%s", name),
                         oracle_hf(&outside, "%s", hf), cut.t);
}

void oracle_engine_embedding(const oracle_place *at, const oracle_engine *e, const char *name) {
  vocabulary(at, name, "model.embed_tokens.weight", e->embedding_rows, e->embedding);
}

void oracle_engine_head(const oracle_place *at, const oracle_engine *e, const char *name) {
  vocabulary(at, name, "lm_head.weight", e->head_rows, e->head);
}

int64_t oracle_physical_rank(int64_t i, int64_t tp, int64_t strides) {
  int64_t g = i / tp, t = i % tp;
  return g / strides * (strides * tp) + g % strides + strides * t;
}

bool oracle_check_ranks(const oracle_layout *layout, int64_t engine, int64_t tp, int64_t strides,
                        char *why) {
  if (layout->ranks % engine != 0)
    return oracle_refuse(why, "%lld ranks, and one engine takes %lld", (long long)layout->ranks,
                         (long long)engine);
  if (strides < 1 || layout->ranks % (strides * tp) != 0)
    return oracle_refuse(why, "%lld ranks, tp %lld, stride %lld", (long long)layout->ranks, (long long)tp,
                         (long long)strides);
  return true;
}

bool oracle_check_engine(const oracle_model *m, int64_t attention, int64_t dense, int64_t shared,
                         int64_t moe, bool all_moe, char *why) {
  bool has_dense = !all_moe && oracle_any(m, m->moe, false),
       has_moe = all_moe || oracle_any(m, m->moe, true);
  return oracle_check_attention(m, attention, why) &&
         (!has_dense || oracle_divides(m->I, dense, "rows of the MLP", why)) &&
         (!has_moe || oracle_divides(m->Im, moe, "rows of experts", why)) &&
         (!has_moe || oracle_divides(m->Is, shared, "rows of the shared expert", why));
}
