/* The memory that both passes compute in: measured first, by the shapes alone, then taken at once. Nothing is taken in a step. */
#include "train/trainer.h"

#include "base/dtype.h"
#include "base/larger.h"
#include "memory/limits.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

/* ---- Widths ------------------------------------------------------------------------------------------- */

bool treadle_train_norms_heads(const treadle_trainer *t) {
  for (int32_t l = 0; l < t->transformer->layers; l++)
    if (t->transformer->layer[l].tensor[TREADLE_ROLE_Q_NORM] >= 0 ||
        t->transformer->layer[l].tensor[TREADLE_ROLE_K_NORM] >= 0)
      return true;
  return false;
}

static void find_widths(treadle_trainer *t) {
  const treadle_transformer *d = t->transformer;
  const treadle_head_span *heads = &t->pass->heads;
  treadle_train_columns *w = &t->width;
  w->keys = heads->count * d->head_dim;
  w->values = w->keys + heads->kv_count * d->head_dim;
  w->qkv = w->values + heads->kv_count * d->value_dim;
  w->found = heads->count * d->value_dim;
  for (int32_t l = 0; l < d->layers; l++)
    w->inner = treadle_larger(w->inner, t->pass->layers[l].weight[TREADLE_ROLE_DOWN].column_count);
  w->vocabulary = t->pass->head.row_count;
}

/* ---- A layer ------------------------------------------------------------------------------------------ */

/* Values of what is kept of a layer, at each 64 bytes; at NULL they are only counted. */
static int64_t place_layer(const treadle_trainer *t, float *at, bool stream, bool parts,
                           treadle_train_activations *kept) {
  const int64_t unit = ALIGNMENT / (int64_t)sizeof(float), hidden = t->transformer->hidden;
  const int64_t own = treadle_train_most_own_rows(t, t->stage_ranks);
  const int64_t qkv = parts ? t->width.qkv : 0;
  const int64_t sizes[] = {stream ? own * hidden : 0,
                           stream && parts ? own * hidden : 0,
                           t->rows * qkv,
                           treadle_train_norms_heads(t) ? t->rows * qkv : 0,
                           parts ? t->rows * t->width.found : 0,
                           parts ? t->rows * 2 * t->width.inner : 0};
  float **const places[] = {&kept->x,   &kept->middle_x, &kept->qkv,
                            &kept->raw, &kept->found,    &kept->gate_up};
  int64_t used = 0;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    *places[i] = at && sizes[i] ? at + used : NULL;
    used += (sizes[i] + unit - 1) / unit * unit;
  }
  return used;
}

treadle_train_activations treadle_train_activations_of(const treadle_trainer *t,
                                                       const treadle_train_chunk *chunk, int32_t layer,
                                                       int32_t micro_batch) {
  int64_t place = chunk->place + layer - chunk->first_layer;
  treadle_train_activations kept;
  place_layer(t, t->buffers.kept + (place * t->kept_count + micro_batch % t->kept_count) * t->kept_each,
              true, t->keeps_all, &kept);
  return kept;
}

treadle_train_activations treadle_train_again(const treadle_trainer *t) {
  treadle_train_activations kept;
  place_layer(t, t->buffers.again, false, true, &kept);
  return kept;
}

float *treadle_train_out(const treadle_trainer *t, int32_t micro_batch) {
  return t->buffers.out + micro_batch % t->kept_count * t->rows * t->transformer->hidden;
}

/* ---- All of it ---------------------------------------------------------------------------------------- */

typedef struct memory { /* that is divided */
  char *base;           /* NULL: it is only counted */
  size_t used;
} memory;

