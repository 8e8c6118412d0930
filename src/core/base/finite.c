#include "base/finite.h"

#include "base/dtype.h"

#include <string.h>

enum { EXPONENT = 0x7f800000 }; /* all ones: infinity or NaN */

bool treadle_row_is_finite(const float *row, int64_t count) {
  uint32_t most = 0;
  for (int64_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &row[i], sizeof bits);
    bits &= EXPONENT;
    most = bits > most ? bits : most;
  }
  return most < EXPONENT;
}

int64_t treadle_first_not_finite(const char *elements, int64_t count, treadle_dtype dtype) {
  enum { AT_ONCE = 512 };
  float values[AT_ONCE];
  size_t each = treadle_dtype_bytes(dtype);
  for (int64_t from = 0; from < count; from += AT_ONCE) {
    int64_t some = count - from < AT_ONCE ? count - from : AT_ONCE;
    treadle_dtype_convert(values, TREADLE_FP32, elements + (size_t)from * each, dtype, (size_t)some);
    if (treadle_row_is_finite(values, some)) continue;
    for (int64_t i = 0; i < some; i++)
      if (!treadle_row_is_finite(values + i, 1)) return from + i;
  }
  return -1;
}
