/* Attention for AVX-512. */
#include "nn/attention_kinds.h"

#if defined(__x86_64__)

#include "nn/lanes_avx512.h"

#include "nn/attention_body.h"

const treadle_attention_ops treadle_attention_ops_avx512 = ATTENTION_OPS("avx512", lanes_supported);

#else

static bool supported(void) { return false; }
const treadle_attention_ops treadle_attention_ops_avx512 = {.name = "avx512", .supported = supported};

#endif
