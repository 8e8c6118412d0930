#include "rl/calls_rows.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

treadle_status treadle_rl_rows_from(treadle_rl_batch *b, size_t from, int64_t **numbers_p,
                                    treadle_rl_rows *rows) {
  int64_t *numbers = treadle_alloc_array(b->samples.count + 1, sizeof *numbers);
  *numbers_p = numbers;
  if (!numbers) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu samples", b->samples.count);
  for (size_t i = 0; i < b->samples.count; i++) numbers[i] = (int64_t)i;
  *rows = (treadle_rl_rows){.batch = b, .samples = numbers + from, .count = b->samples.count - from};
  return b->columns ? TREADLE_OK : treadle_rl_set_columns(b);
}

treadle_status treadle_rl_choose(const treadle_rl_rows *rows, treadle_rl_rows_choice *c) {
  *c = (treadle_rl_rows_choice){.batch = rows->batch,
                                .rows = treadle_alloc_array(rows->count + 1, sizeof *c->rows)};
  if (!c->rows) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu rows", rows->count);
  for (size_t i = 0; i < rows->count; i++)
    if (rows->batch->samples.items[rows->samples[i]].count) c->rows[c->count++] = rows->samples[i];
  return TREADLE_OK;
}

/* Tokens of each row, prompt and answer. */
static treadle_status find_lengths(const treadle_rl_rows_choice *c, int64_t **lengths_p) {
  int64_t *lengths = treadle_alloc_array(c->count + 1, sizeof *lengths);
  *lengths_p = lengths;
  if (!lengths) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the lengths of %zu rows", c->count);
  for (size_t i = 0; i < c->count; i++) {
    const treadle_rl_made *sample = &c->batch->samples.items[c->rows[i]];
    lengths[i] = (int64_t)(sample->prompt->count + sample->count);
  }
  return TREADLE_OK;
}

treadle_status treadle_rl_call_rows(treadle_rl_workers *workers, const char *method,
                                    const treadle_rl_rows_choice *c, const char *const *names,
                                    size_t count) {
  enum { NAMES = 16 };
  treadle_worker_group *group = &workers->group;
  const int ranks = treadle_worker_group_ranks(group);
  const char *all[NAMES];
  treadle_row_range *by_rank = treadle_alloc_array((size_t)ranks, sizeof *by_rank);
  treadle_worker_rows rows = {
      .rows = {.batch = c->batch->columns, .names = all, .rows = c->rows, .row_count = c->count},
      .by_rank = by_rank};
  treadle_rl_rows_shares shares = {.method = method, .by_rank = by_rank};
  int64_t *lengths = NULL;
  bool forms = false;
  treadle_status status = TREADLE_OK;
  assert(count < NAMES);
  if (!by_rank) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the rows of %d ranks", ranks));
  TRY(find_lengths(c, &lengths));
  shares.lengths = lengths;
  TRY(workers->divide(group->worker, method, lengths, (int64_t)c->count, by_rank, &shares.forward));
  TRY(treadle_rl_balance(workers, c, &shares, &forms));
  memcpy(all, names, count * sizeof *all);
  if (forms) all[count++] = "micro_batch";
  rows.rows.count = count;
  TRY(treadle_worker_group_call_rows(group, method, &workers->in, &rows, &workers->out));
out:
  if (forms) treadle_batch_remove(c->batch->columns, "micro_batch");
  treadle_free(lengths);
  treadle_free(by_rank);
  return status;
}

