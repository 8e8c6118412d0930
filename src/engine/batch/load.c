/* Folders of batches are read: every number and text is compared with what batch.json says of it. */
#include "base/argument.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/utf8.h"
#include "batch/batch.h"
#include "batch/files.h"
#include "io/file_map.h"
#include "io/json.h"
#include "io/path.h"
#include "io/safetensors.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A column of texts while lines are read. */
typedef struct text_column {
  const char *name;
  treadle_builder text;
  int64_t *offsets; /* [rows + 1] */
} text_column;

typedef struct batch_reader {
  const char *folder;
  json_t *about;
  json_t *columns;
  treadle_checkpoint *numbers; /* NULL: there are none */
  int32_t numbers_used;        /* of its tensors */
  text_column *texts;
  size_t text_count;
  treadle_batch *batch;
} batch_reader;

static treadle_status no_memory(const batch_reader *r) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a batch", r->folder);
}

/* ---- batch.json -------------------------------------------------------------------------------- */

static treadle_status wrong(const batch_reader *r, const char *what) {
  return treadle_fail(TREADLE_REFUSED, "%s/%s: %s", r->folder, TREADLE_BATCH_ABOUT, what);
}

/* What batch.json says of column `number`. */
static treadle_status read_column(const batch_reader *r, size_t number, const char **name_p,
                                  treadle_column_type *type_p, int64_t *width_p) {
  json_t *column = json_array_get(r->columns, number);
  const char *name = json_string_value(json_object_get(column, "name")),
             *type = json_string_value(json_object_get(column, "type"));
  json_t *width = json_object_get(column, "width");
  bool ragged = json_is_true(json_object_get(column, "ragged"));
  char what[400];
  if (!name || !type || !treadle_column_type_find(type, type_p)) {
    snprintf(what, sizeof what,
             "column %zu needs a name and a type, of which there are int32, int64, fp32, fp64, bf16, "
             "uint8, bool, text and bytes",
             number);
    return wrong(r, what);
  }
  *name_p = name;
  *width_p = json_is_integer(width) ? json_integer_value(width) : 0;
  ragged |= treadle_column_about_of(*type_p)->ragged;
  if (ragged ? width != NULL : *width_p < 1 || *width_p > TREADLE_MAX_ELEMS) {
    snprintf(what, sizeof what, "column '%.200s' needs either a width from 1 or \"ragged\": true",
             treadle_text_shown(name));
    return wrong(r, what);
  }
  return TREADLE_OK;
}

static treadle_status read_about(batch_reader *r) {
  treadle_status status;
  treadle_path path;
  TRY(treadle_path_join(r->folder, TREADLE_BATCH_ABOUT, &path));
  TRY(treadle_json_load(path.text, &r->about));
  json_t *format = json_object_get(r->about, TREADLE_BATCH_FORMAT),
         *rows = json_object_get(r->about, "rows");
  if (!json_is_integer(format))
    TRY(wrong(r, "is not a batch: it has no number of a format under \"" TREADLE_BATCH_FORMAT "\""));
  if (json_integer_value(format) != TREADLE_BATCH_VERSION)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: format %lld; this treadle (%s) reads %d", path.text,
                     (long long)json_integer_value(format), TREADLE_VERSION, TREADLE_BATCH_VERSION));
  r->columns = json_object_get(r->about, "columns");
  if (!json_is_integer(rows) || !json_is_array(r->columns))
    TRY(wrong(r, "needs rows, a number, and columns, a list"));
  TRY(treadle_batch_create(json_integer_value(rows), &r->batch));
out:
  return status;
}

static treadle_status read_meta(const batch_reader *r) {
  treadle_status status = TREADLE_OK;
  json_t *meta = json_object_get(r->about, "meta"), *value;
  const char *key;
  char *text = NULL;
  if (!treadle_json_is_object(meta)) TRY(wrong(r, "meta is not an object"));
  json_object_foreach(meta, key, value) {
    text = treadle_json_dump(value, JSON_COMPACT);
    if (!text) TRY(no_memory(r));
    TRY(treadle_batch_set_meta(r->batch, key, text));
    free(text);
    text = NULL;
  }
out:
  free(text);
  return status;
}

/* ---- columns.safetensors ----------------------------------------------------------------------- */

