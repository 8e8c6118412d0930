/* Shares of ranks: holdings, shares, and ranks sorted by place. */
#include "layout/signatures.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "base/limits.h"
#include "layout/blocks.h"

#include <inttypes.h>
#include <stdlib.h>

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out"); }

uint64_t treadle_tensor_kin(const treadle_layout *from, const treadle_layout *to, int32_t t) {
  const treadle_tensor *tensor = &from->model->tensors[t];
  uint64_t key = treadle_hash_more((uint64_t)tensor->pattern, treadle_layout_placement(from, t));
  key = treadle_hash_more(key, treadle_layout_placement(to, t));
  for (int a = 0; a < tensor->naxes; a++) key = treadle_hash_more(key, (uint64_t)tensor->axis[a]);
  return key ? key : 1;
}

treadle_status treadle_kin_list(const treadle_layout *from, const treadle_layout *to, uint64_t **kin_p) {
  const treadle_layout *layouts[TREADLE_SIDES] = {from, to};
  int32_t tensors = from->model->tensor_count;
  *kin_p = treadle_alloc_array((size_t)tensors + 1, sizeof **kin_p);
  if (!*kin_p) return no_memory();
  for (int32_t t = 0; t < tensors; t++) {
    uint64_t kin = treadle_tensor_kin(from, to, t);
    for (int side = 0; side < TREADLE_SIDES; side++) {
      kin = treadle_hash_more(kin, treadle_layout_dtype(layouts[side], &from->model->tensors[t]));
      kin = treadle_hash_more(kin, treadle_layout_cells_like(layouts[side], t));
    }
    (*kin_p)[t] = kin;
  }
  return TREADLE_OK;
}

treadle_status treadle_signatures_create(const treadle_layout *from, const treadle_layout *to,
                                         treadle_signatures *signatures) {
  treadle_status status;
  *signatures = (treadle_signatures){.layouts = {from, to}};
  for (int side = 0; side < TREADLE_SIDES; side++)
    signatures->holdings[side].layout = signatures->layouts[side];
  TRY(treadle_kin_list(from, to, &signatures->kin));
out:
  if (status != TREADLE_OK) treadle_signatures_release(signatures);
  return status;
}

void treadle_signatures_release(treadle_signatures *signatures) {
  treadle_free(signatures->kin);
  treadle_array_release(&signatures->shares);
  treadle_hash_index_release(&signatures->share_of);
  for (int side = 0; side < TREADLE_SIDES; side++) {
    treadle_holdings_release(&signatures->holdings[side]);
    treadle_array_release(&signatures->pieces[side]);
    treadle_piece_index_release(&signatures->piece_index[side]);
  }
  treadle_array_release(&signatures->own_cells);
  treadle_array_release(&signatures->other_cells);
  treadle_array_release(&signatures->rest);
  treadle_array_release(&signatures->spare);
  *signatures = (treadle_signatures){0};
}

/* ---- Holdings ---- */

static treadle_status refuse_cuts(const treadle_signatures *signatures) {
  return treadle_fail(TREADLE_REFUSED,
                      "a report over all ranks (%" PRId64 ") of '%s' and '%s' looks at more than %" PRId64
                      " parts; one rank can be asked for alone",
                      signatures->layouts[TREADLE_FROM]->ranks, signatures->layouts[TREADLE_FROM]->text,
                      signatures->layouts[TREADLE_TO]->text, TREADLE_MAX_REPORT_CUTS);
}

/* A report costs as much as the parts that it looks at. */
static treadle_status count_cuts(treadle_signatures *signatures, size_t count) {
  signatures->cuts += (int64_t)count;
  return signatures->cuts <= TREADLE_MAX_REPORT_CUTS ? TREADLE_OK : refuse_cuts(signatures);
}

treadle_status treadle_signatures_check(const treadle_signatures *signatures, int64_t places) {
  enum { FAR = 4 };
  return signatures->cuts / FAR <= TREADLE_MAX_REPORT_CUTS / places ? TREADLE_OK : refuse_cuts(signatures);
}

static treadle_status take_side(treadle_signatures *signatures, int side, int64_t rank) {
  treadle_status status = TREADLE_OK;
  treadle_holdings *holdings = &signatures->holdings[side];
  signatures->placed[side] = false;
  TRY(treadle_holdings_take(holdings, rank));
  TRY(count_cuts(signatures, holdings->list.count + holdings->pieces.count));
  signatures->place[side] = treadle_layout_place(signatures->layouts[side], rank);
  signatures->placed[side] = true;
out:
  return status;
}

