/* Sinks: marking pages, counting bytes, keeping ops. */
#include "plan/sinks.h"

#include "base/dtype.h"

#include <stdlib.h>

static treadle_status take_page(treadle_sink *sink, const treadle_op *op) {
  treadle_page_sink *s = (treadle_page_sink *)sink;
  treadle_pages_touch(s->pages, s->page_bytes, op);
  return TREADLE_OK;
}

treadle_page_sink treadle_page_sink_make(treadle_page_life *pages, int64_t page_bytes) {
  return (treadle_page_sink){{take_page, true}, pages, page_bytes};
}

static treadle_status take_op(treadle_sink *sink, const treadle_op *canonical) {
  treadle_op_sink *s = (treadle_op_sink *)sink;
  treadle_direction *direction = s->direction;
  treadle_op op = *canonical;
  treadle_pages_touch(s->pages, s->page_bytes, &op);
  treadle_dtype from = (treadle_dtype)op.from_dtype, to = (treadle_dtype)op.to_dtype;
  int64_t bytes = op.elems * (int64_t)treadle_dtype_narrower_bytes(from, to);
  int64_t written = op.elems * (int64_t)treadle_dtype_bytes(to);
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

treadle_op_sink treadle_op_sink_make(const treadle_plan *plan, treadle_page_life *pages, bool reverse,
                                     treadle_direction *direction) {
  return (treadle_op_sink){.sink = {.take = take_op},
                           .pages = pages,
                           .page_bytes = plan->page_bytes,
                           .rank = plan->rank,
                           .waves = plan->waves,
                           .reverse = reverse,
                           .direction = direction};
}

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

treadle_status treadle_op_sink_sort(treadle_plan *plan, treadle_direction *direction) {
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
