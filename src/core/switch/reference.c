/* The reference: parameters of another model, which never change. They lie in host memory, and come to the device in mode FORWARD alone, while
 * gradients and optimizer state are away: on the pages of those, and on others where these are too few (place.c). */
#include "switch/switch.h"

#include "base/argument.h"
#include "base/clock.h"

void *treadle_switch_reference_twin(const treadle_switch *sw, size_t *bytes_p) {
  if (bytes_p) *bytes_p = 0;
  TREADLE_NEED_OR(sw, NULL);
  if (bytes_p) *bytes_p = sw->space.tables.bytes[TREADLE_REFERENCE];
  return sw->twins.reference;
}

static treadle_status show(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  double begin = treadle_clock_seconds();
  if (sw->shown) return TREADLE_OK;
  TRY(treadle_caller_memory_check(sw));
  for (int c = TREADLE_GRADS; c <= TREADLE_OPTIMIZER; c++) {
    if (sw->books.held[c] == 0) continue;
    TRY(treadle_caller_memory_out(sw, (treadle_class)c));
    TRY(treadle_twins_offload(&sw->twins, (treadle_class)c));
    sw->away[c] = true;
  }
  sw->shown = true;
  TRY(treadle_twins_load_reference(&sw->twins));
  sw->stats.load_seconds += treadle_clock_seconds() - begin;
out:
  return status;
}

static void hide(treadle_switch *sw) {
  if (!sw->shown) return;
  sw->shown = false;
  treadle_books_leave(&sw->books, TREADLE_REFERENCE);
}

treadle_status treadle_reference_leave(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  hide(sw);
  for (int c = TREADLE_GRADS; c <= TREADLE_OPTIMIZER; c++) {
    if (!sw->away[c]) continue;
    sw->away[c] = false;
    TRY(treadle_twins_load(&sw->twins, (treadle_class)c));
    TRY(treadle_caller_memory_back(sw, (treadle_class)c));
  }
out:
  return status;
}

static treadle_status check(const treadle_switch *sw, const char *what) {
  if (!sw->twins.reference)
    return treadle_fail(TREADLE_STATE, "%s: this switch was made without a reference (reference_bytes)",
                        what);
  if (sw->mode != TREADLE_FORWARD)
    return treadle_fail(TREADLE_STATE, "%s: the mode is %s, and a reference is there in mode forward alone",
                        what, treadle_mode_text(sw->mode));
  return TREADLE_OK;
}

static treadle_status change(treadle_switch *sw, bool shows) {
  const char *what = shows ? "show reference" : "hide reference";
  treadle_status status = treadle_helm_take_device(sw->helm, &sw->device, what);
  if (status) return status;
  status = check(sw, what);
  if (!status && shows) status = show(sw);
  if (!status && !shows) hide(sw);
  if (!status) status = treadle_guard_settle(sw);
  if (!status) treadle_books_tell(&sw->books);
  treadle_helm_leave(sw->helm);
  return status;
}

treadle_status treadle_switch_show_reference(treadle_switch *sw) {
  TREADLE_NEED(sw);
  return change(sw, true);
}

treadle_status treadle_switch_hide_reference(treadle_switch *sw) {
  TREADLE_NEED(sw);
  return change(sw, false);
}
