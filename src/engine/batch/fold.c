/* Rows that become one, and rows that become several. Values stay where they are: a column of fixed width gets another width, a ragged one other
 * offsets over the same values. */
#include "base/argument.h"
#include "base/limits.h"
#include "batch/batch.h"

#include <stdio.h>
#include <string.h>

static const char COUNTS[] = ".counts";
enum { NAME_ROOM = 256 };

/* ---- Columns of the same values ---- */

static void let_go(void *context) {
  treadle_entry_release(context);
  treadle_free(context);
}

/* A ragged column with the values of another one, and with offsets [rows + 1] of its own, which the caller writes. */
static treadle_status with_offsets(const treadle_batch_entry *from, int64_t rows,
                                   treadle_batch_entry *entry_p, int64_t **offsets_p) {
  treadle_status status;
  treadle_batch_entry entry = {0}, *kept = treadle_alloc(sizeof *kept);
  if (!kept) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for column '%s'", from->name));
  TRY(treadle_entry_make(from->name, from->type, 0, rows, 0, &entry, offsets_p));
  TRY(treadle_entry_share(from, 0, kept));
  entry.data = from->data;
  entry.memory->release = let_go;
  entry.memory->context = kept;
  kept = NULL;
  *entry_p = entry;
  entry = (treadle_batch_entry){0};
out:
  treadle_free(kept);
  treadle_entry_release(&entry);
  return status;
}

static treadle_status with_width(const treadle_batch_entry *from, int64_t width,
                                 treadle_batch_entry *entry_p) {
  treadle_status status;
  TRY(treadle_entry_share(from, 0, entry_p));
  entry_p->width = width;
out:
  return status;
}

/* Of `rows` rows each becomes `times`. */
static treadle_status check_rows(int64_t rows, int64_t times) {
  if (times < 1 || times > TREADLE_MAX_ROWS || rows > TREADLE_MAX_ROWS / times)
    REFUSE("%lld rows, each as %lld: at least 1, and at most %lld rows in all", (long long)rows,
           (long long)times, (long long)TREADLE_MAX_ROWS);
  return TREADLE_OK;
}

static treadle_status counts_name(const char *name, char text[NAME_ROOM]) {
  if (strlen(name) + sizeof COUNTS > NAME_ROOM)
    REFUSE("column '%s': no room for a name of %zu bytes with %s after it; at most %d", name, strlen(name),
           COUNTS, NAME_ROOM - 1);
  snprintf(text, NAME_ROOM, "%.248s%s", name, COUNTS);
  return TREADLE_OK;
}

/* ---- Fold ---- */

/* The values of a ragged column, and how many each row had. */
static treadle_status fold_ragged(const treadle_batch *batch, const treadle_batch_entry *from, int64_t each,
                                  treadle_batch *made) {
  treadle_status status;
  treadle_batch_entry entry;
  int64_t *offsets, *none;
  char name[NAME_ROOM];
  TRY(counts_name(from->name, name));
  if (treadle_batch_find(batch, name))
    TRY(treadle_fail(TREADLE_REFUSED, "column '%s': the batch has '%s', where its counts would be",
                     from->name, name));
  TRY(with_offsets(from, made->rows, &entry, &offsets));
  for (int64_t r = 0; r <= made->rows; r++) offsets[r] = from->offsets[r * each];
  TRY(treadle_batch_take(made, &entry));
  TRY(treadle_entry_make(name, TREADLE_COLUMN_INT64, each, made->rows, batch->rows, &entry, &none));
  for (int64_t r = 0; r < batch->rows; r++)
    ((int64_t *)(void *)entry.data)[r] = treadle_entry_count(from, r);
  TRY(treadle_batch_take(made, &entry));
out:
  return status;
}

