/* Blocks of fp8 with a scale: the format of DeepSeek-V3's checkpoints (`weight_scale_inv`, one fp32 for each 128
 * x 128 block, partial at the edges), which vLLM, SGLang and transformers read. value = code * scale.
 *
 * Quantising, all in fp32:
 *   scale = amax / 448, amax the largest magnitude of the block; 1 where that is 0
 *   code  = e4m3(clamp(x / scale, -448, 448)), to the nearest, ties to even
 * x is divided by the scale, as in DeepSeek's weight_quant (inference/kernel.py), not multiplied by 448 / amax as in
 * transformers (integrations/finegrained_fp8.py, which stores 1 / (448 / amax)) or by a reciprocal as in
 * DeepGEMM: the scale that is stored is then the one that was used, and correctly rounded. The
 * three differ in the last bit of some scales, and in a code where x / scale is close to half-way.
 * The clamp matters where scale is subnormal, with few bits left. Where amax / 448 underflows to 0 the scale is 1
 * and all codes are zeros.
 *
 * NaN or infinity in a block makes its scale NaN or infinite, as torch's amax does, and all its codes NaN: the
 * block comes back as NaN, and nobody goes on with a part of it. The bits do not depend on the processor. */
#ifndef TREADLE_MEMORY_QUANTISE_H
#define TREADLE_MEMORY_QUANTISE_H

#include "memory/copy.h"
#include "treadle_device.h"

/* Values that may be written, wherever they lie. A block in a window of pages is brought into a buffer, or taken from one, by
 * treadle_copy_op(). */
static inline treadle_matrix treadle_matrix_of(void *memory, int64_t row_stride, int64_t column_stride) {
  return (treadle_matrix){memory, memory, row_stride, column_stride};
}
/* The same from a place on that is this many bytes away. */
static inline treadle_matrix treadle_matrix_at(treadle_matrix matrix, int64_t bytes) {
  matrix.base = (const char *)matrix.base + bytes;
  if (matrix.into) matrix.into = (char *)matrix.into + bytes;
  return matrix;
}

/* 1 to 128 rows and columns. `from` is any type. The plain mover is the twin of the other, whose
 * stores are seen by others after treadle_copy_fence(). */
void treadle_quantise_block(treadle_matrix to, float *scale_p, treadle_matrix from,
                            treadle_dtype from_dtype, int64_t rows, int64_t columns, treadle_mover mover);

/* x = code * scale, rounded to fp32, and from there to the type `to` has (not fp8), as torch does. NaN is 0x7fc00000
 * or what becomes of it. */
void treadle_dequantise_block(treadle_matrix to, treadle_dtype to_dtype, treadle_matrix from, float scale,
                              int64_t rows, int64_t columns, treadle_mover mover);

/* Makes a strip of such blocks (treadle_device.h). */
void treadle_strip_make(const treadle_strip *strip, treadle_mover mover);
static inline int64_t treadle_strip_blocks(const treadle_strip *strip) {
  return (strip->skip + strip->columns + strip->width - 1) / strip->width;
}

#endif
