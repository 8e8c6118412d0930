/* Gradients of adapters, straight through the rounding of merged matrices: with inner = x A^T and outer = dy B, both times scale,
 *
 *   dB [rows, rank] = dy^T inner      dA [rank, columns] = outer^T x
 *
 * Order of additions. inner and outer are sums over columns and rows of the matrix: where a mesh may cut that dimension, in its leaves, in
 * whose tree ranks add theirs; else one chain. dA and dB are sums over tokens: the leaves of back_product.c, of each a chain, added onto the
 * gradient one after the other. All chains are of fused multiply-adds (nn/outer.h). So nothing depends on tp. */
#include "train/adapters.h"

#include "base/larger.h"
#include "train/back_head.h"

#include <string.h>

static const treadle_outer_ops *ops_of(const treadle_train_adapters *a) {
  return treadle_outer_ops_for(a->back->pass->options.kernels);
}

/* Of a thread: columns of x or dy, turned, or a leaf of tokens; and a leaf of inner or outer. */
int64_t treadle_train_block_values(const treadle_train_adapters *a) {
  const treadle_outer_ops *ops = ops_of(a);
  return treadle_larger(a->widest, TREADLE_PRODUCT_LEAF) * ops->columns +
         (int64_t)TREADLE_PRODUCT_LEAF * TREADLE_OUTER_ROWS_MOST;
}

void treadle_train_adapter_rows(treadle_train_adapters *a, const float *x, int64_t stride) {
  a->x = x;
  a->x_stride = stride;
}

static const char what_is_added[] = "gradients of adapters";

/* ---- inner and outer ----------------------------------------------------------------------------------------- */

/* to [nodes, rows, rank] = from [rows, count] times the panels, in leaves of `share`. */
typedef struct projection {
  const treadle_train_adapters *a;
  const treadle_outer_ops *ops;
  const float *from;
  int64_t stride, count, rows, share;
  treadle_leaf_range leaves;
  bool speaks; /* as in matrix_cut */
  float *to;
} projection;

/* Tokens [first, first + some) as columns: [count][columns of a tile]. */
static void turn_tokens(const projection *p, int64_t first, int64_t some, float *to) {
  enum { TURNED = 16 };
  const int64_t width = p->ops->columns;
  if (some < width) memset(to, 0, (size_t)(p->count * width) * sizeof *to);
  for (int64_t row = 0; row < some; row += TURNED)
    p->a->back->pass->row_ops->turn(to + row, TREADLE_FP32, width, p->from + (first + row) * p->stride,
                                    p->stride, some - row < TURNED ? some - row : TURNED, p->count);
}

static void give_node(const projection *p, const float *sums, int64_t first, int64_t some, int64_t k,
                      float *to) {
  const int64_t rank = p->a->adapter->rank, rows = rank - k < p->ops->rows ? rank - k : p->ops->rows;
  for (int64_t t = 0; t < some; t++)
    for (int64_t i = 0; i < rows; i++) to[(first + t) * rank + k + i] = sums[i * p->ops->columns + t];
}

/* A tile of ranks from k on, of all nodes. */
static void project_tile(const projection *p, const float *b, int64_t first, int64_t some, int64_t k) {
  float sums[TREADLE_LEAF_HEIGHT_MAX + 1][TREADLE_OUTER_ROWS_MOST * TREADLE_OUTER_COLUMNS_MOST];
  const treadle_outer_ops *ops = p->ops;
  const int64_t size = (int64_t)ops->rows * ops->columns, node = p->rows * p->a->adapter->rank;
  const float *panel = p->a->panels + k * p->count;
  float *to = p->to;
  int top = 0;
  for (int32_t leaf = 0; leaf < p->leaves.leaves; leaf++) {
    const int64_t at = leaf * p->share, left = p->count - at;
    treadle_leaf_step step = treadle_leaf_step_of(p->leaves, p->leaves.first + leaf);
    ops->tile(sums[top], ops->columns, false, panel + at * ops->rows, b + at * ops->columns,
              left < p->share ? left : p->share);
    for (; step.merges > 0; step.merges--, top--)
      p->a->back->pass->row_ops->add(sums[top - 1], sums[top], TREADLE_FP32, size);
    if (!step.ends) {
      top++;
      continue;
    }
    give_node(p, sums[top], first, some, k, to);
    to += node;
  }
}

