/* Handles of a switch. The first one makes the outlet (attach/outlet.h), from what the switch knows of its window.
 *
 * A version is valid in mode INFER, from the end of the arrow there (so that a bind that failed undoes it unseen) until an arrow
 * takes the window away. All ranks enter that arrow, then each ends the holds on its own window, and none goes on before all
 * have (arrows.c): up to there nothing has changed, so a rank whose window is held makes all of them refuse.
 *
 * Only infer parameters have handles. Windows of training change without a version that says so, and a KV cache and work memory are
 * written by the engine that has them. */
#include "switch/switch.h"

#include "attach/outlet.h"
#include "base/alloc.h"
#include "base/argument.h"
#include "base/clock.h"
#include "treadle_attach.h"

#include <string.h>

/* A rank that returns alone waits only this part of the time limit: the others wait all of it to hear how that went. */
static const double ALONE = 0.8;

/* ---- The outlet ---- */

void treadle_outlet_release(treadle_switch *sw) {
  treadle_outlet_destroy(sw->outlet);
  sw->outlet = NULL;
}

static treadle_status list_storages(const treadle_plan *plan, int32_t count,
                                    treadle_storage_info *storages) {
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; i < count; i++) {
    storages[i] = TREADLE_INIT(treadle_storage_info);
    TRY(treadle_plan_storage(plan, i, &storages[i]));
  }
out:
  return status;
}

static treadle_status make_outlet(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  const treadle_layout *layout = sw->layouts[TREADLE_INFER];
  const treadle_page_tables *tables = &sw->space.tables;
  int32_t count = treadle_layout_storage_count(layout, sw->group->rank);
  treadle_storage_info *storages = treadle_alloc_array((size_t)count + 1, sizeof *storages);
  if (!storages) return treadle_fail(TREADLE_NO_MEMORY, "handle: memory is out");
  TRY(list_storages(sw->carry.plan, count, storages));
  const treadle_outlet_window window = {.which = TREADLE_INFER_PARAMS,
                                        .rank = sw->group->rank,
                                        .ranks = sw->group->size,
                                        .layout = treadle_layout_text(layout),
                                        .storages = storages,
                                        .storage_count = count,
                                        .bytes = (int64_t)tables->bytes[TREADLE_INFER_PARAMS],
                                        .page_bytes = sw->carry.plan->page_bytes,
                                        .pages = tables->pages[TREADLE_INFER_PARAMS],
                                        .pool_pages = tables->physical,
                                        .table = tables->page[TREADLE_INFER_PARAMS],
                                        .device = &sw->device,
                                        .pool = sw->space.pool};
  TRY(treadle_outlet_create(&window, &sw->outlet));
out:
  treadle_free(storages);
  return status;
}

/* ---- What a user calls ---- */

static treadle_status check_window(const treadle_switch *sw, treadle_class which) {
  if (which != TREADLE_INFER_PARAMS)
    REFUSE("handle: of %s; only infer parameters have handles, since only they have versions",
           treadle_class_text(which));
  if (sw->engine.hooks.transforms)
    REFUSE("handle: the engine of rank %d changes the weights in its window (transforms), so that their "
           "names and types are not what lies there",
           sw->group->rank);
  if (sw->terms.options.double_infer) /* readers have mapped one of the two sets of pages */
    REFUSE("handle: the infer parameters of rank %d change their pages with each version (double_infer), "
           "and other processes map one "
           "version alone: make the switch without double_infer",
           sw->group->rank);
  if (sw->carry.own.spans[TREADLE_INFER].count >
      0) /* that memory lies in no file that could be given away */
    REFUSE("handle: %zu storage tensors of rank %d's infer parameters are own tensors, in memory of the "
           "caller, "
           "which other processes cannot map",
           (size_t)sw->carry.own.spans[TREADLE_INFER].count, sw->group->rank);
  return TREADLE_OK;
}

static treadle_status give(treadle_switch *sw, treadle_class which, void *handle, size_t capacity,
                           size_t *bytes_p) {
  treadle_status status = TREADLE_OK;
  TRY(check_window(sw, which));
  if (capacity < sizeof(treadle_handle))
    REFUSE("handle: it has %zu bytes, and there is room for %zu", sizeof(treadle_handle), capacity);
  if (!sw->outlet) TRY(make_outlet(sw));
  treadle_holds_settle(sw);
  memcpy(handle, treadle_outlet_handle(sw->outlet), sizeof(treadle_handle));
  *bytes_p = sizeof(treadle_handle);
out:
  return status;
}

treadle_status treadle_switch_handle(treadle_switch *sw, treadle_class which, void *handle, size_t capacity,
                                     size_t *bytes_p) {
  treadle_status status = TREADLE_OK;
  if (bytes_p) *bytes_p = 0;
  TREADLE_NEED(sw);
  TREADLE_NEED(handle);
  TREADLE_NEED(bytes_p);
  TRY(TREADLE_CHECK_ENUM(which, TREADLE_CLASSES));
  TRY(treadle_helm_take(sw->helm, "handle"));
  status = give(sw, which, handle, capacity, bytes_p);
  treadle_helm_leave(sw->helm);
out:
  return status;
}

treadle_status treadle_switch_withdraw(treadle_switch *sw) {
  TREADLE_NEED(sw);
  treadle_status status = treadle_helm_take(sw->helm, "withdraw");
  if (status != TREADLE_OK) return status;
  treadle_outlet_release(sw);
  treadle_helm_leave(sw->helm);
  return TREADLE_OK;
}

/* ---- Versions and holds, for the arrows ---- */

void treadle_holds_settle(treadle_switch *sw) {
  if (!sw->outlet) return;
  uint64_t valid = sw->mode == TREADLE_INFER && !sw->stale ? sw->version : 0;
  treadle_outlet_tell(sw->outlet, valid, sw->version);
}

/* What ends a wait for readers. */
typedef struct look {
  const treadle_carry *c;
  uint64_t epoch; /* 0: none */
} look;

static treadle_status check_look(void *context) {
  const look *l = context;
  return l->epoch ? treadle_carry_check(l->c, l->epoch) : treadle_carry_look(l->c);
}

treadle_status treadle_holds_end(treadle_switch *sw, uint64_t epoch) {
  if (!sw->outlet) return TREADLE_OK;
  double begin = treadle_clock_seconds(), limit = sw->terms.timeout_seconds;
  if (!epoch) limit *= ALONE;
  treadle_status status = treadle_outlet_end_holds(sw->outlet, sw->version, limit, check_look,
                                                   &(look){.c = &sw->carry, .epoch = epoch});
  sw->stats.wait_seconds += treadle_clock_seconds() - begin;
  return status;
}
