/* The bytes of a window, copied to host memory and back, in the modes that have it open. */
#include "base/argument.h"
#include "switch/switch.h"

/* As the guard has it; but in mode INFER params that share pages with the infer window are closed. */
static bool is_open(const treadle_switch *sw, treadle_class which, bool write) {
  treadle_access use = treadle_guard_use(sw, which);
  if (sw->mode == TREADLE_INFER && which == TREADLE_PARAMS && sw->plan->alias) return false;
  return use == TREADLE_ACCESS_BOTH || (use == TREADLE_ACCESS_READ && !write);
}

/* May bytes of a window be read, or written, now? Takes the helm if so. */
static treadle_status open_window(treadle_switch *sw, treadle_class which, size_t offset, size_t bytes,
                                  bool write) {
  const char *what = write ? "write" : "read";
  treadle_status status;
  if (TREADLE_CHECK_ENUM(which, TREADLE_CLASSES) != TREADLE_OK) return TREADLE_REFUSED;
  const size_t whole = sw->space.tables.bytes[which], page = (size_t)sw->plan->page_bytes;
  if (offset > whole || bytes > whole - offset)
    return treadle_fail(TREADLE_REFUSED, "%s: bytes %zu to %zu do not lie in a window of %zu bytes", what,
                        offset, bytes > SIZE_MAX - offset ? SIZE_MAX : offset + bytes, whole);
  TRY(treadle_helm_take(sw, what));
  if (!is_open(sw, which, write))
    status = treadle_fail(TREADLE_STATE, "%s: in mode %s the window of %s is closed", what,
                          treadle_mode_text(sw->mode), treadle_class_text(which));
  for (size_t at = offset / page;
       !status && write && which == TREADLE_INFER_PARAMS && at * page < offset + bytes; at++)
    if (treadle_plan_shares(sw->plan, (int64_t)at))
      status = treadle_fail(TREADLE_REFUSED, "write: page %zu is also a page of the train window", at);
  if (status) treadle_helm_leave(sw);
out:
  return status;
}

treadle_status treadle_switch_read(treadle_switch *sw, treadle_class which, size_t offset, size_t bytes,
                                   void *to) {
  treadle_status status;
  TREADLE_NEED(sw);
  if (bytes) TREADLE_NEED(to);
  TRY(open_window(sw, which, offset, bytes, false));
  if (bytes)
    sw->device.ops->plain->move(&sw->device, to, (const char *)sw->space.windows[which] + offset, bytes);
  sw->device.ops->fence(&sw->device);
  treadle_helm_leave(sw);
out:
  return status;
}

treadle_status treadle_switch_write(treadle_switch *sw, treadle_class which, size_t offset, size_t bytes,
                                    const void *from) {
  treadle_status status;
  TREADLE_NEED(sw);
  if (bytes) TREADLE_NEED(from);
  TRY(open_window(sw, which, offset, bytes, true));
  if (bytes)
    sw->device.ops->plain->move(&sw->device, (char *)sw->space.windows[which] + offset, from, bytes);
  sw->device.ops->fence(&sw->device);
  treadle_helm_leave(sw);
out:
  return status;
}