treadle_status treadle_signatures_take(treadle_signatures *signatures, int64_t rank) {
  treadle_status status = TREADLE_OK;
  signatures->rank = rank;
  for (int side = 0; side < TREADLE_SIDES; side++)
    if (!signatures->placed[side] ||
        signatures->place[side] != treadle_layout_place(signatures->layouts[side], rank))
      TRY(take_side(signatures, side, rank));
out:
  return status;
}

/* ---- Shares ---- */

/* Where a cell comes among those of its rank, where it says so. */
static uint64_t hash_turn(uint64_t hash, const treadle_cell *cell) {
  hash = treadle_hash_more(hash, (uint64_t)cell->before);
  hash = treadle_hash_more(hash, (uint64_t)cell->weight);
  return treadle_hash_more(hash, (uint64_t)cell->total);
}

static uint64_t hash_absolute(uint64_t hash, const treadle_pieces *pieces) {
  for (size_t i = 0; i < pieces->count; i++)
    hash = treadle_hash_bytes(&pieces->items[i].box, sizeof pieces->items[i].box, hash);
  return hash;
}

/* How the pieces of one layout lie, and how the cells of both cut them: what waves and pages follow from. Of experts that are
 * one piece the cells of the first one tell all. *around_p: what they are made of lies around them, too. */
static treadle_status hash_cuts(treadle_signatures *signatures, int side, int32_t t, uint64_t *hash_p,
                                bool *around_p) {
  treadle_status status = TREADLE_OK;
  const treadle_layout *own = signatures->layouts[side], *other = signatures->layouts[!side];
  const treadle_tensor *tensor = &own->model->tensors[t];
  const treadle_form *forms = treadle_layout_forms(own);
  bool as_one = forms && forms[t].experts > 1;
  const treadle_pieces *pieces = &signatures->pieces[side];
  *around_p = false;
  uint64_t hash = treadle_hash_more((uint64_t)tensor->naxes, (uint64_t)tensor->ndim);
  for (int a = 0; a < tensor->naxes; a++) hash = treadle_hash_more(hash, (uint64_t)tensor->axis_dim[a]);
  hash = treadle_hash_more(hash, treadle_layout_dtype(own, tensor));
  hash = treadle_hash_more(hash, treadle_layout_dtype(other, tensor));
  for (size_t i = 0; i < pieces->count; i++) {
    const treadle_piece *piece = &pieces->items[i];
    hash = treadle_piece_hash(hash, piece, piece->box.start, piece->offset);
    if (treadle_is_in_block_rows(own, other, t)) {
      hash = treadle_hash_more(hash, treadle_blocks_phase(own->model, piece));
      *around_p = *around_p || treadle_blocks_cut(own->model, piece);
    }
    treadle_box first = piece->box;
    if (as_one) first.size[0] = 1;
    signatures->own_cells.count = 0;
    TRY(treadle_layout_cells(own, t, &first, &signatures->own_cells));
    for (size_t k = 0; k < signatures->own_cells.count; k++) {
      treadle_box wanted, common, *cell = &signatures->own_cells.items[k].box;
      if (as_one) cell->size[0] = piece->box.size[0];
      if (!treadle_box_meet(cell, &piece->box, &wanted)) continue;
      signatures->other_cells.count = 0;
      TRY(treadle_layout_cells(other, t, &wanted, &signatures->other_cells));
      TRY(count_cuts(signatures, signatures->other_cells.count));
      hash = hash_turn(hash, &signatures->own_cells.items[k]);
      for (size_t n = 0; n < signatures->other_cells.count; n++) {
        if (!treadle_box_meet(cell, &signatures->other_cells.items[n].box, &common)) continue;
        for (int a = 0; a < TREADLE_MAX_AXES; a++) common.start[a] -= piece->box.start[a];
        hash = treadle_hash_bytes(&common, sizeof common, hash);
        hash = hash_turn(hash, &signatures->other_cells.items[n]);
      }
    }
  }
  *hash_p = hash;
out:
  return status;
}

/* How much is left of each piece of one layout without those of the same tensor that come before it, and without
 * those of the other layout: what bytes follow from. rest_bytes: what is left in the end, in the narrower dtype. */