static treadle_status find_tensor(batch_reader *r, const char *name, const char *dtype, int ndim,
                                  int64_t rows, const treadle_stored **stored_p) {
  const treadle_stored *stored = r->numbers ? treadle_checkpoint_find(r->numbers, name) : NULL;
  if (!stored) REFUSE("%s/%s: has no '%s'", r->folder, TREADLE_BATCH_NUMBERS, treadle_text_shown(name));
  if (strcmp(stored->dtype_text, dtype) != 0 || stored->ndim != ndim ||
      (rows >= 0 && stored->shape[0] != rows))
    REFUSE("%s/%s: '%s' is %s of %d dimensions, %lld rows; %s says %s of %d, %lld", r->folder,
           TREADLE_BATCH_NUMBERS, treadle_text_shown(name), stored->dtype_text, stored->ndim,
           (long long)stored->shape[0], TREADLE_BATCH_ABOUT, dtype, ndim,
           (long long)(rows < 0 ? stored->shape[0] : rows));
  r->numbers_used++;
  *stored_p = stored;
  return TREADLE_OK;
}

static treadle_status take_numbers(batch_reader *r, const char *name, treadle_column_type type,
                                   int64_t width) {
  treadle_status status;
  treadle_builder offsets_name = {0};
  int64_t rows = r->batch->rows;
  const treadle_stored *stored, *offsets = NULL;
  treadle_column column = {.struct_size = sizeof column, .name = name, .type = type, .width = width};
  int64_t *aligned = NULL;
  TRY(find_tensor(r, name, treadle_column_about_of(type)->safetensors, width > 1 ? 2 : 1, width ? rows : -1,
                  &stored));
  if (width > 1 && stored->shape[1] != width)
    TRY(treadle_fail(TREADLE_REFUSED, "%s/%s: '%s' has rows of %lld; %s says %lld", r->folder,
                     TREADLE_BATCH_NUMBERS, treadle_text_shown(name), (long long)stored->shape[1],
                     TREADLE_BATCH_ABOUT, (long long)width));
  if (width == 0) {
    treadle_builder_add(&offsets_name, "%s%s", name, TREADLE_BATCH_OFFSETS);
    if (offsets_name.failed) TRY(no_memory(r));
    TRY(find_tensor(r, offsets_name.text, "I64", 1, rows + 1, &offsets));
    aligned = treadle_alloc_array((size_t)rows + 1, sizeof *aligned); /* files need not align them */
    if (!aligned) TRY(no_memory(r));
    memcpy(aligned, offsets->data, ((size_t)rows + 1) * sizeof *aligned);
    if (aligned[0] != 0 || aligned[rows] != stored->elems)
      TRY(treadle_fail(TREADLE_REFUSED,
                       "%s/%s: the offsets of '%s' go from %lld to %lld; it has %lld values", r->folder,
                       TREADLE_BATCH_NUMBERS, treadle_text_shown(name), (long long)aligned[0],
                       (long long)aligned[rows], (long long)stored->elems));
    column.offsets = aligned;
  }
  status = treadle_batch_add(r->batch, &column);
  if (!status) {
    const treadle_batch_entry *entry = treadle_batch_find(r->batch, name);
    if (stored->bytes) memcpy(entry->data, stored->data, stored->bytes);
    status = treadle_entry_check(entry, rows);
  }
  if (status) treadle_fail_in(status, "%s/%s: ", r->folder, TREADLE_BATCH_NUMBERS);
out:
  treadle_builder_release(&offsets_name);
  treadle_free(aligned);
  return status;
}

/* ---- texts.jsonl ------------------------------------------------------------------------------- */

static treadle_status take_line(batch_reader *r, const char *path, int64_t row, const char *line,
                                size_t bytes) {
  treadle_status status;
  json_t *object = NULL;
  char what[PATH_MAX + 40];
  snprintf(what, sizeof what, "%s: line %lld", path, (long long)row + 1);
  TRY(treadle_json_read(
      &(treadle_json_source){
          .what = what, .text = line, .count = bytes, .line = row + 1, .one_line = true, .zeros = true},
      &object));
  if (!json_is_object(object) || json_object_size(object) != r->text_count)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: is not an object of %zu texts", what, r->text_count));
  for (size_t i = 0; i < r->text_count; i++) {
    text_column *column = &r->texts[i];
    const json_t *value = json_object_get(object, column->name);
    if (!json_is_string(value))
      TRY(treadle_fail(TREADLE_REFUSED, "%s: has no text '%s'%s", what, treadle_text_shown(column->name),
                       treadle_json_note(value)));
    treadle_builder_add_bytes(&column->text, json_string_value(value), json_string_length(value));
    if (column->text.failed) TRY(no_memory(r));
    column->offsets[row + 1] = (int64_t)column->text.length;
  }
out:
  json_decref(object);
  return status;
}

