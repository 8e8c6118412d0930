/* Pickles: values that come back are of known types, and lie in the limits; those of a checkpoint's
 * metadata are looked at as such. */
#include "io/dist_parse.h"
#include "io/pickle.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* Items below `depth` levels; values may hold themselves. */
static void look(const treadle_value *value, int depth) {
  char words[64];
  if (value->type > TREADLE_VALUE_PERSISTENT || value->depth > 1000) __builtin_trap();
  if (strlen(treadle_value_words(value, words, sizeof words)) >= sizeof words) __builtin_trap();
  const treadle_pickle_items *items = treadle_value_sequence(value), *pairs = treadle_value_pairs(value);
  if (pairs && pairs->count % 2) __builtin_trap();
  for (uint32_t i = 0; depth && items && i < items->count && i < 100; i++)
    look(items->values[i], depth - 1);
  for (uint32_t i = 0; depth && pairs && i < pairs->count && i < 100; i++)
    look(pairs->values[i], depth - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  treadle_arena arena = {0};
  treadle_value *value = NULL;
  treadle_torch_dist *dist = NULL;
  if (treadle_pickle_read("input", bytes, count, &arena, &value) == TREADLE_OK)
    look(value, 3);
  else if (!*treadle_error_message())
    __builtin_trap(); /* a refusal has a reason */
  treadle_arena_release(&arena);
  if (dist_parse("input", bytes, count, "_extra_state", &dist) == TREADLE_OK)
    for (int32_t i = 0; i < dist->count; i++) {
      const treadle_dist_tensor *tensor = &dist->tensors[i];
      int64_t elems = 0;
      for (int32_t c = 0; c < tensor->chunk_count; c++) {
        int64_t product = 1;
        for (int d = 0; d < tensor->ndim; d++) product *= tensor->chunks[c].size[d];
        elems += product;
      }
      if (elems != tensor->elems) __builtin_trap();
    }
  treadle_torch_dist_close(dist);
  return 0;
}
