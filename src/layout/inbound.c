/* The lower bound of a rank, from boxes alone; and rank maps, which are chosen by it. */
#include "base/dtype.h"
#include "layout/alike.h"
#include "layout/inbound_blocks.h"

#include <inttypes.h>
#include <stdio.h>

treadle_status treadle_layout_inbound(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                      int64_t *bytes_p) {
  treadle_status status = TREADLE_OK;
  treadle_pieces wanted = {0}, held = {0}, same = {0};
  treadle_boxes rest = {0}, spare = {0};
  treadle_block_bound blocks = {.from = from, .rank = rank, .tensor = -1};
  *bytes_p = 0;
  TRY(treadle_layout_pieces(to, rank, &wanted));
  for (size_t i = 0; i < wanted.count; i++) {
    const treadle_piece *piece = &wanted.items[i];
    if (piece->tensor < 0 || treadle_is_made_of_values(from, piece)) continue;
    rest.count = 0;
    TRY(treadle_array_push(&rest, piece->box));
    held.count = same.count = 0;
    TRY(treadle_layout_pieces_of(to, rank, piece->tensor, &same));
    for (size_t k = 0; k < same.count; k++) /* an element that the window has twice counts once */
      if (same.items[k].offset < piece->offset)
        TRY(treadle_boxes_subtract(&rest, &same.items[k].box, &spare));
    TRY(treadle_layout_pieces_of(from, rank, piece->tensor, &held));
    for (size_t k = 0; k < held.count; k++) TRY(treadle_boxes_subtract(&rest, &held.items[k].box, &spare));
    if (rest.count == 0) continue;
    treadle_dtype held_as = treadle_layout_dtype(from, &from->model->tensors[piece->tensor]);
    int64_t each = (int64_t)treadle_dtype_narrower_bytes(piece->dtype, held_as);
    if (treadle_is_dequantised(from, to, piece))
      TRY(treadle_block_bound_scales(&blocks, piece->tensor, &rest));
    for (size_t k = 0; k < rest.count; k++) *bytes_p += treadle_box_elems(&rest.items[k]) * each;
  }
  TRY(treadle_block_bound_codes(&blocks, to, &wanted));
  *bytes_p += blocks.bytes;
out:
  treadle_block_bound_release(&blocks);
  treadle_array_release(&wanted);
  treadle_array_release(&held);
  treadle_array_release(&same);
  treadle_array_release(&rest);
  treadle_array_release(&spare);
  return status;
}

/* ---- Rank maps ---- */

enum { MAX_STRIDE = 64 };

typedef struct score {
  int64_t largest;
  double sum;
} score;

/* Inbound bytes over all ranks; `places` has room for all. */
static treadle_status score_map(treadle_alike *alike, treadle_places *places, score *score_p) {
  treadle_status status = TREADLE_OK;
  const treadle_layout *to = alike->layouts[TREADLE_TO];
  int64_t bytes = 0;
  *score_p = (score){0};
  treadle_places_sort(alike->layouts[TREADLE_FROM], to, places);
  for (int64_t i = 0; i < to->ranks; i++) {
    if (i == 0 || !treadle_places_equal(&places[i], &places[i - 1])) {
      bytes = 0;
      TRY(treadle_alike_take(alike, places[i].rank));
      for (size_t k = 0; k < alike->holdings[TREADLE_TO].count; k++) {
        const treadle_share *share;
        if (alike->holdings[TREADLE_TO].items[k].tensor < 0) continue;
        TRY(treadle_alike_share(alike, alike->holdings[TREADLE_TO].items[k].tensor, &share));
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
  int64_t groups = infer->ranks / infer->tp;
  treadle_rank_order before = infer->order;
  score best = {-1, 0};
  treadle_alike alike = {0};
  treadle_places *places = treadle_alloc_array((size_t)infer->ranks, sizeof *places);
  if (!places) return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
  TRY(treadle_alike_create(train, infer, &alike));
  for (int64_t f = 1; f <= groups && f <= MAX_STRIDE; f++) {
    if (groups % f != 0) continue;
    score now;
    infer->order = (treadle_rank_order){infer->tp, f};
    status = score_map(&alike, places, &now);
    infer->order = before;
    TRY(status);
    if (best.largest < 0 || now.largest < best.largest ||
        (now.largest == best.largest && now.sum < best.sum)) {
      best = now;
      *f_p = f;
    }
  }
out:
  treadle_alike_release(&alike);
  treadle_free(places);
  return status;
}

treadle_status treadle_layout_map_ranks(treadle_layout *infer, const treadle_layout *train,
                                        treadle_rank_map map) {
  treadle_status status = TREADLE_OK;
  int64_t f = 1;
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
    if (infer->ranks % (f * infer->tp) != 0)
      return treadle_fail(TREADLE_REFUSED,
                          "rank map strided: %" PRId64 " ranks are not divisible by blocks of %" PRId64,
                          infer->ranks, f * infer->tp);
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
