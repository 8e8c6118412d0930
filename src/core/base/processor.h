/* What the processor can do beyond what every processor of its kind can. Fast paths ask here, and nowhere else, so that tests can run
 * every path that is slower than the best one. */
#ifndef TREADLE_BASE_PROCESSOR_H
#define TREADLE_BASE_PROCESSOR_H

#include <stdbool.h>

/* The sets of kernels, each with those before it. */
typedef enum treadle_processor_set {
  TREADLE_SET_PLAIN,
  TREADLE_SET_AVX2,
  TREADLE_SET_AVX512,
  TREADLE_SET_AMX
} treadle_processor_set;

typedef enum treadle_processor_part {
  TREADLE_PROCESSOR_AVX2,       /* with FMA */
  TREADLE_PROCESSOR_F16C,       /* with AVX2 */
  TREADLE_PROCESSOR_CLMUL,      /* with SSE 4.1 */
  TREADLE_PROCESSOR_AVX512,     /* F, BW, DQ, VL */
  TREADLE_PROCESSOR_CLMUL_WIDE, /* CLMUL in registers of AVX-512 */
  TREADLE_PROCESSOR_AMX /* tiles with bf16, with AVX-512; the system's leave is another question (nn/gemm_amx.c) */
} treadle_processor_part;

/* F16C and AMX ask the processor itself, for which a virtual machine leaves it: callers keep the answer. */
bool treadle_processor_has(treadle_processor_part part);

/* Tests: parts that belong to sets above `most` count as missing. Before anything else is called, since answers are kept.
 * tests/tools/preload/kernels.c finds it in every program that links the static library, and calls it; the shared one does not show it. */
__attribute__((visibility("default"))) void treadle_processor_limit(treadle_processor_set most);

#endif
