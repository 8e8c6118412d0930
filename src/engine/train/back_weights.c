/* Gradients of weights that multiplied the same rows. Where one rank has all tokens, by the products of
 * back_product.c. Context parallel ranks bring their rows of x and dy, some leaves at a time, and each computes its
 * share of the rows of every gradient, leaf by leaf.
 *
 * Order of additions: that of back_product.c. There leaves of tokens are added in their tree and then onto the
 * gradient, or, by outer products, onto the gradient one after the other. Here a leaf is a product of its own, in the
 * same zeros, and sums wait on a stack as nn/leaf_tree.h has it. */
#include "train/context.h"

#include <string.h>

enum { LEAVES = TREADLE_CONTEXT_ROWS / TREADLE_PRODUCT_LEAF /* that are brought at once */, TERMS = 3 };

/* A sum of leaves, or one leaf: the shares of all terms, one behind the other. */
typedef struct place {
  treadle_weight grad[TERMS];
  treadle_segment segment[TERMS];
} place;

typedef struct weights {
  const treadle_back *back;
  const treadle_back_rows *x;
  const treadle_back_term *terms;
  int count;
  const treadle_weight *shares[TERMS];
  treadle_row_range rows[TERMS]; /* of each term, that this rank has */
  treadle_context_matrix matrices[TERMS + 1];
  int64_t columns; /* of a row with all matrices */
  int64_t tokens, leaf, leaves;
  bool straight; /* each leaf goes onto the gradient at once */
  int32_t top;   /* of the stack */
} weights;

static float *sum_at(const weights *w, int64_t number) {
  const treadle_train_buffers *b = &w->back->buffers;
  return b->apart + b->apart_leaves + number * b->apart_each;
}

static int64_t values_of(const weights *w) {
  int64_t values = 0;
  for (int i = 0; i < w->count; i++) values += (w->rows[i].end - w->rows[i].first) * w->x->columns;
  return values;
}

/* Sum `number` as gradients. */
static void place_sum(const weights *w, int64_t number, place *p) {
  const treadle_train_buffers *b = &w->back->buffers;
  int64_t at = b->apart_leaves + number * b->apart_each;
  for (int i = 0; i < w->count; i++) {
    const int64_t rows = w->rows[i].end - w->rows[i].first;
    p->segment[i] = (treadle_segment){.copy = (const char *)b->apart,
                                      .at = (size_t)at * sizeof(float),
                                      .rows = rows,
                                      .stride = w->x->columns};
    p->grad[i] = *w->shares[i];
    p->grad[i].segments = &p->segment[i];
    p->grad[i].segment_count = rows > 0;
    at += rows * w->x->columns;
  }
}

/* A leaf of rows: what weights multiplied, and dy of each term from its share on. */
typedef struct leaf_rows {
  const float *x, *dy[TERMS];
  int64_t stride, rows;
} leaf_rows;

static treadle_status multiply(const weights *w, const leaf_rows *from) {
  place p;
  treadle_status status;
  if (!w->straight) {
    memset(sum_at(w, w->top), 0, (size_t)values_of(w) * sizeof(float));
    place_sum(w, w->top, &p);
  }
  TRY(treadle_back_take_rows(w->back, from->x, from->stride, w->x->columns, from->rows));
  for (int i = 0; i < w->count; i++) {
    const treadle_back_term share = {w->shares[i], from->dy[i], from->stride, 0};
    if (w->rows[i].end > w->rows[i].first)
      TRY(treadle_back_weight(w->back, &share, w->straight ? w->shares[i] : &p.grad[i], from->rows));
  }
out:
  return status;
}

/* The sum that is whole goes onto the gradients. */
static void add_sum(const weights *w) {
  const float *from = sum_at(w, 0);
  for (int i = 0; i < w->count; i++)
    for (int64_t r = 0; r < w->rows[i].end - w->rows[i].first; r++, from += w->x->columns)
      w->back->pass->row_ops->add(treadle_back_grad(w->back, w->shares[i], r), from, TREADLE_FP32,
                                  w->x->columns);
}

static void merge(weights *w, int64_t leaf) {
  const treadle_leaf_range all = {0, (int32_t)w->leaves, (int32_t)w->leaves};
  treadle_leaf_step step = treadle_leaf_step_of(all, (int32_t)leaf);
  if (w->straight) return;
  for (; step.merges > 0; step.merges--, w->top--)
    w->back->pass->row_ops->add(sum_at(w, w->top - 1), sum_at(w, w->top), TREADLE_FP32, values_of(w));
  if (step.ends)
    add_sum(w);
  else
    w->top++;
}

