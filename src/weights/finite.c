#include "weights/finite.h"

#include "base/dtype.h"
#include "base/sized.h"

/* The first of `count` values that is infinite or no number, whose exponent is all ones; -1: none. */
static int64_t first_odd(const char *values, int64_t count, treadle_dtype dtype) {
  const uint16_t *narrow = (const uint16_t *)(const void *)values,
                 most = dtype == TREADLE_BF16 ? 0x7f80 : 0x7c00; /* the exponent */
  const uint32_t *wide = (const uint32_t *)(const void *)values;
  if (dtype > TREADLE_FP16) return -1;
  for (int64_t i = 0; i < count; i++)
    if (dtype == TREADLE_FP32 ? (wide[i] & 0x7f800000) == 0x7f800000 : (narrow[i] & most) == most) return i;
  return -1;
}

treadle_status treadle_window_check_finite(const treadle_layout *layout, int64_t rank, const char *what,
                                           const char *window) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  treadle_status status = TREADLE_OK;
  for (int32_t s = 0, count = treadle_layout_storage_count(layout, rank); s < count; s++) {
    TRY(treadle_layout_storage(layout, rank, s, &info));
    int64_t odd = first_odd(window + info.offset_bytes,
                            (int64_t)(info.bytes / (size_t)treadle_dtype_bytes(info.dtype)), info.dtype);
    if (odd >= 0)
      REFUSE("%s: element %lld of '%s' is infinite or no number", what, (long long)odd, info.name);
  }
out:
  return status;
}
