/* pieces:@file: explicit pieces from a JSON file:
 *
 *   {"pieces": [{"rank": 0, "storage": "w", "shape": [8], "dtype": "bf16", "tensor": "model.norm.weight",
 *                "start": [0], "size": [8], "offset": 0, "stride": [1]}, ...]}
 *
 * dtype may be left out (the tensor's), and offset when it is 0. */
#include "base/dtype.h"
#include "io/json.h"
#include "layout/explicit.h"
#include "layout/layout_types.h"

/* A list of whole numbers; *count_p says how many, or is -1 and is told. */
static treadle_status read_numbers(const char *path, size_t index, const json_t *entry, const char *key,
                                   int *count_p, int64_t *numbers) {
  treadle_status status = TREADLE_OK;
  const json_t *list = json_object_get(entry, key);
  size_t count = json_is_array(list) ? json_array_size(list) : 0;
  if (count < 1 || count > TREADLE_MAX_DIMS)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: piece %zu: %s is not a list of 1 to %d whole numbers", path,
                     index, key, TREADLE_MAX_DIMS));
  for (size_t d = 0; d < count; d++) {
    if (!json_is_integer(json_array_get(list, d)))
      TRY(treadle_fail(TREADLE_REFUSED, "%s: piece %zu: %s is not a list of whole numbers", path, index,
                       key));
    numbers[d] = json_integer_value(json_array_get(list, d));
  }
  if (*count_p >= 0 && *count_p != (int)count)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: piece %zu: %s has %zu numbers, not %d", path, index, key, count,
                     *count_p));
  *count_p = (int)count;
out:
  return status;
}

static treadle_status read_piece(const char *path, size_t index, const treadle_model *model,
                                 const json_t *entry, treadle_explicit_piece *p) {
  treadle_status status = TREADLE_OK;
  p->tensor = json_string_value(json_object_get(entry, "tensor"));
  p->storage = json_string_value(json_object_get(entry, "storage"));
  const json_t *rank = json_object_get(entry, "rank"), *offset = json_object_get(entry, "offset");
  const json_t *dtype = json_object_get(entry, "dtype");
  if (!p->tensor || !p->storage)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: piece %zu: tensor and storage must be texts", path, index));
  if (!json_is_integer(rank))
    TRY(treadle_fail(TREADLE_REFUSED, "%s: piece %zu: rank must be a whole number", path, index));
  if (offset && !json_is_integer(offset))
    TRY(treadle_fail(TREADLE_REFUSED, "%s: piece %zu: offset must be a whole number", path, index));
  if (dtype && (!json_is_string(dtype) || !treadle_dtype_parse(json_string_value(dtype), &p->dtype)))
    TRY(treadle_fail(TREADLE_REFUSED, "%s: piece %zu: dtype is none of fp32, bf16, fp16", path, index));
  p->rank = json_integer_value(rank);
  p->offset = json_integer_value(offset);
  int64_t tensor = treadle_hash_map_get(&model->by_name, p->tensor, -1);
  if (tensor < 0)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: piece %zu: the model has no tensor '%s'", path, index,
                     p->tensor));
  const treadle_tensor *stacked = &model->tensors[model->entries[tensor].tensor];
  int ndim = stacked->ndim - stacked->by_expert;
  p->storage_ndim = -1;
  TRY(read_numbers(path, index, entry, "shape", &p->storage_ndim, p->storage_shape));
  TRY(read_numbers(path, index, entry, "start", &ndim, p->start));
  TRY(read_numbers(path, index, entry, "size", &ndim, p->size));
  TRY(read_numbers(path, index, entry, "stride", &ndim, p->stride));
out:
  return status;
}

static treadle_status create(treadle_layout *layout, treadle_settings *words, treadle_arena *words_arena,
                             treadle_builder *normal) {
  treadle_status status = TREADLE_OK;
  json_t *root = NULL;
  const char *path = words->file;
  if (!path || !*path)
    TRY(treadle_fail(TREADLE_REFUSED, "layout '%s': the form is pieces:@file", words->text));
  TRY(treadle_json_load(path, &root));
  const json_t *list = json_object_get(root, "pieces");
  if (!json_is_array(list))
    TRY(treadle_fail(TREADLE_REFUSED, "%s: it is not an object with a list 'pieces'", path));
  size_t count = json_array_size(list);
  treadle_explicit_piece *pieces = treadle_arena_alloc_array(words_arena, count + 1, sizeof *pieces);
  if (!pieces) {
    status = treadle_fail(TREADLE_NO_MEMORY, "%s: memory is out", path);
    goto out;
  }
  for (size_t i = 0; i < count; i++)
    TRY(read_piece(path, i, layout->model, json_array_get(list, i), &pieces[i]));
  TRY(treadle_explicit_build(layout, pieces, count));
  treadle_builder_add(normal, ":@%s", path);
out:
  json_decref(root);
  return status;
}

static const char *const keys[] = {NULL};
const treadle_layout_type treadle_layout_type_pieces = {"pieces", keys, false, create};
