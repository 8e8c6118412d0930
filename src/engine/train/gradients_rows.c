/* Rows of a batch: what they may be, and how they are divided. */
#include "train/gradients.h"

#include "base/argument.h"
#include "base/text.h"

#include <string.h>

/* ---- What rows may be ---------------------------------------------------------------------------------- */

static treadle_status check_row(const treadle_trainer *t, const treadle_train_row *row, size_t number) {
  const treadle_transformer *d = t->transformer;
  if (row->count < 2)
    return treadle_fail(TREADLE_REFUSED, "row %zu: %s; 2 are the least", number,
                        treadle_text_of_count((int64_t)row->count, "token"));
  if ((int64_t)row->count > t->pass->options.most_positions)
    return treadle_fail(TREADLE_REFUSED, "row %zu: %zu tokens; at most %lld", number, row->count,
                        (long long)t->pass->options.most_positions);
  for (size_t i = 0; i < row->count; i++)
    if (row->ids[i] < 0 || row->ids[i] >= d->vocabulary)
      return treadle_fail(TREADLE_REFUSED, "row %zu: token %zu is %d; the vocabulary has 0 to %lld", number,
                          i, row->ids[i], (long long)d->vocabulary - 1);
  if (row->mask[0]) return treadle_fail(TREADLE_REFUSED, "row %zu: its first token cannot count", number);
  return TREADLE_OK;
}

int64_t treadle_train_counted(const treadle_train_row *row) {
  int64_t counted = 0;
  for (size_t i = 1; i < row->count; i++) counted += row->mask[i] != 0;
  return counted;
}

/* What a row shares is the whole that the row before it shares, and neither of them has tokens in it that count. */
static treadle_status check_shared(const treadle_train_work *w, size_t number) {
  const treadle_train_row *row = &w->rows[number], *before = number ? row - 1 : NULL;
  const int64_t shared = w->shared[number];
  if (!shared) return TREADLE_OK;
  if (!before || shared < 1 || shared > (int64_t)row->count || shared > (int64_t)before->count ||
      (w->shared[number - 1] && w->shared[number - 1] != shared))
    REFUSE("row %zu shares %lld tokens with the row before it: 1 to what both have, and as many as that "
           "one shares",
           number, (long long)shared);
  if (memcmp(row->ids, before->ids, (size_t)shared * sizeof *row->ids) != 0)
    REFUSE("row %zu shares %lld tokens with the row before it, and they are others", number,
           (long long)shared);
  for (int64_t i = 0; i < shared; i++)
    if (row->mask[i] || before->mask[i])
      REFUSE("row %zu shares %lld tokens, and token %lld counts", number, (long long)shared, (long long)i);
  return TREADLE_OK;
}

/* ---- Micro batches ---------------------------------------------------------------------------------------- */

size_t treadle_train_rows_from(const treadle_train_work *w, size_t first) {
  size_t end = first, most = w->micro_batch_size ? w->micro_batch_size : w->count;
  int64_t tokens = 0;
  while (end < w->count && end - first < most) {
    tokens += (int64_t)w->rows[end].count;
    if (w->max_tokens && tokens > w->max_tokens && end > first) break;
    end++;
  }
  return end - first;
}

size_t treadle_train_first_of(const treadle_train_work *w, int64_t number) {
  size_t first = 0;
  if (w->micro_batch_size) return (size_t)number * w->micro_batch_size;
  while (number-- > 0 && first < w->count) first += treadle_train_rows_from(w, first);
  return first;
}

static int64_t count_batches(const treadle_train_work *w) {
  int64_t batches = 0;
  for (size_t first = 0; first < w->count; first += treadle_train_rows_from(w, first)) batches++;
  return batches;
}

static treadle_status check_batch(const treadle_train_work *w, size_t first, size_t count) {
  int64_t tokens = 0, all = 0;
  for (size_t r = first; r < first + count; r++) {
    tokens += (int64_t)w->rows[r].count - 1;
    all += (int64_t)w->rows[r].count;
  }
  if (w->max_tokens && all > w->max_tokens)
    REFUSE("row %zu has %lld tokens, and a micro batch at most %lld", first, (long long)all,
           (long long)w->max_tokens);
  if ((int64_t)count > w->t->most_sequences)
    REFUSE("rows %zu to %zu, a micro batch, are %zu; at most %lld", first, first + count - 1, count,
           (long long)w->t->most_sequences);
  if (tokens > w->t->rows)
    REFUSE("rows %zu to %zu, a micro batch, have %lld tokens; at most %lld", first, first + count - 1,
           (long long)tokens, (long long)w->t->rows);
  return TREADLE_OK;
}

treadle_status treadle_train_check_rows(const treadle_train_work *w, int64_t *tokens_p) {
  treadle_status status = TREADLE_OK;
  *tokens_p = 0;
  for (size_t r = 0; r < w->count; r++) {
    TRY(check_row(w->t, &w->rows[r], r));
    if (w->shared) TRY(check_shared(w, r));
    *tokens_p += treadle_train_counted(&w->rows[r]);
  }
  if (!*tokens_p && !w->policy) REFUSE("no token of %zu rows counts", w->count);
  for (size_t first = 0; first < w->count; first += treadle_train_rows_from(w, first))
    TRY(check_batch(w, first, treadle_train_rows_from(w, first)));
out:
  return status;
}

/* Is there memory for this many micro batches under way? */
static treadle_status check_pipeline(const treadle_train_work *w) {
  treadle_pipeline pipeline = w->t->pipeline;
  treadle_pipeline_memory needs;
  treadle_status status;
  pipeline.micro_batches = w->micro_batches;
  TRY(treadle_pipeline_play(&pipeline, w->t->stage, &needs));
  if (needs.kept > w->t->kept_count || (pipeline.stages > 1 && needs.slots > w->t->ranks.room.slots))
    REFUSE("a step of %d micro batches keeps %d of them at a time; the trainer was made for %lld "
           "(most_micro_batches %d)",
           w->micro_batches, needs.kept, (long long)w->t->kept_count, w->t->pipeline.micro_batches);
out:
  return status;
}

treadle_status treadle_train_take_share(treadle_train_work *w) {
  int64_t rank = w->t->data_rank, ranks = w->t->data_ranks, batches = count_batches(w);
  int64_t first = batches * rank / ranks, end = batches * (rank + 1) / ranks;
  size_t from = treadle_train_first_of(w, first), to = treadle_train_first_of(w, end);
  w->most_batches = (int32_t)((batches + ranks - 1) / ranks);
  w->rows += from;
  w->from = from;
  if (w->shared) w->shared += from;
  w->count = (to < w->count ? to : w->count) - from;
  w->micro_batches = (int32_t)(end - first);
  return w->backward ? check_pipeline(w) : TREADLE_OK;
}

void treadle_train_number_tokens(treadle_train_work *w) {
  size_t number = 0;
  for (size_t r = 0; r < w->count; r++) {
    w->numbers[r] = number;
    number += (size_t)treadle_train_counted(&w->rows[r]);
  }
  w->numbers[w->count] = number;
}
