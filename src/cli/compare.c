/* Comparing a window with what it should hold. */
#include "cli/compare.h"

#include "base/dtype.h"
#include "treadle_testing.h"

#include <stdlib.h>
#include <string.h>

static treadle_status read_bytes(const treadle_window_source *window, size_t offset, size_t bytes,
                                 void *to) {
  if (window->sw) return treadle_switch_read(window->sw, window->which, offset, bytes, to);
  memcpy(to, (const char *)window->memory + offset, bytes);
  return TREADLE_OK;
}

/* The first byte behind `offset` that differs, counted from there, or `bytes`. */
static treadle_status first_difference(const treadle_window_source *window, size_t offset,
                                       const char *wanted, size_t bytes, size_t *at_p) {
  enum { BLOCK = 1 << 16 };
  treadle_status status = TREADLE_OK;
  char block[BLOCK];
  *at_p = bytes;
  for (size_t at = 0; at < bytes && *at_p == bytes; at += BLOCK) {
    size_t count = bytes - at < BLOCK ? bytes - at : BLOCK, i = 0;
    TRY(read_bytes(window, offset + at, count, block));
    if (memcmp(block, wanted + at, count) == 0) continue;
    while (block[i] == wanted[at + i]) i++;
    *at_p = at + i;
  }
out:
  return status;
}

/* A value and its bits: "0.25 (0x3e80)". */
static void format_value(treadle_dtype dtype, const char *value, char *text, size_t capacity) {
  float number;
  uint32_t bits = 0;
  size_t bytes = treadle_dtype_bytes(dtype);
  treadle_dtype_convert(&number, TREADLE_FP32, value, dtype, 1);
  memcpy(&bits, value, bytes); /* little-endian, as the files are */
  snprintf(text, capacity, "%g (0x%0*x)", (double)number, (int)(2 * bytes), bits);
}

/* Where element `elem` of a storage tensor comes from: "model.norm.weight[12]", or "padding". */
static treadle_status format_place(const treadle_layout *layout, const treadle_model *model, int64_t rank,
                                   int32_t storage, int64_t elem, char *text, size_t capacity) {
  treadle_run *runs;
  size_t count, i = 0;
  treadle_status status = treadle_layout_runs(layout, rank, storage, &runs, &count);
  if (status) return status;
  while (i < count && elem >= runs[i].local_start + runs[i].count) i++;
  treadle_tensor_info tensor = TREADLE_INIT(treadle_tensor_info);
  if (i == count || runs[i].tensor < 0 || treadle_model_tensor(model, runs[i].tensor, &tensor)) {
    snprintf(text, capacity, "padding");
  } else {
    int64_t index = runs[i].start + (elem - runs[i].local_start) * runs[i].stride, weight = tensor.elems;
    size_t length = (size_t)snprintf(text, capacity, "%s[", tensor.name);
    for (int dim = 0; dim < tensor.ndim && length < capacity; dim++) {
      weight /= tensor.shape[dim];
      length += (size_t)snprintf(text + length, capacity - length, "%s%lld", dim ? ", " : "",
                                 (long long)(index / weight));
      index %= weight;
    }
    if (length < capacity) snprintf(text + length, capacity - length, "]");
  }
  free(runs);
  return TREADLE_OK;
}

/* Byte `at` of a storage tensor, which should be `wanted`. */
typedef struct difference {
  const treadle_window_source *window;
  const treadle_storage_info *info;
  int32_t storage;
  const char *wanted; /* the whole storage tensor */
  size_t at;
} difference;

static treadle_status say_difference(const treadle_layout *layout, const treadle_model *model, int64_t rank,
                                     const difference *d, const char *when) {
  char place[384], value[48], wanted_value[48];
  _Alignas(8) char is[8]; /* one element */
  treadle_status status;
  size_t each = treadle_dtype_bytes(d->info->dtype), elem = d->at / each;
  TRY(read_bytes(d->window, d->info->offset_bytes + elem * each, each, is));
  TRY(format_place(layout, model, rank, d->storage, (int64_t)elem, place, sizeof place));
  format_value(d->info->dtype, is, value, sizeof value);
  format_value(d->info->dtype, d->wanted + elem * each, wanted_value, sizeof wanted_value);
  status = treadle_fail(TREADLE_DIFFERENT,
                        "rank %lld: %s, the first difference is %s, element %zu of %s: %s instead of %s",
                        (long long)rank, when, place, elem, d->info->name, value, wanted_value);
out:
  return status;
}

treadle_status treadle_compare_window(const treadle_layout *layout, const treadle_model *model,
                                      int64_t rank, const treadle_plan *plan,
                                      const treadle_window_source *window, const void *wanted,
                                      const char *when) {
  int32_t count = treadle_layout_storage_count(layout, rank);
  treadle_status status = TREADLE_OK;
  for (int32_t storage = 0; storage < count; storage++) { /* gaps between them hold whatever they held */
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    TRY(plan ? treadle_plan_storage(plan, storage, &info)
             : treadle_layout_storage(layout, rank, storage, &info));
    difference d = {window, &info, storage, (const char *)wanted + info.offset_bytes, 0};
    TRY(first_difference(window, info.offset_bytes, d.wanted, info.bytes, &d.at));
    if (d.at < info.bytes) TRY(say_difference(layout, model, rank, &d, when));
  }
out:
  return status;
}
