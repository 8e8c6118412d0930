/* The switch: the state machine that turns train mode to infer mode and back.
 *
 *   1. One mode holds the weights. Its window may be read; the bytes of the other window are undefined.
 *   2. During a switch (an epoch) the old mode's bytes do not change until their page is reclaimed, and a page
 *      is reclaimed by its owner only, after every rank has finished the last wave that reads it (plan: need).
 *   3. A rank publishes `reclaimed` before it writes the first such page, and looks at the outcome in between. So once
 *      the outcome is failed, a rank that has not published `reclaimed` never writes one in that epoch.
 *   4. A rank publishes `verified` after its coverage was proved; the outcome becomes committed only when all have.
 *   5. Mode and version change only after the outcome is committed.
 *   6. The outcome of an epoch is decided once, by one compare-and-swap, for all ranks.
 *   7. A rank leaves a failed epoch after all living ranks that entered it have stopped. So all of them find the same
 *      answer to: has any rank reclaimed a page?
 *   8. A switch allocates nothing, maps nothing (but an update with double_infer its infer window, once) and makes no call in which another rank could make it hang. A switch that
 *      is started has a thread of its own.
 *   9. Each physical page has one owner, a class or nobody. treadle.h says which classes own pages in which mode. Bytes are
 *      copied to a twin before their page has another owner.
 *  10. An engine is bound after the weights were committed, in an epoch of its own, and a KV cache comes after it.
 *  11. A window that a process holds by its handle is not taken away: out of INFER, the ranks go on when no window is held on
 *      any of them (handle.c).
 *  12. An update writes the infer window again, from params that have stayed. Where it fails after a rank has begun to write, the
 *      window holds no version on any rank (stale), and params are what they were. If all ranks keep what they write over (undo.c),
 *      it holds the version before.
 *      With double_infer it writes other pages instead, and the old version is whole until the next one is committed (double.c).
 *  13. A cancelled arrow is a failure of this rank like any other (4, 6, 7). The rank looks for the request wherever it waits or
 *      copies, until it has verified, and while it waits for the others to verify.
 *
 * Modes:
 *                    treadle_switch_create
 *                            |                         enter, finish
 *                            v                        (and, to update, again)
 *      [HOST] <--local--> [TRAIN] ----------------> [INFER]
 *        | ^               ^  ^                      |  |
 *        | |         local |  +-------enter----------+  | enter
 *        | |               |                            v
 *        | +--local---- [FORWARD] <---------------------+
 *        +----enter------> [INFER]
 *
 * [LOST]: pages were reclaimed before an epoch failed, and there is no copy of what they held.
 *
 * The states of the model in tools/switch.pml are these modes, and its steps the functions of arrows.c and epoch.c. */
#include "switch/switch.h"

#include "base/alloc.h"
#include "base/argument.h"

const char *treadle_mode_text(treadle_mode mode) {
  static const char *const names[] = {"train", "infer", "lost", "forward", "host"};
  return (unsigned)mode < sizeof names / sizeof names[0] ? names[mode] : "(none)";
}

/* ---- Arrows ---- */

/* In mode INFER params are where the next version comes from; a page that both windows share would be the engine's and the trainer's. */
static treadle_status check_update(const treadle_switch *sw) {
  if (sw->mode != TREADLE_INFER)
    return treadle_fail(TREADLE_STATE, "update: the mode is %s, and only mode infer has a next version",
                        treadle_mode_text(sw->mode));
  if (sw->apart)
    return treadle_fail(
        TREADLE_STATE,
        "update: this switch has no group, since rejoining one has failed: rejoin one first");
  if (sw->terms.leaves[TREADLE_PARAMS])
    return treadle_fail(
        TREADLE_STATE,
        "update: params leave the device in mode infer, so there is nothing to update from: make the "
        "switch with params that stay (offload_train_param off)");
  if (sw->terms.options.alias)
    return treadle_fail(
        TREADLE_STATE,
        "update: this switch shares pages between both layouts (alias), so the engine would see "
        "weights that are being trained: make it without alias");
  return TREADLE_OK;
}

