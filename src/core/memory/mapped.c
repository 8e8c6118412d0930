/* Reading /proc/self/maps: a line a mapping, in order of addresses, "begin-end rwxp ...". Nothing is touched: to probe by writing
 * would make pages that nobody has asked for, and race with who writes there. */
#include "memory/mapped.h"

#include "base/array.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const char not_there[] = "not all of that memory is there";

/* Is every page of the range mapped? The call does nothing else on Linux. */
static bool is_mapped(const void *memory, size_t bytes) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)memory & ~(page - 1);
  uintptr_t end = (uintptr_t)memory + bytes;
  return msync((void *)begin, (size_t)(end - begin), MS_ASYNC) == 0;
}

typedef struct area { /* addresses first..end - 1 */
  uintptr_t first, end;
  bool reads, writes;
} area;

struct treadle_maps {
  TREADLE_ARRAY(area) areas; /* in order */
};

treadle_maps *treadle_maps_read(void) {
  FILE *file = fopen("/proc/self/maps", "re");
  treadle_maps *maps = file ? treadle_alloc(sizeof *maps) : NULL;
  char *line = NULL;
  size_t room = 0;
  bool whole = maps != NULL;
  while (whole && getline(&line, &room, file) > 0) {
    area next = {0};
    char may[5];
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &next.first, &next.end, may) != 3) continue;
    next.reads = may[0] == 'r';
    next.writes = may[1] == 'w';
    whole = treadle_array_push(&maps->areas, next) == TREADLE_OK;
  }
  free(line);
  if (file) fclose(file);
  if (whole) return maps;
  treadle_maps_release(maps);
  return NULL;
}

void treadle_maps_release(treadle_maps *maps) {
  if (maps) treadle_array_release(&maps->areas);
  treadle_free(maps);
}

const char *treadle_maps_fault(const treadle_maps *maps, const void *memory, size_t bytes) {
  uintptr_t at = (uintptr_t)memory, end = at + bytes;
  const char *fault = NULL;
  if (end < at) return not_there;
  if (!maps) return is_mapped(memory, bytes) ? NULL : not_there;
  size_t low = 0, high = maps->areas.count; /* the first that ends behind `at` */
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (maps->areas.items[middle].end <= at)
      low = middle + 1;
    else
      high = middle;
  }
  for (; !fault && at < end && low < maps->areas.count; low++) {
    const area *next = &maps->areas.items[low];
    if (next->first > at) break;
    if (!next->reads) fault = "that memory may not be read";
    if (!next->writes) fault = "that memory may not be written";
    at = next->end;
  }
  return !fault && at < end ? not_there : fault;
}
