/* Element types; the plain twin of memory/cast.c. Each conversion is a plain loop over one run; the compiler makes vectors of those that
 * need no branch (bf16 and copies). Bytes go through memcpy: buffers need no alignment. */
#include "base/dtype.h"

#include <stddef.h>
#include <string.h>

static const struct {
  size_t bytes;
  const char *name, *safetensors;
  const char *spellings[6]; /* beside the two above; "torch." may stand in front of all */
} types[] = {
    [TREADLE_DTYPE_NONE] = {0, "none", "none", {NULL}},
    [TREADLE_FP32] = {4, "fp32", "F32", {"float32", "float", "f32", "FP32", NULL}},
    [TREADLE_BF16] = {2, "bf16", "BF16", {"bfloat16", NULL}},
    [TREADLE_FP16] = {2, "fp16", "F16", {"float16", "half", "f16", "FP16", NULL}},
    [TREADLE_FP8_E4M3] = {1, "fp8", "F8_E4M3", {"float8_e4m3fn", "fp8_e4m3", "fp8_e4m3fn", NULL}},
    [TREADLE_INT32] = {4, "int32", "I32", {"int", NULL}},
};
enum { TYPES = sizeof types / sizeof *types };

size_t treadle_dtype_bytes(treadle_dtype dtype) { return types[dtype].bytes; }

size_t treadle_dtype_narrower_bytes(treadle_dtype a, treadle_dtype b) {
  size_t a_bytes = treadle_dtype_bytes(a), b_bytes = treadle_dtype_bytes(b);
  return a_bytes < b_bytes ? a_bytes : b_bytes;
}

const char *treadle_dtype_name(treadle_dtype dtype) { return types[dtype].name; }
const char *treadle_dtype_safetensors(treadle_dtype dtype) { return types[dtype].safetensors; }

bool treadle_dtype_parse(const char *text, treadle_dtype *dtype_p) {
  if (strncmp(text, "torch.", 6) == 0) text += 6;
  for (int type = TREADLE_FP32; type < TYPES; type++) {
    bool same = strcmp(text, types[type].name) == 0 || strcmp(text, types[type].safetensors) == 0;
    for (int i = 0; !same && types[type].spellings[i]; i++)
      same = strcmp(text, types[type].spellings[i]) == 0;
    if (!same) continue;
    *dtype_p = (treadle_dtype)type;
    return true;
  }
  return false;
}

