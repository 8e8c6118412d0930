/* What a conversion reads, and whether it is still what it was.
 *
 * Each file has a stamp from before its first byte was read: size, times of the last write and the last change, inode. The
 * stamps are compared at the end, before anything makes the result be found. A file whose stamp is the same then may
 * have been written to all the same, where the clock of its file system did not move between the last write before the
 * stamp and the first one after it ("racily clean", as git says). So what is read in the first moments is not settled:
 *
 *   file systems of this machine    until 2 s after the newest of the file's times
 *   others, whose clock is another  until 2 s after the stamp was taken
 *
 * What was read before all inputs were settled is read a second time at the end, and sums of both must be the same:
 * between the two readings, all of it was as it was read. What was read later is vouched for by the stamps. */
#ifndef TREADLE_CONVERT_INPUTS_H
#define TREADLE_CONVERT_INPUTS_H

#include "base/arena.h"
#include "base/array.h"
#include "io/file_map.h"

typedef struct treadle_input {
  const char *path;
  const char *companion; /* carried along under this name; NULL: not */
  const void *image;     /* NULL: it is not mapped */
  treadle_file_stamp stamp;
} treadle_input;

/* Begins zeroed. */
typedef struct treadle_inputs {
  TREADLE_ARRAY(treadle_input) items;
  double settled_at;     /* of the monotonic clock, all of them */
  const char *unsettled; /* the one of them that settles last */
  treadle_arena arena;
} treadle_inputs;

void treadle_inputs_release(treadle_inputs *inputs);

/* Looks at a file that is going to be read. `companion` may be NULL. */
treadle_status treadle_inputs_add(treadle_inputs *inputs, const char *path, const char *companion);
/* A file that is mapped: its stamp is of that moment. */
treadle_status treadle_inputs_add_mapped(treadle_inputs *inputs, const char *path, const void *image);
/* The files of a folder that stand beside weights (config.json, tokenizer, ...): no weights, no index, nothing hidden, nothing
 * of treadle's own. Without order. */
treadle_status treadle_inputs_add_companions(treadle_inputs *inputs, const char *folder);

/* Is what is read from now on vouched for by the stamps? */
bool treadle_inputs_settled(const treadle_inputs *inputs);

/* Names and stamps. */
uint64_t treadle_inputs_digest(const treadle_inputs *inputs, uint64_t seed);

/* Could all that was read be read? Costs next to nothing. */
treadle_status treadle_inputs_intact(const treadle_inputs *inputs);
/* Are they what they were? TREADLE_DIFFERENT names the first that is not, and says what changed. */
treadle_status treadle_inputs_check(const treadle_inputs *inputs);
/* A second reading has given something else. */
treadle_status treadle_inputs_say_torn(const treadle_inputs *inputs);

#endif
