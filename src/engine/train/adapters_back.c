/* Gradients of adapters, straight through the rounding of merged matrices: with inner = x A^T and outer = dy B, both times scale,
 *
 *   dB [rows, rank] = dy^T inner      dA [rank, columns] = outer^T x
 *
 * Order of additions. inner and outer are sums over columns and rows of the matrix: where a mesh may cut that dimension, in its leaves, in
 * whose tree ranks add theirs; else one chain. dA and dB are sums over tokens: the leaves of back_product.c, of each a chain, added onto the
 * gradient one after the other. All chains are of fused multiply-adds (nn/outer.h). So nothing depends on tp. */
#include "train/adapters_products.h"

#include "base/larger.h"
#include "train/back_head.h"

void treadle_train_adapter_rows(treadle_train_adapters *a, const float *x, int64_t stride) {
  a->x = x;
  a->x_stride = stride;
}

/* ---- A matrix -------------------------------------------------------------------------------------------------- */

static const treadle_train_target *find_target(const treadle_train_adapters *a,
                                               const treadle_weight *weight, treadle_role *role_p) {
  const treadle_weight *own = weight == &a->back->own_head ? &a->back->pass->head : weight;
  for (int role = 0; a->present >= 0 && role < TREADLE_ROLES; role++)
    if (a->targets[a->present][role].number >= 0 &&
        treadle_train_target_weight(a, a->present, role) == own) {
      *role_p = (treadle_role)role;
      return &a->targets[a->present][role];
    }
  return NULL;
}

/* How its rows and columns are divided among ranks: `rows` or `columns` has leaves. */
typedef struct matrix_cut {
  treadle_leaf_range rows, columns;
  bool speaks; /* no other rank brings the same leaves */
} matrix_cut;

static matrix_cut cut_of(const treadle_train_adapters *a, int32_t unit, treadle_role role) {
  if (role == TREADLE_ROLE_HEAD)
    return (matrix_cut){
        treadle_back_head_leaves(a->back), {0, 1, 1}, !treadle_back_head_is_silent(a->back)};
  static const treadle_pass_speaks alone = {true, true, true};
  const treadle_pass *p = a->back->pass;
  const treadle_transformer *d = a->back->transformer;
  const treadle_weight *w = p->layers[unit].weight, *down = &w[TREADLE_ROLE_DOWN],
                       *shared = &w[TREADLE_ROLE_SHARED_DOWN];
  const treadle_pass_speaks *speaks = p->ranks.speaks ? &p->ranks.speaks[unit] : &alone;
  const int64_t keys = a->back->key_leaves;
  const treadle_leaf_range one = {0, 1, 1},
                           heads =
                               d->attention == TREADLE_ATTENTION_MLA
                                   ? treadle_pass_leaves(&w[TREADLE_ROLE_O], p->attention_leaves)
                                   : (treadle_leaf_range){(int32_t)(p->heads.kv_first * keys / d->kv_heads),
                                                          (int32_t)(p->heads.kv_count * keys / d->kv_heads),
                                                          (int32_t)keys};
  switch (role) {
  case TREADLE_ROLE_Q_DOWN:
  case TREADLE_ROLE_KV_DOWN: return (matrix_cut){one, one, true};
  case TREADLE_ROLE_O:
    return (matrix_cut){one, treadle_pass_leaves(&w[role], p->attention_leaves), speaks->attention};
  case TREADLE_ROLE_DOWN: return (matrix_cut){one, treadle_pass_leaves(down, p->mlp_leaves), speaks->mlp};
  case TREADLE_ROLE_SHARED_DOWN:
    return (matrix_cut){one, treadle_pass_leaves(shared, p->shared_leaves), speaks->shared};
  case TREADLE_ROLE_GATE:
  case TREADLE_ROLE_UP: return (matrix_cut){treadle_pass_leaves(down, p->mlp_leaves), one, speaks->mlp};
  case TREADLE_ROLE_SHARED_GATE:
  case TREADLE_ROLE_SHARED_UP:
    return (matrix_cut){treadle_pass_leaves(shared, p->shared_leaves), one, speaks->shared};
  default: return (matrix_cut){heads, one, speaks->attention};
  }
}

int64_t treadle_train_adapter_room(const treadle_train_adapters *a) {
  int64_t most = 0;
  for (int32_t u = 0; u < treadle_train_adapter_units(a); u++)
    for (int role = 0; role < TREADLE_ROLES; role++) {
      if (a->targets[u][role].number < 0) continue;
      const matrix_cut cut = cut_of(a, u, (treadle_role)role);
      const int64_t nodes =
          treadle_larger(treadle_leaf_nodes(cut.rows, NULL), treadle_leaf_nodes(cut.columns, NULL));
      const bool few = role == TREADLE_ROLE_HEAD && a->rows > TREADLE_HEAD_ROWS;
      const int64_t rows = role == TREADLE_ROLE_KV_UP ? a->back->transformer->latent_dim
                           : few                      ? TREADLE_HEAD_ROWS
                                                      : a->rows;
      most = treadle_larger(most, nodes * rows);
    }
  return most * a->adapter->rank;
}

/* A rank whose rows of the head are all padding has nothing of its adapter, and hears what the others add up. */
static treadle_status hear_head(const treadle_train_adapters *a, const treadle_weight *weight,
                                int64_t rows) {
  const treadle_back *back = a->back;
  const bool adapts = a->adapter->of_tensor[back->transformer->head] >= 0;
  const treadle_leaf_range none = {0, 0, (int32_t)back->head_leaves};
  if (!adapts || weight != &back->own_head || none.all == 1 || !back->pass->ranks.within) return TREADLE_OK;
  return treadle_parallel_sum(back->pass->ranks.within, none, rows, a->adapter->rank, a->outer,
                              treadle_adapter_sum_name);
}

treadle_status treadle_train_adapter_back(treadle_train_adapters *a, const treadle_back_term *term,
                                          int64_t rows) {
  const treadle_weight *w = term->weight;
  const float *window = (const float *)(const void *)a->windows->trained;
  treadle_role role;
  const treadle_train_target *target = find_target(a, w, &role);
  treadle_status status;
  if (!rows) return TREADLE_OK;
  if (!target) return hear_head(a, w, rows);
  const matrix_cut cut = cut_of(a, a->present, role);
  const treadle_adapter_rows x = {a->x, a->x_stride, w->column_count, rows},
                             dy = {term->dy, term->stride, w->row_count, rows};
  const treadle_adapter_cut of_x = {cut.columns, w->columns / cut.columns.all, cut.speaks},
                            of_dy = {cut.rows, term->share, cut.speaks};
  float *grads = treadle_train_grads(a->windows);
  TRY(treadle_train_adapter_project(a, &x, &of_x, window + target->at_a, false, a->inner));
  TRY(treadle_train_adapter_project(a, &dy, &of_dy, window + target->at_b, true, a->outer));
  treadle_train_adapter_sum(a, &dy, a->inner, true, grads + target->at_b);
  treadle_train_adapter_sum(a, &x, a->outer, false, grads + target->at_a);
out:
  return status;
}
