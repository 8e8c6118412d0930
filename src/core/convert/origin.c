/* The origin of a folder, as JSON: {layout, files: [{file, bytes, seconds, nanoseconds}]}. */
#include "convert/origin.h"

#include "base/utf8.h"
#include "io/file.h"
#include "io/file_map.h"
#include "io/folder.h"
#include "io/json.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static treadle_status path_of(const char *folder, char path[PATH_MAX]) {
  if (snprintf(path, PATH_MAX, "%s/" TREADLE_ORIGIN_FILE, folder) < PATH_MAX) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s: too long for a path", folder);
}

static treadle_status add_file(json_t *files, const char *path, const treadle_file_stamp *stamp) {
  const char *slash = strrchr(path, '/');
  json_t *row = json_pack("{s:s, s:I, s:I, s:I}", "file", slash ? slash + 1 : path, "bytes",
                          (json_int_t)stamp->bytes, "seconds", (json_int_t)stamp->modified.tv_sec,
                          "nanoseconds", (json_int_t)stamp->modified.tv_nsec);
  if (json_array_append_new(files, row) == 0) return TREADLE_OK;
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its name", path);
}

/* The model's files as they were when it was opened. */
static treadle_status describe(const treadle_model *model, const char *layout, json_t **root_p) {
  const treadle_checkpoint *checkpoint = model->checkpoint;
  json_t *files = json_array(), *root = json_pack("{s:s, s:o}", "layout", layout, "files", files);
  treadle_file_stamp stamp;
  treadle_status status;
  *root_p = NULL;
  if (!root)
    return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for the names of its files", model->path);
  TRY(treadle_file_stamp_now(model->path, &stamp));
  TRY(add_file(files, model->path, &stamp));
  for (int32_t f = 0; checkpoint && f < checkpoint->file_count; f++) {
    const void *image = treadle_checkpoint_image(checkpoint, f);
    if (!image || !treadle_file_mapped_stamp(image, &stamp))
      TRY(treadle_file_stamp_now(checkpoint->files[f], &stamp));
    TRY(add_file(files, checkpoint->files[f], &stamp));
  }
  *root_p = root;
  root = NULL;
out:
  json_decref(root);
  return status;
}

treadle_status treadle_origin_write(const char *folder, const treadle_model *model, const char *layout) {
  char path[PATH_MAX], *text = NULL;
  json_t *root = NULL;
  treadle_status status;
  TRY(path_of(folder, path));
  TRY(describe(model, layout, &root));
  text = json_dumps(root, JSON_INDENT(1));
  if (!text) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its text", path));
  TRY(treadle_file_write(path, text, strlen(text)));
out:
  free(text);
  json_decref(root);
  return status;
}

/* The first file that the two do not have alike; NULL: there is none. `alone`: of now there is config.json alone, since the weights were
 * converted, and need not be kept. */
static const char *find_change(const json_t *then, const json_t *now, bool alone) {
  size_t i;
  json_t *row;
  json_array_foreach(now, i, row) {
    if (!json_equal(row, json_array_get(then, i))) return json_string_value(json_object_get(row, "file"));
  }
  return json_array_size(then) > json_array_size(now) && !alone ? "a file that is gone" : NULL;
}

static treadle_status compare(const char *folder, const treadle_model *model, const json_t *then,
                              const json_t *now) {
  const char *said = json_string_value(json_object_get(then, "layout"));
  const char *wanted = json_string_value(json_object_get(now, "layout"));
  if (!said || strcmp(said, wanted) != 0)
    REFUSE("%s was converted to '%s', and this run takes '%s': remove that folder, or name another one",
           folder, said ? treadle_text_shown(said) : "(unknown)", wanted);
  const char *change =
      find_change(json_object_get(then, "files"), json_object_get(now, "files"), !model->checkpoint);
  if (change)
    REFUSE(
        "%s was converted of other weights than %s has now: %s has changed since. Remove that folder, or "
        "name another one",
        folder, model->folder ? model->folder : model->path, change);
  return TREADLE_OK;
}

static bool is_empty(const char *folder) {
  treadle_arena arena = {0};
  treadle_folder_names names = {0};
  bool empty = treadle_folder_list(folder, &arena, &names) == TREADLE_OK && names.count == 0;
  treadle_array_release(&names);
  treadle_arena_release(&arena);
  return empty;
}

treadle_status treadle_origin_check(const char *folder, const treadle_model *model, const char *layout,
                                    bool *there_p) {
  char path[PATH_MAX];
  json_t *then = NULL, *now = NULL;
  treadle_status status;
  *there_p = false;
  TRY(path_of(folder, path));
  if (!treadle_file_exists(folder) && !treadle_file_is_folder(folder)) return TREADLE_OK;
  if (treadle_file_is_folder(folder) && is_empty(folder)) return TREADLE_OK;
  if (!treadle_file_exists(path))
    TRY(treadle_fail(
        TREADLE_REFUSED,
        "%s is there, and no run has converted it (it has no " TREADLE_ORIGIN_FILE
        "): give it as actor.checkpoint_load_path, without use_hf_ckpt, or name another folder",
        folder));
  TRY(treadle_json_load(path, &then));
  TRY(describe(model, layout, &now));
  TRY(compare(folder, model, then, now));
  *there_p = true;
out:
  json_decref(then);
  json_decref(now);
  return status;
}

treadle_status treadle_origin_layout(const char *folder, char **layout_p) {
  char path[PATH_MAX];
  json_t *root = NULL;
  treadle_status status;
  *layout_p = NULL;
  TRY(path_of(folder, path));
  if (!treadle_file_exists(path)) return TREADLE_OK;
  TRY(treadle_json_load(path, &root));
  const char *layout = json_string_value(json_object_get(root, "layout"));
  if (!layout) TRY(treadle_fail(TREADLE_REFUSED, "%s: 'layout' is missing", path));
  *layout_p = strdup(layout);
  if (!*layout_p) status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its layout", path);
out:
  json_decref(root);
  return status;
}
