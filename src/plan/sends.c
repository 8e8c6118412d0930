/* Sends: the walks of readers, for what they want of this rank. */
#include "plan/sends.h"

#include "plan/direction.h"
#include "plan/far_inputs.h"

#include <stdlib.h>

typedef struct send_sink {
  treadle_sink sink;
  const treadle_plan *plan;
  bool back;
  int32_t reader;
  treadle_sends *sends;
} send_sink;

static treadle_status push(send_sink *s, const treadle_op *op, bool input) {
  treadle_send send = {*op, s->reader, input};
  if (s->back) {
    send.op.wave = s->plan->waves - 1 - op->wave;
    if (!op->made) send.op.from = treadle_plan_place(&s->plan->arrangement, op->from);
  }
  return treadle_array_push(&s->sends->list, send);
}

static treadle_status take_op(treadle_sink *sink, const treadle_op *op) {
  return push((send_sink *)sink, op, false);
}

static treadle_status take_input(void *context, const treadle_op *op) { return push(context, op, true); }

static treadle_status take_block_row(treadle_sink *sink, const treadle_block_row *block_row,
                                     const treadle_block_row_part *parts) {
  const treadle_far_input_sources here = {NULL, sink->source};
  return treadle_far_inputs_walk(&here, block_row, parts, take_input, sink);
}

static int compare(int64_t x, int64_t y) { return (x > y) - (x < y); }

static int kind_of(const treadle_op *op, bool input) { return input ? 2 : op->made ? 1 : 0; }

int treadle_send_order(const treadle_op *x, bool x_input, const treadle_op *y, bool y_input) {
  int order = compare(kind_of(x, x_input), kind_of(y, y_input));
  if (order == 0 && x->made) order = compare(x->tensor, y->tensor);
  if (order == 0 && x->made) order = compare(x->from / x->made, y->from / y->made);
  if (order == 0 && x->made) order = compare(x->from_dtype == TREADLE_FP32, y->from_dtype == TREADLE_FP32);
  if (order == 0) order = compare(x->from, y->from);
  if (order == 0) order = compare(x->elems, y->elems);
  if (order == 0) order = compare(x->ndim, y->ndim);
  for (int d = 0; d < x->ndim && order == 0; d++) order = compare(x->size[d], y->size[d]);
  for (int d = 0; d < x->ndim && order == 0; d++) order = compare(x->from_stride[d], y->from_stride[d]);
  return order;
}

static int by_wave(const void *a, const void *b) {
  const treadle_send *x = a, *y = b;
  if (x->op.wave != y->op.wave) return x->op.wave < y->op.wave ? -1 : 1;
  if (x->reader != y->reader) return x->reader < y->reader ? -1 : 1;
  return treadle_send_order(&x->op, x->input, &y->op, y->input);
}

static treadle_status index_waves(const treadle_plan *plan, treadle_sends *sends) {
  sends->wave_first = treadle_alloc_array((size_t)plan->waves + 1, sizeof *sends->wave_first);
  if (!sends->wave_first) return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  if (sends->list.count > 1)
    qsort(sends->list.items, sends->list.count, sizeof *sends->list.items, by_wave);
  for (size_t i = 0; i < sends->list.count; i++) sends->wave_first[sends->list.items[i].op.wave + 1]++;
  for (int32_t w = 0; w < plan->waves; w++) sends->wave_first[w + 1] += sends->wave_first[w];
  return TREADLE_OK;
}

/* The tensors of which a rank has anything to give: held[tensors]. */
static treadle_status list_held(const treadle_layout *from, int64_t rank, bool *held) {
  treadle_status status = TREADLE_OK;
  treadle_pieces pieces = {0};
  TRY(treadle_layout_pieces(from, rank, &pieces));
  for (size_t i = 0; i < pieces.count; i++)
    if (pieces.items[i].tensor >= 0) held[pieces.items[i].tensor] = true;
out:
  treadle_array_release(&pieces);
  return status;
}

treadle_status treadle_sends_make(const treadle_plan *plan, bool back, treadle_sends *sends) {
  treadle_status status = TREADLE_OK;
  const treadle_layout *from = back ? plan->to : plan->from, *to = back ? plan->from : plan->to;
  const treadle_nodes *nodes = plan->nodes;
  treadle_lanes lanes = {0};
  treadle_pieces pieces = {0};
  bool *held = treadle_alloc_array((size_t)from->model->tensor_count + 1, sizeof *held);
  send_sink s = {.sink = {.take = take_op,
                          .take_block_row = take_block_row,
                          .of_source = true,
                          .source = plan->rank,
                          .nodes = nodes},
                 .plan = plan,
                 .back = back,
                 .sends = sends};
  *sends = (treadle_sends){0};
  if (!held) TRY(treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out"));
  if (!nodes || (back && plan->keep_params)) goto index;
  TRY(treadle_lanes_create(plan->from, plan->to, plan->page_bytes, &lanes));
  lanes.waves = plan->waves;
  TRY(list_held(from, plan->rank, held));
  for (s.reader = 0; s.reader < nodes->ranks; s.reader++) {
    if (nodes->of[s.reader] == nodes->of[plan->rank]) continue;
    pieces.count = 0;
    for (int32_t t = 0; t < from->model->tensor_count; t++)
      if (held[t]) TRY(treadle_layout_pieces_of(to, s.reader, t, &pieces));
    TRY(treadle_direction_walk_pieces(&lanes, from, to, s.reader, &pieces, &s.sink));
  }
index:
  TRY(index_waves(plan, sends));
out:
  treadle_lanes_release(&lanes);
  treadle_array_release(&pieces);
  treadle_free(held);
  if (status != TREADLE_OK) treadle_sends_release(sends);
  return status;
}

void treadle_sends_release(treadle_sends *sends) {
  treadle_array_release(&sends->list);
  treadle_free(sends->wave_first);
  *sends = (treadle_sends){0};
}
