#include "switch/changes.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

enum { EIGHTS = 8 };

/* What a step gives an element that it changes: any bf16 but signalling NaN, of which casts make others. Every eighth is NaN. */
static uint16_t value_of(uint64_t draw) {
  uint16_t bits = (uint16_t)(draw >> 40);
  if (draw >> 32 & (EIGHTS - 1)) return (bits & 0x7f80) == 0x7f80 ? bits ^ 0x4000 : bits;
  return bits | 0x7fc0;
}

static void set(uint8_t *at, treadle_dtype dtype, uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  if (dtype == TREADLE_FP32)
    memcpy(at, &wide, sizeof wide);
  else
    memcpy(at, &bits, sizeof bits);
}

/* A run whose elements begin at `at`. What each element takes is read once: of each access the thread sanitizer makes a call. */
static void change(const treadle_run *run, uint8_t *at, treadle_dtype dtype, int step, uint32_t changed) {
  const size_t each = dtype == TREADLE_FP32 ? 4 : 2;
  const uint64_t key = (uint64_t)step << 32 | (uint64_t)run->tensor;
  const int64_t start = run->start, stride = run->stride, count = run->count;
  for (int64_t k = 0; k < count; k++) {
    const uint64_t draw = treadle_hash_more(key, (uint64_t)(start + k * stride));
    if (treadle_mix64(draw) % CHANGES_MANY < changed) set(at + (size_t)k * each, dtype, value_of(draw));
  }
}

treadle_status changes_make(const treadle_layout *layout, int rank, uint8_t *window, int step,
                            uint32_t changed) {
  treadle_status status = TREADLE_OK;
  for (int32_t s = 0; s < treadle_layout_storage_count(layout, rank); s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    treadle_run *runs = NULL;
    size_t count;
    TRY(treadle_layout_storage(layout, rank, s, &info));
    if (info.dtype == TREADLE_FP8_E4M3) continue;
    TRY(treadle_layout_runs(layout, rank, s, &runs, &count));
    size_t each = info.dtype == TREADLE_FP32 ? 4 : 2;
    for (size_t i = 0; i < count; i++)
      if (runs[i].tensor >= 0)
        change(&runs[i], window + info.offset_bytes + (size_t)runs[i].local_start * each, info.dtype, step,
               changed);
    free(runs);
  }
out:
  return status;
}

bool changes_are_there(const treadle_switch *sw, const uint8_t *wanted) {
  const uint8_t *window = treadle_switch_infer_window(sw);
  const treadle_layout *layout = sw->layouts[TREADLE_INFER];
  int rank = sw->group->rank;
  for (int32_t s = 0; s < treadle_layout_storage_count(layout, rank); s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    if (treadle_layout_storage(layout, rank, s, &info) != TREADLE_OK) return false;
    if (info.bytes && memcmp(window + info.offset_bytes, wanted + info.offset_bytes, info.bytes) != 0)
      return false;
  }
  return true;
}
