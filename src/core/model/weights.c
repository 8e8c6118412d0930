/* A model and the checkpoint that holds it: names and shapes compared, dtypes taken over. */
#include "model/build.h"

#include "base/dtype.h"
#include "base/text.h"
#include "model/config.h"
#include "model/names.h"
#include "model/stored.h"

#include <string.h>

/* ---- The model for files ----------------------------------------------------------------------- */

treadle_status treadle_model_for_files(const char *what, json_t *config,
                                       const treadle_model_options *options,
                                       const treadle_checkpoint *checkpoint, treadle_model **model_p) {
  treadle_model *model = NULL;
  treadle_model_found found = {.mtp_layers = -1};
  treadle_status status;
  TRY(treadle_model_from_files(what, config, options, checkpoint->total_bytes, &model));
  TRY(treadle_names_score_bias(model, checkpoint, &found.score_bias));
  if (model->family->mtp) TRY(treadle_names_mtp_layers(model, checkpoint, &found.mtp_layers));
  if ((found.mtp_layers < 0 || found.mtp_layers == model->mtp_layers) && !found.score_bias) goto out;
  treadle_model_close(model);
  model = NULL;
  TRY(treadle_model_with(what, config, options, &found, &model));
out:
  if (status) {
    treadle_model_close(model);
    model = NULL;
  }
  *model_p = model;
  return status;
}

/* ---- Refusing ---------------------------------------------------------------------------------- */

/* "; 12 are missing: a, b, ..." with at most 8 of the lines. */
static void add_lines(treadle_builder *builder, const char *title, const char *lines) {
  enum { SHOWN = 8 };
  int count = 0;
  for (const char *c = lines; *c; c++) count += *c == '\n';
  if (!count) return;
  treadle_builder_add(builder, "; %d %s: ", count, title);
  for (int i = 0; i < count && i < SHOWN; i++) {
    size_t length = strcspn(lines, "\n");
    treadle_builder_add(builder, "%s%.*s", i ? ", " : "", (int)length, lines);
    lines += length + 1;
  }
  if (count > SHOWN) treadle_builder_add(builder, ", ...");
}

/* Buffers get lost where parameters alone are saved: the first one that is missing. */
static void add_buffer(treadle_builder *builder, const treadle_model *model, const treadle_files *files) {
  for (int32_t i = 0; i < model->entry_count; i++) {
    const treadle_entry *entry = &model->entries[i];
    if (files->entries[i] || !model->family->patterns[model->tensors[entry->tensor].pattern].buffer)
      continue;
    treadle_builder_add(builder, "; %s is a buffer, which a state dict of parameters alone does not have",
                        entry->name);
    return;
  }
}

static treadle_status check_names(const treadle_model *model, const char *what,
                                  const treadle_files *files) {
  treadle_builder text = {0};
  if (!files->missing_count && !files->left_over_count) return TREADLE_OK;
  if (files->missing_count) add_lines(&text, "missing or of another shape", files->missing.text);
  if (files->missing_count) add_buffer(&text, model, files);
  if (files->left_over_count) add_lines(&text, "left over", files->left_over.text);
  treadle_status status = treadle_fail(TREADLE_REFUSED, "%s: the tensors are not those of family %s%s",
                                       what, model->family->name, text.text ? text.text : "");
  treadle_builder_release(&text);
  return status;
}

/* The type that values of a place have once they are decoded. */
static treadle_dtype type_of(const treadle_stored_box *place) {
  return place->coding == TREADLE_CODED_PLAIN ? place->stored->dtype : TREADLE_BF16;
}

static treadle_status take_dtype(const char *what, treadle_tensor *tensor, const treadle_stored_box *place,
                                 bool first) {
  treadle_dtype dtype = type_of(place);
  const treadle_stored *stored = place->stored;
  if (dtype == TREADLE_DTYPE_NONE)
    return treadle_fail(TREADLE_REFUSED,
                        "%s: tensor %s is of type %s; F32, BF16, F16 and F8_E4M3 can be moved", what,
                        stored->name, stored->dtype_text);
  if ((dtype == TREADLE_INT32) != (tensor->dtype == TREADLE_INT32))
    return treadle_fail(TREADLE_REFUSED, "%s: tensor %s is of type %s, and must %s", what, stored->name,
                        stored->dtype_text,
                        dtype == TREADLE_INT32 ? "not be of integers" : "be of integers (I32)");
  if (!first && tensor->dtype != dtype && tensor->scale_of < 0)
    return treadle_fail(TREADLE_REFUSED, "%s: tensor %s is of type %s, unlike the experts before it", what,
                        stored->name, stored->dtype_text);
  if (tensor->scale_of < 0)
    tensor->dtype = dtype; /* scales are fp32 wherever they are loaded, which is exact */
  return TREADLE_OK;
}

