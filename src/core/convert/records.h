/* What a conversion has written so far, so that a run that is killed can be taken up.
 *
 * Each process has a list of its own, OUT/treadle-convert.RANK.done, to which it adds lines: a file is begun, a file is
 * whole. A line has its own checksum, so one that is torn, or lost with the power, counts as never written; and it names the
 * journal that it belongs to. A whole file is believed when its bytes have the sum that its line has. So nothing here needs
 * to be on the disk at a certain time. */
#ifndef TREADLE_CONVERT_RECORDS_H
#define TREADLE_CONVERT_RECORDS_H

#include "base/arena.h"
#include "base/array.h"
#include "base/hash_map.h"
#include "base/status.h"

#include <stdint.h>

typedef struct treadle_record {
  const char *path; /* in OUT */
  int64_t bytes;    /* -1: begun */
  uint64_t sum;     /* treadle_file_sum() */
  /* Of the tensors' bytes, how many of the first ones were made while the inputs were not settled (inputs.h), and their sum. */
  int64_t unsettled_bytes;
  uint64_t unsettled_sum;
} treadle_record;

/* Begins zeroed. */
typedef struct treadle_records {
  TREADLE_ARRAY(treadle_record) items;
  treadle_hash_map by_path; /* the last of each */
  treadle_arena arena;
} treadle_records;

void treadle_records_release(treadle_records *records);

/* Reads the lists of all processes in a folder. Only what belongs to `journal`, or, with NULL, all. */
treadle_status treadle_records_read(treadle_records *records, const char *folder, const uint64_t *journal);
/* NULL: none. */
const treadle_record *treadle_records_find(const treadle_records *records, const char *path);

/* Adds a line to a process's list. */
treadle_status treadle_records_add(const char *folder, int rank, uint64_t journal,
                                   const treadle_record *record);

/* Removes the files that the lists name, and the folders that are empty then; and the lists. */
treadle_status treadle_records_undo(const char *folder);
/* Removes the lists alone. */
treadle_status treadle_records_remove(const char *folder);

/* A path that stays in its folder: not empty, not absolute, without "..". */
bool treadle_path_stays(const char *path);

#endif
