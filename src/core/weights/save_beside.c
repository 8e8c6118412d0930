/* What stands beside the weights of a saved model. */
#include "weights/save_plan.h"

#include "base/json.h"
#include "io/file.h"
#include "io/folder.h"
#include "io/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LARGEST_TEXT = TREADLE_COMPANION_MOST };

static treadle_status write_to(const char *folder, const char *name, const void *bytes, size_t count) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return treadle_file_write(path, bytes, count);
}

/* As transformers names them. */
static const char *torch_name(treadle_dtype dtype) {
  return dtype == TREADLE_FP32   ? "float32"
         : dtype == TREADLE_BF16 ? "bfloat16"
         : dtype == TREADLE_FP16 ? "float16"
                                 : NULL;
}

/* The config says of which type the tensors are: torch_dtype, or dtype as newer ones have it. *changed_p: it had to be told. */
static treadle_status tell_dtype(json_t *config, treadle_dtype dtype, bool *changed_p) {
  static const char *const keys[] = {"torch_dtype", "dtype"};
  const char *name = torch_name(dtype);
  *changed_p = false;
  for (int i = 0; name && i < 2; i++) {
    const char *said = json_string_value(json_object_get(config, keys[i]));
    if (!said || strcmp(said, name) == 0) continue;
    if (json_object_set_new(config, keys[i], json_string(name)) != 0)
      return treadle_fail(TREADLE_NO_MEMORY, "config.json: memory is out");
    *changed_p = true;
  }
  return TREADLE_OK;
}

/* The class of transformers that has such a head, after that which the config names; NULL: it names none that this is known of. */
static const char *class_of(const json_t *config, bool bias, treadle_arena *arena) {
  static const char *const ends[] = {"ForCausalLM", "ForSequenceClassification", "ForTokenClassification"};
  const char *name = json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
  for (size_t i = 0; name && i < sizeof ends / sizeof *ends; i++) {
    const size_t length = strlen(name), end = strlen(ends[i]);
    if (length > end && strcmp(name + length - end, ends[i]) == 0)
      return treadle_arena_format(arena, "%.*s%s", (int)(length - end), name, ends[bias ? 2 : 1]);
  }
  return NULL;
}

/* A score head is that of a class for one label: for sequences; with a bias, for tokens. */
static treadle_status tell_head(json_t *config, const treadle_model_head *head, bool *changed_p) {
  static const char *const keys[] = {"architectures", "num_labels", "id2label", "label2id"};
  treadle_arena arena = {0};
  const char *name = class_of(config, head->bias, &arena);
  json_t *const values[] = {name ? json_pack("[s]", name) : NULL, json_integer(1),
                            json_pack("{s:s}", "0", "LABEL_0"), json_pack("{s:i}", "LABEL_0", 0)};
  const bool named = treadle_json_is_object(json_object_get(config, "id2label")); /* the label has a name */
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if ((i > 0 || name) && !values[i]) status = TREADLE_NO_MEMORY;
    if (!values[i] || (named && i >= 2) || json_equal(json_object_get(config, keys[i]), values[i]))
      continue;
    if (json_object_set(config, keys[i], values[i]) != 0) status = TREADLE_NO_MEMORY;
    *changed_p = true;
  }
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) json_decref(values[i]);
  treadle_arena_release(&arena);
  return status ? treadle_fail(status, "config.json: memory is out") : TREADLE_OK;
}

static treadle_status save_config(const treadle_save_plan *plan, const char *path, const char *folder) {
  treadle_status status;
  json_t *config = NULL;
  char *own = NULL, *told = NULL;
  size_t length;
  bool changed;
  const treadle_model_head *head = &plan->layout->model->head;
  TRY(treadle_json_load(path, &config));
  TRY(tell_dtype(config, plan->dtype, &changed));
  if (head->kind == TREADLE_HEAD_SCORE) TRY(tell_head(config, head, &changed));
  if (changed) {
    told = treadle_json_dump(config, JSON_INDENT(2));
    if (!told) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: memory is out", path));
    TRY(write_to(folder, "config.json", told, strlen(told)));
  } else {
    TRY(treadle_file_read(path, LARGEST_TEXT, &own, &length));
    TRY(write_to(folder, "config.json", own, length));
  }
out:
  json_decref(config);
  treadle_free(own);
  free(told);
  return status;
}

static treadle_status make_templates_folder(const char *folder) {
  char path[4096];
  snprintf(path, sizeof path, "%s/" TREADLE_TEMPLATES_FOLDER, folder);
  if (mkdir(path, 0777) == 0 || errno == EEXIST) return TREADLE_OK;
  return treadle_fail(TREADLE_SYSTEM, "%s: cannot make the folder: %s", path, strerror(errno));
}

static treadle_status copy_companions(const char *from, const char *folder) {
  treadle_status status;
  treadle_arena arena = {0};
  treadle_folder_names names = {0};
  char *bytes = NULL;
  size_t length;
  TRY(treadle_folder_list_companions(from, &arena, &names));
  for (size_t i = 0; i < names.count; i++) {
    char path[4096];
    if (strcmp(names.items[i], "config.json") == 0) continue;
    if (strchr(names.items[i], '/')) TRY(make_templates_folder(folder));
    snprintf(path, sizeof path, "%s/%s", from, names.items[i]);
    TRY(treadle_file_read(path, LARGEST_TEXT, &bytes, &length));
    TRY(write_to(folder, names.items[i], bytes, length));
    treadle_free(bytes);
    bytes = NULL;
  }
out:
  treadle_free(bytes);
  treadle_array_release(&names);
  treadle_arena_release(&arena);
  return status;
}

treadle_status treadle_save_beside(const treadle_save_plan *plan, const treadle_save_options *options,
                                   const char *folder) {
  treadle_status status = TREADLE_OK;
  const treadle_model *model = plan->layout->model;
  const char *companions = options->companions ? options->companions : model->folder;
  char *index = NULL;
  if (!options->weights_only) {
    TRY(save_config(plan, model->path, folder));
    if (companions) TRY(copy_companions(companions, folder));
  }
  if (plan->file_count > 1) {
    TRY(treadle_save_plan_index(plan, &index));
    TRY(write_to(folder, "model.safetensors.index.json", index, strlen(index)));
  }
out:
  free(index);
  return status;
}
