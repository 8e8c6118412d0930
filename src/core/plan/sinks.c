/* Sinks: marking pages, counting bytes, keeping ops. */
#include "plan/sinks.h"

#include "base/dtype.h"
#include "base/larger.h"
#include "plan/alias.h"

#include <assert.h>
#include <string.h>

static treadle_status take_page(treadle_sink *sink, const treadle_op *op) {
  for (const treadle_page_sink *s = (const treadle_page_sink *)sink; s; s = s->also) {
    const int64_t *shift = s->arrangement ? s->arrangement->shift : NULL;
    treadle_pages_touch(s->pages, s->page_bytes, op, shift ? op->to + shift[op->storage] : op->to);
  }
  return TREADLE_OK;
}

treadle_page_sink treadle_page_sink_make(treadle_page_life *pages, int64_t page_bytes,
                                         const treadle_arrangement *arrangement) {
  return (treadle_page_sink){.sink = {.take = take_page, .no_sources = true},
                             .pages = pages,
                             .page_bytes = page_bytes,
                             .arrangement = arrangement};
}

/* ---- Where ops and block rows lie ---- */

/* Is what they read in this rank's to-window? What they write is, when the direction leads there. */
static bool reads_here(const treadle_op_sink *s, int32_t source, bool twin) {
  return source == s->rank && (s->reverse ? !twin : twin);
}

static treadle_op place_op(const treadle_op_sink *s, const treadle_op *op) {
  treadle_op placed = *op;
  if (!s->reverse && s->arrangement->shift) placed.to += s->arrangement->shift[op->storage];
  if (reads_here(s, op->source, op->twin)) placed.from = treadle_plan_place(s->arrangement, op->from);
  return placed;
}

/* The side of a part that is scratch has no place. */
static treadle_status place_block_row(treadle_op_sink *s, treadle_block_row *block_row,
                                      const treadle_block_row_part *parts) {
  treadle_status status = TREADLE_OK;
  s->parts.count = 0;
  for (int64_t i = 0; i < block_row->parts; i++) {
    treadle_block_row_part part = parts[i];
    const treadle_op placed = place_op(s, &part.op);
    if (block_row->quantises)
      part.op.from = placed.from;
    else
      part.op.to = placed.to;
    TRY(treadle_array_push(&s->parts, part));
  }
  int32_t source = block_row->parts > 0 ? parts[0].op.source : -1;
  if (block_row->quantises ? !s->reverse : reads_here(s, source, block_row->twin)) {
    block_row->codes = treadle_plan_place(s->arrangement, block_row->codes);
    block_row->scales = treadle_plan_place(s->arrangement, block_row->scales);
  }
out:
  return status;
}

/* ---- Taking them ---- */

static treadle_status keep_op(void *context, const treadle_op *op) {
  treadle_op_sink *s = context;
  s->direction->coverage += treadle_op_mark(op);
  return treadle_array_push(&s->direction->ops, *op);
}

/* Bytes that come from another rank. */
static void count_moved(treadle_op_sink *s, int32_t source, bool relay, int64_t bytes) {
  const treadle_nodes *nodes = s->sink.nodes;
  s->direction->moved_bytes += bytes;
  if (relay)
    s->direction->relayed_bytes += bytes;
  else if (nodes && nodes->of[source] != nodes->of[s->rank])
    s->direction->node_moved_bytes += bytes;
}

static treadle_status take_op(treadle_sink *sink, const treadle_op *canonical) {
  treadle_op_sink *s = (treadle_op_sink *)sink;
  treadle_direction *direction = s->direction;
  treadle_op op = place_op(s, canonical);
  int64_t times = s->times && canonical->tensor >= 0 ? s->times[canonical->tensor] : 1;
  if (s->pages) treadle_pages_touch(s->pages, s->page_bytes, &op, op.to);
  int64_t bytes = times * treadle_op_moved(canonical);
  int64_t written =
      times * canonical->elems * (int64_t)treadle_dtype_bytes((treadle_dtype)canonical->to_dtype);
  if (canonical->source < 0) {
    direction->fill_bytes += written;
  } else {
    if (canonical->source == s->rank)
      direction->resident_bytes += bytes;
    else
      count_moved(s, canonical->source, canonical->twin, bytes);
  }
  direction->written_bytes += written;
  if (!s->keep) return TREADLE_OK;
  if (s->reverse) op.wave = s->waves - 1 - op.wave;
  /* What comes from other ranks lies on no aliased page; over nodes senders have to make the same ops. */
  if (s->sink.nodes && op.source >= 0 && op.source != s->rank) return keep_op(s, &op);
  const int32_t *aliased = s->reverse ? s->arrangement->to_of : s->arrangement->from_of;
  return treadle_alias_clip(&op, aliased, s->page_bytes, keep_op, s, &direction->aliased_bytes);
}

