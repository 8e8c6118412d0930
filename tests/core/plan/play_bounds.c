/* The lower bound of a pair, from the oracle's elements alone.
 *
 * Bytes that a rank has in `to` and not in `from`: each element once, in the narrower type. Where fp8 blocks are made of
 * values: codes and scale of a block that another rank has all of; what is lacking of others, as values; of all the block,
 * even where the rank keeps a part of it, since its scale is made of all. Where values
 * are made of blocks: codes, and the scale of each block that something is lacking of. */
#include "base/dtype.h"
#include "model/model.h"
#include "plan/play.h"

#include "test.h"

#include <stdlib.h>

/* Which elements the ranks hold: [ranks, elems]. */
static bool *holdings(const oracle_layout *layout) {
  int64_t elems = layout->model->elems;
  bool *flags = calloc((size_t)(layout->ranks * elems), 1);
  assert_non_null(flags);
  for (int64_t r = 0; r < layout->ranks; r++)
    for (int s = 0; s < layout->rank[r].count; s++) {
      const oracle_storage *storage = &layout->rank[r].storages[s];
      for (int64_t e = 0; e < storage->elems; e++)
        if (storage->tensor[e] >= 0)
          flags[r * elems + layout->model->tensors[storage->tensor[e]].first + storage->index[e]] = true;
    }
  return flags;
}

typedef struct bounds {
  const pair *p;
  const bool *has, *wants;
} bounds;

static bool has(const bounds *b, int64_t rank, int64_t elem) {
  return b->has[rank * b->p->oracle->elems + elem];
}

static bool lacks(const bounds *b, int64_t rank, int64_t elem) {
  return b->wants[rank * b->p->oracle->elems + elem] && !has(b, rank, elem);
}

static size_t bytes_in(const pair *p, const treadle_layout *layout, int32_t tensor) {
  return treadle_dtype_bytes(treadle_layout_dtype(layout, &p->model->tensors[p->tensors[tensor]]));
}

static int64_t of_elements(const bounds *b, int64_t rank, int32_t t) {
  const oracle_tensor *tensor = &b->p->oracle->tensors[t];
  size_t from = bytes_in(b->p, b->p->from.layout, t), to = bytes_in(b->p, b->p->to.layout, t);
  int64_t elems = 0;
  for (int64_t e = tensor->first; e < tensor->first + tensor->elems; e++) elems += lacks(b, rank, e);
  return elems * (int64_t)(from < to ? from : to);
}

/* One block of a tensor that is in codes on one side and in values on the other. */
static int64_t of_block(const bounds *b, int64_t rank, int32_t t, int64_t down, int64_t across) {
  const pair *p = b->p;
  const oracle_tensor *tensor = &p->oracle->tensors[t];
  int64_t high = p->oracle->block[0], wide = p->oracle->block[1], elems = 0, lacking = 0, absent = 0;
  bool wanted = false;
  bool complete[64]; /* ranks that have all of it */
  assert_true(p->ranks <= 64);
  for (int64_t r = 0; r < p->ranks; r++) complete[r] = true;
  for (int64_t i = down * high; i < (down + 1) * high && i < tensor->shape[0]; i++)
    for (int64_t k = across * wide; k < (across + 1) * wide && k < tensor->shape[1]; k++) {
      int64_t elem = tensor->first + i * tensor->shape[1] + k;
      elems++;
      lacking += lacks(b, rank, elem);
      absent += !has(b, rank, elem);
      wanted = wanted || b->wants[rank * p->oracle->elems + elem];
      for (int64_t r = 0; r < p->ranks; r++) complete[r] = complete[r] && has(b, r, elem);
    }
  bool one = false;
  for (int64_t r = 0; r < p->ranks; r++) one = one || complete[r];
  int64_t scale = (int64_t)sizeof(float);
  if (p->from.layout->fp8) return lacking + (lacking > 0 ? scale : 0);
  if (!wanted) return 0;
  return absent == elems && one ? elems + scale : absent * (int64_t)bytes_in(p, p->from.layout, t);
}

static int64_t of_blocks(const bounds *b, int64_t rank, int32_t t) {
  const oracle_tensor *scales = &b->p->oracle->tensors[b->p->oracle->tensors[t].scale];
  int64_t bytes = 0;
  for (int64_t i = 0; i < scales->shape[0]; i++)
    for (int64_t k = 0; k < scales->shape[1]; k++) bytes += of_block(b, rank, t, i, k);
  return bytes;
}

/* Elements of a tensor that some rank of a node wants and none has. */
static int64_t of_node(const bounds *b, int32_t node, int32_t t) {
  const pair *p = b->p;
  const oracle_tensor *tensor = &p->oracle->tensors[t];
  size_t from = bytes_in(p, p->from.layout, t), to = bytes_in(p, p->to.layout, t);
  int64_t elems = 0;
  for (int64_t e = tensor->first; e < tensor->first + tensor->elems; e++) {
    bool there = false, wanted = false;
    for (int64_t r = 0; r < p->ranks; r++) {
      if (p->nodes.of[r] != node) continue;
      there = there || has(b, r, e);
      wanted = wanted || b->wants[r * p->oracle->elems + e];
    }
    elems += wanted && !there;
  }
  return elems * (int64_t)(from < to ? from : to);
}

int64_t play_node_bound(const pair *p, bool back) {
  int64_t bytes = 0;
  bool *from = holdings(p->from.oracle), *to = holdings(p->to.oracle);
  bounds b = {p, back ? to : from, back ? from : to};
  bool made = p->from.layout->fp8 != p->to.layout->fp8;
  for (int32_t node = 0; node < p->nodes.count; node++)
    for (int32_t t = 0; t < p->oracle->tensor_count; t++) {
      const oracle_tensor *tensor = &p->oracle->tensors[t];
      if (!made || !tensor->weight) bytes += of_node(&b, node, t);
    }
  free(from);
  free(to);
  return bytes;
}

int64_t *play_bounds(const pair *p) {
  int64_t *bytes = calloc((size_t)p->ranks, sizeof *bytes);
  bool *from = holdings(p->from.oracle), *to = holdings(p->to.oracle);
  bounds b = {p, from, to};
  bool made = p->from.layout->fp8 != p->to.layout->fp8;
  assert_non_null(bytes);
  for (int64_t r = 0; r < p->ranks; r++)
    for (int32_t t = 0; t < p->oracle->tensor_count; t++) {
      const oracle_tensor *tensor = &p->oracle->tensors[t];
      if (made && tensor->weight) continue; /* counted with their blocks */
      bytes[r] += made && tensor->scale ? of_blocks(&b, r, t) : of_elements(&b, r, t);
    }
  free(from);
  free(to);
  return bytes;
}
