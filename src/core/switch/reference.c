/* The reference: parameters of another model, which never change. They lie in host memory, and come to the device in mode FORWARD alone, while
 * gradients and optimizer state are away: on the pages of those, and on others where these are too few (place.c). */
#include "memory/host.h"
#include "switch/switch.h"

#include "base/argument.h"
#include "base/clock.h"

#include <string.h>

static size_t twin_bytes(const treadle_switch *sw) {
  return (size_t)(sw->space.tables.pages[TREADLE_REFERENCE] * sw->carry.plan->page_bytes);
}

treadle_status treadle_reference_create(treadle_switch *sw) {
  const size_t bytes = twin_bytes(sw);
  if (!bytes) return TREADLE_OK;
  sw->reference = treadle_host_create(bytes, treadle_class_text(TREADLE_REFERENCE));
  if (!sw->reference) return TREADLE_NO_MEMORY;
  sw->reference_twin = bytes;
  sw->stats.host_bytes += bytes;
  return TREADLE_OK;
}

void treadle_reference_release(treadle_switch *sw) {
  treadle_host_destroy(sw->reference, sw->reference_twin);
  sw->reference = NULL;
}

void *treadle_switch_reference_twin(const treadle_switch *sw, size_t *bytes_p) {
  if (bytes_p) *bytes_p = 0;
  TREADLE_NEED_OR(sw, NULL);
  if (bytes_p) *bytes_p = sw->space.tables.bytes[TREADLE_REFERENCE];
  return sw->reference;
}

/* Does the class own pages now? */
static bool is_there(const treadle_switch *sw, treadle_class which) { return sw->books.held[which] > 0; }

/* Page by page: they need not follow each other in the pool. */
static treadle_status copy_in(treadle_switch *sw) {
  const size_t page = (size_t)sw->carry.plan->page_bytes;
  const int32_t *table = sw->space.tables.page[TREADLE_REFERENCE];
  for (int64_t i = 0, end, count = sw->space.tables.pages[TREADLE_REFERENCE]; i < count; i = end) {
    for (end = i + 1; end < count && table[end] == table[end - 1] + 1; end++) {
    }
    sw->device.ops->move(&sw->device, sw->space.base + (size_t)table[i] * page,
                         sw->reference + (size_t)i * page, (size_t)(end - i) * page);
  }
  sw->stats.loaded_bytes += twin_bytes(sw);
  return sw->device.ops->fence(&sw->device);
}

static treadle_status show(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  double begin = treadle_clock_seconds();
  if (sw->shown) return TREADLE_OK;
  TRY(treadle_caller_memory_check(sw));
  for (int c = TREADLE_GRADS; c <= TREADLE_OPTIMIZER; c++) {
    if (!is_there(sw, (treadle_class)c)) continue;
    TRY(treadle_caller_memory_out(sw, (treadle_class)c));
    TRY(treadle_twins_offload(&sw->twins, (treadle_class)c));
    sw->away[c] = true;
  }
  sw->shown = true;
  treadle_books_take(&sw->books, TREADLE_REFERENCE);
  TRY(copy_in(sw));
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
  if (!sw->reference)
    return treadle_fail(TREADLE_STATE, "%s: this switch was made without a reference (reference_bytes)",
                        what);
  if (sw->mode != TREADLE_FORWARD)
    return treadle_fail(TREADLE_STATE, "%s: the mode is %s, and a reference is there in mode forward alone",
                        what, treadle_mode_text(sw->mode));
  return TREADLE_OK;
}

static treadle_status change(treadle_switch *sw, bool shows) {
  const char *what = shows ? "show reference" : "hide reference";
  treadle_status status = treadle_helm_take(sw->helm, what);
  if (status) return status;
  status = check(sw, what);
  if (!status && shows) status = show(sw);
  if (!status && !shows) hide(sw);
  if (!status) treadle_guard_settle(sw);
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
