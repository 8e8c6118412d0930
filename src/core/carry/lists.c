/* Between which memory an op copies does not change from switch to switch: the views of all windows are there when the ranks have shared
 * them, and a slot of staging follows from the wave. So each direction that runs is prepared once, for each set of pages that the infer window may lie on,
 * and again when the ranks have shared anew (a new group). */
#include "carry/carry_parts.h"

#include "base/alloc.h"

/* Ops as they run here, with what they read and write. */
typedef struct listed {
  treadle_op *changed; /* NULL: those of the direction, as they are */
  treadle_paged *from, *to;
} listed;

static void forget(listed *l) {
  treadle_free(l->changed);
  treadle_free(l->from);
  treadle_free(l->to);
}

treadle_paged treadle_carry_source_of(const treadle_carry *c, treadle_side to, size_t position,
                                      treadle_op *op) {
  const treadle_side old = treadle_side_other(to);
  if (op->source < 0 || (treadle_net_is(c, op->source) && !op->twin)) return (treadle_paged){0};
  if (treadle_staging_has(c, to, position)) return treadle_staging_view(c, position, op);
  if (op->source == c->group->rank) return treadle_own_view(c, op->twin ? to : old, op->from);
  return c->views[op->twin ? to : old][op->source];
}

static treadle_status prepare(treadle_carry *c, treadle_side to, treadle_op_list *list) {
  treadle_status status = TREADLE_OK;
  const treadle_op_array *ops = &treadle_carry_direction(c, to)->ops;
  const size_t count = ops->count;
  const bool changes = to == TREADLE_SIDE_INFER && c->staging.of_op;
  listed l = {.changed = changes ? treadle_alloc_array(count + 1, sizeof *l.changed) : NULL,
              .from = treadle_alloc_array(count + 1, sizeof *l.from),
              .to = treadle_alloc_array(count + 1, sizeof *l.to)};
  if ((changes && !l.changed) || !l.from || !l.to) TRY(treadle_memory_is_out());
  for (size_t i = 0; i < count; i++) {
    treadle_op op = ops->items[i];
    l.to[i] = treadle_own_view(c, to, op.to);
    l.from[i] = treadle_carry_source_of(c, to, i, &op);
    if (changes) l.changed[i] = op;
  }
  TRY(c->device->ops->prepare(c->device, changes ? l.changed : ops->items, l.from, l.to, count,
                              &list->work));
  list->ops = l.changed;
  l.changed = NULL;
  list->views = c->views[TREADLE_SIDE_INFER];
out:
  forget(&l);
  return status;
}

void treadle_carry_turn(treadle_carry *c) {
  treadle_paged *now = c->views[TREADLE_SIDE_INFER];
  c->views[TREADLE_SIDE_INFER] = c->others;
  c->others = now;
}

treadle_status treadle_carry_lists_make(treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  const int sets = c->terms.doubled ? 2 : 1;
  treadle_carry_lists_release(c);
  for (int set = 0; set < sets; set++) {
    status = prepare(c, TREADLE_SIDE_INFER, &c->run.lists[TREADLE_SIDE_INFER][set]);
    if (status == TREADLE_OK && c->terms.goes_back) /* else it is never run */
      status = prepare(c, TREADLE_SIDE_TRAIN, &c->run.lists[TREADLE_SIDE_TRAIN][set]);
    if (sets > 1) treadle_carry_turn(c); /* the other set, and back again */
    TRY(status);
  }
out:
  if (status != TREADLE_OK) treadle_carry_lists_release(c);
  return status;
}

void treadle_carry_lists_release(treadle_carry *c) {
  for (int to = 0; to < 2; to++)
    for (int set = 0; set < 2; set++) {
      treadle_op_list *list = &c->run.lists[to][set];
      if (list->work) c->device->ops->work_release(list->work);
      treadle_free(list->ops);
      *list = (treadle_op_list){0};
    }
}

const treadle_work *treadle_carry_list(const treadle_carry *c) {
  const treadle_op_list *lists = c->run.lists[c->to];
  return lists[lists[0].views == c->views[TREADLE_SIDE_INFER] ? 0 : 1].work;
}
