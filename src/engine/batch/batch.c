/* Batches as a whole: they are made, counted and ended. */
#include "batch/batch.h"
#include "base/argument.h"
#include "base/limits.h"

treadle_status treadle_batch_create(int64_t rows, treadle_batch **batch_p) {
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  if (rows < 0 || rows > TREADLE_MAX_ROWS)
    REFUSE("a batch has 0 to %lld rows, not %lld", (long long)TREADLE_MAX_ROWS, (long long)rows);
  treadle_batch *batch = treadle_alloc(sizeof *batch);
  if (!batch) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a batch");
  batch->rows = rows;
  *batch_p = batch;
  return TREADLE_OK;
}

void treadle_batch_destroy(treadle_batch *batch) {
  if (!batch) return;
  for (size_t i = 0; i < batch->columns.count; i++) treadle_entry_release(&batch->columns.items[i]);
  treadle_array_release(&batch->columns);
  treadle_batch_meta_release(batch);
  treadle_free(batch);
}

int64_t treadle_batch_rows(const treadle_batch *batch) {
  TREADLE_NEED_OR(batch, -1);
  return batch->rows;
}

int32_t treadle_batch_column_count(const treadle_batch *batch) {
  TREADLE_NEED_OR(batch, -1);
  return (int32_t)batch->columns.count;
}