static treadle_status hash_rests(treadle_signatures *signatures, int side, int32_t t, uint64_t *hash,
                                 int64_t *rest_bytes) {
  treadle_status status = TREADLE_OK;
  const treadle_pieces *own = &signatures->pieces[side], *other = &signatures->pieces[!side];
  const treadle_layout *layout = signatures->layouts[!side];
  treadle_dtype other_dtype = treadle_layout_dtype(layout, &layout->model->tensors[t]);
  const int32_t *piece_index;
  size_t count;
  *rest_bytes = 0;
  *hash = treadle_hash_more(treadle_hash_more(*hash, own->count), other_dtype);
  for (size_t i = 0; i < own->count; i++) {
    const treadle_box *box = &own->items[i].box;
    int64_t elems = treadle_box_elems(box);
    signatures->rest.count = 0;
    TRY(treadle_array_push(&signatures->rest, *box));
    for (int turn = 0; turn < TREADLE_SIDES; turn++) { /* its own pieces first, then the other's */
      const treadle_pieces *pieces = turn == 0 ? own : other;
      TRY(treadle_piece_index_find(&signatures->piece_index[turn == 0 ? side : !side], box,
                                   turn == 0 ? i : SIZE_MAX, &piece_index, &count));
      for (size_t k = 0; k < count; k++) {
        const treadle_piece *without = &pieces->items[piece_index[k]];
        *hash = treadle_hash_more(*hash, (uint64_t)elems << 8 | (uint64_t)without->dtype);
        TRY(treadle_boxes_subtract(&signatures->rest, &without->box, &signatures->spare));
        elems = 0;
        for (size_t n = 0; n < signatures->rest.count; n++)
          elems += treadle_box_elems(&signatures->rest.items[n]);
      }
    }
    *hash = treadle_hash_more(*hash, (uint64_t)elems << 8 | (uint64_t)own->items[i].dtype);
    *rest_bytes += elems * (int64_t)treadle_dtype_narrower_bytes(own->items[i].dtype, other_dtype);
  }
out:
  return status;
}

/* Which pieces of both layouts meet, and how far apart they begin. */
static treadle_status hash_pairs(treadle_signatures *signatures, uint64_t *hash_p) {
  treadle_status status = TREADLE_OK;
  const treadle_pieces *from = &signatures->pieces[TREADLE_FROM], *to = &signatures->pieces[TREADLE_TO];
  const int32_t *piece_index;
  size_t count;
  *hash_p = 0;
  for (size_t i = 0; i < from->count; i++) {
    const treadle_box *box = &from->items[i].box;
    TRY(treadle_piece_index_find(&signatures->piece_index[TREADLE_TO], box, SIZE_MAX, &piece_index,
                                 &count));
    for (size_t k = 0; k < count; k++) {
      const treadle_box *other = &to->items[piece_index[k]].box;
      treadle_box common;
      if (!treadle_box_meet(box, other, &common)) continue;
      *hash_p = treadle_hash_more(*hash_p, i << 32 | (uint32_t)piece_index[k]);
      for (int a = 0; a < TREADLE_MAX_AXES; a++)
        *hash_p = treadle_hash_more(*hash_p, (uint64_t)(box->start[a] - other->start[a]));
    }
  }
out:
  return status;
}

static int by_offset(const void *a, const void *b) {
  int64_t x = ((const treadle_piece *)a)->offset, y = ((const treadle_piece *)b)->offset;
  return (x > y) - (x < y);
}

/* NULL: there is none. It lives until the next one is added. */
static const treadle_signature *find_share(const treadle_signatures *signatures, uint64_t key) {
  int32_t number = treadle_hash_index_find(&signatures->share_of, key);
  return number < 0 ? NULL : &signatures->shares.items[number];
}

static treadle_status add_share(treadle_signatures *signatures, uint64_t key,
                                const treadle_signature *share) {
  treadle_status status = TREADLE_OK;
  int32_t number;
  TRY(treadle_array_push(&signatures->shares, *share));
  TRY(treadle_hash_index_put(&signatures->share_of, key, (int32_t)signatures->shares.count - 1, &number));
out:
  return status;
}

static uint64_t hash_holding(const treadle_signatures *signatures, int side, int32_t tensor) {
  const treadle_holdings *holdings = &signatures->holdings[side];
  return holdings->at[tensor] >= 0 ? holdings->list.items[holdings->at[tensor]].pieces : 0;
}

