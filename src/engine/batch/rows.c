/* Batches of some columns or some rows of another one. Runs of rows share memory; rows by number are copied. */
#include "base/argument.h"
#include "base/limits.h"
#include "base/text.h"
#include "batch/batch.h"

#include <string.h>

/* ---- A batch of another one's rows --------------------------------------------------------------- */

/* Row `r` of the outcome is row numbers(r). */
typedef struct row_numbers {
  const int64_t *rows; /* NULL: by the others */
  int64_t of, times;   /* rows of the batch; how often each comes in a row, or all of them come */
  bool interleaved;
  bool shared; /* all from row `begin` on, which share their memory */
  int64_t begin;
} row_numbers;

static int64_t number(const row_numbers *n, int64_t r) {
  return n->rows ? n->rows[r] : n->interleaved ? r / n->times : r % n->of;
}

static treadle_status gather(const treadle_batch_entry *from, const row_numbers *numbers, int64_t rows,
                             treadle_batch_entry *entry_p) {
  treadle_status status;
  size_t each = treadle_column_about_of(from->type)->bytes;
  int64_t values = 0, *offsets;
  for (int64_t r = 0; r < rows; r++) {
    values += treadle_entry_count(from, number(numbers, r));
    if (values > TREADLE_MAX_ELEMS)
      REFUSE("column '%s': more than %lld values", from->name, (long long)TREADLE_MAX_ELEMS);
  }
  TRY(treadle_entry_make(from->name, from->type, from->width, rows, values, entry_p, &offsets));
  char *to = entry_p->data;
  for (int64_t r = 0; r < rows; r++) {
    int64_t row = number(numbers, r), count = treadle_entry_count(from, row);
    memcpy(to, treadle_entry_data(from, row), (size_t)count * each);
    to += (size_t)count * each;
    if (offsets) offsets[r + 1] = offsets[r] + count;
  }
out:
  return status;
}

/* Column `number` of a batch, or the one that is called names[number] and that `made` does not have yet. */
static treadle_status pick(const treadle_batch *batch, const char *const *names, size_t number,
                           const treadle_batch *made, treadle_batch_entry **from_p) {
  if (!names) {
    *from_p = &batch->columns.items[number];
    return TREADLE_OK;
  }
  const char *name = names[number];
  if (!name) return treadle_refuse_null("treadle_batch_select", "name");
  if (treadle_batch_find(made, name)) REFUSE("column '%s' is selected twice", name);
  return treadle_batch_need(batch, name, from_p);
}

/* names [count]: its columns; NULL: all, and `count` says how many. */
static treadle_status make(const treadle_batch *batch, const char *const *names, size_t count,
                           const row_numbers *numbers, int64_t rows, treadle_batch **batch_p) {
  treadle_status status;
  treadle_batch *made = NULL;
  TRY(treadle_batch_create(rows, &made));
  for (size_t i = 0; i < count; i++) {
    treadle_batch_entry *from, entry;
    TRY(pick(batch, names, i, made, &from));
    TRY(numbers->shared ? treadle_entry_share(from, numbers->begin, &entry)
                        : gather(from, numbers, rows, &entry));
    TRY(treadle_batch_take(made, &entry));
  }
  TRY(treadle_batch_meta_copy(made, batch));
  *batch_p = made;
  made = NULL;
out:
  treadle_batch_destroy(made);
  return status;
}

static treadle_status make_all(const treadle_batch *batch, const row_numbers *numbers, int64_t rows,
                               treadle_batch **batch_p) {
  return make(batch, NULL, batch->columns.count, numbers, rows, batch_p);
}

/* ---- Without a copy ---------------------------------------------------------------------------- */

treadle_status treadle_batch_select(const treadle_batch *batch, const char *const *names, size_t count,
                                    treadle_batch **batch_p) {
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  TREADLE_NEED(batch);
  if (count) TREADLE_NEED(names);
  return make(batch, names, count, &(row_numbers){.shared = true}, batch->rows, batch_p);
}

