/* Backward operations for AVX2. */
#include "nn/rows_back_kinds.h"

#if defined(__x86_64__)

#include "nn/lanes_avx2.h"

#include "nn/attention_back_body.h"
#include "nn/rows_back_body.h"

enum { OUTER_ROWS = 6, OUTER_VECTORS = 1 };
#include "nn/outer_body.h"

const treadle_row_back_ops treadle_row_back_avx2 = ROW_BACK_OPS("avx2", lanes_supported);
const treadle_attention_back_ops treadle_attention_back_avx2 = {back_attention};

const treadle_outer_ops treadle_outer_avx2 = OUTER_OPS("avx2", lanes_supported);

#else

static bool supported(void) { return false; }
const treadle_outer_ops treadle_outer_avx2 = {.name = "avx2", .supported = supported};
const treadle_row_back_ops treadle_row_back_avx2 = {.name = "avx2", .supported = supported};
const treadle_attention_back_ops treadle_attention_back_avx2 = {NULL};

#endif
