/* The memory that both passes compute in: measured first, by the shapes alone, then taken at once. Nothing is taken in a step. */
#include "train/memory.h"

#include "base/dtype.h"
#include "base/larger.h"
#include "memory/limits.h"
#include "nn/attention_back.h"
#include "train/back_product.h"
#include "train/context.h"
#include "train/layer.h"
#include "train/sequence.h"
#include "train/trainer.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

/* ---- Widths ------------------------------------------------------------------------------------------- */

static void find_widths(treadle_back *back) {
  const treadle_transformer *d = back->transformer;
  const treadle_head_span *heads = &back->pass->heads;
  treadle_train_columns *w = &back->width;
  w->keys = heads->count * d->head_dim;
  w->values = w->keys + heads->kv_count * d->head_dim;
  w->qkv = w->values + heads->kv_count * d->value_dim;
  w->found = heads->count * d->value_dim;
  for (int32_t l = 0; l < d->layers; l++) {
    const treadle_layer_weights *layer = &back->pass->layers[l];
    w->mlp = treadle_larger(w->mlp, layer->weight[TREADLE_ROLE_DOWN].column_count);
    w->shared = treadle_larger(w->shared, layer->weight[TREADLE_ROLE_SHARED_DOWN].column_count);
    for (int64_t e = 0; layer->expert_down && e < d->routing.experts; e++)
      w->expert = treadle_larger(w->expert, layer->expert_down[e].column_count);
  }
  w->inner = treadle_larger(w->mlp, w->shared);
  w->vocabulary = back->pass->head.row_count;
  back->attended = (treadle_train_columns){.keys = heads->count / back->context.ranks * d->head_dim,
                                           .found = w->found / back->context.ranks};
  const treadle_context_heads at = treadle_context_heads_of(back->pass);
  back->attended.values = at.values;
  back->attended.qkv = at.columns;
  if (d->attention != TREADLE_ATTENTION_MLA) return;
  w->values = w->keys;
  w->qkv = w->keys + d->latent_dim + d->rope_dim;
  w->latent = heads->count * d->latent_dim;
  for (int32_t l = 0; l < d->layers; l++)
    w->narrow = treadle_larger(w->narrow, back->pass->layers[l].weight[TREADLE_ROLE_Q_DOWN].row_count);
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

/* Leaves of tokens that are multiplied at once, at most. */
static int64_t most_leaves(const treadle_back *back) {
  return back->context.ranks > 1 ? 1 : (back->rows + TREADLE_PRODUCT_LEAF - 1) / TREADLE_PRODUCT_LEAF;
}

/* Tokens of a micro batch as leaves, of which there are as many as can be. */
static treadle_gemm_inner most_tokens(const treadle_back *back) {
  int64_t products = most_leaves(back);
  return (treadle_gemm_inner){.dtype = back->pass->options.dtype,
                              .leaf = TREADLE_PRODUCT_LEAF,
                              .range = {0, (int32_t)products, (int32_t)products}};
}

static treadle_status measure_paired(const treadle_back *back, sizes *s, treadle_gemm_inner inner,
                                     int64_t columns, int64_t rows) {
  const treadle_gemm_inner tokens = most_tokens(back);
  int64_t width = (int64_t)inner.leaf * inner.range.leaves;
  treadle_status status;
  s->joined = treadle_larger(s->joined, (rows * width + 1) / 2);
  s->columns = treadle_larger(s->columns, columns);
  s->pointers =
      treadle_larger(treadle_larger(s->pointers, width), (int64_t)tokens.leaf * tokens.range.leaves);
  TRY(treadle_paired_measure(&back->pass->options, inner, columns, &s->packed));
  TRY(treadle_paired_measure(&back->pass->options, tokens, columns, &s->packed_x));
out:
  return status;
}

/* A product with leaves of `share` rows of a weight, this many of them here. */
static treadle_status measure_input(const treadle_back *back, sizes *s, int64_t share, int64_t leaves,
                                    int64_t columns, int64_t rows) {
  int64_t leaf = treadle_back_leaf(share);
  treadle_gemm_inner inner = {.dtype = back->pass->options.dtype,
                              .leaf = (int32_t)leaf,
                              .range = {0, (int32_t)leaves, (int32_t)leaves}};
  if (!leaves) return TREADLE_OK;
  if (back->outer) {
    treadle_outer_measure(back->outer, share * leaves, columns, &s->turned, &s->outer);
    s->columns = treadle_larger(s->columns, (columns + TREADLE_OUTER_COLUMNS_MOST - 1) /
                                                TREADLE_OUTER_COLUMNS_MOST * TREADLE_OUTER_COLUMNS_MOST);
    return TREADLE_OK;
  }
  if (back->pairs) return measure_paired(back, s, inner, columns, rows);
  s->turned = treadle_larger(s->turned, columns * leaf * leaves);
  s->joined = treadle_larger(s->joined, rows * leaf * leaves);
  s->columns = treadle_larger(s->columns, columns);
  return treadle_back_measure(&back->pass->options, inner, rows, &s->packed);
}

/* A gated MLP with this many columns of `all` in leaves here. */
static treadle_status measure_gated(const treadle_back *back, sizes *s, int64_t columns, int64_t all,
                                    int64_t leaves, int64_t rows) {
  const int64_t hidden = back->transformer->hidden;
  treadle_status status = TREADLE_OK;
  if (!columns) return TREADLE_OK;
  TRY(measure_input(back, s, hidden, 1, columns, rows));
  TRY(measure_input(back, s, 2 * all / leaves, columns * leaves / all, hidden, rows));
out:
  return status;
}

/* Rows of a block of an expert. */
static int64_t expert_rows(const treadle_back *back) {
  return back->rows < TREADLE_EXPERT_ROWS ? back->rows : TREADLE_EXPERT_ROWS;
}

static treadle_status measure_experts(const treadle_back *back, sizes *s) {
  const treadle_transformer *d = back->transformer;
  const treadle_train_columns *w = &back->width;
  treadle_status status = TREADLE_OK;
  if (!d->routing.experts) return TREADLE_OK;
  TRY(measure_gated(back, s, w->shared, d->shared_intermediate, back->pass->shared_leaves, back->rows));
  TRY(measure_gated(back, s, w->expert, d->expert_intermediate, back->pass->expert_leaves,
                    expert_rows(back)));
  TRY(measure_input(back, s, d->routing.experts + 1, 1, d->hidden, back->rows)); /* and a gate */
out:
  return status;
}

/* Products of attention for gradients of what q, k and v are multiplied from. */
static treadle_status measure_attention(const treadle_back *back, sizes *s) {
  const treadle_transformer *d = back->transformer;
  const int64_t keys = back->pass->heads.kv_count * back->key_leaves / d->kv_heads;
  return measure_input(back, s, back->width.qkv / keys, keys, d->hidden, back->rows);
}

/* The same where it is latent, and those of each head. */
static treadle_status measure_latent(const treadle_back *back, sizes *s) {
  const treadle_transformer *d = back->transformer;
  const treadle_train_columns *w = &back->width;
  const int64_t all = back->pass->attention_leaves, leaves = back->pass->heads.count * all / d->heads;
  treadle_status status;
  TRY(measure_input(back, s, d->heads * d->head_dim / all, leaves, w->narrow ? w->narrow : d->hidden,
                    back->rows));
  TRY(measure_input(back, s, w->narrow + d->latent_dim + d->rope_dim, 1, d->hidden, back->rows));
  TRY(measure_input(back, s, d->value_dim, 1, d->latent_dim, back->rows));
out:
  return status;
}

static treadle_status measure_products(const treadle_back *back, sizes *s) {
  const treadle_transformer *d = back->transformer;
  const treadle_train_columns *w = &back->width;
  int64_t head = back->head_leaves > 1 ? (w->vocabulary + TREADLE_HEAD_LEAF - 1) / TREADLE_HEAD_LEAF : 1;
  treadle_status status;
  *s = (sizes){.part =
                   treadle_larger(treadle_larger(d->hidden, w->inner), treadle_larger(w->qkv, w->narrow))};
  TRY(measure_gated(back, s, w->mlp, d->intermediate, back->pass->mlp_leaves, back->rows));
  TRY(measure_experts(back, s));
  TRY(measure_input(back, s, d->hidden, 1, w->found, back->rows));
  TRY(w->latent ? measure_latent(back, s) : measure_attention(back, s));
  if (w->vocabulary)
    TRY(measure_input(back, s, back->head_leaves > 1 ? TREADLE_HEAD_LEAF : d->vocabulary, head, d->hidden,
                      TREADLE_HEAD_ROWS));
  if (back->outer)
    s->outer = treadle_larger(s->outer, (int64_t)TREADLE_PRODUCT_LEAF * TREADLE_OUTER_ROWS_MOST);
  else if (!back->pairs)
    TRY(treadle_back_measure(&back->pass->options, most_tokens(back), TREADLE_WEIGHT_ROWS, &s->packed));
out:
  return status;
}

/* Of adapters: what passes forward need, then what backward does. */
static void place_merged(treadle_train_adapters *a, memory *m) {
  if (!a) return;
  a->merged = take(m, (int64_t)a->merged_bytes, 1);
  a->panels = take(m, treadle_train_panel_values(a), sizeof *a->panels);
}

static void place_adapters(treadle_train_adapters *a, memory *m) {
  const int64_t unit = ALIGNMENT / (int64_t)sizeof(float);
  if (!a) return;
  a->inner = take(m, a->rows * a->adapter->rank, sizeof *a->inner);
  a->outer = take(m, a->rows * a->adapter->rank, sizeof *a->outer);
  a->by_leaf = take(m, treadle_train_adapter_leaf_values(a), sizeof *a->by_leaf);
  a->block_each = (treadle_train_block_values(a) + unit - 1) / unit * unit;
  a->blocks = take(m, a->back->pass->options.threads * a->block_each, sizeof *a->blocks);
}

static void place_kept(treadle_back *back, const treadle_train_stage *stage, memory *m) {
  const treadle_train_chunk *last = &stage->chunks[stage->chunk_count - 1];
  const int64_t layers = last->place + last->end_layer - last->first_layer;
  const int64_t stream = back->rows * back->transformer->hidden;
  treadle_train_buffers *b = &back->buffers;
  back->kept_each = treadle_train_kept_values(back);
  b->kept = take(m, layers * back->kept_count * back->kept_each, sizeof(float));
  b->out = treadle_train_is_last(stage) ? take(m, back->kept_count * stream, sizeof(float)) : NULL;
  b->again = back->keeps_all ? NULL : take(m, treadle_train_again_values(back), sizeof(float));
  b->x = back->keeps_all ? NULL : take(m, stream, sizeof(float));
}

/* What a pass forward needs, if nothing is kept. */
static void place_forward(treadle_trainer *t, memory *m) {
  const treadle_pass *p = t->pass;
  const int64_t rows = t->back.context.rows, blocks = t->memory.blocks;
  treadle_train_buffers *b = &t->back.buffers;
  t->memory.pass_work = take(m, (int64_t)(treadle_pass_work_bytes(p) + treadle_pass_packed_bytes(p)), 1);
  t->memory.cache = take(m, blocks, treadle_pass_block_bytes(p));
  if (t->shards) {
    char *gathered = take(m, treadle_train_unit_bytes(t->shards, p->options.dtype), 1);
    treadle_train_place_gathered(t->shards, gathered, take(m, treadle_train_shard_block(), sizeof(float)));
  }
  place_merged(t->adapters, m);
  b->score = take(m, t->transformer->score < 0 ? 0 : t->transformer->hidden, sizeof *b->score);
  b->tokens = take(m, rows, sizeof *b->tokens);
  b->targets = take(m, rows, sizeof *b->targets);
  b->which = take(m, rows, sizeof *b->which);
  b->places = take(m, rows, sizeof *b->places);
  b->spans = take(m, rows, sizeof *b->spans);
  b->table = take(m, 2 * (blocks + rows / 64), sizeof *b->table);
  b->head_x =
      t->back.context.ranks > 1 ? take(m, TREADLE_HEAD_ROWS * t->transformer->hidden, sizeof(float)) : NULL;
}

/* What context parallel ranks need beside. */
static void place_context(treadle_back *back, memory *m) {
  treadle_train_buffers *b = &back->buffers;
  if (back->context.ranks == 1) return;
  b->leaf = take(m, TREADLE_PRODUCT_LEAF * treadle_context_leaf_columns(back), sizeof(float));
}

static void place_latent(treadle_back *back, memory *m) {
  const treadle_transformer *d = back->transformer;
  const int64_t rows = back->rows, keys = d->latent_dim + d->rope_dim,
                leaves = back->pass->heads.count * back->pass->attention_leaves / d->heads;
  back->buffers.latent.narrow = take(m, rows * back->width.narrow, sizeof(float));
  back->buffers.latent.dnarrow = take(m, rows * back->width.narrow, sizeof(float));
  back->buffers.latent.dlatent = take(m, leaves * rows * (keys + d->latent_dim), sizeof(float));
  back->buffers.latent.dkeys = take(m, rows * keys, sizeof(float));
}

/* `ties`: this rank has both halves of a tied gradient. */
static void place_back(treadle_back *back, const sizes *s, bool ties, memory *m) {
  const treadle_transformer *d = back->transformer;
  const treadle_pass *p = back->pass;
  const treadle_train_columns *w = &back->width;
  treadle_train_buffers *b = &back->buffers;
  const int64_t rows = back->rows, stream = rows * d->hidden, experts = expert_rows(back);
  const size_t each = treadle_dtype_bytes(p->options.dtype);
  int64_t width = most_leaves(back) * TREADLE_PRODUCT_LEAF, tied = ties ? w->vocabulary * d->hidden : 0;
  b->normed = take(m, stream, sizeof(float));
  b->normed2 = take(m, stream, sizeof(float));
  b->dnormed = take(m, stream, sizeof(float));
  b->dx = take(m, stream, sizeof(float));
  b->dqkv = take(m, rows * w->qkv, sizeof(float));
  b->middle =
      take(m,
           treadle_larger(rows * (back->context.ranks > 1 ? treadle_larger(w->inner, w->found) : w->inner),
                          experts * w->expert),
           sizeof(float));
  b->dmiddle = take(m, treadle_larger(rows * treadle_larger(w->inner, w->found), experts * w->expert),
                    sizeof(float));
  b->experts.dy = take(m, d->routing.experts ? experts * d->hidden : 0, sizeof(float));
  b->experts.gate_up = take(m, experts * 2 * w->expert, sizeof(float));
  b->experts.row_losses = take(m, d->routing.experts ? rows : 0, sizeof *b->experts.row_losses);
  b->experts.by_shared = take(m, w->shared ? rows : 0, sizeof(float));
  if (w->latent) place_latent(back, m);
  b->joined = take(m, s->joined, sizeof(float));
  b->parts = take(m, (rows / TREADLE_TOKEN_LEAF + 1) * s->part, sizeof(float));
  b->head_parts = treadle_train_norms_heads(d) ? take(m, w->keys, sizeof(float)) : NULL;
  b->turned = take(m, s->turned, each);
  b->turned_x = back->adapters ? NULL
                : back->pairs  ? take(m, (int64_t)s->packed_x, 1)
                               : take(m, s->columns * width, each);
  b->pointers = take(m, s->pointers, sizeof *b->pointers);
  b->turned_dy = take(m, back->outer || back->adapters ? 0 : TREADLE_WEIGHT_ROWS * width, sizeof(float));
  b->product = take(m, back->outer || back->pairs || back->adapters ? 0 : TREADLE_WEIGHT_ROWS * s->columns,
                    sizeof(float));
  b->outer_each = (s->outer + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  b->outer = take(m, p->options.threads * b->outer_each, sizeof(float));
  b->packed = take(m, (int64_t)s->packed, 1);
  b->scratch_bytes =
      (treadle_attention_back_bytes(back->context.rows, p->kv.key_dim, p->kv.value_dim) + ALIGNMENT - 1) /
      ALIGNMENT * ALIGNMENT;
  b->scratch = take(m, p->options.threads, b->scratch_bytes);
  b->apart_leaves = tied;
  b->apart_each = treadle_context_leaf_values(back);
  b->apart = take(m, tied + treadle_context_most_sums(back) * b->apart_each, sizeof(float));
  b->tied = ties ? b->apart : NULL;
  place_context(back, m);
}

static void place_sequences(treadle_sequence_losses *s, const treadle_back *back, int64_t most, memory *m) {
  const int64_t experts = back->transformer->routing.experts, parts = 2 * most;
  s->experts = experts;
  s->part = take(m, back->context.rows, sizeof *s->part);
  s->rows = take(m, most, sizeof *s->rows);
  s->tokens = take(m, parts, sizeof *s->tokens);
  s->chosen = take(m, parts * experts, sizeof *s->chosen);
  s->by_probability = take(m, parts * experts, sizeof *s->by_probability);
}

static void place(treadle_trainer *t, const sizes *s, void *at) {
  const bool ties = t->transformer->head == t->transformer->embed && t->stage.pipeline.stages == 1 &&
                    !t->shards && !t->adapters;
  memory m = {.base = at};
  place_forward(t, &m);
  t->memory.forward_bytes = m.used;
  place_kept(&t->back, &t->stage, &m);
  place_back(&t->back, s, ties, &m);
  if (t->routers.by_sequence) place_sequences(&t->routers.sequences, &t->back, t->most_sequences, &m);
  place_adapters(t->adapters, &m);
  t->memory.work_bytes = t->windows.forward_only ? t->memory.forward_bytes : m.used;
}

/* Masters, where weights are not fp32, and two moments. */
void treadle_train_measure_optimizer(treadle_train_optimizer *o, treadle_dtype dtype) {
  const size_t states = dtype == TREADLE_FP32 ? 2 : 3;
  o->bytes = o->wanted ? states * (size_t)treadle_train_state_elements(o) * sizeof(float) : 0;
}

treadle_status treadle_train_measure(treadle_trainer *t) {
  treadle_train_windows *w = &t->windows;
  sizes s;
  treadle_status status;
  find_widths(&t->back);
  t->back.own_rows = treadle_train_most_own_rows(&t->back, t->stage.ranks);
  TRY(measure_products(&t->back, &s));
  place(t, &s, NULL);
  w->weight_bytes = treadle_layout_window_bytes(w->layout, w->rank);
  if (t->adapters)
    w->grad_bytes = w->adapter_bytes;
  else
    w->grad_bytes = w->forward_only ? 0 : treadle_layout_window_bytes(w->grad_layout, w->rank);
  treadle_train_measure_optimizer(&t->optimizer, treadle_train_trained_dtype(&t->back));
out:
  return status;
}

/* ---- Taking it ---------------------------------------------------------------------------------------- */

static treadle_status allocate(treadle_train_memory *m, size_t bytes, const char *what, void **memory_p) {
  treadle_status status;
  TRY(treadle_limits_ask(bytes, what));
  if (posix_memalign(memory_p, ALIGNMENT, bytes + ALIGNMENT) != 0)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for %s of %zu bytes", what, bytes);
  m->taken[m->taken_count++] = *memory_p;
  m->taken_bytes += bytes;
  memset(*memory_p, 0, bytes);
out:
  return status;
}

void treadle_train_free(treadle_train_memory *m) {
  while (m->taken_count > 0) free(m->taken[--m->taken_count]);
}

static treadle_status take_optimizer(treadle_train_optimizer *o, treadle_train_memory *m,
                                     treadle_dtype dtype) {
  const int64_t elements = treadle_train_state_elements(o);
  void *window = NULL;
  treadle_status status = TREADLE_OK;
  if (!o->wanted) return TREADLE_OK;
  if (!o->exp_avg) {
    TRY(allocate(m, o->bytes, "state of the optimizer", &window));
    o->exp_avg = window;
  }
  o->exp_avg_sq = o->exp_avg + elements;
  if (dtype != TREADLE_FP32) o->master = o->exp_avg_sq + elements;
out:
  return status;
}

/* The head's half of a tied gradient lies in memory of its own. */
static treadle_status part_tied(treadle_back *back, treadle_arena *arena) {
  treadle_segment *segment;
  if (!back->buffers.tied) return TREADLE_OK;
  segment = treadle_arena_alloc_array(arena, 1, sizeof *segment);
  if (!segment) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a trainer");
  *segment = (treadle_segment){.copy = (const char *)back->buffers.apart,
                               .first = back->pass->head.first_row,
                               .rows = back->width.vocabulary,
                               .stride = back->transformer->hidden};
  back->grad_head.segments = segment;
  back->grad_head.segment_count = 1;
  return TREADLE_OK;
}

/* Where this rank's gradients of a unit are on the board. */
static char *unit_on_board(const treadle_trainer *t) {
  const uint64_t unit = (uint64_t)treadle_train_unit_grad_bytes(t->shards);
  return (char *)treadle_board_own(t->ranks.board) + (treadle_train_shard_board(t->shards) - unit);
}

static treadle_status take_unit(treadle_trainer *t) {
  const size_t unit = (size_t)treadle_train_unit_grad_bytes(t->shards);
  void *window = NULL;
  treadle_status status;
  TRY(allocate(&t->memory, unit, "gradients of a layer", &window));
  t->back.window = window;
out:
  return status;
}

/* The caller's windows. Of shards, the weights are shown to the other ranks on the board. */
static treadle_status take_given(treadle_trainer *t) {
  t->back.window = t->windows.grads;
  if (!t->shards) return TREADLE_OK;
  if (!t->ranks.board) return take_unit(t);
  t->back.window = unit_on_board(t);
  return TREADLE_OK;
}

/* Windows. Of shards, the board has the weights and the gradients of a unit. */
static treadle_status take_windows(treadle_trainer *t) {
  treadle_train_windows *w = &t->windows;
  void *window = NULL;
  treadle_status status;
  if (w->given) return take_given(t);
  if (w->offloads) t->memory.host_bytes += w->grad_bytes + w->weight_bytes + t->optimizer.bytes;
  if (!w->forward_only) TRY(allocate(&t->memory, w->grad_bytes, "gradients", &window));
  w->grads = t->back.window = window;
  if (t->shards && t->ranks.board) {
    w->weights = treadle_board_own(t->ranks.board);
    t->back.window = unit_on_board(t);
    return TREADLE_OK;
  }
  TRY(allocate(&t->memory, w->weight_bytes, "weights", &window));
  w->weights = window;
  if (t->shards) TRY(take_unit(t));
out:
  return status;
}

/* Adapters lie in memory that stays where it is: on the board, where other ranks have other parts of them. */
static treadle_status take_trained(treadle_train_windows *w, const treadle_train_adapters *a,
                                   treadle_board *board, uint64_t at, treadle_train_memory *m) {
  void *window = w->weights;
  treadle_status status = TREADLE_OK;
  if (a && board)
    window = (char *)treadle_board_own(board) + at;
  else if (a)
    TRY(allocate(m, w->adapter_bytes, "adapters", &window));
  w->trained = window;
out:
  return status;
}

treadle_status treadle_train_allocate(treadle_trainer *t) {
  treadle_train_memory *m = &t->memory;
  sizes s;
  treadle_status status;
  TRY(measure_products(&t->back, &s));
  if (!m->work) TRY(allocate(m, m->work_bytes, "activations", &m->work));
  place(t, &s, m->work);
  TRY(take_windows(t));
  TRY(take_trained(&t->windows, t->adapters, t->shards ? NULL : t->ranks.board, t->ranks.adapters_at, m));
  if (t->adapters && t->adapters->gathers) {
    void *all = NULL;
    TRY(allocate(m, (size_t)t->adapters->adapter->elems * sizeof(float), "adapters of all ranks", &all));
    t->adapters->all = all;
  }
  TRY(part_tied(&t->back, &t->arena));
  TRY(treadle_context_find_shares(&t->back, &t->arena));
  TRY(take_optimizer(&t->optimizer, m, treadle_train_trained_dtype(&t->back)));
out:
  return status;
}
