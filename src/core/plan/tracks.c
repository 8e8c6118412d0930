/* Tracks: which tensors are walked, and what of them is touched. */
#include "base/dtype.h"
#include "base/hash.h"
#include "base/hash_index.h"
#include "base/limits.h"
#include "layout/blocks.h"
#include "plan/direction.h"
#include "plan/tracks_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A window in a few lists: tensors that lie alike have one model; a model has touches, ranges of bytes, of
 * which each knows the one before it in the walk; a stretch is a row of its experts, which lie at one
 * distance. To play a tensor is to go through its model's touches, moved by where the tensor begins, with
 * its own waves. */
/* How they are made. */
typedef struct walk {
  treadle_sink sink;
  treadle_tracks *tracks;
  const uint64_t *kin;
  int64_t rank;
  int32_t turn, turns;
  treadle_holdings holdings;
  treadle_pieces bundles, pieces; /* of all models; of the turn */
  TREADLE_ARRAY(int32_t) bundle_models;
  TREADLE_ARRAY(int32_t) before; /* of each fill of a window without forms: the tensor before it, or -1 */
  treadle_cells cells;
} walk;

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out"); }

/* ---- Models ---- */

static uint64_t hash_holding(const walk *w, int32_t tensor) {
  return w->holdings.at[tensor] >= 0 ? w->holdings.list.items[w->holdings.at[tensor]].pieces : 0;
}

/* Tensors with equal keys are touched alike. The waves of weights in blocks and of their scales are those of the weights. */
static uint64_t key_of(const walk *w, int32_t tensor) {
  const treadle_layout *own = w->tracks->own;
  const treadle_tensor *of = &own->model->tensors[tensor];
  uint64_t key = treadle_hash_more(w->kin[tensor], hash_holding(w, tensor));
  int32_t beside = of->scale_of >= 0 ? of->scale_of : of->scale;
  if (beside >= 0) key = treadle_hash_more(key, w->kin[beside]);
  const treadle_form *forms = treadle_layout_forms(own);
  if (forms) key = treadle_hash_more(key, (uint64_t)forms[tensor].like);
  return key;
}

/* Where a tensor begins, for the distance to another one with its key. */
static int64_t begin_of(const walk *w, int32_t tensor) {
  const treadle_form *forms = treadle_layout_forms(w->tracks->own);
  return forms ? forms[tensor].at : w->holdings.list.items[w->holdings.at[tensor]].offset;
}

/* Each tensor of the window gets its model, and each model its pieces.
 * With forms the pieces of a model are asked for; without, they are picked from all that the rank holds.
 * bundle_models[i] is the model of bundles[i], fills too. */
static treadle_status find_models(walk *w) {
  treadle_status status = TREADLE_OK;
  treadle_tracks *t = w->tracks;
  treadle_hash_index found = {0};
  int32_t tensors = t->own->model->tensor_count;
  const treadle_form *forms = treadle_layout_forms(t->own);
  t->model_of = treadle_alloc_array((size_t)tensors + 1, sizeof *t->model_of);
  t->shift = treadle_alloc_array((size_t)tensors + 1, sizeof *t->shift);
  if (!t->model_of || !t->shift) return no_memory();
  for (int32_t i = 0; i < tensors; i++) {
    /* a form of which a rank has nothing but fills is listed, too */
    t->model_of[i] = -1;
    if (forms ? w->holdings.first[i] == w->holdings.first[i + 1] : w->holdings.at[i] < 0) continue;
    int32_t fresh = (int32_t)t->models.count;
    TRY(treadle_hash_index_put(&found, key_of(w, i), fresh, &t->model_of[i]));
    if (t->model_of[i] == fresh) {
      TRY(treadle_array_push(&t->models, ((treadle_track_model){.tensor = i, .touches = -1})));
      if (forms) TRY(treadle_layout_bundles_with_fills(t->own, w->rank, i, &w->bundles));
      while (w->bundle_models.count < w->bundles.count) TRY(treadle_array_push(&w->bundle_models, fresh));
    }
    t->shift[i] = begin_of(w, i) - begin_of(w, t->models.items[t->model_of[i]].tensor);
  }
  for (size_t i = 0; !forms && i < w->holdings.pieces.count; i++) {
    const treadle_piece *piece = &w->holdings.pieces.items[i];
    if (piece->tensor < 0 || t->models.items[t->model_of[piece->tensor]].tensor != piece->tensor) continue;
    TRY(treadle_array_push(&w->bundles, *piece));
    TRY(treadle_array_push(&w->bundle_models, t->model_of[piece->tensor]));
  }
out:
  treadle_hash_index_release(&found);
  return status;
}

