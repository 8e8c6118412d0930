/* The caller's own memory in place of a part of a window. */
#include "memory/host.h"
#include "switch/switch.h"

#include "base/argument.h"
#include "base/clock.h"
#include "base/text.h"
#include "memory/limits.h"

#include <string.h>

enum { ALIGNMENT = 16 };

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
  uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
  return x < y + b_bytes && y < x + a_bytes;
}

static treadle_status check_memory(const treadle_switch *sw, treadle_class which, const void *memory,
                                   size_t bytes) {
  if (bytes == 0 || !memory || (uintptr_t)memory + bytes < (uintptr_t)memory)
    return treadle_fail(TREADLE_REFUSED, "register: %s of %zu bytes at %p are not a range of memory",
                        treadle_class_text(which), bytes, memory);
  if ((uintptr_t)memory % ALIGNMENT)
    return treadle_fail(TREADLE_REFUSED, "register: %s at %p are not aligned to %d bytes",
                        treadle_class_text(which), memory, ALIGNMENT);
  if (overlap(memory, bytes, sw->space.base, sw->space.bytes))
    return treadle_fail(TREADLE_REFUSED, "register: %s at %p lie in the pool", treadle_class_text(which),
                        memory);
  for (int c = 0; c < TREADLE_CLASSES; c++)
    if (sw->space.windows[c] && overlap(memory, bytes, sw->space.windows[c],
                                        (size_t)(sw->space.tables.pages[c] * sw->carry.plan->page_bytes)))
      return treadle_fail(TREADLE_REFUSED, "register: %s at %p lie in a window of the pool",
                          treadle_class_text(which), memory);
  treadle_maps *maps = NULL;
  const char *fault = sw->device.ops->fault(&sw->device, memory, bytes, &maps);
  treadle_maps_release(maps);
  if (fault)
    return treadle_fail(TREADLE_REFUSED, "register: %s of %zu bytes at %p: %s", treadle_class_text(which),
                        bytes, memory, fault);
  char words[320];
  if (treadle_own_overlaps(sw, memory, bytes, words, sizeof words))
    return treadle_fail(TREADLE_REFUSED, "register: %s of %zu bytes at %p overlap %s",
                        treadle_class_text(which), bytes, memory, words);
  for (size_t i = 0; i < sw->foreign.count; i++) {
    const treadle_caller_memory *other = &sw->foreign.items[i];
    if (overlap(memory, bytes, other->memory, other->bytes))
      return treadle_fail(TREADLE_REFUSED, "register: %s of %zu bytes at %p overlap %s of %zu bytes at %p",
                          treadle_class_text(which), bytes, memory, treadle_class_text(other->which),
                          other->bytes, (void *)other->memory);
  }
  return TREADLE_OK;
}

/* Whole storage tensors of the window of params. */
static treadle_status check_params(const treadle_switch *sw, size_t offset, size_t bytes) {
  const treadle_layout *layout = sw->layouts[TREADLE_TRAIN];
  int rank = sw->group->rank;
  size_t end = offset + bytes, window = sw->space.tables.bytes[TREADLE_PARAMS];
  bool begins = false;
  if (sw->carry.own.spans[TREADLE_TRAIN].count > 0)
    return treadle_fail(
        TREADLE_REFUSED,
        "register: rank %d has own train tensors: give all of them as such, and register none", rank);
  if (offset > window || bytes > window - offset)
    return treadle_fail(TREADLE_REFUSED,
                        "register: %zu bytes from byte %zu on of a window of parameters of %zu bytes",
                        bytes, offset, window);
  for (size_t i = 0; i < sw->foreign.count; i++) {
    const treadle_caller_memory *other = &sw->foreign.items[i];
    if (other->which == TREADLE_PARAMS && offset < other->offset + other->bytes && other->offset < end)
      return treadle_fail(TREADLE_REFUSED,
                          "register: bytes %zu to %zu of the parameters overlap %zu to %zu", offset, end,
                          other->offset, other->offset + other->bytes);
  }
  for (int32_t i = 0; i < treadle_layout_storage_count(layout, rank); i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    treadle_status status = treadle_layout_storage(layout, rank, i, &info);
    if (status) return status;
    size_t info_end = info.offset_bytes + info.bytes;
    begins = begins || info.offset_bytes == offset;
    bool cuts =
        (offset > info.offset_bytes && offset < info_end) || (end > info.offset_bytes && end < info_end);
    if (cuts)
      return treadle_fail(TREADLE_REFUSED,
                          "register: bytes %zu to %zu hold only a part of '%s', which has bytes %zu to %zu",
                          offset, end, info.name, info.offset_bytes, info_end);
  }
  return begins ? TREADLE_OK
                : treadle_fail(TREADLE_REFUSED, "register: no parameter begins at byte %zu of the window",
                               offset);
}

