/* The memory of a trainer: work memory, which both passes divide among their buffers, and windows. It is measured first, by the shapes alone,
 * and taken at once. */
#ifndef TREADLE_TRAIN_MEMORY_H
#define TREADLE_TRAIN_MEMORY_H

#include "train/optimizer.h"
#include "treadle_builtin.h"

enum { TREADLE_TRAIN_MEMORIES = 8 };

/* What is taken of the machine's memory, and how work memory is divided. */
typedef struct treadle_train_memory {
  void *work;              /* of both passes: [work_bytes] */
  void *pass_work, *cache; /* in it: of the pass; its keys and values */
  int64_t blocks;          /* of keys and values, for the rows of a micro batch */
  size_t work_bytes;
  size_t forward_bytes;                /* of work, for a pass that keeps nothing */
  void *taken[TREADLE_TRAIN_MEMORIES]; /* all memory but the board */
  int taken_count;
  size_t taken_bytes, host_bytes; /* host_bytes: of them, not of the device */
} treadle_train_memory;

/* Sizes of all buffers and windows. */
treadle_status treadle_train_measure(treadle_trainer *t);
/* The bytes of its share of the state. */
void treadle_train_measure_optimizer(treadle_train_optimizer *optimizer, treadle_dtype dtype);
/* Takes the memory that was measured. */
treadle_status treadle_train_allocate(treadle_trainer *t);
void treadle_train_free(treadle_train_memory *memory);

#endif
