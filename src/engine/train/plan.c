/* What ranks will hold, without holding it: the sizes that making a trainer measures first. */
#include "train/trainer.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/sized.h"
#include "train/memory.h"

treadle_trainer_memory treadle_train_holds(const treadle_trainer *t, const treadle_train_room *room) {
  const treadle_train_windows *w = &t->windows;
  size_t board = treadle_train_board_bytes(t, room), windows;
  treadle_trainer_memory m = {.params = w->weight_bytes,
                              .grads = w->grad_bytes,
                              .optimizer = t->optimizer.bytes,
                              .work = t->memory.work_bytes,
                              .forward = t->memory.forward_bytes,
                              .board = board};
  if (t->shards && board && !w->given) m.board -= w->weight_bytes; /* it has them */
  if (t->shards && !board) m.board += (size_t)treadle_train_unit_grad_bytes(t->shards);
  if (w->given) m.params = m.grads = m.optimizer = 0; /* they are the caller's */
  windows = m.params + m.grads + m.optimizer;
  if (t->shards || !board) m.board += w->adapter_bytes; /* beside all windows */
  if (t->adapters && t->adapters->gathers) m.board += (size_t)t->adapters->adapter->elems * sizeof(float);
  m.peak = m.work + m.board + (w->offloads ? 0 : windows);
  return m;
}

typedef struct rank_kind {
  treadle_trainer *t; /* of the first such rank */
  uint64_t coordinate;
  int64_t count; /* so far: the number of the next one's replica */
} rank_kind;

typedef struct planning {
  const treadle_layout *layout;
  const treadle_trainer_options *options;
  rank_kind *kinds; /* [kind_count] */
  size_t kind_count;
  int32_t *kind_of; /* [ranks] */
  treadle_train_room room;
} planning;

static treadle_status add_kind(planning *p, int64_t rank, uint64_t coordinate) {
  rank_kind *kind = &p->kinds[p->kind_count];
  treadle_train_room room;
  treadle_status status;
  kind->coordinate = coordinate;
  kind->t = treadle_alloc(sizeof *kind->t);
  if (!kind->t) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of a rank");
  p->kind_count++;
  kind->t->windows.layout = p->layout;
  TRY(treadle_train_fill(kind->t, p->options, rank, true));
  room = treadle_train_measure_room(&kind->t->back, &kind->t->stage);
  if (p->kind_count == 1) p->room = room;
  treadle_train_join_room(&p->room, &room);
out:
  return status;
}

/* Ranks with the same part are alike but for their share of a distributed optimizer; of fsdp2, all are. */
static treadle_status find_kinds(planning *p) {
  bool sharded = treadle_train_is_sharded(p->layout);
  treadle_status status = TREADLE_OK;
  for (int64_t rank = 0; rank < p->layout->ranks; rank++) {
    uint64_t coordinate = sharded ? 0 : treadle_layout_place(p->layout, rank);
    size_t k = 0;
    while (k < p->kind_count && p->kinds[k].coordinate != coordinate) k++;
    if (k == p->kind_count) TRY(add_kind(p, rank, coordinate));
    p->kind_of[rank] = (int32_t)k;
  }
out:
  return status;
}

/* Which shares of the optimizer's state the next rank of a kind has. */
static treadle_status find_members(const planning *p, int64_t rank, rank_kind *kind) {
  treadle_train_optimizer *o = &kind->t->optimizer;
  const int64_t replica = kind->count++;
  treadle_replica_place place;
  treadle_status status = TREADLE_OK;
  o->member[TREADLE_TRAIN_DENSE] = o->member[TREADLE_TRAIN_EXPERTS] = replica;
  if (!o->parts_experts || !o->distributed) return TREADLE_OK;
  TRY(treadle_replica_place_of(p->layout, rank, &place));
  o->member[TREADLE_TRAIN_DENSE] = place.number;
out:
  return status;
}

static treadle_status find_memory(planning *p, treadle_trainer_memory *by_rank) {
  treadle_status status = TREADLE_OK;
  for (int64_t rank = 0; rank < p->layout->ranks; rank++) {
    rank_kind *kind = &p->kinds[p->kind_of[rank]];
    const bool divided = treadle_train_is_sharded(p->layout) && !kind->t->adapters;
    if (!divided) TRY(find_members(p, rank, kind));
    treadle_train_measure_optimizer(&kind->t->optimizer, treadle_train_trained_dtype(&kind->t->back));
    by_rank[rank] = treadle_train_holds(kind->t, &p->room);
  }
out:
  return status;
}

treadle_status treadle_trainer_foresee(const treadle_layout *layout, const treadle_trainer_options *options,
                                       treadle_trainer_memory *by_rank) {
  treadle_trainer_options o;
  planning p = {.layout = layout, .options = &o};
  treadle_status status;
  TREADLE_NEED(layout);
  TREADLE_NEED(by_rank);
  TRY(TREADLE_TAKE(options, &o));
  p.kinds = treadle_alloc_array((size_t)layout->ranks, sizeof *p.kinds);
  p.kind_of = treadle_alloc_array((size_t)layout->ranks, sizeof *p.kind_of);
  if (!p.kinds || !p.kind_of)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of %lld ranks",
                     (long long)layout->ranks));
  TRY(find_kinds(&p));
  TRY(find_memory(&p, by_rank));
out:
  for (size_t k = 0; k < p.kind_count; k++) treadle_trainer_destroy(p.kinds[k].t);
  treadle_free(p.kinds);
  treadle_free(p.kind_of);
  return status;
}
