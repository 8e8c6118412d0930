/* Merged elements, one at a time. */
#include "adapter/adapter.h"

#include "base/dtype.h"

#include <math.h>

int64_t treadle_adapter_merge_row(const treadle_adapter *adapter, const treadle_adapter_row *row) {
  const int64_t each = (int64_t)treadle_dtype_bytes(row->dtype);
  int64_t first = -1;
  for (int64_t i = 0; i < row->count; i++) {
    char *at = (char *)row->w + i * each;
    float sum = 0, value, merged;
    for (int64_t k = 0; k < adapter->rank; k++) sum = fmaf(row->b[k], row->a[k * row->a_stride + i], sum);
    treadle_dtype_convert(&value, TREADLE_FP32, at, row->dtype, 1);
    sum *= adapter->scale;
    merged = value + sum;
    treadle_dtype_convert(at, row->dtype, &merged, TREADLE_FP32, 1);
    treadle_dtype_convert(&merged, TREADLE_FP32, at, row->dtype, 1);
    if (first < 0 && isfinite(value) && !isfinite(merged)) first = i;
  }
  return first;
}
