/* The index of Hugging Face's files. Where all is as it was it is carried byte for byte; else names keep their order in
 * it, those that are no longer there go, and new ones stand at its end. */
#include "convert/target_parts.h"

#include "io/file.h"
#include "io/json.h"

#include <stdlib.h>
#include <string.h>

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "no memory for the index"); }

/* Name to file, and the bytes of all. */
static treadle_status list_items(const treadle_target *target, json_t *map, int64_t *total_p) {
  *total_p = 0;
  for (int32_t f = 0; f < target->file_count; f++)
    for (int32_t i = target->first_item[f]; i < target->first_item[f + 1]; i++) {
      *total_p += (int64_t)treadle_out_entry_about(target, &target->items[i]).bytes;
      if (json_object_set_new(map, target->items[i].name, json_string(target->paths[f])) != 0)
        return no_memory();
    }
  return TREADLE_OK;
}

/* The files' own index for what is written. */
static treadle_status change_index(const char *source_index, json_t *map, int64_t total, json_t **root_p) {
  treadle_status status;
  const char *name;
  json_t *file, *names = json_object(), *metadata;
  TRY(treadle_json_load(source_index, root_p));
  json_object_foreach(json_object_get(*root_p, "weight_map"), name, file) {
    if (json_object_get(map, name)) json_object_set(names, name, json_object_get(map, name));
  }
  json_object_update_missing(names, map);
  if (json_object_size(names) != json_object_size(map)) TRY(no_memory());
  json_object_set(*root_p, "weight_map", names);
  metadata = json_object_get(*root_p, "metadata");
  if (treadle_json_is_object(metadata)) json_object_set_new(metadata, "total_size", json_integer(total));
out:
  json_decref(names);
  return status;
}

treadle_status treadle_target_index(const treadle_target *target, const char *source_index, char **text_p) {
  treadle_status status = TREADLE_OK;
  json_t *root = NULL, *map = NULL;
  char *dumped = NULL;
  size_t length;
  int64_t total;
  *text_p = NULL;
  if (source_index && target->own && target->as_they_are)
    return treadle_file_read(source_index, (size_t)1 << 30, text_p, &length);
  if (target->own ? !source_index : target->file_count == 1) return TREADLE_OK;
  map = json_object();
  TRY(list_items(target, map, &total));
  if (target->own)
    TRY(change_index(source_index, map, total, &root));
  else
    root = json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
  dumped = root ? treadle_json_dump(root, JSON_INDENT(2)) : NULL;
  length = dumped ? strlen(dumped) : 0;
  *text_p = dumped ? treadle_alloc(length + 1) : NULL;
  if (*text_p)
    memcpy(*text_p, dumped, length);
  else
    status = no_memory();
out:
  free(dumped);
  json_decref(map);
  json_decref(root);
  return status;
}