/* ---- Experts ---- */

/* Which experts of a model the other layout cuts alike: an expert of each set is walked, each in a turn of
 * its own. cut[e] sums up the cells of expert e, without the axis of experts itself. Experts that are cut
 * as A A B B A are stretches [0, 2) walked 0 in turn 0, [2, 4) walked 2 in turn 1, and [4, 5), which
 * expert 0 and turn 0 stand for. */
static treadle_status find_stretches(walk *w, treadle_track_model *of, const treadle_form *form) {
  treadle_status status = TREADLE_OK;
  treadle_tracks *t = w->tracks;
  const treadle_tensor *tensor = &t->own->model->tensors[of->tensor];
  int32_t asked = treadle_is_in_block_rows(t->own, t->other, of->tensor) && tensor->scale_of >= 0
                      ? tensor->scale_of
                      : of->tensor;
  treadle_box box = treadle_box_whole(&t->own->model->tensors[asked]);
  uint64_t *cut = treadle_alloc_array((size_t)form->experts, sizeof *cut); /* by expert */
  if (!cut) return no_memory();
  of->distance = form->distance;
  of->stretch_first = t->stretches.count;
  w->cells.count = 0;
  TRY(treadle_layout_cells(t->other, asked, &box, &w->cells));
  for (size_t i = 0; i < w->cells.count; i++) {
    const treadle_cell *cell = &w->cells.items[i];
    int64_t numbers[2 * TREADLE_MAX_AXES + 3] = {cell->before, cell->weight, cell->total};
    for (int a = 1; a < TREADLE_MAX_AXES; a++) {
      numbers[2 * a + 1] = cell->box.start[a];
      numbers[2 * a + 2] = cell->box.size[a];
    }
    uint64_t hash = treadle_hash_bytes(numbers, sizeof numbers, 0);
    for (int64_t e = 0; e < cell->box.size[0]; e++)
      cut[cell->box.start[0] + e] = treadle_hash_more(cut[cell->box.start[0] + e], hash);
  }
  for (int64_t e = 0; e < form->experts; e++) {
    treadle_track_stretch *last =
        t->stretches.count > of->stretch_first ? &t->stretches.items[t->stretches.count - 1] : NULL;
    if (last && cut[last->walked] == cut[e]) {
      last->end = e + 1;
      continue;
    }
    treadle_track_stretch next = {.first = e, .end = e + 1, .walked = e};
    for (size_t i = of->stretch_first; i < t->stretches.count; i++) {
      const treadle_track_stretch *one = &t->stretches.items[i];
      if (cut[one->walked] == cut[e]) {
        next.walked = one->walked;
        next.turn = one->turn;
        break;
      }
      if (one->turn >= next.turn) next.turn = one->turn + 1;
    }
    if (next.turn >= w->turns) w->turns = next.turn + 1;
    TRY(treadle_array_push(&t->stretches, next));
  }
out:
  of->stretch_end = t->stretches.count;
  treadle_free(cut);
  return status;
}

/* ---- Walking the models ---- */

/* Appends what an op touches: one range [begin, last], or the op itself where a stride is longer than a page. */
static treadle_status push_touch(walk *w, const treadle_op *op, treadle_track_touch *next) {
  treadle_status status = TREADLE_OK;
  treadle_tracks *t = w->tracks;
  if (t->touches.count >= TREADLE_MAX_TOUCHES)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "plan: rank %" PRId64
                     ": '%s' and '%s' cut its window in more than %d parts that differ; that "
                     "is the most",
                     w->rank, t->own->text, t->other->text, TREADLE_MAX_TOUCHES));
  if (next->op >= 0) TRY(treadle_array_push(&t->ops, *op));
  TRY(treadle_array_push(&t->touches, *next));