static void *take(memory *m, int64_t count, size_t each) {
  char *at = m->base ? m->base + m->used : NULL;
  m->used += ((size_t)count * each + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return count ? at : NULL;
}

/* What the products need, the largest of all. */
typedef struct sizes {
  size_t packed;
  int64_t turned;  /* elements */
  int64_t joined;  /* elements */
  int64_t columns; /* of what weights multiply */
  int64_t part;    /* of a norm or bias */
  int64_t outer;   /* of a thread */
  size_t packed_x; /* bytes: rows in pairs, in place of turned ones */
  int64_t pointers;
} sizes;

/* Tokens of a micro batch as leaves, of which there are as many as can be. */
static treadle_gemm_inner most_tokens(const treadle_trainer *t) {
  int64_t products = (t->rows + TREADLE_PRODUCT_LEAF - 1) / TREADLE_PRODUCT_LEAF;
  return (treadle_gemm_inner){
      t->pass->options.dtype, TREADLE_PRODUCT_LEAF, {0, (int32_t)products, (int32_t)products}};
}

static treadle_status measure_paired(treadle_trainer *t, sizes *s, treadle_gemm_inner inner,
                                     int64_t columns, int64_t rows) {
  const treadle_gemm_inner tokens = most_tokens(t);
  int64_t width = (int64_t)inner.leaf * inner.range.leaves;
  treadle_status status;
  s->joined = treadle_larger(s->joined, (rows * width + 1) / 2);
  s->columns = treadle_larger(s->columns, columns);
  s->pointers =
      treadle_larger(treadle_larger(s->pointers, width), (int64_t)tokens.leaf * tokens.range.leaves);
  TRY(treadle_paired_measure(t, inner, columns, &s->packed));
  TRY(treadle_paired_measure(t, tokens, columns, &s->packed_x));
out:
  return status;
}

/* A product with leaves of `share` rows of a weight, this many of them here. */
static treadle_status measure_input(treadle_trainer *t, sizes *s, int64_t share, int64_t leaves,
                                    int64_t columns, int64_t rows) {
  int64_t leaf = treadle_back_leaf(share);
  treadle_gemm_inner inner = {t->pass->options.dtype, (int32_t)leaf, {0, (int32_t)leaves, (int32_t)leaves}};
  if (!leaves) return TREADLE_OK;
  if (t->outer) {
    treadle_outer_measure(t, share * leaves, columns, &s->turned, &s->outer);
    s->columns = treadle_larger(s->columns, (columns + TREADLE_OUTER_COLUMNS_MOST - 1) /
                                                TREADLE_OUTER_COLUMNS_MOST * TREADLE_OUTER_COLUMNS_MOST);
    return TREADLE_OK;
  }
  if (t->pairs) return measure_paired(t, s, inner, columns, rows);
  s->turned = treadle_larger(s->turned, columns * leaf * leaves);
  s->joined = treadle_larger(s->joined, rows * leaf * leaves);
  s->columns = treadle_larger(s->columns, columns);
  return treadle_back_measure(t, inner, rows, &s->packed);
}

static treadle_status measure_products(treadle_trainer *t, sizes *s) {
  const treadle_transformer *d = t->transformer;
  const treadle_train_columns *w = &t->width;
  int64_t keys = t->pass->heads.kv_count * t->key_leaves / d->kv_heads;
  int64_t inner = w->inner * t->pass->mlp_leaves / d->intermediate;
  int64_t head = t->head_leaves > 1 ? (w->vocabulary + TREADLE_HEAD_LEAF - 1) / TREADLE_HEAD_LEAF : 1;
  treadle_status status;
  *s = (sizes){.part = treadle_larger(treadle_larger(d->hidden, w->inner), w->qkv)};
  TRY(measure_input(t, s, d->hidden, 1, w->inner, t->rows));
  TRY(measure_input(t, s, d->hidden, 1, w->found, t->rows));
  TRY(measure_input(t, s, 2 * d->intermediate / t->pass->mlp_leaves, inner, d->hidden, t->rows));
  TRY(measure_input(t, s, w->qkv / keys, keys, d->hidden, t->rows));
  if (w->vocabulary)
    TRY(measure_input(t, s, t->head_leaves > 1 ? TREADLE_HEAD_LEAF : d->vocabulary, head, d->hidden,
                      TREADLE_HEAD_ROWS));
  if (t->outer)
    s->outer = treadle_larger(s->outer, (int64_t)TREADLE_PRODUCT_LEAF * TREADLE_OUTER_ROWS_MOST);
  else if (!t->pairs)
    TRY(treadle_back_measure(t, most_tokens(t), TREADLE_WEIGHT_ROWS, &s->packed));
out:
  return status;
}

static bool has_last(const treadle_trainer *t) {
  return t->chunks[t->chunk_count - 1].number == t->pipeline.chunks - 1;
}

static void place_kept(treadle_trainer *t, memory *m) {
  const treadle_train_chunk *last = &t->chunks[t->chunk_count - 1];
  int64_t layers = last->place + last->end_layer - last->first_layer;
  treadle_train_buffers *b = &t->buffers;
  treadle_train_activations kept;
  t->kept_each = place_layer(t, NULL, true, t->keeps_all, &kept);
  b->kept = take(m, layers * t->kept_count * t->kept_each, sizeof(float));
  b->out = has_last(t) ? take(m, t->kept_count * t->rows * t->transformer->hidden, sizeof(float)) : NULL;
  b->again = t->keeps_all ? NULL : take(m, place_layer(t, NULL, false, true, &kept), sizeof(float));
  b->x = t->keeps_all ? NULL : take(m, t->rows * t->transformer->hidden, sizeof(float));
}

/* What a pass forward needs, if nothing is kept. */
static void place_forward(treadle_trainer *t, memory *m) {
  const treadle_pass *p = t->pass;
  treadle_train_buffers *b = &t->buffers;
  t->pass_work = take(m, (int64_t)(treadle_pass_work_bytes(p) + treadle_pass_packed_bytes(p)), 1);
  t->cache = take(m, t->blocks, treadle_pass_block_bytes(p));
  if (t->shards) {
    char *gathered = take(m, treadle_train_unit_bytes(t, p->options.dtype), 1);
    treadle_train_place_gathered(t, gathered, take(m, treadle_train_shard_block(), sizeof(float)));
  }
  b->tokens = take(m, t->rows, sizeof *b->tokens);
  b->targets = take(m, t->rows, sizeof *b->targets);
  b->which = take(m, t->rows, sizeof *b->which);
  b->places = take(m, t->rows, sizeof *b->places);
  b->spans = take(m, t->rows, sizeof *b->spans);
  b->table = take(m, 2 * (t->blocks + t->rows / 64), sizeof *b->table);
}

static void place(treadle_trainer *t, const sizes *s, void *at) {
  const treadle_transformer *d = t->transformer;
  const treadle_pass *p = t->pass;
  const treadle_train_columns *w = &t->width;
  treadle_train_buffers *b = &t->buffers;
  const int64_t rows = t->rows, stream = rows * d->hidden;
  const size_t each = treadle_dtype_bytes(p->options.dtype);
  int64_t width = (rows + TREADLE_PRODUCT_LEAF - 1) / TREADLE_PRODUCT_LEAF * TREADLE_PRODUCT_LEAF;
  bool ties = d->head == d->embed && t->pipeline.stages == 1 && !t->shards;
  memory m = {.base = at};
  place_forward(t, &m);
  t->forward_bytes = m.used;
  place_kept(t, &m);
  b->normed = take(&m, stream, sizeof(float));
  b->normed2 = take(&m, stream, sizeof(float));
  b->dnormed = take(&m, stream, sizeof(float));
  b->dx = take(&m, stream, sizeof(float));
  b->dqkv = take(&m, rows * w->qkv, sizeof(float));
  b->middle = take(&m, rows * w->inner, sizeof(float));
  b->dmiddle = take(&m, rows * treadle_larger(w->inner, w->found), sizeof(float));
  b->joined = take(&m, s->joined, sizeof(float));
  b->parts = take(&m, (rows / TREADLE_TOKEN_LEAF + 1) * s->part, sizeof(float));
  b->head_parts = treadle_train_norms_heads(t) ? take(&m, w->keys, sizeof(float)) : NULL;
  b->turned = take(&m, s->turned, each);
  b->turned_x = t->pairs ? take(&m, (int64_t)s->packed_x, 1) : take(&m, s->columns * width, each);
  b->pointers = take(&m, s->pointers, sizeof *b->pointers);
  b->turned_dy = take(&m, t->outer ? 0 : TREADLE_WEIGHT_ROWS * width, sizeof(float));
  b->product = take(&m, t->outer || t->pairs ? 0 : TREADLE_WEIGHT_ROWS * s->columns, sizeof(float));
  b->outer_each = (s->outer + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  b->outer = take(&m, p->options.threads * b->outer_each, sizeof(float));
  b->packed = take(&m, (int64_t)s->packed, 1);
  b->scratch_bytes = (treadle_attention_back_bytes(rows, d->head_dim, d->value_dim) + ALIGNMENT - 1) /
                     ALIGNMENT * ALIGNMENT;
  b->scratch = take(&m, p->options.threads, b->scratch_bytes);
  b->tied = ties ? take(&m, w->vocabulary * d->hidden, sizeof(float)) : NULL;
  t->work_bytes = m.used;
}

/* Masters, where weights are not fp32, and two moments. */
void treadle_train_measure_optimizer(treadle_trainer *t) {
  const treadle_row_span share = treadle_train_share(t, t->replica.number);
  size_t states = t->pass->options.dtype == TREADLE_FP32 ? 2 : 3;
  t->optimizer.bytes = t->optimizer.wanted ? states * (size_t)(share.end - share.begin) * sizeof(float) : 0;
}

treadle_status treadle_train_measure(treadle_trainer *t) {
  sizes s;
  treadle_status status;
  find_widths(t);
  TRY(measure_products(t, &s));
  place(t, &s, NULL);
  t->weight_bytes = treadle_layout_window_bytes(t->layout, t->rank);
  t->grad_bytes = treadle_layout_window_bytes(t->grad_layout, t->rank);
  treadle_train_measure_optimizer(t);
out:
  return status;
}

/* ---- Taking it ---------------------------------------------------------------------------------------- */

static treadle_status allocate(treadle_trainer *t, size_t bytes, const char *what, void **memory_p) {
  treadle_status status;
  TRY(treadle_limits_ask(bytes, what));
  if (posix_memalign(memory_p, ALIGNMENT, bytes + ALIGNMENT) != 0)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for %s of %zu bytes", what, bytes);
  t->taken[t->taken_count++] = *memory_p;
  t->taken_bytes += bytes;
  memset(*memory_p, 0, bytes);
out:
  return status;
}

void treadle_train_free(treadle_trainer *t) {
  while (t->taken_count > 0) free(t->taken[--t->taken_count]);
}

static treadle_status take_optimizer(treadle_trainer *t) {
  treadle_train_optimizer *o = &t->optimizer;
  const treadle_row_span share = treadle_train_share(t, t->replica.number);
  void *window = NULL;
  treadle_status status = TREADLE_OK;
  if (!o->wanted) return TREADLE_OK;
  if (!o->exp_avg) {
    TRY(allocate(t, o->bytes, "state of the optimizer", &window));
    o->exp_avg = window;
  }
  o->exp_avg_sq = o->exp_avg + (share.end - share.begin);
  if (t->pass->options.dtype != TREADLE_FP32) o->master = o->exp_avg_sq + (share.end - share.begin);
out:
  return status;
}

/* The head's half of a tied gradient lies in memory of its own. */
static treadle_status part_tied(treadle_trainer *t) {
  treadle_segment *segment;
  if (!t->buffers.tied) return TREADLE_OK;
  segment = treadle_arena_alloc_array(&t->arena, 1, sizeof *segment);
  if (!segment) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a trainer");
  *segment = (treadle_segment){.copy = (const char *)t->buffers.tied,
                               .first = t->pass->head.first_row,
                               .rows = t->width.vocabulary,
                               .stride = t->transformer->hidden};
  t->grad_head.segments = segment;
  t->grad_head.segment_count = 1;
  return TREADLE_OK;
}

/* The caller's windows. Of shards, the weights are shown to the other ranks on the board. */
static treadle_status take_given(treadle_trainer *t) {
  void *window = NULL;
  treadle_status status = TREADLE_OK;
  t->window = t->grad_window;
  if (!t->shards) return TREADLE_OK;
  if (t->ranks.board)
    t->window = (char *)treadle_board_own(t->ranks.board) +
                (treadle_train_shard_board(t) - (uint64_t)treadle_train_unit_bytes(t, TREADLE_FP32));
  else
    TRY(allocate(t, (size_t)treadle_train_unit_bytes(t, TREADLE_FP32), "gradients of a layer", &window));
  if (window) t->window = window;
out:
  return status;
}

/* Windows. Of shards, the board has the weights and the gradients of a unit. */
static treadle_status take_windows(treadle_trainer *t) {
  void *window = NULL;
  treadle_status status;
  if (t->grad_window) return take_given(t);
  if (t->offloads) t->host_bytes += t->grad_bytes + t->weight_bytes + t->optimizer.bytes;
  TRY(allocate(t, t->grad_bytes, "gradients", &window));
  t->grad_window = t->window = window;
  if (t->shards && t->ranks.board) {
    t->weights = treadle_board_own(t->ranks.board);
    t->window =
        t->weights + (treadle_train_shard_board(t) - (uint64_t)treadle_train_unit_bytes(t, TREADLE_FP32));
    return TREADLE_OK;
  }
  TRY(allocate(t, t->weight_bytes, "weights", &window));
  t->weights = window;
  if (t->shards)
    TRY(allocate(t, (size_t)treadle_train_unit_bytes(t, TREADLE_FP32), "gradients of a layer", &window));
  if (t->shards) t->window = window;
out:
  return status;
}

treadle_status treadle_train_allocate(treadle_trainer *t) {
  sizes s;
  treadle_status status;
  TRY(measure_products(t, &s));
  if (!t->work) TRY(allocate(t, t->work_bytes, "activations", &t->work));
  place(t, &s, t->work);
  TRY(take_windows(t));
  TRY(part_tied(t));
  TRY(take_optimizer(t));
out:
  return status;
}
