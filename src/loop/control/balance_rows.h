/* Rows of a call over data parallel coordinates, and over the micro batches of each, so that all have about as much work. Pure, as all of
 * treadle_balance_*, whose work and ties these are. */
#ifndef TREADLE_CONTROL_BALANCE_ROWS_H
#define TREADLE_CONTROL_BALANCE_ROWS_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct treadle_balance_call {
  const int64_t *lengths; /* [rows] tokens */
  size_t rows, coordinates;
  const int64_t *counts; /* [coordinates]: how many rows each takes, from 0; all of them together */
  int64_t max_tokens;    /* of a micro batch, which never has more; 0: nobody forms micro batches here */
} treadle_balance_call;

/* order [rows]: the rows of coordinate 0, then those of coordinate 1, and so on. Without max_tokens rows with less work stand at both ends of a
 * coordinate's. With it they stand by micro batches, whose numbers are micro_batches [rows], by place in `order` and from 0 in each coordinate: as
 * many in all coordinates, or as many as it has rows; else micro_batches may be NULL. Refused: counts of other rows; a row with more than
 * max_tokens. */
treadle_status treadle_balance_call_rows(const treadle_balance_call *call, int64_t *order,
                                         int64_t *micro_batches);

/* counts [coordinates]: as many rows each, or one more. */
void treadle_balance_even_counts(size_t rows, size_t coordinates, int64_t *counts);

#endif