treadle_status treadle_batch_fold(const treadle_batch *batch, int64_t rows, treadle_batch **batch_p) {
  treadle_status status;
  treadle_batch *made = NULL;
  treadle_batch_entry entry;
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  TREADLE_NEED(batch);
  if (rows < 1 || batch->rows % rows)
    REFUSE("%lld rows do not fold into %lld of equal size", (long long)batch->rows, (long long)rows);
  int64_t each = batch->rows / rows;
  if (each == 0) REFUSE("a batch without rows does not fold into %lld", (long long)rows);
  TRY(treadle_batch_create(rows, &made));
  for (size_t i = 0; i < batch->columns.count; i++) {
    const treadle_batch_entry *from = &batch->columns.items[i];
    if (from->offsets) {
      TRY(fold_ragged(batch, from, each, made));
      continue;
    }
    TRY(with_width(from, from->width * each, &entry));
    TRY(treadle_batch_take(made, &entry));
  }
  TRY(treadle_batch_meta_copy(made, batch));
  *batch_p = made;
  made = NULL;
out:
  treadle_batch_destroy(made);
  return status;
}

/* ---- Unfold ---- */

/* A column of fixed width, of which each row becomes `times`. */
static treadle_status divide_width(const treadle_batch_entry *from, int64_t times,
                                   treadle_batch_entry *entry_p) {
  if (from->width % times)
    REFUSE("column '%s': %lld values a row do not divide into %lld rows", from->name,
           (long long)from->width, (long long)times);
  return with_width(from, from->width / times, entry_p);
}

/* How many values of a ragged column each of the rows has that it becomes, [rows * times]. */
static treadle_status find_counts(const treadle_batch *batch, const treadle_batch_entry *from,
                                  int64_t times, const int64_t **counts_p) {
  treadle_status status;
  char name[NAME_ROOM];
  *counts_p = NULL;
  TRY(counts_name(from->name, name));
  const treadle_batch_entry *counts = treadle_batch_find(batch, name);
  if (!counts || counts->type != TREADLE_COLUMN_INT64 || counts->width != times)
    REFUSE("column '%s' is ragged: '%s' of int64 and width %lld must say how many values each row has",
           from->name, name, (long long)times);
  *counts_p = (const int64_t *)(const void *)counts->data;
out:
  return status;
}

/* Offsets [times] of the rows that row `row` becomes. */
static treadle_status place_counts(const treadle_batch_entry *from, int64_t row, const int64_t *counts,
                                   int64_t times, int64_t *offsets) {
  int64_t at = from->offsets[row], end = from->offsets[row + 1];
  for (int64_t i = 0; i < times; i++) {
    if (counts[i] < 0 || counts[i] > end - at || (i + 1 == times && counts[i] != end - at))
      REFUSE("column '%s': row %lld has %lld values, and '%s%s' does not add up to them", from->name,
             (long long)row, (long long)treadle_entry_count(from, row), from->name, COUNTS);
    offsets[i] = at;
    at += counts[i];
  }
  return TREADLE_OK;
}

static treadle_status unfold_ragged(const treadle_batch *batch, const treadle_batch_entry *from,
                                    int64_t times, treadle_batch_entry *entry_p) {
  treadle_status status;
  treadle_batch_entry entry = {0};
  const int64_t *counts;
  int64_t *offsets;
  TRY(find_counts(batch, from, times, &counts));
  TRY(with_offsets(from, batch->rows * times, &entry, &offsets));
  for (int64_t r = 0; r < batch->rows; r++)
    TRY(place_counts(from, r, counts + r * times, times, offsets + r * times));
  offsets[batch->rows * times] = from->offsets[batch->rows];
  TRY(treadle_entry_check(&entry, batch->rows * times)); /* a text may be cut inside of a character */
  *entry_p = entry;
  entry = (treadle_batch_entry){0};
out:
  treadle_entry_release(&entry);
  return status;
}

