/* Two versions of the infer window, where there is memory for both (options.double_infer).
 *
 *   1. The window has two sets of physical pages, and lies on one of them, the present one. place.c gives the other one pages that are
 *      nobody's in mode INFER, as it does for staging.
 *   2. An update turns to the other set first. From then on page tables and views of all ranks of the node mean that set, so the
 *      waves write it, and relays read it, by the code that writes a window. The window's mapping is still that of the present version, which
 *      the engine reads.
 *      Before that the other set is mapped once more, at an address of its own, the shadow, so that its page tables are there when the
 *      window needs them: to enter the pages of a large window takes as long as to copy a part of it.
 *   3. When all ranks have proved their bytes, engines are unbound, and the ranks commit. Only then each maps its window, at the same address, on
 *      the new pages, in the epoch in which engines are bound: so all windows are on the new pages, or no engine is bound, and the next
 *      switch to INFER tries again (`behind`). An update that fails before the commit turns back: nothing of the old version was touched.
 *   4. Which set is the present one is the same for all ranks that were in the last update. Their page tables say it for those that join
 *      later (rejoin.c). */
#include "switch/switch.h"

#include <stdio.h>

treadle_status treadle_double_check(const treadle_switch *sw) {
  const treadle_own_spans *own = &sw->carry.own.spans[TREADLE_INFER];
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  if (!sw->terms.options.double_infer) return TREADLE_OK;
  if (sw->terms.leaves[TREADLE_PARAMS])
    return treadle_fail(
        TREADLE_REFUSED,
        "switch: double_infer is for updates, and params that leave the device have none: let "
        "params stay (offload_train_param off), or leave out double_infer");
  if (sw->terms.options.alias)
    return treadle_fail(TREADLE_REFUSED,
                        "switch: with alias pages hold both layouts, so that there can be no "
                        "two versions of them: leave out alias or double_infer");
  if (own->count == 0) return TREADLE_OK;
  (void)treadle_layout_storage(sw->layouts[TREADLE_INFER], sw->group->rank, own->items[0].storage, &info);
  return treadle_fail(
      TREADLE_REFUSED,
      "switch: rank %d: own infer tensor '%s' lies in memory of the caller, of which there can "
      "be no second version: let it lie in the window, or leave out double_infer",
      sw->group->rank, info.name);
}

treadle_status treadle_double_map(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  treadle_space *space = &sw->space;
  const treadle_page_tables *place = &space->tables;
  const treadle_device_ops *device = sw->device.ops;
  const int32_t *first = place->page[TREADLE_INFER_PARAMS];
  int64_t pages = place->pages[TREADLE_INFER_PARAMS];
  void *window = space->windows[TREADLE_INFER_PARAMS];
  if (!sw->terms.options.double_infer) return TREADLE_OK;
  TRY(device->map(space->pool, first, pages, &space->shadow));
  TRY(device->remap(space->pool, window, place->other, pages));
  TRY(device->remap(space->pool, window, first, pages));
  TRY(treadle_double_ready(space, &sw->device));
out:
  return status;
}

treadle_status treadle_double_ready(treadle_space *space, const treadle_device *device) {
  treadle_status status = TREADLE_OK;
  if (space->shadowed) return TREADLE_OK;
  TRY(device->ops->remap(space->pool, space->shadow, space->tables.other,
                         space->tables.pages[TREADLE_INFER_PARAMS]));
  space->shadowed = true;
out:
  return status;
}

static void swap_tables(treadle_page_tables *place) {
  int32_t *now = place->page[TREADLE_INFER_PARAMS];
  place->page[TREADLE_INFER_PARAMS] = place->other;
  place->other = now;
}

void treadle_double_turn(treadle_switch *sw) {
  treadle_tables *published = treadle_pool_base(sw->space.table_pool);
  swap_tables(&sw->space.tables);
  treadle_switch_show_pages(&sw->carry, &sw->space.tables);
  treadle_carry_turn(&sw->carry);
  published->present = !published->present; /* read by those that join a new group, in no arrow */
}

treadle_status treadle_double_show(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  treadle_space *space = &sw->space;
  const int32_t *table = space->tables.page[TREADLE_INFER_PARAMS];
  int64_t pages = space->tables.pages[TREADLE_INFER_PARAMS];
  void *window = space->windows[TREADLE_INFER_PARAMS];
  const bool shadowed = space->shadowed;
  if (!sw->behind) return TREADLE_OK;
  space->shadowed = false;
  TRY(shadowed ? sw->device.ops->follow(space->pool, window, space->shadow, table, pages)
               : sw->device.ops->remap(space->pool, window, table, pages));
  sw->behind = false;
out:
  return status;
}