treadle_status treadle_batch_slice(const treadle_batch *batch, int64_t begin, int64_t end,
                                   treadle_batch **batch_p) {
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  TREADLE_NEED(batch);
  if (begin < 0 || end < begin || end > batch->rows)
    REFUSE("rows %lld up to %lld: the batch has %lld", (long long)begin, (long long)end,
           (long long)batch->rows);
  return make_all(batch, &(row_numbers){.shared = true, .begin = begin}, end - begin, batch_p);
}

static treadle_status check_counts(const treadle_batch *batch, const int64_t *counts, size_t count) {
  int64_t sum = 0;
  for (size_t i = 0; i < count; i++) {
    if (counts[i] < 0 || counts[i] > batch->rows - sum)
      REFUSE("part %zu of %lld rows: the batch has %lld, and %lld are taken", i, (long long)counts[i],
             (long long)batch->rows, (long long)sum);
    sum += counts[i];
  }
  if (sum != batch->rows)
    REFUSE("the parts have %lld rows together, the batch %lld", (long long)sum, (long long)batch->rows);
  return TREADLE_OK;
}

/* Parts of counts [count] rows each; NULL: all of `each`. On failure all are NULL. */
static treadle_status cut(const treadle_batch *batch, const int64_t *counts, int64_t each, size_t count,
                          treadle_batch **parts) {
  treadle_status status = TREADLE_OK;
  int64_t at = 0;
  for (size_t i = 0; i < count; i++) {
    int64_t rows = counts ? counts[i] : each;
    TRY(treadle_batch_slice(batch, at, at + rows, &parts[i]));
    at += rows;
  }
out:
  for (size_t i = 0; status && i < count; i++) {
    treadle_batch_destroy(parts[i]);
    parts[i] = NULL;
  }
  return status;
}

treadle_status treadle_batch_split(const treadle_batch *batch, const int64_t *counts, size_t count,
                                   treadle_batch **parts) {
  treadle_status status;
  if (count > TREADLE_MAX_ROWS) REFUSE("%zu parts; at most %lld", count, (long long)TREADLE_MAX_ROWS);
  if (count) TREADLE_NEED(parts);
  for (size_t i = 0; i < count; i++) parts[i] = NULL;
  TREADLE_NEED(batch);
  if (count) TREADLE_NEED(counts);
  TRY(check_counts(batch, counts, count));
  TRY(cut(batch, counts, 0, count, parts));
out:
  return status;
}

treadle_status treadle_batch_chunk(const treadle_batch *batch, size_t count, treadle_batch **parts) {
  if (count > TREADLE_MAX_ROWS) REFUSE("%zu parts; at most %lld", count, (long long)TREADLE_MAX_ROWS);
  if (count) TREADLE_NEED(parts);
  for (size_t i = 0; i < count; i++) parts[i] = NULL;
  TREADLE_NEED(batch);
  if (count == 0 || batch->rows % (int64_t)count) /* verl's words */
    REFUSE("only support equal chunk: %lld rows do not divide into %zu parts; treadle_batch_split takes "
           "counts",
           (long long)batch->rows, count);
  return cut(batch, NULL, batch->rows / (int64_t)count, count, parts);
}

/* ---- Rows by number ---------------------------------------------------------------------------- */

treadle_status treadle_batch_index(const treadle_batch *batch, const int64_t *rows, size_t count,
                                   treadle_batch **batch_p) {
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  TREADLE_NEED(batch);
  if (count) TREADLE_NEED(rows);
  if (count > TREADLE_MAX_ROWS) REFUSE("%zu rows; at most %lld", count, (long long)TREADLE_MAX_ROWS);
  for (size_t i = 0; i < count; i++)
    if (rows[i] < 0 || rows[i] >= batch->rows)
      REFUSE("number %zu: row %lld; the batch has %lld", i, (long long)rows[i], (long long)batch->rows);
  return make_all(batch, &(row_numbers){.rows = rows}, (int64_t)count, batch_p);
}

treadle_status treadle_batch_index_mask(const treadle_batch *batch, const bool *mask, size_t count,
                                        treadle_batch **batch_p) {
  treadle_status status;
  int64_t *rows = NULL;
  size_t kept = 0;
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  TREADLE_NEED(batch);
  if (count != (size_t)batch->rows)
    REFUSE("a mask of %zu rows; the batch has %lld", count, (long long)batch->rows);
  if (count) TREADLE_NEED(mask);
  rows = treadle_alloc_array(count + 1, sizeof *rows);
  if (!rows) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the numbers of %zu rows", count));
  for (size_t i = 0; i < count; i++)
    if (mask[i]) rows[kept++] = (int64_t)i;
  TRY(treadle_batch_index(batch, rows, kept, batch_p));
out:
  treadle_free(rows);
  return status;
}

