/* Products of adapters' gradients, by tiles of outer products (nn/outer.h): rows times A or B, and sums over tokens. */
#include "train/adapters_products.h"

#include "base/larger.h"

#include <string.h>

const char treadle_adapter_sum_name[] = "gradients of adapters";

static const treadle_outer_ops *ops_of(const treadle_train_adapters *a) {
  return treadle_outer_ops_for(a->back->pass->options.kernels);
}

/* Of a thread: columns of x or dy, turned, or a leaf of tokens; and a leaf of inner or outer. */
int64_t treadle_train_block_values(const treadle_train_adapters *a) {
  const treadle_outer_ops *ops = ops_of(a);
  return treadle_larger(a->widest, TREADLE_PRODUCT_LEAF) * ops->columns +
         (int64_t)TREADLE_PRODUCT_LEAF * TREADLE_OUTER_ROWS_MOST;
}

/* ---- inner and outer ----------------------------------------------------------------------------------------- */

/* to [nodes, rows, rank] = from [rows, count] times the panels, in leaves. */
typedef struct projection {
  const treadle_train_adapters *a;
  const treadle_outer_ops *ops;
  const treadle_adapter_rows *from;
  const treadle_adapter_cut *leaves;
  float *to;
} projection;

/* Tokens [first, first + some) as columns: [count][columns of a tile]. */
static void turn_tokens(const projection *p, int64_t first, int64_t some, float *to) {
  enum { TURNED = 16 };
  const int64_t width = p->ops->columns;
  if (some < width) memset(to, 0, (size_t)(p->from->count * width) * sizeof *to);
  for (int64_t row = 0; row < some; row += TURNED)
    p->a->back->pass->row_ops->turn(to + row, TREADLE_FP32, width,
                                    p->from->at + (first + row) * p->from->stride, p->from->stride,
                                    some - row < TURNED ? some - row : TURNED, p->from->count);
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
  const int64_t size = (int64_t)ops->rows * ops->columns, node = p->from->rows * p->a->adapter->rank;
  const float *panel = p->a->panels + k * p->from->count;
  float *to = p->to;
  int top = 0;
  for (int32_t leaf = 0; leaf < p->leaves->range.leaves; leaf++) {
    const int64_t at = leaf * p->leaves->share, left = p->from->count - at;
    treadle_leaf_step step = treadle_leaf_step_of(p->leaves->range, p->leaves->range.first + leaf);
    ops->tile(sums[top], ops->columns, false, panel + at * ops->rows, b + at * ops->columns,
              left < p->leaves->share ? left : p->leaves->share);
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
  for (int64_t first = index * width; first < p->from->rows; first += count * width) {
    const int64_t some = p->from->rows - first < width ? p->from->rows - first : width;
    turn_tokens(p, first, some, block);
    for (int64_t k = 0; k < p->a->adapter->rank; k += p->ops->rows) project_tile(p, block, first, some, k);
  }
}

/* A [rank, count] or B [count, rank] as tiles of rows: [tile][count][rows of a tile]. */
static void pack_tiles(const projection *p, const float *from, bool is_b) {
  const int64_t rank = p->a->adapter->rank, tile = p->ops->rows;
  for (int64_t k = 0; k < rank; k += tile) {
    float *to = p->a->panels + k * p->from->count;
    const int64_t some = rank - k < tile ? rank - k : tile;
    if (some < tile) memset(to, 0, (size_t)(p->from->count * tile) * sizeof *to);
    if (!is_b)
      p->a->back->pass->row_ops->turn(to, TREADLE_FP32, tile, from + k * p->from->count, p->from->count,
                                      some, p->from->count);
    else if (some == tile)
      p->ops->take(to, from + k, rank, p->from->count);
    else
      for (int64_t i = 0; i < p->from->count; i++)
        memcpy(to + i * tile, from + i * rank + k, (size_t)some * sizeof *to);
  }
}

treadle_status treadle_train_adapter_project(const treadle_train_adapters *a,
                                             const treadle_adapter_rows *from,
                                             const treadle_adapter_cut *leaves, const float *values,
                                             bool is_b, float *to) {
  treadle_exchange *within = leaves->range.all > 1 ? a->back->pass->ranks.within : NULL;
  projection p = {.a = a,
                  .ops = ops_of(a),
                  .from = from,
                  .leaves = leaves,
                  .to = within ? treadle_exchange_room(within) : to};
  const int64_t elems = from->rows * a->adapter->rank;
  treadle_leaf_range mine = leaves->range;
  treadle_status status = TREADLE_OK;
  if (!leaves->speaks) mine.leaves = 0;
  pack_tiles(&p, values, is_b);
  treadle_team_run(a->back->pass->team, project, &p);
  if (within)
    TRY(treadle_parallel_sum(within, mine, from->rows, a->adapter->rank, to, treadle_adapter_sum_name));
  for (int64_t i = 0; i < elems; i++) to[i] *= a->adapter->scale;
out:
  return status;
}

/* ---- dA and dB ------------------------------------------------------------------------------------------------ */

/* grad += from^T by, or its transpose: `from` [rows, count], by [rows, rank]. */
typedef struct summing {
  const treadle_train_adapters *a;
  const treadle_outer_ops *ops;
  const treadle_adapter_rows *from;
  const float *by;
  float *grad;
  bool is_b; /* [count, rank]; else [rank, count] */
} summing;

/* Columns of a leaf of tokens, then a tile of `by` of them. */
static void take_leaf(const summing *s, int64_t begin, int64_t tokens, int64_t first, int64_t some,
                      float *to) {
  const int64_t width = s->ops->columns;
  for (int64_t t = 0; t < tokens; t++, to += width) {
    memcpy(to, s->from->at + (begin + t) * s->from->stride + first, (size_t)some * sizeof *to);
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
    s->a->back->pass->row_ops->add(s->grad + (k + i) * s->from->count + first, sums + i * width,
                                   TREADLE_FP32, some);
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
  treadle_back_tokens(s->from->rows, &leaf);
  by = block + (int64_t)TREADLE_PRODUCT_LEAF * width;
  for (int64_t first = index * width; first < s->from->count; first += count * width) {
    const int64_t some = s->from->count - first < width ? s->from->count - first : width;
    for (int64_t begin = 0; begin < s->from->rows; begin += leaf) {
      const int64_t tokens = s->from->rows - begin < leaf ? s->from->rows - begin : leaf;
      take_leaf(s, begin, tokens, first, some, block);
      for (int64_t k = 0; k < s->a->adapter->rank; k += s->ops->rows) {
        take_by(s, begin, tokens, k, by);
        s->ops->tile(sums, width, false, by, block, tokens);
        add_tile(s, sums, k, first, some);
      }
    }
  }
}

void treadle_train_adapter_sum(const treadle_train_adapters *a, const treadle_adapter_rows *from,
                               const float *by, bool is_b, float *grad) {
  summing s = {.a = a, .ops = ops_of(a), .from = from, .by = by, .grad = grad, .is_b = is_b};
  treadle_team_run(a->back->pass->team, add_columns, &s);
}
