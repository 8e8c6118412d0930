/* Tracks: which tensors are walked, what of them is touched, and playing that for all. */
#include "plan/tracks.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "base/hash_index.h"
#include "base/limits.h"
#include "layout/blocks.h"
#include "plan/direction.h"

#include <inttypes.h>
#include <stdlib.h>

/* A window in a few lists: tensors that lie alike have one model; a model has touches, ranges of bytes, of
 * which each knows the one before it in the walk; a stretch is a row of its experts, which lie at one
 * distance. To play a tensor is to go through its model's touches, moved by where the tensor begins, with
 * its own waves. */
/* Something that an op touches: bytes from `begin` to `last`, counted in the window of the tensor that was walked. */
typedef struct touch {
  int64_t begin, last;
  int32_t atom; /* -1: the last wave */
  int32_t turn; /* the turn of the walk: which experts it stands for */
  int32_t next; /* of the same model, or -1 */
  int32_t op;   /* where it is not one range; or -1 */
  int32_t storage;
} touch;

typedef struct stretch { /* experts [first, end) of a model, for which one was walked in a turn */
  int64_t first, end, walked;
  int32_t turn;
} stretch;

typedef struct model { /* a tensor that is walked */
  int32_t tensor;
  int64_t distance; /* from expert to expert, where they are one piece */
  size_t stretch_first, stretch_end;
  int32_t touches; /* the first one, or -1 */
} model;

typedef struct tracks {
  treadle_sink sink;
  const treadle_lanes *lanes;
  const treadle_layout *own, *other;
  const uint64_t *kin;
  int64_t rank;
  treadle_cuts_of_all *all;
  const treadle_track_target *targets;
  int32_t target_count;
  int32_t turn, turns;
  treadle_holdings holdings;
  treadle_atoms atoms;
  TREADLE_ARRAY(model) models;
  int32_t *model_of;              /* by tensor */
  treadle_pieces bundles, pieces; /* of all models; of the turn */
  TREADLE_ARRAY(int32_t) bundle_models;
  TREADLE_ARRAY(stretch) stretches;
  TREADLE_ARRAY(touch) touches;
  TREADLE_ARRAY(treadle_op) ops;
  treadle_cells cells;
} tracks;

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out"); }

/* ---- Models ---- */

static uint64_t hash_holding(const tracks *t, int32_t tensor) {
  return t->holdings.at[tensor] >= 0 ? t->holdings.list.items[t->holdings.at[tensor]].pieces : 0;
}

/* Tensors with equal keys are touched alike. The waves of weights in blocks and of their scales are those of the weights. */
static uint64_t key_of(const tracks *t, int32_t tensor) {
  const treadle_tensor *of = &t->own->model->tensors[tensor];
  uint64_t key = treadle_hash_more(t->kin[tensor], hash_holding(t, tensor));
  int32_t beside = of->scale_of >= 0 ? of->scale_of : of->scale;
  if (beside >= 0) key = treadle_hash_more(key, t->kin[beside]);
  const treadle_form *forms = treadle_layout_forms(t->own);
  if (forms) key = treadle_hash_more(key, (uint64_t)forms[tensor].like);
  return key;
}

/* Where a tensor begins, for the distance to another one with its key. */
static int64_t begin_of(const tracks *t, int32_t tensor) {
  const treadle_form *forms = treadle_layout_forms(t->own);
  return forms ? forms[tensor].at : t->holdings.list.items[t->holdings.at[tensor]].offset;
}

/* Each tensor of the window gets its model, and each model its pieces.
 * With forms the pieces of a model are asked for; without, they are picked from all that the rank holds.
 * bundle_models[i] is the model of bundles[i], fills too. */
