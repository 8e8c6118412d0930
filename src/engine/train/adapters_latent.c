/* Gradients of the adapter of kv_up, whose rows multiply other rows for each head (latent.c): keys' rows were multiplied from their other side. So with
 * dy [tokens, rows of the head] and x [tokens, latent], head by head and first for values, then for keys:
 *
 *   dB [rows of the head, rank] = dy^T (x A^T)      dA [rank, latent] = the sum over heads of (dy B)^T x
 *
 * Order of additions: dA is a chain over the values of a leaf's heads, then over their keys, for each leaf of o; then the tree of leaves, over all ranks. */
#include "train/adapters_products.h"

#include <string.h>

static treadle_leaf_range leaves_of(const treadle_train_adapters *a, int32_t layer) {
  const treadle_pass *p = a->back->pass;
  return treadle_pass_leaves(&p->layers[layer].weight[TREADLE_ROLE_O], p->attention_leaves);
}

/* Elements of dA. */
static int64_t elements_of(const treadle_train_adapters *a) {
  return a->adapter->rank * a->back->transformer->latent_dim;
}

/* That of kv_up, in the layer that is merged; NULL: it has no adapter. */
static const treadle_train_target *find_target(const treadle_train_adapters *a) {
  if (!a || a->present < 0) return NULL;
  const treadle_train_target *target = &a->targets[a->present][TREADLE_ROLE_KV_UP];
  return target->number < 0 ? NULL : target;
}

int64_t treadle_train_adapter_leaf_values(const treadle_train_adapters *a) {
  for (int32_t l = 0; l < a->back->transformer->layers; l++)
    if (a->targets[l][TREADLE_ROLE_KV_UP].number >= 0) return leaves_of(a, l).leaves * elements_of(a);
  return 0;
}

void treadle_train_adapter_begin_heads(const treadle_train_adapters *a) {
  if (find_target(a)) memset(a->by_leaf, 0, (size_t)treadle_train_adapter_leaf_values(a) * sizeof(float));
}

treadle_status treadle_train_adapter_head(const treadle_train_adapters *a, const treadle_back_term *term,
                                          int64_t head, int64_t row, int64_t rows) {
  static const treadle_leaf_range one = {0, 1, 1};
  const treadle_train_target *target = find_target(a);
  const float *window = (const float *)(const void *)a->windows->trained;
  float *grads = treadle_train_grads(a->windows);
  const int64_t rank = a->adapter->rank, latent = a->back->transformer->latent_dim;
  treadle_status status;
  if (!target || !rows) return TREADLE_OK;
  const int64_t group = a->back->pass->heads.count / leaves_of(a, a->present).leaves;
  const treadle_adapter_rows x = {a->x, a->x_stride, latent, rows},
                             dy = {term->dy, term->stride, term->share, rows};
  const treadle_adapter_cut of_x = {one, latent, true}, of_dy = {one, term->share, true};
  TRY(treadle_train_adapter_project(a, &x, &of_x, window + target->at_a, false, a->inner));
  TRY(treadle_train_adapter_project(a, &dy, &of_dy, window + target->at_b + row * rank, true, a->outer));
  treadle_train_adapter_sum(a, &dy, a->inner, true, grads + target->at_b + row * rank);
  treadle_train_adapter_sum(a, &x, a->outer, false, a->by_leaf + head / group * elements_of(a));
out:
  return status;
}

/* The sums of this rank's nodes. */
static void join_leaves(const treadle_train_adapters *a, treadle_leaf_range leaves, float *to) {
  const int64_t elems = elements_of(a);
  treadle_leaf_node nodes[TREADLE_LEAF_NODES_MAX], single[TREADLE_LEAVES_MOST];
  const float *values[TREADLE_LEAVES_MOST];
  const int32_t count = treadle_leaf_nodes(leaves, nodes);
  for (int32_t i = 0; i < leaves.leaves; i++) {
    single[i] = (treadle_leaf_node){i, 1};
    values[i] = a->by_leaf + i * elems;
  }
  for (int32_t n = 0; n < count; n++)
    treadle_leaf_combine(nodes[n].leaves, single, values + nodes[n].first - leaves.first, nodes[n].leaves,
                         to + n * elems, elems);
}

treadle_status treadle_train_adapter_end_heads(const treadle_train_adapters *a, int64_t rows) {
  const treadle_train_target *target = find_target(a);
  treadle_status status = TREADLE_OK;
  if (!target || !rows) return TREADLE_OK;
  const treadle_pass *p = a->back->pass;
  treadle_exchange *within = p->ranks.within;
  treadle_leaf_range leaves = leaves_of(a, a->present);
  join_leaves(a, leaves, within ? treadle_exchange_room(within) : a->by_leaf);
  if (!p->ranks.speaks[a->present].attention) leaves.leaves = 0;
  if (within)
    TRY(treadle_parallel_sum(within, leaves, a->adapter->rank, a->back->transformer->latent_dim, a->by_leaf,
                             treadle_adapter_sum_name));
  p->row_ops->add(treadle_train_grads(a->windows) + target->at_a, a->by_leaf, TREADLE_FP32, elements_of(a));
out:
  return status;
}
