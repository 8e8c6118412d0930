#include "switch/foresee.h"

#include "base/alloc.h"
#include "group/group.h"
#include "switch/switch.h"

#include <stdlib.h>
#include <string.h>

/* ---- Arrows, as the books see them (arrows.c, reference.c) ---- */

typedef struct play {
  treadle_switch *sw;
  treadle_foreseen *to;
} play;

static void tell(const play *p) {
  const treadle_switch *sw = p->sw;
  size_t bytes =
      (size_t)((sw->space.tables.physical - sw->books.held[TREADLE_NOBODY]) * sw->carry.plan->page_bytes);
  if (bytes > p->to->peak_bytes) p->to->peak_bytes = bytes;
}

static void note(const play *p, size_t bytes[TREADLE_CLASSES]) {
  for (int c = 0; c < TREADLE_CLASSES; c++) bytes[c] = treadle_books_held(&p->sw->books, (treadle_class)c);
  tell(p);
}

static void take_waves(const play *p, treadle_mode to) {
  const treadle_turns *turns = &p->sw->carry.turns[treadle_side_of(to)];
  const treadle_class new = treadle_class_of(to);
  for (int32_t wave = 0; wave < p->sw->carry.plan->waves; wave++) {
    for (int32_t i = turns->first[wave]; i < turns->first[wave + 1]; i++)
      treadle_books_set(&p->sw->books, p->sw->space.tables.page[new][turns->page[i]], new);
    tell(p);
  }
}

static void to_infer(const play *p) {
  treadle_switch *sw = p->sw;
  treadle_books_leave(&sw->books, TREADLE_TRAIN_WORK);
  for (int c = TREADLE_GRADS; c <= TREADLE_OPTIMIZER; c++)
    if (sw->terms.leaves[c]) treadle_books_leave(&sw->books, (treadle_class)c);
  treadle_books_staging(&sw->books, true);
  take_waves(p, TREADLE_INFER);
  treadle_books_staging(&sw->books, false);
  if (sw->terms.leaves[TREADLE_PARAMS]) treadle_books_leave(&sw->books, TREADLE_PARAMS);
  treadle_books_take(&sw->books, TREADLE_INFER_PARAMS);
  treadle_books_take(&sw->books, TREADLE_WORK);
  treadle_books_take(&sw->books, TREADLE_KV);
  note(p, p->to->by_mode[TREADLE_INFER]);
}

static void come(const play *p) {
  for (int c = TREADLE_GRADS; c <= TREADLE_OPTIMIZER; c++) {
    if (p->sw->books.held[c]) continue;
    treadle_books_take(&p->sw->books, (treadle_class)c);
    tell(p);
  }
}

static void from_infer(const play *p, treadle_mode aim) {
  treadle_switch *sw = p->sw;
  treadle_books_leave(&sw->books, TREADLE_WORK);
  treadle_books_leave(&sw->books, TREADLE_KV);
  if (treadle_switch_rebuilds(sw)) take_waves(p, TREADLE_TRAIN);
  treadle_books_take(&sw->books, TREADLE_PARAMS);
  if (sw->terms.copied[TREADLE_PARAMS]) tell(p);
  treadle_books_leave(&sw->books, TREADLE_INFER_PARAMS);
  if (aim == TREADLE_TRAIN) come(p);
  treadle_books_train_work(&sw->books, treadle_work_of_mode(&sw->terms.options, aim));
  note(p, p->to->by_mode[aim]);
}

static void show(const play *p) {
  treadle_books_leave(&p->sw->books, TREADLE_GRADS);
  treadle_books_leave(&p->sw->books, TREADLE_OPTIMIZER);
  treadle_books_take(&p->sw->books, TREADLE_REFERENCE);
  note(p, p->to->shown);
  treadle_books_leave(&p->sw->books, TREADLE_REFERENCE);
}

static void forward_to_train(const play *p) {
  come(p);
  treadle_books_train_work(&p->sw->books, treadle_work_of_mode(&p->sw->terms.options, TREADLE_TRAIN));
  note(p, p->to->by_mode[TREADLE_TRAIN]);
}