out:
  return status;
}

static treadle_track_touch touch_of(const walk *w, const treadle_op *op) {
  treadle_track_touch touch = {
      .begin = op->to, .atom = op->wave, .turn = w->turn, .next = -1, .op = -1, .storage = op->storage};
  touch.last = op->to + (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype) - 1;
  for (int i = 0; i < op->ndim; i++) {
    touch.last += (op->size[i] - 1) * op->to_stride[i];
    if (op->to_stride[i] > w->tracks->lanes.page_bytes) touch.op = (int32_t)w->tracks->ops.count;
  }
  return touch;
}

/* The model of a fill: that of the piece which it is. */
static int32_t model_of_fill(const walk *w, const treadle_op *op) {
  for (size_t i = 0; i < w->bundles.count; i++)
    if (w->bundles.items[i].tensor < 0 && w->bundles.items[i].offset == op->to)
      return w->bundle_models.items[i];
  return -1;
}

/* A touch joins the one before it, if both are of one atom and no whole page lies between. */
static treadle_status take(treadle_sink *sink, const treadle_op *op) {
  treadle_status status = TREADLE_OK;
  walk *w = (walk *)sink;
  treadle_tracks *t = w->tracks;
  treadle_track_model *of =
      &t->models.items[op->tensor >= 0 ? t->model_of[op->tensor] : model_of_fill(w, op)];
  treadle_track_touch next = touch_of(w, op);
  if (op->elems == 0) return TREADLE_OK;
  next.next = of->touches;
  treadle_track_touch *last = of->touches >= 0 ? &t->touches.items[of->touches] : NULL;
  /* a gap that is shorter than a page leaves none out */
  if (last && last->op < 0 && next.op < 0 && last->atom == next.atom && last->turn == next.turn &&
      last->storage == next.storage && next.begin > last->last &&
      next.begin - last->last <= t->lanes.page_bytes) {
    last->last = next.last;
    return TREADLE_OK;
  }
  TRY(push_touch(w, op, &next));
  of->touches = (int32_t)t->touches.count - 1;
out:
  return status;
}

static treadle_status walk_pieces(walk *w) {
  treadle_status status = TREADLE_OK;
  treadle_tracks *t = w->tracks;
  treadle_lanes by_atoms = t->lanes;
  by_atoms.atoms = &t->atoms;
  by_atoms.waves = 0; /* -1 is the last wave (lanes.h) */
  TRY(treadle_direction_walk_pieces(&by_atoms, t->other, t->own, w->rank, &w->pieces, &w->sink));
  if (t->atoms.status != TREADLE_OK) status = no_memory();
out:
  return status;
}

/* Pieces of a turn: of a model with stretches, the one expert that is walked in this turn, moved to its
 * place; all others in turn 0. Lanes give atoms in place of waves, so one walk serves tensors at any
 * position of their lane. */
static treadle_status walk_turn(walk *w) {
  treadle_status status = TREADLE_OK;
  const treadle_tracks *t = w->tracks;
  w->pieces.count = 0;
  for (size_t i = 0; i < w->bundles.count; i++) {
    treadle_piece piece = w->bundles.items[i];
    const treadle_track_model *of = &t->models.items[w->bundle_models.items[i]];
    const treadle_track_stretch *at = NULL;
    for (size_t k = of->stretch_first; k < of->stretch_end && !at; k++)
      if (t->stretches.items[k].turn == w->turn) at = &t->stretches.items[k];
    if (of->distance == 0 && w->turn > 0) continue;
    if (of->distance > 0) {
      if (!at) continue;
      piece.box.start[0] = at->walked;
      piece.box.size[0] = 1;
      piece.offset += at->walked * of->distance;
    }
    TRY(treadle_array_push(&w->pieces, piece));
  }
  TRY(walk_pieces(w));
out:
  return status;
}

/* ---- Fills of windows without forms ---- */

