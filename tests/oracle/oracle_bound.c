/* The oracle's lower bound: elements of the destination rank that it does not already hold, each once. */
#include "oracle/oracle_parts.h"

#include <assert.h>
#include <stdlib.h>

/* Sets a flag for each canonical element that a rank holds; flags has room for the model's elements. */
static void mark(const oracle_layout *layout, int64_t rank, bool *flags) {
  for (int i = 0; i < layout->rank[rank].count; i++) {
    const oracle_storage *s = &layout->rank[rank].storages[i];
    for (int64_t e = 0; e < s->elems; e++) {
      if (s->tensor[e] == ORACLE_PADDING) continue;
      flags[layout->model->tensors[s->tensor[e]].first + s->index[e]] = true;
    }
  }
}

int64_t oracle_held(const oracle_layout *layout, int64_t rank) {
  int64_t elems = layout->model->elems, held = 0;
  bool *flags = oracle_memory((size_t)elems, sizeof *flags);
  mark(layout, rank, flags);
  for (int64_t e = 0; e < elems; e++) held += flags[e];
  free(flags);
  return held;
}

int64_t oracle_inbound(const oracle_layout *from, const oracle_layout *to, int64_t rank) {
  assert(from->model == to->model && from->ranks == to->ranks);
  int64_t elems = from->model->elems, inbound = 0;
  bool *has = oracle_memory((size_t)elems, sizeof *has);
  bool *wants = oracle_memory((size_t)elems, sizeof *wants);
  mark(from, rank, has);
  mark(to, rank, wants);
  for (int64_t e = 0; e < elems; e++) inbound += wants[e] && !has[e];
  free(has);
  free(wants);
  return inbound;
}

int64_t oracle_inbound_total(const oracle_layout *from, const oracle_layout *to) {
  int64_t total = 0;
  for (int64_t rank = 0; rank < to->ranks; rank++) total += oracle_inbound(from, to, rank);
  return total;
}
