/* Batches to workers, and back. A worker's rows lie beside each other, so that it gets a slice; only a chunk with padding is copied. */
#include "control/dispatch.h"

#include "base/alloc.h"
#include "base/argument.h"

/* ---- To workers ---- */

/* The rows of a chunk that ends with padding. */
static treadle_status copy_padded(const treadle_dispatch *dispatch, const treadle_dispatch_share *share,
                                  const treadle_batch *batch, treadle_batch **part_p) {
  treadle_status status;
  int64_t count = share->rows.end - share->rows.first,
          *rows = treadle_alloc_array((size_t)count + 1, sizeof *rows);
  if (!rows)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the numbers of %lld rows", (long long)count);
  for (int64_t i = 0; i < count; i++)
    rows[i] = i < count - share->padding ? share->rows.first + i : dispatch->info.pad_row;
  status = treadle_batch_index(batch, rows, (size_t)count, part_p);
  treadle_free(rows);
  return status;
}

static treadle_status give(const treadle_dispatch *dispatch, const treadle_dispatch_share *share,
                           const treadle_batch *batch, treadle_batch **part_p) {
  if (share->whole) return treadle_batch_slice(batch, 0, treadle_batch_rows(batch), part_p);
  if (share->padding) return copy_padded(dispatch, share, batch, part_p);
  return treadle_batch_slice(batch, share->rows.first, share->rows.end, part_p);
}

treadle_status treadle_dispatch_batch(const treadle_dispatch *dispatch, size_t argument,
                                      const treadle_batch *batch, treadle_batch **parts) {
  treadle_status status = TREADLE_OK;
  TREADLE_NEED(dispatch);
  TREADLE_NEED(parts);
  for (int32_t w = 0; w < dispatch->info.workers; w++) parts[w] = NULL;
  TREADLE_NEED(batch);
  if (argument >= dispatch->argument_count)
    REFUSE("argument %zu; the call has %zu", argument, dispatch->argument_count);
  const treadle_dispatch_argument *a = &dispatch->arguments[argument];
  if (a->kind != TREADLE_ARGUMENT_BATCH) REFUSE("argument %zu of the call is not a batch", argument);
  if (a->length != treadle_batch_rows(batch))
    REFUSE("argument %zu of the call has %lld rows, this batch %lld", argument, (long long)a->length,
           (long long)treadle_batch_rows(batch));
  for (int32_t w = 0; w < dispatch->info.workers; w++)
    if (dispatch->shares[w].runs) TRY(give(dispatch, &dispatch->shares[w], batch, &parts[w]));
out:
  for (int32_t w = 0; status && w < dispatch->info.workers; w++) {
    treadle_batch_destroy(parts[w]);
    parts[w] = NULL;
  }
  return status;
}

/* ---- Back ---- */

/* A worker's result without the padding that it was given. */
static treadle_status take(const treadle_dispatch *dispatch, int32_t worker, const treadle_batch *result,
                           bool padded, treadle_batch **taken_p) {
  const treadle_dispatch_share *share = &dispatch->shares[worker];
  int64_t rows, given = share->rows.end - share->rows.first;
  if (!result) REFUSE("worker %d gave nothing back (NULL)", worker);
  rows = treadle_batch_rows(result);
  if (padded && rows != given)
    REFUSE("worker %d gave %lld rows back for %lld: among them are rows of padding, and nothing says which",
           worker, (long long)rows, (long long)given);
  return treadle_batch_slice(result, 0, padded ? rows - share->padding : rows, taken_p);
}

static void release(treadle_batch **batches, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    treadle_batch_destroy(batches[i]);
    batches[i] = NULL;
  }
}

/* All that is collected as one, in place of the first. */
static treadle_status join(treadle_batch **taken, int32_t *count) {
  treadle_batch *made;
  treadle_status status = treadle_batch_concat((const treadle_batch *const *)taken, (size_t)*count, &made);
  release(taken, *count);
  *count = 0;
  if (status == TREADLE_OK) taken[(*count)++] = made;
  return status;
}

static treadle_status by_function(const treadle_dispatch *dispatch, const treadle_batch *const *results,
                                  treadle_batch **collected, int32_t *count_p) {
  int32_t workers = dispatch->info.workers, count = 0;
  treadle_status status =
      dispatch->functions.collect(dispatch->functions.context, results, workers, collected, &count);
  if (status != TREADLE_OK) return status;
  if (count < 0 || count > workers)
    REFUSE("the function that collects gave %d batches; there are %d workers", count, workers);
  *count_p = count;
  return TREADLE_OK;
}

treadle_status treadle_dispatch_collect(const treadle_dispatch *dispatch,
                                        const treadle_batch *const *results, treadle_batch **collected,
                                        int32_t *count_p) {
  treadle_status status = TREADLE_OK;
  int32_t count = 0;
  TREADLE_NEED(count_p);
  *count_p = 0;
  TREADLE_NEED(dispatch);
  TREADLE_NEED(results);
  TREADLE_NEED(collected);
  for (int32_t w = 0; w < dispatch->info.workers; w++) collected[w] = NULL;
  if (dispatch->info.custom) return by_function(dispatch, results, collected, count_p);
  bool padded = dispatch->info.padding > 0 && dispatch->concatenated;
  for (int32_t w = 0; w < dispatch->info.workers; w++) {
    if (!dispatch->shares[w].collected) continue;
    TRY(take(dispatch, w, results[w], padded, &collected[count]));
    count++;
  }
  if (dispatch->concatenated) TRY(join(collected, &count));
  *count_p = count;
out:
  if (status) release(collected, count);
  return status;
}
