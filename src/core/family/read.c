/* A family file's tree to a treadle_family: dims, prefixes, tensors.
 *
 * What holds afterwards: every expression parses; a dim names only earlier dims and config fields; every
 * name has at most one {l}; axes are dims or integers; same_as leads to an earlier pattern that copies nothing
 * itself. The values are checked later, when a config.json makes the family a model. */
#include "family/read.h"
#include "family/assemble.h"
#include "family/expr.h"

#include <string.h>

static const char *const root_keys[] = {
    "family",          "model_types", "config",   "dims",         "layers",     "mtp",
    "experts",         "prefixes",    "tensors",  "mtp_prefixes", "views",      "carried",
    "stored_prefixes", "packed",      "requires", "traits",       "outer",      "quantised",
    "engines",         "extends",     "blocks",   "conditions",   "changes",    "layer_dims",
    "renamed",         "to_say",      "forward",  "coded",        "plain_only", "defaults",
    "field_names",     NULL};
static const char *const tensor_keys[] = {"name",   "shape", "when",   "same_as", "same_when",
                                          "packed", "dtype", "buffer", NULL};

/* ---- Prefixes and dims ------------------------------------------------------------------------- */

static treadle_status read_prefixes(treadle_family_reader *reader, const treadle_yaml *root,
                                    const char *key, const treadle_yaml **prefixes_p) {
  const treadle_yaml *prefixes = *prefixes_p = treadle_yaml_get(root, key);
  if (!prefixes) return TREADLE_OK;
  bool good = prefixes->type == TREADLE_YAML_MAP;
  for (size_t i = 0; good && i < prefixes->count; i++)
    good = prefixes->items[i]->type == TREADLE_YAML_SCALAR && *prefixes->keys[i];
  if (good) return TREADLE_OK;
  return treadle_family_fail(reader, prefixes, "%s must be a map of texts, each for a beginning of names",
                             key);
}

/* Pairs of a beginning as the family has it, and one that files may have in its place. */
static treadle_status read_stored_prefixes(treadle_family_reader *reader, const treadle_yaml *root) {
  treadle_family *family = reader->family;
  const treadle_yaml *map = treadle_yaml_get(root, "stored_prefixes");
  treadle_status status = TREADLE_OK;
  size_t total = 0, at = 0;
  if (!map) return TREADLE_OK;
  if (map->type != TREADLE_YAML_MAP)
    return treadle_family_fail(reader, map, "%s must be a map of lists", "stored_prefixes");
  for (size_t i = 0; i < map->count; i++) {
    TRY(treadle_family_check_list(reader, map, map->items[i], map->keys[i]));
    total += map->items[i]->count;
  }
  const char **from = treadle_arena_alloc_array(reader->arena, total + 1, sizeof *from);
  const char **instead = treadle_arena_alloc_array(reader->arena, total + 1, sizeof *instead);
  if (!from || !instead) return treadle_family_no_memory();
  for (size_t i = 0; i < map->count; i++)
    for (size_t k = 0; k < map->items[i]->count; k++, at++) {
      from[at] = map->keys[i];
      instead[at] = map->items[i]->items[k]->text;
    }
  family->stored_prefixes = from;
  family->stored_instead = instead;
  family->stored_prefix_count = (int32_t)total;
out:
  return status;
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

/* What `when`, `over` and `named` ask layouts for: a dim of such a name would be two things. */
static const char *const reserved_names[] = {"l",
                                             "mtp",
                                             "tp",
                                             "pp",
                                             "pcp",
                                             "dp",
                                             "cp",
                                             "ep",
                                             "etp",
                                             "edp",
                                             "attn_tp",
                                             "attn_cp",
                                             "attn_dp",
                                             "moe_tp",
                                             "moe_dp",
                                             "dense_tp",
                                             "head_tp",
                                             "embed_tp",
                                             "shared_tp",
                                             "redundant",
                                             "ep_on",
                                             "eplb",
                                             "deepep",
                                             "grouped",
                                             "stacked",
                                             "legacy",
                                             "old_names",
                                             "sequential",
                                             "shared_fused",
                                             "mla_fused",
                                             "triton_kernels",
                                             "indexer_fused",
                                             "wrapped",
                                             "score_head",
                                             "score_bias",
                                             NULL};

static bool is_reserved(const char *name) {
  int i = 0;
  while (reserved_names[i] && strcmp(reserved_names[i], name) != 0) i++;
  return reserved_names[i] != NULL;
}

static treadle_status read_dims(treadle_family_reader *reader, const treadle_yaml *root) {
  treadle_family *family = reader->family;
  const treadle_yaml *dims = treadle_yaml_get(root, "dims");
  treadle_status status = TREADLE_OK;
  if (!dims || dims->type != TREADLE_YAML_MAP || dims->count > 256)
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
    if (is_reserved(dims->keys[i]))
      return treadle_family_fail(reader, item, "'%s' cannot be the name of a dim: it is one of layouts",
                                 dims->keys[i]);
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
      "'%s' is not an axis: a shape is products ('*') of dims and integers; the nearest dim "
      "is %s",
      axis, nearest.best);
}

