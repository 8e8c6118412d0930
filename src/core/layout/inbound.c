/* The lower bound of the bytes that a rank pulls, from boxes alone. */
#include "base/argument.h"
#include "base/dtype.h"
#include "layout/inbound_blocks.h"
#include "layout/signatures.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct inbound {
  const treadle_layout *from, *to;
  treadle_pieces same, held; /* of the tensor at hand, there and here */
  treadle_piece_index near_same, near_held;
  treadle_boxes rest, spare;
  treadle_block_bound blocks;
  int64_t bytes;
} inbound;

/* One piece of the tensor at hand, which is not a code or scale made of values. */
static treadle_status take_piece(inbound *b, const treadle_piece *piece) {
  treadle_status status = TREADLE_OK;
  const int32_t *piece_index;
  size_t count;
  b->rest.count = 0;
  TRY(treadle_array_push(&b->rest, piece->box));
  TRY(treadle_piece_index_find(&b->near_same, &piece->box, SIZE_MAX, &piece_index, &count));
  for (size_t k = 0; k < count; k++) /* an element that the window has twice counts once */
    if (b->same.items[piece_index[k]].offset < piece->offset)
      TRY(treadle_boxes_subtract(&b->rest, &b->same.items[piece_index[k]].box, &b->spare));
  TRY(treadle_piece_index_find(&b->near_held, &piece->box, SIZE_MAX, &piece_index, &count));
  for (size_t k = 0; k < count; k++)
    TRY(treadle_boxes_subtract(&b->rest, &b->held.items[piece_index[k]].box, &b->spare));
  if (b->rest.count == 0) return TREADLE_OK;
  treadle_dtype held_as = treadle_layout_dtype(b->from, &b->from->model->tensors[piece->tensor]);
  int64_t each = (int64_t)treadle_dtype_narrower_bytes(piece->dtype, held_as);
  if (treadle_is_dequantised(b->from, b->to, piece))
    TRY(treadle_block_bound_scales(&b->blocks, piece->tensor, &b->rest));
  for (size_t k = 0; k < b->rest.count; k++) b->bytes += treadle_box_elems(&b->rest.items[k]) * each;
out:
  return status;
}

/* All pieces of a tensor, so that the scale of a block counts once. */
static treadle_status take_tensor(inbound *b, int32_t tensor) {
  treadle_status status = TREADLE_OK;
  bool quantised = false;
  b->held.count = 0;
  TRY(treadle_layout_bundles_of(b->from, b->blocks.rank, tensor, &b->held));
  TRY(treadle_piece_index_make(&b->near_same, &b->same));
  TRY(treadle_piece_index_make(&b->near_held, &b->held));
  for (size_t i = 0; i < b->same.count; i++) {
    const treadle_piece *piece = &b->same.items[i];
    quantised = quantised || treadle_is_quantised(b->from, piece);
    if (!treadle_is_made_of_values(b->from, piece)) TRY(take_piece(b, piece));
  }
  if (quantised) TRY(treadle_block_bound_codes(&b->blocks, tensor, &b->same));
out:
  return status;
}

treadle_status treadle_layout_inbound(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                      treadle_cuts_of_all *all, int64_t *bytes_p) {
  treadle_status status = TREADLE_OK;
  treadle_pieces wanted = {0};
  *bytes_p = 0;
  TRY(treadle_layout_pieces(to, rank, &wanted));
  TRY(treadle_layout_inbound_of(from, to, rank, &wanted, NULL, all, bytes_p));
out:
  treadle_array_release(&wanted);
  return status;
}

treadle_status treadle_layout_inbound_of(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                         const treadle_pieces *wanted, const treadle_counting *counting,
                                         treadle_cuts_of_all *all, int64_t *bytes_p) {
  treadle_status status = TREADLE_OK;
  treadle_piece_lists lists = {0};
  inbound b = {.from = from, .to = to, .blocks = {.from = from, .rank = rank, .tensor = -1}};
  b.blocks.counting = counting;
  b.blocks.cuts = (treadle_cuts){.from = from, .to = to, .rank = rank, .all = all};
  *bytes_p = 0;
  TRY(treadle_piece_lists_make(wanted, to->model->tensor_count, &lists));
  for (int32_t t = 0; t < to->model->tensor_count; t++) {
    b.same.count = 0;
    b.bytes = b.blocks.bytes = 0;
    for (int32_t i = lists.first[t]; i >= 0; i = lists.next[i])
      TRY(treadle_array_push(&b.same, wanted->items[i]));
    if (b.same.count > 0) TRY(take_tensor(&b, t));
    *bytes_p += (b.bytes + b.blocks.bytes) * (counting ? counting->times[t] : 1);
  }
out:
  treadle_block_bound_release(&b.blocks);
  treadle_piece_lists_release(&lists);
  treadle_array_release(&b.held);
  treadle_array_release(&b.same);
  treadle_piece_index_release(&b.near_same);
  treadle_piece_index_release(&b.near_held);
  treadle_array_release(&b.rest);
  treadle_array_release(&b.spare);
  return status;
}
