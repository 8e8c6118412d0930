/* Holdings. Where a layout has forms, a tensor that lies as one before it is not looked at: its holdings are those of the other,
 * moved. */
#include "layout/holdings.h"

#include "base/hash.h"

#include <string.h>

uint64_t treadle_piece_hash(uint64_t seed, const treadle_piece *piece, const int64_t *start,
                            int64_t offset) {
  int64_t numbers[3 * TREADLE_MAX_AXES + 2];
  int count = 0;
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    numbers[count++] = piece->box.start[a] - start[a];
    numbers[count++] = piece->box.size[a];
    numbers[count++] = piece->box.size[a] > 1 ? piece->stride[a] : 0;
  }
  numbers[count++] = piece->offset - offset;
  numbers[count++] = (int64_t)piece->dtype;
  return treadle_hash_bytes(numbers, sizeof numbers, seed);
}

static treadle_status start(treadle_holdings *h) {
  size_t tensors = (size_t)h->layout->model->tensor_count;
  for (size_t i = 0; i < h->list.count; i++)
    if (h->list.items[i].tensor >= 0) h->at[h->list.items[i].tensor] = -1;
  h->list.count = h->pieces.count = 0;
  if (h->at) return TREADLE_OK;
  h->at = treadle_alloc_array(tensors + 1, sizeof *h->at);
  h->first = treadle_alloc_array(tensors + 1, sizeof *h->first);
  if (!h->at || !h->first) return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
  memset(h->at, -1, tensors * sizeof *h->at);
  return TREADLE_OK;
}

static void note(treadle_holdings *h, int64_t offset, int32_t storage, size_t holding) {
  h->window = treadle_hash_more(h->window, (uint64_t)offset);
  h->window = treadle_hash_more(h->window, (uint64_t)storage << 32 | (uint32_t)holding);
}

/* Takes the pieces from `begin` on. */
static treadle_status take_pieces(treadle_holdings *h, size_t begin) {
  static const int64_t origin[TREADLE_MAX_AXES];
  treadle_status status = TREADLE_OK;
  for (size_t i = begin; i < h->pieces.count; i++) {
    const treadle_piece *piece = &h->pieces.items[i];
    bool more = piece->tensor >= 0 && h->at[piece->tensor] >= 0;
    if (!more) {
      if (piece->tensor >= 0) h->at[piece->tensor] = (int32_t)h->list.count;
      TRY(treadle_array_push(
          &h->list,
          ((treadle_holding){.tensor = piece->tensor, .offset = piece->offset, .first = {-1, -1}})));
    }
    size_t at = more ? (size_t)h->at[piece->tensor] : h->list.count - 1;
    treadle_holding *holding = &h->list.items[at];
    int64_t *first = &holding->first[piece->dtype == TREADLE_FP8_E4M3];
    if (*first < 0) *first = piece->offset;
    holding->pieces = treadle_piece_hash(holding->pieces, piece, origin, holding->offset);
    holding->apart = treadle_piece_hash(holding->apart, piece, origin, *first);
    note(h, piece->offset, piece->storage, at);
  }
out:
  return status;
}

/* Repeats the holdings of another tensor of the same form. */
static treadle_status take_like(treadle_holdings *h, const treadle_form *forms, int32_t tensor) {
  treadle_status status = TREADLE_OK;
  int32_t like = forms[tensor].like;
  int64_t distance = forms[tensor].at - forms[like].at;
  for (int32_t i = h->first[like]; i < h->first[like + 1]; i++) {
    treadle_holding holding = h->list.items[i];
    holding.offset += distance;
    if (holding.tensor >= 0) {
      holding.tensor = tensor;
      h->at[tensor] = (int32_t)h->list.count;
    }
    note(h, holding.offset, forms[tensor].storage, h->list.count);
    TRY(treadle_array_push(&h->list, holding));
  }
out:
  return status;
}

treadle_status treadle_holdings_take(treadle_holdings *h, int64_t rank) {
  treadle_status status = TREADLE_OK;
  const treadle_layout *layout = h->layout;
  const treadle_form *forms = treadle_layout_forms(layout);
  TRY(start(h));
  h->window = treadle_layout_window_bytes(layout, rank);
  if (!forms) {
    TRY(treadle_layout_pieces(layout, rank, &h->pieces));
    return take_pieces(h, 0);
  }
  for (int32_t t = 0; t < layout->model->tensor_count; t++) {
    h->first[t] = (int32_t)h->list.count;
    if (forms[t].like != t) {
      TRY(take_like(h, forms, t));
    } else {
      h->pieces.count = 0;
      TRY(treadle_layout_bundles_with_fills(layout, rank, t, &h->pieces));
      TRY(take_pieces(h, 0));
    }
    h->first[t + 1] = (int32_t)h->list.count;
  }
out:
  return status;
}

void treadle_holdings_release(treadle_holdings *h) {
  treadle_array_release(&h->list);
  treadle_array_release(&h->pieces);
  treadle_free(h->at);
  treadle_free(h->first);
  *h = (treadle_holdings){0};
}