/* "ng*q*hd" to axes of dimension `dim`. */
static treadle_status read_axes(treadle_family_reader *reader, const treadle_yaml *node, int dim,
                                treadle_pattern *pattern) {
  treadle_status status = TREADLE_OK;
  for (const char *at = node->text;; at++) {
    size_t length = strcspn(at, "*"), blanks = strspn(at, " ");
    if (pattern->naxes == TREADLE_MAX_AXES)
      return treadle_family_fail(reader, node, "%s has more than %d axes", pattern->name, TREADLE_MAX_AXES);
    if (blanks > length) blanks = length;
    char *axis = treadle_arena_format(reader->arena, "%.*s", (int)(length - blanks), at + blanks);
    if (!axis) return treadle_family_no_memory();
    for (size_t end = strlen(axis); end > 0 && axis[end - 1] == ' '; end--) axis[end - 1] = 0;
    TRY(check_axis(reader, node, axis));
    pattern->axis_text[pattern->naxes] = axis;
    pattern->axis_dim[pattern->naxes++] = (int8_t)dim;
    at += length;
    if (!*at) break;
  }
out:
  return status;
}

/* The dim that counts experts. */
static treadle_status read_expert_dim(treadle_family_reader *reader, const treadle_yaml *root) {
  treadle_status status;
  TRY(treadle_family_text_of(reader, root, "experts", false, &reader->family->experts));
  if (reader->family->experts) TRY(check_axis(reader, root, reader->family->experts));
out:
  return status;
}

static treadle_status read_shape(treadle_family_reader *reader, const treadle_yaml *node,
                                 treadle_pattern *pattern) {
  const treadle_yaml *shape = treadle_yaml_get(node, "shape");
  treadle_status status;
  bool stacked = pattern->full_name.by_expert; /* the expert axis is not written down */
  TRY(treadle_family_check_list(reader, node, shape, "shape"));
  if (shape->count + stacked > TREADLE_MAX_DIMS)
    return treadle_family_fail(reader, shape, "%s has more than %d dimensions", pattern->name,
                               TREADLE_MAX_DIMS - stacked);
  if (stacked) {
    pattern->axis_text[0] = reader->family->experts;
    pattern->naxes = 1;
  }
  for (size_t d = 0; d < shape->count; d++)
    TRY(read_axes(reader, shape->items[d], (int)d + stacked, pattern));
  pattern->ndim = (int)shape->count + stacked;
  if (pattern->packed &&
      (strcmp(pattern->axis_text[0], reader->family->experts) != 0 || pattern->axis_dim[1] == 0))
    return treadle_family_fail(reader, shape, "%s is packed, so its first dimension must be %s",
                               pattern->name, reader->family->experts);
out:
  return status;
}

/* Is the pattern by expert, or packed? */
static treadle_status read_experts(treadle_family_reader *reader, const treadle_yaml *node,
                                   treadle_pattern *pattern) {
  treadle_status status;
  TRY(treadle_family_flag(reader, node, "packed", &pattern->packed));
  pattern->experts = pattern->packed || pattern->full_name.by_expert;
  if (pattern->experts && !reader->family->experts)
    return treadle_family_fail(reader, node, "%s is of experts, and the file does not say experts: DIM",
                               pattern->name);
  if (pattern->packed && pattern->full_name.by_expert)
    return treadle_family_fail(reader, node, "%s is packed and yet by expert", pattern->name);
out:
  return status;
}

static treadle_status read_same_when(treadle_family_reader *reader, const treadle_yaml *node,
                                     treadle_pattern *pattern) {
  const char *same_as;
  treadle_status status;
  TRY(treadle_family_text_of(reader, node, "same_as", false, &same_as));
  TRY(treadle_family_condition(reader, node, "same_when", &pattern->same_when));
  pattern->same_as = pattern->scale_of = -1;
  if (!same_as != !pattern->same_when)
    return treadle_family_fail(reader, node, "%s: same_as and same_when go together", pattern->name);
out:
  return status;
}

