/* A torch archive: tensors that come back lie inside the image, also their last element. */
#include "io/torch.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  static const treadle_torch_options options = {.entry = "model", .skipped = "_extra_state"};
  treadle_torch *torch = NULL;
  if (treadle_torch_parse("input", bytes, count, &options, &torch) == TREADLE_OK) {
    for (int32_t i = 0; i < torch->count; i++) {
      const treadle_torch_tensor *tensor = &torch->tensors[i];
      const uint8_t *data = tensor->data;
      if (!tensor->name || !tensor->dtype_text || tensor->ndim < 0 || tensor->ndim > 8) __builtin_trap();
      if (data < bytes || data > bytes + count) __builtin_trap();
      if (!tensor->elems) continue;
      size_t each = tensor->bytes / (size_t)tensor->elems, last = 0;
      for (int d = 0; d < tensor->ndim; d++)
        last += (size_t)(tensor->shape[d] - 1) * (size_t)tensor->strides[d];
      if ((last + 1) * each > (size_t)(bytes + count - data)) __builtin_trap();
      if (tensor->contiguous && (last + 1) * each != tensor->bytes) __builtin_trap();
    }
  } else if (torch || !*treadle_error_message()) {
    __builtin_trap(); /* a refusal has a reason */
  }
  treadle_torch_close(torch);
  return 0;
}
