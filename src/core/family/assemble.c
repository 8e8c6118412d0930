/* The order in which a family is put together: what it extends; its blocks, the first ones whole and the others into the
 * places of the first; what it says itself; its changes; its layer dims; its conditions; its other names.
 *
 * A place is a line {place: NAME}, in `tensors` or in the rules of an engine. A block that `fills` it puts its own lines
 * there, behind those of blocks before it; a line that says `to` goes to that place. Lists without places (views, packed) are joined. */
#include "family/assemble.h"

#include <string.h>

static bool has_places(const char *section) {
  return strcmp(section, "views") != 0 && strcmp(section, "packed") != 0;
}

/* The position of a place; the count where there is none. */
static size_t find_place(const treadle_yaml *list, const char *place) {
  size_t i = 0;
  while (i < list->count && strcmp(treadle_yaml_text(list->items[i], "place", ""), place) != 0) i++;
  return i;
}

/* Puts a block's lines of a section into their places; those that have none are left to be joined. */
static treadle_status fill_section(treadle_assembly *a, treadle_yaml *tree, const char *section,
                                   const char *fills, treadle_yaml *lines) {
  treadle_yaml *list = treadle_tree_section(tree, section), *one;
  treadle_status status;
  size_t kept = 0;
  TRY(treadle_tree_new(a, TREADLE_YAML_LIST, lines, &one));
  one->count = 1;
  for (size_t i = 0; i < lines->count; i++) {
    treadle_yaml *line = lines->items[i];
    const char *place = treadle_yaml_text(line, "to", fills);
    size_t at = list && place ? find_place(list, place) : 0;
    if (!place) {
      lines->items[kept++] = line;
      continue;
    }
    if (!list || at == list->count)
      return treadle_family_fail(a->reader, line, "%s has no {place: %s} for this line", section, place);
    if (line->type == TREADLE_YAML_MAP) treadle_tree_unset(line, "to");
    one->items = &lines->items[i];
    TRY(treadle_tree_splice(a, list, at, 0, one));
  }
  lines->count = kept;
out:
  return status;
}

/* Puts a block over the tree of those before it, which it may change. */
static treadle_status add_block(treadle_assembly *a, treadle_yaml *tree, treadle_yaml *block) {
  const char *fills;
  treadle_status status;
  TRY(treadle_family_text_of(a->reader, block, "fills", false, &fills));
  treadle_tree_unset(block, "fills");
  for (int i = 0; treadle_section_names[i]; i++) {
    const char *section = treadle_section_names[i];
    treadle_yaml *lines = treadle_tree_section(block, section);
    if (lines && has_places(section)) TRY(fill_section(a, tree, section, fills, lines));
  }
  const treadle_yaml *changes = treadle_yaml_get(block, "changes");
  treadle_tree_unset(block, "changes");
  TRY(treadle_tree_merge(a, tree, block, true));
  if (changes) TRY(treadle_changes_apply(a, tree, changes, NULL));
out:
  return status;
}

static treadle_status add_blocks(treadle_assembly *a, treadle_yaml *tree, const treadle_yaml *blocks) {
  treadle_status status = TREADLE_OK;
  if (blocks->type != TREADLE_YAML_LIST || blocks->count > TREADLE_MAX_BLOCKS)
    return treadle_family_fail(a->reader, blocks, "%s must be a list of at most %d", "blocks",
                               TREADLE_MAX_BLOCKS);
  for (size_t i = 0; i < blocks->count; i++) {
    treadle_yaml *block = NULL;
    TRY(treadle_block_read(a, blocks->items[i], &block));
    TRY(add_block(a, tree, block));
  }
out:
  return status;
}

/* Places that nobody filled, and those that somebody did, go. */
static void remove_places(treadle_yaml *tree) {
  for (int i = 0; treadle_section_names[i]; i++) {
    treadle_yaml *list = treadle_tree_section(tree, treadle_section_names[i]);
    size_t kept = 0;
    if (!list) continue;
    for (size_t k = 0; k < list->count; k++)
      if (!treadle_yaml_get(list->items[k], "place")) list->items[kept++] = list->items[k];
    list->count = kept;
  }
}

/* A trait whose value is none is not there, whatever the family that is extended says. */
static void remove_traits(treadle_yaml *tree) {
  const treadle_yaml *traits = treadle_yaml_get(tree, "traits");
  for (size_t e = 0; traits && e < traits->count; e++) {
    treadle_yaml *map = traits->items[e];
    for (size_t i = map->type == TREADLE_YAML_MAP ? map->count : 0; i-- > 0;)
      if (strcmp(treadle_yaml_text(map, map->keys[i], ""), "none") == 0)
        treadle_tree_unset(map, map->keys[i]);
  }
}

/* {megatron: none}: the family has no such engine, whatever its blocks say. */
static void remove_engines(treadle_yaml *tree) {
  static const char *const maps[] = {"traits", "requires", "outer", "engines",
                                     NULL}; /* engines last: it is asked */
  const treadle_yaml *engines = treadle_yaml_get(tree, "engines");
  if (!engines || engines->type != TREADLE_YAML_MAP) return;
  for (size_t i = engines->count; i-- > 0;) {
    const char *name = engines->keys[i];
    if (engines->items[i]->type != TREADLE_YAML_SCALAR || strcmp(engines->items[i]->text, "none") != 0)
      continue;
    for (int k = 0; maps[k]; k++) {
      treadle_yaml *map = treadle_tree_get(tree, maps[k]);
      if (map && map->type == TREADLE_YAML_MAP) treadle_tree_unset(map, name);
    }
  }
}

/* Lists of which an option, or a change, has left nothing are none. */
static void remove_empty(treadle_yaml *tree) {
  static const char *const sections[] = {"views", "packed", NULL};
  for (int i = 0; sections[i]; i++) {
    const treadle_yaml *list = treadle_tree_section(tree, sections[i]);
    if (list && !list->count) treadle_tree_unset(tree, sections[i]);
  }
}

treadle_status treadle_family_assemble(treadle_assembly *a, const treadle_yaml *root,
                                       const treadle_yaml **whole_p) {
  treadle_yaml *family, *tree;
  treadle_status status;
  TRY(treadle_family_extend(a, root, &family));
  TRY(treadle_tree_new(a, TREADLE_YAML_MAP, family, &tree));
  const treadle_yaml *blocks = treadle_yaml_get(family, "blocks"),
                     *changes = treadle_yaml_get(family, "changes");
  treadle_tree_unset(family, "blocks");
  treadle_tree_unset(family, "changes");
  if (blocks) TRY(add_blocks(a, tree, blocks));
  TRY(treadle_tree_merge(a, tree, family, true));
  TRY(treadle_engines_derive(a, tree));
  if (changes) TRY(treadle_changes_apply(a, tree, changes, NULL));
  remove_places(tree);
  if (blocks) remove_empty(tree);
  remove_engines(tree);
  remove_traits(tree);
  TRY(treadle_layer_dims_apply(a, tree));
  TRY(treadle_conditions_apply(a, tree, treadle_yaml_get(root, "conditions")));
  TRY(treadle_renamed_apply(a, tree));
  *whole_p = tree;
out:
  return status;
}
