/* Rows that fill a batch up to a multiple, and are taken off again. They are its own first rows, so that whatever reads them finds nothing that it
 * would not find in a row that counts. */
#include "base/argument.h"
#include "base/limits.h"
#include "batch/batch.h"

treadle_status treadle_batch_pad_to_divisor(const treadle_batch *batch, int64_t divisor,
                                            treadle_batch **batch_p, int64_t *padding_p) {
  treadle_status status;
  int64_t *rows = NULL;
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  TREADLE_NEED(padding_p);
  *padding_p = 0;
  TREADLE_NEED(batch);
  if (divisor < 1 || divisor > TREADLE_MAX_ROWS)
    REFUSE("a divisor of %lld: 1 to %lld", (long long)divisor, (long long)TREADLE_MAX_ROWS);
  int64_t padding = batch->rows % divisor ? divisor - batch->rows % divisor : 0,
          all = batch->rows + padding;
  if (padding == 0) return treadle_batch_slice(batch, 0, batch->rows, batch_p);
  if (all > TREADLE_MAX_ROWS)
    REFUSE("%lld rows and %lld of padding: at most %lld", (long long)batch->rows, (long long)padding,
           (long long)TREADLE_MAX_ROWS);
  rows = treadle_alloc_array((size_t)all, sizeof *rows);
  if (!rows) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the numbers of %lld rows", (long long)all));
  for (int64_t r = 0; r < all; r++) rows[r] = r % batch->rows;
  TRY(treadle_batch_index(batch, rows, (size_t)all, batch_p));
  *padding_p = padding;
out:
  treadle_free(rows);
  return status;
}

treadle_status treadle_batch_unpad(const treadle_batch *batch, int64_t padding, treadle_batch **batch_p) {
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  TREADLE_NEED(batch);
  if (padding < 0 || padding > batch->rows)
    REFUSE("%lld rows of padding: the batch has %lld", (long long)padding, (long long)batch->rows);
  return treadle_batch_slice(batch, 0, batch->rows - padding, batch_p);
}
