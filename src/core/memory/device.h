/* Devices: the memory that windows lie in, and who works on it. One table of functions for each kind; nothing outside of
 * memory/ reads or writes through a window's pointer but by these.
 *
 *   host         RAM, by whatever this processor is best served with
 *   host, plain  the same by plain loops: the twin that tests compare with, and what a sanitizer sees through
 *
 * The table is treadle_device_ops (treadle_device.h), which says what work, tickets and failures of a device are. */
#ifndef TREADLE_MEMORY_DEVICE_H
#define TREADLE_MEMORY_DEVICE_H

#include "memory/elements.h"
#include "memory/mapped.h"
#include "memory/paged.h"
#include "memory/pool.h"
#include "memory/quantise.h"
#include "move/move.h"
#include "treadle_device.h"

/* What is asked for; NULL: host. Kinds that this library has not are refused by name. */
treadle_status treadle_device_open(const treadle_memory *memory, treadle_device *device_p);
void treadle_device_close(treadle_device *device);
/* The number that a device has in this process, by treadle_device_room.id. Refused: it is not seen here. Of a kind that was registered,
 * and of the host, it is the number that another process gave it. */
treadle_status treadle_device_find(treadle_memory_kind kind, uint64_t id, int number, int *number_p);

/* May this device read what lies on another one of its kind and of this process? Refused, with both numbers: it cannot. Of a kind that was
 * registered, and of the host, it always may. */
treadle_status treadle_device_reaches(const treadle_device *device, int number);

/* Host memory: windows that are the caller's, files, buffers. */
const treadle_device *treadle_device_host(void);
const treadle_device *treadle_device_plain(void);
bool treadle_device_is_host(const treadle_device *device);

/* Waits for all that was asked for; returns `status`, with its message, where something has failed before. */
treadle_status treadle_device_finish(const treadle_device *device, treadle_status status);

/* ---- Whose memory is it? device_at.c. Any thread ---- */

/* The device that has claimed the memory at an address; the host where none has. */
const treadle_device *treadle_device_at(const void *address);
/* A device other than the host claims memory that it has mapped, so that calls that are given an address alone find the device. It stays where
 * it is until it lets go of all that it has claimed, and lets go before the memory is unmapped. Nothing is done for the host. */
treadle_status treadle_device_claim(const treadle_device *device, const void *memory, size_t bytes);
void treadle_device_let_go(const treadle_device *device);
/* Refused: memory of another device. who: "the built-in engine". */
treadle_status treadle_device_need_host(const char *who, const void *memory);

#endif
