/* The engine as that of a switch: the functions of its hooks.
 *
 * The switch calls them in the thread of an arrow. They close and open the gate (gate.h), and look up where the windows and the storage
 * tensors of the plan are. The blocks of the cache are counted by the next call that generates or scores, together with the other ranks:
 * until the arrow has ended there is no KV window. */
#include "generate/generator.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/sized.h"

#include <stdlib.h>
#include <string.h>

static treadle_status refuse_plan(const treadle_generator *e) {
  return treadle_fail(
      TREADLE_REFUSED,
      "the engine's layout '%s' is not the infer layout of its switch: other storage tensors",
      treadle_layout_text(e->layout));
}

/* How far each storage tensor is from where the engine's layout has it. */
static treadle_status find_shifts(treadle_generator *e) {
  const treadle_plan *plan = treadle_switch_plan(e->sw);
  int64_t rank = e->replica.ranks[e->replica.position];
  int32_t count = treadle_layout_storage_count(e->layout, rank);
  treadle_status status = TREADLE_OK;
  if (!e->shift) e->shift = treadle_arena_alloc_array(&e->arena, (size_t)count + 1, sizeof *e->shift);
  if (!e->shift) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %d storage tensors", count);
  for (int32_t i = 0; i < count; i++) {
    treadle_storage_info mine = TREADLE_INIT(treadle_storage_info),
                         theirs = TREADLE_INIT(treadle_storage_info);
    TRY(treadle_layout_storage(e->layout, rank, i, &mine));
    if (treadle_plan_storage(plan, i, &theirs) != TREADLE_OK || strcmp(mine.name, theirs.name) != 0 ||
        mine.bytes != theirs.bytes || mine.dtype != theirs.dtype)
      return refuse_plan(e);
    if (theirs.bytes > 0 && treadle_switch_tensor(e->sw, TREADLE_INFER_PARAMS, i, NULL) !=
                                (char *)treadle_switch_infer_window(e->sw) + theirs.offset_bytes)
      TRY(treadle_fail(TREADLE_REFUSED,
                       "own infer tensor '%s': the built-in engine reads its weights in the infer window",
                       theirs.name));
    e->shift[i] = (int64_t)theirs.offset_bytes - (int64_t)mine.offset_bytes;
  }
  if (treadle_plan_storage(
          plan, count, &(treadle_storage_info){.struct_size = sizeof(treadle_storage_info)}) == TREADLE_OK)
    return refuse_plan(e);
out:
  return status;
}

treadle_status treadle_generator_settle(treadle_generator *engine, const treadle_pass_windows *windows,
                                        size_t kv_bytes) {
  treadle_status status;
  TRY(treadle_pass_bind(engine->pass, windows));
  pthread_mutex_lock(&engine->gate.lock);
  engine->kv_bytes = kv_bytes;
  engine->counted = false;
  engine->seed++;
  pthread_mutex_unlock(&engine->gate.lock);
out:
  return status;
}

/* ---- The hooks -------------------------------------------------------------------------------------- */

static void attach(void *context, const treadle_switch *sw) {
  treadle_generator *e = context;
  (void)treadle_gate_close(&e->gate, e->sw && !sw);
  free(e->own_kv);
  free(e->own_work);
  e->own_kv = e->own_work = NULL;
  e->sw = sw;
  treadle_generator_join_gate(e);
}

static treadle_status check_windows(const treadle_generator *e, size_t weights, size_t kv, size_t work) {
  size_t needed = treadle_layout_window_bytes(e->layout, e->replica.ranks[e->replica.position]);
  size_t takes = treadle_pass_work_bytes(e->pass) + treadle_pass_packed_bytes(e->pass);
  size_t block = treadle_pass_block_bytes(e->pass);
  if (weights < needed)
    return treadle_fail(TREADLE_REFUSED, "an infer window of %zu bytes; the engine's layout has %zu",
                        weights, needed);
  if (work < takes)
    return treadle_fail(
        TREADLE_REFUSED,
        "a window of work memory of %zu bytes; the engine takes %zu (work_bytes of its hooks)", work,
        takes);
  if (kv < block)
    return treadle_fail(
        TREADLE_REFUSED,
        "the KV window has %zu bytes, and a block of the engine's cache %zu: give the switch "
        "more (kv_bytes, or a larger budget)",
        kv, block);
  return TREADLE_OK;
}

static treadle_status bind(void *context, void *window, size_t bytes) {
  treadle_generator *e = context;
  size_t kv_bytes = 0, work_bytes = 0;
  treadle_pass_windows windows = {.weights = window};
  treadle_status status;
  if (!e->sw) return treadle_fail(TREADLE_STATE, "the engine's hooks were called by no switch");
  windows.cache = treadle_switch_window(e->sw, TREADLE_KV, &kv_bytes);
  windows.work = treadle_switch_window(e->sw, TREADLE_WORK, &work_bytes);
  TRY(treadle_gate_close(&e->gate, false));
  TRY(check_windows(e, bytes, kv_bytes, work_bytes));
  TRY(find_shifts(e));
  windows.shift = e->shift;
  TRY(treadle_generator_settle(e, &windows, kv_bytes));
  e->version = treadle_switch_version(e->sw);
  treadle_gate_open(&e->gate);
out:
  return status;
}

static treadle_status unbind(void *context) {
  treadle_generator *e = context;
  return treadle_gate_close(&e->gate, false);
}

treadle_status treadle_generator_hooks_of(treadle_generator *engine, treadle_engine_hooks *hooks_p) {
  TREADLE_NEED(engine);
  TREADLE_NEED_SIZED(hooks_p);
  const treadle_engine_hooks hooks = {.struct_size = sizeof hooks,
                                      .context = engine,
                                      .bind = bind,
                                      .unbind = unbind,
                                      .attach = attach,
                                      .work_bytes = treadle_pass_work_bytes(engine->pass) +
                                                    treadle_pass_packed_bytes(engine->pass),
                                      .kv_block_bytes = treadle_pass_block_bytes(engine->pass)};
  TREADLE_GIVE(hooks_p, &hooks);
  return TREADLE_OK;
}
