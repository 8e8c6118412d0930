/* Comparing a window with what it should hold. */
#include "cli/compare.h"

#include "base/dtype.h"

#include <stdlib.h>
#include <string.h>

/* The first byte that differs, or `bytes`. */
static size_t first_difference(const char *a, const char *b, size_t bytes) {
  enum { BLOCK = 1 << 16 };
  for (size_t at = 0; at < bytes; at += BLOCK) {
    size_t count = bytes - at < BLOCK ? bytes - at : BLOCK;
    if (memcmp(a + at, b + at, count) == 0) continue;
    while (a[at] == b[at]) at++;
    return at;
  }
  return bytes;
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

/* Byte `at` of a storage tensor whose bytes are `is`. */
typedef struct difference {
  int32_t storage;
  const char *is, *wanted;
  size_t at;
} difference;

static treadle_status say_difference(const treadle_layout *layout, const treadle_model *model, int64_t rank,
                                     const difference *d, const char *when) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  char place[384], value[48], wanted_value[48];
  treadle_status status = TREADLE_OK;
  TRY(treadle_layout_storage(layout, rank, d->storage, &info));
  size_t each = treadle_dtype_bytes(info.dtype), elem = d->at / each;
  TRY(format_place(layout, model, rank, d->storage, (int64_t)elem, place, sizeof place));
  format_value(info.dtype, d->is + elem * each, value, sizeof value);
  format_value(info.dtype, d->wanted + elem * each, wanted_value, sizeof wanted_value);
  status = treadle_fail(TREADLE_DIFFERENT,
                        "rank %lld: %s, the first difference is %s, element %zu of %s: %s instead of %s",
                        (long long)rank, when, place, elem, info.name, value, wanted_value);
out:
  return status;
}

treadle_status treadle_compare_window(const treadle_layout *layout, const treadle_model *model,
                                      int64_t rank, const treadle_plan *plan, const void *window,
                                      const void *wanted, const char *when) {
  int32_t count = treadle_layout_storage_count(layout, rank);
  for (int32_t storage = 0; storage < count; storage++) { /* gaps between them hold whatever they held */
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    treadle_status status = plan ? treadle_plan_storage(plan, storage, &info)
                                 : treadle_layout_storage(layout, rank, storage, &info);
    if (status) return status;
    difference d = {storage, (const char *)window + info.offset_bytes,
                    (const char *)wanted + info.offset_bytes, 0};
    d.at = first_difference(d.is, d.wanted, info.bytes);
    if (d.at < info.bytes) return say_difference(layout, model, rank, &d, when);
  }
  return TREADLE_OK;
}