static treadle_status add_memory(treadle_switch *sw, treadle_caller_memory foreign) {
  treadle_status status = TREADLE_OK;
  treadle_class which = foreign.which;
  if (sw->mode != TREADLE_TRAIN)
    return treadle_fail(TREADLE_STATE, "register: in mode %s; memory is registered in mode train",
                        treadle_mode_text(sw->mode));
  TRY(check_memory(sw, which, foreign.memory, foreign.bytes));
  if (which == TREADLE_PARAMS)
    TRY(check_params(sw, foreign.offset, foreign.bytes));
  else if (foreign.offset != 0)
    return treadle_fail(TREADLE_REFUSED,
                        "register: %s at byte %zu; they have no window to be a part of, so it must be 0",
                        treadle_class_text(which), foreign.offset);
  if (which != TREADLE_PARAMS &&
      (sw->terms.leaves[which] ? sw->terms.copied[which] : sw->terms.options.host)) {
    TRY(treadle_limits_ask(foreign.bytes, "register: the host copy"));
    foreign.twin = treadle_host_pinned(&sw->device, foreign.bytes, treadle_class_text(which));
    if (!foreign.twin) return TREADLE_NO_MEMORY;
  }
  TRY(treadle_array_push(&sw->foreign, foreign));
  if (which == TREADLE_PARAMS) treadle_filled_bytes(sw->filled, foreign.offset, foreign.bytes);
  if (foreign.twin) sw->stats.host_bytes += foreign.bytes;
  foreign.twin = NULL;
  sw->stats.foreign_bytes += foreign.bytes;
out:
  treadle_host_unpinned(&sw->device, foreign.twin, foreign.bytes);
  return status;
}

treadle_status treadle_switch_register(treadle_switch *sw, treadle_class which, size_t offset, void *memory,
                                       size_t bytes) {
  TREADLE_NEED(sw);
  if (which != TREADLE_PARAMS && which != TREADLE_GRADS && which != TREADLE_OPTIMIZER)
    return treadle_fail(TREADLE_REFUSED, "register: class %d is not one of training", (int)which);
  treadle_status status = treadle_helm_take_device(sw->helm, &sw->device, "register");
  if (status != TREADLE_OK) return status;
  status = add_memory(
      sw, (treadle_caller_memory){.which = which, .offset = offset, .memory = memory, .bytes = bytes});
  treadle_helm_leave(sw->helm);
  return status;
}

treadle_status treadle_caller_memory_check(const treadle_switch *sw) {
  treadle_status status = treadle_own_check(sw);
  if (status != TREADLE_OK) return status;
  for (size_t i = 0; i < sw->foreign.count; i++) {
    const treadle_caller_memory *foreign = &sw->foreign.items[i];
    if (sw->device.ops->fault(&sw->device, foreign->memory, foreign->bytes, NULL))
      return treadle_fail(
          TREADLE_STATE, "rank %d: registered %s of %zu bytes at %p: that memory is not there any more",
          sw->group->rank, treadle_class_text(foreign->which), foreign->bytes, (void *)foreign->memory);
  }
  return TREADLE_OK;
}

/* Between the caller's memory and what stands for it. */
static treadle_status copy_class(treadle_switch *sw, treadle_class which, bool out) {
  double begin = treadle_clock_seconds();
  for (size_t i = 0; i < sw->foreign.count; i++) {
    treadle_caller_memory *foreign = &sw->foreign.items[i];
    char *there = which == TREADLE_PARAMS ? sw->space.base + foreign->offset : foreign->twin;
    if (foreign->which != which || !there || (!out && !foreign->away)) continue;
    sw->device.ops->move(&sw->device, out ? there : foreign->memory, out ? foreign->memory : there,
                         foreign->bytes);
    foreign->away = out;
    *(out ? &sw->stats.offloaded_bytes : &sw->stats.loaded_bytes) += foreign->bytes;
  }
  const treadle_status status = sw->device.ops->fence(&sw->device);
  *(out ? &sw->stats.offload_seconds : &sw->stats.load_seconds) += treadle_clock_seconds() - begin;
  return status;
}

treadle_status treadle_caller_memory_out(treadle_switch *sw, treadle_class which) {
  return copy_class(sw, which, true);
}
treadle_status treadle_caller_memory_back(treadle_switch *sw, treadle_class which) {
  return copy_class(sw, which, false);
}

treadle_status treadle_caller_memory_show(treadle_switch *sw) {
  const treadle_switch_stats stats = sw->stats;
  if (sw->mode != TREADLE_TRAIN) return TREADLE_OK;
  treadle_status status = treadle_caller_memory_check(sw);
  if (status == TREADLE_OK) status = treadle_caller_memory_out(sw, TREADLE_PARAMS);
  sw->stats = stats; /* it is not part of a switch */
  return status;
}

void treadle_caller_memory_release(treadle_switch *sw) {
  for (size_t i = 0; i < sw->foreign.count; i++)
    treadle_host_unpinned(&sw->device, sw->foreign.items[i].twin, sw->foreign.items[i].bytes);
  treadle_array_release(&sw->foreign);
}