static treadle_status keep_block_row(treadle_op_sink *s, const treadle_block_row *canonical,
                                     const treadle_block_row_part *parts) {
  treadle_status status = TREADLE_OK;
  treadle_direction *direction = s->direction;
  treadle_block_row block_row = *canonical;
  int64_t values = (int64_t)block_row.rows * block_row.columns;
  if (s->reverse) block_row.wave = s->waves - 1 - block_row.wave;
  block_row.part_first =
      (int64_t)direction->block_row_parts.count - (block_row.begin > 0 ? block_row.parts : 0);
  for (int64_t i = 0; i < block_row.parts && block_row.begin == 0; i++)
    TRY(treadle_array_push(&direction->block_row_parts, parts[i]));
  int64_t bytes = values * (int64_t)treadle_dtype_bytes((treadle_dtype)block_row.value_dtype);
  direction->scratch_bytes = treadle_larger(direction->scratch_bytes, bytes);
  direction->scratch_codes = treadle_larger(direction->scratch_codes, values);
  direction->scratch_scales =
      treadle_larger(direction->scratch_scales, treadle_block_row_blocks(&block_row));
  direction->coverage += treadle_block_row_mark(&block_row, parts);
  TRY(treadle_array_push(&direction->block_rows, block_row));
out:
  return status;
}

static treadle_status take_block_row(treadle_sink *sink, const treadle_block_row *canonical,
                                     const treadle_block_row_part *parts) {
  treadle_op_sink *s = (treadle_op_sink *)sink;
  treadle_block_row placed = *canonical;
  const treadle_block_row *block_row = &placed;
  if (s->arrangement->shift) {
    treadle_status status = place_block_row(s, &placed, parts);
    if (status != TREADLE_OK) return status;
    parts = s->parts.items;
  }
  int64_t times = s->times ? s->times[block_row->tensor] : 1;
  if (s->pages) treadle_pages_touch_block_row(s->pages, s->page_bytes, block_row, parts);
  s->direction->written_bytes += times * treadle_block_row_written(block_row, parts);
  for (int64_t i = 0; i < block_row->parts; i++) /* a byte each, as they would travel */
    if (parts[i].op.source == s->rank)
      s->direction->resident_bytes += times * block_row->count * parts[i].op.elems;
    else
      count_moved(s, parts[i].op.source, false, times * block_row->count * parts[i].moved);
  return s->keep ? keep_block_row(s, block_row, parts) : TREADLE_OK;
}

static void take_sum(treadle_sink *sink, int32_t tensor, int64_t moved, int64_t written) {
  treadle_op_sink *s = (treadle_op_sink *)sink;
  s->direction->moved_bytes += s->times[tensor] * moved;
  s->direction->written_bytes += s->times[tensor] * written;
}

treadle_op_sink treadle_op_sink_make(const treadle_plan *plan, treadle_page_life *pages, bool reverse,
                                     treadle_direction *direction) {
  return (treadle_op_sink){.sink = {.take = take_op,
                                    .take_block_row = take_block_row,
                                    .take_sum = take_sum,
                                    .cuts.all = plan->cuts_of_all,
                                    .nodes = plan->nodes},
                           .arrangement = &plan->arrangement,
                           .pages = pages,
                           .page_bytes = plan->page_bytes,
                           .rank = plan->rank,
                           .waves = plan->waves,
                           .reverse = reverse,
                           .direction = direction};
}

void treadle_op_sink_release(treadle_op_sink *sink) { treadle_array_release(&sink->parts); }

/* ---- Putting them in order ---- */

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out"); }

typedef struct op_key {
  int64_t distance, to;
  int32_t wave, index;
} op_key;

