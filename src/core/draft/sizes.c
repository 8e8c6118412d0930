/* A size as text in a shape: a dim, a product that the family's own shapes have, a field of the config that no dim has, a product of
 * two dims, else the number. */
#include "draft/draft.h"

#include "base/checked.h"
#include "family/expr.h"

#include <inttypes.h>
#include <string.h>

/* Is the dim an axis of any tensor? */
static bool is_axis(const treadle_family *family, const char *dim) {
  for (int32_t k = 0; k < family->pattern_count; k++)
    for (int a = 0; a < family->patterns[k].naxes; a++)
      if (strcmp(family->patterns[k].axis_text[a], dim) == 0) return true;
  return false;
}

static const char *as_dim(const treadle_model *model, int64_t size, int *count_p) {
  const char *first = NULL;
  *count_p = 0;
  for (int32_t i = 0; i < model->dim_known; i++) {
    const char *name = model->family->dim_names[i];
    if (model->dim_values[i] != size || !is_axis(model->family, name)) continue;
    if (!first) first = name;
    ++*count_p;
  }
  return first;
}

/* A dimension of some tensor of the model that has several axes: "ng*q*hd". */
static const char *as_product(treadle_draft *d, const treadle_model *model, int64_t size) {
  for (int32_t t = 0; t < model->tensor_count; t++) {
    const treadle_tensor *tensor = &model->tensors[t];
    for (int dim = 0; dim < tensor->ndim; dim++) {
      const char *text = "";
      int axes = 0;
      if (tensor->shape[dim] != size) continue;
      for (int a = 0; text && a < tensor->naxes; a++) {
        if (tensor->axis_dim[a] != dim) continue;
        text = treadle_arena_format(d->arena, "%s%s%s", text, axes++ ? "*" : "", tensor->axis_name[a]);
      }
      if (axes > 1 || !text) return text;
    }
  }
  return NULL;
}

/* A field that no dim is of: it becomes a dim. */
static treadle_status as_field(treadle_draft *d, const treadle_model *model, int64_t size,
                               const char **text_p, int *count_p) {
  const char *key, *found = NULL;
  json_t *field;
  treadle_yaml *dims;
  treadle_status status = TREADLE_OK;
  *count_p = 0;
  json_object_foreach(d->inner, key, field) {
    if (!json_is_integer(field) || json_integer_value(field) != size || !treadle_expr_is_name(key))
      continue;
    if (strstr(key, "token") || strstr(key, "position")) continue;
    bool used = false;
    for (int32_t i = 0; i < model->dim_known && !used; i++)
      used = treadle_expr_names(model->family->dim_texts[i], key);
    if (used) continue;
    if (!found) found = key;
    ++*count_p;
  }
  if (!found) return TREADLE_OK;
  *text_p = treadle_arena_format(d->arena, "d_%s", found);
  if (!*text_p) return treadle_family_no_memory();
  TRY(treadle_draft_part(d, d->root, "dims", TREADLE_YAML_MAP, &dims));
  TRY(treadle_draft_set(d, dims, *text_p, found));
out:
  return status;
}

static const char *as_pair(treadle_draft *d, const treadle_model *model, int64_t size) {
  const treadle_family *family = model->family;
  for (int32_t a = 0; a < model->dim_known; a++)
    for (int32_t b = 0; b < model->dim_known; b++) {
      int64_t product;
      if (model->dim_values[a] < 2 || model->dim_values[b] < 2) continue;
      if (!treadle_mul_fits(model->dim_values[a], model->dim_values[b], &product) || product != size)
        continue;
      if (is_axis(family, family->dim_names[a]) && is_axis(family, family->dim_names[b]))
        return treadle_arena_format(d->arena, "%s*%s", family->dim_names[a], family->dim_names[b]);
    }
  for (int64_t times = 2; times <= 8; times++)
    for (int32_t a = 0; a < model->dim_known; a++)
      if (model->dim_values[a] > 1 && size % times == 0 && size / times == model->dim_values[a] &&
          is_axis(family, family->dim_names[a]))
        return treadle_arena_format(d->arena, "%" PRId64 "*%s", times, family->dim_names[a]);
  return NULL;
}

treadle_status treadle_draft_size(treadle_draft *d, const treadle_model *model, int64_t size,
                                  const char **text_p, bool *certain_p) {
  treadle_status status;
  int count;
  *certain_p = true;
  *text_p = NULL;
  if (size > 1) {
    *text_p = as_dim(model, size, &count);
    *certain_p = count == 1;
    if (*text_p) return TREADLE_OK;
    *text_p = as_product(d, model, size);
    *certain_p = *text_p != NULL;
    if (*text_p) return TREADLE_OK;
    TRY(as_field(d, model, size, text_p, &count));
    *certain_p = count == 1;
    if (*text_p) return TREADLE_OK;
    *text_p = as_pair(d, model, size);
    if (*text_p) return TREADLE_OK;
  }
  *certain_p = size == 1;
  *text_p = treadle_arena_format(d->arena, "%" PRId64, size);
  if (!*text_p)
    status = treadle_family_no_memory();
  else
    status = TREADLE_OK;
out:
  return status;
}