bool treadle_dtype_lossless(treadle_dtype from, treadle_dtype to) {
  if (from == TREADLE_INT32 || to == TREADLE_INT32) return from == to;
  return from == to || to == TREADLE_FP32 || from == TREADLE_FP8_E4M3;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* bf16 is the upper half of fp32. Half a unit less one, plus the last kept bit, rounds ties to even; a
 * carry into the exponent is right, up to infinity. NaN would carry into infinity or zero, so it keeps its
 * upper bits and becomes quiet. */
uint16_t treadle_bf16_of_float(float value) {
  uint32_t bits = bits_of(value);
  uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  uint32_t quiet = (bits >> 16) | 0x40;
  return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

float treadle_bf16_to_float(uint16_t bits) { return float_of((uint32_t)bits << 16); }

float treadle_fp16_to_float(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
  uint32_t exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
  if (exponent == 0) { /* zero and subnormals: fraction units of 2^-24, which fp32 holds exactly */
    float value = (float)fraction * 0x1p-24f;
    return sign ? -value : value;
  }
  if (exponent == 31) return float_of(sign | 0x7f800000 | fraction << 13);
  return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t treadle_fp16_of_float(float value) {
  uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
  uint32_t sign = (bits >> 16) & 0x8000, made;
  if (magnitude > 0x7f800000) { /* NaN: the upper fraction bits, quiet */
    made = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  } else if (magnitude >= 0x477ff000) { /* from 65520, half a unit above the largest, on: infinity */
    made = 0x7c00;
  } else if (magnitude >= 0x38800000) { /* normal: from 2^-14 on; as in bf16, after moving the exponent */
    made = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  } else { /* subnormal: adding 0.5 makes the processor round to units of 2^-24, ties to even */
    made = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
  }
  return (uint16_t)(sign | made);
}

/* As fp32, exponent and fraction 20 bits further up, the exponent 120 more. NaN has the bits of torch's. */
float treadle_fp8_to_float(uint8_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x80) << 24, magnitude = bits & 0x7f;
  if (magnitude < 8) { /* zero and subnormals: units of 2^-9 */
    float value = (float)magnitude * 0x1p-9f;
    return sign ? -value : value;
  }
  return float_of(sign | (magnitude == 0x7f ? 0x7ff00000 : (magnitude << 20) + (120u << 23)));
}

/* As fp16, with other numbers; the subnormals' units of 2^-9 are those of fp32 from 2^14 on. */
uint8_t treadle_fp8_of_float(float value) {
  uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
  uint32_t sign = (bits >> 24) & 0x80, made;
  if (magnitude > 0x43e80000) /* above 464, infinity, NaN */
    made = 0x7f;
  else if (magnitude >= 0x3c800000) /* normal: from 2^-6 on */
    made = (magnitude - (120u << 23) + 0x7ffff + ((magnitude >> 20) & 1)) >> 20;
  else
    made = bits_of(float_of(magnitude) + 0x1p14f) - bits_of(0x1p14f);
  return (uint8_t)(sign | made);
}

/* One loop for each pair; `to` and `from` in the body are the two element types. */
#define CONVERT(function, to_type, from_type, expression)                                                  \
  static void function(unsigned char *to, const unsigned char *from, size_t count) {                       \
    for (size_t i = 0; i < count; i++) {                                                                   \
      from_type x;                                                                                         \
      memcpy(&x, from + i * sizeof x, sizeof x);                                                           \
      to_type y = (expression);                                                                            \
      memcpy(to + i * sizeof y, &y, sizeof y);                                                             \
    }                                                                                                      \
  }

CONVERT(fp32_to_bf16, uint16_t, float, treadle_bf16_of_float(x))
CONVERT(fp32_to_fp16, uint16_t, float, treadle_fp16_of_float(x))
CONVERT(bf16_to_fp32, float, uint16_t, treadle_bf16_to_float(x))
CONVERT(fp16_to_fp32, float, uint16_t, treadle_fp16_to_float(x))
CONVERT(bf16_to_fp16, uint16_t, uint16_t, treadle_fp16_of_float(treadle_bf16_to_float(x)))
CONVERT(fp16_to_bf16, uint16_t, uint16_t, treadle_bf16_of_float(treadle_fp16_to_float(x)))
CONVERT(fp32_to_fp8, uint8_t, float, treadle_fp8_of_float(x))
CONVERT(bf16_to_fp8, uint8_t, uint16_t, treadle_fp8_of_float(treadle_bf16_to_float(x)))
CONVERT(fp16_to_fp8, uint8_t, uint16_t, treadle_fp8_of_float(treadle_fp16_to_float(x)))
CONVERT(fp8_to_fp32, float, uint8_t, treadle_fp8_to_float(x))
CONVERT(fp8_to_bf16, uint16_t, uint8_t, treadle_bf16_of_float(treadle_fp8_to_float(x)))
CONVERT(fp8_to_fp16, uint16_t, uint8_t, treadle_fp16_of_float(treadle_fp8_to_float(x)))

static void (*const converters[TYPES][TYPES])(unsigned char *, const unsigned char *, size_t) = {
    [TREADLE_BF16] =
        {[TREADLE_FP32] = fp32_to_bf16, [TREADLE_FP16] = fp16_to_bf16, [TREADLE_FP8_E4M3] = fp8_to_bf16},
    [TREADLE_FP16] =
        {[TREADLE_FP32] = fp32_to_fp16, [TREADLE_BF16] = bf16_to_fp16, [TREADLE_FP8_E4M3] = fp8_to_fp16},
    [TREADLE_FP32] =
        {[TREADLE_BF16] = bf16_to_fp32, [TREADLE_FP16] = fp16_to_fp32, [TREADLE_FP8_E4M3] = fp8_to_fp32},
    [TREADLE_FP8_E4M3] =
        {[TREADLE_FP32] = fp32_to_fp8, [TREADLE_BF16] = bf16_to_fp8, [TREADLE_FP16] = fp16_to_fp8},
};

/* By way of fp32, for people who look at them. */
static void convert_integers(unsigned char *to, treadle_dtype to_dtype, const unsigned char *from,
                             treadle_dtype from_dtype, size_t count) {
  for (size_t i = 0; i < count; i++) {
    float value;
    int32_t number;
    if (from_dtype == TREADLE_INT32) {
      memcpy(&number, from + i * sizeof number, sizeof number);
      value = (float)number;
      treadle_dtype_convert(to + i * types[to_dtype].bytes, to_dtype, &value, TREADLE_FP32, 1);
    } else {
      treadle_dtype_convert(&value, TREADLE_FP32, from + i * types[from_dtype].bytes, from_dtype, 1);
      number = value >= -0x1p30f && value <= 0x1p30f ? (int32_t)value : 0;
      memcpy(to + i * sizeof number, &number, sizeof number);
    }
  }
}

void treadle_dtype_convert(void *to, treadle_dtype to_dtype, const void *from, treadle_dtype from_dtype,
                           size_t count) {
  if (count == 0) return; /* the pointers may be NULL then */
  if (to_dtype == from_dtype)
    memcpy(to, from, count * types[to_dtype].bytes);
  else if (to_dtype == TREADLE_INT32 || from_dtype == TREADLE_INT32)
    convert_integers(to, to_dtype, from, from_dtype, count);
  else
    converters[to_dtype][from_dtype](to, from, count);
}

void treadle_dtype_convert_add(void *to, treadle_dtype to_dtype, const void *from, treadle_dtype from_dtype,
                               int add, size_t count) {
  enum { PART = 256 };
  if (add == 0) {
    treadle_dtype_convert(to, to_dtype, from, from_dtype, count);
    return;
  }
  for (size_t i = 0; i < count; i += PART) {
    float values[PART];
    size_t part = count - i < PART ? count - i : PART;
    treadle_dtype_convert(values, TREADLE_FP32, (const char *)from + i * types[from_dtype].bytes,
                          from_dtype, part);
    for (size_t k = 0; k < part; k++) values[k] += (float)add;
    treadle_dtype_convert((char *)to + i * types[to_dtype].bytes, to_dtype, values, TREADLE_FP32, part);
  }
}
