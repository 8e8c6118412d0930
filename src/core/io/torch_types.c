/* torch's element types (torch/storage.py, torch/_tensor.py). The ones after F64 are listed, not moved. */
#include "io/torch_types.h"

#include "base/dtype.h"

#include <string.h>

static const treadle_torch_type types[] = {
    {"float32", "FloatStorage", "F32", 4}, {"bfloat16", "BFloat16Storage", "BF16", 2},
    {"float16", "HalfStorage", "F16", 2},  {"float8_e4m3fn", NULL, "F8_E4M3", 1},
    {"float8_e5m2", NULL, "F8_E5M2", 1},   {"float64", "DoubleStorage", "F64", 8},
    {"int64", "LongStorage", "I64", 8},    {"int32", "IntStorage", "I32", 4},
    {"int16", "ShortStorage", "I16", 2},   {"int8", "CharStorage", "I8", 1},
    {"uint8", "ByteStorage", "U8", 1},     {"bool", "BoolStorage", "BOOL", 1},
};
enum { TYPES = sizeof types / sizeof *types };

const treadle_torch_type *treadle_torch_type_named(const char *name) {
  for (int i = 0; i < TYPES; i++)
    if (strcmp(types[i].name, name) == 0) return &types[i];
  return NULL;
}

const treadle_torch_type *treadle_torch_type_of_storage(const char *storage) {
  for (int i = 0; i < TYPES; i++)
    if (types[i].storage && strcmp(types[i].storage, storage) == 0) return &types[i];
  return NULL;
}

const treadle_torch_type *treadle_torch_type_of_safetensors(const char *safetensors) {
  for (int i = 0; i < TYPES; i++)
    if (strcmp(types[i].safetensors, safetensors) == 0) return &types[i];
  return NULL;
}

bool treadle_torch_measure(const treadle_torch_type *type, treadle_torch_tensor *tensor) {
  int64_t product = type->bytes; /* of the numbers that are not 0, so that one 0 hides no overflow */
  bool empty = false;
  for (int i = 0; i < tensor->ndim; i++) {
    if (tensor->shape[i] == 0)
      empty = true;
    else if (__builtin_mul_overflow(product, tensor->shape[i], &product) || product > INT64_MAX / 2)
      return false;
  }
  tensor->bytes = empty ? 0 : (size_t)product;
  tensor->elems = empty ? 0 : product / type->bytes;
  tensor->dtype_text = type->safetensors;
  tensor->dtype = TREADLE_DTYPE_NONE;
  treadle_dtype_parse(type->safetensors, &tensor->dtype); /* leaves it where the type is not moved */
  if (tensor->dtype == TREADLE_INT32) tensor->dtype = TREADLE_DTYPE_NONE; /* nor is it from archives */
  return true;
}
