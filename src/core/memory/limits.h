/* How much memory this process may still take: what is free in the machine, in its control groups (v1 and v2), and of its
 * address space.
 *
 * - A control group holds back a process, and so do all groups that it lies in. Page cache of files that the system takes
 *   back before it kills anybody counts as free.
 * - Swap does not count as room: pages that are swapped out would be read back in the middle of a switch. What memory and swap
 *   together are limited to counts (v1: memory.memsw).
 * - Pools lie in files without a name, which the size of /dev/shm does not limit; nothing else of ours lies there.
 * - A file that is missing, or holds what is not a number, is not a limit. */
#ifndef TREADLE_MEMORY_LIMITS_H
#define TREADLE_MEMORY_LIMITS_H

#include "base/status.h"

#include <stdint.h>

enum { TREADLE_LIMIT_COUNT = 8, TREADLE_LIMIT_TEXT = 192 };

typedef struct treadle_limit {
  uint64_t id;          /* processes that name the same are under the same limit */
  uint64_t bytes, left; /* what it allows, and how much of that may still be taken */
  /* "this machine", "control group /sys/fs/cgroup/a (memory.max)", "RLIMIT_AS" */
  char text[TREADLE_LIMIT_TEXT];
} treadle_limit;

typedef struct treadle_limits {
  int32_t count;
  int32_t has_addresses; /* is there a limit on addresses? */
  /* The machine (id 0) and groups, from the process's own outwards; where there are more, those that leave least. */
  treadle_limit memory[TREADLE_LIMIT_COUNT];
  treadle_limit addresses; /* its id, the process, is there without a limit too */
} treadle_limits;

/* Reads the limits of this process. root: in front of all paths that are read; "" but in tests. */
void treadle_limits_read(const char *root, treadle_limits *limits_p);

/* May this process take this many bytes more? Else TREADLE_NO_MEMORY, with `what` they are for, the limit and what it leaves. */
treadle_status treadle_limits_ask(uint64_t bytes, const char *what);

#endif
