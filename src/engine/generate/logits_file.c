/* Logits of texts, in a file: its header says all shapes before the first row is there. */
#include "generate/logits_file.h"

treadle_status treadle_logits_file_create(const char *path, const treadle_score_lines *lines,
                                          int64_t vocabulary, treadle_safetensors_writer **writer_p) {
  size_t count = lines->items.count; /* at most TREADLE_MOST_REQUESTS */
  treadle_arena arena = {0};
  treadle_status status;
  treadle_stored *tensors = treadle_arena_alloc_array(&arena, count, sizeof *tensors);
  bool whole = tensors != NULL;
  for (size_t i = 0; whole && i < count; i++) {
    const treadle_score_line *line = &lines->items.items[i];
    tensors[i] =
        (treadle_stored){.name = treadle_arena_format(&arena, "logits.%lld", (long long)line->line - 1),
                         .dtype = TREADLE_FP32,
                         .ndim = 2,
                         .shape = {line->input.token_count, vocabulary}};
    whole = tensors[i].name != NULL;
  }
  status = whole ? treadle_safetensors_create(path, tensors, (int32_t)count, NULL, writer_p)
                 : treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for %zu tensors", path, count);
  treadle_arena_release(&arena);
  return status;
}
