/* Pulls, and the boxes that are made of them. */
#include "messages/outbound.h"

#include "base/checked.h"
#include "base/dtype.h"

#include <stdlib.h>
#include <string.h>

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out"); }

/* ---- Pulls ---- */

/* The dimensions of an op that have more than one index, slow to fast by the source. Returns how many. */
static int order_of(const treadle_op *op, int dims[TREADLE_MAX_AXES]) {
  int count = 0;
  for (int d = 0; d < op->ndim; d++) {
    if (op->size[d] == 1) continue;
    int at = count++;
    for (; at > 0 && op->from_stride[dims[at - 1]] < op->from_stride[d]; at--) dims[at] = dims[at - 1];
    dims[at] = d;
  }
  return count;
}

treadle_pull treadle_pull_of(const treadle_op *op) {
  int dims[TREADLE_MAX_AXES], count = order_of(op, dims);
  treadle_pull pull;
  memset(&pull, 0, sizeof pull); /* pulls are compared as bytes */
  pull.source = op->source;
  pull.wave = op->wave;
  pull.dtype = op->from_dtype;
  pull.twin = op->twin;
  pull.from = op->from;
  for (int i = 0; i < count; i++) {
    int64_t size = op->size[dims[i]], stride = op->from_stride[dims[i]];
    int last = pull.ndim - 1;
    if (last >= 0 && pull.stride[last] == size * stride) {
      pull.size[last] *= size;
      pull.stride[last] = stride;
      continue;
    }
    pull.size[pull.ndim] = size;
    pull.stride[pull.ndim++] = stride;
  }
  return pull;
}

int64_t treadle_pull_bytes(const treadle_pull *pull) {
  int64_t bytes = (int64_t)treadle_dtype_bytes((treadle_dtype)pull->dtype);
  for (int d = 0; d < pull->ndim; d++) bytes *= pull->size[d];
  return bytes;
}

treadle_op treadle_pull_read(const treadle_op *op, int64_t at) {
  int dims[TREADLE_MAX_AXES], count = order_of(op, dims);
  treadle_op read = *op;
  int64_t stride = (int64_t)treadle_dtype_bytes((treadle_dtype)op->from_dtype);
  read.from = at;
  for (int i = count - 1; i >= 0; i--) {
    read.from_stride[dims[i]] = stride;
    stride *= op->size[dims[i]];
  }
  return read;
}

treadle_op treadle_pull_copy(const treadle_pull *pull, int64_t at) {
  int64_t each = (int64_t)treadle_dtype_bytes((treadle_dtype)pull->dtype), stride = each;
  treadle_op copy = {.wave = pull->wave,
                     .source = pull->source,
                     .from_dtype = (uint8_t)pull->dtype,
                     .to_dtype = (uint8_t)pull->dtype,
                     .ndim = (uint8_t)pull->ndim,
                     .tensor = -1,
                     .from = pull->from,
                     .to = at,
                     .elems = treadle_pull_bytes(pull) / each};
  for (int d = pull->ndim - 1; d >= 0; d--) {
    copy.size[d] = pull->size[d];
    copy.from_stride[d] = pull->stride[d];
    copy.to_stride[d] = stride;
    stride *= pull->size[d];
  }
  if (copy.ndim == 0) {
    copy.ndim = 1;
    copy.size[0] = 1;
    copy.from_stride[0] = copy.to_stride[0] = each;
  }
  return copy;
}

treadle_status treadle_pulls_list(const treadle_direction *direction, int64_t rank,
                                  const treadle_own_spans *to, const treadle_own_spans *from,
                                  treadle_pull **pulls_p, size_t *count_p, int32_t **of_op_p) {
  size_t count = 0;
  int32_t *of_op = treadle_alloc_array(direction->ops.count + 1, sizeof *of_op);
  *pulls_p = NULL;
  *of_op_p = of_op;
  *count_p = 0;
  if (!of_op) return no_memory();
  for (size_t i = 0; i < direction->ops.count; i++) {
    const treadle_op *op = &direction->ops.items[i];
    bool pulled = op->source >= 0 && op->source != rank &&
                  treadle_own_find(&(op->twin ? to : from)[op->source], op->from);
    of_op[i] = pulled ? (int32_t)count++ : -1;
  }
  treadle_pull *pulls = treadle_alloc_array(count + 1, sizeof *pulls);
  if (!pulls) return no_memory();
  for (size_t i = 0; i < direction->ops.count; i++)
    if (of_op[i] >= 0) pulls[of_op[i]] = treadle_pull_of(&direction->ops.items[i]);
  *pulls_p = pulls;
  *count_p = count;
  return TREADLE_OK;
}

/* ---- Boxes ---- */

/* Does a pull read bytes of one span, in a wave that there is? The numbers come from another rank. */
static bool is_sound(const treadle_pull *pull, int32_t waves, const treadle_own_spans mine[2]) {
  int64_t last = pull->from, reach;
  if (pull->wave < 0 || pull->wave >= waves || pull->ndim < 0 || pull->ndim > TREADLE_MAX_AXES ||
      pull->dtype <= TREADLE_DTYPE_NONE || pull->dtype > TREADLE_INT32 || pull->from < 0 ||
      pull->twin < 0 || pull->twin > 1)
    return false;
  for (int d = 0; d < pull->ndim; d++)
    if (pull->size[d] < 1 || pull->stride[d] < 0 ||
        !treadle_mul_fits(pull->size[d] - 1, pull->stride[d], &reach) ||
        !treadle_add_fits(last, reach, &last))
      return false;
  const treadle_own_span *span = treadle_own_find(&mine[pull->twin], pull->from);
  return span &&
         last <= span->offset + span->bytes - (int64_t)treadle_dtype_bytes((treadle_dtype)pull->dtype) &&
         treadle_product_fits(pull->size, pull->ndim, &reach) && reach <= span->bytes;
}

