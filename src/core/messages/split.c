#include "messages/split.h"

treadle_status treadle_direction_split(treadle_direction *direction, int32_t waves, treadle_split_op split,
                                       void *context) {
  treadle_status status = TREADLE_OK;
  treadle_op_array ops = {0};
  uint64_t coverage = direction->coverage;
  for (int32_t wave = 0; wave < waves; wave++) {
    int32_t first = direction->wave_first[wave], end = direction->wave_first[wave + 1];
    direction->wave_first[wave] = (int32_t)ops.count;
    for (int32_t i = first; i < end; i++) {
      size_t begin = ops.count;
      TRY(split(context, &direction->ops.items[i], &ops));
      coverage -= treadle_op_mark(&direction->ops.items[i]);
      for (size_t k = begin; k < ops.count; k++) coverage += treadle_op_mark(&ops.items[k]);
    }
  }
  direction->wave_first[waves] = (int32_t)ops.count;
  direction->coverage = coverage;
  treadle_array_release(&direction->ops);
  direction->ops.items = ops.items;
  direction->ops.count = ops.count;
  direction->ops.capacity = ops.capacity;
out:
  if (status != TREADLE_OK) {
    treadle_array_release(&ops);
    status = treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  }
  return status;
}

treadle_op treadle_op_part(const treadle_op *op, int d, int64_t first, int64_t end) {
  treadle_op part = *op;
  part.from += first * op->from_stride[d];
  part.to += first * op->to_stride[d];
  part.elems = op->elems / op->size[d] * (end - first);
  part.size[d] = end - first;
  if (end - first > 1 || op->ndim == 1) return part;
  part.ndim--;
  for (int i = d; i < part.ndim; i++) {
    part.size[i] = op->size[i + 1];
    part.from_stride[i] = op->from_stride[i + 1];
    part.to_stride[i] = op->to_stride[i + 1];
  }
  return part;
}
