/* placements:@file: meshes and placements from a JSON file:
 *
 *   {"meshes": [{"shape": [2048, 8]}, {"shape": [2, 2], "ranks": [[0, 2], [1, 3]]}, {"shape": [4], "first": 8, "stride": [2]}],
 *    "tensors": [{"tensor": "model.norm.weight", "mesh": 0, "placements": "S0,R", "dtype": "bf16", "storage": "norm"},
 *                {"tensor": ["a", "b", ...], "mesh": 0, "placements": "T0/8,S0"}, {"tensor": "c"}]}
 *
 * A list of names gives all of them the same. Without a mesh all ranks have all of the tensor. */
#include "base/dtype.h"
#include "base/text.h"
#include "flat/placements.h"
#include "io/json.h"
#include "layout/layout_types.h"

#include <stdlib.h>
#include <string.h>

#define FAIL(...) TRY(treadle_fail(TREADLE_REFUSED, __VA_ARGS__))

typedef struct reader {
  const char *path;
  treadle_arena *arena;
  treadle_placed_mesh *meshes;
  size_t mesh_count;
  TREADLE_ARRAY(int64_t) ranks; /* of the mesh at hand */
  TREADLE_ARRAY(treadle_placed_tensor) tensors;
} reader;

/* An object with no other keys than these (ended by NULL). */
static treadle_status check_keys(const reader *r, const char *what, size_t number, json_t *object,
                                 const char *const *known) {
  treadle_status status = TREADLE_OK;
  const char *key;
  const json_t *value;
  if (!treadle_json_is_object(object)) FAIL("%s: %s %zu is not an object", r->path, what, number);
  json_object_foreach(object, key, value) {
    const char *const *name = known;
    while (*name && strcmp(*name, key) != 0) name++;
    const char *nearest = *name ? NULL : treadle_nearest_name(key, known);
    if (!*name)
      FAIL("%s: %s %zu: unknown key '%s'%s%s", r->path, what, number, key, nearest ? "; nearest: " : "",
           nearest ? nearest : "");
  }
out:
  return status;
}

/* ---- Meshes ---- */

/* A list of at most `most`; *count_p says how many, or is 0 and is told. `what`: "shape of mesh", whose number it is. */
static treadle_status read_numbers(const reader *r, const char *what, size_t number, const json_t *list,
                                   int32_t most, int32_t *count_p, int64_t *numbers) {
  treadle_status status = TREADLE_OK;
  size_t count = json_array_size(list);
  if (!json_is_array(list)) FAIL("%s: the %s %zu is not a list", r->path, what, number);
  if (count < 1 || count > (size_t)most || (*count_p > 0 && (size_t)*count_p != count))
    FAIL("%s: the %s %zu is a list of %zu numbers where %d to %d belong", r->path, what, number, count,
         *count_p > 0 ? (int)*count_p : 1, *count_p > 0 ? (int)*count_p : (int)most);
  for (size_t d = 0; d < count; d++) {
    if (!json_is_integer(json_array_get(list, d)))
      FAIL("%s: the %s %zu is a list of whole numbers", r->path, what, number);
    numbers[d] = json_integer_value(json_array_get(list, d));
  }
  *count_p = (int32_t)count;
out:
  return status;
}

/* Ranks, one behind the other or nested as the mesh is: `dim` is the dimension of the list, `count` how many ranks belong in it. */
static treadle_status read_ranks(reader *r, size_t number, const json_t *list, int dim, int64_t count) {
  treadle_status status = TREADLE_OK;
  const treadle_placed_mesh *mesh = &r->meshes[number];
  bool nested = json_is_array(json_array_get(list, 0)) && dim + 1 < mesh->ndim;
  int64_t wanted = nested ? mesh->size[dim] : count, found = (int64_t)json_array_size(list);
  if (!json_is_array(list) || (dim > 0 && dim + 1 < mesh->ndim && !nested))
    FAIL("%s: mesh %zu: ranks are neither one list nor nested as its shape is", r->path, number);
  if (found != wanted)
    FAIL("%s: mesh %zu has a list of %s, not of %lld", r->path, number,
         treadle_text_of_count(found, nested ? "list" : "rank"), (long long)wanted);
  for (int64_t i = 0; i < found; i++) {
    const json_t *item = json_array_get(list, (size_t)i);
    if (nested) {
      TRY(read_ranks(r, number, item, dim + 1, count / wanted));
      continue;
    }
    if (!json_is_integer(item)) FAIL("%s: mesh %zu: ranks are no whole numbers", r->path, number);
    TRY(treadle_array_push(&r->ranks, json_integer_value(item)));
  }
out:
  return status;
}

