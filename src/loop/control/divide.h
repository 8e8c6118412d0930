/* Which rows of a call each rank of a train engine takes. */
#ifndef TREADLE_CONTROL_DIVIDE_H
#define TREADLE_CONTROL_DIVIDE_H

#include "treadle_engine.h"

/* By the lengths [rows] of the rows: by_rank [ranks]. Refused: rows that are not there, as an engine of the caller's may say. Local. */
treadle_status treadle_engine_divide(const treadle_train_engine *engine, int64_t ranks,
                                     const int64_t *lengths, int64_t rows,
                                     const treadle_forward_options *forward, treadle_row_range *by_rank);

#endif
