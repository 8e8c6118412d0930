/* The list of sets of row operations. */
#include "nn/rows.h"

#include "nn/rows_kinds.h"

#include <stdatomic.h>
#include <string.h>

static const treadle_row_ops *const list[] = {&treadle_row_ops_plain, &treadle_row_ops_avx2,
                                              &treadle_row_ops_avx512};
enum { KINDS = sizeof list / sizeof *list };

const treadle_row_ops *const *treadle_row_ops_list(int *count_p) {
  *count_p = KINDS;
  return list;
}

/* Asked once: a virtual machine leaves its processor to answer. */
static int best(void) {
  static atomic_int known; /* 1 more than the place in the list */
  int chosen = atomic_load_explicit(&known, memory_order_relaxed);
  if (!chosen) {
    for (chosen = KINDS; !list[chosen - 1]->supported();) chosen--;
    atomic_store_explicit(&known, chosen, memory_order_relaxed);
  }
  return chosen - 1;
}

int treadle_row_ops_place(const char *kernels) {
  for (int i = 1; kernels && i < KINDS; i++)
    if (strcmp(list[i]->name, kernels) == 0 && list[i]->supported()) return i;
  return best();
}

const treadle_row_ops *treadle_row_ops_choose(void) { return list[best()]; }

const treadle_row_ops *treadle_row_ops_for(const char *kernels) {
  return list[treadle_row_ops_place(kernels)];
}