/* Is it the counts of a ragged column of the batch? */
static bool is_counts(const treadle_batch *batch, const treadle_batch_entry *entry) {
  size_t bytes = strlen(entry->name), end = sizeof COUNTS - 1;
  char name[NAME_ROOM];
  if (bytes <= end || strcmp(entry->name + bytes - end, COUNTS) != 0) return false;
  snprintf(name, sizeof name, "%.*s", (int)(bytes - end), entry->name);
  const treadle_batch_entry *of = treadle_batch_find(batch, name);
  return of && of->offsets;
}

treadle_status treadle_batch_unfold(const treadle_batch *batch, int64_t times, treadle_batch **batch_p) {
  treadle_status status;
  treadle_batch *made = NULL;
  treadle_batch_entry entry;
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  TREADLE_NEED(batch);
  TRY(check_rows(batch->rows, times));
  TRY(treadle_batch_create(batch->rows * times, &made));
  for (size_t i = 0; i < batch->columns.count; i++) {
    const treadle_batch_entry *from = &batch->columns.items[i];
    if (is_counts(batch, from)) continue;
    TRY(from->offsets ? unfold_ragged(batch, from, times, &entry) : divide_width(from, times, &entry));
    TRY(treadle_batch_take(made, &entry));
  }
  TRY(treadle_batch_meta_copy(made, batch));
  *batch_p = made;
  made = NULL;
out:
  treadle_batch_destroy(made);
  return status;
}

/* ---- Some columns ---- */

/* A ragged column, of which each row's values are divided into `times` rows. */
static treadle_status divide_ragged(const treadle_batch *batch, const treadle_batch_entry *from,
                                    int64_t times, treadle_batch_entry *entry_p) {
  treadle_status status;
  int64_t *offsets;
  if (treadle_column_about_of(from->type)->ragged)
    REFUSE("column '%s': a value of %s does not divide into %lld rows", from->name,
           treadle_column_about_of(from->type)->name, (long long)times);
  for (int64_t r = 0; r < batch->rows; r++)
    if (treadle_entry_count(from, r) % times)
      REFUSE("column '%s': the %lld values of row %lld do not divide into %lld rows", from->name,
             (long long)treadle_entry_count(from, r), (long long)r, (long long)times);
  TRY(with_offsets(from, batch->rows * times, entry_p, &offsets));
  for (int64_t r = 0; r < batch->rows; r++)
    for (int64_t i = 0; i < times; i++)
      offsets[r * times + i] = from->offsets[r] + treadle_entry_count(from, r) / times * i;
  offsets[batch->rows * times] = from->offsets[batch->rows];
out:
  return status;
}

treadle_status treadle_batch_unfold_columns(const treadle_batch *batch, int64_t times,
                                            const char *const *names, size_t count,
                                            treadle_batch **batch_p) {
  treadle_status status;
  treadle_batch *divided = NULL, *others = NULL, *repeated = NULL, *made = NULL;
  treadle_batch_entry entry;
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  TREADLE_NEED(batch);
  if (count) TREADLE_NEED(names);
  TRY(check_rows(batch->rows, times));
  TRY(treadle_batch_select(batch, names, count, &divided));
  TRY(treadle_batch_slice(batch, 0, batch->rows, &others));
  for (size_t i = 0; i < count; i++) TRY(treadle_batch_remove(others, names[i]));
  TRY(treadle_batch_repeat(others, times, true, &repeated));
  TRY(treadle_batch_create(batch->rows * times, &made));
  for (size_t i = 0; i < batch->columns.count; i++) { /* in their order */
    const treadle_batch_entry *from = &batch->columns.items[i],
                              *whole = treadle_batch_find(repeated, from->name);
    TRY(whole           ? treadle_entry_share(whole, 0, &entry)
        : from->offsets ? divide_ragged(batch, from, times, &entry)
                        : divide_width(from, times, &entry));
    TRY(treadle_batch_take(made, &entry));
  }
  TRY(treadle_batch_meta_copy(made, batch));
  *batch_p = made;
  made = NULL;
out:
  treadle_batch_destroy(divided);
  treadle_batch_destroy(others);
  treadle_batch_destroy(repeated);
  treadle_batch_destroy(made);
  return status;
}
