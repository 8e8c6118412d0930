/* Columns: their memory and who uses it, how they are added, found, renamed and removed. */
#include "base/argument.h"
#include "base/limits.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/utf8.h"
#include "batch/batch.h"
#include "batch/files.h"

#include <string.h>

enum { NAME_MOST = 255, TYPE_COUNT = TREADLE_COLUMN_BYTES + 1 };

static treadle_status no_memory(const char *name, int64_t values, treadle_column_type type) {
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for column '%s' of %lld values of %s",
                      treadle_text_shown(name), (long long)values, treadle_column_about_of(type)->name);
}

/* ---- Memory ------------------------------------------------------------------------------------ */

static void leave(treadle_column_memory *memory) {
  if (!memory || atomic_fetch_sub(&memory->users, 1) > 1) return;
  if (memory->release) memory->release(memory->context);
  treadle_free(memory->data);
  treadle_free(memory->offsets);
  treadle_free(memory);
}

char *treadle_batch_copy_text(const char *text) {
  size_t bytes = strlen(text) + 1;
  char *copied = treadle_alloc(bytes);
  return copied ? memcpy(copied, text, bytes) : NULL;
}

static treadle_status copy_name(const char *name, char **copy_p) {
  *copy_p = treadle_batch_copy_text(name);
  return *copy_p ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory for the name of a column");
}

void treadle_entry_release(treadle_batch_entry *entry) {
  leave(entry->memory);
  treadle_free(entry->name);
  *entry = (treadle_batch_entry){0};
}

treadle_status treadle_entry_make(const char *name, treadle_column_type type, int64_t width, int64_t rows,
                                  int64_t values, treadle_batch_entry *entry_p, int64_t **offsets_p) {
  treadle_status status;
  treadle_batch_entry entry = {.type = type, .width = width};
  treadle_column_memory *memory = treadle_alloc(sizeof *memory);
  if (!memory) TRY(no_memory(name, values, type));
  atomic_init(&memory->users, 1);
  entry.memory = memory;
  memory->data = treadle_alloc_array((size_t)values + 1,
                                     treadle_column_about_of(type)->bytes); /* never NULL for none */
  if (width == 0) memory->offsets = treadle_alloc_array((size_t)rows + 1, sizeof *memory->offsets);
  treadle_alloc_hint(memory->data, (size_t)values * treadle_column_about_of(type)->bytes);
  if (!memory->data || (width == 0 && !memory->offsets)) TRY(no_memory(name, values, type));
  TRY(copy_name(name, &entry.name));
  entry.data = memory->data;
  entry.offsets = memory->offsets;
  if (offsets_p) *offsets_p = memory->offsets;
  *entry_p = entry;
  entry = (treadle_batch_entry){0};
out:
  treadle_entry_release(&entry);
  return status;
}

treadle_status treadle_entry_share(const treadle_batch_entry *from, int64_t begin,
                                   treadle_batch_entry *entry_p) {
  treadle_status status;
  treadle_batch_entry entry = *from;
  TRY(copy_name(from->name, &entry.name));
  if (entry.offsets)
    entry.offsets += begin;
  else
    entry.data = treadle_entry_data(from, begin);
  atomic_fetch_add(&entry.memory->users, 1);
  *entry_p = entry;
out:
  return status;
}

/* ---- What the caller gives --------------------------------------------------------------------- */

static treadle_status check_name(const treadle_batch *batch, const char *name) {
  size_t bytes = strlen(name), end = sizeof TREADLE_BATCH_OFFSETS - 1;
  uint32_t code;
  if (bytes == 0 || bytes > NAME_MOST)
    REFUSE("the name of a column has 1 to %d bytes, not %zu: '%s'", NAME_MOST, bytes,
           treadle_text_shown(name));
  if (!treadle_utf8_is_valid(name)) REFUSE("column '%s': the name is not UTF-8", treadle_text_shown(name));
  for (const char *at = name; *at; at += treadle_utf8_read(at, &code))
    if (!treadle_utf8_is_plain((treadle_utf8_read(at, &code), code)))
      REFUSE("column '%s': the name has a control character", treadle_text_shown(name));
  if ((bytes >= end && strcmp(name + bytes - end, TREADLE_BATCH_OFFSETS) == 0) ||
      strcmp(name, "__metadata__") == 0)
    REFUSE("column '%s': the name is one that files of batches need", name);
  if (treadle_batch_find(batch, name)) REFUSE("column '%s': the batch has one with this name", name);
  return TREADLE_OK;
}

