/* Which elements of its tensor a box is. */
#include "weights/box_elements.h"

treadle_elements treadle_elements_of(const treadle_tensor *tensor, const int64_t *start,
                                     const int64_t *size, int64_t offset, const int64_t *stride) {
  treadle_elements e = {.ndim = tensor->naxes, .at = offset};
  int64_t unit = 1;
  for (int a = tensor->naxes - 1; a >= 0; a--) {
    e.weight[a] = unit;
    unit *= tensor->axis[a];
    if (a > 0 || !tensor->by_expert)
      e.index += start[a] * e.weight[a]; /* each expert counts its own elements */
    e.size[a] = size[a];
    e.stride[a] = stride[a];
  }
  return e;
}

treadle_elements treadle_elements_of_whole(const treadle_tensor *tensor, const int64_t *start,
                                           const int64_t *size, int64_t offset, const int64_t *stride) {
  treadle_elements e = treadle_elements_of(tensor, start, size, offset, stride);
  if (tensor->by_expert) e.index += start[0] * e.weight[0];
  return e;
}