/* Values, or records of experts, of rows from `first` on of those that were chosen, each to its place in the batch. */
static treadle_status place(const treadle_rl_rows_choice *c, size_t first, const treadle_batch *out,
                            const treadle_rl_answer_column *w) {
  const size_t rows = (size_t)treadle_batch_rows(out), each = w->records ? 1 : sizeof *w->values;
  const treadle_column_type type = w->records ? TREADLE_COLUMN_BYTES : TREADLE_COLUMN_FP32;
  char *to = w->records ? (char *)w->records : (char *)w->values;
  treadle_column column = TREADLE_INIT(treadle_column);
  treadle_status status;
  TRY(treadle_batch_column(out, w->name, &column));
  for (size_t r = 0; r < rows; r++) {
    const treadle_rl_made *s = &c->batch->samples.items[c->rows[first + r]];
    const size_t wanted = w->records ? s->experts_bytes : s->count,
                 begin = w->records ? s->experts_first : s->first;
    const int64_t count = column.offsets ? column.offsets[r + 1] - column.offsets[r] : 0;
    if (column.type != type || count != (int64_t)wanted)
      REFUSE("the train engine gives %lld %s for row %zu, which has %zu %s", (long long)count, w->name,
             first + r, wanted, w->records ? "bytes of them" : "tokens");
    if (wanted)
      memcpy(to + begin * each, (const char *)column.data + (size_t)column.offsets[r] * each,
             wanted * each);
  }
out:
  return status;
}

/* Numbers of rows from `first` on, each to its sample; engines that know no experts need not have them. */
static treadle_status place_by_row(const treadle_rl_rows_choice *c, size_t first, const treadle_batch *out,
                                   const char *name, int64_t *by_row) {
  const size_t rows = (size_t)treadle_batch_rows(out);
  treadle_column column = TREADLE_INIT(treadle_column);
  treadle_status status = TREADLE_OK;
  if (!treadle_batch_has(out, name)) return TREADLE_OK;
  TRY(treadle_batch_column(out, name, &column));
  if (column.type != TREADLE_COLUMN_INT64 || column.offsets || column.width != 1)
    REFUSE("the train engine's %s is not int64, one a row", name);
  for (size_t r = 0; r < rows; r++) by_row[c->rows[first + r]] = ((const int64_t *)column.data)[r];
out:
  return status;
}

/* What a rank has found of its rows. has [count]: those that some rank has answered. */
static treadle_status take_answer(const treadle_rl_rows_choice *c, treadle_message *answer,
                                  const treadle_rl_answer_column *wanted, bool *has) {
  treadle_batch *out = NULL;
  int64_t first;
  treadle_status status;
  TRY(treadle_message_int(answer, "first row", &first));
  TRY(treadle_message_batch(answer, &out));
  const int64_t rows = treadle_batch_rows(out);
  if (!treadle_batch_has(out, wanted[0].name)) goto out;
  if (first < 0 || (size_t)first > c->count || (size_t)rows > c->count - (size_t)first)
    TRY(treadle_fail(TREADLE_PEER, "a rank answers rows %lld to %lld of %zu", (long long)first,
                     (long long)(first + rows), c->count));
  for (const treadle_rl_answer_column *w = wanted; w->name; w++)
    if (w->values || w->records)
      TRY(place(c, (size_t)first, out, w));
    else if (w->by_row)
      TRY(place_by_row(c, (size_t)first, out, w->name, w->by_row));
  memset(has + first, true, (size_t)rows);
out:
  treadle_batch_destroy(out);
  return status;
}

treadle_status treadle_rl_take_answers(treadle_rl_workers *workers, const treadle_rl_rows_choice *c,
                                       const treadle_rl_answer_column *wanted, treadle_message *rest_p) {
  treadle_worker_group *group = &workers->group;
  const int ranks = treadle_worker_group_ranks(group);
  bool *has = treadle_alloc_array(c->count + 1, sizeof *has);
  treadle_status status = TREADLE_OK;
  if (!has) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for answers to %zu rows", c->count));
  for (int rank = 0; rank < ranks; rank++) {
    treadle_message answer = treadle_worker_group_answer(group, rank, &workers->out);
    TRY(take_answer(c, &answer, wanted, has));
    if (rank == 0) *rest_p = answer;
  }
  for (size_t i = 0; i < c->count; i++)
    if (!has[i])
      TRY(treadle_fail(TREADLE_REFUSED, "no rank of the train engine answers row %zu of %zu", i, c->count));
out:
  treadle_free(has);
  return status;
}