typedef struct pulled { /* a pull of one of this rank's tensors */
  const treadle_pull *pull;
  size_t number; /* among all */
} pulled;

static int compare(const void *a, const void *b) {
  const pulled *x = a, *y = b;
  if (x->pull->wave != y->pull->wave) return x->pull->wave < y->pull->wave ? -1 : 1;
  if (x->pull->twin != y->pull->twin) return x->pull->twin < y->pull->twin ? -1 : 1;
  if (x->pull->from != y->pull->from) return x->pull->from < y->pull->from ? -1 : 1;
  int order = memcmp(x->pull, y->pull, sizeof *x->pull);
  return order ? order : x->number < y->number ? -1 : x->number > y->number;
}

/* The pulls of `rank`'s tensors, of all readers. */
static treadle_status gather(int64_t rank, int64_t ranks, int32_t waves, const treadle_own_spans mine[2],
                             const treadle_pulls *pulls, size_t *first, pulled **all_p) {
  size_t count = 0;
  for (int64_t reader = 0; reader < ranks; reader++) {
    first[reader] = count;
    for (size_t i = 0; i < pulls[reader].count; i++) count += pulls[reader].items[i].source == rank;
  }
  first[ranks] = count;
  pulled *all = treadle_alloc_array(count + 1, sizeof *all);
  *all_p = all;
  if (!all) return no_memory();
  count = 0;
  for (int64_t reader = 0; reader < ranks; reader++)
    for (size_t i = 0; i < pulls[reader].count; i++) {
      const treadle_pull *pull = &pulls[reader].items[i];
      if (pull->source != rank) continue;
      if (!is_sound(pull, waves, mine))
        return treadle_fail(TREADLE_PEER,
                            "switch: rank %lld asks rank %lld for bytes that are none of its own tensors",
                            (long long)reader, (long long)rank);
      all[count] = (pulled){pull, count};
      count++;
    }
  return TREADLE_OK;
}

static int64_t slot_end(int64_t at, int64_t bytes) {
  return (at + bytes + TREADLE_STAGING_ALIGNMENT - 1) / TREADLE_STAGING_ALIGNMENT *
         TREADLE_STAGING_ALIGNMENT;
}

/* Boxes of the sorted pulls: equal ones are one box. */
static void lay(const pulled *all, size_t count, int32_t waves, treadle_outbound *outbound) {
  int32_t boxes = 0;
  int64_t end = 0;
  for (int32_t wave = 0; wave <= waves; wave++) outbound->wave_first[wave] = 0;
  for (size_t i = 0; i < count; i++) {
    const treadle_pull *pull = all[i].pull, *last = i > 0 ? all[i - 1].pull : NULL;
    if (!last || memcmp(pull, last, sizeof *pull) != 0) {
      if (!last || last->wave != pull->wave) end = 0;
      outbound->boxes[boxes++] = (treadle_outbound_box){*pull, end};
      outbound->wave_first[pull->wave + 1]++;
      end = slot_end(end, treadle_pull_bytes(pull));
      if (end > outbound->slot_bytes) outbound->slot_bytes = end;
    }
    outbound->at[all[i].number] = outbound->boxes[boxes - 1].at;
  }
  for (int32_t wave = 0; wave < waves; wave++) outbound->wave_first[wave + 1] += outbound->wave_first[wave];
}

treadle_status treadle_outbound_make(int64_t rank, int64_t ranks, int32_t waves,
                                     const treadle_own_spans mine[2], const treadle_pulls *pulls,
                                     treadle_outbound *outbound) {
  treadle_status status = TREADLE_OK;
  pulled *all = NULL;
  *outbound = (treadle_outbound){.first = treadle_alloc_array((size_t)ranks + 1, sizeof(size_t)),
                                 .wave_first = treadle_alloc_array((size_t)waves + 1, sizeof(int32_t))};
  if (!outbound->first || !outbound->wave_first) TRY(no_memory());
  TRY(gather(rank, ranks, waves, mine, pulls, outbound->first, &all));
  size_t count = outbound->first[ranks];
  if (count > 0) qsort(all, count, sizeof *all, compare);
  outbound->at = treadle_alloc_array(count + 1, sizeof *outbound->at);
  outbound->boxes = treadle_alloc_array(count + 1, sizeof *outbound->boxes);
  if (!outbound->at || !outbound->boxes) TRY(no_memory());
  lay(all, count, waves, outbound);
out:
  treadle_free(all);
  if (status != TREADLE_OK) treadle_outbound_release(outbound);
  return status;
}

void treadle_outbound_release(treadle_outbound *outbound) {
  treadle_free(outbound->boxes);
  treadle_free(outbound->wave_first);
  treadle_free(outbound->at);
  treadle_free(outbound->first);
  *outbound = (treadle_outbound){0};
}
