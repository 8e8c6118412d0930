/* Host memory of a switch: twins, and what is kept beside them. It is there before it is needed: touched once, when it is made. */
#ifndef TREADLE_MEMORY_HOST_H
#define TREADLE_MEMORY_HOST_H

#include "memory/device.h"

#include <stddef.h>

/* Addresses without memory; NULL: none, and the message says of what. */
char *treadle_host_reserve(size_t bytes, const char *what);
/* Gives a part of them memory, zeros. */
treadle_status treadle_host_touch(char *at, size_t bytes, const char *what);
/* Both. */
void *treadle_host_create(size_t bytes, const char *what);
/* The same, of this process alone: a child that is forked has no memory there. A page that a device uses would else be copied when either writes
 * on it, and the copy may become this process's. */
void *treadle_host_create_alone(size_t bytes, const char *what);
void treadle_host_destroy(void *at, size_t bytes);
/* Pinned for a device; for one that is not the host, of this process alone. */
void *treadle_host_pinned(const treadle_device *device, size_t bytes, const char *what);
void treadle_host_unpinned(const treadle_device *device, void *at, size_t bytes);

#endif
