/* Layer dims: dims that have other values in some layers, such as head_dim where sliding and full attention take turns.
 *
 *   layer_dims:
 *     full: {when: l in layer_types.full_attention, dims: {hd: global_head_dim}}
 *
 * What depends on such a dim is written out, so that nobody else knows of this. A dim that has another value, or follows
 * from one that has, stands a second time, as hd_full. A tensor whose shape names such a dim becomes two, in layers where
 * the condition does not hold and in those where it does: the second is NAME@full in this file (its name in models is
 * NAME). So do views of such tensors, and rules that have them among their parts. */
#include "family/assemble.h"
#include "family/expr.h"

#include <string.h>

static const char *const entry_keys[] = {"when", "dims", NULL};

typedef struct varying {
  treadle_assembly *a;
  const char *mark, *when;
  treadle_hash_map dims;  /* those that stand a second time */
  treadle_hash_map lines; /* names of tensors and views that do */
} varying;

/* An expression with the second dims in the place of the first; the same pointer where it names none. Words after `in`, and
 * after a dot, are names of lists and of what is in them. */
static treadle_status rename_dims(const varying *v, const char *text, const char **renamed_p) {
  treadle_arena *arena = v->a->reader->arena;
  treadle_builder renamed = {0};
  bool list = false, changed = false;
  treadle_status status = TREADLE_OK;
  for (const char *c = text; *c;) {
    size_t length = treadle_word_length(c);
    const char *word = treadle_arena_format(arena, "%.*s", (int)(length ? length : 1), c);
    if (!word) goto no_memory;
    bool name = length && !list && (c == text || c[-1] != '.');
    bool found = name && treadle_hash_map_get(&v->dims, word, -1) >= 0;
    if (length) list = strcmp(word, "in") == 0;
    treadle_builder_add(&renamed, found ? "%s_%s" : "%s", word, v->mark);
    changed |= found;
    c += length ? length : 1;
  }
  *renamed_p = changed && !renamed.failed ? treadle_arena_copy_text(arena, renamed.text) : text;
  if (!renamed.failed && *renamed_p) goto out;
no_memory:
  status = treadle_family_no_memory();
out:
  treadle_builder_release(&renamed);
  return status;
}

/* ---- Dims -------------------------------------------------------------------------------------- */

/* The second values of dims: those of the entry, which speak of the first ones, and what follows from them. */
static treadle_status add_dims(varying *v, treadle_yaml *dims, size_t count, const treadle_yaml *own) {
  treadle_assembly *a = v->a;
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < own->count; i++) {
    treadle_nearest nearest = treadle_nearest_to(own->keys[i]);
    for (size_t k = 0; k < count; k++) treadle_nearest_try(&nearest, dims->keys[k]);
    if (nearest.distance != 0)
      return treadle_family_fail(a->reader, own->items[i], "'%.64s' is not a dim; the nearest is %s",
                                 own->keys[i], nearest.best);
  }
  for (size_t i = 0; i < count; i++) {
    const char *text = treadle_yaml_text(dims, dims->keys[i], ""), *renamed;
    const treadle_yaml *other = treadle_yaml_get(own, dims->keys[i]);
    TRY(rename_dims(v, text, &renamed));
    if (!other && renamed == text) continue;
    treadle_yaml *item;
    TRY(treadle_tree_copy(a, other ? other : dims->items[i], &item));
    if (!other) item->text = renamed;
    const char *name = treadle_arena_format(a->reader->arena, "%s_%s", dims->keys[i], v->mark);
    if (!name) return treadle_family_no_memory();
    if (treadle_yaml_get(dims, name))
      return treadle_family_fail(a->reader, item, "%s is a dim already", name);
    TRY(treadle_tree_set(a, dims, name, item));
    TRY(treadle_hash_map_put(&v->dims, dims->keys[i], 1));
  }
out:
  return status;
}

/* ---- Lines ------------------------------------------------------------------------------------- */

/* What is done to a text of a line: a dim in an expression is renamed, a name in the map, or any with `all`, is marked. */
static treadle_status mark_text(const varying *v, bool all, const char **text_p) {
  if (!all && treadle_hash_map_get(&v->lines, *text_p, -1) < 0) return TREADLE_OK;
  const char *marked = treadle_arena_format(v->a->reader->arena, "%s@%s", *text_p, v->mark);
  if (!marked) return treadle_family_no_memory();
  *text_p = marked;
  return TREADLE_OK;
}

static treadle_status rewrite(const varying *v, const char *key, treadle_yaml *node) {
  static const char *const names[] = {"of", "also", "same_as", NULL};
  static const char *const dims[] = {"shape", "take", "fuse", NULL};
  treadle_status status = TREADLE_OK;
  bool name = strcmp(key, "name") == 0, part = false, dim = false;
  for (int i = 0; names[i]; i++) part |= strcmp(names[i], key) == 0;
  for (int i = 0; dims[i]; i++) dim |= strcmp(dims[i], key) == 0;
  if (!name && !part && !dim) return TREADLE_OK;
  if (node->type == TREADLE_YAML_SCALAR)
    return dim ? rename_dims(v, node->text, &node->text) : mark_text(v, name, &node->text);
  for (size_t i = 0; i < node->count; i++) {
    if (node->type == TREADLE_YAML_MAP && dim) TRY(rename_dims(v, node->keys[i], &node->keys[i]));
    TRY(rewrite(v, key, node->items[i]));
  }
out:
  return status;
}

