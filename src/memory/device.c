/* Which kinds of devices there are. */
#include "memory/device.h"

#include "memory/copy.h"
#include "memory/device_host.h"

const treadle_device *treadle_device_plain(void) {
  static const treadle_device plain = {.ops = &treadle_host_plain_ops};
  return &plain;
}

const treadle_device *treadle_device_host(void) {
  static const treadle_device fast = {.ops = &treadle_host_fast_ops};
  return treadle_copy_choose() == TREADLE_MOVER_STREAM ? &fast : treadle_device_plain();
}

/* By treadle_memory_kind; without a function: this library does not have it. */
static const struct {
  const char *name;
  const treadle_device *(*get)(void);
} kinds[] = {[TREADLE_MEMORY_HOST] = {"host", treadle_device_host}, [TREADLE_MEMORY_CUDA] = {"cuda", NULL}};

treadle_status treadle_device_open(const treadle_memory *memory, treadle_device *device_p) {
  static const treadle_memory host = {.kind = TREADLE_MEMORY_HOST};
  if (!memory) memory = &host;
  if ((size_t)memory->kind >= sizeof kinds / sizeof *kinds)
    return treadle_fail(TREADLE_REFUSED, "memory: %d is not a kind of memory", (int)memory->kind);
  if (!kinds[memory->kind].get)
    return treadle_fail(TREADLE_REFUSED, "memory: this library has none of kind '%s': take '%s'",
                        kinds[memory->kind].name, kinds[TREADLE_MEMORY_HOST].name);
  *device_p = *kinds[memory->kind].get();
  if (memory->device != 0 || memory->stream)
    return treadle_fail(TREADLE_REFUSED,
                        "memory of kind '%s' has one device, 0, and no streams: not device %d%s",
                        kinds[memory->kind].name, memory->device, memory->stream ? " and a stream" : "");
  return TREADLE_OK;
}
