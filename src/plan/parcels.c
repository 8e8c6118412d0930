#include "plan/parcels.h"

#include "base/checked.h"
#include "base/dtype.h"

#include <stdlib.h>
#include <string.h>

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out"); }

static bool is_far(const treadle_nodes *nodes, int64_t rank, const treadle_op *op) {
  return op->source >= 0 && !op->twin && nodes->of[op->source] != nodes->of[rank];
}

/* Does the source cast? Else the elements travel as they lie there. */
static bool casts_at_source(const treadle_op *op) {
  return treadle_dtype_bytes((treadle_dtype)op->to_dtype) <
         treadle_dtype_bytes((treadle_dtype)op->from_dtype);
}

static treadle_dtype wire_of(const treadle_op *op) {
  return (treadle_dtype)(casts_at_source(op) ? op->to_dtype : op->from_dtype);
}

/* ---- Splitting ---- */

typedef struct splitter {
  treadle_op_array ops;
  uint64_t coverage; /* what is new, less what is gone */
  int64_t capacity;
} splitter;

/* By the slowest dimension of the source that has more than one index, so that parts lie together there. */
static int slowest(const treadle_op *op) {
  int d = 0;
  for (int i = 1; i < op->ndim; i++)
    if (op->size[i] > 1 && (op->size[d] == 1 || op->from_stride[i] > op->from_stride[d])) d = i;
  return d;
}

static treadle_status split(splitter *s, const treadle_op *op) {
  treadle_status status = TREADLE_OK;
  int64_t each = (int64_t)treadle_dtype_bytes(wire_of(op));
  if (op->elems * each <= s->capacity || op->elems == 1) {
    s->coverage += treadle_op_mark(op);
    return treadle_array_push(&s->ops, *op);
  }
  int d = slowest(op);
  int64_t of_index = op->elems / op->size[d] * each, step = s->capacity / of_index;
  if (step < 1) step = 1;
  for (int64_t first = 0; first < op->size[d]; first += step) {
    int64_t end = first + step < op->size[d] ? first + step : op->size[d];
    const treadle_op part = treadle_op_part(op, d, first, end);
    TRY(split(s, &part));
  }
out:
  return status;
}

treadle_status treadle_parcels_split(treadle_direction *direction, int32_t waves, int64_t rank,
                                     const treadle_nodes *nodes, int64_t capacity) {
  treadle_status status = TREADLE_OK;
  splitter s = {.capacity = capacity};
  for (int32_t wave = 0; wave < waves; wave++) {
    int32_t first = direction->wave_first[wave], end = direction->wave_first[wave + 1];
    direction->wave_first[wave] = (int32_t)s.ops.count;
    for (int32_t i = first; i < end; i++) {
      const treadle_op *op = &direction->ops.items[i];
      if (!is_far(nodes, rank, op)) {
        TRY(treadle_array_push(&s.ops, *op));
        continue;
      }
      s.coverage -= treadle_op_mark(op);
      TRY(split(&s, op));
    }
  }
  direction->wave_first[waves] = (int32_t)s.ops.count;
  direction->coverage += s.coverage;
  treadle_array_release(&direction->ops);
  direction->ops.items = s.ops.items;
  direction->ops.count = s.ops.count;
  direction->ops.capacity = s.ops.capacity;
out:
  if (status != TREADLE_OK) {
    treadle_array_release(&s.ops);
    status = no_memory();
  }
  return status;
}

/* ---- Errands ---- */

static treadle_errand errand_of(const treadle_op *op) {
  treadle_errand errand;
  memset(&errand, 0, sizeof errand);
  errand.pull = treadle_pull_of(op);
  errand.wire_dtype = (int32_t)wire_of(op);
  errand.add = casts_at_source(op) ? op->add : 0;
  return errand;
}

void treadle_errands_count(const treadle_direction *direction, int64_t rank, const treadle_nodes *nodes,
                           int32_t *counts) {
  memset(counts, 0, (size_t)nodes->ranks * sizeof *counts);
  for (size_t i = 0; i < direction->ops.count; i++)
    if (is_far(nodes, rank, &direction->ops.items[i])) counts[direction->ops.items[i].source]++;
}