/* Of all places of all tensors. */
static treadle_status take_dtypes(treadle_model *model, const char *what) {
  static const int64_t start[TREADLE_MAX_AXES] = {0};
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; i < model->tensor_count; i++) {
    treadle_tensor *tensor = &model->tensors[i];
    treadle_stored_box place;
    for (int32_t next = 0; treadle_model_stored(model, i, start, tensor->axis, &next, &place);)
      TRY(take_dtype(what, tensor, &place, next == 1));
  }
out:
  return status;
}

/* A tied tensor may be stored twice, as long as both are the same. Of headers alone there is no data. */
static treadle_status check_copies(const treadle_model *model, const char *what) {
  for (int32_t i = 0; i < model->tied_count; i++) {
    const treadle_tied *tied = &model->tied[i];
    const treadle_tensor *original = &model->tensors[tied->tensor];
    const treadle_stored *copy = model->files->tied[i],
                         *stored = model->files->entries[original->first_entry];
    if (!copy || !stored) continue;
    bool same_shape =
        copy->ndim == stored->ndim && memcmp(copy->shape, stored->shape, sizeof copy->shape) == 0;
    const char *differs = !same_shape                                         ? "another shape"
                          : strcmp(copy->dtype_text, stored->dtype_text) != 0 ? "another type"
                          : copy->data && memcmp(copy->data, stored->data, stored->bytes) != 0
                              ? "other values"
                              : NULL;
    if (differs)
      return treadle_fail(TREADLE_REFUSED, "%s: %s is tied to %s by the config, but is stored with %s",
                          what, tied->name, original->name, differs);
  }
  return TREADLE_OK;
}

/* Files may have another type than the config says. That of the files is taken; a note says so where most elements have it. */
static treadle_status note_dtype(treadle_model *model) {
  treadle_dtype said, most = TREADLE_DTYPE_NONE;
  int64_t elems[TREADLE_INT32 + 1] = {0}; /* by type */
  treadle_status status;
  TRY(treadle_config_dtype(model->config, treadle_model_inner_config(model), &said));
  if (!treadle_config_has_dtype(model->config, treadle_model_inner_config(model))) return TREADLE_OK;
  for (int32_t i = 0; i < model->tensor_count; i++)
    if (!model->tensors[i].fixed_dtype) elems[model->tensors[i].dtype] += model->tensors[i].elems;
  for (int d = 0; d <= TREADLE_INT32; d++)
    if (elems[d] > elems[most]) most = (treadle_dtype)d;
  if (most != said && elems[most] > 0)
    TRY(treadle_model_note(model, "dtype is %s, and the files have %s, which is taken",
                           treadle_dtype_name(said), treadle_dtype_name(most)));
out:
  return status;
}

treadle_status treadle_model_check_values(treadle_model *model, const char *what) {
  treadle_status status;
  TRY(take_dtypes(model, what));
  TRY(check_copies(model, what));
  TRY(note_dtype(model));
out:
  return status;
}

treadle_status treadle_model_adopt(treadle_model *model, const char *what, treadle_checkpoint *checkpoint) {
  treadle_status status = TREADLE_OK;
  treadle_files *files = treadle_arena_alloc(&model->arena, sizeof *files);
  if (!files) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its names", what);
  TRY(treadle_files_match(model, checkpoint, &model->arena, files));
  model->files = files;
  model->is_fp8 = files->scale_count > 0 && model->block[0] > 0;
  TRY(take_dtypes(model, what));
  TRY(check_names(model, what, files));
  TRY(check_copies(model, what));
  TRY(note_dtype(model));
  if (checkpoint->note) TRY(treadle_model_note(model, "%s", checkpoint->note));
  TRY(treadle_model_sum(model));
  model->checkpoint = checkpoint;
out:
  if (status) model->files = NULL;
  treadle_files_release(files);
  return status;
}