/* Blocks of tokens; each thread has some. */
static void project(void *context, int32_t index, int32_t count) {
  const projection *p = context;
  const int64_t width = p->ops->columns;
  float *block = p->a->blocks + (int64_t)index * p->a->block_each;
  for (int64_t first = index * width; first < p->rows; first += count * width) {
    const int64_t some = p->rows - first < width ? p->rows - first : width;
    turn_tokens(p, first, some, block);
    for (int64_t k = 0; k < p->a->adapter->rank; k += p->ops->rows) project_tile(p, block, first, some, k);
  }
}

/* A [rank, count] or B [count, rank] as tiles of rows: [tile][count][rows of a tile]. */
static void pack_tiles(const projection *p, const float *from, bool is_b) {
  const int64_t rank = p->a->adapter->rank, tile = p->ops->rows;
  for (int64_t k = 0; k < rank; k += tile) {
    float *to = p->a->panels + k * p->count;
    const int64_t some = rank - k < tile ? rank - k : tile;
    if (some < tile) memset(to, 0, (size_t)(p->count * tile) * sizeof *to);
    if (!is_b)
      p->a->back->pass->row_ops->turn(to, TREADLE_FP32, tile, from + k * p->count, p->count, some,
                                      p->count);
    else if (some == tile)
      p->ops->take(to, from + k, rank, p->count);
    else
      for (int64_t i = 0; i < p->count; i++)
        memcpy(to + i * tile, from + i * rank + k, (size_t)some * sizeof *to);
  }
}

/* to [rows, rank] = scale times the product, from all ranks that have leaves of it. */
static treadle_status find_product(projection *p, const float *values, bool is_b, float *to) {
  const treadle_train_adapters *a = p->a;
  treadle_exchange *within = p->leaves.all > 1 ? a->back->pass->ranks.within : NULL;
  const int64_t elems = p->rows * a->adapter->rank;
  treadle_leaf_range mine = p->leaves;
  treadle_status status = TREADLE_OK;
  if (!p->speaks) mine.leaves = 0;
  p->to = within ? treadle_exchange_room(within) : to;
  pack_tiles(p, values, is_b);
  treadle_team_run(a->back->pass->team, project, p);
  if (within) TRY(treadle_parallel_sum(within, mine, p->rows, a->adapter->rank, to, what_is_added));
  for (int64_t i = 0; i < elems; i++) to[i] *= a->adapter->scale;
out:
  return status;
}

/* ---- dA and dB ------------------------------------------------------------------------------------------------ */

/* grad += from^T by, or its transpose: `from` [rows, count], by [rows, rank]. */
typedef struct summing {
  const treadle_train_adapters *a;
  const treadle_outer_ops *ops;
  const float *from, *by;
  int64_t stride, count, rows;
  float *grad;
  bool is_b; /* [count, rank]; else [rank, count] */
} summing;

/* Columns of a leaf of tokens, then a tile of `by` of them. */
static void take_leaf(const summing *s, int64_t begin, int64_t tokens, int64_t first, int64_t some,
                      float *to) {
  const int64_t width = s->ops->columns;
  for (int64_t t = 0; t < tokens; t++, to += width) {
    memcpy(to, s->from + (begin + t) * s->stride + first, (size_t)some * sizeof *to);
    if (some < width) memset(to + some, 0, (size_t)(width - some) * sizeof *to);
  }
}

static void take_by(const summing *s, int64_t begin, int64_t tokens, int64_t k, float *to) {
  const int64_t rank = s->a->adapter->rank, tile = s->ops->rows, some = rank - k < tile ? rank - k : tile;
  const float *from = s->by + begin * rank + k;
  if (some == tile) {
    s->ops->take(to, from, rank, tokens);
    return;
  }
  memset(to, 0, (size_t)(tokens * tile) * sizeof *to);
  for (int64_t t = 0; t < tokens; t++) memcpy(to + t * tile, from + t * rank, (size_t)some * sizeof *to);
}

