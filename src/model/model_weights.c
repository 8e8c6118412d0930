/* A model and the checkpoint that holds it: names and shapes compared, dtypes taken over. */
#include "model/build.h"

#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct shape_text {
  char text[200];
} shape_text;

/* "[4, 8]" */
static shape_text print_shape(int ndim, const int64_t *shape) {
  shape_text out = {"["};
  size_t length = 1;
  for (int d = 0; d < ndim; d++)
    length += (size_t)snprintf(out.text + length, sizeof out.text - length, "%s%" PRId64, d ? ", " : "",
                               shape[d]);
  snprintf(out.text + length, sizeof out.text - length, "]");
  return out;
}

static bool same_shape(const treadle_tensor *tensor, const treadle_stored *stored) {
  return tensor->ndim == stored->ndim &&
         memcmp(tensor->shape, stored->shape, (size_t)tensor->ndim * sizeof *tensor->shape) == 0;
}

/* ---- Comparing --------------------------------------------------------------------------------- */

/* Buffers that some files hold and no engine loads. */
static bool is_skipped(const char *name) {
  static const char end[] = "rotary_emb.inv_freq";
  size_t length = strlen(name);
  return length >= sizeof end - 1 && strcmp(name + length - (sizeof end - 1), end) == 0;
}

static int32_t find_missing(const treadle_model *model, const treadle_checkpoint *checkpoint,
                            treadle_builder *lines) {
  int32_t count = 0;
  for (int32_t i = 0; i < model->tensor_count; i++) {
    const treadle_tensor *tensor = &model->tensors[i];
    const treadle_stored *stored = treadle_checkpoint_find(checkpoint, tensor->name);
    if (stored && (stored->ndim < 0 || same_shape(tensor, stored))) continue;
    count++;
    if (!stored)
      treadle_builder_add(lines, "%s\n", tensor->name);
    else
      treadle_builder_add(lines, "%s is %s instead of %s\n", tensor->name,
                          print_shape(stored->ndim, stored->shape).text,
                          print_shape(tensor->ndim, tensor->shape).text);
  }
  return count;
}

static int32_t find_left_over(const treadle_model *model, const treadle_checkpoint *checkpoint,
                              treadle_builder *lines) {
  int32_t count = 0;
  for (int32_t i = 0; i < checkpoint->count; i++) {
    const char *name = checkpoint->tensors[i].name;
    if (treadle_map_get(&model->by_name, name, -1) >= 0 || is_skipped(name)) continue;
    count++;
    treadle_builder_add(lines, "%s\n", name);
  }
  return count;
}

treadle_status treadle_model_compare(const treadle_model *model, const treadle_checkpoint *checkpoint,
                                     treadle_arena *arena, const char **missing_p, const char **left_over_p,
                                     int32_t *differences_p) {
  treadle_builder missing = {0}, left_over = {0};
  treadle_status status = TREADLE_OK;
  *differences_p =
      find_missing(model, checkpoint, &missing) + find_left_over(model, checkpoint, &left_over);
  *missing_p = treadle_arena_copy_text(arena, missing.text ? missing.text : "");
  *left_over_p = treadle_arena_copy_text(arena, left_over.text ? left_over.text : "");
  if (!*missing_p || !*left_over_p || missing.failed || left_over.failed)
    status = treadle_fail(TREADLE_NO_MEMORY, "no memory for the differences of %s", model->path);
  treadle_builder_release(&missing);
  treadle_builder_release(&left_over);
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

static treadle_status check_names(treadle_model *model, const char *what,
                                  const treadle_checkpoint *checkpoint) {
  const char *missing, *left_over;
  int32_t differences;
  treadle_builder text = {0};
  treadle_status status;
  TRY(treadle_model_compare(model, checkpoint, &model->arena, &missing, &left_over, &differences));
  if (!differences) return TREADLE_OK;
  add_lines(&text, "missing or of another shape", missing);
  add_lines(&text, "left over", left_over);
  status = treadle_fail(TREADLE_REFUSED, "%s: the tensors are not those of family %s%s", what,
                        model->family->name, text.text ? text.text : "");
  treadle_builder_release(&text);
out:
  return status;
}

static treadle_status take_dtypes(treadle_model *model, const char *what,
                                  const treadle_checkpoint *checkpoint) {
  for (int32_t i = 0; i < model->tensor_count; i++) {
    treadle_tensor *tensor = &model->tensors[i];
    const treadle_stored *stored = treadle_checkpoint_find(checkpoint, tensor->name);
    if (!stored) continue; /* check_names lists it */
    if (stored->dtype == TREADLE_DTYPE_NONE)
      return treadle_fail(TREADLE_REFUSED,
                          "%s: tensor %s is of type %s; F32, BF16, F16 and F8_E4M3 can be moved", what,
                          stored->name, stored->dtype_text);
    tensor->dtype = stored->dtype;
  }
  return TREADLE_OK;
}

/* A tied tensor may be stored twice, as long as both are the same. */
static treadle_status check_copies(const treadle_model *model, const char *what,
                                   const treadle_checkpoint *checkpoint) {
  for (int32_t i = 0; i < model->alias_count; i++) {
    const treadle_alias *alias = &model->aliases[i];
    const treadle_tensor *original = &model->tensors[alias->tensor];
    const treadle_stored *copy = treadle_checkpoint_find(checkpoint, alias->name);
    const treadle_stored *stored = treadle_checkpoint_find(checkpoint, original->name);
    if (!copy) continue;
    const char *differs = !same_shape(original, copy)                            ? "another shape"
                          : copy->dtype != original->dtype                       ? "another type"
                          : memcmp(copy->data, stored->data, stored->bytes) != 0 ? "other values"
                                                                                 : NULL;
    if (differs)
      return treadle_fail(TREADLE_REFUSED, "%s: %s is tied to %s by the config, but is stored with %s",
                          what, alias->name, original->name, differs);
  }
  return TREADLE_OK;
}

treadle_status treadle_model_adopt(treadle_model *model, const char *what, treadle_checkpoint *checkpoint) {
  treadle_status status;
  TRY(take_dtypes(model, what, checkpoint));
  TRY(check_names(model, what, checkpoint));
  TRY(check_copies(model, what, checkpoint));
  TRY(treadle_model_sum(model));
  model->checkpoint = checkpoint;
out:
  return status;
}
