/* Lines of JSON as rows to train on: ids with a mask, or a text, all of whose tokens but the first count. */
#include "treadle_engine.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/array.h"
#include "base/sized.h"
#include "infer/json_values.h"
#include "infer/request_lines.h"
#include "infer/transformer.h"
#include "layout/layout.h"

#include <stdlib.h>
#include <string.h>

struct treadle_train_rows {
  TREADLE_ARRAY(treadle_train_row) items;
  treadle_arena arena;
};

static const char *const names[] = {"ids", "mask", "text", "id", NULL};
static const char *const none[] = {NULL};

static treadle_status read_mask(const treadle_request_reader *reader, treadle_arena *arena,
                                treadle_train_row *row) {
  const json_t *mask = json_object_get(reader->object, "mask");
  if (!json_is_array(mask) || json_array_size(mask) != row->count)
    REFUSE("%s: mask must be a list of %zu items, as ids", reader->name, row->count);
  uint8_t *to = treadle_arena_alloc_array(arena, row->count, sizeof *to);
  if (!to) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for %zu tokens", reader->name, row->count);
  for (size_t i = 0; i < row->count; i++) {
    const json_t *item = json_array_get(mask, i);
    json_int_t value = json_is_true(item) ? 1 : json_is_false(item) ? 0 : json_integer_value(item);
    if ((!json_is_integer(item) && !json_is_boolean(item)) || value < 0 || value > 1)
      REFUSE("%s: mask[%zu] is not 0 or 1", reader->name, i);
    to[i] = (uint8_t)value;
  }
  if (to[0]) REFUSE("%s: mask[0] must be 0: the first token has none before it", reader->name);
  row->mask = to;
  return TREADLE_OK;
}

static treadle_status read_text(const treadle_request_reader *reader, const treadle_train_rows_spec *spec,
                                treadle_arena *arena, treadle_train_row *row) {
  int32_t *ids = NULL;
  treadle_text text;
  treadle_status status;
  TRY(treadle_json_text(reader->name, "text", json_object_get(reader->object, "text"), arena, &text));
  if (!spec->tokenizer) {
    status = treadle_fail(TREADLE_REFUSED, "%s: a text needs a tokenizer; the model's folder has none",
                          reader->name);
    goto out;
  }
  status = treadle_tokenizer_encode(spec->tokenizer, text.bytes, text.count, true, &ids, &row->count);
  if (status) {
    treadle_fail_in(status, "%s: ", reader->name);
    goto out;
  }
  int32_t *kept = treadle_arena_alloc_array(arena, row->count + 1, sizeof *kept);
  uint8_t *mask = treadle_arena_alloc_array(arena, row->count + 1, sizeof *mask);
  if (!kept || !mask) {
    status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for %zu tokens", reader->name, row->count);
    goto out;
  }
  memcpy(kept, ids, row->count * sizeof *kept);
  if (row->count) memset(mask + 1, 1, row->count - 1);
  row->ids = kept;
  row->mask = mask;
out:
  free(ids);
  return status;
}

static treadle_status check(const treadle_request_reader *reader, const treadle_transformer *transformer,
                            const treadle_train_row *row) {
  int64_t vocabulary = transformer ? transformer->vocabulary : INT32_MAX,
          most = transformer && transformer->most_positions ? transformer->most_positions : INT32_MAX;
  size_t counted = 0;
  if (row->count < 2) REFUSE("%s: has %zu tokens; 2 are the least", reader->name, row->count);
  if (row->count > (size_t)most)
    REFUSE("%s: has %zu tokens; the model takes %lld", reader->name, row->count, (long long)most);
  for (size_t i = 0; i < row->count; i++) {
    if (row->ids[i] < 0 || row->ids[i] >= vocabulary)
      REFUSE("%s: token %zu is %d; the vocabulary has 0 to %lld", reader->name, i, row->ids[i],
             (long long)vocabulary - 1);
    counted += row->mask[i];
  }
  if (!counted) REFUSE("%s: no token of it counts", reader->name);
  return TREADLE_OK;
}

static treadle_status read_row(const treadle_request_reader *reader, const treadle_train_rows_spec *spec,
                               const treadle_transformer *transformer, treadle_train_rows *rows) {
  treadle_train_row row = {0};
  bool has_ids = json_object_get(reader->object, "ids"), has_text = json_object_get(reader->object, "text");
  treadle_status status;
  TRY(treadle_request_check_keys(reader, names, none));
  if (has_ids == has_text) REFUSE("%s: must have either ids and mask, or text", reader->name);
  if (has_ids) {
    int32_t *ids;
    int64_t count;
    TRY(treadle_json_tokens(reader->name, "ids", json_object_get(reader->object, "ids"), &rows->arena, &ids,
                            &count));
    row.ids = ids;
    row.count = (size_t)count;
    TRY(read_mask(reader, &rows->arena, &row));
  } else {
    TRY(read_text(reader, spec, &rows->arena, &row));
  }
  TRY(check(reader, transformer, &row));
  TRY(treadle_array_push(&rows->items, row));
out:
  return status;
}

treadle_status treadle_train_rows_read(const treadle_train_rows_spec *spec, const char *text, size_t bytes,
                                       treadle_train_rows **rows_p) {
  treadle_train_rows_spec s;
  treadle_transformer *transformer = NULL;
  treadle_train_rows *rows = NULL;
  treadle_request_reader reader = {.text = text, .count = bytes};
  bool more = false;
  treadle_status status;
  TREADLE_NEED(rows_p);
  *rows_p = NULL;
  if (bytes) TREADLE_NEED(text);
  TRY(TREADLE_TAKE(spec, &s));
  reader.what = s.what ? s.what : "rows";
  if (s.layout) TRY(treadle_transformer_create(s.layout->model, &transformer));
  rows = treadle_alloc(sizeof *rows);
  if (!rows) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for rows", reader.what);
  for (;;) {
    TRY(treadle_request_reader_next(&reader, &more));
    if (!more) break;
    TRY(read_row(&reader, &s, transformer, rows));
  }
  if (!rows->items.count) TRY(treadle_fail(TREADLE_REFUSED, "%s: has no rows", reader.what));
  *rows_p = rows;
  rows = NULL;
out:
  treadle_request_reader_release(&reader);
  treadle_transformer_destroy(transformer);
  treadle_train_rows_destroy(rows);
  return status;
}

void treadle_train_rows_destroy(treadle_train_rows *rows) {
  if (!rows) return;
  treadle_array_release(&rows->items);
  treadle_arena_release(&rows->arena);
  treadle_free(rows);
}

const treadle_train_row *treadle_train_rows_items(const treadle_train_rows *rows, size_t *count_p) {
  if (count_p) *count_p = rows ? rows->items.count : 0;
  TREADLE_NEED_OR(rows, NULL);
  return rows->items.items;
}
