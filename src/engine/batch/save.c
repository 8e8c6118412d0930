/* Batches as folders: made beside their path, and there under their own name when all files are in them. */
#include "base/arena.h"
#include "base/argument.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "batch/batch.h"
#include "batch/files.h"
#include "io/file.h"
#include "io/folder.h"
#include "io/json.h"
#include "io/path.h"
#include "io/safetensors.h"

#include <limits.h>
#include <string.h>

typedef struct batch_writer {
  const treadle_batch *batch;
  const char *folder; /* as it is called, for messages */
  const char *made;   /* where files are made */
  treadle_arena arena;
} batch_writer;

static treadle_status no_memory(const batch_writer *w) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory to save a batch", w->folder);
}

/* ---- columns.safetensors ----------------------------------------------------------------------- */

typedef TREADLE_ARRAY(treadle_stored) stored_list;

/* Offsets of a slice begin later; files have them from 0. */
static treadle_status add_offsets(batch_writer *w, const treadle_batch_entry *entry, stored_list *list) {
  treadle_status status;
  int64_t rows = w->batch->rows,
          *offsets = treadle_arena_alloc_array(&w->arena, (size_t)rows + 1, sizeof *offsets);
  const char *name = treadle_arena_format(&w->arena, "%s%s", entry->name, TREADLE_BATCH_OFFSETS);
  if (!offsets || !name) TRY(no_memory(w));
  for (int64_t r = 0; r <= rows; r++) offsets[r] = entry->offsets[r] - entry->offsets[0];
  const treadle_stored stored = {
      .name = name, .dtype_text = "I64", .ndim = 1, .shape = {rows + 1}, .data = offsets};
  TRY(treadle_array_push(list, stored));
out:
  return status;
}

static treadle_status write_numbers(batch_writer *w) {
  treadle_status status = TREADLE_OK;
  treadle_path path;
  stored_list list = {0};
  for (size_t i = 0; i < w->batch->columns.count; i++) {
    const treadle_batch_entry *entry = &w->batch->columns.items[i];
    treadle_stored stored = {.name = entry->name,
                             .dtype_text = treadle_column_about_of(entry->type)->safetensors,
                             .ndim = entry->width > 1 ? 2 : 1,
                             .shape = {w->batch->rows, entry->width},
                             .data = treadle_entry_data(entry, 0)};
    if (!stored.dtype_text) continue;
    if (entry->offsets) {
      stored.shape[0] = treadle_entry_at(entry, w->batch->rows) - treadle_entry_at(entry, 0);
      TRY(add_offsets(w, entry, &list));
    }
    TRY(treadle_array_push(&list, stored));
  }
  if (list.count == 0) goto out;
  TRY(treadle_path_join(w->made, TREADLE_BATCH_NUMBERS, &path));
  TRY(treadle_safetensors_write(path.text, list.items, (int32_t)list.count));
out:
  treadle_array_release(&list);
  return status;
}

/* ---- texts.jsonl ------------------------------------------------------------------------------- */

static treadle_status write_texts(batch_writer *w) {
  enum { AT_ONCE = 1 << 20 };
  treadle_status status;
  treadle_path path;
  treadle_builder text = {0};
  treadle_file_writer *writer = NULL;
  bool any = false;
  for (size_t i = 0; i < w->batch->columns.count; i++)
    any |= w->batch->columns.items[i].type == TREADLE_COLUMN_TEXT;
  if (!any) return TREADLE_OK;
  TRY(treadle_path_join(w->made, TREADLE_BATCH_TEXTS, &path));
  TRY(treadle_file_writer_create(path.text, &writer));
  for (int64_t r = 0; r < w->batch->rows; r++) {
    const char *between = "{";
    for (size_t i = 0; i < w->batch->columns.count; i++) {
      const treadle_batch_entry *entry = &w->batch->columns.items[i];
      if (entry->type != TREADLE_COLUMN_TEXT) continue;
      treadle_builder_add(&text, "%s", between);
      treadle_json_add_text(&text, entry->name, strlen(entry->name));
      treadle_builder_add(&text, ": ");
      treadle_json_add_text(&text, treadle_entry_data(entry, r), (size_t)treadle_entry_count(entry, r));
      between = ", ";
    }
    treadle_builder_add(&text, "}\n");
    if (text.failed) TRY(no_memory(w));
    if (text.length < AT_ONCE && r + 1 < w->batch->rows) continue;
    TRY(treadle_file_writer_append(writer, text.text, text.length));
    text.length = 0;
  }
  TRY(treadle_file_writer_commit(writer));
out:
  treadle_file_writer_destroy(writer);
  treadle_builder_release(&text);
  return status;
}