static void add_tile(const summing *s, const float *sums, int64_t k, int64_t first, int64_t some) {
  const int64_t rank = s->a->adapter->rank, width = s->ops->columns,
                rows = rank - k < s->ops->rows ? rank - k : s->ops->rows;
  for (int64_t i = 0; i < rows && !s->is_b; i++)
    s->a->back->pass->row_ops->add(s->grad + (k + i) * s->count + first, sums + i * width, TREADLE_FP32,
                                   some);
  for (int64_t c = 0; c < some && s->is_b; c++)
    for (int64_t i = 0; i < rows; i++) s->grad[(first + c) * rank + k + i] += sums[i * width + c];
}

/* Blocks of columns; each thread has some. */
static void add_columns(void *context, int32_t index, int32_t count) {
  const summing *s = context;
  const int64_t width = s->ops->columns;
  float *block = s->a->blocks + (int64_t)index * s->a->block_each, *by;
  float sums[TREADLE_OUTER_ROWS_MOST * TREADLE_OUTER_COLUMNS_MOST];
  int32_t leaf;
  treadle_back_tokens(s->rows, &leaf);
  by = block + (int64_t)TREADLE_PRODUCT_LEAF * width;
  for (int64_t first = index * width; first < s->count; first += count * width) {
    const int64_t some = s->count - first < width ? s->count - first : width;
    for (int64_t begin = 0; begin < s->rows; begin += leaf) {
      const int64_t tokens = s->rows - begin < leaf ? s->rows - begin : leaf;
      take_leaf(s, begin, tokens, first, some, block);
      for (int64_t k = 0; k < s->a->adapter->rank; k += s->ops->rows) {
        take_by(s, begin, tokens, k, by);
        s->ops->tile(sums, width, false, by, block, tokens);
        add_tile(s, sums, k, first, some);
      }
    }
  }
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
                           heads = {(int32_t)(p->heads.kv_first * keys / d->kv_heads),
                                    (int32_t)(p->heads.kv_count * keys / d->kv_heads), (int32_t)keys};
  switch (role) {
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
      most = treadle_larger(most, nodes * (few ? TREADLE_HEAD_ROWS : a->rows));
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
                              what_is_added);
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
  const treadle_outer_ops *ops = ops_of(a);
  projection of_x = {.a = a,
                     .ops = ops,
                     .from = a->x,
                     .stride = a->x_stride,
                     .count = w->column_count,
                     .rows = rows,
                     .share = w->columns / cut.columns.all,
                     .leaves = cut.columns,
                     .speaks = cut.speaks};
  projection of_dy = {.a = a,
                      .ops = ops,
                      .from = term->dy,
                      .stride = term->stride,
                      .count = w->row_count,
                      .rows = rows,
                      .share = term->share,
                      .leaves = cut.rows,
                      .speaks = cut.speaks};
  summing of_a = {.a = a,
                  .ops = ops,
                  .from = a->x,
                  .stride = a->x_stride,
                  .count = w->column_count,
                  .rows = rows,
                  .by = a->outer,
                  .grad = treadle_train_grads(a->windows) + target->at_a};
  summing of_b = {.a = a,
                  .ops = ops,
                  .from = term->dy,
                  .stride = term->stride,
                  .count = w->row_count,
                  .rows = rows,
                  .by = a->inner,
                  .grad = treadle_train_grads(a->windows) + target->at_b,
                  .is_b = true};
  TRY(find_product(&of_x, window + target->at_a, false, a->inner));
  TRY(find_product(&of_dy, window + target->at_b, true, a->outer));
  treadle_team_run(a->back->pass->team, add_columns, &of_b);
  treadle_team_run(a->back->pass->team, add_columns, &of_a);
out:
  return status;
}