/* Values of all rows; refused: offsets that descend, and more values than there may be. */
static treadle_status count_values(const treadle_batch *batch, const treadle_column *column,
                                   int64_t *values_p) {
  const int64_t *offsets = column->offsets;
  int64_t width = column->width ? column->width : 1;
  if (!offsets && batch->rows > TREADLE_MAX_ELEMS / width)
    REFUSE("column '%s': %lld rows of %lld values are more than %lld", column->name, (long long)batch->rows,
           (long long)width, (long long)TREADLE_MAX_ELEMS);
  *values_p = batch->rows * width;
  if (!offsets) return TREADLE_OK;
  if (offsets[0] < 0) REFUSE("column '%s': the first offset is %lld", column->name, (long long)offsets[0]);
  for (int64_t r = 0; r < batch->rows; r++)
    if (offsets[r + 1] < offsets[r] || offsets[r + 1] > TREADLE_MAX_ELEMS)
      REFUSE("column '%s': the offsets of row %lld are %lld and %lld", column->name, (long long)r,
             (long long)offsets[r], (long long)offsets[r + 1]);
  *values_p = offsets[batch->rows] - offsets[0];
  return TREADLE_OK;
}

/* A text is characters to its last byte; the bytes after it are another row's, or nobody's. */
static bool is_text(const char *text, int64_t bytes) {
  enum { LONGEST = 4 };
  int64_t at = 0;
  uint32_t code;
  while (at < bytes) {
    char last[LONGEST + 1] = {0};
    const char *here = text + at;
    if (bytes - at < LONGEST) here = memcpy(last, here, (size_t)(bytes - at));
    int length = treadle_utf8_read(here, &code);
    if (length == 0 || length > bytes - at) return false;
    at += length;
  }
  return true;
}

treadle_status treadle_entry_check(const treadle_batch_entry *entry, int64_t rows) {
  bool text = entry->type == TREADLE_COLUMN_TEXT, truth = entry->type == TREADLE_COLUMN_BOOL;
  for (int64_t r = 0; (text || truth) && r < rows; r++) {
    const char *data = treadle_entry_data(entry, r);
    int64_t count = treadle_entry_count(entry, r);
    if (text && !is_text(data, count))
      REFUSE("column '%s': the text of row %lld is not UTF-8", entry->name, (long long)r);
    for (int64_t i = 0; truth && i < count; i++)
      if (data[i] & ~1)
        REFUSE("column '%s': a value of row %lld is %d, which is not a bool", entry->name, (long long)r,
               (unsigned char)data[i]);
  }
  return TREADLE_OK;
}

/* The caller's own memory. */
static treadle_status borrow(const treadle_column *column, treadle_batch_entry *entry_p) {
  treadle_status status;
  size_t each = treadle_column_about_of(column->type)->bytes;
  treadle_batch_entry entry = {.type = column->type,
                               .width = column->offsets ? 0
                                        : column->width ? column->width
                                                        : 1};
  if (!column->data) REFUSE("column '%s': no data (NULL) to be used as it lies", column->name);
  if ((uintptr_t)column->data % each || (uintptr_t)column->offsets % sizeof *column->offsets)
    REFUSE("column '%s': its data or offsets lie at an address that is not a multiple of %zu bytes",
           column->name, each);
  TRY(copy_name(column->name, &entry.name));
  entry.memory = treadle_alloc(sizeof *entry.memory);
  if (!entry.memory) TRY(no_memory(column->name, 0, column->type));
  atomic_init(&entry.memory->users, 1);
  entry.offsets = column->offsets;
  entry.data = column->data;
  *entry_p = entry;
  entry = (treadle_batch_entry){0};
out:
  treadle_entry_release(&entry);
  return status;
}

