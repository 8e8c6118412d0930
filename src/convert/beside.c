/* What stands beside the weights: config.json, tokenizer and their like, the index, Megatron's mark of the last
 * checkpoint. */
#include "convert/convert_parts.h"
#include "convert/quantised.h"
#include "convert/shards.h"
#include "io/file.h"

#include <inttypes.h>
#include <string.h>

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "convert: memory is out"); }

static treadle_status write_text(treadle_convert *c, const char *name, const char *text) {
  treadle_status status;
  const char *path;
  TRY(treadle_convert_path(c, name, &path));
  TRY(treadle_out_folder_make(&c->folder, name));
  TRY(treadle_file_write(path, text, strlen(text)));
out:
  return status;
}

/* The index of the model's own files; NULL: they have none. */
static treadle_status find_index(treadle_convert *c, const char **path_p) {
  *path_p = NULL;
  if (!c->companions) return TREADLE_OK;
  const char *path = treadle_arena_format(&c->arena, "%s/model.safetensors.index.json", c->companions);
  if (!path) return no_memory();
  if (treadle_file_exists(path)) *path_p = path;
  return TREADLE_OK;
}

/* Copies what stands beside the weights of the model to a folder of the target ("" is the target itself), and is not
 * there yet. */
static treadle_status copy_companions(treadle_convert *c, const char *to) {
  treadle_status status;
  const char *folder, *config;
  char *bytes = NULL;
  size_t count;
  TRY(treadle_convert_path(c, to, &folder));
  TRY(treadle_out_folder_make(&c->folder, to));
  if (c->companions) return treadle_copy_companions(c->companions, folder);
  config = treadle_arena_format(&c->arena, "%s/config.json", folder);
  if (!config) TRY(no_memory());
  if (treadle_file_exists(config)) goto out;
  TRY(treadle_file_read(c->config, (size_t)1 << 30, &bytes, &count));
  TRY(treadle_file_write(config, bytes, count));
out:
  treadle_free(bytes);
  return status;
}

/* config.json speaks of no codes where none are written; what is there is not copied over. */
static treadle_status write_unquantised(treadle_convert *c) {
  treadle_status status;
  const char *config = c->config;
  char *text = NULL;
  if (c->companions) config = treadle_arena_format(&c->arena, "%s/config.json", c->companions);
  if (!config) return no_memory();
  TRY(treadle_config_unquantised(config, &text));
  if (text) TRY(write_text(c, "config.json", text));
out:
  treadle_free(text);
  return status;
}

static treadle_status finish_hf(treadle_convert *c) {
  treadle_status status = TREADLE_OK;
  const char *source_index;
  char *index = NULL;
  if (c->target->decodes) TRY(write_unquantised(c));
  TRY(copy_companions(c, ""));
  TRY(find_index(c, &source_index));
  TRY(treadle_target_index(c->target, source_index, &index));
  if (index) TRY(write_text(c, "model.safetensors.index.json", index));
out:
  treadle_free(index);
  return status;
}

static treadle_status finish_megatron(treadle_convert *c) {
  treadle_status status = TREADLE_OK;
  const char *source_index, *shards;
  char *index = NULL;
  char latest[24];
  size_t length;
  TRY(copy_companions(c, "hf/"));
  TRY(find_index(c, &source_index));
  if (source_index) TRY(treadle_file_read(source_index, (size_t)1 << 30, &index, &length));
  if (index) TRY(write_text(c, "hf/model.safetensors.index.json", index));
  TRY(treadle_convert_path(c, "hf/" TREADLE_SHARDS_FILE, &shards));
  if (c->model->checkpoint) TRY(treadle_shards_write(shards, c->model->checkpoint));
  snprintf(latest, sizeof latest, c->source->iteration < 0 ? "release" : "%" PRId64, c->source->iteration);
  TRY(write_text(c, "latest_checkpointed_iteration.txt", latest));
out:
  treadle_free(index);
  return status;
}

treadle_status treadle_convert_finish(treadle_convert *c) {
  treadle_status status;
  TRY(c->target->is_hf ? finish_hf(c) : finish_megatron(c));
  TRY(treadle_out_folder_finish(&c->folder));
out:
  return status;
}
