/* Backward operations for AVX-512. */
#include "nn/rows_back_kinds.h"

#if defined(__x86_64__)

#include "nn/lanes_avx512.h"

#include "nn/attention_back_body.h"
#include "nn/rows_back_body.h"

const treadle_row_back_ops treadle_row_back_avx512 = ROW_BACK_OPS("avx512", lanes_supported);
const treadle_attention_back_ops treadle_attention_back_avx512 = {back_attention};

#else

static bool supported(void) { return false; }
const treadle_row_back_ops treadle_row_back_avx512 = {.name = "avx512", .supported = supported};
const treadle_attention_back_ops treadle_attention_back_avx512 = {NULL};

#endif
