/* Backward operations for AVX-512. */
#include "nn/rows_back_kinds.h"

#if defined(__x86_64__)

#include "nn/lanes_avx512.h"

#include "nn/attention_back_body.h"
#include "nn/rows_back_body.h"

enum { OUTER_ROWS = 8, OUTER_VECTORS = 3 };
#include "nn/outer_body.h"

const treadle_row_back_ops treadle_row_back_avx512 = ROW_BACK_OPS("avx512", lanes_supported);
const treadle_attention_back_ops treadle_attention_back_avx512 = {back_attention};

const treadle_outer_ops treadle_outer_avx512 = OUTER_OPS("avx512", lanes_supported);

#else

static bool supported(void) { return false; }
const treadle_outer_ops treadle_outer_avx512 = {.name = "avx512", .supported = supported};
const treadle_row_back_ops treadle_row_back_avx512 = {.name = "avx512", .supported = supported};
const treadle_attention_back_ops treadle_attention_back_avx512 = {NULL};

#endif
