/* What stands beside the weights: config.json, tokenizer and their like, the index, Megatron's mark of the last
 * checkpoint. What makes the checkpoint be found comes last, after the inputs were looked at again. */
#include "convert/convert_parts.h"
#include "convert/origin.h"
#include "convert/quantised.h"
#include "convert/shards.h"

#include "base/hash.h"
#include "io/file.h"
#include "io/folder.h"
#include "io/torch.h"

#include <inttypes.h>
#include <string.h>

enum { LARGEST_TEXT = TREADLE_COMPANION_MOST };

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "convert: memory is out"); }

static treadle_status write_bytes(treadle_convert *c, const char *name, const void *bytes, size_t count) {
  treadle_status status;
  const treadle_record begun = {.path = name, .bytes = -1};
  const char *path;
  TRY(treadle_convert_path(c, name, &path));
  TRY(treadle_out_folder_note(&c->folder, &begun));
  TRY(treadle_out_folder_make(&c->folder, name));
  TRY(treadle_file_write(path, bytes, count));
out:
  return status;
}

static treadle_status write_text(treadle_convert *c, const char *name, const char *text) {
  return write_bytes(c, name, text, strlen(text));
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

/* ---- Companions -------------------------------------------------------------------------------- */

static bool is_config(const treadle_input *input) {
  return input->companion && strcmp(input->companion, "config.json") == 0;
}

static treadle_status copy_companion(treadle_convert *c, const char *to, const treadle_input *input) {
  treadle_status status;
  char *bytes = NULL, *again = NULL;
  size_t count, count_again;
  bool settled = treadle_inputs_settled(&c->inputs);
  const char *name = treadle_arena_format(&c->arena, "%s%s", to, input->companion);
  if (!name) return no_memory();
  TRY(treadle_file_read(input->path, LARGEST_TEXT, &bytes, &count));
  TRY(write_bytes(c, name, bytes, count));
  if (settled) goto out;
  TRY(treadle_file_read(input->path, LARGEST_TEXT, &again, &count_again));
  c->torn = count != count_again || memcmp(bytes, again, count) != 0;
  if (c->torn) TRY(treadle_inputs_say_torn(&c->inputs));
out:
  treadle_free(bytes);
  treadle_free(again);
  return status;
}

/* To a folder of the target ("" is the target itself). */
static treadle_status copy_companions(treadle_convert *c, const char *to, bool with_config) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < c->inputs.items.count; i++) {
    const treadle_input *input = &c->inputs.items.items[i];
    if (input->companion && (with_config || !is_config(input))) TRY(copy_companion(c, to, input));
  }
out:
  return status;
}

/* The text of config.json: it speaks of no codes where none are written. */
static treadle_status read_config(treadle_convert *c, char **text_p, size_t *length_p) {
  treadle_status status = TREADLE_OK;
  *text_p = NULL;
  for (size_t i = 0; i < c->inputs.items.count && !*text_p; i++) {
    const treadle_input *input = &c->inputs.items.items[i];
    if (!is_config(input)) continue;
    if (c->target->decodes) TRY(treadle_config_unquantised(input->path, text_p));
    if (*text_p)
      *length_p = strlen(*text_p);
    else
      TRY(treadle_file_read(input->path, LARGEST_TEXT, text_p, length_p));
  }
out:
  return status;
}

/* ---- Both types -------------------------------------------------------------------------------- */

static treadle_status finish_hf(treadle_convert *c) {
  treadle_status status = TREADLE_OK;
  const char *source_index;
  char *index = NULL, *config = NULL;
  size_t length = 0;
  TRY(copy_companions(c, "", false));
  if (c->adapter_mark) TRY(write_text(c, TREADLE_ADAPTER_MARK, c->adapter_mark));
  TRY(read_config(c, &config, &length));
  TRY(find_index(c, &source_index));
  TRY(treadle_target_index(c->target, source_index, &index));
  TRY(treadle_inputs_check(&c->inputs));
  if (config) TRY(write_bytes(c, "config.json", config, length));
  if (index) TRY(write_text(c, "model.safetensors.index.json", index));
out:
  treadle_free(config);
  treadle_free(index);
  return status;
}

/* What Megatron opens a distributed checkpoint by: the metadata, which formats it is in, and what is not a tensor. */
static treadle_status write_dist(treadle_convert *c) {
  static const char FORMATS[] = "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1, "
                                "\"common_backend\": \"torch\", \"common_backend_version\": 1}";
  treadle_status status;
  treadle_pickle pickle = {0};
  treadle_torch_writer *common = NULL;
  int64_t iteration = c->source->iteration;
  const treadle_torch_extra extras[] = {{.name = "iteration", .integer = iteration < 0 ? 0 : iteration},
                                        {.name = "checkpoint_version", .is_real = true, .real = 3.0}};
  treadle_record begun = {.bytes = -1};
  const char *path, *names[TREADLE_DIST_BESIDE];
  for (int i = 0; i < TREADLE_DIST_BESIDE; i++)
    TRY(treadle_target_dist_beside(c->target, i, &c->arena, &names[i]));
  begun.path = names[0];
  TRY(treadle_convert_path(c, begun.path, &path));
  TRY(treadle_out_folder_note(&c->folder, &begun));
  TRY(treadle_torch_create(path, NULL, 0, extras, 2, &common));
  TRY(treadle_torch_finish(common));
  TRY(treadle_target_dist_metadata(c->target, &pickle));
  TRY(write_bytes(c, names[1], pickle.bytes, pickle.count));
  TRY(write_text(c, names[2], FORMATS));
out:
  treadle_torch_writer_destroy(common);
  treadle_pickle_release(&pickle);
  return status;
}

static treadle_status finish_megatron(treadle_convert *c) {
  treadle_status status = TREADLE_OK;
  const treadle_record begun = {.path = "hf/" TREADLE_SHARDS_FILE, .bytes = -1};
  const char *source_index, *shards;
  char *index = NULL;
  char latest[24];
  size_t length;
  TRY(copy_companions(c, "hf/", true));
  if (c->adapter_mark) TRY(write_text(c, "hf/" TREADLE_ADAPTER_MARK, c->adapter_mark));
  TRY(find_index(c, &source_index));
  if (source_index) TRY(treadle_file_read(source_index, LARGEST_TEXT, &index, &length));
  if (index) TRY(write_text(c, "hf/model.safetensors.index.json", index));
  TRY(treadle_convert_path(c, begun.path, &shards));
  TRY(treadle_out_folder_note(&c->folder, &begun));
  if (c->model->checkpoint) TRY(treadle_shards_write(shards, c->model->checkpoint));
  snprintf(latest, sizeof latest, c->source->iteration < 0 ? "release" : "%" PRId64, c->source->iteration);
  if (c->target->is_dist) TRY(write_dist(c));
  TRY(treadle_inputs_check(&c->inputs));
  TRY(write_text(c, "latest_checkpointed_iteration.txt", latest));
out:
  treadle_free(index);
  return status;
}

treadle_status treadle_convert_finish_folder(treadle_convert *c) {
  treadle_status status = c->target->is_hf ? finish_hf(c) : finish_megatron(c);
  if (status) return treadle_convert_look_again(c, status);
  if (c->name) TRY(treadle_origin_write(c->folder.path, c->model, c->options.to));
  TRY(treadle_out_folder_finish(&c->folder));
  if (!c->name) goto out;
  TRY(treadle_folder_commit(c->folder.path, c->name));
  treadle_folder_lock_moved(&c->folder.lock, c->name);
out:
  return status;
}
