/* Which pages may be read and written through which window.
 *
 * A page that both windows of parameters share is read-only for the engine, and the trainer may not write it while
 * the engine has it. With guard_pages all other pages are guarded, too. What a mode does not hold cannot be touched
 * through its window. It is filled with a pattern, so that a late read (by another rank, through its own mapping) shows in
 * the bytes. The switch itself works through the mapping of the whole pool, which stays as it is.
 *
 * Params that leave are closed to writers as a whole, by close_window of the device: with pages of
 * 4 KiB mprotect took four times as long as the rest of a switch that copies 4 % of its bytes. If params stay, only shared
 * pages are protected, run by run. */
#include "switch/switch.h"

enum { PATTERN = 0xa5 };

void treadle_guard_spoil(treadle_switch *sw, int32_t physical) {
  if (!sw->terms.options.guard_pages) return;
  sw->device.ops->fill(&sw->device, sw->space.base + physical * sw->carry.plan->page_bytes, PATTERN,
                       (size_t)sw->carry.plan->page_bytes);
}

treadle_access treadle_guard_use(const treadle_switch *sw, treadle_class which) {
  const treadle_access none = TREADLE_ACCESS_NONE, both = TREADLE_ACCESS_BOTH;
  const treadle_mode mode = sw->mode;
  const bool trains = (int)which < TREADLE_TRAIN_CLASSES;
  /* Of a class without bytes nothing leaves. */
  const bool leaves = trains && sw->terms.leaves[which] && sw->space.tables.bytes[which] > 0;
  const bool computes = which == TREADLE_TRAIN_WORK;
  switch (mode) {
  case TREADLE_TRAIN: return trains || computes ? both : none;
  case TREADLE_FORWARD:
    if (which == TREADLE_REFERENCE) return sw->shown ? TREADLE_ACCESS_READ : none;
    if (computes) return both;
    if (sw->shown && which != TREADLE_PARAMS) return none;
    if (which == TREADLE_PARAMS) return TREADLE_ACCESS_READ;
    return trains && !leaves ? both : none;
  case TREADLE_INFER:
    if (which == TREADLE_INFER_PARAMS && sw->stale) return none;
    return leaves || computes || which == TREADLE_REFERENCE ? none : both;
  case TREADLE_LOST:
  case TREADLE_HOST: break;
  }
  return none;
}

/* A window, but for its holes; shared: only its runs of shared pages. */
static treadle_status protect(const treadle_switch *sw, treadle_class which, bool shared,
                              treadle_access use) {
  treadle_status status = TREADLE_OK;
  size_t page = (size_t)sw->carry.plan->page_bytes;
  int64_t count = sw->space.tables.pages[which];
  const int32_t *table = sw->space.tables.page[which];
  for (int64_t i = 0, end; i < count; i = end + 1) {
    for (end = i; end < count && table[end] >= 0 && (!shared || sw->space.tables.aliased[table[end]]);
         end++) {
    }
    if (end > i)
      TRY(sw->device.ops->protect(sw->space.pool, (char *)sw->space.windows[which] + (size_t)i * page,
                                  (size_t)(end - i) * page, use));
  }
out:
  return status;
}

/* Params that have left are closed as a whole, where they lie in one piece. */
static bool closes_all(const treadle_switch *sw) {
  return sw->space.tables.aliased && sw->terms.leaves[TREADLE_PARAMS] && !sw->terms.options.guard_pages;
}

treadle_status treadle_guard_create(treadle_switch *sw) {
  return sw->space.tables.aliased ? protect(sw, TREADLE_INFER_PARAMS, true, TREADLE_ACCESS_READ)
                                  : TREADLE_OK;
}

/* Nobody but the engine has shared pages in mode INFER, and it reads them only. The first call, when the switch is made, finds mode TRAIN. */
static treadle_status settle_shared(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  bool infer = sw->mode == TREADLE_INFER, guards = sw->terms.options.guard_pages;
  const size_t bytes = (size_t)(sw->space.tables.pages[TREADLE_PARAMS] * sw->carry.plan->page_bytes);
  if (closes_all(sw)) {
    TRY(sw->device.ops->close_window(sw->space.pool, sw->space.windows[TREADLE_PARAMS], bytes, infer));
  } else if (guards) { /* the whole window was opened as the mode says */
    if (infer && !sw->terms.leaves[TREADLE_PARAMS])
      TRY(protect(sw, TREADLE_PARAMS, true, TREADLE_ACCESS_READ));
  } else if (infer != sw->shared_closed) {
    TRY(protect(sw, TREADLE_PARAMS, true, infer ? TREADLE_ACCESS_READ : TREADLE_ACCESS_BOTH));
  }
  sw->shared_closed = infer;
  if (guards && infer) TRY(protect(sw, TREADLE_INFER_PARAMS, true, TREADLE_ACCESS_READ));
out:
  return status;
}

treadle_status treadle_guard_settle(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  for (int c = 0; sw->terms.options.guard_pages && c < TREADLE_CLASSES; c++)
    if (sw->space.windows[c])
      TRY(protect(sw, (treadle_class)c, false, treadle_guard_use(sw, (treadle_class)c)));
  if (sw->space.tables.aliased) TRY(settle_shared(sw));
  for (int64_t page = 0; sw->terms.options.guard_pages && page < sw->space.tables.physical; page++)
    if (sw->books.owner[page] == TREADLE_NOBODY) treadle_guard_spoil(sw, (int32_t)page);
  if (sw->terms.options.guard_pages) TRY(sw->device.ops->fence(&sw->device));
out:
  return status;
}
