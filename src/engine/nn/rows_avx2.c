/* Row operations for AVX2. */
#include "nn/rows_kinds.h"

#if defined(__x86_64__)

#include "nn/lanes_avx2.h"

#include "nn/rows_body.h"

const treadle_row_ops treadle_row_ops_avx2 = ROW_OPS("avx2", lanes_supported);

#else

static bool supported(void) { return false; }
const treadle_row_ops treadle_row_ops_avx2 = {.name = "avx2", .supported = supported};

#endif
