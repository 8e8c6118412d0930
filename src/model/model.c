/* The model as users see it: opened from a directory or a config.json, asked, closed. */
#include "model/model.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"
#include "model/build.h"
#include "model/config.h"

#include <string.h>

/* ---- Making ------------------------------------------------------------------------------------ */

static uint64_t hash_tensor(uint64_t hash, const treadle_tensor *tensor) {
  hash = treadle_hash_text(tensor->name, hash);
  hash = treadle_hash_more(hash, (uint64_t)tensor->dtype);
  for (int i = 0; i < tensor->naxes; i++) {
    hash = treadle_hash_more(hash, (uint64_t)tensor->axis_dim[i]);
    hash = treadle_hash_more(hash, (uint64_t)tensor->axis[i]);
  }
  return hash;
}

treadle_status treadle_model_sum(treadle_model *model) {
  uint64_t hash = treadle_hash_text(model->family->name, 0);
  model->elems = model->bytes = 0;
  for (int32_t i = 0; i < model->tensor_count; i++) {
    const treadle_tensor *tensor = &model->tensors[i];
    int64_t bytes;
    if (__builtin_add_overflow(model->elems, tensor->elems, &model->elems) ||
        __builtin_mul_overflow(tensor->elems, (int64_t)treadle_dtype_bytes(tensor->dtype), &bytes) ||
        __builtin_add_overflow(model->bytes, bytes, &model->bytes))
      return treadle_fail(TREADLE_REFUSED, "with %s, the model has more than 2^63 - 1 bytes", tensor->name);
    hash = hash_tensor(hash, tensor);
  }
  for (int32_t i = 0; i < model->alias_count; i++) {
    hash = treadle_hash_text(model->aliases[i].name, hash);
    hash = treadle_hash_more(hash, (uint64_t)model->aliases[i].tensor);
  }
  model->digest = hash;
  return TREADLE_OK;
}

treadle_status treadle_model_build(treadle_model *model, const char *what, json_t *config,
                                   const char *families) {
  const char *model_type;
  treadle_status status;
  model->config = json_incref(config);
  model->path = treadle_arena_copy_text(&model->arena, what);
  if (!model->path) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a model");
  TRY(treadle_config_model_type(config, &model_type));
  TRY(treadle_family_find(families, model_type, &model->arena, &model->family));
  TRY(treadle_model_fill(model));
out:
  return status;
}

treadle_status treadle_model_from_config(const char *what, json_t *config,
                                         const treadle_model_options *options, treadle_model **model_p) {
  treadle_model *model = treadle_alloc(sizeof *model);
  if (!model) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a model", what);
  treadle_status status = treadle_model_build(model, what, config, options ? options->families : NULL);
  if (status == TREADLE_OK) {
    *model_p = model;
    return TREADLE_OK;
  }
  treadle_model_close(model);
  return treadle_fail_in(status, "%s: ", what);
}

/* ---- Opening and closing ----------------------------------------------------------------------- */

/* The config.json of a path. */
static treadle_status find_config(const char *path, bool is_folder, treadle_arena *arena,
                                  const char **config_p) {
  size_t length = strlen(path);
  if (!is_folder) {
    if (!treadle_file_exists(path))
      return treadle_fail(TREADLE_REFUSED, "%s: there is no such file or folder", path);
    if (length < 5 || strcmp(path + length - 5, ".json") != 0)
      return treadle_fail(TREADLE_REFUSED, "%s: a model is a folder with config.json, or a .json file",
                          path);
    *config_p = path;
    return TREADLE_OK;
  }
  *config_p = treadle_arena_format(arena, "%s/config.json", path);
  if (!*config_p) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a path");
  if (!treadle_file_exists(*config_p))
    return treadle_fail(TREADLE_REFUSED, "%s: config.json is missing in this folder", path);
  return TREADLE_OK;
}

/* The weights beside a config, if there are any. */
static treadle_status open_weights(treadle_model *model, const char *path) {
  treadle_checkpoint *checkpoint = NULL;
  treadle_status status;
  TRY(treadle_checkpoint_open(path, &checkpoint));
  if (!checkpoint) return TREADLE_OK;
  TRY(treadle_model_adopt(model, path, checkpoint));
  return TREADLE_OK;
out:
  treadle_checkpoint_close(checkpoint);
  return status;
}

treadle_status treadle_model_open(const char *path, const treadle_model_options *options,
                                  treadle_model **model_p) {
  treadle_arena arena = {0};
  json_t *config = NULL;
  treadle_model *model = NULL;
  const char *config_path = NULL;
  bool is_folder = treadle_file_is_folder(path);
  treadle_status status;
  TRY(find_config(path, is_folder, &arena, &config_path));
  TRY(treadle_json_load(config_path, &config));
  TRY(treadle_model_from_config(config_path, config, options, &model));
  if (is_folder) TRY(open_weights(model, path));
  *model_p = model;
  model = NULL;
out:
  treadle_model_close(model);
  json_decref(config);
  treadle_arena_release(&arena);
  return status;
}

void treadle_model_close(treadle_model *model) {
  if (!model) return;
  treadle_checkpoint_close(model->checkpoint);
  treadle_map_release(&model->by_name);
  json_decref(model->config);
  treadle_arena_release(&model->arena);
  treadle_free(model);
}

/* ---- Asking ------------------------------------------------------------------------------------ */

int32_t treadle_model_find(const treadle_model *model, int32_t kind, int32_t layer) {
  int32_t tensor = model->first_tensor[kind];
  if (tensor < 0 || model->tensors[tensor].layer < 0) return tensor;
  if (layer < 0 || layer >= model->layers) return -1;
  return tensor + layer * model->layer_tensors;
}

int32_t treadle_model_tensor_count(const treadle_model *model) {
  return model->tensor_count + model->alias_count;
}

treadle_status treadle_model_tensor(const treadle_model *model, int32_t tensor,
                                    treadle_tensor_info *info_p) {
  if (tensor < 0 || tensor >= treadle_model_tensor_count(model))
    return treadle_fail(TREADLE_REFUSED, "tensor %d is none of the model's %d", tensor,
                        treadle_model_tensor_count(model));
  const treadle_alias *alias =
      tensor < model->tensor_count ? NULL : &model->aliases[tensor - model->tensor_count];
  const treadle_tensor *canonical = &model->tensors[alias ? alias->tensor : tensor];
  *info_p = (treadle_tensor_info){.name = alias ? alias->name : canonical->name,
                                  .same_as = alias ? canonical->name : NULL,
                                  .ndim = canonical->ndim,
                                  .elems = canonical->elems,
                                  .dtype = canonical->dtype,
                                  .layer = canonical->layer};
  memcpy(info_p->shape, canonical->shape, sizeof info_p->shape);
  return TREADLE_OK;
}

const char *treadle_model_family(const treadle_model *model) {
  return model->family->name;
}
int64_t treadle_model_elems(const treadle_model *model) {
  return model->elems;
}
int64_t treadle_model_bytes(const treadle_model *model) {
  return model->bytes;
}
bool treadle_model_has_weights(const treadle_model *model) {
  return model->checkpoint != NULL;
}
