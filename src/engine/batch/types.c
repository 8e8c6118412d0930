/* The types of columns, and when two values of a type are equal. */
#include "base/dtype.h"
#include "batch/batch.h"

#include <math.h>
#include <string.h>

static const treadle_column_about types[] = {
    [TREADLE_COLUMN_INT32] = {"int32", 4, "I32", false},
    [TREADLE_COLUMN_INT64] = {"int64", 8, "I64", false},
    [TREADLE_COLUMN_FP32] = {"fp32", 4, "F32", false},
    [TREADLE_COLUMN_FP64] = {"fp64", 8, "F64", false},
    [TREADLE_COLUMN_BF16] = {"bf16", 2, "BF16", false},
    [TREADLE_COLUMN_UINT8] = {"uint8", 1, "U8", false},
    [TREADLE_COLUMN_BOOL] = {"bool", 1, "BOOL", false},
    [TREADLE_COLUMN_TEXT] = {"text", 1, NULL, true},
    [TREADLE_COLUMN_BYTES] = {"bytes", 1, "U8", true},
};
enum { TYPES = sizeof types / sizeof *types };

const treadle_column_about *treadle_column_about_of(treadle_column_type type) { return &types[type]; }

bool treadle_column_type_find(const char *name, treadle_column_type *type_p) {
  for (int t = 0; t < TYPES; t++)
    if (strcmp(types[t].name, name) == 0) {
      *type_p = (treadle_column_type)t;
      return true;
    }
  return false;
}

/* A value of a type of floating point as a double, which is exact. */
static double real_at(treadle_column_type type, const char *data, int64_t i) {
  float single;
  double real;
  uint16_t bits;
  switch (type) {
  case TREADLE_COLUMN_FP32: memcpy(&single, data + 4 * i, 4); return (double)single;
  case TREADLE_COLUMN_BF16: memcpy(&bits, data + 2 * i, 2); return (double)treadle_bf16_to_float(bits);
  default: memcpy(&real, data + 8 * i, 8); return real;
  }
}

bool treadle_column_equal(treadle_column_type type, const void *a, const void *b, int64_t count) {
  if (memcmp(a, b, (size_t)count * types[type].bytes) == 0) return true;
  if (type != TREADLE_COLUMN_FP32 && type != TREADLE_COLUMN_FP64 && type != TREADLE_COLUMN_BF16)
    return false;
  for (int64_t i = 0; i < count; i++) {
    double x = real_at(type, a, i), y = real_at(type, b, i);
    if (x != y && !(isnan(x) && isnan(y))) return false;
  }
  return true;
}
