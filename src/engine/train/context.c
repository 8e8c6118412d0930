#include "train/context.h"

#include "base/argument.h"
#include "base/larger.h"
#include "base/text.h"
#include "layout/settings.h"

#include <string.h>

enum { SHARE_ROWS = 32 /* shares of gradients begin at whole tiles of kernels */ };

/* ---- Ranks --------------------------------------------------------------------------------------------- */

static treadle_status ranks_of_layout(const treadle_layout *layout, int64_t *cp_p) {
  treadle_arena arena = {0};
  treadle_settings settings;
  treadle_status status;
  *cp_p = 1;
  TRY(treadle_settings_parse(layout->text, &arena, &settings));
  if (strcmp(settings.type, "megatron") == 0) TRY(treadle_settings_size(&settings, "cp", 1, cp_p));
out:
  treadle_arena_release(&arena);
  return status;
}

/* How tokens are divided: among the cp of a layout, or by Ulysses among data parallel ranks. */
typedef struct division {
  const treadle_layout *layout;
  bool ulysses;
  int64_t ranks;
} division;

/* Which of the ranks that divide tokens a rank is, and the data parallel coordinate that they share. */
static treadle_status place_of(const division *d, int64_t rank, int64_t *index_p, int64_t *data_p) {
  treadle_status status;
  TRY(treadle_layout_coordinate(d->layout, rank, "dp", data_p));
  if (!d->ulysses) return treadle_layout_coordinate(d->layout, rank, "cp", index_p);
  *index_p = *data_p % d->ranks;
  *data_p /= d->ranks;
out:
  return status;
}

/* Are the experts of a replica spread over the ranks that divide tokens? Then it has all of these, and in any case one
 * data parallel coordinate. */
static treadle_status check_experts(const division *d, const treadle_replica *replica, bool *spreads_p) {
  int64_t first, first_data, index, data, others = 0;
  bool fits = true;
  treadle_status status = TREADLE_OK;
  *spreads_p = false;
  if (d->ranks == 1 || !replica || replica->rank_count == 1) return TREADLE_OK;
  TRY(place_of(d, replica->ranks[0], &first, &first_data));
  for (int i = 0; i < replica->rank_count; i++) {
    TRY(place_of(d, replica->ranks[i], &index, &data));
    others += index != first;
    fits = fits && data == first_data;
  }
  *spreads_p = others > 0;
  if (fits && (!others || others * d->ranks == replica->rank_count * (d->ranks - 1))) return TREADLE_OK;
  status =
      treadle_fail(TREADLE_REFUSED,
                   "layout '%s' spreads experts over some of its %lld context parallel (Ulysses) ranks, "
                   "or over other data parallel ranks; training takes an ep times etp that divides tp, "
                   "or is tp times %lld",
                   d->layout->text, (long long)d->ranks, (long long)d->ranks);
out:
  return status;
}

treadle_status treadle_context_place(const treadle_layout *layout, int32_t ulysses,
                                     treadle_replica *replica, int64_t rank,
                                     treadle_context_rank *place_p) {
  int64_t cp, ranks = ulysses > 1 ? ulysses : 1, number = rank, count = layout->ranks, index;
  bool spreads;
  treadle_status status;
  TRY(ranks_of_layout(layout, &cp));
  if (cp > 1 && ranks > 1)
    REFUSE("layout '%s' has cp=%lld, and ulysses_ranks is %lld: tokens are divided among context parallel "
           "ranks, "
           "or by Ulysses; say one of the two",
           layout->text, (long long)cp, (long long)ranks);
  const division d = {layout, ranks > 1, cp > 1 ? cp : ranks};
  TRY(check_experts(&d, replica, &spreads));
  if (replica) {
    if (spreads || d.ranks == 1) TRY(treadle_replica_divide(layout, rank, replica));
    number = d.ranks == 1 ? replica->place.number : replica->number;
    count = d.ranks == 1 ? replica->place.count : replica->count;
  }
  if (!spreads && count % ranks != 0)
    REFUSE("layout '%s' has %s, which Ulysses ranks, %lld, do not divide", layout->text,
           treadle_text_of_count(count, "data parallel rank"), (long long)ranks);
  *place_p = (treadle_context_rank){.data_rank = number / ranks,
                                    .data_ranks = count / ranks,
                                    .ranks = (int32_t)d.ranks,
                                    .index = (int32_t)(number % ranks)};
  if (cp == 1 && !spreads) goto out;
  TRY(place_of(&d, rank, &index, &place_p->data_rank));
  place_p->data_ranks = spreads ? count : count / cp;
  place_p->index = (int32_t)index;
out:
  return status;
}

int64_t treadle_context_most_rows(int64_t rows, int32_t ranks) {
  if (ranks == 1) return rows;
  return treadle_larger(treadle_context_most(rows, ranks),
                        rows < TREADLE_HEAD_ROWS ? rows : TREADLE_HEAD_ROWS);
}

