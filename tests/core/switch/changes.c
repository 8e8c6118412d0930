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
      for (int64_t k = 0; runs[i].tensor >= 0 && k < runs[i].count; k++) {
        uint64_t element = (uint64_t)(runs[i].start + k * runs[i].stride);
        uint64_t draw = treadle_hash_more((uint64_t)step << 32 | (uint64_t)runs[i].tensor, element);
        if (treadle_mix64(draw) % CHANGES_MANY < changed)
          set(window + info.offset_bytes + (size_t)(runs[i].local_start + k) * each, info.dtype,
              value_of(draw));
      }
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
