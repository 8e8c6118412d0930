/* The mesh: dimensions as size and stride, and sets of ranks with the same index in some of them. */
#include "layout/mesh.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void treadle_mesh_add_digits(treadle_mesh *mesh, const char *name, int64_t low, int64_t stride,
                             int64_t high, int64_t high_stride) {
  assert(mesh->count < TREADLE_MAX_MESH);
  treadle_dim *dim = &mesh->dims[mesh->count++];
  snprintf(dim->name, sizeof dim->name, "%s", name);
  dim->size = low * high;
  dim->stride = stride;
  dim->low = low;
  dim->high_stride = high_stride;
}

void treadle_mesh_add(treadle_mesh *mesh, const char *name, int64_t size, int64_t stride) {
  treadle_mesh_add_digits(mesh, name, size, stride, 1, 1);
}

const treadle_dim *treadle_mesh_find(const treadle_mesh *mesh, const char *name) {
  for (int i = 0; i < mesh->count; i++)
    if (strcmp(mesh->dims[i].name, name) == 0) return &mesh->dims[i];
  return NULL;
}

typedef struct fixed_digit {
  int64_t size, stride;
} fixed_digit;

/* Notes a digit that is fixed, by stride. A size of 1 fixes nothing. */
static void fix(treadle_rank_set *set, fixed_digit *digits, int *count, int64_t size, int64_t stride,
                int64_t value) {
  if (size == 1) return;
  set->base += value * stride;
  int at = (*count)++;
  for (; at > 0 && digits[at - 1].stride > stride; at--) digits[at] = digits[at - 1];
  digits[at] = (fixed_digit){size, stride};
}

treadle_rank_set treadle_mesh_select(const treadle_mesh *mesh, const treadle_fixed *fixed, int count) {
  treadle_rank_set set = {0};
  fixed_digit digits[2 * TREADLE_MAX_FIXED];
  int digit_count = 0;
  assert(count <= TREADLE_MAX_FIXED);
  for (int i = 0; i < count; i++) {
    const treadle_dim *dim = fixed[i].dim;
    if (!dim || dim->size == 1) continue;
    if (dim->low == dim->size) { /* one digit */
      fix(&set, digits, &digit_count, dim->size, dim->stride, fixed[i].index);
      continue;
    }
    fix(&set, digits, &digit_count, dim->low, dim->stride, fixed[i].index % dim->low);
    fix(&set, digits, &digit_count, dim->size / dim->low, dim->high_stride, fixed[i].index / dim->low);
  }
  /* What is free are the gaps below, between and above the fixed digits. */
  int64_t stride = 1;
  for (int i = 0; i <= digit_count; i++) {
    int64_t end = i < digit_count ? digits[i].stride : mesh->ranks;
    assert(end % stride == 0);
    if (end / stride > 1) {
      set.size[set.count] = end / stride;
      set.stride[set.count++] = stride;
    }
    if (i < digit_count) stride = digits[i].stride * digits[i].size;
  }
  return set;
}

int64_t treadle_rank_set_count(const treadle_rank_set *set) {
  int64_t count = 1;
  for (int i = 0; i < set->count; i++) count *= set->size[i];
  return count;
}

int64_t treadle_rank_set_get(const treadle_rank_set *set, int64_t position) {
  int64_t rank = set->base;
  for (int i = 0; i < set->count; i++) {
    rank += position % set->size[i] * set->stride[i];
    position /= set->size[i];
  }
  return rank;
}

int64_t treadle_rank_set_find(const treadle_rank_set *set, int64_t rank) {
  int64_t position = 0, rest = rank - set->base;
  if (rest < 0) return -1;
  for (int i = set->count - 1; i >= 0; i--) { /* strides ascend, so the largest digit comes off first */
    int64_t digit = rest / set->stride[i];
    if (digit >= set->size[i]) return -1;
    rest -= digit * set->stride[i];
    position = position * set->size[i] + digit;
  }
  return rest == 0 ? position : -1;
}
