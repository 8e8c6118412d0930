/* A safetensors file: tensors that come back lie inside the image and fill its data exactly. */
#include "io/safetensors.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  treadle_arena arena = {0};
  treadle_stored *tensors = NULL;
  int32_t tensor_count = 0;
  if (treadle_safetensors_parse("input", bytes, count, &arena, &tensors, &tensor_count) == TREADLE_OK) {
    uint64_t header = 0;
    size_t data_bytes = 0;
    memcpy(&header, bytes, sizeof header);
    for (int32_t i = 0; i < tensor_count; i++) {
      const uint8_t *data = tensors[i].data;
      if (data < bytes + 8 + header || tensors[i].bytes > (size_t)(bytes + count - data)) __builtin_trap();
      if (i && strcmp(tensors[i - 1].name, tensors[i].name) >= 0) __builtin_trap();
      data_bytes += tensors[i].bytes;
    }
    if (data_bytes != count - 8 - header) __builtin_trap();
  } else if (!*treadle_error_message()) {
    __builtin_trap(); /* a refusal has a reason */
  }
  treadle_arena_release(&arena);
  return 0;
}
