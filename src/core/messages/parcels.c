#include "messages/parcels.h"

#include "base/dtype.h"
#include "messages/split.h"

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
  const treadle_nodes *nodes; /* NULL: all ops are split */
  int64_t rank, capacity;
} splitter;

/* By the slowest dimension of the source that has more than one index, so that parts lie together there. */
static int slowest(const treadle_op *op) {
  int d = 0;
  for (int i = 1; i < op->ndim; i++)
    if (op->size[i] > 1 && (op->size[d] == 1 || op->from_stride[i] > op->from_stride[d])) d = i;
  return d;
}

static treadle_status split_by_size(const splitter *s, const treadle_op *op, treadle_op_array *ops) {
  treadle_status status = TREADLE_OK;
  int64_t each = (int64_t)treadle_dtype_bytes(wire_of(op));
  if (op->elems * each <= s->capacity || op->elems == 1) return treadle_array_push(ops, *op);
  int d = slowest(op);
  int64_t of_index = op->elems / op->size[d] * each, step = s->capacity / of_index;
  if (step < 1) step = 1;
  for (int64_t first = 0; first < op->size[d]; first += step) {
    int64_t end = first + step < op->size[d] ? first + step : op->size[d];
    const treadle_op part = treadle_op_part(op, d, first, end);
    TRY(split_by_size(s, &part, ops));
  }
out:
  return status;
}

/* What is made is cut where rows of blocks begin: one is made at a time. Of 2 dimensions the first has rows. */
static treadle_status split_made(const splitter *s, const treadle_op *op, treadle_op_array *ops) {
  treadle_status status = TREADLE_OK;
  int64_t rows = op->ndim == 2 ? op->size[0] : 1, next;
  for (int64_t row = 0; row < rows; row = next) {
    int64_t at = op->from + (rows > 1 ? row * op->from_stride[0] : 0);
    next = rows > 1 ? row + (op->made - at % op->made + op->from_stride[0] - 1) / op->from_stride[0] : 1;
    if (next > rows) next = rows;
    const treadle_op part = rows > 1 ? treadle_op_part(op, 0, row, next) : *op;
    TRY(split_by_size(s, &part, ops));
  }
out:
  return status;
}

static treadle_status split(const splitter *s, const treadle_op *op, treadle_op_array *ops) {
  if (s->nodes && !is_far(s->nodes, s->rank, op)) return treadle_array_push(ops, *op);
  return op->made ? split_made(s, op, ops) : split_by_size(s, op, ops);
}

static treadle_status split_op(void *context, const treadle_op *op, treadle_op_array *ops) {
  return split(context, op, ops);
}