treadle_status treadle_errands_list(const treadle_direction *direction, int32_t source,
                                    treadle_errand **errands_p, size_t *count_p) {
  size_t count = 0;
  for (size_t i = 0; i < direction->ops.count; i++)
    count += direction->ops.items[i].source == source && !direction->ops.items[i].twin;
  treadle_errand *errands = treadle_alloc_array(count + 1, sizeof *errands);
  *errands_p = errands;
  *count_p = 0;
  if (!errands) return no_memory();
  for (size_t i = 0; i < direction->ops.count; i++)
    if (direction->ops.items[i].source == source && !direction->ops.items[i].twin)
      errands[(*count_p)++] = errand_of(&direction->ops.items[i]);
  return TREADLE_OK;
}

static int64_t elems_of(const treadle_pull *pull) {
  int64_t elems = 1;
  for (int d = 0; d < pull->ndim; d++) elems *= pull->size[d];
  return elems;
}

bool treadle_errand_is_sound(const treadle_errand *errand, int32_t source, int32_t waves,
                             int64_t window_bytes, int64_t capacity) {
  const treadle_pull *pull = &errand->pull;
  int64_t last = pull->from, reach, elems;
  if (pull->source != source || pull->wave < 0 || pull->wave >= waves || pull->ndim < 0 ||
      pull->ndim > TREADLE_MAX_AXES || pull->from < 0 || pull->dtype <= TREADLE_DTYPE_NONE ||
      pull->dtype > TREADLE_INT32 || errand->wire_dtype <= TREADLE_DTYPE_NONE ||
      errand->wire_dtype > TREADLE_INT32 || errand->add < -1 || errand->add > 1)
    return false;
  int64_t each = (int64_t)treadle_dtype_bytes((treadle_dtype)pull->dtype),
          wire = (int64_t)treadle_dtype_bytes((treadle_dtype)errand->wire_dtype);
  for (int d = 0; d < pull->ndim; d++)
    if (pull->size[d] < 1 || pull->stride[d] < 0 ||
        !treadle_mul_fits(pull->size[d] - 1, pull->stride[d], &reach) ||
        !treadle_add_fits(last, reach, &last))
      return false;
  return treadle_product_fits(pull->size, pull->ndim, &elems) && last <= window_bytes - each &&
         elems <= capacity / wire && wire <= each && (errand->wire_dtype == pull->dtype || wire < each);
}

/* ---- Messages ---- */

/* Where parcels go while messages are made: into the last message of their peer, or a new one. */
typedef struct packer {
  TREADLE_ARRAY(treadle_parcel) parcels;
  TREADLE_ARRAY(treadle_traffic_message) messages;
  int64_t capacity;
  int32_t numbers; /* messages of the peer at hand */
} packer;

/* Parcels of one peer come one after the other, by wave. Returns where in its message it begins. */
static treadle_status place(packer *p, int32_t peer, int32_t wave, int64_t bytes, int64_t *at_p) {
  treadle_status status = TREADLE_OK;
  size_t count = p->messages.count;
  treadle_traffic_message *last = count > 0 ? &p->messages.items[count - 1] : NULL;
  if (last && last->peer != peer) p->numbers = 0;
  int64_t at = last ? (last->bytes + TREADLE_STAGING_ALIGNMENT - 1) / TREADLE_STAGING_ALIGNMENT *
                          TREADLE_STAGING_ALIGNMENT
                    : 0;
  if (!last || last->peer != peer || last->wave != wave || at + bytes > p->capacity) {
    at = 0;
    TRY(treadle_array_push(
        &p->messages, ((treadle_traffic_message){
                          .peer = peer, .wave = wave, .number = p->numbers++, .first = p->parcels.count})));
    last = &p->messages.items[count];
  }
  last->count++;
  last->bytes = at + bytes;
  *at_p = at;
out:
  return status;
}

/* In their order; messages of one wave of one pair stay as they are. */
typedef struct message_order {
  int64_t rank, ranks;
  bool reads;
} message_order;

static int64_t distance_of(const message_order *o, const treadle_traffic_message *m) {
  int64_t reader = o->reads ? o->rank : m->peer, source = o->reads ? m->peer : o->rank;
  return (reader - source + o->ranks) % o->ranks;
}

