/* The list of sets of backward operations. */
#include "nn/rows_back_kinds.h"

#include <string.h>

static const treadle_row_back_ops *const list[] = {&treadle_row_back_plain, &treadle_row_back_avx2,
                                                   &treadle_row_back_avx512};
static const treadle_attention_back_ops *const attention[] = {
    &treadle_attention_back_plain, &treadle_attention_back_avx2, &treadle_attention_back_avx512};
static const treadle_outer_ops *const outer[] = {&treadle_outer_plain, &treadle_outer_avx2,
                                                 &treadle_outer_avx512};
enum { KINDS = sizeof list / sizeof *list, ROUND_BYTES = 64 };

const treadle_row_back_ops *const *treadle_row_back_ops_list(int *count_p) {
  *count_p = KINDS;
  return list;
}

/* Its place in the list. "plain" is a name like any other: who asks for it looks for its twin. */
static int choose(const char *kernels) {
  int best = 0;
  for (int i = 0; i < KINDS; i++) {
    if (!list[i]->supported()) continue;
    if (strcmp(list[i]->name, kernels) == 0) return i;
    best = i;
  }
  return best;
}

const treadle_row_back_ops *treadle_row_back_ops_for(const char *kernels) { return list[choose(kernels)]; }

const treadle_outer_ops *treadle_outer_ops_for(const char *kernels) { return outer[choose(kernels)]; }

size_t treadle_attention_back_bytes(int64_t rows, int64_t key_dim, int64_t value_dim) {
  int64_t room = (rows + 15) / 16 * 16, widest = (key_dim > value_dim ? key_dim : value_dim) + 16;
  int64_t block = 4; /* rows at a time, at most */
  size_t bytes = (size_t)(room * (2 * key_dim + 2 * value_dim + 2 * block) + 2 * widest) * sizeof(float);
  return (bytes + ROUND_BYTES - 1) / ROUND_BYTES * ROUND_BYTES;
}

void treadle_attention_back_run(const treadle_attention_back *a, const char *kernels, void *scratch) {
  attention[choose(kernels)]->run(a, scratch);
}