/* Is there an arrow, and does the switch have what it takes? */
treadle_status treadle_arrow_check(const treadle_switch *sw, int towards) {
  if (towards == TREADLE_AIM_UPDATE) return check_update(sw);
  treadle_mode old = sw->mode, aim = (treadle_mode)towards;
  if (old == aim) return TREADLE_OK;
  bool is_there = old == TREADLE_HOST ||
                  (old == TREADLE_TRAIN && (aim == TREADLE_INFER || aim == TREADLE_HOST)) ||
                  (old == TREADLE_INFER && (aim == TREADLE_TRAIN || aim == TREADLE_FORWARD)) ||
                  (old == TREADLE_FORWARD && (aim == TREADLE_TRAIN || aim == TREADLE_HOST));
  if (sw->apart && (aim == TREADLE_INFER || old == TREADLE_INFER))
    return treadle_fail(
        TREADLE_STATE,
        "switch to %s: this switch has no group, since rejoining one has failed: rejoin one first",
        treadle_mode_text(aim));
  if (old == TREADLE_LOST)
    return treadle_fail(TREADLE_STATE, "switch to %s: the weights are lost", treadle_mode_text(aim));
  if (!is_there)
    return treadle_fail(TREADLE_STATE, "switch to %s: from mode %s there is no way to %s",
                        treadle_mode_text(aim), treadle_mode_text(old), treadle_mode_text(aim));
  if (aim == TREADLE_HOST && !sw->terms.options.host)
    return treadle_fail(TREADLE_STATE, "switch to host: this switch was made without host memory (host)");
  if (old == TREADLE_INFER && sw->terms.options.one_way && treadle_switch_rebuilds(sw))
    return treadle_fail(TREADLE_STATE, "switch to %s: this switch was made one-way (one_way)",
                        treadle_mode_text(aim));
  if (aim == TREADLE_INFER && sw->accumulating)
    return treadle_fail(
        TREADLE_STATE,
        "switch to infer: gradients are being accumulated, and would be lost: finish the step first");
  return TREADLE_OK;
}

/* What is done to get there from here. */
static treadle_status run(treadle_switch *sw) {
  if (sw->aim == TREADLE_AIM_UPDATE) return treadle_arrow_update(sw);
  treadle_mode aim = (treadle_mode)sw->aim;
  if (aim == TREADLE_INFER) return sw->mode == aim ? treadle_arrow_bind(sw) : treadle_arrow_to_infer(sw);
  return sw->mode == TREADLE_INFER ? treadle_arrow_from_infer(sw, aim) : treadle_arrow_local(sw, aim);
}

treadle_status treadle_arrow_take(treadle_switch *sw, int aim) {
  treadle_status status = TREADLE_OK;
  if (sw->mode == TREADLE_INFER && aim == TREADLE_INFER && sw->stale) aim = TREADLE_AIM_UPDATE;
  bool binds = aim == TREADLE_INFER && sw->engine.binds && !sw->engine.bound;
  if ((int)sw->mode == aim && !binds) return TREADLE_OK;
  sw->aim = aim;
  double group_timeout = sw->group->timeout_seconds;
  treadle_switch_stats *stats = &sw->stats;
  treadle_group_limit(sw->group, sw->terms.timeout_seconds);
  stats->wait_seconds = stats->offload_seconds = stats->wave_seconds = stats->bind_seconds =
      stats->load_seconds = 0;
  stats->offloaded_bytes = stats->loaded_bytes = 0;
  stats->copied_bytes = stats->pulled_bytes = stats->filled_bytes = stats->staged_bytes = 0;
  treadle_helm_tell(sw->helm);
  status = run(sw);
  sw->carry.faults.planted = TREADLE_FAULT_NONE;
  status = treadle_arrow_settle(sw, status);
  treadle_books_tell(&sw->books);
  treadle_holds_settle(sw);
  treadle_group_limit(sw->group, group_timeout);
  return status;
}

/* ---- What a user calls ---- */

treadle_status treadle_switch_to_infer(treadle_switch *sw) {
  TREADLE_NEED(sw);
  return treadle_helm_go(sw, TREADLE_INFER);
}

treadle_status treadle_switch_to_train(treadle_switch *sw) {
  TREADLE_NEED(sw);
  return treadle_helm_go(sw, TREADLE_TRAIN);
}

treadle_status treadle_switch_to_forward(treadle_switch *sw) {
  TREADLE_NEED(sw);
  return treadle_helm_go(sw, TREADLE_FORWARD);
}

treadle_status treadle_switch_to_host(treadle_switch *sw) {
  TREADLE_NEED(sw);
  return treadle_helm_go(sw, TREADLE_HOST);
}

treadle_status treadle_switch_update(treadle_switch *sw) {
  TREADLE_NEED(sw);
  return treadle_helm_go(sw, TREADLE_AIM_UPDATE);
}

treadle_status treadle_switch_return(treadle_switch *sw) {
  TREADLE_NEED(sw);
  treadle_status status = treadle_helm_take_device(sw->helm, &sw->device, "return");
  if (status != TREADLE_OK) return status;
  bool can = sw->mode == TREADLE_INFER && !treadle_switch_rebuilds(sw);
  status = can ? treadle_arrow_return(sw)
               : treadle_fail(TREADLE_STATE,
                              "return: the mode is %s, and params %s: this works only in mode infer, when "
                              "host memory or the device has kept them",
                              treadle_mode_text(sw->mode),
                              treadle_switch_rebuilds(sw) ? "are rebuilt" : "are kept");
  treadle_holds_settle(sw);
  treadle_helm_leave(sw->helm);
  return status;
}

treadle_status treadle_switch_filled(treadle_switch *sw) {
  TREADLE_NEED(sw);
  treadle_filled_all(sw->filled);
  return TREADLE_OK;
}