static treadle_status read_texts(batch_reader *r) {
  treadle_status status = TREADLE_OK;
  treadle_path path;
  const void *image = NULL;
  size_t bytes = 0;
  int64_t row = 0;
  if (r->text_count == 0) return TREADLE_OK;
  TRY(treadle_path_join(r->folder, TREADLE_BATCH_TEXTS, &path));
  TRY(treadle_file_map(path.text, &image, &bytes));
  if (bytes / 2 <
      (size_t)r->batch->rows) /* a line is {} at least; so no table is made for rows that are not there */
    TRY(treadle_fail(TREADLE_REFUSED, "%s: has %zu bytes; the batch has %lld rows", path.text, bytes,
                     (long long)r->batch->rows));
  for (size_t i = 0; i < r->text_count; i++) {
    r->texts[i].offsets = treadle_alloc_array((size_t)r->batch->rows + 1, sizeof *r->texts[i].offsets);
    if (!r->texts[i].offsets) TRY(no_memory(r));
  }
  for (const char *at = image, *end = bytes ? at + bytes : at, *next; at < end; at = next, row++) {
    const char *line_end = memchr(at, '\n', (size_t)(end - at));
    next = line_end ? line_end + 1 : end;
    if (row == r->batch->rows)
      TRY(treadle_fail(TREADLE_REFUSED, "%s: has more than %lld lines, the rows of the batch", path.text,
                       (long long)row));
    TRY(take_line(r, path.text, row, at, (size_t)((line_end ? line_end : end) - at)));
  }
  TRY(treadle_file_unchanged(image));
  if (row != r->batch->rows)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: has %lld lines; the batch has %lld rows", path.text,
                     (long long)row, (long long)r->batch->rows));
out:
  treadle_file_unmap(image, bytes);
  return status;
}

/* ---- The folder -------------------------------------------------------------------------------- */

/* Opens what the columns need. */
static treadle_status open_files(batch_reader *r) {
  treadle_status status = TREADLE_OK;
  treadle_path path;
  size_t count = json_array_size(r->columns);
  bool numbers = false;
  r->texts = treadle_alloc_array(count + 1, sizeof *r->texts);
  if (!r->texts) TRY(no_memory(r));
  for (size_t i = 0; i < count; i++) {
    const char *name;
    treadle_column_type type;
    int64_t width;
    TRY(read_column(r, i, &name, &type, &width));
    numbers |= type != TREADLE_COLUMN_TEXT;
    if (type != TREADLE_COLUMN_TEXT) continue;
    r->texts[r->text_count++].name = name;
  }
  if (!numbers) goto out;
  TRY(treadle_path_join(r->folder, TREADLE_BATCH_NUMBERS, &path));
  TRY(treadle_checkpoint_open(path.text, &r->numbers));
  if (!r->numbers) TRY(treadle_fail(TREADLE_REFUSED, "%s: is not there", path.text));
out:
  return status;
}

static treadle_status take_columns(batch_reader *r) {
  treadle_status status = TREADLE_OK;
  size_t text = 0;
  for (size_t i = 0; i < json_array_size(r->columns); i++) {
    const char *name;
    treadle_column_type type;
    int64_t width;
    TRY(read_column(r, i, &name, &type, &width));
    if (type != TREADLE_COLUMN_TEXT) {
      TRY(take_numbers(r, name, type, width));
      continue;
    }
    text_column *column = &r->texts[text++];
    status = treadle_batch_add(r->batch, &(treadle_column){.struct_size = sizeof(treadle_column),
                                                           .name = name,
                                                           .type = type,
                                                           .offsets = column->offsets,
                                                           .data = column->text.text});
    if (status) TRY(treadle_fail_in(status, "%s/%s: ", r->folder, TREADLE_BATCH_TEXTS));
  }
  if (r->numbers && r->numbers_used != r->numbers->count)
    TRY(treadle_fail(TREADLE_REFUSED, "%s/%s: has %d tensors; %s knows %d of them", r->folder,
                     TREADLE_BATCH_NUMBERS, r->numbers->count, TREADLE_BATCH_ABOUT, r->numbers_used));
  TRY(treadle_checkpoint_unchanged(r->numbers));
out:
  return status;
}

treadle_status treadle_batch_load(const char *folder, treadle_batch **batch_p) {
  treadle_status status;
  batch_reader r = {.folder = folder};
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  TREADLE_NEED(folder);
  TRY(treadle_as_refusal(read_about(&r)));
  TRY(treadle_as_refusal(open_files(&r)));
  TRY(treadle_as_refusal(read_texts(&r)));
  TRY(take_columns(&r));
  TRY(read_meta(&r));
  *batch_p = r.batch;
  r.batch = NULL;
out:
  for (size_t i = 0; i < r.text_count; i++) {
    treadle_builder_release(&r.texts[i].text);
    treadle_free(r.texts[i].offsets);
  }
  treadle_free(r.texts);
  treadle_checkpoint_close(r.numbers);
  treadle_batch_destroy(r.batch);
  json_decref(r.about);
  return status;
}
