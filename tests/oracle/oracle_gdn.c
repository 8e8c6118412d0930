/* The rules of linear attention (Gated DeltaNet): rules 4.8. A rank's in_proj is one or more of six sections,
 * each cut by heads; where a section's rows are depends on the family. */
#include "oracle/oracle_parts.h"

#include <assert.h>

int64_t oracle_linear_rows(const oracle_model *m, int sections, int64_t tp) {
  int64_t keys = m->nk * m->dk, values = m->nv * m->dv, rows = 0;
  if (sections & ORACLE_Q) rows += keys / tp;
  if (sections & ORACLE_K) rows += keys / tp;
  if (sections & ORACLE_V) rows += values / tp;
  if (sections & ORACLE_Z) rows += values / tp;
  if (sections & ORACLE_B) rows += m->nv / tp;
  if (sections & ORACLE_A) rows += m->nv / tp;
  return rows;
}

/* Row i of head `head` of a section, in Qwen3-Next: blocks for each key head, of q, k, v, z and of b, a. */
static void next_source(const oracle_place *at, int section, int64_t head, int64_t i, oracle_matrix *from,
                        int64_t *row) {
  const oracle_model *m = at->model;
  int64_t R = m->nv / m->nk, block = 2 * m->dk + 2 * R * m->dv;
  bool by_key = section == ORACLE_Q || section == ORACLE_K;
  int64_t kh = by_key ? head : head / R, j = head % R; /* value head j of key head kh */
  if (section == ORACLE_B || section == ORACLE_A) {
    *from = oracle_hf(at, "linear_attn.in_proj_ba.weight");
    *row = kh * 2 * R + (section == ORACLE_A ? R : 0) + j;
    return;
  }
  *from = oracle_hf(at, "linear_attn.in_proj_qkvz.weight");
  *row = kh * block + i;
  if (section == ORACLE_K) *row += m->dk;
  if (section == ORACLE_V) *row += 2 * m->dk + j * m->dv;
  if (section == ORACLE_Z) *row += 2 * m->dk + R * m->dv + j * m->dv;
}

/* The same in Qwen3.5: flat sections, tensors of their own for z, b and a. */
static void split_source(const oracle_place *at, int section, int64_t head, int64_t i, oracle_matrix *from,
                         int64_t *row) {
  const oracle_model *m = at->model;
  *row = head;
  if (section == ORACLE_B) {
    *from = oracle_hf(at, "linear_attn.in_proj_b.weight");
  } else if (section == ORACLE_A) {
    *from = oracle_hf(at, "linear_attn.in_proj_a.weight");
  } else if (section == ORACLE_Z) {
    *from = oracle_hf(at, "linear_attn.in_proj_z.weight");
    *row = head * m->dv + i;
  } else {
    *from = oracle_hf(at, "linear_attn.in_proj_qkv.weight");
    if (section == ORACLE_Q) *row = head * m->dk + i;
    if (section == ORACLE_K) *row = m->nk * m->dk + head * m->dk + i;
    if (section == ORACLE_V) *row = 2 * m->nk * m->dk + head * m->dv + i;
  }
}

void oracle_rule_linear(const oracle_place *at, oracle_window w, int sections, oracle_shard cut) {
  const oracle_model *m = at->model;
  int64_t to = 0;
  for (int section = ORACLE_Q; section <= ORACLE_A; section *= 2) {
    if (!(sections & section)) continue;
    bool by_key = section == ORACLE_Q || section == ORACLE_K;
    bool single = section == ORACLE_B || section == ORACLE_A;
    int64_t heads = (by_key ? m->nk : m->nv) / cut.tp, width = single ? 1 : by_key ? m->dk : m->dv;
    for (int64_t head = 0; head < heads; head++) {
      for (int64_t i = 0; i < width; i++, to++) {
        oracle_matrix from;
        int64_t row = 0;
        (m->split_in_proj ? split_source : next_source)(at, section, cut.t * heads + head, i, &from, &row);
        for (int64_t col = 0; col < w.cols; col++) oracle_set(m, w, to, col, from, row, col);
      }
    }
  }
  assert(to == w.rows);
}

/* conv1d [channels, 1, K]: flat channels q, k, v, each section cut. */
void oracle_rule_conv1d(const oracle_place *at, oracle_window w, oracle_shard cut) {
  const oracle_model *m = at->model;
  oracle_matrix conv = oracle_hf(at, "linear_attn.conv1d.weight");
  const int64_t sections[] = {m->nk * m->dk, m->nk * m->dk, m->nv * m->dv};
  int64_t to = 0, from = 0;
  for (int s = 0; s < 3; s++) {
    int64_t part = sections[s] / cut.tp;
    for (int64_t row = 0; row < part; row++, to++) {
      for (int64_t k = 0; k < m->K; k++) oracle_set(m, w, to, k, conv, from + cut.t * part + row, k);
    }
    from += sections[s];
  }
}