/* Where rows begin that were brought. */
static leaf_rows brought_at(const weights *w, const float *from) {
  leaf_rows rows = {.x = from, .stride = w->columns};
  const float *dy = from + w->x->columns;
  for (int i = 0; i < w->count; dy += w->matrices[++i].columns) rows.dy[i] = dy + w->rows[i].first;
  return rows;
}

/* Room for a leaf, side by side. */
static leaf_rows room_of(const weights *w) {
  const float *at = w->back->buffers.leaf;
  leaf_rows rows = {.x = at, .stride = w->x->columns};
  for (int i = 0; i < w->count; i++) {
    rows.dy[i] = at + rows.stride;
    rows.stride += w->rows[i].end - w->rows[i].first;
  }
  return rows;
}

static float *copy_columns(float *to, const float *from, int64_t columns) {
  memcpy(to, from, (size_t)columns * sizeof *to);
  return to + columns;
}

/* Rows of several ranks. */
static leaf_rows gather_leaf(const weights *w, treadle_row_range brought, treadle_row_range leaf) {
  float *to = w->back->buffers.leaf;
  int64_t run;
  for (int64_t row = leaf.first; row < leaf.end; row++) {
    const leaf_rows from = brought_at(w, treadle_context_row(w->back, brought, row, &run));
    to = copy_columns(to, from.x, w->x->columns);
    for (int i = 0; i < w->count; i++) to = copy_columns(to, from.dy[i], w->rows[i].end - w->rows[i].first);
  }
  return room_of(w);
}

/* Rows of a leaf that one rank has are read where they lie. A leaf that is not whole is followed by zeros, but for
 * outer products. */
static treadle_status add_leaf(weights *w, treadle_row_range brought, int64_t number) {
  const int64_t begin = number * w->leaf, left = w->tokens - begin, rows = left < w->leaf ? left : w->leaf;
  const int64_t wanted = w->back->outer ? rows : w->leaf;
  int64_t run;
  const float *from = treadle_context_row(w->back, brought, begin, &run);
  leaf_rows leaf;
  treadle_status status;
  if (run >= wanted)
    leaf = brought_at(w, from);
  else
    leaf = gather_leaf(w, brought, (treadle_row_range){begin, begin + rows});
  if (wanted > rows)
    memset(w->back->buffers.leaf + rows * leaf.stride, 0,
           (size_t)((wanted - rows) * leaf.stride) * sizeof(float));
  leaf.rows = wanted;
  TRY(multiply(w, &leaf));
  merge(w, number);
out:
  return status;
}

static treadle_status add_leaves(weights *w) {
  treadle_status status = TREADLE_OK;
  for (int64_t leaf = 0; leaf < w->leaves; leaf += LEAVES) {
    treadle_row_range brought = {leaf * w->leaf, (leaf + LEAVES) * w->leaf};
    if (brought.end > w->tokens) brought.end = w->tokens;
    TRY(treadle_context_bring(w->back, brought, w->matrices, w->count + 1,
                              "rows for gradients of weights"));
    for (int64_t l = leaf; l < w->leaves && l < leaf + LEAVES; l++) TRY(add_leaf(w, brought, l));
  }
out:
  return status;
}

treadle_status treadle_back_weights(const treadle_back *back, int32_t layer, const treadle_back_rows *x,
                                    const treadle_back_term *terms, const treadle_role *roles, int count) {
  weights w = {.back = back, .x = x, .terms = terms, .count = count, .tokens = back->context.now};
  int32_t leaf;
  treadle_status status = TREADLE_OK;
  if (back->context.ranks == 1) {
    TRY(treadle_back_take_rows(back, x->x, x->stride, x->columns, x->rows));
    for (int i = 0; i < count; i++)
      TRY(treadle_back_weight(back, &terms[i], &back->grads[layer].weight[roles[i]], x->rows));
    return TREADLE_OK;
  }
  if (!w.tokens) return TREADLE_OK;
  w.matrices[0] = (treadle_context_matrix){x->x, x->stride, x->columns};
  for (int i = 0; i < count; i++) {
    w.shares[i] = &back->context.grads[layer].weight[roles[i]];
    w.rows[i] = treadle_context_share(back, terms[i].weight->row_count);
    w.matrices[i + 1] = (treadle_context_matrix){terms[i].dy, terms[i].stride, terms[i].weight->row_count};
  }
  for (int i = 0; i <= count; i++) w.columns += w.matrices[i].columns;
  const int64_t padded = treadle_back_tokens(w.tokens, &leaf);
  w.leaves = padded / leaf;
  w.leaf = leaf;
  w.straight = back->outer || w.leaves == 1;
  status = add_leaves(&w);
out:
  return status;
}
