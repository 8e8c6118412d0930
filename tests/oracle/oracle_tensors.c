/* The canonical tensors of a model, by Hugging Face's names: rules 5. They stand in the order in which
 * transformers' modules register them (a module's own parameters, then those of its children; rules 10.1, run
 * for Llama, Qwen2, Qwen3 and Mixtral, read for the others), experts one by one. */
#include "oracle/oracle_parts.h"

#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>

/* cols and depth 0: a tensor of fewer dimensions. */
static void add(oracle_model *model, int64_t l, const char *name, int64_t rows, int64_t cols,
                int64_t depth) {
  if (model->tensor_count == model->tensor_room) {
    model->tensor_room = model->tensor_room ? 2 * model->tensor_room : 64;
    model->tensors = realloc(model->tensors, (size_t)model->tensor_room * sizeof *model->tensors);
    if (!model->tensors) abort();
  }
  oracle_tensor *tensor = &model->tensors[model->tensor_count++];
  *tensor = (oracle_tensor){.layer = (int32_t)l, .ndim = depth ? 3 : cols ? 2 : 1, .first = model->elems};
  oracle_layer_name(model, l, name, tensor->name);
  tensor->shape[0] = rows;
  tensor->shape[1] = cols ? cols : 1;
  tensor->shape[2] = depth ? depth : 1;
  tensor->elems = rows * tensor->shape[1] * tensor->shape[2];
  for (const char *c = tensor->name; *c; c++) tensor->hash = treadle_hash_more(tensor->hash, (uint64_t)*c);
  model->elems += tensor->elems;
}

void oracle_tensor_add(oracle_model *model, const char *name, int64_t rows, int64_t cols) {
  add(model, -1, name, rows, cols, 0);
}

static void add_with_bias(oracle_model *m, int64_t l, const char *name, int64_t rows, int64_t cols,
                          bool bias) {
  char full[ORACLE_NAME];
  snprintf(full, sizeof full, "%s.weight", name);
  add(m, l, full, rows, cols, 0);
  snprintf(full, sizeof full, "%s.bias", name);
  if (bias) add(m, l, full, rows, 0, 0);
}

/* 5.1; 5.2 for sinks; a gated q_proj (4.2) has two rows for one. */
static void add_attention(oracle_model *m, int64_t l) {
  int64_t q_rows = m->nh * m->hd * (m->gated ? 2 : 1);
  if (m->sinks) add(m, l, "self_attn.sinks", m->nh, 0, 0);
  add_with_bias(m, l, "self_attn.q_proj", q_rows, m->H, m->qkv_bias);
  add_with_bias(m, l, "self_attn.k_proj", m->ng * m->hd, m->H, m->qkv_bias);
  add_with_bias(m, l, "self_attn.v_proj", m->ng * m->hd, m->H, m->qkv_bias);
  add_with_bias(m, l, "self_attn.o_proj", m->H, m->nh * m->hd, m->o_bias);
  if (m->qk_norm) {
    add(m, l, "self_attn.q_norm.weight", m->hd, 0, 0);
    add(m, l, "self_attn.k_norm.weight", m->hd, 0, 0);
  }
}

/* 5.3 */
static void add_mla(oracle_model *m, int64_t l) {
  if (m->q_lora) {
    add(m, l, "self_attn.q_a_proj.weight", m->q_lora, m->H, 0);
    add(m, l, "self_attn.q_a_layernorm.weight", m->q_lora, 0, 0);
    add(m, l, "self_attn.q_b_proj.weight", m->nh * (m->nope + m->rope), m->q_lora, 0);
  } else {
    add(m, l, "self_attn.q_proj.weight", m->nh * (m->nope + m->rope), m->H, 0);
  }
  add(m, l, "self_attn.kv_a_proj_with_mqa.weight", m->kv_lora + m->rope, m->H, 0);
  add(m, l, "self_attn.kv_a_layernorm.weight", m->kv_lora, 0, 0);
  add(m, l, "self_attn.kv_b_proj.weight", m->nh * (m->nope + m->vd), m->kv_lora, 0);
  add(m, l, "self_attn.o_proj.weight", m->H, m->nh * m->vd, 0);
}

/* 4.8 */
static void add_linear(oracle_model *m, int64_t l) {
  int64_t keys = m->nk * m->dk, values = m->nv * m->dv;
  add(m, l, "linear_attn.dt_bias", m->nv, 0, 0);
  add(m, l, "linear_attn.A_log", m->nv, 0, 0);
  add(m, l, "linear_attn.conv1d.weight", 2 * keys + values, 1, m->K);
  if (!m->split_in_proj) {
    add(m, l, "linear_attn.in_proj_qkvz.weight", 2 * keys + 2 * values, m->H, 0);
    add(m, l, "linear_attn.in_proj_ba.weight", 2 * m->nv, m->H, 0);
  }
  add(m, l, "linear_attn.norm.weight", m->dv, 0, 0);
  add(m, l, "linear_attn.out_proj.weight", m->H, values, 0);
  if (m->split_in_proj) {
    add(m, l, "linear_attn.in_proj_qkv.weight", 2 * keys + values, m->H, 0);
    add(m, l, "linear_attn.in_proj_z.weight", values, m->H, 0);
    add(m, l, "linear_attn.in_proj_b.weight", m->nv, m->H, 0);
    add(m, l, "linear_attn.in_proj_a.weight", m->nv, m->H, 0);
  }
}

static void add_mlp(oracle_model *m, int64_t l) {
  add_with_bias(m, l, "mlp.gate_proj", m->I, m->H, m->mlp_bias);
  add_with_bias(m, l, "mlp.up_proj", m->I, m->H, m->mlp_bias);
  add_with_bias(m, l, "mlp.down_proj", m->H, m->I, m->mlp_bias);
}

