/* Lanes: 16 values of fp32 that are treated alike. Row operations (nn/rows_body.h) and attention (nn/attention_body.h) are written
 * once in terms of them, and compiled three times: with nn/lanes_plain.h, which is loops in plain C, nn/lanes_avx2.h and
 * nn/lanes_avx512.h. Each of the three has these functions:
 *
 *   lanes_all(x)                       x in all lanes
 *   lanes_load(from)                   16 values of fp32
 *   lanes_load_part(from, count)       the first count < 16, zeros behind
 *   lanes_load_bf16, .._bf16_part      the same from bf16
 *   lanes_pin(x)                       x, which is then in a register: gcc would read it again for each use
 *   lanes_store, .._part, .._bf16, .._bf16_part   to memory; bf16 rounds to the nearest even, NaN stays NaN
 *   lanes_add, lanes_sub, lanes_mul, lanes_div, lanes_sqrt    one rounding each
 *   lanes_fma(a, b, c)                 a * b + c with one rounding
 *   lanes_max(a, b)                    a > b ? a : b, so that of NaN it is b
 *   lanes_where_less(a, b, x, y)       a < b ? x : y
 *   lanes_within(x, from, to, other)   x in lanes from <= lane < to, other in the rest
 *   lanes_swap(x)                      neighbours change places: 1 0 3 2 ...
 *   lanes_transpose(x)                 x[16]: lane i of x[j] becomes lane j of x[i]
 *   lanes_sum(x), lanes_largest(x)     over all lanes: 0+8 1+9 .. 7+15, then 0+4 .. 3+7, then 0+2 1+3, then 0+1;
 *                                      the largest by a > b ? a : b
 *   lanes_raise(x, rounded)            adds the low bits of `rounded` to the exponents of x: what exp needs
 *   lanes_exp(x)                       treadle_exp of each lane
 *
 * LANES_UNROLLED stands in front of loops over registers; LANES_KEPT is how many sums registers hold.
 * lanes_supported() says whether this processor has them. The three give the same bits, NaN aside: which NaN comes out may differ. */
#ifndef TREADLE_NN_LANES_H
#define TREADLE_NN_LANES_H

#include "base/dtype.h"

#include <stdint.h>

enum { LANES = 16 };

/* In front of a loop over registers, whose count is a constant up to 8. clang takes gcc's words for less: it unrolls after it has
 * given the registers places in memory. */
#if defined(__clang__)
#define LANES_UNROLL _Pragma("clang loop unroll(full)")
#else
#define LANES_UNROLL _Pragma("GCC unroll 8")
#endif

#endif
