/* Plans: both directions of one rank, their pages, and what is told about them. */
#include "plan/plan.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "base/text.h"
#include "plan/direction.h"
#include "plan/pages.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ALGORITHM = 1 }; /* part of the digest: raise it when the same inputs give other plans */

static const int64_t default_page = 2 << 20, default_cap = 256 << 20;

static int64_t pages_of(int64_t bytes, int64_t page_bytes) { return (bytes + page_bytes - 1) / page_bytes; }

static int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }

uint64_t treadle_op_mark(const treadle_op *op) {
  uint64_t mark = treadle_hash_more((uint64_t)op->to, op->to_dtype);
  for (int d = 0; d < op->ndim; d++) {
    mark = treadle_hash_more(mark, (uint64_t)op->size[d]);
    mark = treadle_hash_more(mark, (uint64_t)op->to_stride[d]);
  }
  return mark;
}

int32_t treadle_plan_waves(const treadle_layout *from, const treadle_layout *to, int64_t page_bytes,
                           int64_t cap_bytes) {
  int64_t bytes = page_bytes * pages_of(largest(treadle_layout_window_max(from), treadle_layout_window_max(to)),
                                        page_bytes);
  int64_t waves = cap_bytes > 0 ? (8 * bytes + cap_bytes - 1) / cap_bytes : TREADLE_MAX_WAVES;
  if (waves < 1) return 1;
  return waves > TREADLE_MAX_WAVES ? TREADLE_MAX_WAVES : (int32_t)waves;
}

static treadle_status check(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                            int64_t page_bytes) {
  if (from->model != to->model)
    return treadle_fail(TREADLE_REFUSED, "plan: '%s' and '%s' are layouts of two models", from->text, to->text);
  if (from->ranks != to->ranks)
    return treadle_fail(TREADLE_REFUSED, "plan: '%s' is of %" PRId64 " ranks and '%s' of %" PRId64,
                        from->text, from->ranks, to->text, to->ranks);
  if (rank < 0 || rank >= from->ranks)
    return treadle_fail(TREADLE_REFUSED, "plan: rank %" PRId64 " is not one of %" PRId64, rank, from->ranks);
  if (page_bytes < 4096 || (page_bytes & (page_bytes - 1)) != 0)
    return treadle_fail(TREADLE_REFUSED, "plan: a page of %" PRId64 " bytes is no power of two from 4 KiB",
                        page_bytes);
  return TREADLE_OK;
}

/* ---- Lives of the pages of both windows ---- */

typedef struct lives {
  treadle_page_life *from, *to;
  int64_t from_count, to_count;
} lives;

static treadle_page_life *new_lives(int64_t count) {
  treadle_page_life *pages = treadle_alloc_array((size_t)count + 1, sizeof *pages);
  for (int64_t i = 0; pages && i < count; i++) pages[i] = (treadle_page_life){TREADLE_MAX_WAVES, -1};
  return pages;
}

static treadle_status lives_create(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                   int64_t page_bytes, lives *l) {
  l->from_count = pages_of((int64_t)treadle_layout_window_bytes(from, rank), page_bytes);
  l->to_count = pages_of((int64_t)treadle_layout_window_bytes(to, rank), page_bytes);
  if (l->from_count + l->to_count > INT32_MAX)
    return treadle_fail(TREADLE_REFUSED, "plan: rank %" PRId64 " would have %" PRId64
                        " pages; take larger ones", rank, l->from_count + l->to_count);
  l->from = new_lives(l->from_count);
  l->to = new_lives(l->to_count);
  if (!l->from || !l->to) return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  return TREADLE_OK;
}

static void lives_release(lives *l) {
  treadle_free(l->from);
  treadle_free(l->to);
}

/* A page of which nothing is ever touched (gaps between storage tensors) lives in the first wave. */
static void settle_lives(treadle_page_life *pages, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (pages[i].last < 0) pages[i] = (treadle_page_life){0, 0};
}

/* ---- Sinks ---- */

