/* The lower bound of the bytes that a rank pulls, from boxes alone; and the choice of rank maps by it. */
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

/* One piece of the tensor at hand, which is no code or scale made of values. */
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

/* ---- Rank maps ---- */

enum { MAX_STRIDE = 64 };

typedef struct score {
  int64_t largest;
  double sum;
} score;

/* Inbound bytes over all ranks; `places` has room for all. */
static treadle_status score_map(treadle_signatures *signatures, treadle_rank_signature *places,
                                score *score_p) {
  treadle_status status = TREADLE_OK;
  const treadle_layout *to = signatures->layouts[TREADLE_TO];
  int64_t bytes = 0;
  *score_p = (score){0};
  treadle_rank_signatures_sort(signatures->layouts[TREADLE_FROM], to, places);
  for (int64_t i = 0; i < to->ranks; i++) {
    if (i == 0 || !treadle_rank_signatures_equal(&places[i], &places[i - 1])) {
      bytes = 0;
      TRY(treadle_signatures_take(signatures, places[i].rank));
      for (size_t k = 0; k < signatures->holdings[TREADLE_TO].list.count; k++) {
        const treadle_signature *share;
        if (signatures->holdings[TREADLE_TO].list.items[k].tensor < 0) continue;
        TRY(treadle_signatures_share(signatures, signatures->holdings[TREADLE_TO].list.items[k].tensor,
                                     &share));
        bytes += share->inbound_bytes;
      }
    }
    if (bytes > score_p->largest) score_p->largest = bytes;
    score_p->sum += (double)bytes;
  }
out:
  return status;
}

/* Contiguous first, then every stride up to MAX_STRIDE that divides the ranks: the first with the smallest
 * maximum, then the smallest mean. */
static treadle_status choose_best(treadle_layout *infer, const treadle_layout *train, int64_t *f_p) {
  treadle_status status = TREADLE_OK;
  int64_t groups = infer->owners.count / infer->tp;
  treadle_rank_order before = infer->order;
  score best = {-1, 0};
  treadle_rank_signature *places = NULL;
  treadle_signatures signatures = {0};
  TRY(treadle_layout_check_table(infer));
  places = treadle_alloc_array((size_t)infer->ranks, sizeof *places);
  if (!places) return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
  TRY(treadle_signatures_create(train, infer, &signatures));
  for (int64_t f = 1; f <= groups && f <= MAX_STRIDE; f++) {
    if (groups % f != 0) continue;
    score now;
    infer->order = (treadle_rank_order){infer->tp, f};
    status = score_map(&signatures, places, &now);
    infer->order = before;
    TRY(status);
    if (best.largest < 0 || now.largest < best.largest ||
        (now.largest == best.largest && now.sum < best.sum)) {
      best = now;
      *f_p = f;
    }
  }
out:
  treadle_signatures_release(&signatures);
  treadle_free(places);
  return status;
}

treadle_status treadle_layout_map_ranks(treadle_layout *infer, const treadle_layout *train,
                                        treadle_rank_map map) {
  treadle_status status = TREADLE_OK;
  int64_t f = 1;
  TREADLE_NEED(infer);
  TREADLE_NEED(train);
  TRY(TREADLE_CHECK_ENUM(map, TREADLE_BEST + 1));
  if (infer->model != train->model)
    return treadle_fail(TREADLE_REFUSED, "layouts '%s' and '%s' are of two models", train->text,
                        infer->text);
  if (infer->ranks != train->ranks)
    return treadle_fail(TREADLE_REFUSED, "layouts '%s' and '%s' are of %" PRId64 " and %" PRId64 " ranks",
                        train->text, infer->text, train->ranks, infer->ranks);
  if (map == TREADLE_STRIDED) {
    if (train->tp % infer->tp != 0)
      return treadle_fail(TREADLE_REFUSED,
                          "rank map strided: tp=%" PRId64 " of '%s' is not a multiple of tp=%" PRId64
                          " of '%s'",
                          train->tp, train->text, infer->tp, infer->text);
    f = train->tp / infer->tp;
    if (infer->owners.count % (f * infer->tp) != 0)
      return treadle_fail(TREADLE_REFUSED,
                          "rank map strided: %" PRId64 " ranks are not divisible by blocks of %" PRId64,
                          infer->owners.count, f * infer->tp);
  }
  if (map == TREADLE_BEST) TRY(choose_best(infer, train, &f));
  infer->order = (treadle_rank_order){infer->tp, f};
  if (f == 1 && map != TREADLE_STRIDED)
    snprintf(infer->map_text, sizeof infer->map_text, "contiguous");
  else if (map == TREADLE_STRIDED)
    snprintf(infer->map_text, sizeof infer->map_text, "strided");
  else
    snprintf(infer->map_text, sizeof infer->map_text, "strided:%" PRId64, f);
out:
  return status;
}