/* Memory of the batch's own; without data of the caller's it is zeros. Offsets then begin at 0. */
static treadle_status copy(const treadle_batch *batch, const treadle_column *column, int64_t values,
                           treadle_batch_entry *entry_p) {
  treadle_status status;
  size_t each = treadle_column_about_of(column->type)->bytes;
  int64_t first = column->offsets ? column->offsets[0] : 0, *offsets;
  TRY(treadle_entry_make(column->name, column->type,
                         column->offsets ? 0
                         : column->width ? column->width
                                         : 1,
                         batch->rows, values, entry_p, &offsets));
  for (int64_t r = 0; column->offsets && r <= batch->rows; r++) offsets[r] = column->offsets[r] - first;
  if (column->data && values)
    memcpy(entry_p->data, (const char *)column->data + (size_t)first * each, (size_t)values * each);
out:
  return status;
}

/* ---- Of a batch -------------------------------------------------------------------------------- */

treadle_batch_entry *treadle_batch_find(const treadle_batch *batch, const char *name) {
  for (size_t i = 0; i < batch->columns.count; i++)
    if (strcmp(batch->columns.items[i].name, name) == 0) return &batch->columns.items[i];
  return NULL;
}

treadle_status treadle_batch_need(const treadle_batch *batch, const char *name,
                                  treadle_batch_entry **entry_p) {
  const char *nearest = NULL;
  int best = 3; /* more letters are another name */
  *entry_p = treadle_batch_find(batch, name);
  if (*entry_p) return TREADLE_OK;
  for (size_t i = 0; i < batch->columns.count; i++) {
    int away = treadle_text_distance(name, batch->columns.items[i].name);
    if (away < best) best = away, nearest = batch->columns.items[i].name;
  }
  if (nearest) REFUSE("the batch has no column '%s'; it has '%s'", treadle_text_shown(name), nearest);
  REFUSE("the batch has no column '%s'", treadle_text_shown(name));
}

treadle_status treadle_batch_take(treadle_batch *batch, treadle_batch_entry *entry) {
  treadle_status status = treadle_array_push(&batch->columns, *entry);
  if (status == TREADLE_OK)
    *entry = (treadle_batch_entry){0};
  else
    treadle_fail(status, "no memory for column '%s'", entry->name);
  treadle_entry_release(entry);
  return status;
}

treadle_status treadle_batch_add(treadle_batch *batch, const treadle_column *column) {
  treadle_status status;
  treadle_batch_entry entry = {0};
  treadle_column given;
  int64_t values = 0;
  TREADLE_NEED(batch);
  TREADLE_NEED(column);
  TRY(TREADLE_TAKE(column, &given));
  TREADLE_NEED(given.name);
  TRY(treadle_check_enum(__func__, "type", (long long)given.type, TYPE_COUNT));
  TRY(check_name(batch, given.name));
  if (given.width < 0 || (given.offsets && given.width > 0))
    REFUSE("column '%s': a width of %lld%s", given.name, (long long)given.width,
           given.offsets ? " with offsets" : "");
  if (treadle_column_about_of(given.type)->ragged && !given.offsets)
    REFUSE("column '%s': %s need offsets", given.name,
           given.type == TREADLE_COLUMN_TEXT ? "texts" : "bytes");
  TRY(count_values(batch, &given, &values));
  TRY(given.release ? borrow(&given, &entry) : copy(batch, &given, values, &entry));
  if (given.data) TRY(treadle_entry_check(&entry, batch->rows));
  treadle_column_memory *memory = entry.memory;
  TRY(treadle_batch_take(batch, &entry));
  memory->release = given.release; /* only now is it the batch's */
  memory->context = given.context;
out:
  treadle_entry_release(&entry);
  return status;
}

