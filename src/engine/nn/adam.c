/* The list of sets of AdamW. */
#include "nn/adam_kinds.h"

#include <string.h>

static const treadle_adam_ops *const list[] = {&treadle_adam_plain, &treadle_adam_avx2,
                                               &treadle_adam_avx512};
enum { KINDS = sizeof list / sizeof *list };

const treadle_adam_ops *const *treadle_adam_ops_list(int *count_p) {
  *count_p = KINDS;
  return list;
}

const treadle_adam_ops *treadle_adam_ops_for(const char *kernels) {
  const treadle_adam_ops *best = list[0];
  for (int i = 0; i < KINDS; i++) {
    if (!list[i]->supported()) continue;
    if (strcmp(list[i]->name, kernels) == 0) return list[i];
    best = list[i];
  }
  return best;
}
