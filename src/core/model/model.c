/* The model as users see it: opened from a directory or a config.json, asked, closed. */
#include "model/model.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/sized.h"
#include "base/text.h"
#include "io/file_look.h"
#include "io/json.h"
#include "model/build.h"
#include "model/config.h"
#include "model/modules.h"
#include "model/scaled.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
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
    const treadle_dtype held = model->is_fp8 && tensor->scale >= 0 ? TREADLE_FP8_E4M3 : tensor->dtype;
    hash = hash_tensor(hash, tensor);
    if (tensor->scale_of >= 0 && !model->is_fp8) continue; /* scales are no parameters */
    model->elems +=
        tensor->scale_of >= 0 ? 0 : tensor->elems; /* fits: each has TREADLE_MAX_ELEMS at most, */
    model->bytes += tensor->elems * (int64_t)treadle_dtype_bytes(held); /* and so has what came before */
    if (model->elems > TREADLE_MAX_ELEMS)
      return treadle_fail(TREADLE_REFUSED,
                          "with %s, which has %" PRId64 ", the model has %" PRId64
                          " elements; at most 2^50 will do",
                          tensor->name, tensor->elems, model->elems);
  }
  for (int32_t i = 0; i < model->tied_count; i++) {
    hash = treadle_hash_text(model->tied[i].name, hash);
    hash = treadle_hash_more(hash, (uint64_t)model->tied[i].tensor);
  }
  model->digest = hash;
  return TREADLE_OK;
}

treadle_status treadle_model_build(treadle_model *model, const char *what, json_t *config,
                                   const char *families) {
  const char *model_type;
  treadle_status status;
  model->path = treadle_arena_copy_text(&model->arena, what);
  if (!model->path) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a model");
  TRY(treadle_config_model_type(config, &model_type));
  if (!model->family) TRY(treadle_family_find(families, model_type, what, &model->arena, &model->family));
  TRY(treadle_config_complete(model->family, config, &model->config));
  TRY(treadle_model_fill(model));
out:
  return status;
}

treadle_status treadle_model_note(treadle_model *model, const char *format, ...) {
  char line[500];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  treadle_builder_add(&model->notes, "%s: %s\n", model->path, line);
  return model->notes.failed ? treadle_fail(TREADLE_NO_MEMORY, "no memory for a note") : TREADLE_OK;
}

/* What a model is made of, beside a config. */
typedef struct making {
  const char *families;
  treadle_family *family; /* NULL: the one that covers the model_type */
  treadle_model_found found;
  size_t file_bytes; /* 0: there are no files */
  treadle_model_head head;
} making;

static treadle_status make(const char *what, json_t *config, const making *of, treadle_model **model_p) {
  treadle_model *model = treadle_alloc(sizeof *model);
  if (!model) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a model", what);
  model->family = of->family;
  model->file_bytes = of->file_bytes;
  model->head = of->head;
  model->weights = TREADLE_WEIGHTS_RANDOM;
  model->without_mtp = of->found.mtp_layers == 0;
  model->mtp_found = of->found.mtp_layers > 0 ? of->found.mtp_layers : 0;
  treadle_status status = treadle_model_build(model, what, config, of->families);
  if (status == TREADLE_OK) {
    *model_p = model;
    return TREADLE_OK;
  }
  treadle_model_close(model);
  return treadle_fail_in(status, "%s: ", what);
}

/* As the caller's options say; NULL: the defaults. */
static making making_of(const treadle_model_options *options) {
  making of = {.found.mtp_layers = -1};
  if (!options) return of;
  of.families = options->families;
  of.head = (treadle_model_head){.kind = options->head, .zeros = options->score_zeros};
  return of;
}

treadle_status treadle_model_from_config(const char *what, json_t *config,
                                         const treadle_model_options *options, treadle_model **model_p) {
  const making of = making_of(options);
  return make(what, config, &of, model_p);
}

treadle_status treadle_model_from_files(const char *what, json_t *config,
                                        const treadle_model_options *options, size_t file_bytes,
                                        treadle_model **model_p) {
  making of = making_of(options);
  of.file_bytes = file_bytes;
  return make(what, config, &of, model_p);
}

treadle_status treadle_model_with(const char *what, json_t *config, const treadle_model_options *options,
                                  const treadle_model_found *found, treadle_model **model_p) {
  making of = making_of(options);
  of.found = *found;
  of.head.bias = found->score_bias;
  return make(what, config, &of, model_p);
}

