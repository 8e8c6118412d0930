/* Between which memory an op copies does not change from switch to switch: the views of all windows are there when the ranks have shared
 * them, and a slot of staging follows from the wave. So each direction that runs is prepared once, for each set of pages that the infer window may lie on,
 * and again when the ranks have shared anew (rejoin.c). */
#include "switch/run_lists.h"
#include "switch/net.h"

#include "base/alloc.h"

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out"); }

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

treadle_paged treadle_switch_source_of(const treadle_switch *sw, treadle_mode to, size_t position,
                                       treadle_op *op) {
  const treadle_mode old = to == TREADLE_INFER ? TREADLE_TRAIN : TREADLE_INFER;
  if (op->source < 0 || (treadle_net_is(sw, op->source) && !op->twin)) return (treadle_paged){0};
  if (treadle_staging_has(sw, to, position)) return treadle_staging_view(sw, position, op);
  if (op->source == sw->group->rank) return treadle_own_view(sw, op->twin ? to : old, op->from);
  return sw->space.paged[op->twin ? to : old][op->source];
}

static treadle_status prepare(treadle_switch *sw, treadle_mode to, treadle_run_list *list) {
  treadle_status status = TREADLE_OK;
  const treadle_op_array *ops = &treadle_switch_direction(sw, to)->ops;
  const size_t count = ops->count;
  const bool changes = to == TREADLE_INFER && sw->staging.of_op;
  listed l = {.changed = changes ? treadle_alloc_array(count + 1, sizeof *l.changed) : NULL,
              .from = treadle_alloc_array(count + 1, sizeof *l.from),
              .to = treadle_alloc_array(count + 1, sizeof *l.to)};
  if ((changes && !l.changed) || !l.from || !l.to) TRY(no_memory());
  for (size_t i = 0; i < count; i++) {
    treadle_op op = ops->items[i];
    l.to[i] = treadle_own_view(sw, to, op.to);
    l.from[i] = treadle_switch_source_of(sw, to, i, &op);
    if (changes) l.changed[i] = op;
  }
  TRY(sw->device.ops->prepare(&sw->device, changes ? l.changed : ops->items, l.from, l.to, count,
                              &list->work));
  list->ops = l.changed;
  l.changed = NULL;
  list->views = sw->space.paged[TREADLE_INFER];
out:
  forget(&l);
  return status;
}

treadle_status treadle_switch_lists_make(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  const int sets = treadle_double_is(sw) ? 2 : 1;
  treadle_switch_lists_release(sw);
  for (int set = 0; set < sets; set++) {
    treadle_paged *now = sw->space.paged[TREADLE_INFER];
    status = prepare(sw, TREADLE_INFER, &sw->run.lists[TREADLE_INFER][set]);
    if (status == TREADLE_OK && treadle_switch_rebuilds(sw)) /* else the way back has no waves */
      status = prepare(sw, TREADLE_TRAIN, &sw->run.lists[TREADLE_TRAIN][set]);
    if (sets > 1) { /* the other set, and back again */
      sw->space.paged[TREADLE_INFER] = sw->space.others;
      sw->space.others = now;
    }
    TRY(status);
  }
out:
  if (status != TREADLE_OK) treadle_switch_lists_release(sw);
  return status;
}

void treadle_switch_lists_release(treadle_switch *sw) {
  for (int to = 0; to < 2; to++)
    for (int set = 0; set < 2; set++) {
      treadle_run_list *list = &sw->run.lists[to][set];
      if (list->work) sw->device.ops->work_release(list->work);
      treadle_free(list->ops);
      *list = (treadle_run_list){0};
    }
}

const treadle_work *treadle_switch_list_of(const treadle_switch *sw, treadle_mode to) {
  const treadle_run_list *lists = sw->run.lists[to];
  return lists[lists[0].views == sw->space.paged[TREADLE_INFER] ? 0 : 1].work;
}