typedef struct page_sink { /* marks pages only */
  treadle_sink sink;
  treadle_page_life *pages;
  int64_t page_bytes;
} page_sink;

static treadle_status take_page(treadle_sink *sink, const treadle_op *op) {
  page_sink *s = (page_sink *)sink;
  treadle_pages_touch(s->pages, s->page_bytes, op);
  return TREADLE_OK;
}

typedef struct op_sink { /* marks pages, counts bytes and keeps ops, if there is a place for each */
  treadle_sink sink;
  treadle_page_life *pages;
  int64_t page_bytes;
  int64_t rank;
  int32_t waves;
  bool reverse;
  treadle_direction *direction;
  size_t *inbound;
  bool keep;
} op_sink;

static treadle_status take_op(treadle_sink *sink, const treadle_op *canonical) {
  op_sink *s = (op_sink *)sink;
  treadle_direction *direction = s->direction;
  treadle_op op = *canonical;
  treadle_pages_touch(s->pages, s->page_bytes, &op);
  treadle_dtype from = (treadle_dtype)op.from_dtype, to = (treadle_dtype)op.to_dtype;
  int64_t narrow = (int64_t)treadle_dtype_bytes(treadle_dtype_bytes(from) < treadle_dtype_bytes(to) ? from : to);
  int64_t bytes = op.elems * narrow, written = op.elems * (int64_t)treadle_dtype_bytes(to);
  if (op.source < 0) {
    direction->fill_bytes += written;
  } else {
    if (op.source == s->rank)
      direction->resident_bytes += bytes;
    else
      direction->moved_bytes += bytes;
    if (s->inbound && op.source != s->rank) s->inbound[op.source] += (size_t)bytes;
  }
  direction->written_bytes += written;
  if (!s->keep) return TREADLE_OK;
  if (s->reverse) op.wave = s->waves - 1 - op.wave;
  direction->coverage += treadle_op_mark(&op);
  return treadle_array_push(&direction->ops, op);
}

/* ---- Making ---- */

/* In a wave: own, then others beginning with the next rank, then fills, then twins; then by address. */
static int64_t distance(const treadle_op *op, int64_t rank, int64_t ranks) {
  if (op->twin) return ranks + 1;
  if (op->source < 0) return ranks;
  return (op->source - rank + ranks) % ranks;
}

typedef struct op_key {
  int32_t wave, index;
  int64_t distance, to;
} op_key;

