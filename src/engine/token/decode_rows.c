/* Texts of the ids in a column. */
#include "treadle_builtin.h"

#include "base/alloc.h"
#include "base/argument.h"

#include <stdlib.h>

typedef struct texts {
  char **items;  /* [rows] */
  size_t *bytes; /* [rows] */
  int64_t rows;
} texts;

static void release(texts *t) {
  for (int64_t r = 0; t->items && r < t->rows; r++) free(t->items[r]);
  treadle_free(t->items);
  treadle_free(t->bytes);
}

static treadle_status decode(const treadle_tokenizer *tokenizer, const treadle_column *ids, texts *t) {
  treadle_status status = TREADLE_OK;
  for (int64_t r = 0; r < t->rows; r++) {
    const int32_t *from = (const int32_t *)ids->data + ids->offsets[r];
    const size_t count = (size_t)(ids->offsets[r + 1] - ids->offsets[r]);
    status = treadle_tokenizer_decode(tokenizer, from, count, false, &t->items[r], &t->bytes[r]);
    if (status) return treadle_fail_in(status, "row %lld: ", (long long)r);
  }
  return status;
}

treadle_status treadle_tokenizer_decode_rows(const treadle_tokenizer *tokenizer, treadle_batch *batch,
                                             const char *from, const char *to) {
  treadle_column ids = TREADLE_INIT(treadle_column);
  texts t = {0};
  treadle_status status;
  TREADLE_NEED(tokenizer);
  TREADLE_NEED(batch);
  TREADLE_NEED(from);
  TREADLE_NEED(to);
  TRY(treadle_batch_column(batch, from, &ids));
  if (ids.type != TREADLE_COLUMN_INT32 || !ids.offsets) REFUSE("column '%s' is not ragged int32", from);
  t.rows = treadle_batch_rows(batch);
  t.items = treadle_alloc_array((size_t)t.rows + 1, sizeof *t.items);
  t.bytes = treadle_alloc_array((size_t)t.rows + 1, sizeof *t.bytes);
  if (!t.items || !t.bytes)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the texts of %lld rows", (long long)t.rows));
  TRY(decode(tokenizer, &ids, &t));
  TRY(treadle_batch_add_texts(batch, to, (const char *const *)t.items, t.bytes));
out:
  release(&t);
  return status;
}