treadle_status treadle_context_begin(treadle_back *back, int64_t rows) {
  int64_t all;
  back->context.now = rows;
  if (back->context.ranks == 1) return treadle_pass_count_rows(back->pass, rows, &all);
  treadle_pass_divide_rows(back->pass, rows);
  return TREADLE_OK;
}

treadle_row_range treadle_context_own(const treadle_back *back) {
  return treadle_context_span(back->context.now, back->context.ranks, back->context.index);
}

/* ---- Sizes --------------------------------------------------------------------------------------------- */

/* Of routers, and of the gate of a shared expert. */
static int64_t logits_of(const treadle_back *back) { return back->transformer->routing.experts + 1; }

int64_t treadle_context_columns(const treadle_back *back) {
  const treadle_train_columns *w = &back->width;
  const int64_t hidden = back->transformer->hidden;
  return hidden + treadle_larger(treadle_larger(treadle_larger(2 * w->inner, w->qkv), w->found),
                                 treadle_larger(2 * w->expert, logits_of(back)));
}

static int64_t most_share(const treadle_back *back, int64_t rows) {
  const int64_t units = (rows + SHARE_ROWS - 1) / SHARE_ROWS;
  return (units + back->context.ranks - 1) / back->context.ranks * SHARE_ROWS;
}

static int64_t most_share_of_logits(const treadle_back *back) {
  return most_share(back, logits_of(back) - 1) + most_share(back, 1);
}

/* Of all heads' queries, keys and values together. */
static int64_t most_share_of_heads(const treadle_back *back) {
  const treadle_train_columns *w = &back->width;
  return most_share(back, w->keys) + most_share(back, w->values - w->keys) +
         most_share(back, w->qkv - w->values);
}

int64_t treadle_context_leaf_columns(const treadle_back *back) {
  const treadle_train_columns *w = &back->width;
  const int64_t hidden = back->transformer->hidden;
  const int64_t inner = treadle_larger(w->inner, w->expert);
  const int64_t in = treadle_larger(2 * most_share(back, inner), most_share_of_heads(back));
  return treadle_larger(hidden + treadle_larger(in, most_share_of_logits(back)),
                        treadle_larger(inner, w->found) + most_share(back, hidden));
}

int64_t treadle_context_leaf_values(const treadle_back *back) {
  const treadle_train_columns *w = &back->width;
  const int64_t hidden = back->transformer->hidden;
  if (back->context.ranks == 1) return 0;
  const int64_t out = most_share(back, hidden) * treadle_larger(w->inner, w->found);
  const int64_t in = treadle_larger(2 * most_share(back, w->inner), most_share_of_heads(back));
  return treadle_larger(out, treadle_larger(in, most_share_of_logits(back)) * hidden);
}

int64_t treadle_context_most_sums(const treadle_back *back) {
  int64_t leaves = (back->context.rows + TREADLE_PRODUCT_LEAF - 1) / TREADLE_PRODUCT_LEAF, height = 0;
  if (back->context.ranks == 1 || back->outer || leaves < 2) return 0;
  while ((int64_t)1 << height < leaves) height++;
  return height + 1;
}

uint64_t treadle_context_most_room(const treadle_back *back) {
  const treadle_train_columns *w = &back->width;
  const int64_t own = treadle_context_most(back->context.rows, back->context.ranks),
                leaves = own / TREADLE_TOKEN_LEAF, hidden = back->transformer->hidden;
  int64_t room = treadle_context_room(back->pass);
  if (back->context.ranks == 1) return 0;
  room = treadle_larger(room, (own < TREADLE_CONTEXT_ROWS ? own : TREADLE_CONTEXT_ROWS) *
                                  treadle_context_columns(back));
  room = treadle_larger(room, leaves * treadle_larger(treadle_larger(hidden, w->inner), w->qkv));
  if (back->transformer->routing.experts) /* how often each was chosen; losses of rows */
    room = treadle_larger(room, treadle_larger(back->transformer->routing.experts, 2 * own));
  return (uint64_t)treadle_larger(room, TREADLE_HEAD_ROWS * hidden);
}

/* Leaves of the vocabulary of this rank's rows of the head, and which of them a context parallel rank computes. */
static treadle_row_range head_leaves(const treadle_back *back, int32_t index, int64_t *leaf_p) {
  const treadle_weight *head = &back->pass->head;
  *leaf_p = back->head_leaves > 1 ? TREADLE_HEAD_LEAF : head->rows > 0 ? head->rows : 1;
  const int64_t leaves = (head->row_count + *leaf_p - 1) / *leaf_p;
  return (treadle_row_range){leaves * index / back->context.ranks,
                             leaves * (index + 1) / back->context.ranks};
}

