/* A batch in mini batches, epoch after epoch. The iterator has a batch of its own of the same memory, and the order of one epoch. */
#include "base/argument.h"
#include "base/random.h"
#include "batch/batch.h"

struct treadle_batch_iterator {
  treadle_batch *batch;
  int64_t rows; /* of a mini batch */
  int64_t epoch, epochs;
  int64_t at;     /* rows of this epoch that were given */
  int64_t *order; /* [rows of the batch] of this epoch; NULL: their own */
  uint64_t seed;
};

/* Fisher and Yates, from the rows' own order: an epoch's order does not depend on those before it. */
static void shuffle(treadle_batch_iterator *iterator) {
  treadle_random random = {treadle_mix64(iterator->seed ^ treadle_mix64((uint64_t)iterator->epoch + 1))};
  int64_t rows = iterator->batch->rows, *order = iterator->order;
  for (int64_t r = 0; r < rows; r++) order[r] = r;
  for (int64_t left = rows; left > 1; left--) {
    int64_t with = treadle_random_below(&random, left), row = order[left - 1];
    order[left - 1] = order[with];
    order[with] = row;
  }
}

treadle_status treadle_batch_iterate_open(const treadle_batch *batch, int64_t rows, int64_t epochs,
                                          bool shuffled, uint64_t seed,
                                          treadle_batch_iterator **iterator_p) {
  treadle_status status;
  treadle_batch_iterator *made = NULL;
  TREADLE_NEED(iterator_p);
  *iterator_p = NULL;
  TREADLE_NEED(batch);
  if (rows < 1 || batch->rows % rows)
    REFUSE("mini batches of %lld rows: the batch has %lld, which is not a multiple", (long long)rows,
           (long long)batch->rows);
  if (epochs < 0) REFUSE("%lld epochs: 0 or more", (long long)epochs);
  made = treadle_alloc(sizeof *made);
  if (!made) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory to iterate over a batch"));
  *made = (treadle_batch_iterator){.rows = rows, .epochs = epochs, .seed = seed};
  TRY(treadle_batch_slice(batch, 0, batch->rows, &made->batch));
  if (shuffled) {
    made->order = treadle_alloc_array((size_t)batch->rows + 1, sizeof *made->order);
    if (!made->order)
      TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the order of %lld rows", (long long)batch->rows));
    shuffle(made);
  }
  *iterator_p = made;
  made = NULL;
out:
  treadle_batch_iterate_close(made);
  return status;
}

treadle_status treadle_batch_iterate_next(treadle_batch_iterator *iterator, treadle_batch **batch_p) {
  treadle_status status;
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  TREADLE_NEED(iterator);
  treadle_batch *batch = iterator->batch;
  if (iterator->epoch == iterator->epochs || batch->rows == 0) return TREADLE_OK;
  if (iterator->order)
    TRY(treadle_batch_index(batch, iterator->order + iterator->at, (size_t)iterator->rows, batch_p));
  else
    TRY(treadle_batch_slice(batch, iterator->at, iterator->at + iterator->rows, batch_p));
  iterator->at += iterator->rows;
  if (iterator->at < batch->rows) return TREADLE_OK;
  iterator->at = 0;
  if (++iterator->epoch < iterator->epochs && iterator->order) shuffle(iterator);
out:
  return status;
}

void treadle_batch_iterate_close(treadle_batch_iterator *iterator) {
  if (!iterator) return;
  treadle_batch_destroy(iterator->batch);
  treadle_free(iterator->order);
  treadle_free(iterator);
}