static treadle_status find_models(tracks *t) {
  treadle_status status = TREADLE_OK;
  treadle_hash_index found = {0};
  int32_t tensors = t->own->model->tensor_count;
  const treadle_form *forms = treadle_layout_forms(t->own);
  t->model_of = treadle_alloc_array((size_t)tensors + 1, sizeof *t->model_of);
  if (!t->model_of) return no_memory();
  for (int32_t i = 0; i < tensors; i++) {
    /* a form of which a rank has nothing but fills is listed, too */
    if (forms ? t->holdings.first[i] == t->holdings.first[i + 1] : t->holdings.at[i] < 0) continue;
    int32_t fresh = (int32_t)t->models.count;
    TRY(treadle_hash_index_put(&found, key_of(t, i), fresh, &t->model_of[i]));
    if (t->model_of[i] != fresh) continue;
    TRY(treadle_array_push(&t->models, ((model){.tensor = i, .touches = -1})));
    if (forms) TRY(t->own->ops->bundles_of(t->own, t->rank, i, &t->bundles));
    while (t->bundle_models.count < t->bundles.count) TRY(treadle_array_push(&t->bundle_models, fresh));
  }
  for (size_t i = 0; !forms && i < t->holdings.pieces.count; i++) {
    const treadle_piece *piece = &t->holdings.pieces.items[i];
    if (piece->tensor < 0 || t->models.items[t->model_of[piece->tensor]].tensor != piece->tensor) continue;
    TRY(treadle_array_push(&t->bundles, *piece));
    TRY(treadle_array_push(&t->bundle_models, t->model_of[piece->tensor]));
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
static treadle_status find_stretches(tracks *t, model *of, const treadle_form *form) {
  treadle_status status = TREADLE_OK;
  const treadle_tensor *tensor = &t->own->model->tensors[of->tensor];
  int32_t asked = treadle_is_in_block_rows(t->own, t->other, of->tensor) && tensor->scale_of >= 0
                      ? tensor->scale_of
                      : of->tensor;
  treadle_box box = treadle_box_whole(&t->own->model->tensors[asked]);
  uint64_t *cut = treadle_alloc_array((size_t)form->experts, sizeof *cut); /* by expert */
  if (!cut) return no_memory();
  of->distance = form->distance;
  of->stretch_first = t->stretches.count;
  t->cells.count = 0;
  TRY(treadle_layout_cells(t->other, asked, &box, &t->cells));
  for (size_t i = 0; i < t->cells.count; i++) {
    const treadle_cell *cell = &t->cells.items[i];
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
    stretch *last =
        t->stretches.count > of->stretch_first ? &t->stretches.items[t->stretches.count - 1] : NULL;
    if (last && cut[last->walked] == cut[e]) {
      last->end = e + 1;
      continue;
    }
    stretch next = {.first = e, .end = e + 1, .walked = e};
    for (size_t i = of->stretch_first; i < t->stretches.count; i++) {
      const stretch *one = &t->stretches.items[i];
      if (cut[one->walked] == cut[e]) {
        next.walked = one->walked;
        next.turn = one->turn;
        break;
      }
      if (one->turn >= next.turn) next.turn = one->turn + 1;
    }
    if (next.turn >= t->turns) t->turns = next.turn + 1;
    TRY(treadle_array_push(&t->stretches, next));
  }
out:
  of->stretch_end = t->stretches.count;
  treadle_free(cut);
  return status;
}

/* ---- Walking the models ---- */

/* The model of a fill: that of the piece which it is. */
static int32_t model_of_fill(const tracks *t, const treadle_op *op) {
  for (size_t i = 0; i < t->bundles.count; i++)
    if (t->bundles.items[i].tensor < 0 && t->bundles.items[i].offset == op->to)
      return t->bundle_models.items[i];
  return -1;
}

/* An op becomes a touch: one range [begin, last], or the op itself where a stride is longer than a page.
 * It joins the touch before it, if both are of one atom and no whole page lies between. */
static treadle_status take(treadle_sink *sink, const treadle_op *op) {
  treadle_status status = TREADLE_OK;
  tracks *t = (tracks *)sink;
  int64_t page = t->lanes->page_bytes;
  model *of = &t->models.items[op->tensor >= 0 ? t->model_of[op->tensor] : model_of_fill(t, op)];
  touch next = {.begin = op->to,
                .atom = op->wave,
                .turn = t->turn,
                .next = of->touches,
                .op = -1,
                .storage = op->storage};
  next.last = op->to + (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype) - 1;
  for (int i = 0; i < op->ndim; i++) {
    next.last += (op->size[i] - 1) * op->to_stride[i];
    if (op->to_stride[i] > page) next.op = (int32_t)t->ops.count;
  }
  if (op->elems == 0) return TREADLE_OK;
  touch *last = of->touches >= 0 ? &t->touches.items[of->touches] : NULL;
  /* a gap that is shorter than a page leaves none out */
  if (last && last->op < 0 && next.op < 0 && last->atom == next.atom && last->turn == next.turn &&
      last->storage == next.storage && next.begin > last->last && next.begin - last->last <= page) {
    last->last = next.last;
    return TREADLE_OK;
  }
  if (t->touches.count >= TREADLE_MAX_TOUCHES)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "plan: rank %" PRId64
                     ": '%s' and '%s' cut its window in more than %d parts that differ; that "
                     "is the most",
                     t->rank, t->own->text, t->other->text, TREADLE_MAX_TOUCHES));
  if (next.op >= 0) TRY(treadle_array_push(&t->ops, *op));
  TRY(treadle_array_push(&t->touches, next));
  of->touches = (int32_t)t->touches.count - 1;
out:
  return status;
}

