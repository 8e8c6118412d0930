/* The rows of a data parallel coordinate, of a batch that all ranks have whole. */
#ifndef TREADLE_TRAIN_COORDINATE_H
#define TREADLE_TRAIN_COORDINATE_H

#include "treadle_engine.h"

/* Whose rows they are: rank `rank` of `ranks`. */
typedef struct treadle_coordinate {
  const treadle_train_engine *engine;
  int64_t rank, ranks;
} treadle_coordinate;

/* *mine_p: a slice of the batch, whose rows *range_p (NULL: not wanted) are. */
treadle_status treadle_coordinate_slice(const treadle_coordinate *coordinate, const treadle_batch *batch,
                                        const treadle_forward_options *forward, treadle_row_range *range_p,
                                        treadle_batch **mine_p);

#endif
