/* Element types: names, sizes, and conversion of whole runs.
 *
 * fp32 to bf16 and fp16 rounds to the nearest even; NaN stays NaN (quiet). bf16 and fp16 to fp32 is
 * exact. bf16 to fp16 and back goes through fp32. */
#ifndef TREADLE_BASE_DTYPE_H
#define TREADLE_BASE_DTYPE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

size_t treadle_dtype_bytes(treadle_dtype dtype); /* bytes of one element */
/* Bytes of one element in the narrower of two types: what travels, and what bounds count. */
size_t treadle_dtype_narrower_bytes(treadle_dtype a, treadle_dtype b);
const char *treadle_dtype_name(treadle_dtype dtype);                /* "bf16", "fp16", "fp32" */
const char *treadle_dtype_safetensors(treadle_dtype dtype);         /* "BF16", "F16", "F32" */
bool treadle_dtype_parse(const char *text, treadle_dtype *dtype_p); /* any spelling: bf16, bfloat16, BF16,
                                                                       torch.bfloat16, float16, F32, ... */
/* Does every value of `from` come back the same from `to`? */
bool treadle_dtype_lossless(treadle_dtype from, treadle_dtype to);

/* count elements; the buffers do not overlap and need no alignment. Equal types: a copy. */
void treadle_dtype_convert(void *to, treadle_dtype to_dtype, const void *from, treadle_dtype from_dtype,
                           size_t count);

float treadle_bf16_to_float(uint16_t bits);
uint16_t treadle_bf16_of_float(float value);
float treadle_fp16_to_float(uint16_t bits);
uint16_t treadle_fp16_of_float(float value);

#endif