/* All ranks have room for the one with the most. */
uint64_t treadle_context_head_room(const treadle_back *back) {
  const treadle_weight *head = &back->pass->head;
  int64_t leaf, room = 0;
  for (int32_t index = 0; index < back->context.ranks && back->context.ranks > 1; index++) {
    const treadle_row_range mine = head_leaves(back, index, &leaf);
    const treadle_leaf_range leaves = {(int32_t)(head->first_row / leaf + mine.first),
                                       (int32_t)(mine.end - mine.first), (int32_t)back->head_leaves};
    const int64_t sums = leaves.leaves ? treadle_leaf_nodes(leaves, NULL) : 1;
    room = treadle_larger(room, treadle_larger(leaves.leaves * leaf, sums * back->transformer->hidden));
  }
  return (uint64_t)(room * TREADLE_HEAD_ROWS);
}

/* ---- Shares -------------------------------------------------------------------------------------------- */

treadle_row_range treadle_context_share(const treadle_back *back, int64_t rows) {
  const treadle_train_context *c = &back->context;
  const int64_t units = (rows + SHARE_ROWS - 1) / SHARE_ROWS;
  treadle_row_range share = {units * c->index / c->ranks * SHARE_ROWS,
                             units * (c->index + 1) / c->ranks * SHARE_ROWS};
  if (share.first > rows) share.first = rows;
  if (share.end > rows) share.end = rows;
  return share;
}

/* Of the rows of a weight that are here, those of the range. */
static treadle_status clip(const treadle_weight *weight, treadle_row_range rows, treadle_arena *arena,
                           treadle_weight *clipped_p) {
  treadle_segment *segments =
      treadle_arena_alloc_array(arena, (size_t)weight->segment_count + 1, sizeof *segments);
  const int64_t each = (int64_t)treadle_dtype_bytes(weight->dtype);
  int64_t at = 0;
  if (!segments) return treadle_fail(TREADLE_NO_MEMORY, "no memory for shares of gradients");
  *clipped_p = *weight;
  clipped_p->segments = segments;
  clipped_p->segment_count = 0;
  clipped_p->row_count = rows.end - rows.first;
  clipped_p->first_row = weight->first_row + rows.first;
  clipped_p->end_row = weight->first_row + rows.end;
  for (int32_t s = 0; s < weight->segment_count; at += weight->segments[s++].rows) {
    const treadle_segment *from = &weight->segments[s];
    const int64_t first = rows.first > at ? rows.first - at : 0;
    const int64_t end = rows.end < at + from->rows ? rows.end - at : from->rows;
    if (first >= end) continue;
    treadle_segment *to = &segments[clipped_p->segment_count++];
    *to = *from;
    to->at += (size_t)(first * from->stride * each);
    to->first += first;
    to->rows = end - first;
  }
  return TREADLE_OK;
}

static treadle_status share(const treadle_back *back, const treadle_weight *grads, int64_t count,
                            treadle_arena *arena, treadle_weight *shares) {
  treadle_status status = TREADLE_OK;
  for (int64_t i = 0; i < count; i++)
    TRY(clip(&grads[i], treadle_context_share(back, grads[i].row_count), arena, &shares[i]));
out:
  return status;
}

/* Of the experts of a layer, where it has some. */
static treadle_status share_experts(const treadle_back *back, const treadle_weight *grads,
                                    treadle_arena *arena, treadle_weight **shares_p) {
  const int64_t experts = back->transformer->routing.experts;
  if (!grads) return TREADLE_OK;
  *shares_p = treadle_arena_alloc_array(arena, (size_t)experts, sizeof **shares_p);
  if (!*shares_p) return treadle_fail(TREADLE_NO_MEMORY, "no memory for shares of gradients");
  return share(back, grads, experts, arena, *shares_p);
}

static treadle_status share_layers(treadle_back *back, treadle_arena *arena) {
  const treadle_transformer *d = back->transformer;
  treadle_layer_weights *to =
      treadle_arena_alloc_array(arena, (size_t)d->layers, sizeof *back->context.grads);
  treadle_status status = TREADLE_OK;
  back->context.grads = to;
  if (!to) return treadle_fail(TREADLE_NO_MEMORY, "no memory for shares of gradients");
  for (int32_t l = 0; l < d->layers; l++) {
    const treadle_layer_weights *from = &back->grads[l];
    TRY(share(back, from->weight, TREADLE_ROLES, arena, to[l].weight));
    TRY(share_experts(back, from->expert_gate, arena, &to[l].expert_gate));
    TRY(share_experts(back, from->expert_up, arena, &to[l].expert_up));
    TRY(share_experts(back, from->expert_down, arena, &to[l].expert_down));
  }
out:
  return status;
}

