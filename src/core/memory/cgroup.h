/* The limits of the control groups of this process, v1 or v2: of memory/limits.h. */
#ifndef TREADLE_MEMORY_CGROUP_H
#define TREADLE_MEMORY_CGROUP_H

#include "memory/limits.h"

/* More than any machine has: a limit from here on is none. */
#define TREADLE_NO_LIMIT ((uint64_t)1 << 60)

/* Adds those of the process's own group and of all that it lies in. */
void treadle_cgroup_add(const char *root, treadle_limits *limits);

/* ---- limits.c ---- */

/* Keeps the limit if it is one, and tight enough. */
void treadle_limits_add(treadle_limits *limits, const treadle_limit *limit);
/* limit->text; of a path that is too long the end stays, which says which it is. */
void treadle_limit_name(treadle_limit *limit, const char *before, const char *path, const char *after);
/* a - b, or 0. */
static inline uint64_t treadle_limit_less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

#endif
