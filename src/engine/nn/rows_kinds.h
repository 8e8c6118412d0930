/* The sets of row operations (nn/rows.h), one file each. */
#ifndef TREADLE_NN_ROWS_KINDS_H
#define TREADLE_NN_ROWS_KINDS_H

#include "nn/rows.h"

extern const treadle_row_ops treadle_row_ops_plain, treadle_row_ops_avx2, treadle_row_ops_avx512;

#endif