treadle_status treadle_batch_repeat(const treadle_batch *batch, int64_t times, bool interleaved,
                                    treadle_batch **batch_p) {
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  TREADLE_NEED(batch);
  if (times < 1 || times > TREADLE_MAX_ROWS || batch->rows > TREADLE_MAX_ROWS / times)
    REFUSE("%lld rows, %lld times: at least once, and at most %lld rows in all", (long long)batch->rows,
           (long long)times, (long long)TREADLE_MAX_ROWS);
  return make_all(batch, &(row_numbers){.of = batch->rows, .times = times, .interleaved = interleaved},
                  batch->rows * times, batch_p);
}

/* The rows 0, 0, .. 1, ..: row r counts[r] times. */
static treadle_status list_repeated(const treadle_batch *batch, const int64_t *counts, int64_t **rows_p,
                                    int64_t *count_p) {
  int64_t sum = 0, *rows, at = 0;
  for (int64_t r = 0; r < batch->rows; r++) {
    if (counts[r] < 0 || counts[r] > TREADLE_MAX_ROWS - sum)
      REFUSE("row %lld, %lld times after %lld rows: at least 0 times, and at most %lld rows in all",
             (long long)r, (long long)counts[r], (long long)sum, (long long)TREADLE_MAX_ROWS);
    sum += counts[r];
  }
  rows = treadle_alloc_array((size_t)sum + 1, sizeof *rows);
  if (!rows)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the numbers of %lld rows", (long long)sum);
  for (int64_t r = 0; r < batch->rows; r++)
    for (int64_t i = 0; i < counts[r]; i++) rows[at++] = r;
  *rows_p = rows;
  *count_p = sum;
  return TREADLE_OK;
}

treadle_status treadle_batch_sample_level_repeat(const treadle_batch *batch, const int64_t *counts,
                                                 size_t count, treadle_batch **batch_p) {
  treadle_status status;
  int64_t *rows = NULL, total = 0;
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  TREADLE_NEED(batch);
  if (count != (size_t)batch->rows)
    REFUSE("%zu counts; the batch has %lld rows", count, (long long)batch->rows);
  if (count) TREADLE_NEED(counts);
  TRY(list_repeated(batch, counts, &rows, &total));
  TRY(make_all(batch, &(row_numbers){.rows = rows}, total, batch_p));
out:
  treadle_free(rows);
  return status;
}

static treadle_status check_order(const treadle_batch *batch, const int64_t *order, size_t count) {
  if (count != (size_t)batch->rows)
    REFUSE("an order of %zu rows; the batch has %lld", count, (long long)batch->rows);
  bool *seen = treadle_alloc_array(count + 1, sizeof *seen);
  if (!seen) return treadle_fail(TREADLE_NO_MEMORY, "no memory for an order of %zu rows", count);
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < count && status == TREADLE_OK; i++) {
    if (order[i] < 0 || order[i] >= batch->rows || seen[order[i]])
      status =
          treadle_fail(TREADLE_REFUSED, "place %zu of the order: row %lld %s", i, (long long)order[i],
                       order[i] < 0 || order[i] >= batch->rows ? "does not exist" : "comes a second time");
    else
      seen[order[i]] = true;
  }
  treadle_free(seen);
  return status;
}

treadle_status treadle_batch_reorder(treadle_batch *batch, const int64_t *order, size_t count) {
  treadle_status status;
  treadle_batch *made = NULL;
  TREADLE_NEED(batch);
  if (batch->rows) TREADLE_NEED(order);
  TRY(check_order(batch, order, count));
  TRY(make_all(batch, &(row_numbers){.rows = order}, batch->rows, &made));
  treadle_batch old = *batch;
  *batch = *made;
  *made = old;
out:
  treadle_batch_destroy(made);
  return status;
}
