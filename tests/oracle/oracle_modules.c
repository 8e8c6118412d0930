/* Hugging Face's modules in memory: the canonical tensors in their order, experts stacked. */
#include "oracle/oracle_modules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_buffer(const oracle_tensor *tensor) {
  return strstr(tensor->name, ".e_score_correction_bias") != NULL;
}

static bool is_mtp(const oracle_model *m, const oracle_tensor *tensor) {
  return tensor->layer >= m->L || strncmp(tensor->name, "mtp.", 4) == 0;
}

/* 4.6: gate_up_proj [E, 2 Im, H] and down_proj [E, H, Im]. */
static void add_stacks(const oracle_place *at) {
  const oracle_model *m = at->model;
  oracle_window stack = oracle_add_stack(at, m->E, 2 * m->Im, m->H, "mlp.experts.gate_up_proj");
  for (int64_t e = 0; e < m->E; e++)
    oracle_rule_pair(at, oracle_step(stack, e), oracle_expert(at, e, ORACLE_GATE),
                     oracle_expert(at, e, ORACLE_UP), 0);
  stack = oracle_add_stack(at, m->E, m->H, m->Im, "mlp.experts.down_proj");
  for (int64_t e = 0; e < m->E; e++)
    oracle_rule_whole(at, oracle_step(stack, e), oracle_expert(at, e, ORACLE_DOWN));
}

/* Experts of one tensor each come at the place of the first; Mixtral's block is called mlp in memory. */
static void add_parameter(const oracle_place *outer, int32_t tensor) {
  const oracle_model *m = outer->model;
  const oracle_tensor *hf = &m->tensors[tensor];
  oracle_place at = oracle_in(outer, hf->layer, "model.layers.%d.", (int)hf->layer);
  bool single = !m->packed && strstr(hf->name, ".experts."); /* or stacked otherwise */
  const char *before = tensor > 0 ? m->tensors[tensor - 1].name : "";
  if (single && !strstr(before, ".experts.")) add_stacks(&at);
  if (single) return;
  if (strstr(hf->name, "block_sparse_moe.gate.")) {
    oracle_rule_whole(&at, oracle_add(&at, m->E, m->H, "mlp.gate.weight"),
                      oracle_hf(&at, "block_sparse_moe.gate.weight"));
    return;
  }
  oracle_add_whole(outer, tensor);
}

/* What tensor parallelism cuts: rows of q, k, v, gate and up and of the vocabulary, columns of o and down. */
static int dimension_of(const char *name) {
  static const char *const rows[] = {".q_proj.",  ".k_proj.",      ".v_proj.", ".gate_proj.",
                                     ".up_proj.", "embed_tokens.", "lm_head.", NULL};
  for (int i = 0; rows[i]; i++) {
    if (strstr(name, rows[i])) return 0;
  }
  return strstr(name, ".o_proj.weight") || strstr(name, ".down_proj.weight") ? 1 : -1;
}

void oracle_modules_make(const oracle_model *m, oracle_modules *modules) {
  *modules = (oracle_modules){0};
  const oracle_place at = {.model = m, .rank = &modules->rank, .layer = -1};
  for (int32_t i = 0; i < m->tensor_count; i++) {
    bool scales = m->tensors[i].weight > 0;
    if (!scales && !is_buffer(&m->tensors[i]) && !is_mtp(m, &m->tensors[i])) add_parameter(&at, i);
  }
  modules->parameters = modules->rank.count;
  for (int32_t i = 0; i < m->tensor_count; i++) {
    if (is_buffer(&m->tensors[i]) && !is_mtp(m, &m->tensors[i])) oracle_add_whole(&at, i);
  }

  size_t count = (size_t)modules->rank.count;
  modules->layer = oracle_memory(count, sizeof *modules->layer);
  modules->cut = oracle_memory(count, sizeof *modules->cut);
  for (size_t i = 0; i < count; i++) {
    const char *name = modules->rank.storages[i].name;
    long long l = -1;
    modules->layer[i] = sscanf(name, "model.layers.%lld.", &l) == 1 ? l : -1;
    modules->cut[i] = dimension_of(name);
  }
}

void oracle_modules_free(oracle_modules *modules) {
  oracle_rank_free(&modules->rank);
  free(modules->layer);
  free(modules->cut);
}