/* Pieces of a turn: of a model with stretches, the one expert that is walked in this turn, moved to its
 * place; all others in turn 0. Lanes give atoms in place of waves, so one walk serves tensors at any
 * position of their lane. */
static treadle_status walk_turn(tracks *t, treadle_lanes *by_atoms) {
  treadle_status status = TREADLE_OK;
  t->pieces.count = 0;
  for (size_t i = 0; i < t->bundles.count; i++) {
    treadle_piece piece = t->bundles.items[i];
    const model *of = &t->models.items[t->bundle_models.items[i]];
    const stretch *at = NULL;
    for (size_t k = of->stretch_first; k < of->stretch_end && !at; k++)
      if (t->stretches.items[k].turn == t->turn) at = &t->stretches.items[k];
    if (of->distance == 0 && t->turn > 0) continue;
    if (of->distance > 0) {
      if (!at) continue;
      piece.box.start[0] = at->walked;
      piece.box.size[0] = 1;
      piece.offset += at->walked * of->distance;
    }
    TRY(treadle_array_push(&t->pieces, piece));
  }
  TRY(treadle_direction_walk_pieces(by_atoms, t->other, t->own, t->rank, &t->pieces, &t->sink));
  if (t->atoms.status != TREADLE_OK) status = no_memory();
out:
  return status;
}

/* ---- Playing ---- */

/* From `shift` bytes behind the touch on; its range is `reach` bytes longer. Arrangements move what is of one storage tensor as
 * one. */
static void mark(const tracks *t, const touch *of, int32_t wave, int64_t shift, int64_t reach) {
  int64_t page_bytes = t->lanes->page_bytes;
  for (int32_t i = 0; i < t->target_count; i++) {
    const treadle_track_target *to = &t->targets[i];
    int64_t begin = of->begin + shift;
    if (to->arrangement) begin = treadle_plan_place(to->arrangement, begin);
    if (of->op >= 0) {
      treadle_op op = t->ops.items[of->op];
      op.wave = wave;
      treadle_pages_touch(to->pages, page_bytes, &op, begin);
      continue;
    }
    int64_t last = (begin + of->last - of->begin + reach) / page_bytes;
    for (int64_t page = begin / page_bytes; page <= last; page++) {
      if (wave < to->pages[page].first) to->pages[page].first = wave;
      if (wave > to->pages[page].last) to->pages[page].last = wave;
    }
  }
}

/* Bytes of the tensor: those of its model, `shift` further. Of expert e, where expert `walked` was walked:
 * (e - walked) * distance further. Where the experts of a stretch leave no page between them, one range
 * does for all of them: that of the first, longer by the distance to the last. */
static void play(const tracks *t, int32_t tensor) {
  const model *of = &t->models.items[t->model_of[tensor]];
  const treadle_tensor *is = &t->own->model->tensors[tensor];
  bool banded = treadle_is_in_block_rows(t->own, t->other, tensor);
  const treadle_position *position =
      &t->lanes->positions[banded && is->scale_of >= 0 ? is->scale_of : tensor];
  int64_t shift = begin_of(t, tensor) - begin_of(t, of->tensor);
  for (int32_t i = of->touches; i >= 0; i = t->touches.items[i].next) {
    const touch *at = &t->touches.items[i];
    int32_t waves = t->lanes->waves, wave = waves - 1;
    if (at->atom >= 0) wave = treadle_atom_wave(&t->atoms.list.items[at->atom], position, waves);
    if (of->distance == 0) mark(t, at, wave, shift, 0);
    bool together = at->op < 0 && of->distance - (at->last - at->begin) <= t->lanes->page_bytes;
    for (size_t k = of->stretch_first; of->distance > 0 && k < of->stretch_end; k++) {
      const stretch *s = &t->stretches.items[k];
      int64_t first = shift + (s->first - s->walked) * of->distance;
      if (s->turn != at->turn) continue;
      if (together) {
        mark(t, at, wave, first, (s->end - 1 - s->first) * of->distance);
        continue;
      }
      for (int64_t e = s->first; e < s->end; e++, first += of->distance) mark(t, at, wave, first, 0);
    }
  }
}

