/* What the system says of memory that somebody else has mapped. */
#ifndef TREADLE_MEMORY_MAPPED_H
#define TREADLE_MEMORY_MAPPED_H

#include "treadle_device.h"

/* /proc/self/maps, as it was when it was read; NULL: it cannot be read. */
treadle_maps *treadle_maps_read(void);
void treadle_maps_release(treadle_maps *maps);

/* What keeps the range from being read and written, for a message ("that memory may not be written"), or NULL. Without maps, by what
 * msync() says: is every page of it mapped? That is quick enough for every switch, and says nothing of permissions. What lies after the end
 * of a mapped file is mapped all the same. */
const char *treadle_maps_fault(const treadle_maps *maps, const void *memory, size_t bytes);

#endif