treadle_status treadle_model_like(const treadle_model *like, const char *what, json_t *config,
                                  treadle_model **model_p) {
  const making of = {.family = like->family, .found.mtp_layers = -1, .head = like->head};
  return make(what, config, &of, model_p);
}

treadle_status treadle_model_of(treadle_family *family, const char *what, json_t *config,
                                int32_t mtp_layers, treadle_model **model_p) {
  const making of = {.family = family, .found.mtp_layers = mtp_layers};
  return make(what, config, &of, model_p);
}

/* ---- Opening and closing ----------------------------------------------------------------------- */

/* The config.json of a path, and whether the path is a folder. */
static treadle_status find_config(const char *path, treadle_arena *arena, const char **config_p,
                                  bool *is_folder_p) {
  size_t length = strlen(path);
  treadle_file_type pattern;
  treadle_status status = treadle_file_look(path, &pattern);
  if (status) return status;
  *is_folder_p = pattern == TREADLE_FILE_FOLDER;
  if (!*is_folder_p) {
    if (pattern == TREADLE_FILE_NONE)
      return treadle_fail(TREADLE_REFUSED, "%s: there is no such file or folder", path);
    if (length < 5 || strcmp(path + length - 5, ".json") != 0)
      return treadle_fail(TREADLE_REFUSED, "%s: a model is a folder with config.json, or a .json file",
                          path);
    *config_p = path;
    return TREADLE_OK;
  }
  *config_p = treadle_arena_format(arena, "%s/config.json", path);
  if (!*config_p) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a path");
  const char *found;
  TRY(treadle_file_look(*config_p, &pattern));
  if (pattern != TREADLE_FILE_NONE) goto out;
  TRY(treadle_model_folder_text(path, arena, &found));
  status = treadle_fail(TREADLE_REFUSED, "%s: config.json is missing in this folder%s", path, found);
out:
  return status;
}

/* Where values come from, by what was asked for and by what is there. A file is not a folder that could lack something: it asks for
 * made-up weights, and so does scaling down. */
static treadle_status choose_weights(const char *path, treadle_weights wanted, bool is_folder, bool scaled,
                                     treadle_weights *weights_p) {
  if (TREADLE_CHECK_ENUM(wanted, TREADLE_WEIGHTS_RANDOM + 1)) return TREADLE_REFUSED;
  *weights_p = wanted == TREADLE_WEIGHTS_NONE && (!is_folder || scaled) ? TREADLE_WEIGHTS_RANDOM : wanted;
  if (wanted != TREADLE_WEIGHTS_FILES || (is_folder && !scaled)) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s: weights are to come from files, and %s", path,
                      scaled ? "a model that is scaled down has none"
                             : "this is a config.json alone: name the folder that has them");
}

/* Files that are named and cannot be opened are no absence: the model was copied, or downloaded, by half. */
static treadle_status open_files(const char *folder, treadle_checkpoint **checkpoint_p) {
  treadle_status status = treadle_checkpoint_open(folder, checkpoint_p);
  if (status != TREADLE_SYSTEM) return status;
  return treadle_fail(TREADLE_REFUSED,
                      "%s: its weights are not all there: %s. Copy what is missing; layouts and plans need "
                      "no weights: name config.json itself for these",
                      folder, treadle_error_message());
}