/* Once all patterns are known: whom each copies. A copy of a copy leads on, but never back. */
static treadle_status read_same_as(treadle_family_reader *reader, const treadle_yaml *node,
                                   treadle_pattern *pattern) {
  treadle_family *family = reader->family;
  const char *same_as;
  treadle_status status;
  TRY(treadle_family_text_of(reader, node, "same_as", false, &same_as));
  if (!same_as) return TREADLE_OK;
  TRY(treadle_family_pattern(reader, node, same_as, &pattern->same_as));
  const treadle_pattern *original = &family->patterns[pattern->same_as];
  if (original->in_layer && !pattern->in_layer)
    return treadle_family_fail(reader, node, "%s is outside of layers, %s is not", pattern->name,
                               original->name);
  int32_t steps = 0;
  for (int32_t at = pattern->same_as; at >= 0; at = family->patterns[at].same_as)
    if (++steps > family->pattern_count || at == pattern - family->patterns)
      return treadle_family_fail(reader, node, "%s is a copy of itself", pattern->name);
out:
  return status;
}

/* Tensor number `position` of a line, which may have a list of names. */
static treadle_status read_tensor(treadle_family_reader *reader, const treadle_yaml *node,
                                  size_t position) {
  treadle_family *family = reader->family;
  treadle_pattern *pattern = &family->patterns[family->pattern_count];
  const treadle_yaml *names = treadle_yaml_get(node, "name");
  const char *name, *key;
  treadle_status status;
  TRY(treadle_family_check_keys(reader, node, tensor_keys));
  if (names && names->type == TREADLE_YAML_LIST) {
    TRY(treadle_family_check_list(reader, node, names, "name"));
    name = names->items[position]->text;
  } else {
    TRY(treadle_family_text_of(reader, node, "name", true, &name));
  }
  TRY(treadle_family_expand_marked(reader, node, name, &pattern->full_name, &key));
  pattern->name = pattern->full_name.text;
  pattern->in_layer = pattern->full_name.in_layer;
  if (treadle_hash_map_get(&reader->patterns, key, -1) >= 0)
    return treadle_family_fail(reader, node, "tensor %s stands twice", key);
  if (key != pattern->name && !pattern->in_layer)
    return treadle_family_fail(reader, node, "%s is in no layer, and cannot differ by layer", key);
  TRY(read_experts(reader, node, pattern));
  TRY(read_shape(reader, node, pattern));
  TRY(treadle_family_dtype(reader, node, &pattern->dtype));
  TRY(treadle_family_condition(reader, node, "when", &pattern->when));
  TRY(read_same_when(reader, node, pattern));
  TRY(treadle_family_flag(reader, node, "buffer", &pattern->buffer));
  if (pattern->dtype == TREADLE_INT32 && (!pattern->buffer || pattern->experts))
    return treadle_family_fail(
        reader, node, "%s: integers are not trained: say buffer: true; and not of experts", pattern->name);
  pattern->file = node->file;
  pattern->line = node->line;
  TRY(treadle_hash_map_put(&reader->patterns, key, family->pattern_count));
  family->pattern_count++;
out:
  return status;
}

