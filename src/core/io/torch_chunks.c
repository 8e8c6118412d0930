/* Chunks that fill a tensor.
 *
 * Boxes that lie inside a tensor, do not overlap and have as many elements as it, fill it. Overlaps are
 * looked for with a sweep along one dimension: the chunks are taken in the order of their offsets there,
 * and each is compared with those before it that reach up to its offset. The dimension is that with the
 * most different offsets, so few are compared: of a grid, those of one slab. */
#include "io/torch_chunks.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct sweep {
  const treadle_dist_box *chunk;
  int32_t number;
  int64_t begin; /* along the dimension of the sweep */
} sweep;

static int compare(const void *a_, const void *b_) {
  const sweep *a = a_, *b = b_;
  if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
  return (a->number > b->number) - (a->number < b->number);
}

static bool overlap(const treadle_dist_box *a, const treadle_dist_box *b, int ndim) {
  for (int i = 0; i < ndim; i++)
    if (a->offset[i] + a->size[i] <= b->offset[i] || b->offset[i] + b->size[i] <= a->offset[i])
      return false;
  return true;
}

static void sort_along(sweep *order, size_t count, int dimension) {
  for (size_t i = 0; i < count; i++) order[i].begin = order[i].chunk->offset[dimension];
  qsort(order, count, sizeof *order, compare);
}

static int choose_dimension(sweep *order, size_t count, int ndim) {
  int best = 0;
  size_t most = 0;
  for (int d = 0; d < ndim; d++) {
    size_t different = 1;
    sort_along(order, count, d);
    for (size_t i = 1; i < count; i++) different += order[i].begin != order[i - 1].begin;
    if (different <= most) continue;
    most = different;
    best = d;
  }
  return best;
}

/* The chunks that have elements; elems_p is their sum. */
static treadle_status take_chunks(const char *what, const treadle_dist_tensor *tensor, sweep *order,
                                  size_t *count_p, int64_t *elems_p) {
  size_t count = 0;
  int64_t elems = 0;
  for (int32_t c = 0; c < tensor->chunk_count; c++) {
    const treadle_dist_box *chunk = &tensor->chunks[c];
    int64_t product = 1;
    for (int i = 0; i < tensor->ndim; i++) {
      if (chunk->offset[i] > tensor->shape[i] || chunk->size[i] > tensor->shape[i] - chunk->offset[i])
        return treadle_fail(TREADLE_REFUSED,
                            "%s: '%s': chunk %d has %" PRId64 " from %" PRId64
                            " of dimension %d, which has %" PRId64,
                            what, tensor->key, c, chunk->size[i], chunk->offset[i], i, tensor->shape[i]);
      product *= chunk->size[i]; /* at most that of the tensor */
    }
    if (!product) continue;
    if (__builtin_add_overflow(elems, product, &elems)) elems = INT64_MAX;
    order[count++] = (sweep){.chunk = chunk, .number = c};
  }
  *count_p = count;
  *elems_p = elems;
  return TREADLE_OK;
}

treadle_status treadle_torch_check_chunks(const char *what, const treadle_dist_tensor *tensor) {
  size_t count = 0, active = 0;
  int64_t elems = 0;
  treadle_status status = TREADLE_OK;
  sweep *order = treadle_alloc_array((size_t)tensor->chunk_count, sizeof *order);
  sweep *open = treadle_alloc_array((size_t)tensor->chunk_count, sizeof *open);
  if (!order || !open) {
    status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for the chunks of '%s'", what, tensor->key);
    goto out;
  }
  TRY(take_chunks(what, tensor, order, &count, &elems));
  int along = tensor->ndim && count ? choose_dimension(order, count, tensor->ndim) : 0;
  if (tensor->ndim && count) sort_along(order, count, along);
  for (size_t i = 0; i < count; i++) {
    size_t kept = 0;
    for (size_t k = 0; k < active; k++) {
      if (tensor->ndim && open[k].begin + open[k].chunk->size[along] <= order[i].begin) continue;
      if (overlap(open[k].chunk, order[i].chunk, tensor->ndim)) {
        status = treadle_fail(TREADLE_REFUSED, "%s: '%s': chunks %d and %d overlap", what, tensor->key,
                              open[k].number, order[i].number);
        goto out;
      }
      open[kept++] = open[k];
    }
    active = kept;
    open[active++] = order[i];
  }
  if (elems != tensor->elems)
    status = treadle_fail(TREADLE_REFUSED,
                          "%s: '%s': its %d chunks have %" PRId64 " of its %" PRId64 " elements", what,
                          tensor->key, tensor->chunk_count, elems, tensor->elems);
out:
  treadle_free(order);
  treadle_free(open);
  return status;
}