treadle_status treadle_parcels_split(treadle_direction *direction, int32_t waves, int64_t rank,
                                     const treadle_nodes *nodes, int64_t capacity) {
  splitter s = {nodes, rank, capacity};
  return treadle_direction_split(direction, waves, split_op, &s);
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
  const treadle_ordered *ordered; /* the source's */
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

/* ---- From ops to messages ---- */

/* An op of a reader, at either end. */
typedef struct trip {
  treadle_op op;
  int32_t peer;
  bool reads, input;
  int64_t position; /* as in a parcel */
  int64_t area;     /* where an input comes to lie */
} trip;

typedef TREADLE_ARRAY(trip) trips;

/* By peer and wave. */
static int compare_trips(const void *a, const void *b) {
  const trip *x = a, *y = b;
  if (x->peer != y->peer) return x->peer < y->peer ? -1 : 1;
  if (x->op.wave != y->op.wave) return x->op.wave < y->op.wave ? -1 : 1;
  return treadle_send_order(&x->op, x->input, &y->op, y->input);
}

/* An input's bytes stay as they are on their way. */
static treadle_op to_area(const trip *t, int64_t at) {
  const treadle_dtype wire = wire_of(&t->op);
  const int64_t each = (int64_t)treadle_dtype_bytes(wire);
  return (treadle_op){.wave = t->op.wave,
                      .source = t->op.source,
                      .from_dtype = (uint8_t)wire,
                      .to_dtype = (uint8_t)wire,
                      .tensor = t->op.tensor,
                      .from = at,
                      .to = t->area,
                      .ndim = 1,
                      .size = {t->op.elems},
                      .from_stride = {each},
                      .to_stride = {each},
                      .elems = t->op.elems};
}

treadle_op treadle_parcel_read(const treadle_op *op, int64_t at) {
  treadle_op typed = *op;
  typed.from_dtype = (uint8_t)wire_of(op);
  if (casts_at_source(op)) typed.add = 0;
  return treadle_pull_read(&typed, at);
}

/* The reader's op reads the message, densely; the source's writes it. */
static treadle_op op_of(const trip *t, const treadle_ordered *ordered, int64_t at) {
  treadle_dtype wire = wire_of(&t->op);
  bool casts = casts_at_source(&t->op);
  if (t->reads) return t->input ? to_area(t, at) : treadle_parcel_read(&t->op, at);
  const treadle_op read = t->op.made ? treadle_ordered_read(ordered, t->position, &t->op) : t->op;
  const treadle_pull pull = treadle_pull_of(&read);
  treadle_op copy = treadle_pull_copy(&pull, at);
  int64_t own = (int64_t)treadle_dtype_bytes((treadle_dtype)pull.dtype),
          each = (int64_t)treadle_dtype_bytes(wire);
  for (int d = 0; d < copy.ndim; d++) copy.to_stride[d] = copy.to_stride[d] / own * each;
  copy.to_dtype = (uint8_t)wire;
  copy.add = casts ? t->op.add : 0;
  return copy;
}

static treadle_status make_messages(trips *all, int64_t capacity, message_order order,
                                    treadle_traffic *traffic) {
  treadle_status status = TREADLE_OK;
  packer p = {.capacity = capacity};
  if (all->count > 1) qsort(all->items, all->count, sizeof *all->items, compare_trips);
  for (size_t i = 0; i < all->count; i++) {
    const trip *t = &all->items[i];
    int64_t at;
    TRY(place(&p, t->peer, t->op.wave, t->op.elems * (int64_t)treadle_dtype_bytes(wire_of(&t->op)), &at));
    TRY(treadle_array_push(&p.parcels, ((treadle_parcel){op_of(t, order.ordered, at), t->position})));
  }
out:
  treadle_array_release(all);
  return finish(&p, status, &order, traffic);
}

/* Appends inputs, in parts that fit, which lie in the area one behind the other. */
typedef struct input_list {
  trips *all;
  splitter s;
  treadle_op_array ops;
  int64_t area; /* of the next input */
} input_list;

static treadle_status take_input(void *context, const treadle_op *op) {
  treadle_status status = TREADLE_OK;
  input_list *list = context;
  int64_t at = list->area;
  list->ops.count = 0;
  TRY(split_by_size(&list->s, op, &list->ops));
  for (size_t i = 0; i < list->ops.count; i++) {
    const treadle_op *part = &list->ops.items[i];
    TRY(treadle_array_push(
        list->all,
        ((trip){
            .op = *part, .peer = part->source, .reads = true, .input = true, .position = -1, .area = at})));
    at += part->elems * (int64_t)treadle_dtype_bytes(wire_of(part));
  }
  list->area += treadle_far_input_bytes(op);
out:
  return status;
}

static treadle_status list_inputs(const treadle_direction *direction, const treadle_far_inputs *inputs,
                                  const treadle_far_input_sources *sources, int64_t capacity, trips *all) {
  treadle_status status = TREADLE_OK;
  input_list list = {.all = all, .s = {.capacity = capacity}};
  for (size_t i = 0; i < direction->block_rows.count && inputs->bytes > 0; i++) {
    const treadle_block_row *run = &direction->block_rows.items[i];
    if (inputs->at[i] < 0) continue;
    list.area = inputs->at[i];
    TRY(treadle_far_inputs_walk(sources, run, direction->block_row_parts.items + run->part_first,
                                take_input, &list));
  }
out:
  treadle_array_release(&list.ops);
  return status;
}

treadle_status treadle_traffic_in(const treadle_direction *direction, const treadle_far_inputs *inputs,
                                  int64_t rank, const treadle_nodes *nodes, int64_t capacity,
                                  treadle_traffic *traffic) {
  treadle_status status = TREADLE_OK;
  trips all = {0};
  const treadle_far_input_sources sources = {nodes, rank};
  *traffic = (treadle_traffic){0};
  for (size_t i = 0; i < direction->ops.count; i++) {
    const treadle_op *op = &direction->ops.items[i];
    if (is_far(nodes, rank, op))
      TRY(treadle_array_push(
          &all, ((trip){.op = *op, .peer = op->source, .reads = true, .position = (int64_t)i})));
  }
  TRY(list_inputs(direction, inputs, &sources, capacity, &all));
out:
  if (status == TREADLE_OK)
    return make_messages(&all, capacity, (message_order){rank, nodes->ranks, true, NULL}, traffic);
  treadle_array_release(&all);
  return no_memory();
}

/* The parts of what a source sends. */
static treadle_status add_send(const splitter *s, const treadle_send *send, treadle_ordered *ordered,
                               treadle_op_array *ops, trips *all) {
  treadle_status status = TREADLE_OK;
  ops->count = 0;
  TRY(send->input ? split_by_size(s, &send->op, ops) : split(s, &send->op, ops));
  for (size_t k = 0; k < ops->count; k++) {
    trip t = {.op = ops->items[k], .peer = send->reader, .input = send->input, .position = -1};
    if (t.op.made) TRY(treadle_ordered_add(ordered, &send->op, &t.op, &t.position));
    TRY(treadle_array_push(all, t));
  }
out:
  return status;
}

treadle_status treadle_traffic_out(const treadle_sends *sends, treadle_ordered *ordered, int64_t rank,
                                   const treadle_nodes *nodes, int64_t capacity, treadle_traffic *traffic) {
  treadle_status status = TREADLE_OK;
  trips all = {0};
  treadle_op_array ops = {0};
  splitter s = {.capacity = capacity};
  *traffic = (treadle_traffic){0};
  for (size_t i = 0; i < sends->list.count; i++)
    TRY(add_send(&s, &sends->list.items[i], ordered, &ops, &all));
out:
  treadle_array_release(&ops);
  if (status == TREADLE_OK)
    return make_messages(&all, capacity, (message_order){rank, nodes->ranks, false, ordered}, traffic);
  treadle_array_release(&all);
  return status;
}

void treadle_traffic_release(treadle_traffic *traffic) {
  treadle_free(traffic->parcels);
  treadle_free(traffic->messages);
  *traffic = (treadle_traffic){0};
}
