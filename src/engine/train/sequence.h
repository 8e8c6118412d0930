/* Rows of the residual stream, which tensor parallel ranks divide among them, or all have. */
#ifndef TREADLE_TRAIN_SEQUENCE_H
#define TREADLE_TRAIN_SEQUENCE_H

#include "train/back.h"

/* Of the residual stream of a micro batch of `rows` rows, those that this rank keeps; all, where rows are not divided. */
treadle_row_range treadle_train_own_rows(const treadle_back *back, int64_t rows);
bool treadle_train_divides_rows(const treadle_back *back);
/* How many a rank keeps, at most, of `ranks` tensor parallel ones. */
int64_t treadle_train_most_own_rows(const treadle_back *back, int64_t ranks);
/* From own rows [own rows, hidden] to all of them, [rows, hidden]. */
treadle_status treadle_train_gather_rows(const treadle_back *back, const float *own, int64_t rows,
                                         float *to, const char *what);
/* buffers.parts: from this rank's leaves of tokens to all, [leaves, columns]. */
treadle_status treadle_train_gather_leaves(const treadle_back *back, int64_t rows, int64_t columns);

#endif
