/* Headers of a model's own files, as JSON: a list of {file, data_bytes, header}, the header as the text that it was. */
#include "convert/shards.h"

#include "base/alloc.h"
#include "base/hash_map.h"
#include "io/file.h"
#include "io/json.h"
#include "model/build.h"

#include <stdlib.h>
#include <string.h>

treadle_status treadle_shards_write(const char *path, const treadle_checkpoint *checkpoint) {
  treadle_status status = TREADLE_OK;
  json_t *list = json_array(), *root = json_pack("{s:o}", "shards", list);
  char *text = NULL;
  for (int32_t f = 0; f < checkpoint->file_count; f++) {
    const treadle_header header = treadle_checkpoint_header(checkpoint, f);
    json_t *row = json_pack("{s:s, s:I, s:s%}", "file", header.file, "data_bytes",
                            (json_int_t)header.data_bytes, "header", header.text, header.length);
    if (json_array_append_new(list, row) != 0)
      TRY(treadle_fail(TREADLE_REFUSED, "%s: the header of %s cannot be kept", path, header.file));
  }
  text = json_dumps(root, JSON_INDENT(1));
  if (!text) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for the headers", path));
  TRY(treadle_file_write(path, text, strlen(text)));
out:
  free(text);
  json_decref(root);
  return status;
}

/* Names of files come from a file: they stay in their folder. */
static bool is_plain_name(const char *name) {
  return name && *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static treadle_status read_headers(const char *path, treadle_checkpoint **checkpoint_p) {
  treadle_status status;
  json_t *root = NULL, *row;
  treadle_header *headers = NULL;
  treadle_hash_map names = {0}; /* its keys are those of root */
  size_t i;
  TRY(treadle_json_load(path, &root));
  json_t *list = json_object_get(root, "shards");
  size_t count = json_array_size(list);
  if (count == 0 || count > INT32_MAX)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: has no list of shards", path));
  headers = treadle_alloc_array(count, sizeof *headers);
  if (!headers) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for %zu headers", path, count));
  json_array_foreach(list, i, row) {
    json_t *text = json_object_get(row, "header");
    json_int_t bytes = json_integer_value(json_object_get(row, "data_bytes"));
    const char *file = json_string_value(json_object_get(row, "file"));
    if (!is_plain_name(file) || !json_is_string(text) || bytes < 0)
      TRY(treadle_fail(TREADLE_REFUSED, "%s: shard %zu lacks its file, header or data_bytes", path, i));
    int64_t other = treadle_hash_map_get(&names, file, -1);
    if (other >= 0)
      TRY(treadle_fail(TREADLE_REFUSED, "%s: shards %lld and %zu are both called '%s'", path,
                       (long long)other, i, file));
    TRY(treadle_hash_map_put(&names, file, (int64_t)i));
    headers[i] = (treadle_header){file, json_string_value(text), json_string_length(text), (size_t)bytes};
  }
  TRY(treadle_checkpoint_from_headers(path, headers, (int32_t)count, checkpoint_p));
out:
  treadle_hash_map_release(&names);
  treadle_free(headers);
  json_decref(root);
  return status;
}

treadle_status treadle_shards_open_model(const char *folder, const treadle_model_options *options,
                                         treadle_model **model_p) {
  treadle_status status;
  treadle_arena arena = {0};
  json_t *config = NULL;
  treadle_model *model = NULL;
  treadle_checkpoint *checkpoint = NULL;
  const char *shards = treadle_arena_format(&arena, "%s/%s", folder, TREADLE_SHARDS_FILE);
  const char *config_path = treadle_arena_format(&arena, "%s/config.json", folder);
  if (!shards || !config_path) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a path", folder));
  if (!treadle_file_exists(shards)) {
    status = treadle_model_open(folder, options, model_p);
    goto out;
  }
  TRY(treadle_json_load(config_path, &config));
  TRY(read_headers(shards, &checkpoint));
  TRY(treadle_model_for_files(config_path, config, options, checkpoint, &model));
  TRY(treadle_model_adopt(model, shards, checkpoint));
  checkpoint = NULL;
  *model_p = model;
  model = NULL;
out:
  treadle_model_close(model);
  treadle_checkpoint_close(checkpoint);
  json_decref(config);
  treadle_arena_release(&arena);
  return status;
}
