/* Merged elements, one at a time. */
#include "adapter/adapter.h"

#include "base/dtype.h"

#include <math.h>

void treadle_adapter_merge_row(const treadle_adapter *adapter, const treadle_adapter_row *row) {
  const int64_t each = (int64_t)treadle_dtype_bytes(row->dtype);
  for (int64_t i = 0; i < row->count; i++) {
    char *at = (char *)row->w + i * each;
    float sum = 0, value;
    for (int64_t k = 0; k < adapter->rank; k++) sum = fmaf(row->b[k], row->a[k * row->a_stride + i], sum);
    treadle_dtype_convert(&value, TREADLE_FP32, at, row->dtype, 1);
    sum *= adapter->scale;
    value += sum;
    treadle_dtype_convert(at, row->dtype, &value, TREADLE_FP32, 1);
  }
}
