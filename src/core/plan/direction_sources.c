/* Where the bytes of a destination piece come from, and the ops that bring them. */
#include "plan/direction_parts.h"

#include "base/dtype.h"
#include "base/hash.h"

/* ---- An op from a box ---- */

typedef struct dim {
  int64_t size, from, to;
} dim;

/* Axes of size 1 say nothing. The others go by their distance in the destination, the longest first, so
 * that what is written is written forward. Neighbours become one where a step of the outer one is all of
 * the inner one on both sides: [4, 8, 16] of bf16 with strides 256, 32, 2 on both is one dimension of 512
 * elements. [3, 5] that is transposed on the way, from strides 2 and 6 to strides 10 and 2, stays two
 * dimensions: 3 with distances 2 and 10, then 5 with distances 6 and 2. */
void treadle_op_set_dims(treadle_op *op, const treadle_box *box, int axes, const int64_t *from,
                         const int64_t *to) {
  dim dims[TREADLE_MAX_AXES];
  int count = 0;
  for (int a = 0; a < axes; a++) {
    if (box->size[a] == 1) continue;
    int at = count++; /* slow to fast, by destination */
    while (at > 0 && dims[at - 1].to < to[a]) dims[at] = dims[at - 1], at--;
    dims[at] = (dim){box->size[a], from[a], to[a]};
  }
  int merged = 0;
  for (int i = 0; i < count; i++) {
    dim *last = merged > 0 ? &dims[merged - 1] : NULL;
    if (last && last->from == dims[i].from * dims[i].size && last->to == dims[i].to * dims[i].size)
      *last = (dim){last->size * dims[i].size, dims[i].from, dims[i].to};
    else
      dims[merged++] = dims[i];
  }
  if (merged == 0)
    dims[merged++] = (dim){1, (int64_t)treadle_dtype_bytes((treadle_dtype)op->from_dtype),
                           (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype)};
  op->ndim = (uint8_t)merged;
  for (int i = 0; i < merged; i++) {
    op->size[i] = dims[i].size;
    op->from_stride[i] = dims[i].from;
    op->to_stride[i] = dims[i].to;
  }
}

int64_t treadle_box_offset(const treadle_box *box, const treadle_box *base, const int64_t *stride,
                           int64_t offset) {
  for (int a = 0; a < TREADLE_MAX_AXES; a++) offset += (box->start[a] - base->start[a]) * stride[a];
  return offset;
}

/* One box, of one source and one wave. It is noted in w->done, which has to tile the piece in the end. */
static treadle_status emit(treadle_walk *w, const treadle_box *box, int32_t wave,
                           const treadle_source *from) {
  treadle_status status = treadle_cuts_add(&w->sink->cuts, 1);
  if (status != TREADLE_OK) return status;
  const treadle_piece *piece = w->piece;
  treadle_op op = {.wave = wave,
                   .source = from->rank,
                   .twin = from->twin,
                   .wire = from->wire,
                   .from_dtype = (uint8_t)from->dtype,
                   .to_dtype = (uint8_t)piece->dtype,
                   .add = (int8_t)(piece->add - from->add),
                   .tensor = piece->tensor,
                   .storage = piece->storage,
                   .to = treadle_box_offset(box, &piece->box, piece->stride, piece->offset),
                   .elems = treadle_box_elems(box)};
  if (from->stride) op.from = treadle_box_offset(box, from->box, from->stride, from->offset);
  const treadle_tensor *tensor = &w->to->model->tensors[piece->tensor];
  treadle_op_set_dims(&op, box, tensor->naxes, from->stride ? from->stride : piece->stride, piece->stride);
  if (!w->sink->no_sources) TRY(treadle_array_push(&w->done, *box));
  TRY(w->sink->take(w->sink, &op));
out:
  return status;
}

typedef struct emission {
  treadle_walk *walk;
  const treadle_source *from;
} emission;

static treadle_status emit_part(void *context, const treadle_box *box, int32_t wave) {
  emission *to = context;
  return emit(to->walk, box, wave, to->from);
}

/* Cuts a box by waves, where these matter. */
treadle_status treadle_walk_emit_waves(treadle_walk *w, const treadle_box *box,
                                       const treadle_source *from) {
  emission to = {w, from};
  if (w->sink->of_source && (from->twin || from->rank != w->sink->source)) return TREADLE_OK;
  if (w->sink->counting) return emit(w, box, 0, from);
  return w->step->cut(w->self, w->piece->tensor, box, emit_part, &to);
}

/* ---- Sources ---- */

treadle_status treadle_walk_take_source(treadle_walk *w, const treadle_source *from) {
  treadle_status status = TREADLE_OK;
  bool any = false;
  for (size_t i = 0; i < w->rest.count; i++) {
    treadle_box common;
    if (!treadle_box_meet(&w->rest.items[i], from->box, &common)) continue;
    TRY(treadle_walk_emit_waves(w, &common, from));
    any = true;
  }
  if (any) TRY(treadle_boxes_subtract(&w->rest, from->box, &w->spare));
out:
  return status;
}

