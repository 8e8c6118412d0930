/* The sets of backward operations (nn/rows_back.h, nn/attention_back.h), one file each. */
#ifndef TREADLE_NN_ROWS_BACK_KINDS_H
#define TREADLE_NN_ROWS_BACK_KINDS_H

#include "nn/attention_back.h"
#include "nn/outer.h"
#include "nn/rows_back.h"

extern const treadle_row_back_ops treadle_row_back_plain, treadle_row_back_avx2, treadle_row_back_avx512;

extern const treadle_outer_ops treadle_outer_plain, treadle_outer_avx2, treadle_outer_avx512;

typedef struct treadle_attention_back_ops {
  void (*run)(const treadle_attention_back *attention, void *scratch); /* NULL: this library has none */
} treadle_attention_back_ops;

extern const treadle_attention_back_ops treadle_attention_back_plain, treadle_attention_back_avx2,
    treadle_attention_back_avx512;

#endif
