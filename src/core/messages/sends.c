/* Sends: the walks of readers, for what they want of this rank.
 *
 * A reader on another node stripes a cell over a few of its holders, which follow from tensor, reader and the number of holders alone. So a
 * reader is asked for those tensors only where this rank is one of them: of 128 holders 4 are. What remains of a loop over all readers
 * is one hash for each of this rank's tensors. Of tensors with fp8 blocks, whose sources are chosen otherwise, all are asked. */
#include "messages/sends.h"

#include "layout/blocks.h"
#include "plan/direction.h"
#include "messages/far_inputs.h"

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

/* ---- Who may read ---- */

enum { MOST_SEATS = 8 };

/* What a rank has to give of one tensor: the cells that it holds, as far as readers choose by them. */
typedef struct lent {
  int32_t tensor;
  bool any;  /* who reads cannot be told before */
  int count; /* seats */
  struct {
    int64_t holders, holder;
  } seat[MOST_SEATS];
} lent;

typedef TREADLE_ARRAY(lent) lents;

static void add_seat(lent *of, int64_t holders, int64_t holder) {
  for (int i = 0; i < of->count; i++)
    if (of->seat[i].holders == holders && of->seat[i].holder == holder) return;
  if (of->count == MOST_SEATS) {
    of->any = true;
    return;
  }
  of->seat[of->count].holders = holders;
  of->seat[of->count++].holder = holder;
}

/* A rank that is a cell's holder under several numbers has but the first of them here. */
static treadle_status add_cells(const treadle_layout *from, int64_t rank, const treadle_piece *piece,
                                treadle_cells *cells, lent *of) {
  treadle_status status = TREADLE_OK;
  cells->count = 0;
  TRY(treadle_layout_cells(from, piece->tensor, &piece->box, cells));
  for (size_t i = 0; i < cells->count && !of->any; i++) {
    const treadle_cell *cell = &cells->items[i];
    int64_t holder = treadle_cell_find(from, cell, rank);
    if (holder < 0) continue;
    if (treadle_cell_is_plain(from, cell))
      add_seat(of, cell->holders, holder);
    else
      of->any = true;
  }
out:
  return status;
}

/* By tensor, ascending. */
static treadle_status list_lent(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                lents *list) {
  treadle_status status = TREADLE_OK;
  treadle_pieces pieces = {0};
  treadle_cells cells = {0};
  treadle_piece_lists lists = {0};
  TRY(treadle_layout_pieces(from, rank, &pieces));
  TRY(treadle_piece_lists_make(&pieces, from->model->tensor_count, &lists));
  for (int32_t t = 0; t < from->model->tensor_count; t++) {
    lent of = {.tensor = t, .any = treadle_is_in_block_rows(from, to, t)};
    if (lists.first[t] < 0) continue;
    for (int32_t i = lists.first[t]; i >= 0 && !of.any; i = lists.next[i])
      TRY(add_cells(from, rank, &pieces.items[i], &cells, &of));
    if (of.any || of.count > 0) TRY(treadle_array_push(list, of));
  }
out:
  treadle_array_release(&pieces);
  treadle_array_release(&cells);
  treadle_piece_lists_release(&lists);
  return status;
}

static bool may_read(const lent *of, int64_t reader) {
  bool may = of->any;
  for (int i = 0; i < of->count && !may; i++)
    may = treadle_stripes_meet(of->tensor, reader, of->seat[i].holders, of->seat[i].holder);
  return may;
}

treadle_status treadle_sends_make(const treadle_plan *plan, bool back, treadle_sends *sends) {
  treadle_status status = TREADLE_OK;
  const treadle_layout *from = back ? plan->to : plan->from, *to = back ? plan->from : plan->to;
  const treadle_nodes *nodes = plan->nodes;
  treadle_lanes lanes = {0};
  treadle_pieces pieces = {0};
  lents list = {0};
  send_sink s = {.sink = {.take = take_op,
                          .take_block_row = take_block_row,
                          .of_source = true,
                          .source = plan->rank,
                          .nodes = nodes},
                 .plan = plan,
                 .back = back,
                 .sends = sends};
  *sends = (treadle_sends){0};
  if (!nodes || (back && plan->keep_params)) goto index;
  TRY(treadle_lanes_create(plan->from, plan->to, plan->page_bytes, &lanes));
  lanes.waves = plan->waves;
  TRY(list_lent(from, to, plan->rank, &list));
  for (s.reader = 0; s.reader < nodes->ranks; s.reader++) {
    if (nodes->of[s.reader] == nodes->of[plan->rank]) continue;
    pieces.count = 0;
    for (size_t i = 0; i < list.count; i++)
      if (may_read(&list.items[i], s.reader))
        TRY(treadle_layout_pieces_of(to, s.reader, list.items[i].tensor, &pieces));
    if (pieces.count > 0) TRY(treadle_direction_walk_pieces(&lanes, from, to, s.reader, &pieces, &s.sink));
  }
index:
  TRY(index_waves(plan, sends));
out:
  treadle_lanes_release(&lanes);
  treadle_array_release(&pieces);
  treadle_array_release(&list);
  if (status != TREADLE_OK) treadle_sends_release(sends);
  return status;
}

void treadle_sends_release(treadle_sends *sends) {
  treadle_array_release(&sends->list);
  treadle_free(sends->wave_first);
  *sends = (treadle_sends){0};
}