/* ---- batch.json -------------------------------------------------------------------------------- */

static treadle_status write_about(const batch_writer *w) {
  treadle_status status;
  const treadle_batch *batch = w->batch;
  treadle_path path;
  treadle_builder text = {0};
  treadle_builder_add(&text, "{\"%s\": %d, \"rows\": %lld,\n \"columns\": [", TREADLE_BATCH_FORMAT,
                      TREADLE_BATCH_VERSION, (long long)batch->rows);
  for (size_t i = 0; i < batch->columns.count; i++) {
    const treadle_batch_entry *entry = &batch->columns.items[i];
    treadle_builder_add(&text, "%s\n  {\"name\": ", i ? "," : "");
    treadle_json_add_text(&text, entry->name, strlen(entry->name));
    treadle_builder_add(&text, ", \"type\": \"%s\"", treadle_column_about_of(entry->type)->name);
    if (!treadle_column_about_of(entry->type)->ragged)
      treadle_builder_add(&text, entry->width ? ", \"width\": %lld" : ", \"ragged\": true",
                          (long long)entry->width);
    treadle_builder_add(&text, "}");
  }
  treadle_builder_add(&text, "],\n \"meta\": {");
  for (size_t i = 0; i < batch->meta.count; i++) {
    treadle_builder_add(&text, "%s\n  ", i ? "," : "");
    treadle_json_add_text(&text, batch->meta.items[i].key, strlen(batch->meta.items[i].key));
    treadle_builder_add(&text, ": %s", batch->meta.items[i].json);
  }
  treadle_builder_add(&text, "}}\n");
  if (text.failed) TRY(no_memory(w));
  TRY(treadle_path_join(w->made, TREADLE_BATCH_ABOUT, &path));
  TRY(treadle_file_write(path.text, text.text, text.length));
out:
  treadle_builder_release(&text);
  return status;
}

/* ---- The folder -------------------------------------------------------------------------------- */

/* Is there a batch that is to be replaced? Nothing and an empty folder are none; anything else is refused. */
static treadle_status look(const char *folder, bool *replaced_p) {
  treadle_status status = TREADLE_OK;
  treadle_path path;
  treadle_arena arena = {0};
  treadle_folder_names names = {0};
  *replaced_p = false;
  if (!treadle_file_exists(folder)) goto out;
  if (!treadle_file_is_folder(folder))
    TRY(treadle_fail(TREADLE_REFUSED, "%s: is there, and not a folder", folder));
  TRY(treadle_folder_list(folder, &arena, &names));
  if (names.count == 0) goto out;
  TRY(treadle_path_join(folder, TREADLE_BATCH_ABOUT, &path));
  if (!treadle_file_exists(path.text))
    TRY(treadle_fail(TREADLE_REFUSED, "%s: has files, and no %s: it is not a batch that could be replaced",
                     folder, TREADLE_BATCH_ABOUT));
  *replaced_p = true;
out:
  treadle_array_release(&names);
  treadle_arena_release(&arena);
  return status;
}

treadle_status treadle_batch_save(const treadle_batch *batch, const char *folder) {
  treadle_status status;
  char path[PATH_MAX], made[PATH_MAX] = "";
  bool replaced;
  TREADLE_NEED(batch);
  TREADLE_NEED(folder);
  batch_writer w = {.batch = batch, .folder = folder, .made = made};
  size_t length = strlen(folder);
  while (length > 1 && folder[length - 1] == '/') length--;
  if (length == 0 || length >= sizeof path) REFUSE("'%s': no path of a folder", treadle_text_shown(folder));
  snprintf(path, sizeof path, "%.*s", (int)length, folder);
  for (size_t i = 0; i < batch->columns.count; i++)
    TRY(treadle_entry_check(&batch->columns.items[i], batch->rows));
  TRY(look(path, &replaced));
  TRY(treadle_folder_create_beside(path, made, sizeof made));
  TRY(write_numbers(&w));
  TRY(write_texts(&w));
  TRY(write_about(&w));
  TRY(replaced ? treadle_folder_exchange(made, path) : treadle_folder_commit(made, path));
  if (!replaced) *made = 0;
out:
  if (*made) treadle_folder_drop(made); /* what was made or what was replaced */
  treadle_arena_release(&w.arena);
  return status;
}