/* hash_cuts, once for all ranks that hold the same in this layout: cuts[0], and whether `common` is needed. */
static treadle_status find_cuts(treadle_signatures *signatures, int side, int32_t t, uint64_t *cuts_p) {
  treadle_status status = TREADLE_OK;
  bool around;
  uint64_t key =
      treadle_hash_more(signatures->kin[t] + (uint64_t)side + 1, hash_holding(signatures, side, t));
  const treadle_signature *known = find_share(signatures, key);
  treadle_signature found = known ? *known : (treadle_signature){0};
  if (!known) {
    TRY(hash_cuts(signatures, side, t, &found.cuts[0], &around));
    found.common = around;
    TRY(add_share(signatures, key, &found));
  }
  *cuts_p = found.cuts[0];
  if (found.common)
    *cuts_p = hash_absolute(hash_absolute(*cuts_p, &signatures->pieces[side]), &signatures->pieces[!side]);
out:
  return status;
}

static treadle_status fill_share(treadle_signatures *signatures, int32_t t, treadle_signature *share) {
  treadle_status status = TREADLE_OK;
  int64_t back_bytes;
  for (int side = 0; side < TREADLE_SIDES; side++) {
    treadle_pieces *pieces = &signatures->pieces[side];
    pieces->count = 0;
    TRY(treadle_layout_bundles_of(signatures->layouts[side], signatures->rank, t, pieces));
    if (pieces->count > 1) qsort(pieces->items, pieces->count, sizeof *pieces->items, by_offset);
    TRY(treadle_piece_index_make(&signatures->piece_index[side], pieces));
  }
  for (int side = 0; side < TREADLE_SIDES; side++) TRY(find_cuts(signatures, side, t, &share->cuts[side]));
  TRY(hash_pairs(signatures, &share->pairs));
  share->common = 0;
  TRY(hash_rests(signatures, TREADLE_FROM, t, &share->common, &back_bytes));
  TRY(hash_rests(signatures, TREADLE_TO, t, &share->common, &share->inbound_bytes));
out:
  return status;
}

treadle_status treadle_signatures_share(treadle_signatures *signatures, int32_t tensor,
                                        const treadle_signature **share_p) {
  treadle_status status = TREADLE_OK;
  uint64_t key = signatures->kin[tensor];
  for (int side = 0; side < TREADLE_SIDES; side++)
    key = treadle_hash_more(key, hash_holding(signatures, side, tensor));
  *share_p = find_share(signatures, key);
  if (!*share_p) {
    treadle_signature made = {0};
    TRY(fill_share(signatures, tensor, &made));
    TRY(add_share(signatures, key, &made));
    *share_p = find_share(signatures, key);
  }
out:
  return status;
}

/* ---- Ranks by place ---- */

static int compare(const treadle_rank_signature *a, const treadle_rank_signature *b, int outer) {
  if (a->place[outer] != b->place[outer]) return a->place[outer] < b->place[outer] ? -1 : 1;
  if (a->place[!outer] != b->place[!outer]) return a->place[!outer] < b->place[!outer] ? -1 : 1;
  return a->rank < b->rank ? -1 : a->rank > b->rank;
}
static int compare_from_first(const void *a, const void *b) { return compare(a, b, TREADLE_FROM); }
static int compare_to_first(const void *a, const void *b) { return compare(a, b, TREADLE_TO); }

void treadle_rank_signatures_sort(const treadle_layout *from, const treadle_layout *to,
                                  treadle_rank_signature *places) {
  static int (*const by[TREADLE_SIDES])(const void *, const void *) = {compare_from_first,
                                                                       compare_to_first};
  const treadle_layout *layouts[TREADLE_SIDES] = {from, to};
  size_t ranks = (size_t)from->ranks, count[TREADLE_SIDES] = {0};
  for (size_t r = 0; r < ranks; r++) {
    places[r].rank = (int64_t)r;
    for (int side = 0; side < TREADLE_SIDES; side++)
      places[r].place[side] = treadle_layout_place(layouts[side], (int64_t)r);
  }
  for (int side = 0; side < TREADLE_SIDES; side++) {
    qsort(places, ranks, sizeof *places, by[side]);
    for (size_t r = 0; r < ranks; r++)
      count[side] += r == 0 || places[r].place[side] != places[r - 1].place[side];
  }
  if (count[TREADLE_FROM] < count[TREADLE_TO]) qsort(places, ranks, sizeof *places, compare_from_first);
}