static int compare(const void *a, const void *b, void *context) {
  const treadle_traffic_message *x = a, *y = b;
  const message_order *o = context;
  if (x->wave != y->wave) return x->wave < y->wave ? -1 : 1;
  int64_t near = distance_of(o, x), far = distance_of(o, y);
  if (near != far) return near < far ? -1 : 1;
  return x->number < y->number ? -1 : x->number > y->number;
}

static treadle_status finish(packer *p, treadle_status status, message_order *order,
                             treadle_traffic *traffic) {
  *traffic = (treadle_traffic){p->parcels.items, p->messages.items, p->parcels.count, p->messages.count};
  if (status != TREADLE_OK) {
    treadle_traffic_release(traffic);
    return no_memory();
  }
  if (traffic->message_count > 1)
    qsort_r(traffic->messages, traffic->message_count, sizeof *traffic->messages, compare, order);
  return TREADLE_OK;
}

/* The reader's op reads the message, densely. */
static treadle_status add_read(packer *p, const treadle_op *op, int64_t position) {
  treadle_status status = TREADLE_OK;
  int64_t at;
  treadle_dtype wire = wire_of(op);
  TRY(place(p, op->source, op->wave, op->elems * (int64_t)treadle_dtype_bytes(wire), &at));
  treadle_op typed = *op;
  if (casts_at_source(op)) {
    typed.from_dtype = (uint8_t)wire;
    typed.add = 0;
  }
  TRY(treadle_array_push(&p->parcels, ((treadle_parcel){treadle_pull_read(&typed, at), position})));
out:
  return status;
}

treadle_status treadle_traffic_in(const treadle_direction *direction, int64_t rank,
                                  const treadle_nodes *nodes, int64_t capacity, treadle_traffic *traffic) {
  treadle_status status = TREADLE_OK;
  packer p = {.capacity = capacity};
  message_order order = {rank, nodes->ranks, true};
  int32_t *counts = treadle_alloc_array((size_t)nodes->ranks, sizeof *counts);
  *traffic = (treadle_traffic){0};
  if (!counts) return no_memory();
  treadle_errands_count(direction, rank, nodes, counts);
  for (int32_t source = 0; source < nodes->ranks; source++)
    for (size_t i = 0; counts[source] > 0 && i < direction->ops.count; i++) {
      const treadle_op *op = &direction->ops.items[i];
      if (op->source == source && !op->twin) TRY(add_read(&p, op, (int64_t)i));
    }
out:
  treadle_free(counts);
  return finish(&p, status, &order, traffic);
}

/* The source's op writes the message, densely. */
static treadle_status add_write(packer *p, int32_t reader, const treadle_errand *errand) {
  treadle_status status = TREADLE_OK;
  int64_t at, each = (int64_t)treadle_dtype_bytes((treadle_dtype)errand->wire_dtype);
  TRY(place(p, reader, errand->pull.wave, elems_of(&errand->pull) * each, &at));
  treadle_op copy = treadle_pull_copy(&errand->pull, at);
  int64_t own = (int64_t)treadle_dtype_bytes((treadle_dtype)errand->pull.dtype);
  for (int d = 0; d < copy.ndim; d++) copy.to_stride[d] = copy.to_stride[d] / own * each;
  copy.to_dtype = (uint8_t)errand->wire_dtype;
  copy.add = (int8_t)errand->add;
  TRY(treadle_array_push(&p->parcels, ((treadle_parcel){copy, -1})));
out:
  return status;
}

treadle_status treadle_traffic_out(const treadle_errands *errands, int64_t rank, const treadle_nodes *nodes,
                                   int64_t capacity, treadle_traffic *traffic) {
  treadle_status status = TREADLE_OK;
  packer p = {.capacity = capacity};
  message_order order = {rank, nodes->ranks, false};
  *traffic = (treadle_traffic){0};
  for (int32_t reader = 0; reader < nodes->ranks; reader++)
    for (size_t i = 0; i < errands[reader].count; i++)
      TRY(add_write(&p, reader, &errands[reader].items[i]));
out:
  return finish(&p, status, &order, traffic);
}

void treadle_traffic_release(treadle_traffic *traffic) {
  treadle_free(traffic->parcels);
  treadle_free(traffic->messages);
  *traffic = (treadle_traffic){0};
}