treadle_status treadle_switch_tensor_filled(treadle_switch *sw, int32_t storage) {
  TREADLE_NEED(sw);
  const int32_t count = treadle_layout_storage_count(sw->layouts[TREADLE_TRAIN], sw->group->rank);
  if (storage < 0 || storage >= count)
    return treadle_fail(TREADLE_REFUSED, "filled: storage tensor %d is none of the %d of rank %d",
                        (int)storage, (int)count, sw->group->rank);
  treadle_filled_tensor(sw->filled, storage);
  return TREADLE_OK;
}

void treadle_switch_accumulate(treadle_switch *sw, bool begun) {
  TREADLE_NEED_ONLY(sw);
  if (treadle_helm_take(sw->helm, "accumulate") != TREADLE_OK) return;
  sw->accumulating = begun;
  treadle_helm_leave(sw->helm);
}

treadle_status treadle_switch_trim(treadle_switch *sw) {
  TREADLE_NEED(sw);
  treadle_status status = treadle_helm_take(sw->helm, "trim");
  if (status != TREADLE_OK) return status;
  status = sw->device.ops->trim(sw->space.pool, sw->books.owner, TREADLE_NOBODY);
  treadle_helm_leave(sw->helm);
  return status;
}

void *treadle_switch_window(const treadle_switch *sw, treadle_class which, size_t *bytes_p) {
  if (bytes_p) *bytes_p = 0;
  TREADLE_NEED_OR(sw, NULL);
  if (TREADLE_CHECK_ENUM(which, TREADLE_CLASSES) != TREADLE_OK) return NULL;
  if (bytes_p) *bytes_p = sw->space.tables.bytes[which];
  return sw->space.windows[which];
}

size_t treadle_switch_resident(const treadle_switch *sw, treadle_class which) {
  TREADLE_NEED_OR(sw, 0);
  if (TREADLE_CHECK_ENUM(which, TREADLE_CLASSES) != TREADLE_OK) return 0;
  return treadle_books_held(&sw->books, which);
}

size_t treadle_switch_bound(const treadle_switch *sw) {
  TREADLE_NEED_OR(sw, 0);
  return sw->agreed.bound_bytes;
}

size_t treadle_switch_pool_bound(const treadle_switch *sw) {
  TREADLE_NEED_OR(sw, 0);
  return sw->agreed.pool_bound_bytes;
}

void *treadle_switch_train_window(const treadle_switch *sw) {
  TREADLE_NEED_OR(sw, NULL);
  return sw->space.windows[TREADLE_PARAMS];
}

void *treadle_switch_infer_window(const treadle_switch *sw) {
  TREADLE_NEED_OR(sw, NULL);
  return sw->space.windows[TREADLE_INFER_PARAMS];
}

treadle_mode treadle_switch_mode(const treadle_switch *sw) {
  TREADLE_NEED_OR(sw, TREADLE_LOST);
  return sw->mode;
}

uint64_t treadle_switch_version(const treadle_switch *sw) {
  TREADLE_NEED_OR(sw, 0);
  return sw->version;
}

bool treadle_switch_is_valid(const treadle_switch *sw) {
  TREADLE_NEED_OR(sw, false);
  return sw->mode != TREADLE_LOST && !(sw->mode == TREADLE_INFER && (sw->stale || sw->behind));
}

const treadle_plan *treadle_switch_plan(const treadle_switch *sw) {
  TREADLE_NEED_OR(sw, NULL);
  return sw->carry.plan;
}

void treadle_switch_release(treadle_switch *sw) {
  treadle_status over = sw->device.ops ? sw->device.ops->fence(&sw->device) : TREADLE_OK;
  (void)over; /* nobody uses what the device has */
  treadle_own_unpin(&sw->carry);
  treadle_outlet_release(sw);
  treadle_filled_destroy(sw->filled);
  if (sw->engine.attached) sw->engine.hooks.attach(sw->engine.hooks.context, NULL);
  treadle_switch_unshare(sw);
  treadle_net_delta_release(&sw->carry);
  treadle_net_memory_release(&sw->carry);
  treadle_device_let_go(&sw->device);
  if (sw->space.pool) sw->device.ops->destroy(sw->space.pool);
  treadle_pool_destroy(sw->space.table_pool);
  treadle_free(sw->space.shared_pools);
  treadle_free(sw->space.shared_tables);
  treadle_books_release(&sw->books);
  treadle_twins_release(&sw->twins);
  treadle_caller_memory_release(sw);
  treadle_carry_release(&sw->carry);
  treadle_plan_destroy(sw->carry.plan);
  treadle_plan_base_release(&sw->agreed.plan_base);
  treadle_undo_release(&sw->carry, &sw->undo);
  treadle_own_release(sw);
  treadle_arena_release(&sw->space.tables.arena);
  treadle_device_close(&sw->device);
  treadle_helm_destroy(sw->helm);
  treadle_free(sw);
}