static treadle_status read_mesh(reader *r, size_t number, json_t *object) {
  static const char *const keys[] = {"shape", "ranks", "first", "stride", NULL};
  treadle_status status = TREADLE_OK;
  treadle_placed_mesh *mesh = &r->meshes[number];
  const json_t *ranks = json_object_get(object, "ranks"), *first = json_object_get(object, "first"),
               *stride = json_object_get(object, "stride");
  int64_t count = 1;
  TRY(check_keys(r, "mesh", number, object, keys));
  TRY(read_numbers(r, "shape of mesh", number, json_object_get(object, "shape"), TREADLE_MAX_PLACED_DIMS,
                   &mesh->ndim, mesh->size));
  if (stride) TRY(read_numbers(r, "stride of mesh", number, stride, mesh->ndim, &mesh->ndim, mesh->stride));
  if (first && !json_is_integer(first)) FAIL("%s: mesh %zu: first is not a whole number", r->path, number);
  mesh->first = json_integer_value(first);
  if (!ranks) goto out;
  if (first || stride) FAIL("%s: mesh %zu has ranks, and first or stride too", r->path, number);
  if (!json_is_array(ranks)) FAIL("%s: mesh %zu: ranks is not a list", r->path, number);
  for (int d = 0; d < mesh->ndim; d++)
    if (mesh->size[d] < 1 || __builtin_mul_overflow(count, mesh->size[d], &count) || count > 1 << 30)
      FAIL("%s: mesh %zu: its shape holds no ranks or too many", r->path, number);
  r->ranks.count = 0;
  TRY(read_ranks(r, number, ranks, 0, count));
  int64_t *list = treadle_arena_alloc_array(r->arena, r->ranks.count, sizeof *list);
  if (!list) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: memory is out", r->path));
  mesh->ranks = memcpy(list, r->ranks.items, r->ranks.count * sizeof *list);
out:
  return status;
}

/* ---- Tensors ---- */

/* "R", "S0", "T0/8", "F0" or "P", up to a comma; *at_p moves behind it. */
static bool read_placement(const char **at_p, treadle_placement *placement) {
  static const char letters[] = "RSTFP"; /* in the order of treadle_placement_type */
  const char *at = *at_p, *letter = *at ? strchr(letters, *at) : NULL;
  char *end;
  if (!letter) return false;
  placement->type = (treadle_placement_type)(letter - letters);
  at++;
  if (strchr("STF", *letter)) {
    if (*at < '0' || *at > '9') return false;
    long dim = strtol(at, &end, 10);
    placement->dim = dim > INT32_MAX ? INT32_MAX : (int32_t)dim;
    at = end;
  }
  if (*letter == 'T') {
    if (at[0] != '/' || at[1] < '0' || at[1] > '9') return false;
    placement->split = strtoll(at + 1, &end, 10);
    at = end;
  }
  if (*at && *at != ',') return false;
  *at_p = at;
  return true;
}

static treadle_status read_placements(const reader *r, size_t number, const char *text, int ndim,
                                      treadle_placement *placements) {
  treadle_status status = TREADLE_OK;
  int count = 0;
  const char *at = text;
  for (bool more = true; more; count++) {
    treadle_placement placement = {0};
    if (!read_placement(&at, &placement))
      FAIL("%s: tensor %zu: '%s': a placement is R, S0 (a dimension), T0/8 (and a split factor) or F0; not "
           "'%s'",
           r->path, number, text, at);
    if (count < ndim) placements[count] = placement;
    more = *at == ',';
    if (more) at++;
  }
  if (count != ndim)
    FAIL("%s: tensor %zu: '%s' has %d placements, and its mesh %d dimensions", r->path, number, text, count,
         ndim);
out:
  return status;
}

static treadle_status push_names(reader *r, size_t number, const json_t *names,
                                 const treadle_placed_tensor *like) {
  treadle_status status = TREADLE_OK;
  treadle_placed_tensor tensor = *like;
  size_t count = json_is_array(names) ? json_array_size(names) : 1;
  if (count == 0) FAIL("%s: tensor %zu: tensor is an empty list", r->path, number);
  for (size_t i = 0; i < count; i++) {
    tensor.tensor = json_string_value(json_is_array(names) ? json_array_get(names, i) : names);
    if (!tensor.tensor)
      FAIL("%s: tensor %zu: tensor is neither a name nor a list of names", r->path, number);
    TRY(treadle_array_push(&r->tensors, tensor));
  }
  if (like->storage && json_is_array(names))
    FAIL("%s: tensor %zu: storage is for one name, not for a list", r->path, number);
out:
  return status;
}

