/* The rules: for each row and column of a tensor of a rank, the row and column of a Hugging Face tensor.
 * Section numbers are those of docs/rules.md. Linear attention has a file of its own, oracle_gdn.c. */
#include "oracle/oracle_parts.h"

#include <assert.h>

/* All of a tensor ("rep"). */
void oracle_rule_whole(const oracle_place *at, oracle_window w, oracle_matrix from) {
  assert(w.rows == from.rows && w.cols == from.cols);
  oracle_rule_rows(at, w, from, 0);
}

void oracle_rule_zeros(const oracle_place *at, oracle_window w) {
  const oracle_matrix zeros = {.tensor = ORACLE_PADDING};
  for (int64_t row = 0; row < w.rows; row++) {
    for (int64_t col = 0; col < w.cols; col++) oracle_set(at->model, w, row, col, zeros, 0, 0);
  }
}

/* Dimension 0 cut in equal parts ("C"): q_b_proj, kv_b_proj, sinks; 4.7, 7.3. */
void oracle_rule_rows(const oracle_place *at, oracle_window w, oracle_matrix from, int64_t t) {
  for (int64_t row = 0; row < w.rows; row++) {
    for (int64_t col = 0; col < w.cols; col++)
      oracle_set(at->model, w, row, col, from, t * w.rows + row, col);
  }
}

/* Dimension 1 cut in equal parts ("R"): o_proj and down_proj; 4.1, 4.3. */
void oracle_rule_columns(const oracle_place *at, oracle_window w, oracle_matrix from, int64_t t) {
  for (int64_t row = 0; row < w.rows; row++) {
    for (int64_t col = 0; col < w.cols; col++)
      oracle_set(at->model, w, row, col, from, row, t * w.cols + col);
  }
}

/* Embedding and head: contiguous rows, zeros from row V on; 3. */
void oracle_rule_vocabulary(const oracle_place *at, oracle_window w, oracle_matrix from, int64_t t) {
  const oracle_matrix zeros = {.tensor = ORACLE_PADDING};
  for (int64_t row = 0; row < w.rows; row++) {
    int64_t word = t * w.rows + row;
    for (int64_t col = 0; col < w.cols; col++)
      oracle_set(at->model, w, row, col, word < at->model->V ? from : zeros, word, col);
  }
}

int64_t oracle_q_width(const oracle_model *m) { return m->gated ? 2 * m->hd : m->hd; }

/* M-QKV, weight or bias: a global matrix of blocks for each group (q query heads, with a gate their q gate
 * heads, one key head, one value head), cut in equal contiguous parts; 4.1, 4.2. */
void oracle_rule_m_qkv(const oracle_place *at, oracle_window w, oracle_matrix q_proj, oracle_matrix k_proj,
                       oracle_matrix v_proj, int64_t t) {
  const oracle_model *m = at->model;
  int64_t q = m->nh / m->ng, hd = m->hd, gates = m->gated ? q : 0, block = (q + gates + 2) * hd;
  for (int64_t row = 0; row < w.rows; row++) {
    int64_t r = t * w.rows + row; /* of the global matrix */
    int64_t g = r / block, o = r % block;
    for (int64_t col = 0; col < w.cols; col++) {
      if (o < q * hd) {
        int64_t head = g * q + o / hd;
        oracle_set(m, w, row, col, q_proj, head * oracle_q_width(m) + o % hd, col);
      } else if (o < (q + gates) * hd) {
        int64_t head = g * q + (o - q * hd) / hd;
        oracle_set(m, w, row, col, q_proj, head * 2 * hd + hd + o % hd, col);
      } else if (o < (q + gates + 1) * hd) {
        oracle_set(m, w, row, col, k_proj, g * hd + (o - (q + gates) * hd), col);
      } else {
        oracle_set(m, w, row, col, v_proj, g * hd + (o - (q + gates + 1) * hd), col);
      }
    }
  }
}

/* The gate's part, below it the same part of up; weight or bias. M-FC1 4.3 and E-GU 4.5. And Megatron's fused
 * MLA down projection, 4.7. */
void oracle_rule_pair(const oracle_place *at, oracle_window w, oracle_matrix first, oracle_matrix second,
                      int64_t t) {
  int64_t above = w.rows * first.rows / (first.rows + second.rows), below = w.rows - above;
  for (int64_t col = 0; col < w.cols; col++) {
    for (int64_t row = 0; row < above; row++)
      oracle_set(at->model, w, row, col, first, t * above + row, col);
    for (int64_t row = 0; row < below; row++)
      oracle_set(at->model, w, above + row, col, second, t * below + row, col);
  }
}

