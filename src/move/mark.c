/* What ops and bands write: the marks that coverage is the sum of, and bytes. */
#include "move/move.h"

#include "base/hash.h"

uint64_t treadle_op_mark(const treadle_op *op) {
  uint64_t mark = treadle_hash_more((uint64_t)op->to, op->to_dtype);
  for (int d = 0; d < op->ndim; d++) {
    mark = treadle_hash_more(mark, (uint64_t)op->size[d]);
    mark = treadle_hash_more(mark, (uint64_t)op->to_stride[d]);
  }
  return mark;
}

uint64_t treadle_band_mark(const treadle_band *band, const treadle_band_part *parts) {
  uint64_t mark =
      treadle_hash_more((uint64_t)band->code_rows << 32 | (uint32_t)band->code_columns, band->quantises);
  mark = treadle_hash_more(mark, (uint64_t)band->count);
  if (band->quantises) {
    mark = treadle_hash_more(mark, (uint64_t)band->code_step);
    mark = treadle_hash_more(mark, (uint64_t)band->scale_step);
    mark = treadle_hash_more(mark, (uint64_t)band->codes);
    mark = treadle_hash_more(mark, (uint64_t)band->code_stride);
    return treadle_hash_more(mark, (uint64_t)band->scales);
  }
  for (int64_t i = 0; i < band->parts; i++) {
    const treadle_op op = treadle_band_part_at(band, &parts[i], 0);
    mark = treadle_hash_more(mark, treadle_op_mark(&op));
    mark = treadle_hash_more(mark, (uint64_t)parts[i].step);
  }
  return mark;
}

int64_t treadle_band_written(const treadle_band *band, const treadle_band_part *parts) {
  int64_t bytes = 0;
  if (band->quantises)
    return band->count * ((int64_t)band->code_rows * band->code_columns +
                          treadle_band_blocks(band) * (int64_t)sizeof(float));
  for (int64_t i = 0; i < band->parts; i++)
    bytes += parts[i].op.elems * (int64_t)treadle_dtype_bytes((treadle_dtype)parts[i].op.to_dtype);
  return band->count * bytes;
}

int64_t treadle_band_moved(const treadle_band *band, const treadle_band_part *parts) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < band->parts; i++) bytes += parts[i].moved;
  return band->count * bytes;
}
