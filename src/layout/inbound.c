/* The lower bound of a rank, from boxes alone; and rank maps, which are chosen by it. */
#include "base/dtype.h"
#include "layout/layout.h"

#include <inttypes.h>
#include <stdio.h>

/* Replaces each box by what of it lies outside `without`. */
static treadle_status subtract_all(treadle_boxes *boxes, const treadle_box *without, treadle_boxes *spare) {
  treadle_status status = TREADLE_OK;
  spare->count = 0;
  for (size_t i = 0; i < boxes->count; i++) TRY(treadle_box_subtract(&boxes->items[i], without, spare));
  treadle_boxes swap = *boxes;
  *boxes = *spare;
  *spare = swap;
out:
  return status;
}

treadle_status treadle_layout_inbound(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                      int64_t *bytes_p) {
  treadle_status status = TREADLE_OK;
  treadle_pieces wanted = {0}, held = {0}, same = {0};
  treadle_boxes rest = {0}, spare = {0};
  *bytes_p = 0;
  TRY(treadle_layout_pieces(to, rank, &wanted));
  for (size_t i = 0; i < wanted.count; i++) {
    const treadle_piece *piece = &wanted.items[i];
    if (piece->tensor < 0) continue;
    rest.count = 0;
    TRY(treadle_array_push(&rest, piece->box));
    held.count = same.count = 0;
    TRY(treadle_layout_pieces_of(to, rank, piece->tensor, &same));
    for (size_t k = 0; k < same.count; k++) /* an element that the window has twice counts once */
      if (same.items[k].offset < piece->offset) TRY(subtract_all(&rest, &same.items[k].box, &spare));
    TRY(treadle_layout_pieces_of(from, rank, piece->tensor, &held));
    for (size_t k = 0; k < held.count; k++) TRY(subtract_all(&rest, &held.items[k].box, &spare));
    if (rest.count == 0) continue;
    treadle_dtype held_as = treadle_layout_dtype(from, &from->model->tensors[piece->tensor]);
    int64_t each = (int64_t)treadle_dtype_narrower_bytes(piece->dtype, held_as);
    for (size_t k = 0; k < rest.count; k++) *bytes_p += treadle_box_elems(&rest.items[k]) * each;
  }
out:
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

typedef struct seen_place {
  uint64_t from, to;
  int64_t bytes;
} seen_place;

/* Inbound bytes over all ranks; ranks that have and want the same are evaluated once. */
static treadle_status score_map(const treadle_layout *from, const treadle_layout *to, score *score_p) {
  treadle_status status = TREADLE_OK;
  TREADLE_ARRAY(seen_place) seen = {0};
  *score_p = (score){0};
  size_t last = 0;
  for (int64_t rank = 0; rank < to->ranks; rank++) {
    seen_place place = {treadle_layout_place(from, rank), treadle_layout_place(to, rank), -1};
    for (size_t i = 0; i < seen.count && place.bytes < 0; i++) {
      const seen_place *known = &seen.items[(last + i) % seen.count];
      if (known->from == place.from && known->to == place.to) {
        place.bytes = known->bytes;
        last = (last + i) % seen.count;
      }
    }
    if (place.bytes < 0) {
      TRY(treadle_layout_inbound(from, to, rank, &place.bytes));
      TRY(treadle_array_push(&seen, place));
    }
    if (place.bytes > score_p->largest) score_p->largest = place.bytes;
    score_p->sum += (double)place.bytes;
  }
out:
  treadle_array_release(&seen);
  return status;
}

/* Contiguous first, then every stride up to MAX_STRIDE that divides the ranks: the first with the smallest
 * maximum, then the smallest mean. */
static treadle_status choose_best(treadle_layout *infer, const treadle_layout *train, int64_t *f_p) {
  treadle_status status = TREADLE_OK;
  int64_t groups = infer->ranks / infer->tp;
  treadle_rank_order before = infer->order;
  score best = {-1, 0};
  for (int64_t f = 1; f <= groups && f <= MAX_STRIDE; f++) {
    if (groups % f != 0) continue;
    score now;
    infer->order = (treadle_rank_order){infer->tp, f};
    status = score_map(train, infer, &now);
    infer->order = before;
    TRY(status);
    if (best.largest < 0 || now.largest < best.largest ||
        (now.largest == best.largest && now.sum < best.sum)) {
      best = now;
      *f_p = f;
    }
  }
out:
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
