/* What a switch on a device is measured by: the fastest flat copy of as many bytes from one block of the device's memory to another. */
#include "switch/switch.h"

#include "base/argument.h"
#include "base/clock.h"
#include "memory/paged.h"
#include "treadle_testing.h"

enum { BLOCK = 256 << 20, REPEATS = 3 };

typedef struct blocks {
  const treadle_device *device;
  char *from, *to;
  size_t bytes; /* of each */
} blocks;

/* `bytes` bytes, a block at a time: by the kernel that copies ops, or by the driver. */
static treadle_status copy(const blocks *b, size_t bytes, bool by_kernel) {
  const treadle_device_ops *ops = b->device->ops;
  for (size_t left = bytes, part; left > 0; left -= part) {
    part = left < b->bytes ? left : b->bytes;
    const treadle_paged from = treadle_paged_of(b->from), to = treadle_paged_of(b->to);
    const treadle_op op = {.ndim = 1,
                           .from_dtype = TREADLE_FP8_E4M3,
                           .to_dtype = TREADLE_FP8_E4M3,
                           .size = {(int64_t)part},
                           .from_stride = {1},
                           .to_stride = {1},
                           .elems = (int64_t)part};
    if (by_kernel)
      ops->copy(b->device, &op, &from, &to, 1);
    else
      ops->move(b->device, b->to, b->from, part);
  }
  return ops->fence(b->device);
}

/* The first time warms up, and does not count. */
static treadle_status measure(const blocks *b, size_t bytes, double *best_p) {
  treadle_status status = TREADLE_OK;
  for (int by_kernel = 0; by_kernel < 2; by_kernel++)
    for (int i = 0; i <= REPEATS; i++) {
      const double begin = treadle_clock_seconds();
      TRY(copy(b, bytes, by_kernel));
      const double seconds = treadle_clock_seconds() - begin;
      if (i > 0 && (*best_p == 0 || seconds < *best_p)) *best_p = seconds;
    }
out:
  return status;
}

treadle_status treadle_switch_flat_copy(treadle_switch *sw, size_t bytes, double *seconds_p) {
  treadle_status status;
  TREADLE_NEED(sw);
  TREADLE_NEED(seconds_p);
  *seconds_p = 0;
  blocks b = {.device = &sw->device, .bytes = bytes < BLOCK ? bytes : BLOCK};
  const treadle_device_ops *ops = sw->device.ops;
  TRY(treadle_helm_take_device(sw->helm, &sw->device, "flat_copy"));
  b.from = ops->scratch(b.device, b.bytes);
  b.to = ops->scratch(b.device, b.bytes);
  status = b.from && b.to ? measure(&b, bytes, seconds_p)
                          : treadle_fail(TREADLE_NO_MEMORY,
                                         "flat_copy: the device has no two blocks of %zu bytes", b.bytes);
  if (b.from) ops->scratch_release(b.device, b.from);
  if (b.to) ops->scratch_release(b.device, b.to);
  treadle_helm_leave(sw->helm);
out:
  return status;
}
