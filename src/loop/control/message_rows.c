/* Rows of a batch in a message: how many rows and columns, then each column with its name, type, width, offsets and
 * values. */
#include "control/message.h"

#include "base/alloc.h"
#include "batch/batch.h"

#include <string.h>

enum { LARGE = 64 << 10 }; /* bytes: room for more is made at once */

/* ---- Writing ----------------------------------------------------------------------------------------------- */

static size_t row_count(const treadle_message_rows *r) {
  return r->rows ? r->row_count : (size_t)r->batch->rows;
}

static int64_t row_at(const treadle_message_rows *r, size_t i) { return r->rows ? r->rows[i] : (int64_t)i; }

/* Their offsets, from 0; the values that they come to. */
static int64_t put_offsets(treadle_message *m, const treadle_message_rows *r,
                           const treadle_batch_entry *e) {
  const size_t count = row_count(r);
  int64_t values = 0;
  treadle_message_put_int(m, (int64_t)((count + 1) * sizeof values));
  char *to = treadle_message_grow(m, (count + 1) * sizeof values);
  for (size_t i = 0; i <= count; i++) {
    if (to) memcpy(to + i * sizeof values, &values, sizeof values);
    if (i < count) values += treadle_entry_count(e, row_at(r, i));
  }
  return values;
}

static void put_values(treadle_message *m, const treadle_message_rows *r, const treadle_batch_entry *e,
                       int64_t values) {
  const size_t each = treadle_column_about_of(e->type)->bytes, count = row_count(r);
  treadle_message_put_int(m, (int64_t)((size_t)values * each));
  char *to = treadle_message_grow(m, (size_t)values * each);
  if (!to || !values) return;
  if (!r->rows) {
    memcpy(to, treadle_entry_data(e, 0), (size_t)values * each);
    return;
  }
  for (size_t i = 0; i < count;) {
    const char *from = treadle_entry_data(e, r->rows[i]);
    size_t bytes = 0;
    do
      bytes +=
          (size_t)treadle_entry_count(e, r->rows[i]) * each; /* rows that follow each other are one copy */
    while (++i < count && r->rows[i] == r->rows[i - 1] + 1);
    if (bytes) memcpy(to, from, bytes);
    to += bytes;
  }
}

static void put_column(treadle_message *m, const treadle_message_rows *r, const treadle_batch_entry *e) {
  int64_t values = e->width * (int64_t)row_count(r);
  treadle_message_put_bytes(m, e->name, strlen(e->name) + 1);
  treadle_message_put_int(m, e->type);
  treadle_message_put_int(m, e->width);
  if (!e->width) values = put_offsets(m, r, e);
  put_values(m, r, e, values);
}

/* What a column takes in a message, at least. */
static size_t bytes_of(const treadle_message_rows *r, const treadle_batch_entry *e) {
  const size_t count = row_count(r);
  size_t values = r->rows ? 0 : (size_t)(treadle_entry_at(e, r->batch->rows) - treadle_entry_at(e, 0));
  for (size_t i = 0; r->rows && i < count; i++) values += (size_t)treadle_entry_count(e, r->rows[i]);
  return values * treadle_column_about_of(e->type)->bytes + (e->width ? 0 : count * sizeof(int64_t));
}

void treadle_message_put_rows(treadle_message *m, const treadle_message_rows *r) {
  const treadle_batch *b = r->batch;
  size_t columns = 0, bytes = 0;
  for (size_t i = 0; i < r->count; i++) columns += treadle_batch_find(b, r->names[i]) != NULL;
  for (size_t i = 0; r->names && i < r->count; i++)
    if (treadle_batch_find(b, r->names[i])) bytes += bytes_of(r, treadle_batch_find(b, r->names[i]));
  for (size_t i = 0; !r->names && i < b->columns.count; i++) bytes += bytes_of(r, &b->columns.items[i]);
  if (bytes > LARGE) treadle_message_reserve(m, bytes + bytes / 64 + LARGE);
  treadle_message_put_int(m, (int64_t)row_count(r));
  treadle_message_put_int(m, (int64_t)(r->names ? columns : b->columns.count));
  for (size_t i = 0; r->names && i < r->count; i++)
    if (treadle_batch_find(b, r->names[i])) put_column(m, r, treadle_batch_find(b, r->names[i]));
  for (size_t i = 0; !r->names && i < b->columns.count; i++) put_column(m, r, &b->columns.items[i]);
}

/* ---- Reading ------------------------------------------------------------------------------------------------ */

static void keep(void *context) { (void)context; } /* the memory is the message's */

static treadle_status take_values(treadle_message *m, int64_t rows, treadle_column *c) {
  const size_t each = treadle_column_about_of(c->type)->bytes;
  const void *offsets = NULL, *data;
  int64_t values;
  treadle_status status;
  if (!c->width) TRY(treadle_message_array(m, "offsets", sizeof(int64_t), (size_t)rows + 1, &offsets));
  c->offsets = offsets;
  if (c->width && rows > INT64_MAX / c->width)
    TRY(treadle_fail(TREADLE_PEER, "column '%s' of a message has %lld rows of %lld values", c->name,
                     (long long)rows, (long long)c->width));
  values = c->offsets ? c->offsets[rows] : rows * c->width;
  if (values < 0)
    TRY(treadle_fail(TREADLE_PEER, "column '%s' of a message has %lld values", c->name, (long long)values));
  TRY(treadle_message_array(m, c->name, each, (size_t)values, &data));
  memcpy(&c->data, &data, sizeof data); /* a batch that only reads it */
out:
  return status;
}

static treadle_status take_column(treadle_message *m, treadle_batch *batch) {
  treadle_column c = {
      .struct_size = sizeof c, .release = m->hold ? m->release : keep, .context = m->holder};
  const void *name;
  int64_t type;
  size_t bytes;
  treadle_status status;
  TRY(treadle_message_bytes(m, "name of a column", &name, &bytes));
  c.name = name;
  TRY(treadle_message_int(m, "type of a column", &type));
  TRY(treadle_message_int(m, "width of a column", &c.width));
  if (!bytes || c.name[bytes - 1] || type < 0 || type > TREADLE_COLUMN_BYTES || c.width < 0)
    TRY(treadle_fail(TREADLE_PEER, "a message has a column of type %lld and width %lld", (long long)type,
                     (long long)c.width));
  c.type = (treadle_column_type)type;
  TRY(take_values(m, treadle_batch_rows(batch), &c));
  TRY(treadle_batch_add(batch, &c));
  if (m->hold) m->hold(m->holder);
out:
  return status;
}

treadle_status treadle_message_batch(treadle_message *m, treadle_batch **batch_p) {
  treadle_batch *batch = NULL;
  int64_t rows, columns;
  treadle_status status;
  *batch_p = NULL;
  TRY(treadle_message_int(m, "rows", &rows));
  TRY(treadle_message_int(m, "columns", &columns));
  if (rows < 0 || columns < 0)
    TRY(treadle_fail(TREADLE_PEER, "a message has %lld rows and %lld columns", (long long)rows,
                     (long long)columns));
  TRY(treadle_batch_create(rows, &batch));
  for (int64_t i = 0; i < columns; i++) TRY(take_column(m, batch));
  *batch_p = batch;
  batch = NULL;
out:
  treadle_batch_destroy(batch);
  return status;
}
