/* Reading /proc/self/maps: a line a mapping, in order of addresses, "begin-end rwxp ...". Nothing is touched: to probe by writing
 * would make pages that nobody has asked for, and race with who writes there. */
#include "memory/mapped.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const char not_there[] = "not all of that memory is there";

/* The call does nothing else on Linux. */
bool treadle_is_mapped(const void *memory, size_t bytes) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)memory & ~(page - 1);
  uintptr_t end = (uintptr_t)memory + bytes;
  return msync((void *)begin, (size_t)(end - begin), MS_ASYNC) == 0;
}

const char *treadle_mapped_fault(const void *memory, size_t bytes) {
  uintptr_t at = (uintptr_t)memory, end = at + bytes;
  const char *fault = NULL;
  if (end < at) return not_there;
  FILE *maps = fopen("/proc/self/maps", "re");
  if (!maps) return treadle_is_mapped(memory, bytes) ? NULL : not_there;
  char *line = NULL;
  size_t room = 0;
  while (!fault && at < end && getline(&line, &room, maps) > 0) {
    uintptr_t first, last;
    char may[5];
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &first, &last, may) != 3 || last <= at) continue;
    if (first > at) break;
    if (may[0] != 'r') fault = "that memory may not be read";
    if (may[1] != 'w') fault = "that memory may not be written";
    at = last;
  }
  if (!fault && at < end) fault = not_there;
  free(line);
  fclose(maps);
  return fault;
}