/* ---- Fills of windows without forms ---- */

typedef struct mark_sink {
  treadle_sink sink;
  const tracks *of;
} mark_sink;

static treadle_status take_fill(treadle_sink *sink, const treadle_op *op) {
  const tracks *t = ((const mark_sink *)sink)->of;
  for (int32_t i = 0; op->tensor < 0 && i < t->target_count; i++) {
    const treadle_track_target *to = &t->targets[i];
    int64_t begin = to->arrangement ? treadle_plan_place(to->arrangement, op->to) : op->to;
    treadle_pages_touch(to->pages, t->lanes->page_bytes, op, begin);
  }
  return TREADLE_OK;
}

/* Fills are walked as they are, each behind the pieces of its storage tensor.
 * A fill has the wave of the data before it, so that piece is walked with it, though only the fill is
 * marked. */
static treadle_status walk_fills(tracks *t) {
  treadle_status status = TREADLE_OK;
  const treadle_pieces *all = &t->holdings.pieces;
  mark_sink sink = {.sink = {.take = take_fill, .no_sources = true, .cuts.all = t->all}, .of = t};
  t->pieces.count = 0;
  for (size_t i = 0, first = 0; i < all->count; i++) {
    if (all->items[i].storage != all->items[first].storage) first = i;
    if (all->items[i].tensor >= 0) continue;
    const treadle_piece *before = NULL; /* as the walk looks for it */
    for (size_t k = first; k < i; k++)
      if (all->items[k].tensor >= 0 && all->items[k].offset < all->items[i].offset &&
          (!before || all->items[k].offset > before->offset))
        before = &all->items[k];
    if (before) TRY(treadle_array_push(&t->pieces, *before));
    TRY(treadle_array_push(&t->pieces, all->items[i]));
  }
  if (t->pieces.count > 0)
    TRY(treadle_direction_walk_pieces(t->lanes, t->other, t->own, t->rank, &t->pieces, &sink.sink));
out:
  return status;
}

/* ---- The whole ---- */

static void release(tracks *t) {
  treadle_holdings_release(&t->holdings);
  treadle_array_release(&t->atoms.list);
  treadle_array_release(&t->models);
  treadle_free(t->model_of);
  treadle_array_release(&t->bundles);
  treadle_array_release(&t->pieces);
  treadle_array_release(&t->bundle_models);
  treadle_array_release(&t->stretches);
  treadle_array_release(&t->touches);
  treadle_array_release(&t->ops);
  treadle_array_release(&t->cells);
}

treadle_status treadle_tracks_play(const treadle_lanes *lanes, const uint64_t *kin, int side, int64_t rank,
                                   treadle_cuts_of_all *all, const treadle_track_target *targets,
                                   int32_t count) {
  treadle_status status = TREADLE_OK;
  const treadle_layout *own = side == TREADLE_FROM ? lanes->from : lanes->to;
  tracks t = {.sink = {.take = take, .no_sources = true, .cuts.all = all},
              .lanes = lanes,
              .own = own,
              .other = side == TREADLE_FROM ? lanes->to : lanes->from,
              .kin = kin,
              .rank = rank,
              .all = all,
              .targets = targets,
              .target_count = count,
              .turns = 1,
              .holdings = {.layout = own}};
  treadle_lanes by_atoms = *lanes;
  const treadle_form *forms = treadle_layout_forms(own);
  /* Waves are numbers of atoms here, -1 the last wave (lanes.h). */
  by_atoms.atoms = &t.atoms;
  by_atoms.waves = 0;
  TRY(treadle_holdings_take(&t.holdings, rank));
  TRY(find_models(&t));
  for (size_t i = 0; i < t.bundles.count; i++) {
    model *of = &t.models.items[t.bundle_models.items[i]];
    bool as_one = forms && t.bundles.items[i].tensor >= 0 && forms[of->tensor].experts > 1 &&
                  t.bundles.items[i].box.size[0] > 1;
    if (as_one && of->distance == 0) TRY(find_stretches(&t, of, &forms[of->tensor]));
  }
  for (t.turn = 0; t.turn < t.turns; t.turn++) TRY(walk_turn(&t, &by_atoms));
  for (int32_t i = 0; i < own->model->tensor_count; i++)
    if (forms ? t.holdings.first[i] < t.holdings.first[i + 1] : t.holdings.at[i] >= 0) play(&t, i);
  if (!forms) TRY(walk_fills(&t));
out:
  release(&t);
  return status;
}