static void add_router(oracle_model *m, int64_t l) {
  char name[ORACLE_NAME];
  const oracle_names *names = oracle_expert_names(m);
  snprintf(name, sizeof name, "%s.%s.weight", names->block, names->router);
  add(m, l, name, m->E, m->H, 0);
  if (m->router_bias) add(m, l, "mlp.router.bias", m->E, 0, 0);
  if (m->correction_bias) add(m, l, "mlp.gate.e_score_correction_bias", m->E, 0, 0);
}

/* 4.9 for packed experts. */
static void add_experts(oracle_model *m, int64_t l) {
  char name[ORACLE_NAME];
  const oracle_names *names = oracle_expert_names(m);
  if (m->packed) {
    add(m, l, "mlp.experts.gate_up_proj", m->E, m->H, 2 * m->Im);
    add(m, l, "mlp.experts.gate_up_proj_bias", m->E, 2 * m->Im, 0);
    add(m, l, "mlp.experts.down_proj", m->E, m->Im, m->H);
    add(m, l, "mlp.experts.down_proj_bias", m->E, m->H, 0);
  }
  if (m->halves) {
    add(m, l, "mlp.experts.gate_up_proj", m->E, m->H, 2 * m->Im);
    add(m, l, "mlp.experts.down_proj", m->E, m->Im, m->H);
  }
  for (int64_t e = 0; e < m->E && !m->packed && !m->halves; e++) {
    snprintf(name, sizeof name, "%s.experts.%d.%s.weight", names->block, (int)e, names->gate);
    add(m, l, name, m->Im, m->H, 0);
    snprintf(name, sizeof name, "%s.experts.%d.%s.weight", names->block, (int)e, names->up);
    add(m, l, name, m->Im, m->H, 0);
    snprintf(name, sizeof name, "%s.experts.%d.%s.weight", names->block, (int)e, names->down);
    add(m, l, name, m->H, m->Im, 0);
  }
}

/* 5.2 */
static void add_moe(oracle_model *m, int64_t l) {
  char name[ORACLE_NAME];
  const char *shared = oracle_expert_names(m)->shared;
  bool experts_first = oracle_is(m, "qwen3_moe") || oracle_is(m, "glm4_moe") ||
                       oracle_is(m, "deepseek_ocr") || m->halves || m->mla;
  if (experts_first) add_experts(m, l);
  add_router(m, l);
  if (!experts_first) add_experts(m, l);
  if (m->Is) {
    snprintf(name, sizeof name, "mlp.%s.gate_proj.weight", shared);
    add(m, l, name, m->Is, m->H, 0);
    snprintf(name, sizeof name, "mlp.%s.up_proj.weight", shared);
    add(m, l, name, m->Is, m->H, 0);
    snprintf(name, sizeof name, "mlp.%s.down_proj.weight", shared);
    add(m, l, name, m->H, m->Is, 0);
  }
  if (m->shared_gate) add(m, l, "mlp.shared_expert_gate.weight", 1, m->H, 0);
}

/* 5.4; the copies of embedding and head are aliases. */
static void add_mtp(oracle_model *m, int64_t l) {
  if (m->next_mtp) {
    add(m, -1, "mtp.pre_fc_norm_embedding.weight", m->H, 0, 0);
    add(m, -1, "mtp.pre_fc_norm_hidden.weight", m->H, 0, 0);
    add(m, -1, "mtp.norm.weight", m->H, 0, 0);
    add(m, -1, "mtp.fc.weight", m->H, 2 * m->H, 0);
  } else {
    add(m, l, "enorm.weight", m->H, 0, 0);
    add(m, l, "hnorm.weight", m->H, 0, 0);
    add(m, l, "shared_head.norm.weight", m->H, 0, 0);
    add(m, l, "eh_proj.weight", m->H, 2 * m->H, 0);
  }
}

void oracle_tensors_make(oracle_model *m) {
  add(m, -1, "model.embed_tokens.weight", m->V, m->H, 0);
  for (int64_t l = 0; l < m->L + m->mtp; l++) {
    if (l >= m->L) add_mtp(m, l);
    if (m->linear[l]) {
      add_linear(m, l);
    } else if (m->mla) {
      add_mla(m, l);
    } else {
      add_attention(m, l);
    }
    if (m->moe[l]) {
      add_moe(m, l);
    } else {
      add_mlp(m, l);
    }
    add(m, l, "input_layernorm.weight", m->H, 0, 0);
    add(m, l, "post_attention_layernorm.weight", m->H, 0, 0);
    if (m->sandwich) {
      add(m, l, "pre_feedforward_layernorm.weight", m->H, 0, 0);
      add(m, l, "post_feedforward_layernorm.weight", m->H, 0, 0);
    }
  }
  add(m, -1, "model.norm.weight", m->H, 0, 0);
  if (!m->tied) add(m, -1, "lm_head.weight", m->V, m->H, 0);
}

const oracle_names *oracle_expert_names(const oracle_model *m) {
  static const oracle_names mixtral = {"block_sparse_moe", "gate", "w1", "w3", "w2", ""};
  static const oracle_names gpt_oss = {"mlp", "router", "", "", "", ""};
  static const oracle_names gated = {"mlp", "gate", "gate_proj", "up_proj", "down_proj", "shared_expert"};
  static const oracle_names others = {"mlp", "gate", "gate_proj", "up_proj", "down_proj", "shared_experts"};
  if (oracle_is(m, "mixtral")) return &mixtral;
  if (m->packed) return &gpt_oss;
  return m->shared_gate ? &gated : &others;
}