/* Gate and up rows in turn, as gpt-oss keeps them; weight or bias: 4.9. */
void oracle_rule_interleaved(const oracle_place *at, oracle_window w, oracle_matrix gate, oracle_matrix up,
                             int64_t t) {
  for (int64_t row = 0; row < w.rows; row++) {
    for (int64_t col = 0; col < w.cols; col++)
      oracle_set(at->model, w, row, col, row % 2 ? up : gate, t * (w.rows / 2) + row / 2, col);
  }
}

int64_t oracle_kv_heads(const oracle_model *m, int64_t tp) { return tp <= m->ng ? m->ng / tp : 1; }

/* E-QKV, weight or bias: own query heads (with their gates), own key heads, own value heads; 4.4. */
void oracle_rule_e_qkv(const oracle_place *at, oracle_window w, oracle_matrix q_proj, oracle_matrix k_proj,
                       oracle_matrix v_proj, oracle_shard cut) {
  const oracle_model *m = at->model;
  int64_t q_rows = m->nh / cut.tp * oracle_q_width(m), kv_rows = oracle_kv_heads(m, cut.tp) * m->hd;
  int64_t kv_head =
      cut.tp <= m->ng ? cut.t * (m->ng / cut.tp) : cut.t / (cut.tp / m->ng); /* the first one */
  for (int64_t col = 0; col < w.cols; col++) {
    for (int64_t row = 0; row < q_rows; row++)
      oracle_set(m, w, row, col, q_proj, cut.t * q_rows + row, col);
    for (int64_t row = 0; row < kv_rows; row++) {
      oracle_set(m, w, q_rows + row, col, k_proj, kv_head * m->hd + row, col);
      oracle_set(m, w, q_rows + kv_rows + row, col, v_proj, kv_head * m->hd + row, col);
    }
  }
}

/* W_UK_T and w_kc, [heads, nope, kv_lora]: the first rows of each head of kv_b_proj; 4.7. */
void oracle_rule_w_uk(const oracle_place *at, oracle_window stack, int64_t heads, oracle_matrix kv_b,
                      int64_t t) {
  const oracle_model *m = at->model;
  for (int64_t n = 0; n < heads; n++) {
    for (int64_t i = 0; i < m->nope; i++) {
      for (int64_t j = 0; j < m->kv_lora; j++)
        oracle_set(m, oracle_step(stack, n), i, j, kv_b, (t * heads + n) * (m->nope + m->vd) + i, j);
    }
  }
}

/* W_UV and w_vc, [heads, kv_lora, vd]: its last rows, turned; 4.7. */
void oracle_rule_w_uv(const oracle_place *at, oracle_window stack, int64_t heads, oracle_matrix kv_b,
                      int64_t t) {
  const oracle_model *m = at->model;
  for (int64_t n = 0; n < heads; n++) {
    for (int64_t j = 0; j < m->kv_lora; j++) {
      for (int64_t i = 0; i < m->vd; i++)
        oracle_set(m, oracle_step(stack, n), j, i, kv_b, (t * heads + n) * (m->nope + m->vd) + m->nope + i,
                   j);
    }
  }
}

/* ---- Checks ---------------------------------------------------------------------------------- */

int64_t oracle_round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

bool oracle_divides(int64_t count, int64_t parts, const char *what, char *why) {
  return count % parts == 0 ||
         oracle_refuse(why, "%lld %s do not divide by %lld", (long long)count, what, (long long)parts);
}

/* 4.1, 4.4, 4.7, 7.5 */
bool oracle_check_attention(const oracle_model *m, int64_t tp, char *why) {
  bool has_full = oracle_any(m, m->linear, false);
  if (has_full && !oracle_divides(m->nh, tp, "heads", why)) return false;
  if (!m->mla && has_full && m->ng % tp != 0 && tp % m->ng != 0)
    return oracle_refuse(why, "%lld KV heads and %lld ranks", (long long)m->ng, (long long)tp);
  if (!oracle_any(m, m->linear, true)) return true;
  return oracle_divides(m->nk, tp, "linear key heads", why) &&
         oracle_divides(m->nv, tp, "linear value heads", why);
}

bool oracle_any(const oracle_model *m, const bool *layers, bool wanted) {
  for (int64_t l = 0; l < m->L + m->mtp; l++) {
    if (layers[l] == wanted) return true;
  }
  return false;
}
