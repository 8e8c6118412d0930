/* Calls and answers as bytes. What comes from others is read length by length (message.h). */
#include "control/crew.h"

#include "base/alloc.h"
#include "batch/batch.h"

#include <string.h>

static void put_text(treadle_message *m, const char *text) {
  treadle_message_put_bytes(m, text, strlen(text) + 1);
}

/* *text_p lies in the message. */
static treadle_status read_text(treadle_message *m, const char *what, const char **text_p) {
  const void *bytes;
  size_t length;
  treadle_status status = treadle_message_bytes(m, what, &bytes, &length);
  *text_p = bytes;
  if (!status && (!length || (*text_p)[length - 1]))
    status = treadle_fail(TREADLE_PEER, "a message has a %s without an end", what);
  return status;
}

void treadle_call_put_head(treadle_message *m, const treadle_call_head *head) {
  treadle_message_put_int(m, head->kind);
  treadle_message_put_int(m, head->workers);
  put_text(m, head->name);
}

treadle_status treadle_call_read_head(treadle_message *m, treadle_call_head *head_p) {
  int64_t kind;
  treadle_status status;
  *head_p = (treadle_call_head){.name = ""};
  TRY(treadle_message_int(m, "kind", &kind));
  TRY(treadle_message_int(m, "workers", &head_p->workers));
  TRY(read_text(m, "name", &head_p->name));
  if (kind < 0 || kind > TREADLE_CALL_LATE)
    status = treadle_fail(TREADLE_PEER, "a call is of kind %lld", (long long)kind);
  head_p->kind = (treadle_call_kind)kind;
out:
  return status;
}

/* ---- Batches ---- */

void treadle_call_put_meta(treadle_message *m, const treadle_batch *batch) {
  int32_t count = 0;
  while (batch && treadle_batch_meta_key(batch, count)) count++;
  treadle_message_put_int(m, count);
  for (int32_t i = 0; i < count; i++) {
    put_text(m, treadle_batch_meta_key(batch, i));
    put_text(m, treadle_batch_meta(batch, treadle_batch_meta_key(batch, i)));
  }
}

treadle_status treadle_call_read_meta(treadle_message *m, treadle_batch *batch) {
  int64_t count;
  treadle_status status;
  TRY(treadle_message_int(m, "number of keys", &count));
  for (int64_t i = 0; i < count; i++) {
    const char *key, *json;
    TRY(read_text(m, "key", &key));
    TRY(read_text(m, "value", &json));
    TRY(treadle_batch_set_meta(batch, key, json));
  }
out:
  return status;
}

size_t treadle_call_put_batch(treadle_message *m, const treadle_batch *batch, const int64_t *rows,
                              size_t count) {
  const size_t head = 2 * sizeof(int64_t);
  treadle_message_put_int(m, (int64_t)count);
  treadle_message_put_int(m, batch != NULL);
  const size_t before = m->length;
  if (batch)
    treadle_message_put_rows(m, &(treadle_message_rows){.batch = batch, .rows = rows, .row_count = count});
  const size_t bytes = m->length - before;
  treadle_call_put_meta(m, batch);
  return count && bytes > head ? bytes - head : 0;
}

treadle_status treadle_call_read_batch(treadle_message *m, treadle_batch **batch_p) {
  int64_t count, has;
  treadle_status status;
  *batch_p = NULL;
  TRY(treadle_message_int(m, "number of rows", &count));
  TRY(treadle_message_int(m, "batch", &has));
  if (count < 0) TRY(treadle_fail(TREADLE_PEER, "a message has %lld rows", (long long)count));
  TRY(has ? treadle_message_batch(m, batch_p) : treadle_batch_create(count, batch_p));
  TRY(treadle_call_read_meta(m, *batch_p));
out:
  if (status) {
    treadle_batch_destroy(*batch_p);
    *batch_p = NULL;
  }
  return status;
}

treadle_status treadle_call_select(const treadle_batch *from, const char *const *names, size_t count,
                                   treadle_batch **batch_p) {
  const char **has = treadle_alloc_array(count + 1, sizeof *has);
  size_t found = 0;
  treadle_status status = TREADLE_OK;
  if (!has) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu names", count));
  for (size_t i = 0; i < count; i++)
    if (treadle_batch_has(from, names[i])) has[found++] = names[i];
  TRY(treadle_batch_select(from, has, found, batch_p));
out:
  treadle_free((void *)has);
  return status;
}

void treadle_call_put_names(treadle_message *m, const char *const *names, size_t count) {
  treadle_message_put_int(m, names ? (int64_t)count : -1);
  for (size_t i = 0; names && i < count; i++) put_text(m, names[i]);
}

treadle_status treadle_call_read_names(treadle_message *m, const char **names, int64_t room,
                                       int64_t *count_p) {
  treadle_status status;
  TRY(treadle_message_int(m, "number of columns", count_p));
  if (*count_p < -1 || *count_p > room)
    TRY(treadle_fail(TREADLE_PEER, "a message names %lld columns; %lld at most are named",
                     (long long)*count_p, (long long)room));
  for (int64_t i = 0; i < *count_p; i++) TRY(read_text(m, "name of a column", &names[i]));
out:
  return status;
}

/* ---- Answers ---- */

size_t treadle_call_row_bytes(const treadle_batch *batch) {
  size_t bytes = 0;
  for (size_t i = 0; i < batch->columns.count; i++) {
    const treadle_batch_entry *e = &batch->columns.items[i];
    const int64_t values = treadle_entry_at(e, batch->rows) - treadle_entry_at(e, 0);
    bytes += (size_t)values * treadle_column_about_of(e->type)->bytes +
             (e->offsets ? ((size_t)batch->rows + 1) * sizeof *e->offsets : 0);
  }
  return bytes;
}

void treadle_call_put_answer(treadle_message *m, const treadle_batch *made, bool rows_stay) {
  enum { FEW = 16 << 10 }; /* bytes: asking for them would take as long */
  const bool few = !rows_stay && treadle_call_row_bytes(made) <= FEW;
  treadle_message_put_int(m, treadle_batch_rows(made));
  treadle_message_put_int(m, few);
  if (few)
    (void)treadle_call_put_batch(m, made, NULL, (size_t)treadle_batch_rows(made));
  else
    treadle_call_put_meta(m, made);
}

treadle_status treadle_call_read_answer(treadle_message *m, int64_t *rows_p, treadle_batch **made_p,
                                        bool *few_p) {
  int64_t few;
  treadle_status status;
  *made_p = NULL;
  TRY(treadle_message_int(m, "number of rows", rows_p));
  TRY(treadle_message_int(m, "few", &few));
  *few_p = few != 0;
  if (*rows_p < 0) TRY(treadle_fail(TREADLE_PEER, "a worker has made %lld rows", (long long)*rows_p));
  if (few) TRY(treadle_call_read_batch(m, made_p));
  if (!few) TRY(treadle_batch_create(*rows_p, made_p));
  if (!few) TRY(treadle_call_read_meta(m, *made_p));
  if (treadle_batch_rows(*made_p) != *rows_p)
    TRY(treadle_fail(TREADLE_PEER, "a worker has made %lld rows, and sends %lld", (long long)*rows_p,
                     (long long)treadle_batch_rows(*made_p)));
out:
  if (status) {
    treadle_batch_destroy(*made_p);
    *made_p = NULL;
  }
  return status;
}