static treadle_status read_tensors(treadle_family_reader *reader, const treadle_yaml *root) {
  treadle_family *family = reader->family;
  const treadle_yaml *tensors = treadle_yaml_get(root, "tensors");
  treadle_status status = TREADLE_OK;
  if (!tensors || tensors->type != TREADLE_YAML_LIST || !tensors->count)
    return treadle_family_fail(reader, tensors ? tensors : root, "%s must be a list of tensors", "tensors");
  size_t count = 0;
  for (size_t i = 0; i < tensors->count; i++) count += treadle_family_count_names(tensors->items[i]);
  family->patterns = treadle_arena_alloc_array(reader->arena, count + 1, sizeof *family->patterns);
  if (!family->patterns) return treadle_family_no_memory();
  for (size_t i = 0; i < tensors->count; i++)
    for (size_t k = 0, names = treadle_family_count_names(tensors->items[i]); k < names; k++)
      TRY(read_tensor(reader, tensors->items[i], k));
  for (size_t i = 0, pattern = 0; i < tensors->count; i++)
    for (size_t k = 0, names = treadle_family_count_names(tensors->items[i]); k < names; k++, pattern++)
      TRY(read_same_as(reader, tensors->items[i], &family->patterns[pattern]));
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

/* What is open in the file, or in one that it is made of, each with its place. The last one may have gone: the list is empty. */
static treadle_status read_to_say(treadle_family_reader *reader, const treadle_yaml *root) {
  treadle_family *family = reader->family;
  const treadle_yaml *list = treadle_yaml_get(root, "to_say");
  treadle_status status;
  if (!list || (list->type == TREADLE_YAML_LIST && !list->count)) return TREADLE_OK;
  TRY(treadle_family_check_list(reader, root, list, "to_say"));
  family->to_say = treadle_arena_alloc_array(reader->arena, list->count, sizeof *family->to_say);
  if (!family->to_say) return treadle_family_no_memory();
  for (size_t i = 0; i < list->count; i++, family->to_say_count++) {
    const treadle_yaml *item = list->items[i];
    family->to_say[i] =
        treadle_arena_format(reader->arena, "%s line %d: %s", item->file, item->line, item->text);
    if (!family->to_say[i]) return treadle_family_no_memory();
  }
out:
  return status;
}

/* A map about fields of config.json: their other names, which are texts, or their defaults. */
static treadle_status read_fields(const treadle_family_reader *reader, const treadle_yaml *root,
                                  const char *key, const treadle_yaml **fields_p) {
  const treadle_yaml *map = treadle_yaml_get(root, key);
  bool values = strcmp(key, "defaults") == 0;
  *fields_p = map;
  if (map && map->type != TREADLE_YAML_MAP)
    return treadle_family_fail(reader, map, "%s must be a map of fields", key);
  for (size_t i = 0; map && i < map->count; i++)
    if ((!values || map->items[i]->type == TREADLE_YAML_LIST) && map->items[i]->type != TREADLE_YAML_SCALAR)
      return treadle_family_fail(reader, map, "%s: %s must have another name", key, map->keys[i]);
  return TREADLE_OK;
}

static treadle_status read_head(treadle_family_reader *reader, const treadle_yaml *root) {
  treadle_family *family = reader->family;
  treadle_status status;
  TRY(treadle_family_check_keys(reader, root, root_keys));
  TRY(treadle_family_text_of(reader, root, "family", true, &family->name));
  TRY(read_model_types(reader, root));
  TRY(treadle_family_condition(reader, root, "layers", &family->layers));
  if (!family->layers) return treadle_family_fail(reader, root, "%s is missing", "layers");
  TRY(treadle_family_condition(reader, root, "mtp", &family->mtp));
  TRY(treadle_family_text_of(reader, root, "config", false, &family->config));
  TRY(treadle_family_texts_of(reader, root, "carried", &family->carried_count, &family->carried));
  TRY(treadle_family_texts_of(reader, root, "quantised", &family->quantised_count, &family->quantised));
  TRY(treadle_family_texts_of(reader, root, "coded", &family->coded_count, &family->coded));
  TRY(treadle_family_texts_of(reader, root, "plain_only", &family->plain_only_count, &family->plain_only));
  TRY(read_fields(reader, root, "field_names", &family->field_names));
  TRY(read_fields(reader, root, "defaults", &family->defaults));
  TRY(read_to_say(reader, root));
out:
  return status;
}

treadle_status treadle_family_read(const char *path, const treadle_yaml *root, const char *folder,
                                   treadle_arena *arena, treadle_family **family_p) {
  treadle_family_reader reader = {.path = path, .arena = arena};
  treadle_assembly assembly = {.reader = &reader, .folder = folder};
  treadle_status status;
  treadle_family *family = treadle_arena_alloc(arena, sizeof *family);
  if (!family) return treadle_family_no_memory();
  family->path = treadle_arena_copy_text(arena, path);
  if (!family->path) return treadle_family_no_memory();
  family->arena = arena;
  reader.family = family;
  const treadle_yaml *uses = treadle_yaml_get(root, "blocks");
  if (!uses) uses = treadle_yaml_get(root, "extends");
  reader.uses_line = uses ? uses->line : root->line;
  TRY(treadle_family_assemble(&assembly, root, &root));
  TRY(read_head(&reader, root));
  TRY(read_prefixes(&reader, root, "prefixes", &reader.prefixes));
  TRY(read_prefixes(&reader, root, "mtp_prefixes", &reader.mtp_prefixes));
  TRY(read_stored_prefixes(&reader, root));
  TRY(read_dims(&reader, root));
  TRY(read_expert_dim(&reader, root));
  TRY(read_tensors(&reader, root));
  TRY(treadle_family_read_views(&reader, treadle_yaml_get(root, "views")));
  TRY(treadle_family_read_engines(&reader, root));
  TRY(treadle_family_read_traits(&reader, root));
  TRY(treadle_family_read_forward(&reader, root));
  TRY(treadle_family_add_scales(&reader));
  *family_p = family;
out:
  treadle_hash_map_release(&reader.patterns);
  treadle_hash_map_release(&reader.views);
  return status;
}
