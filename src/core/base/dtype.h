/* Element types: names, sizes, and conversion of whole runs.
 *
 * From fp32 a value is rounded to the nearest, ties to even; NaN stays NaN (quiet). To fp32 is exact. All
 * other pairs go through fp32.
 *
 * fp8 is OCP e4m3 without infinities, torch's float8_e4m3fn: NaN is 0x7f and 0xff, the largest value 448.
 * What does not fit becomes NaN, as in torch's cast (c10/util/Float8_e4m3fn.h): infinity, and all above
 * 464, which is half a unit above 448 and itself rounds to 448, the even one. There is no saturation;
 * quantisers clamp to 448 before they cast (memory/quantise.h). Here fp8 is a plain type, without block
 * scales. */
#ifndef TREADLE_BASE_DTYPE_H
#define TREADLE_BASE_DTYPE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

size_t treadle_dtype_bytes(treadle_dtype dtype); /* bytes of one element */
/* Bytes of one element in the narrower of two types: what travels, and what bounds count. */
size_t treadle_dtype_narrower_bytes(treadle_dtype a, treadle_dtype b);
const char *treadle_dtype_name(treadle_dtype dtype);                /* "bf16", "fp16", "fp32", "fp8" */
const char *treadle_dtype_safetensors(treadle_dtype dtype);         /* "BF16", "F16", "F32", "F8_E4M3" */
bool treadle_dtype_parse(const char *text, treadle_dtype *dtype_p); /* any spelling: bf16, bfloat16, BF16,
                                                                       torch.bfloat16, float8_e4m3fn, ... */
/* Does every value of `from` come back the same from `to`? */
bool treadle_dtype_lossless(treadle_dtype from, treadle_dtype to);

/* count elements; the buffers do not overlap and need no alignment. Equal types: a copy. */
void treadle_dtype_convert(void *to, treadle_dtype to_dtype, const void *from, treadle_dtype from_dtype,
                           size_t count);
/* The same with `add`, -1, 0 or 1, added to each value in fp32, between the two types. 0 adds nothing: -0
 * stays -0. */
void treadle_dtype_convert_add(void *to, treadle_dtype to_dtype, const void *from, treadle_dtype from_dtype,
                               int add, size_t count);

float treadle_bf16_to_float(uint16_t bits);
uint16_t treadle_bf16_of_float(float value);
float treadle_fp16_to_float(uint16_t bits);
uint16_t treadle_fp16_of_float(float value);
float treadle_fp8_to_float(uint8_t bits);
uint8_t treadle_fp8_of_float(float value);

#endif
