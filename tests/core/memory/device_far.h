/* A device for tests whose memory the processor cannot touch, and whose work is done late.
 *
 * Addresses of pools, windows and scratch have no access: its functions reach the same bytes by a second mapping. A pool is in several pieces,
 * each with a descriptor of its own. Host memory that `copy`, `pack` and `run` are given must be pinned, but for what `copy` reads: else the test
 * ends with a message. Nothing runs before it is asked
 * whether a ticket has passed, or to wait; the first answer is often "not yet". The ops of one `run` run in an order that changes. After a
 * failure, which tests plant at a call, every question is answered by it. It is opened as the kind TREADLE_MEMORY_CUDA. */
#ifndef TREADLE_TESTS_DEVICE_FAR_H
#define TREADLE_TESTS_DEVICE_FAR_H

#include "memory/device.h"

#include <stdatomic.h>

extern const treadle_device_ops device_far_ops;

/* The device fails at its call number `call` from now on, from 1; 0: never. */
void device_far_fail_at(treadle_device *device, int64_t call);
/* Pages of a piece of pools that are made from now on; 0: as the pool is large: it has 40 pieces at most. */
extern int64_t device_far_piece_pages;
/* The descriptor that fails in this process, counted from now on, from 1; 0: none. */
extern _Atomic int64_t device_far_fails_export, device_far_fails_import;
/* How many calls were asked for, of which there is something to do. */
int64_t device_far_calls(const treadle_device *device);

#endif
