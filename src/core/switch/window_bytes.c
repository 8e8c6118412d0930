/* The bytes of a window, copied to host memory and back, in the modes that have it open. */
#include "base/argument.h"
#include "switch/switch.h"

#include <string.h>

/* As the guard has it; but in mode INFER params that share pages with the infer window are closed. */
static bool is_open(const treadle_switch *sw, treadle_class which, bool write) {
  treadle_access use = treadle_guard_use(sw, which);
  if (sw->mode == TREADLE_INFER && which == TREADLE_PARAMS && sw->carry.plan->alias) return false;
  return use == TREADLE_ACCESS_BOTH || (use == TREADLE_ACCESS_READ && !write);
}

/* May bytes of a window be read, or written, now? Takes the helm if so. */
static treadle_status open_window(treadle_switch *sw, treadle_class which, size_t offset, size_t bytes,
                                  bool write) {
  const char *what = write ? "write" : "read";
  treadle_status status;
  if (TREADLE_CHECK_ENUM(which, TREADLE_CLASSES) != TREADLE_OK) return TREADLE_REFUSED;
  const size_t whole = sw->space.tables.bytes[which], page = (size_t)sw->carry.plan->page_bytes;
  if (offset > whole || bytes > whole - offset)
    return treadle_fail(TREADLE_REFUSED, "%s: bytes %zu to %zu do not lie in a window of %zu bytes", what,
                        offset, bytes > SIZE_MAX - offset ? SIZE_MAX : offset + bytes, whole);
  TRY(treadle_helm_take_device(sw->helm, &sw->device, what));
  if (!is_open(sw, which, write))
    status = treadle_fail(TREADLE_STATE, "%s: in mode %s the window of %s is closed", what,
                          treadle_mode_text(sw->mode), treadle_class_text(which));
  for (size_t at = offset / page;
       !status && write && which == TREADLE_INFER_PARAMS && at * page < offset + bytes; at++)
    if (treadle_plan_shares(sw->carry.plan, (int64_t)at))
      status = treadle_fail(TREADLE_REFUSED, "write: page %zu is also a page of the train window", at);
  if (status) treadle_helm_leave(sw->helm);
out:
  return status;
}

typedef struct transfer { /* between bytes of a window, from `at` on, and host memory: one of these */
  size_t at, bytes;
  char *to;
  const char *from;
} transfer;

/* How many bytes from t->at on lie in one piece, and where: in the window, in an own tensor; NULL: nowhere. */
static char *find_piece(const treadle_space *space, const treadle_carry *c, treadle_class which,
                        const transfer *t, size_t *bytes_p) {
  const size_t page = (size_t)c->plan->page_bytes, in_page = page - t->at % page;
  const treadle_own_spans none = {0}, *spans = which == TREADLE_PARAMS ? &c->own.spans[TREADLE_TRAIN]
                                               : which == TREADLE_INFER_PARAMS
                                                   ? &c->own.spans[TREADLE_INFER]
                                                   : &none;
  *bytes_p = t->bytes;
  if (spans->count == 0) return (char *)space->windows[which] + t->at;
  const treadle_own_span *span = treadle_own_find(spans, (int64_t)t->at);
  int64_t until = treadle_own_until(spans, (int64_t)t->at);
  size_t most = until < INT64_MAX ? (size_t)until + 1 - t->at : t->bytes;
  if (!span && most > in_page) most = in_page;
  if (most < t->bytes) *bytes_p = most;
  if (span) return span->memory + (t->at - (size_t)span->offset);
  return space->tables.page[which][t->at / page] < 0 ? NULL : (char *)space->windows[which] + t->at;
}

/* Bytes between storage tensors that have no page read as zeros. */
static treadle_status copy(const treadle_space *space, const treadle_carry *c, treadle_class which,
                           transfer t) {
  const treadle_device *device = c->device;
  for (size_t part; t.bytes > 0; t.at += part, t.bytes -= part) {
    char *at = find_piece(space, c, which, &t, &part);
    if (at && t.to) device->ops->plain->move(device, t.to, at, part);
    if (at && t.from) device->ops->plain->move(device, at, t.from, part);
    if (!at && t.to) memset(t.to, 0, part);
    if (t.to) t.to += part;
    if (t.from) t.from += part;
  }
  return device->ops->fence(device);
}

treadle_status treadle_switch_read(treadle_switch *sw, treadle_class which, size_t offset, size_t bytes,
                                   void *to) {
  treadle_status status;
  TREADLE_NEED(sw);
  if (bytes) TREADLE_NEED(to);
  TRY(open_window(sw, which, offset, bytes, false));
  status = copy(&sw->space, &sw->carry, which, (transfer){.at = offset, .bytes = bytes, .to = to});
  treadle_helm_leave(sw->helm);
out:
  return status;
}

treadle_status treadle_switch_write(treadle_switch *sw, treadle_class which, size_t offset, size_t bytes,
                                    const void *from) {
  treadle_status status;
  TREADLE_NEED(sw);
  if (bytes) TREADLE_NEED(from);
  TRY(open_window(sw, which, offset, bytes, true));
  status = copy(&sw->space, &sw->carry, which, (transfer){.at = offset, .bytes = bytes, .from = from});
  if (which == TREADLE_PARAMS) treadle_filled_bytes(sw->filled, offset, bytes);
  treadle_helm_leave(sw->helm);
out:
  return status;
}
