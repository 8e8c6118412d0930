/* Host memory as a device: two rows, one for each mover. */
#ifndef TREADLE_MEMORY_DEVICE_HOST_H
#define TREADLE_MEMORY_DEVICE_HOST_H

#include "memory/device.h"

extern const treadle_device_ops treadle_host_fast_ops; /* where treadle_copy_choose() says stream */
extern const treadle_device_ops treadle_host_plain_ops;

#endif