treadle_status treadle_batch_add_texts(treadle_batch *batch, const char *name, const char *const *texts,
                                       const size_t *bytes) {
  treadle_status status;
  treadle_builder all = {0};
  int64_t *offsets = NULL;
  TREADLE_NEED(batch);
  TREADLE_NEED(name);
  if (batch->rows) TREADLE_NEED(texts);
  offsets = treadle_alloc_array((size_t)batch->rows + 1, sizeof *offsets);
  if (!offsets) TRY(no_memory(name, batch->rows, TREADLE_COLUMN_TEXT));
  for (int64_t r = 0; r < batch->rows; r++) {
    if (!texts[r])
      TRY(treadle_fail(TREADLE_REFUSED, "column '%s': the text of row %lld is NULL",
                       treadle_text_shown(name), (long long)r));
    treadle_builder_add_bytes(&all, texts[r], bytes ? bytes[r] : strlen(texts[r]));
    offsets[r + 1] = (int64_t)all.length;
  }
  if (all.failed) TRY(no_memory(name, batch->rows, TREADLE_COLUMN_TEXT));
  TRY(treadle_batch_add(batch, &(treadle_column){.struct_size = sizeof(treadle_column),
                                                 .name = name,
                                                 .type = TREADLE_COLUMN_TEXT,
                                                 .offsets = offsets,
                                                 .data = all.text}));
out:
  treadle_builder_release(&all);
  treadle_free(offsets);
  return status;
}

static void give(const treadle_batch_entry *entry, treadle_column *column_p) {
  TREADLE_GIVE(column_p, &((treadle_column){.struct_size = sizeof(treadle_column),
                                            .name = entry->name,
                                            .type = entry->type,
                                            .width = entry->width,
                                            .offsets = entry->offsets,
                                            .data = entry->data}));
}

treadle_status treadle_batch_column(const treadle_batch *batch, const char *name,
                                    treadle_column *column_p) {
  treadle_status status;
  treadle_batch_entry *entry;
  TREADLE_NEED_SIZED(column_p);
  TREADLE_NEED(batch);
  TREADLE_NEED(name);
  TRY(treadle_batch_need(batch, name, &entry));
  give(entry, column_p);
out:
  return status;
}

treadle_status treadle_batch_column_at(const treadle_batch *batch, int32_t number,
                                       treadle_column *column_p) {
  TREADLE_NEED_SIZED(column_p);
  TREADLE_NEED(batch);
  if (number < 0 || (size_t)number >= batch->columns.count)
    REFUSE("the batch has no column number %d: it has %zu", number, batch->columns.count);
  give(&batch->columns.items[number], column_p);
  return TREADLE_OK;
}

bool treadle_batch_has(const treadle_batch *batch, const char *name) {
  TREADLE_NEED_OR(batch, false);
  TREADLE_NEED_OR(name, false);
  return treadle_batch_find(batch, name) != NULL;
}

treadle_status treadle_batch_remove(treadle_batch *batch, const char *name) {
  treadle_status status;
  treadle_batch_entry *entry;
  TREADLE_NEED(batch);
  TREADLE_NEED(name);
  TRY(treadle_batch_need(batch, name, &entry));
  size_t at = (size_t)(entry - batch->columns.items);
  treadle_entry_release(entry);
  memmove(entry, entry + 1, (--batch->columns.count - at) * sizeof *entry);
out:
  return status;
}

treadle_status treadle_batch_rename(treadle_batch *batch, const char *name, const char *to) {
  treadle_status status;
  treadle_batch_entry *entry;
  char *copied;
  TREADLE_NEED(batch);
  TREADLE_NEED(name);
  TREADLE_NEED(to);
  TRY(treadle_batch_need(batch, name, &entry));
  TRY(check_name(batch, to));
  TRY(copy_name(to, &copied));
  treadle_free(entry->name);
  entry->name = copied;
out:
  return status;
}
