#include "train/coordinate.h"

#include "base/alloc.h"
#include "base/status.h"

#include <string.h>

/* Tokens of each row, with its prompt. */
static treadle_status measure(const treadle_batch *batch, int64_t *lengths) {
  static const char *const names[] = {"ids", "prompt_ids"};
  const int64_t rows = treadle_batch_rows(batch);
  treadle_status status = TREADLE_OK;
  memset(lengths, 0, (size_t)rows * sizeof *lengths);
  for (int i = 0; i < 2; i++) {
    treadle_column column = TREADLE_INIT(treadle_column);
    if (i == 1 && !treadle_batch_has(batch, names[i])) break;
    TRY(treadle_batch_column(batch, names[i], &column));
    if (!column.offsets) REFUSE("column '%s' is not ragged", names[i]);
    for (int64_t r = 0; r < rows; r++) lengths[r] += column.offsets[r + 1] - column.offsets[r];
  }
out:
  return status;
}

treadle_status treadle_coordinate_slice(const treadle_coordinate *c, const treadle_batch *batch,
                                        const treadle_forward_options *forward, treadle_row_range *range_p,
                                        treadle_batch **mine_p) {
  const int64_t rows = treadle_batch_rows(batch);
  int64_t *lengths = treadle_alloc_array((size_t)rows + 1, sizeof *lengths);
  treadle_row_range *by_rank = treadle_alloc_array((size_t)c->ranks, sizeof *by_rank);
  treadle_status status = TREADLE_OK;
  *mine_p = NULL;
  if (!lengths || !by_rank)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the lengths of %lld rows", (long long)rows));
  TRY(measure(batch, lengths));
  TRY(c->engine->coordinate_of(c->engine->engine, lengths, rows, forward, by_rank));
  TRY(treadle_batch_slice(batch, by_rank[c->rank].first, by_rank[c->rank].end, mine_p));
  if (range_p) *range_p = by_rank[c->rank];
out:
  treadle_free(lengths);
  treadle_free(by_rank);
  return status;
}
