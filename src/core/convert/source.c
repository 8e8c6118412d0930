/* Sources: the table of types, and what they share. */
#include "convert/source.h"

#include "base/text.h"
#include "io/file.h"
#include "layout/settings.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TOUCHED_MAX = 64 << 20 }; /* bytes of mappings that may count as memory of this process */

static const treadle_source_type *const types[] = {&treadle_source_hf, &treadle_source_megatron,
                                                   &treadle_source_dist};
enum { KINDS = sizeof types / sizeof *types };

treadle_status treadle_source_type_of(const char *layout_text, const treadle_source_type **type_p) {
  treadle_arena arena = {0};
  treadle_settings words;
  treadle_status status;
  *type_p = NULL;
  TRY(treadle_settings_parse(layout_text, &arena, &words));
  for (int i = 0; i < KINDS; i++)
    if (strcmp(types[i]->name, words.type) == 0) *type_p = types[i];
  if (!*type_p)
    status = treadle_fail(TREADLE_REFUSED,
                          "--from '%s': checkpoints are read as hf, megatron or torch_dist", layout_text);
out:
  treadle_arena_release(&arena);
  return status;
}

treadle_status treadle_source_open(const treadle_source_type *type, const treadle_model *model,
                                   treadle_inputs *inputs, const char *folder, const char *layout_text,
                                   treadle_source **source_p) {
  treadle_source *source = treadle_alloc(sizeof *source);
  *source_p = NULL;
  if (!source) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a checkpoint", folder);
  source->type = type;
  source->model = model;
  source->inputs = inputs;
  source->iteration = -1;
  treadle_status status = type->open(source, folder, layout_text);
  for (int32_t f = 0; status == TREADLE_OK && f < source->file_count; f++) {
    const void *image = type->image(source, f);
    if (image) status = treadle_inputs_add_mapped(inputs, source->files[f], image);
  }
  if (status == TREADLE_OK)
    *source_p = source;
  else
    treadle_source_close(source);
  return status;
}

void treadle_source_close(treadle_source *source) {
  if (!source) return;
  source->type->close(source);
  treadle_layout_destroy(source->layout);
  treadle_array_release(&source->touched);
  treadle_entry_sums_release(&source->sums);
  treadle_arena_release(&source->arena);
  treadle_free(source);
}

treadle_status treadle_source_places(treadle_source *source, int32_t tensor, const treadle_box *box,
                                     treadle_file_boxes *places) {
  return source->type->places(source, tensor, box, places);
}

treadle_status treadle_source_ask(treadle_source *source, const void *data, int64_t bytes) {
  return treadle_entry_sums_ask(&source->sums, data, bytes);
}

treadle_status treadle_source_touch(treadle_source *source, const void *begin, int64_t bytes) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
  treadle_touched_pages range = {(char *)((uintptr_t)begin & ~page),
                                 (char *)(((uintptr_t)begin + (uintptr_t)bytes + page) & ~page)};
  if (source->touched_bytes >= TOUCHED_MAX)
    treadle_source_let_go(source); /* not this range: it may be read yet */
  treadle_touched_pages *last =
      source->touched.count ? &source->touched.items[source->touched.count - 1] : NULL;
  source->touched_bytes += bytes;
  if (!last || range.begin < last->begin || range.begin > last->end)
    return treadle_array_push(&source->touched, range);
  if (range.end > last->end) last->end = range.end;
  return TREADLE_OK;
}

void treadle_source_let_go(treadle_source *source) {
  for (size_t i = 0; i < source->touched.count; i++) /* the file stays in the system's cache */
    madvise(source->touched.items[i].begin,
            (size_t)(source->touched.items[i].end - source->touched.items[i].begin), MADV_DONTNEED);
  source->touched.count = 0;
  source->touched_bytes = 0;
}

treadle_status treadle_source_folder(treadle_source *source, const char *folder, const char *mark,
                                     const char **folder_p) {
  static const char LATEST[] = "latest_checkpointed_iteration.txt";
  char *text = NULL;
  size_t length;
  treadle_status status;
  const char *path = treadle_arena_format(&source->arena, "%s/%s", folder, mark);
  const char *latest = treadle_arena_format(&source->arena, "%s/%s", folder, LATEST);
  *folder_p = folder;
  if (!path || !latest) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a path", folder);
  if (treadle_file_exists(path)) return TREADLE_OK;
  if (!treadle_file_is_folder(folder))
    return treadle_fail(TREADLE_REFUSED, "%s: there is no such folder", folder);
  if (!treadle_file_exists(latest))
    return treadle_fail(TREADLE_REFUSED, "%s: is not a checkpoint of Megatron: it has neither %s nor %s",
                        folder, mark, LATEST);
  TRY(treadle_inputs_add(source->inputs, latest, NULL));
  TRY(treadle_file_read(latest, 4096, &text, &length));
  while (length > 0 && strchr(" \r\n\t", text[length - 1])) text[--length] = 0;
  if (strcmp(text, "release") == 0) {
    *folder_p = treadle_arena_format(&source->arena, "%s/release", folder);
  } else if (treadle_text_to_int64(text, &source->iteration) && source->iteration >= 0) {
    *folder_p =
        treadle_arena_format(&source->arena, "%s/iter_%07lld", folder, (long long)source->iteration);
  } else {
    TRY(treadle_fail(TREADLE_REFUSED,
                     "%s: holds '%.40s', and must hold release or the number of an iteration", latest,
                     text));
  }
  if (!*folder_p) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a path", folder));
  if (!treadle_file_is_folder(*folder_p))
    status =
        treadle_fail(TREADLE_REFUSED, "%s: there is no such folder, which %s names", *folder_p, LATEST);
out:
  treadle_free(text);
  return status;
}
