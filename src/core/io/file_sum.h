/* A sum over a file's bytes that can be made while it is written and corrected where it is overwritten: XXH3 of every
 * 64 KiB, and a hash over those in their order. */
#ifndef TREADLE_IO_FILE_SUM_H
#define TREADLE_IO_FILE_SUM_H

#include "base/array.h"
#include "base/status.h"

#include <stdint.h>

enum { TREADLE_SUM_LEAF = 1 << 16 };

/* Begins zeroed. */
typedef struct treadle_file_sums {
  TREADLE_ARRAY(uint64_t) leaves; /* of whole leaves */
  unsigned char *part;            /* of the last one, its first bytes */
  size_t part_bytes;
  TREADLE_ARRAY(int64_t) stale; /* leaves that were overwritten, ascending */
} treadle_file_sums;

treadle_status treadle_file_sums_add(treadle_file_sums *sums, const void *bytes, size_t count);
/* Bytes [at, at + count), added before, have become others. */
treadle_status treadle_file_sums_patch(treadle_file_sums *sums, int64_t at, size_t count);
/* The sum; what has become stale is read from a descriptor again. `path` is for messages. */
treadle_status treadle_file_sums_end(treadle_file_sums *sums, const char *path, int fd, uint64_t *sum_p);
void treadle_file_sums_release(treadle_file_sums *sums);

#endif