/* How often experts are chosen by the rows of all ranks. */
static treadle_status take_choices(treadle_back *back, treadle_arena *arena) {
  const size_t experts = (size_t)back->transformer->routing.experts;
  treadle_train_choices *c = &back->context.choices;
  c->before = treadle_arena_alloc_array(arena, experts + 1, sizeof *c->before);
  c->begin = treadle_arena_alloc_array(arena, experts + 1, sizeof *c->begin);
  if (c->before && c->begin) return TREADLE_OK;
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for the choices of %zu experts", experts);
}

treadle_status treadle_context_find_shares(treadle_back *back, treadle_arena *arena) {
  const treadle_weight *head = &back->pass->head;
  int64_t leaf;
  treadle_status status = TREADLE_OK;
  back->own_head = *head;
  back->own_grad_head = back->grad_head;
  if (back->context.ranks == 1) return TREADLE_OK;
  const treadle_row_range mine = head_leaves(back, back->context.index, &leaf);
  treadle_row_range rows = {mine.first * leaf, mine.end * leaf};
  if (rows.first > head->row_count) rows.first = head->row_count;
  if (rows.end > head->row_count) rows.end = head->row_count;
  TRY(clip(head, rows, arena, &back->own_head));
  TRY(clip(&back->grad_head, rows, arena, &back->own_grad_head));
  TRY(share_layers(back, arena));
  TRY(take_choices(back, arena));
out:
  return status;
}

/* ---- Rows of all ranks --------------------------------------------------------------------------------- */

/* Of these rows, those of a member. */
static treadle_row_range rows_of(const treadle_back *back, treadle_row_range rows, int32_t member) {
  treadle_row_range span = treadle_context_span(back->context.now, back->context.ranks, member);
  if (span.first < rows.first) span.first = rows.first;
  if (span.end > rows.end) span.end = rows.end;
  if (span.end < span.first) span.end = span.first;
  return span;
}

treadle_status treadle_context_meet(const treadle_back *back, int64_t rows, int64_t columns,
                                    const char *what) {
  const treadle_exchange_part part =
      treadle_exchange_slot(back->context.ranks, back->context.index, true, rows, columns);
  return treadle_parallel_slots(back->pass->context.exchange, &part, what);
}

treadle_status treadle_context_bring(const treadle_back *back, treadle_row_range rows,
                                     const treadle_context_matrix *matrices, int count, const char *what) {
  const treadle_row_range mine = rows_of(back, rows, back->context.index);
  const int64_t begin = treadle_context_own(back).first;
  float *to = treadle_exchange_room(back->pass->context.exchange);
  int64_t columns = 0;
  for (int i = 0; i < count; i++) columns += matrices[i].columns;
  for (int64_t row = mine.first; row < mine.end; row++)
    for (int i = 0; i < count; to += matrices[i++].columns)
      memcpy(to, matrices[i].at + (row - begin) * matrices[i].stride,
             (size_t)matrices[i].columns * sizeof *to);
  return treadle_context_meet(back, mine.end - mine.first, columns, what);
}

const float *treadle_context_row(const treadle_back *back, treadle_row_range rows, int64_t row,
                                 int64_t *run_p) {
  const treadle_exchange *exchange = back->pass->context.exchange;
  for (int32_t m = 0; m < back->context.ranks; m++) {
    const treadle_row_range theirs = rows_of(back, rows, m);
    int64_t there;
    if (row < theirs.first || row >= theirs.end) continue;
    const float *from = treadle_parallel_slot(exchange, m, &there);
    *run_p = theirs.end - row;
    return from + (row - theirs.first) * treadle_parallel_columns_of(exchange, m);
  }
  *run_p = 0;
  return NULL;
}

treadle_status treadle_context_take_rows(const treadle_back *back, const float *x, const int32_t *which,
                                         int64_t rows) {
  treadle_exchange *exchange = back->pass->context.exchange;
  const treadle_row_range own = treadle_context_own(back);
  const int64_t hidden = back->transformer->hidden;
  float *room = treadle_exchange_room(exchange);
  int64_t mine = 0, there;
  treadle_status status;
  for (int64_t i = 0; i < rows; i++)
    if (which[i] >= own.first && which[i] < own.end)
      memcpy(room + mine++ * hidden, x + (which[i] - own.first) * hidden, (size_t)hidden * sizeof *x);
  TRY(treadle_context_meet(back, mine, hidden, "rows for the head"));
  for (int32_t m = 0; m < back->context.ranks; m++) {
    const treadle_row_range theirs = treadle_context_span(back->context.now, back->context.ranks, m);
    const float *from = treadle_parallel_slot(exchange, m, &there);
    for (int64_t i = 0; i < rows; i++) {
      if (which[i] < theirs.first || which[i] >= theirs.end) continue;
      memcpy(back->buffers.head_x + i * hidden, from, (size_t)hidden * sizeof *from);
      from += hidden;
    }
  }
out:
  return status;
}