static treadle_status play_rank(treadle_switch *sw, treadle_foreseen *to) {
  const treadle_switch_options *o = &sw->terms.options;
  const play p = {sw, to};
  treadle_status status;
  TRY(treadle_switch_place(sw));
  TRY(treadle_switch_open_books(sw));
  for (int c = 0; c < TREADLE_TRAIN_CLASSES; c++) treadle_books_take(&sw->books, (treadle_class)c);
  treadle_books_train_work(&sw->books, o->train_work_bytes);
  note(&p, to->by_mode[TREADLE_TRAIN]);
  to_infer(&p);
  from_infer(&p, TREADLE_FORWARD);
  if (o->reference_bytes) show(&p);
  forward_to_train(&p);
  to_infer(&p);
  from_infer(&p, TREADLE_TRAIN);
  to->pool_bytes = (size_t)(sw->space.tables.physical * sw->carry.plan->page_bytes);
  if (o->kv_block_bytes) to->kv_blocks = (int64_t)(sw->space.tables.bytes[TREADLE_KV] / o->kv_block_bytes);
out:
  return status;
}

/* ---- All ranks ---- */

/* What a switch needs to know of its group: who it is, and where others would have said something. */
static treadle_status make_groups(int ranks, treadle_group **groups_p, treadle_control **control_p) {
  treadle_group *groups = treadle_alloc_array((size_t)ranks, sizeof *groups);
  treadle_control *control = NULL;
  size_t bytes = (treadle_control_bytes(ranks) + 63) / 64 * 64;
  if (groups && !(control = aligned_alloc(64, bytes))) treadle_free(groups);
  if (!control) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a plan of %d ranks", ranks);
  memset(control, 0, bytes);
  for (int rank = 0; rank < ranks; rank++)
    groups[rank] = (treadle_group){.rank = rank, .size = ranks, .control = control};
  *groups_p = groups;
  *control_p = control;
  return TREADLE_OK;
}

static void release(treadle_switch *sw) {
  treadle_plan_destroy(sw->carry.plan);
  treadle_plan_base_release(&sw->agreed.plan_base);
  treadle_books_release(&sw->books);
  treadle_carry_release(&sw->carry);
  treadle_undo_release(&sw->carry, &sw->undo);
  treadle_own_release(sw);
  treadle_arena_release(&sw->space.tables.arena);
  treadle_device_close(&sw->device);
}

static treadle_status resolve(const treadle_layout *train, const treadle_layout *infer,
                              const treadle_switch_options *options, treadle_group *group,
                              treadle_switch *sw) {
  treadle_switch_options o;
  treadle_engine_hooks engine;
  treadle_switch *nobody;
  treadle_status status;
  *sw = (treadle_switch){.group = group, .layouts = {train, infer}};
  treadle_switch_carry_begin(sw);
  TRY(treadle_switch_check_arguments(train, infer, options, &nobody, &o, &engine));
  treadle_switch_resolve(sw, &o, &engine);
  TRY(treadle_device_open(&o.memory, &sw->device)); /* it says what may be own tensors */
out:
  return status;
}

treadle_status treadle_switch_foresee(const treadle_layout *train, const treadle_layout *infer,
                                      const treadle_switch_options *options, treadle_foreseen *by_rank) {
  const int ranks = (int)treadle_layout_ranks(train);
  treadle_switch *all = treadle_alloc_array((size_t)ranks, sizeof *all);
  treadle_group *groups = NULL;
  treadle_control *control = NULL;
  treadle_status status;
  if (!all) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a plan of %d ranks", ranks);
  memset(all, 0, (size_t)ranks * sizeof *all);
  TRY(make_groups(ranks, &groups, &control));
  for (int rank = 0; rank < ranks; rank++)
    TRY(resolve(train, infer, &options[rank], &groups[rank], &all[rank]));
  TRY(treadle_switch_plan_alone(all, ranks));
  for (int rank = 0; rank < ranks; rank++) {
    by_rank[rank] = (treadle_foreseen){0};
    TRY(play_rank(&all[rank], &by_rank[rank]));
  }
out:
  for (int rank = 0; rank < ranks; rank++) release(&all[rank]);
  treadle_free(all);
  treadle_free(groups);
  free(control);
  return status;
}