static op_key key_of_op(const treadle_plan *plan, const void *item) {
  const treadle_op *op = item;
  int64_t ranks = plan->from->ranks, distance = op->source - plan->rank;
  if (distance < 0) distance += ranks;
  if (op->source < 0) distance = ranks;
  if (op->twin) distance = op->source == plan->rank ? 2 * ranks + 1 : ranks + 1 + distance;
  return (op_key){distance, op->to, op->wave, 0};
}

/* Those that read the destination window come when it is there. */
static op_key key_of_block_row(const treadle_plan *plan, const void *item) {
  (void)plan;
  const treadle_block_row *block_row = item;
  return (op_key){block_row->twin, 0, block_row->wave, 0};
}

static bool comes_before(const op_key *a, const op_key *b) {
  return a->distance != b->distance ? a->distance < b->distance : a->to < b->to;
}

/* By merging halves, so that equal keys stay in order; `room` is for as many. qsort calls a function for each comparison, and took
 * more than twice as long (docs/speed.md, Plan). */
static void sort_keys(op_key *keys, op_key *room, int32_t count) {
  if (count < 2) return;
  int32_t half = count / 2, left = 0, right = half;
  sort_keys(keys, room, half);
  sort_keys(keys + half, room, count - half);
  memcpy(room, keys, (size_t)half * sizeof *keys);
  for (int32_t i = 0; left < half; i++)
    keys[i] = right < count && comes_before(&keys[right], &room[left]) ? keys[right++] : room[left++];
}

/* Moves each item to its place, where its key is, along the cycles of the permutation: a second array would cost more
 * than the sorting, in pages touched for the first time. */
static void put_in_order(void *items, size_t each, op_key *keys, size_t count) {
  char first[sizeof(treadle_op)], *bytes = items;
  assert(each <= sizeof first);
  for (size_t i = 0; i < count; i++) {
    if ((size_t)keys[i].index == i) continue;
    memcpy(first, bytes + i * each, each);
    size_t at = i;
    while ((size_t)keys[at].index != i) {
      size_t next = (size_t)keys[at].index;
      memcpy(bytes + at * each, bytes + next * each, each);
      keys[at].index = (int32_t)at;
      at = next;
    }
    memcpy(bytes + at * each, first, each);
    keys[at].index = (int32_t)at;
  }
}

/* First by wave, by counting; then each wave, of few items, on its own. Makes *first_p, where each wave begins. */
static treadle_status sort(treadle_plan *plan, void *items, size_t each, size_t count,
                           op_key (*key_of)(const treadle_plan *plan, const void *item),
                           int32_t **first_p) {
  treadle_status status = TREADLE_OK;
  int32_t most = 0; /* of a wave */
  op_key *keys = treadle_alloc_array(count + 1, sizeof *keys), *room = NULL;
  int32_t *first = treadle_arena_alloc_array(&plan->arena, (size_t)plan->waves + 2, sizeof *first);
  *first_p = first;
  if (!keys || !first) TRY(no_memory());
  int32_t *next = first + 1; /* of each wave: its begin, and its end when its keys are laid down */
  for (size_t i = 0; i < count; i++) next[key_of(plan, (char *)items + i * each).wave + 1]++;
  for (int32_t w = 0; w < plan->waves; w++) {
    if (next[w + 1] > most) most = next[w + 1];
    next[w + 1] += next[w];
  }
  room = treadle_alloc_array((size_t)most + 1, sizeof *room);
  if (!room) TRY(no_memory());
  for (size_t i = 0; i < count; i++) {
    op_key key = key_of(plan, (char *)items + i * each);
    key.index = (int32_t)i;
    keys[next[key.wave]++] = key;
  }
  for (int32_t w = 0; w < plan->waves; w++) sort_keys(keys + first[w], room, first[w + 1] - first[w]);
  put_in_order(items, each, keys, count);
out:
  treadle_free(keys);
  treadle_free(room);
  return status;
}

treadle_status treadle_op_sink_sort(treadle_plan *plan, treadle_direction *direction) {
  treadle_status status = TREADLE_OK;
  TRY(sort(plan, direction->block_rows.items, sizeof *direction->block_rows.items,
           direction->block_rows.count, key_of_block_row, &direction->block_row_first));
  TRY(sort(plan, direction->ops.items, sizeof *direction->ops.items, direction->ops.count, key_of_op,
           &direction->wave_first));
out:
  return status;
}