/* Takes from w->rest, which lies in `box`, what `held` has, as ops of this rank; what is left stays in
 * w->rest. Each piece takes its part out of all that is left before the next one is asked, so no element
 * is taken twice. Rows 0-9 are left, and pieces have rows 2-5 and 4-7: the first one gives 2-5, the second
 * one 6-7, and rows 0-1 and 8-9 stay in w->rest. */
treadle_status treadle_walk_take_held(treadle_walk *w, const treadle_box *box, const treadle_pieces *held,
                                      treadle_piece_index *piece_index, bool twin) {
  treadle_status status = TREADLE_OK;
  const int32_t *found;
  size_t count;
  TRY(treadle_piece_index_find(piece_index, box, SIZE_MAX, &found, &count));
  for (size_t k = 0; k < count; k++) {
    const treadle_piece *piece = &held->items[found[k]];
    if (twin && piece->offset >= w->piece->offset) continue; /* the first copy is the one that moves */
    const treadle_source from = treadle_source_of(piece, (int32_t)w->rank, twin);
    TRY(treadle_walk_take_source(w, &from));
  }
out:
  return status;
}

/* Another first holder for each tensor and reader, so that readers spread over the copies. */
static int64_t first_holder(int32_t tensor, int64_t reader, int64_t holders) {
  return (int64_t)(treadle_hash_more((uint64_t)tensor, (uint64_t)reader) % (uint64_t)holders);
}

bool treadle_stripes_meet(int32_t tensor, int64_t reader, int64_t holders, int64_t holder) {
  int64_t after = holder - first_holder(tensor, reader, holders);
  return (after < 0 ? after + holders : after) < TREADLE_MAX_STRIPES;
}

/* Stripes a box over holders of a cell.
 * Stripe k has rows [rows * k / stripes, rows * (k + 1) / stripes), from holder begin_at + k: 10 rows over 4
 * holders are 0-1, 2-4, 5-6 and 7-9. */
treadle_status treadle_walk_take_stripes(treadle_walk *w, const treadle_box *box, const treadle_cell *cell,
                                         const treadle_seats *seats, int64_t most) {
  treadle_status status = TREADLE_OK;
  const treadle_tensor *tensor = &w->from->model->tensors[cell->tensor];
  int64_t rows = 1, n = seats ? (int64_t)seats->count : cell->holders;
  int last_axis = treadle_last_row_axis(tensor);
  for (int a = 0; a <= last_axis; a++) rows *= box->size[a];
  int64_t begin_at = first_holder(cell->tensor, w->rank, n);
  int64_t stripes = rows < n ? rows : n;
  if (stripes > most) stripes = most;
  for (int64_t k = 0; k < stripes; k++) {
    int64_t holder = (begin_at + k) % n;
    if (seats) holder = seats->items[holder].holder;
    treadle_source from = {.rank = (int32_t)treadle_cell_rank(w->from, cell, holder),
                           .dtype = cell->dtype,
                           .add = cell->add,
                           .box = &cell->box};
    from.offset = treadle_cell_locate(w->from, cell, holder, &from.stride);
    if (stripes == 1) return treadle_walk_emit_waves(w, box, &from);
    w->stripe.count = 0;
    TRY(treadle_box_range(box, 0, last_axis, rows * k / stripes, rows * (k + 1) / stripes, &w->stripe));
    for (size_t i = 0; i < w->stripe.count; i++)
      TRY(treadle_walk_emit_waves(w, &w->stripe.items[i], &from));
  }
out:
  return status;
}

/* One box that lies in one cell of each layout.
 * Sources in order: copies before this one in the window, this rank as a holder of the cell, other pieces of
 * this rank, then the holders in stripes; of these, those of this rank's node first (direction_near.c). */
treadle_status treadle_walk_take_box(treadle_walk *w, const treadle_box *box, const treadle_cell *from_cell,
                                     const treadle_cell *to_cell) {
  treadle_status status = TREADLE_OK;
  if (w->sink->no_sources) {
    treadle_source none = {.rank = -1, .dtype = w->piece->dtype, .add = w->piece->add};
    return treadle_walk_emit_waves(w, box, &none);
  }
  w->rest.count = 0;
  TRY(treadle_array_push(&w->rest, *box));
  if (w->copies.count > 1) TRY(treadle_walk_take_held(w, box, &w->copies, &w->near_copies, true));
  int64_t own = treadle_cell_find(w->from, from_cell, w->rank);
  if (own >= 0) {
    treadle_source from = {
        .rank = (int32_t)w->rank, .dtype = from_cell->dtype, .add = from_cell->add, .box = &from_cell->box};
    from.offset = treadle_cell_locate(w->from, from_cell, own, &from.stride);
    for (size_t i = 0; i < w->rest.count; i++) TRY(treadle_walk_emit_waves(w, &w->rest.items[i], &from));
    return TREADLE_OK;
  }
  TRY(treadle_walk_take_held(w, box, &w->held, &w->near_held, false));
  if (w->sink->own_only || w->rest.count == 0) goto out;
  if (w->near.nodes) return treadle_walk_take_near(w, from_cell, to_cell);
  for (size_t i = 0; i < w->rest.count; i++)
    TRY(treadle_walk_take_stripes(w, &w->rest.items[i], from_cell, NULL, TREADLE_MAX_STRIPES));
out:
  return status;
}