/* Puts a condition before that of a line. */
static treadle_status add_condition(const varying *v, treadle_yaml *line, bool holds) {
  const char *before = treadle_yaml_text(line, "when", NULL), *no = holds ? "" : "not ";
  treadle_yaml *when;
  treadle_status status;
  TRY(treadle_tree_new(v->a, TREADLE_YAML_SCALAR, line, &when));
  when->text = before ? treadle_arena_format(v->a->reader->arena, "%s(%s) and (%s)", no, v->when, before)
                      : treadle_arena_format(v->a->reader->arena, "%s(%s)", no, v->when);
  if (!when->text) return treadle_family_no_memory();
  TRY(treadle_tree_set(v->a, line, "when", when));
out:
  return status;
}

/* Does one of the texts of a node change? */
static treadle_status changes(const varying *v, const treadle_yaml *node, bool dim, bool *changes_p) {
  treadle_status status = TREADLE_OK;
  if (!node) return TREADLE_OK;
  if (node->type == TREADLE_YAML_SCALAR) {
    const char *renamed = node->text;
    if (dim) TRY(rename_dims(v, node->text, &renamed));
    *changes_p |= dim ? renamed != node->text : treadle_hash_map_get(&v->lines, node->text, -1) >= 0;
  }
  for (size_t i = 0; node->type != TREADLE_YAML_SCALAR && i < node->count; i++)
    TRY(changes(v, node->items[i], dim, changes_p));
out:
  return status;
}

/* The tensors and views of a line are among those that stand a second time. */
static treadle_status keep_names(varying *v, const treadle_yaml *node) {
  treadle_status status = TREADLE_OK;
  if (node && node->type == TREADLE_YAML_SCALAR) return treadle_hash_map_put(&v->lines, node->text, 1);
  for (size_t i = 0; node && i < node->count; i++) TRY(keep_names(v, node->items[i]));
out:
  return status;
}

static treadle_status vary_section(varying *v, treadle_yaml *list, const char *section) {
  bool tensors = strcmp(section, "tensors") == 0, views = strcmp(section, "views") == 0;
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; list && i < list->count; i++) {
    treadle_yaml *line = list->items[i], *second, *one;
    bool varies = false;
    if (line->type != TREADLE_YAML_MAP) continue; /* refused later */
    TRY(changes(v, treadle_yaml_get(line, tensors ? "shape" : "of"), tensors, &varies));
    TRY(changes(v, treadle_yaml_get(line, "also"), false, &varies));
    if (!varies) continue;
    if (strcmp(section, "packed") == 0)
      return treadle_family_fail(v->a->reader, line, "what is packed cannot depend on layer_dims (%s)",
                                 v->mark);
    TRY(treadle_tree_copy(v->a, line, &second));
    TRY(treadle_tree_new(v->a, TREADLE_YAML_LIST, line, &one));
    if (tensors || views) TRY(keep_names(v, treadle_yaml_get(line, "name")));
    for (size_t k = 0; k < second->count; k++)
      if (tensors || views || strcmp(second->keys[k], "name") != 0) /* engines name both alike */
        TRY(rewrite(v, second->keys[k], second->items[k]));
    if (!views) TRY(add_condition(v, second, true));
    if (!views) TRY(add_condition(v, line, false));
    one->items = &second;
    one->count = 1;
    TRY(treadle_tree_splice(v->a, list, ++i, 0, one));
  }
out:
  return status;
}

static treadle_status apply(varying *v, treadle_yaml *tree, const treadle_yaml *entry, size_t dim_count) {
  treadle_yaml *dims = treadle_tree_get(tree, "dims");
  treadle_status status;
  TRY(treadle_family_check_keys(v->a->reader, entry, entry_keys));
  const treadle_yaml *own = treadle_yaml_get(entry, "dims");
  TRY(treadle_family_condition(v->a->reader, entry, "when", &v->when));
  if (!v->when || !own || own->type != TREADLE_YAML_MAP || !own->count)
    return treadle_family_fail(v->a->reader, entry, "layer_dims: %s needs when, and a map dims", v->mark);
  const char *experts = treadle_yaml_text(tree, "experts", "");
  if (treadle_yaml_get(own, experts))
    return treadle_family_fail(v->a->reader, entry, "layer_dims: all layers have %s experts", experts);
  TRY(add_dims(v, dims, dim_count, own));
  for (int i = 0; treadle_section_names[i]; i++)
    TRY(vary_section(v, treadle_tree_section(tree, treadle_section_names[i]), treadle_section_names[i]));
out:
  return status;
}

treadle_status treadle_layer_dims_apply(treadle_assembly *a, treadle_yaml *tree) {
  const treadle_yaml *entries = treadle_yaml_get(tree, "layer_dims"),
                     *dims = treadle_yaml_get(tree, "dims");
  treadle_status status = TREADLE_OK;
  if (!entries) return TREADLE_OK;
  if (entries->type != TREADLE_YAML_MAP || !dims || dims->type != TREADLE_YAML_MAP)
    return treadle_family_fail(a->reader, entries, "%s must be a map, and goes with dims", "layer_dims");
  size_t count = dims->count; /* those of entries before are no dims of the others */
  for (size_t i = 0; i < entries->count; i++) {
    varying v = {.a = a, .mark = entries->keys[i]};
    status = treadle_expr_is_name(v.mark)
                 ? apply(&v, tree, entries->items[i], count)
                 : treadle_family_fail(a->reader, entries, "layer_dims: '%.64s' is not a name", v.mark);
    treadle_hash_map_release(&v.dims);
    treadle_hash_map_release(&v.lines);
    TRY(status);
  }
  treadle_tree_unset(tree, "layer_dims");
out:
  return status;
}
