/* A family file's tree to a treadle_family: dims, prefixes, tensors.
 *
 * What holds afterwards: every expression parses; a dim names only earlier dims and config fields; every
 * name has at most one {l}; axes are dims or integers; same_as leads to an earlier kind that copies nothing
 * itself. The values are checked later, when a config.json makes the family a model. */
#include "model/family_read.h"
#include "model/expr.h"

#include <string.h>

static const char *const root_keys[] = {"family",   "model_types", "dims",    "layers",
                                        "prefixes", "tensors",     "engines", NULL};
static const char *const tensor_keys[] = {"name", "shape", "when", "same_as", "same_when", NULL};

/* ---- Prefixes and dims ------------------------------------------------------------------------- */

static treadle_status read_prefixes(treadle_family_reader *reader, const treadle_yaml *prefixes) {
  if (!prefixes) return TREADLE_OK;
  bool good = prefixes->kind == TREADLE_YAML_MAP;
  for (size_t i = 0; good && i < prefixes->count; i++)
    good = prefixes->items[i]->kind == TREADLE_YAML_SCALAR && *prefixes->keys[i];
  if (!good)
    return treadle_family_fail(reader, prefixes, "%s must be a map of texts, each for a beginning of names",
                               "prefixes");
  reader->prefixes = prefixes;
  return TREADLE_OK;
}

typedef struct dim_check {
  const treadle_family_reader *reader;
  const treadle_yaml *dims;
  size_t dim;
} dim_check;

/* A name in a dim: an earlier dim, or no dim at all and so a config field. */
static treadle_status check_dim_name(void *context, const char *name) {
  const dim_check *check = context;
  for (size_t i = check->dim; i < check->dims->count; i++) {
    if (strcmp(name, check->dims->keys[i]) != 0) continue;
    return treadle_family_fail(check->reader, check->dims->items[check->dim],
                               "cycle: dim %s needs %s, which does not stand before it",
                               check->dims->keys[check->dim], name);
  }
  return TREADLE_OK;
}

static treadle_status read_dims(treadle_family_reader *reader, const treadle_yaml *root) {
  treadle_family *family = reader->family;
  const treadle_yaml *dims = treadle_yaml_get(root, "dims");
  treadle_status status = TREADLE_OK;
  if (!dims || dims->kind != TREADLE_YAML_MAP || dims->count > 256)
    return treadle_family_fail(reader, dims ? dims : root, "%s must be a map of names to expressions",
                               "dims");
  family->dim_names = treadle_arena_alloc_array(reader->arena, dims->count + 1, sizeof *family->dim_names);
  family->dim_texts = treadle_arena_alloc_array(reader->arena, dims->count + 1, sizeof *family->dim_texts);
  if (!family->dim_names || !family->dim_texts) return treadle_family_no_memory();
  for (size_t i = 0; i < dims->count; i++) {
    dim_check check = {.reader = reader, .dims = dims, .dim = i};
    const treadle_yaml *item = dims->items[i];
    if (!treadle_expr_is_name(dims->keys[i]))
      return treadle_family_fail(reader, item, "'%s' cannot be the name of a dim", dims->keys[i]);
    TRY(treadle_family_text_of(reader, dims, dims->keys[i], true, &family->dim_texts[i]));
    const char *what = treadle_family_place(reader, item);
    if (!what) return treadle_family_no_memory();
    TRY(treadle_expr_check(what, family->dim_texts[i], check_dim_name, &check));
    family->dim_names[i] = dims->keys[i];
    family->dim_count++;
  }
out:
  return status;
}

/* ---- Tensors ----------------------------------------------------------------------------------- */

/* One axis: an integer or a dim. */
static treadle_status check_axis(const treadle_family_reader *reader, const treadle_yaml *node,
                                 const char *axis) {
  int64_t number;
  if (treadle_text_to_int64(axis, &number) && number > 0) return TREADLE_OK;
  treadle_nearest nearest = treadle_nearest_to(axis);
  for (int32_t i = 0; i < reader->family->dim_count; i++)
    treadle_nearest_try(&nearest, reader->family->dim_names[i]);
  if (nearest.distance == 0) return TREADLE_OK;
  return treadle_family_fail(
      reader, node,
      "'%s' is no axis: a shape is products ('*') of dims and integers; the nearest dim "
      "is %s",
      axis, nearest.best);
}

/* "ng*q*hd" to axes of dimension `dim`. */
static treadle_status read_axes(treadle_family_reader *reader, const treadle_yaml *node, int dim,
                                treadle_kind *kind) {
  treadle_status status = TREADLE_OK;
  for (const char *at = node->text;; at++) {
    size_t length = strcspn(at, "*"), blanks = strspn(at, " ");
    if (kind->naxes == TREADLE_MAX_AXES)
      return treadle_family_fail(reader, node, "%s has more than %d axes", kind->name, TREADLE_MAX_AXES);
    if (blanks > length) blanks = length;
    char *axis = treadle_arena_format(reader->arena, "%.*s", (int)(length - blanks), at + blanks);
    if (!axis) return treadle_family_no_memory();
    for (size_t end = strlen(axis); end > 0 && axis[end - 1] == ' '; end--) axis[end - 1] = 0;
    TRY(check_axis(reader, node, axis));
    kind->axis_text[kind->naxes] = axis;
    kind->axis_dim[kind->naxes++] = (int8_t)dim;
    at += length;
    if (!*at) break;
  }
out:
  return status;
}

