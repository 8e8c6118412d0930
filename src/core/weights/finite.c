#include "weights/finite.h"

#include "base/dtype.h"
#include "base/finite.h"
#include "base/sized.h"

treadle_status treadle_window_check_finite(const treadle_layout *layout, int64_t rank, const char *what,
                                           const char *window) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  treadle_status status = TREADLE_OK;
  for (int32_t s = 0, count = treadle_layout_storage_count(layout, rank); s < count; s++) {
    TRY(treadle_layout_storage(layout, rank, s, &info));
    if (info.dtype > TREADLE_FP16) continue;
    int64_t odd = treadle_first_not_finite(
        window + info.offset_bytes, (int64_t)(info.bytes / treadle_dtype_bytes(info.dtype)), info.dtype);
    if (odd >= 0)
      REFUSE("%s: element %lld of '%s' is infinite or no number", what, (long long)odd, info.name);
  }
out:
  return status;
}
