/* The walk over a box in canonical order. */
#include "weights/value.h"

void treadle_value_each(const treadle_tensor *tensor, const int64_t *start, const int64_t *size,
                        int64_t offset, const int64_t *stride, treadle_value_visit visit, void *context) {
  int64_t weight[TREADLE_MAX_AXES], index = 0;
  int64_t unit = 1;
  for (int a = tensor->naxes - 1; a >= 0; a--) {
    weight[a] = unit;
    unit *= tensor->axis[a];
    if (a > 0 || !tensor->by_expert)
      index += start[a] * weight[a]; /* each expert counts its own elements */
    if (size[a] <= 0) return;
  }
  /* The run: the last axis, and those in front of it that continue it in the tensor and in memory. */
  int outer = tensor->naxes - 1;
  int64_t count = size[outer], step = stride[outer];
  for (; outer > 0 && weight[outer - 1] == count &&
         (stride[outer - 1] == count * step || size[outer - 1] == 1);
       outer--)
    count *= size[outer - 1];

  int64_t at[TREADLE_MAX_AXES] = {0};
  for (;;) {
    visit(context, index, offset, step, count);
    int a = outer - 1;
    for (; a >= 0; a--) {
      index += weight[a];
      offset += stride[a];
      if (++at[a] < size[a]) break;
      index -= at[a] * weight[a];
      offset -= at[a] * stride[a];
      at[a] = 0;
    }
    if (a < 0) break;
  }
}
