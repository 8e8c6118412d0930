/* What the system says of memory that somebody else has mapped. */
#ifndef TREADLE_MEMORY_MAPPED_H
#define TREADLE_MEMORY_MAPPED_H

#include <stdbool.h>
#include <stddef.h>

/* What keeps the range from being read and written, for a message ("that memory may not be written"), or NULL. By
 * /proc/self/maps; where that cannot be read, by what msync() says of the pages. What lies behind the end of a mapped file is
 * mapped all the same. */
const char *treadle_mapped_fault(const void *memory, size_t bytes);

/* The same of many ranges: /proc/self/maps is read once. maps: NULL: it could not be read. */
typedef struct treadle_maps treadle_maps;
treadle_maps *treadle_maps_read(void);
const char *treadle_maps_fault(const treadle_maps *maps, const void *memory, size_t bytes);
void treadle_maps_release(treadle_maps *maps);

/* Is every page of the range mapped? Quick enough for every switch; says nothing of permissions. */
bool treadle_is_mapped(const void *memory, size_t bytes);

#endif