static int compare_keys(const void *a, const void *b) {
  const op_key *x = a, *y = b;
  if (x->wave != y->wave) return x->wave < y->wave ? -1 : 1;
  if (x->distance != y->distance) return x->distance < y->distance ? -1 : 1;
  if (x->to != y->to) return x->to < y->to ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

static treadle_status sort_ops(treadle_plan *plan, treadle_direction *direction) {
  size_t count = direction->ops.count;
  op_key *keys = treadle_alloc_array(count + 1, sizeof *keys);
  treadle_op *sorted = treadle_alloc_array(count + 1, sizeof *sorted);
  direction->wave_first =
      treadle_arena_alloc_array(&plan->arena, (size_t)plan->waves + 1, sizeof *direction->wave_first);
  if (!keys || !sorted || !direction->wave_first) {
    treadle_free(keys);
    treadle_free(sorted);
    return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  }
  for (size_t i = 0; i < count; i++) {
    const treadle_op *op = &direction->ops.items[i];
    keys[i] = (op_key){op->wave, (int32_t)i, distance(op, plan->rank, plan->from->ranks), op->to};
    direction->wave_first[op->wave + 1]++;
  }
  for (int32_t w = 0; w < plan->waves; w++) direction->wave_first[w + 1] += direction->wave_first[w];
  qsort(keys, count, sizeof *keys, compare_keys);
  for (size_t i = 0; i < count; i++) sorted[i] = direction->ops.items[keys[i].index];
  treadle_free(keys);
  treadle_array_release(&direction->ops);
  direction->ops.items = sorted;
  direction->ops.count = count;
  direction->ops.capacity = count + 1;
  return TREADLE_OK;
}

static treadle_status start_direction(treadle_plan *plan, treadle_direction *direction) {
  direction->first_reclaim = plan->waves;
  direction->need = treadle_arena_alloc_array(&plan->arena, (size_t)plan->waves, sizeof *direction->need);
  if (!direction->need) return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  for (int32_t w = 0; w < plan->waves; w++) direction->need[w] = -1;
  return TREADLE_OK;
}

/* Does every value come back the same? Of all ranks, so that all of them say the same. */
static bool is_lossless(const treadle_layout *from, const treadle_layout *to) {
  const treadle_model *model = from->model;
  for (int32_t t = 0; t < model->tensor_count; t++)
    if (!treadle_dtype_lossless(treadle_layout_dtype(from, &model->tensors[t]),
                                treadle_layout_dtype(to, &model->tensors[t])))
      return false;
  return true;
}

static uint64_t digest_of(const treadle_plan *plan) {
  uint64_t hash = treadle_hash_more(ALGORITHM, plan->from->model->digest);
  hash = treadle_hash_more(hash, plan->from->digest);
  hash = treadle_hash_more(hash, plan->to->digest);
  hash = treadle_hash_more(hash, (uint64_t)plan->from->order.f);
  hash = treadle_hash_more(hash, (uint64_t)plan->to->order.f);
  hash = treadle_hash_more(hash, (uint64_t)plan->page_bytes);
  hash = treadle_hash_more(hash, (uint64_t)plan->cap_bytes);
  return treadle_hash_more(hash, (uint64_t)plan->waves);
}

static treadle_status make_directions(treadle_plan *plan, treadle_classes *classes, lives *l) {
  treadle_status status = TREADLE_OK;
  classes->waves = plan->waves;
  TRY(start_direction(plan, &plan->forward));
  TRY(start_direction(plan, &plan->back));
  op_sink forward = {.sink = {.take = take_op},
                     .pages = l->to,
                     .page_bytes = plan->page_bytes,
                     .rank = plan->rank,
                     .waves = plan->waves,
                     .direction = &plan->forward,
                     .keep = true};
  TRY(treadle_direction_walk(classes, plan->from, plan->to, plan->rank, &forward.sink));
  op_sink back = forward;
  back.pages = l->from;
  back.reverse = true;
  back.direction = &plan->back;
  TRY(treadle_direction_walk(classes, plan->to, plan->from, plan->rank, &back.sink));
  TRY(sort_ops(plan, &plan->forward));
  TRY(sort_ops(plan, &plan->back));
  TRY(treadle_layout_inbound(plan->from, plan->to, plan->rank, &plan->forward.lower_bound_bytes));
  TRY(treadle_layout_inbound(plan->to, plan->from, plan->rank, &plan->back.lower_bound_bytes));
out:
  return status;
}

static treadle_status cap_min_of(treadle_classes *classes, int64_t rank, int64_t page_bytes,
                                 int64_t *cap_min_p) {
  treadle_status status = TREADLE_OK;
  lives l = {0};
  int64_t physical;
  classes->waves = TREADLE_MAX_WAVES;
  TRY(lives_create(classes->from, classes->to, rank, page_bytes, &l));
  page_sink sink = {{take_page, true}, l.to, page_bytes};
  TRY(treadle_direction_walk(classes, classes->from, classes->to, rank, &sink.sink));
  sink.pages = l.from;
  TRY(treadle_direction_walk(classes, classes->to, classes->from, rank, &sink.sink));
  settle_lives(l.from, l.from_count);
  settle_lives(l.to, l.to_count);
  TRY(treadle_pages_share(l.from, l.from_count, l.to, l.to_count, TREADLE_MAX_WAVES, NULL, NULL, NULL, NULL,
                          &physical));
  *cap_min_p = (physical - largest(l.from_count, l.to_count)) * page_bytes;
out:
  lives_release(&l);
  return status;
}

treadle_status treadle_plan_cap_min(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                    int64_t page_bytes, int64_t *cap_min_p) {
  treadle_status status = TREADLE_OK;
  treadle_classes classes = {0};
  TRY(check(from, to, rank, page_bytes));
  TRY(treadle_classes_create(from, to, page_bytes, &classes));
  TRY(cap_min_of(&classes, rank, page_bytes, cap_min_p));
out:
  treadle_classes_release(&classes);
  return status;
}

treadle_status treadle_plan_make(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                 int64_t page_bytes, int32_t waves, int64_t cap_bytes, bool want_cap_min,
                                 treadle_plan **plan_p) {
  treadle_status status = TREADLE_OK;
  treadle_classes classes = {0};
  lives l = {0};
  *plan_p = NULL;
  treadle_plan *plan = treadle_alloc(sizeof *plan);
  if (!plan) return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  TRY(check(from, to, rank, page_bytes));
  if (waves < 1 || waves > TREADLE_MAX_WAVES) {
    status = treadle_fail(TREADLE_REFUSED, "plan: %d waves; from 1 to %d will do", waves, TREADLE_MAX_WAVES);
    goto out;
  }
  *plan = (treadle_plan){.from = from,
                         .to = to,
                         .rank = rank,
                         .waves = waves,
                         .page_bytes = page_bytes,
                         .cap_bytes = cap_bytes,
                         .lossless = is_lossless(from, to)};
  TRY(treadle_classes_create(from, to, page_bytes, &classes));
  TRY(lives_create(from, to, rank, page_bytes, &l));
  TRY(make_directions(plan, &classes, &l));
  plan->from_pages = l.from_count;
  plan->to_pages = l.to_count;
  plan->from_page = treadle_arena_alloc_array(&plan->arena, (size_t)l.from_count + 1, sizeof *plan->from_page);
  plan->to_page = treadle_arena_alloc_array(&plan->arena, (size_t)l.to_count + 1, sizeof *plan->to_page);
  if (!plan->from_page || !plan->to_page) {
    status = treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
    goto out;
  }
  settle_lives(l.from, l.from_count);
  settle_lives(l.to, l.to_count);
  TRY(treadle_pages_share(l.from, l.from_count, l.to, l.to_count, waves, plan->from_page, plan->to_page,
                          &plan->forward, &plan->back, &plan->physical_pages));
  if (want_cap_min) TRY(cap_min_of(&classes, rank, page_bytes, &plan->cap_min_bytes));
  plan->digest = digest_of(plan);
  *plan_p = plan;
out:
  if (status != TREADLE_OK) treadle_plan_destroy(plan);
  lives_release(&l);
  treadle_classes_release(&classes);
  return status;
}

treadle_status treadle_plan_create(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                   const treadle_plan_options *options, treadle_plan **plan_p) {
  treadle_status status = TREADLE_OK;
  treadle_plan_options o = options ? *options : (treadle_plan_options){0};
  int64_t page = o.page_bytes ? (int64_t)o.page_bytes : default_page, cap = (int64_t)o.cap_bytes, cap_min;
  *plan_p = NULL;
  TRY(treadle_plan_cap_min(from, to, rank, page, &cap_min));
  if (cap == 0) cap = largest(default_cap, cap_min);
  if (cap < cap_min) {
    status = treadle_fail(TREADLE_REFUSED, "plan: rank %" PRId64 ": a cap of %s is less than cap_min, %s",
                          rank, treadle_text_of_size((size_t)cap), treadle_text_of_size((size_t)cap_min));
    goto out;
  }
  int32_t waves = o.waves ? o.waves : treadle_plan_waves(from, to, page, cap);
  TRY(treadle_plan_make(from, to, rank, page, waves, cap, false, plan_p));
  treadle_plan *plan = *plan_p;
  int64_t bound = largest(plan->from_pages, plan->to_pages) * page + cap;
  if (!o.waves && plan->physical_pages * page > bound) {
    treadle_plan_destroy(plan);
    TRY(treadle_plan_make(from, to, rank, page, TREADLE_MAX_WAVES, cap, false, plan_p));
  }
  (*plan_p)->cap_min_bytes = cap_min;
out:
  return status;
}

void treadle_plan_destroy(treadle_plan *plan) {
  if (!plan) return;
  treadle_array_release(&plan->forward.ops);
  treadle_array_release(&plan->back.ops);
  treadle_arena_release(&plan->arena);
  treadle_free(plan);
}

/* ---- Telling ---- */

void treadle_plan_get_info(const treadle_plan *plan, treadle_plan_info *info_p) {
  *info_p = (treadle_plan_info){
      .from_bytes = (size_t)(plan->from_pages * plan->page_bytes),
      .to_bytes = (size_t)(plan->to_pages * plan->page_bytes),
      .moved_bytes = (size_t)plan->forward.moved_bytes,
      .lower_bound_bytes = (size_t)plan->forward.lower_bound_bytes,
      .resident_bytes = (size_t)plan->forward.resident_bytes,
      .back_moved_bytes = (size_t)plan->back.moved_bytes,
      .back_lower_bound_bytes = (size_t)plan->back.lower_bound_bytes,
      .waves = plan->waves,
      .page_bytes = (size_t)plan->page_bytes,
      .cap_bytes = (size_t)plan->cap_bytes,
      .cap_min_bytes = (size_t)plan->cap_min_bytes,
      .peak_bytes = (size_t)(plan->physical_pages * plan->page_bytes),
      .peak_bound_bytes =
          (size_t)(largest(plan->from_pages, plan->to_pages) * plan->page_bytes + plan->cap_bytes),
      .digest = plan->digest,
      .lossless = plan->lossless,
  };
}

void treadle_plan_inbound(const treadle_plan *plan, size_t *bytes) {
  memset(bytes, 0, (size_t)plan->from->ranks * sizeof *bytes);
  for (size_t i = 0; i < plan->forward.ops.count; i++) {
    const treadle_op *op = &plan->forward.ops.items[i];
    if (op->source < 0 || op->source == plan->rank) continue;
    size_t a = treadle_dtype_bytes((treadle_dtype)op->from_dtype);
    size_t b = treadle_dtype_bytes((treadle_dtype)op->to_dtype);
    bytes[op->source] += (size_t)op->elems * (a < b ? a : b);
  }
}

treadle_status treadle_plan_measure(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                    int64_t page_bytes, int32_t waves, treadle_plan_info *info_p,
                                    size_t *inbound) {
  treadle_status status = TREADLE_OK;
  treadle_classes classes = {0};
  lives l = {0};
  treadle_plan plan = {.from = from, .to = to, .rank = rank, .waves = waves, .page_bytes = page_bytes,
                       .lossless = is_lossless(from, to)};
  TRY(check(from, to, rank, page_bytes));
  TRY(treadle_classes_create(from, to, page_bytes, &classes));
  classes.waves = waves;
  TRY(lives_create(from, to, rank, page_bytes, &l));
  op_sink sink = {.sink = {.take = take_op},
                  .pages = l.to,
                  .page_bytes = page_bytes,
                  .rank = rank,
                  .direction = &plan.forward,
                  .inbound = inbound};
  TRY(treadle_direction_walk(&classes, from, to, rank, &sink.sink));
  sink.pages = l.from;
  sink.direction = &plan.back;
  sink.inbound = NULL;
  TRY(treadle_direction_walk(&classes, to, from, rank, &sink.sink));
  TRY(treadle_layout_inbound(from, to, rank, &plan.forward.lower_bound_bytes));
  TRY(treadle_layout_inbound(to, from, rank, &plan.back.lower_bound_bytes));
  settle_lives(l.from, l.from_count);
  settle_lives(l.to, l.to_count);
  plan.from_pages = l.from_count;
  plan.to_pages = l.to_count;
  TRY(treadle_pages_share(l.from, l.from_count, l.to, l.to_count, waves, NULL, NULL, NULL, NULL,
                          &plan.physical_pages));
  treadle_plan_get_info(&plan, info_p);
out:
  lives_release(&l);
  treadle_classes_release(&classes);
  return status;
}