static treadle_status read_shape(treadle_family_reader *reader, const treadle_yaml *node,
                                 treadle_kind *kind) {
  const treadle_yaml *shape = treadle_yaml_get(node, "shape");
  treadle_status status;
  TRY(treadle_family_check_list(reader, node, shape, "shape"));
  if (shape->count > TREADLE_MAX_DIMS)
    return treadle_family_fail(reader, shape, "%s has more than %d dimensions", kind->name,
                               TREADLE_MAX_DIMS);
  for (size_t d = 0; d < shape->count; d++) TRY(read_axes(reader, shape->items[d], (int)d, kind));
  kind->ndim = (int)shape->count;
out:
  return status;
}

static treadle_status read_same_as(treadle_family_reader *reader, const treadle_yaml *node,
                                   treadle_kind *kind) {
  const char *same_as;
  treadle_status status;
  TRY(treadle_family_text_of(reader, node, "same_as", false, &same_as));
  TRY(treadle_family_condition(reader, node, "same_when", &kind->same_when));
  kind->same_as = -1;
  if (!same_as != !kind->same_when)
    return treadle_family_fail(reader, node, "%s: same_as and same_when go together", kind->name);
  if (!same_as) return TREADLE_OK;
  TRY(treadle_family_kind(reader, node, same_as, &kind->same_as));
  const treadle_kind *original = &reader->family->kinds[kind->same_as];
  if (original->same_as >= 0)
    return treadle_family_fail(reader, node, "%s: %s is a copy itself", kind->name, original->name);
  if (original->in_layer && !kind->in_layer)
    return treadle_family_fail(reader, node, "%s is outside of layers, %s is not", kind->name,
                               original->name);
out:
  return status;
}

static treadle_status read_tensor(treadle_family_reader *reader, const treadle_yaml *node) {
  treadle_family *family = reader->family;
  treadle_kind *kind = &family->kinds[family->kind_count];
  const char *name;
  treadle_status status;
  TRY(treadle_family_check_keys(reader, node, tensor_keys));
  TRY(treadle_family_text_of(reader, node, "name", true, &name));
  TRY(treadle_family_expand(reader, node, name, &kind->name, &kind->in_layer));
  if (treadle_map_get(&reader->kinds, kind->name, -1) >= 0)
    return treadle_family_fail(reader, node, "tensor %s stands twice", kind->name);
  TRY(read_shape(reader, node, kind));
  TRY(treadle_family_condition(reader, node, "when", &kind->when));
  TRY(read_same_as(reader, node, kind));
  kind->line = node->line;
  TRY(treadle_map_put(&reader->kinds, kind->name, family->kind_count));
  family->kind_count++;
out:
  return status;
}

static treadle_status read_tensors(treadle_family_reader *reader, const treadle_yaml *root) {
  treadle_family *family = reader->family;
  const treadle_yaml *tensors = treadle_yaml_get(root, "tensors");
  treadle_status status = TREADLE_OK;
  if (!tensors || tensors->kind != TREADLE_YAML_LIST || !tensors->count)
    return treadle_family_fail(reader, tensors ? tensors : root, "%s must be a list of tensors", "tensors");
  family->kinds = treadle_arena_alloc_array(reader->arena, tensors->count, sizeof *family->kinds);
  if (!family->kinds) return treadle_family_no_memory();
  for (size_t i = 0; i < tensors->count; i++) TRY(read_tensor(reader, tensors->items[i]));
out:
  return status;
}

/* ---- The file ---------------------------------------------------------------------------------- */

static treadle_status read_model_types(treadle_family_reader *reader, const treadle_yaml *root) {
  const treadle_yaml *list = treadle_yaml_get(root, "model_types");
  treadle_status status;
  TRY(treadle_family_check_list(reader, root, list, "model_types"));
  const char **types = treadle_arena_alloc_array(reader->arena, list->count + 1, sizeof *types);
  if (!types) return treadle_family_no_memory();
  for (size_t i = 0; i < list->count; i++) types[i] = list->items[i]->text;
  reader->family->model_types = types;
out:
  return status;
}

static treadle_status read_head(treadle_family_reader *reader, const treadle_yaml *root) {
  treadle_family *family = reader->family;
  treadle_status status;
  TRY(treadle_family_check_keys(reader, root, root_keys));
  TRY(treadle_family_text_of(reader, root, "family", true, &family->name));
  TRY(read_model_types(reader, root));
  TRY(treadle_family_condition(reader, root, "layers", &family->layers));
  if (!family->layers) return treadle_family_fail(reader, root, "%s is missing", "layers");
out:
  return status;
}

treadle_status treadle_family_read(const char *path, const treadle_yaml *root, treadle_arena *arena,
                                   treadle_family **family_p) {
  treadle_family_reader reader = {.path = path, .arena = arena};
  treadle_status status;
  treadle_family *family = treadle_arena_alloc(arena, sizeof *family);
  if (!family) return treadle_family_no_memory();
  family->path = treadle_arena_copy_text(arena, path);
  if (!family->path) return treadle_family_no_memory();
  family->arena = arena;
  reader.family = family;
  TRY(read_head(&reader, root));
  TRY(read_prefixes(&reader, treadle_yaml_get(root, "prefixes")));
  TRY(read_dims(&reader, root));
  TRY(read_tensors(&reader, root));
  TRY(treadle_family_read_engines(&reader, treadle_yaml_get(root, "engines")));
  *family_p = family;
out:
  treadle_map_release(&reader.kinds);
  return status;
}
