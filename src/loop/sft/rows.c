/* JSON as rows to train on, lines or one list of objects: ids with a mask here, texts and chats in rows_text.c. */
#include "treadle_loop.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/array.h"
#include "base/json.h"
#include "base/sized.h"
#include "base/text.h"
#include "generate/json_values.h"
#include "generate/request_lines.h"
#include "layout/layout.h"
#include "pass/transformer.h"
#include "sft/rows_text.h"

#include <stdlib.h>
#include <string.h>

typedef struct rows_read {
  TREADLE_ARRAY(treadle_sft_row) items;
  treadle_arena arena;
} rows_read;

/* Ids and their mask. */
static treadle_status read_mask(const treadle_row_source *reader, treadle_arena *arena,
                                treadle_sft_row *row) {
  const json_t *mask = json_object_get(reader->object, "mask");
  if (!json_is_array(mask) || json_array_size(mask) != row->count)
    REFUSE("%s: mask must be a list of %s, as ids", reader->name,
           treadle_text_of_count((int64_t)row->count, "item"));
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

static treadle_status check(const treadle_row_source *reader, const treadle_transformer *transformer,
                            const treadle_sft_row *row) {
  int64_t vocabulary = transformer ? transformer->vocabulary : INT32_MAX,
          most = transformer && transformer->most_positions ? transformer->most_positions : INT32_MAX;
  bool given = reader->spec->most_tokens && reader->spec->most_tokens < most;
  if (given) most = reader->spec->most_tokens;
  size_t counted = 0;
  if (row->count < 2)
    REFUSE("%s: has %s; 2 are the least", reader->name,
           treadle_text_of_count((int64_t)row->count, "token"));
  if (row->count > (size_t)most)
    REFUSE("%s: has %zu tokens; %s %lld", reader->name, row->count,
           given ? "a row may have" : "the model takes", (long long)most);
  for (size_t i = 0; i < row->count; i++) {
    if (row->ids[i] < 0 || row->ids[i] >= vocabulary)
      REFUSE("%s: token %zu is %d; the vocabulary has 0 to %lld", reader->name, i, row->ids[i],
             (long long)vocabulary - 1);
    counted += row->mask[i];
  }
  if (!counted) REFUSE("%s: no token of it counts", reader->name);
  return TREADLE_OK;
}

/* A kind of row: the key that it is known by, the others that it needs or may have, and whether data sets may add keys of their own. */
typedef struct row_kind {
  const char *key;
  const char *names[4]; /* beside the key, ended by NULL */
  bool open;
  treadle_status (*read)(const treadle_row_source *source, treadle_sft_row *row);
} row_kind;

static treadle_status read_ids(const treadle_row_source *source, treadle_sft_row *row) {
  int32_t *ids;
  int64_t count;
  treadle_status status;
  TRY(treadle_json_tokens(source->name, "ids", json_object_get(source->object, "ids"), source->arena, &ids,
                          &count));
  row->ids = ids;
  row->count = (size_t)count;
  TRY(read_mask(source, source->arena, row));
out:
  return status;
}

static const row_kind kinds[] = {
    {"ids", {"mask", "id", NULL}, false, read_ids},
    {"text", {"id", NULL}, false, treadle_row_read_text},
    {"messages", {NULL}, true, treadle_row_read_messages},
    {"prompt", {"response", NULL}, true, treadle_row_read_response},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Rows of ids and texts have no other keys: one that is there is a mistake. */
static treadle_status check_keys(const treadle_row_source *source, const row_kind *kind) {
  const char *key;
  json_t *value;
  json_object_foreach(source->object, key, value) {
    bool known = strcmp(key, kind->key) == 0;
    for (int i = 0; kind->names[i]; i++) known = known || strcmp(key, kind->names[i]) == 0;
    for (int i = 0; i < KINDS; i++)
      if (&kinds[i] != kind && strcmp(key, kinds[i].key) == 0)
        REFUSE("%s: has both %s and %s: it must be one", source->name, kind->key, key);
    if (!known && !kind->open)
      REFUSE("%s: '%s' is not a key of a row with %s", source->name, key, kind->key);
  }
  return TREADLE_OK;
}

static treadle_status read_row(const treadle_row_source *source, const treadle_transformer *transformer,
                               rows_read *rows) {
  treadle_sft_row row = {0};
  int kind = 0;
  treadle_status status;
  while (kind < KINDS && !json_object_get(source->object, kinds[kind].key)) kind++;
  if (kind == KINDS)
    REFUSE("%s: must have ids and mask, text, prompt and response, or messages", source->name);
  TRY(check_keys(source, &kinds[kind]));
  TRY(kinds[kind].read(source, &row));
  TRY(check(source, transformer, &row));
  TRY(treadle_array_push(&rows->items, row));
out:
  return status;
}

/* ---- Files ----------------------------------------------------------------------------------------------- */

typedef struct file {
  const treadle_train_rows_spec *spec;
  const char *what;
  const treadle_transformer *transformer;
  rows_read *rows;
} file;

static treadle_status read_lines(const file *f, const char *text, size_t bytes) {
  treadle_request_reader reader = {.what = f->what, .text = text, .count = bytes};
  bool more = false;
  treadle_status status;
  for (;;) {
    TRY(treadle_request_reader_next(&reader, &more));
    if (!more) break;
    const treadle_row_source source = {
        .spec = f->spec, .name = reader.name, .object = reader.object, .arena = &f->rows->arena};
    TRY(read_row(&source, f->transformer, f->rows));
  }
out:
  treadle_request_reader_release(&reader);
  return status;
}

/* One JSON list: its items are read one by one, so that the whole is never there as objects. */
typedef struct list_reader {
  const char *text;
  size_t bytes, at;
  int64_t line;
  char name[TREADLE_LINE_NAME]; /* "FILE: item 7" */
  json_t *object;
} list_reader;

static void move_on(list_reader *l, size_t bytes) {
  for (size_t end = l->at + bytes; l->at < end; l->at++) l->line += l->text[l->at] == '\n';
}

/* The character behind white space; 0 at the end. */
static char next_sign(list_reader *l) {
  while (l->at < l->bytes && memchr(" \t\r\n", l->text[l->at], 4)) move_on(l, 1);
  return l->at < l->bytes ? l->text[l->at] : 0;
}

static treadle_status read_item(list_reader *l) {
  size_t used = 0;
  const treadle_json_source source = {.what = l->name,
                                      .text = l->text + l->at,
                                      .count = l->bytes - l->at,
                                      .line = l->line,
                                      .zeros = true,
                                      .used_p = &used};
  json_decref(l->object);
  l->object = NULL;
  treadle_status status = treadle_json_read(&source, &l->object);
  if (status) return status;
  if (!treadle_json_is_object(l->object)) REFUSE("%s: not an object", l->name);
  move_on(l, used);
  return TREADLE_OK;
}

static treadle_status read_items(const file *f, list_reader *l) {
  treadle_status status = TREADLE_OK;
  bool more = next_sign(l) != ']';
  for (int64_t item = 0; more; item++) {
    snprintf(l->name, sizeof l->name, "%.400s: item %lld", f->what, (long long)item);
    if (item >= TREADLE_MOST_REQUESTS) REFUSE("%s: the limit is %d rows", l->name, TREADLE_MOST_REQUESTS);
    next_sign(l);
    TRY(read_item(l));
    const treadle_row_source source = {
        .spec = f->spec, .name = l->name, .object = l->object, .arena = &f->rows->arena};
    TRY(read_row(&source, f->transformer, f->rows));
    char sign = next_sign(l);
    if (sign != ',' && sign != ']')
      REFUSE("%s: line %lld: behind it stands neither a comma nor the end of the list", l->name,
             (long long)l->line);
    more = sign == ',';
    if (more) move_on(l, 1);
  }
  move_on(l, 1);
  if (next_sign(l) || l->at < l->bytes)
    REFUSE("%s: line %lld: something stands behind the list", f->what, (long long)l->line);
out:
  return status;
}

static treadle_status read_list(const file *f, const char *text, size_t bytes) {
  list_reader l = {.text = text, .bytes = bytes, .at = treadle_json_mark(text, bytes), .line = 1};
  if ((int64_t)bytes > TREADLE_MOST_REQUEST_BYTES)
    REFUSE("%s: has %zu bytes; the limit is %lld", f->what, bytes, (long long)TREADLE_MOST_REQUEST_BYTES);
  next_sign(&l);
  move_on(&l, 1); /* [ */
  treadle_status status = read_items(f, &l);
  json_decref(l.object);
  return status;
}

static bool is_list(const char *text, size_t bytes) {
  size_t at = treadle_json_mark(text, bytes);
  while (at < bytes && memchr(" \t\r\n", text[at], 4)) at++;
  return at < bytes && text[at] == '[';
}

/* Columns ids and mask. */
static treadle_status make_batch(const rows_read *rows, treadle_batch **batch_p) {
  const size_t count = rows->items.count;
  int64_t *offsets = treadle_alloc_array(count + 1, sizeof *offsets);
  treadle_column ids = {.struct_size = sizeof ids, .name = "ids", .type = TREADLE_COLUMN_INT32};
  treadle_column mask = {.struct_size = sizeof mask, .name = "mask", .type = TREADLE_COLUMN_UINT8};
  treadle_batch *batch = NULL;
  treadle_status status = TREADLE_OK;
  if (!offsets) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu rows", count));
  offsets[0] = 0;
  for (size_t r = 0; r < count; r++) offsets[r + 1] = offsets[r] + (int64_t)rows->items.items[r].count;
  ids.offsets = mask.offsets = offsets;
  TRY(treadle_batch_create((int64_t)count, &batch));
  TRY(treadle_batch_add(batch, &ids));
  TRY(treadle_batch_add(batch, &mask));
  TRY(treadle_batch_column(batch, "ids", &ids));
  TRY(treadle_batch_column(batch, "mask", &mask));
  for (size_t r = 0; r < count; r++) {
    const treadle_sft_row *row = &rows->items.items[r];
    memcpy((int32_t *)ids.data + ids.offsets[r], row->ids, row->count * sizeof *row->ids);
    memcpy((uint8_t *)mask.data + mask.offsets[r], row->mask, row->count);
  }
  *batch_p = batch;
  batch = NULL;
out:
  treadle_batch_destroy(batch);
  treadle_free(offsets);
  return status;
}

treadle_status treadle_train_rows_read(const treadle_train_rows_spec *spec, const char *text, size_t bytes,
                                       treadle_batch **rows_p) {
  treadle_train_rows_spec s;
  treadle_transformer *transformer = NULL;
  rows_read rows = {0};
  file f = {.spec = &s, .rows = &rows};
  treadle_status status;
  TREADLE_NEED(rows_p);
  *rows_p = NULL;
  if (bytes) TREADLE_NEED(text);
  TRY(TREADLE_TAKE(spec, &s));
  f.what = s.what ? s.what : "rows";
  if (s.most_tokens < 0)
    REFUSE("%s: most_tokens is %lld: 2 at least, or 0", f.what, (long long)s.most_tokens);
  if (s.layout) TRY(treadle_transformer_create(s.layout->model, &transformer));
  f.transformer = transformer;
  TRY(is_list(text, bytes) ? read_list(&f, text, bytes) : read_lines(&f, text, bytes));
  if (!rows.items.count) TRY(treadle_fail(TREADLE_REFUSED, "%s: has no rows", f.what));
  TRY(make_batch(&rows, rows_p));
out:
  treadle_transformer_destroy(transformer);
  treadle_array_release(&rows.items);
  treadle_arena_release(&rows.arena);
  return status;
}
