/* Row operations for AVX-512. */
#include "nn/rows_kinds.h"

#if defined(__x86_64__)

#include "nn/lanes_avx512.h"

#include "nn/rows_body.h"

const treadle_row_ops treadle_row_ops_avx512 = ROW_OPS("avx512", lanes_supported);

#else

static bool supported(void) { return false; }
const treadle_row_ops treadle_row_ops_avx512 = {.name = "avx512", .supported = supported};

#endif