treadle_status treadle_model_open(const char *path, const treadle_model_options *options,
                                  treadle_model **model_p) {
  TREADLE_NEED(model_p);
  *model_p = NULL;
  TREADLE_NEED(path);
  treadle_model_options o;
  treadle_arena arena = {0};
  json_t *config = NULL;
  treadle_model *model = NULL;
  treadle_checkpoint *checkpoint = NULL; /* the weights beside a config, if there are any */
  treadle_weights weights;
  const char *config_path = NULL;
  bool is_folder = false;
  treadle_status status;
  TRY(TREADLE_TAKE(options, &o));
  if (TREADLE_CHECK_ENUM(o.head, TREADLE_HEAD_SCORE + 1)) TRY(TREADLE_REFUSED);
  if (o.scale_down < 0)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: cannot be scaled down to %" PRId64 " elements", path,
                     o.scale_down));
  if (o.scale_down) {
    TRY(choose_weights(path, o.weights, is_folder, true, &weights));
    TRY(treadle_model_open_config(path, path, &o, model_p));
    goto out;
  }
  TRY(find_config(path, &arena, &config_path, &is_folder));
  TRY(choose_weights(path, o.weights, is_folder, false, &weights));
  TRY(treadle_json_load(config_path, &config));
  if (weights != TREADLE_WEIGHTS_RANDOM) TRY(open_files(path, &checkpoint));
  if (checkpoint) {
    TRY(treadle_model_for_files(config_path, config, &o, checkpoint, &model));
    status = treadle_model_adopt(model, path, checkpoint);
    treadle_status unchanged = treadle_checkpoint_unchanged(checkpoint); /* copies were compared */
    if (!status) checkpoint = NULL;                                      /* the model's now */
    if (unchanged) status = unchanged;
    TRY(status);
  } else {
    TRY(treadle_model_from_config(config_path, config, &o, &model));
  }
  TRY(treadle_model_check_beside(model, config_path));
  model->weights = model->checkpoint                   ? TREADLE_WEIGHTS_FILES
                   : weights == TREADLE_WEIGHTS_RANDOM ? TREADLE_WEIGHTS_RANDOM
                                                       : TREADLE_WEIGHTS_NONE;
  if (is_folder && !(model->folder = treadle_arena_copy_text(&model->arena, path)))
    TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a path", path));
  if (weights == TREADLE_WEIGHTS_FILES) TRY(treadle_model_need_weights(model));
  *model_p = model;
  model = NULL;
out:
  treadle_checkpoint_close(checkpoint);
  treadle_model_close(model);
  json_decref(config);
  treadle_arena_release(&arena);
  return status;
}

void treadle_model_close(treadle_model *model) {
  if (!model) return;
  treadle_checkpoint_close(model->checkpoint);
  treadle_hash_map_release(&model->by_name);
  treadle_modules_destroy(model->unquantised);
  treadle_builder_release(&model->notes);
  json_decref(model->config);
  treadle_arena_release(&model->arena);
  treadle_free(model);
}

/* ---- Asking ------------------------------------------------------------------------------------ */

int32_t treadle_model_find(const treadle_model *model, int32_t pattern, int32_t layer) {
  int32_t layers = model->layers + model->mtp_layers;
  if (layer < -1 || layer >= layers) return -1;
  return model->tensor_at[(int64_t)pattern * (layers + 1) + layer + 1];
}

int32_t treadle_model_tensor_count(const treadle_model *model) {
  TREADLE_NEED_OR(model, -1);
  return model->entry_count + model->tied_count;
}

treadle_status treadle_model_tensor(const treadle_model *model, int32_t tensor,
                                    treadle_tensor_info *info_p) {
  TREADLE_NEED(model);
  TREADLE_NEED_SIZED(info_p);
  if (tensor < 0 || tensor >= treadle_model_tensor_count(model))
    return treadle_fail(TREADLE_REFUSED, "tensor %d is none of the model's %d", tensor,
                        treadle_model_tensor_count(model));
  const treadle_tied *tied = tensor < model->entry_count ? NULL : &model->tied[tensor - model->entry_count];
  const treadle_tensor *canonical = &model->tensors[tied ? tied->tensor : model->entries[tensor].tensor];
  int skip = canonical->by_expert; /* the entry has no dimension of experts */
  treadle_tensor_info info = {.name = tied ? tied->name : model->entries[tensor].name,
                              .same_as = tied ? canonical->name : NULL,
                              .ndim = canonical->ndim - skip,
                              .elems = canonical->elems / (skip ? canonical->shape[0] : 1),
                              .dtype = canonical->dtype,
                              .layer = canonical->layer};
  for (int d = skip; d < canonical->ndim; d++) info.shape[d - skip] = canonical->shape[d];
  TREADLE_GIVE(info_p, &info);
  return TREADLE_OK;
}

const char *treadle_model_family(const treadle_model *model) {
  TREADLE_NEED_OR(model, NULL);
  return model->family->name;
}

int64_t treadle_model_elems(const treadle_model *model) {
  TREADLE_NEED_OR(model, -1);
  return model->elems;
}

int64_t treadle_model_bytes(const treadle_model *model) {
  TREADLE_NEED_OR(model, -1);
  return model->bytes;
}

bool treadle_model_has_weights(const treadle_model *model) {
  TREADLE_NEED_OR(model, false);
  return model->checkpoint != NULL;
}