static treadle_status read_tensor(reader *r, size_t number, json_t *object) {
  static const char *const keys[] = {"tensor", "storage", "dtype", "shape", "mesh", "placements", NULL};
  treadle_status status = TREADLE_OK;
  treadle_placed_tensor tensor = {.mesh = -1};
  TRY(check_keys(r, "tensor", number, object, keys));
  const json_t *mesh = json_object_get(object, "mesh"), *dtype = json_object_get(object, "dtype");
  const json_t *storage = json_object_get(object, "storage"),
               *placements = json_object_get(object, "placements"),
               *shape = json_object_get(object, "shape");
  if (storage && !json_is_string(storage)) FAIL("%s: tensor %zu: storage is not a text", r->path, number);
  tensor.storage = json_string_value(storage);
  if (shape)
    TRY(read_numbers(r, "shape of tensor", number, shape, TREADLE_MAX_DIMS, &tensor.ndim, tensor.shape));
  if (dtype && (!json_is_string(dtype) || !treadle_dtype_parse(json_string_value(dtype), &tensor.dtype)))
    FAIL("%s: tensor %zu: dtype is none of fp32, bf16, fp16", r->path, number);
  if ((mesh == NULL) != (placements == NULL))
    FAIL("%s: tensor %zu: mesh and placements go together", r->path, number);
  if (mesh) {
    json_int_t at = json_is_integer(mesh) ? json_integer_value(mesh) : -1;
    if (at < 0 || (size_t)at >= r->mesh_count)
      FAIL("%s: tensor %zu: mesh is not the number of one of %zu meshes", r->path, number, r->mesh_count);
    if (!json_is_string(placements)) FAIL("%s: tensor %zu: placements are no text", r->path, number);
    tensor.mesh = (int32_t)at;
    TRY(read_placements(r, number, json_string_value(placements), r->meshes[at].ndim, tensor.placements));
  }
  TRY(push_names(r, number, json_object_get(object, "tensor"), &tensor));
out:
  return status;
}

/* ---- The file ---- */

treadle_status treadle_placements_read(treadle_layout *layout, const char *path, json_t *root,
                                       treadle_arena *arena) {
  static const char *const keys[] = {"meshes", "tensors", NULL};
  treadle_status status = TREADLE_OK;
  reader r = {.path = path, .arena = arena};
  const json_t *meshes = json_object_get(root, "meshes"), *tensors = json_object_get(root, "tensors");
  if (!json_is_array(tensors) || (meshes && !json_is_array(meshes)))
    FAIL("%s: it is not an object with lists 'meshes' and 'tensors'", r.path);
  TRY(check_keys(&r, "object", 0, root, keys));
  r.mesh_count = json_array_size(meshes);
  r.meshes = treadle_arena_alloc_array(arena, r.mesh_count + 1, sizeof *r.meshes);
  if (!r.meshes) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: memory is out", r.path));
  for (size_t m = 0; m < r.mesh_count; m++) TRY(read_mesh(&r, m, json_array_get(meshes, m)));
  for (size_t i = 0; i < json_array_size(tensors); i++) TRY(read_tensor(&r, i, json_array_get(tensors, i)));
  TRY(treadle_placements_build(layout, r.meshes, r.mesh_count, r.tensors.items, r.tensors.count));
out:
  treadle_array_release(&r.ranks);
  treadle_array_release(&r.tensors);
  return status;
}

static treadle_status create(treadle_layout *layout, treadle_settings *words, treadle_arena *words_arena,
                             treadle_builder *normal) {
  treadle_status status = TREADLE_OK;
  json_t *root = NULL;
  const char *path = words->file;
  if (!path || !*path) FAIL("layout '%s': the form is placements:@file", words->text);
  TRY(treadle_json_load(path, &root));
  TRY(treadle_placements_read(layout, path, root, words_arena));
  treadle_builder_add(normal, ":@%s", path);
out:
  json_decref(root);
  return status;
}

static const char *const keys[] = {NULL};
const treadle_layout_type treadle_layout_type_placements = {"placements", keys, false, create};