/* Fills come in the order of w->before. */
static treadle_status take_fill(treadle_sink *sink, const treadle_op *op) {
  treadle_status status = TREADLE_OK;
  walk *w = (walk *)sink;
  treadle_tracks *t = w->tracks;
  if (op->tensor >= 0) return TREADLE_OK;
  treadle_track_touch next = touch_of(w, op);
  TRY(push_touch(w, op, &next));
  const treadle_track_fill fill = {(int32_t)t->touches.count - 1, w->before.items[t->fills.count]};
  TRY(treadle_array_push(&t->fills, fill));
out:
  return status;
}

/* Fills are walked as they are, each behind the pieces of its storage tensor.
 * A fill has the wave of the data before it, so that piece is walked with it, though only the fill is
 * taken. */
static treadle_status walk_fills(walk *w) {
  treadle_status status = TREADLE_OK;
  const treadle_pieces *all = &w->holdings.pieces;
  w->sink.take = take_fill;
  w->pieces.count = 0;
  for (size_t i = 0, first = 0; i < all->count; i++) {
    if (all->items[i].storage != all->items[first].storage) first = i;
    if (all->items[i].tensor >= 0) continue;
    const treadle_piece *before = NULL; /* as the walk looks for it */
    for (size_t k = first; k < i; k++)
      if (all->items[k].tensor >= 0 && all->items[k].offset < all->items[i].offset &&
          (!before || all->items[k].offset > before->offset))
        before = &all->items[k];
    if (before) TRY(treadle_array_push(&w->pieces, *before));
    TRY(treadle_array_push(&w->pieces, all->items[i]));
    TRY(treadle_array_push(&w->before, before ? before->tensor : -1));
  }
  if (w->pieces.count > 0) TRY(walk_pieces(w));
out:
  return status;
}

/* ---- The whole ---- */

static treadle_status make(walk *w) {
  treadle_status status = TREADLE_OK;
  treadle_tracks *t = w->tracks;
  const treadle_form *forms = treadle_layout_forms(t->own);
  TRY(treadle_holdings_take(&w->holdings, w->rank));
  TRY(find_models(w));
  for (size_t i = 0; i < w->bundles.count; i++) {
    treadle_track_model *of = &t->models.items[w->bundle_models.items[i]];
    bool as_one = forms && w->bundles.items[i].tensor >= 0 && forms[of->tensor].experts > 1 &&
                  w->bundles.items[i].box.size[0] > 1;
    if (as_one && of->distance == 0) TRY(find_stretches(w, of, &forms[of->tensor]));
  }
  for (; w->turn < w->turns; w->turn++) TRY(walk_turn(w));
  if (!forms) TRY(walk_fills(w));
out:
  return status;
}

treadle_status treadle_tracks_create(const treadle_lanes *lanes, const uint64_t *kin, int side,
                                     int64_t rank, treadle_cuts_of_all *all, treadle_tracks **tracks_p) {
  treadle_tracks *t = *tracks_p = treadle_alloc(sizeof *t);
  if (!t) return no_memory();
  t->lanes = *lanes;
  t->own = side == TREADLE_FROM ? lanes->from : lanes->to;
  t->other = side == TREADLE_FROM ? lanes->to : lanes->from;
  walk w = {.sink = {.take = take, .no_sources = true, .cuts.all = all},
            .tracks = t,
            .kin = kin,
            .rank = rank,
            .turns = 1,
            .holdings = {.layout = t->own}};
  treadle_status status = make(&w);
  treadle_holdings_release(&w.holdings);
  treadle_array_release(&w.bundles);
  treadle_array_release(&w.pieces);
  treadle_array_release(&w.bundle_models);
  treadle_array_release(&w.before);
  treadle_array_release(&w.cells);
  if (status != TREADLE_OK) {
    treadle_tracks_destroy(t);
    *tracks_p = NULL;
  }
  return status;
}

size_t treadle_tracks_size(const treadle_tracks *tracks) {
  return tracks->touches.count + tracks->ops.count + tracks->atoms.list.count;
}

void treadle_tracks_destroy(treadle_tracks *t) {
  if (!t) return;
  treadle_array_release(&t->atoms.list);
  treadle_array_release(&t->models);
  treadle_free(t->model_of);
  treadle_free(t->shift);
  treadle_array_release(&t->stretches);
  treadle_array_release(&t->touches);
  treadle_array_release(&t->ops);
  treadle_array_release(&t->fills);
  treadle_free(t);
}
