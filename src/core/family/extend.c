/* A family that extends another: what it says itself stands over what that one says.
 *
 * Maps of names (dims, conditions, prefixes, ...) are merged name by name, traits engine by engine; `blocks` block by
 * block, so that a family can change the options of one, or put another in its place; changes, and what is to be said, are
 * appended; everything else is replaced as a whole. That the engine computes a family (forward: {model: ...}) is never taken
 * over: each file says so itself. A family is asked for by the name of its file. */
#include "family/assemble.h"

#include <string.h>

static bool is_one_of(const char *const *words, const char *word) {
  while (*words && strcmp(*words, word) != 0) words++;
  return *words != NULL;
}

/* Name by name, in the order of the parent; what is new stands behind. */
static treadle_status merge_names(treadle_assembly *a, treadle_yaml *parent, const treadle_yaml *child) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < child->count; i++)
    TRY(treadle_tree_set(a, parent, child->keys[i], child->items[i]));
out:
  return status;
}

/* {engine: map or list}. */
static treadle_status merge_engines(treadle_assembly *a, treadle_yaml *parent, const treadle_yaml *child,
                                    bool append) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < child->count; i++) {
    treadle_yaml *before = treadle_tree_get(parent, child->keys[i]), *value = child->items[i];
    bool same = before && before->type == value->type;
    if (same && value->type == TREADLE_YAML_MAP)
      TRY(merge_names(a, before, value));
    else if (same && value->type == TREADLE_YAML_LIST && append)
      TRY(treadle_tree_splice(a, before, before->count, 0, value));
    else
      TRY(treadle_tree_set(a, parent, child->keys[i], value));
  }
out:
  return status;
}

/* The name of an item of `blocks`, which is a text or {block: NAME, ...}; NULL: a block of the family's own. */
static const char *name_of(const treadle_yaml *item) {
  return item->type == TREADLE_YAML_SCALAR ? item->text : treadle_yaml_text(item, "block", NULL);
}

static size_t find_block(const treadle_yaml *blocks, const char *name) {
  size_t i = 0;
  while (i < blocks->count && (!name_of(blocks->items[i]) || strcmp(name_of(blocks->items[i]), name) != 0))
    i++;
  return i;
}

/* Takes over one item of a child's blocks: new options for a block that is there, another in its place, or one more. */
static treadle_status merge_block(treadle_assembly *a, treadle_yaml *parent, treadle_yaml *item) {
  const char *name = name_of(item), *instead = treadle_yaml_text(item, "instead", NULL);
  size_t at = instead || name ? find_block(parent, instead ? instead : name) : parent->count;
  treadle_yaml *one;
  treadle_status status;
  if (instead && at == parent->count)
    return treadle_family_fail(a->reader, item,
                               "instead: %s, which is not a block of the family that is extended", instead);
  TRY(treadle_tree_new(a, TREADLE_YAML_LIST, item, &one));
  if (!instead && at < parent->count && parent->items[at]->type == TREADLE_YAML_MAP &&
      item->type == TREADLE_YAML_MAP)
    return merge_names(a, parent->items[at], item);
  if (instead) treadle_tree_unset(item, "instead");
  one->items = &item;
  one->count = 1;
  TRY(treadle_tree_splice(a, parent, at, at < parent->count, one));
out:
  return status;
}

static treadle_status merge_blocks(treadle_assembly *a, treadle_yaml *parent, const treadle_yaml *child) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < child->count; i++) TRY(merge_block(a, parent, child->items[i]));
out:
  return status;
}

treadle_status treadle_tree_merge(treadle_assembly *a, treadle_yaml *parent, const treadle_yaml *child,
                                  bool append) {
  static const char *const names[] = {"dims",    "conditions",      "prefixes",    "mtp_prefixes",
                                      "outer",   "stored_prefixes", "layer_dims",  "renamed",
                                      "forward", "defaults",        "field_names", NULL};
  static const char *const engines[] = {"traits", "requires", "engines", NULL};
  static const char *const lists[] = {"tensors", "views", "packed", "quantised", NULL};
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < child->count; i++) {
    const char *key = child->keys[i];
    treadle_yaml *before = treadle_tree_get(parent, key), *value = child->items[i];
    bool maps = before && before->type == TREADLE_YAML_MAP && value->type == TREADLE_YAML_MAP;
    bool both = before && before->type == TREADLE_YAML_LIST && value->type == TREADLE_YAML_LIST;
    if (maps && is_one_of(names, key))
      TRY(merge_names(a, before, value));
    else if (maps && is_one_of(engines, key))
      TRY(merge_engines(a, before, value, append));
    else if (both && ((append && is_one_of(lists, key)) || strcmp(key, "changes") == 0 ||
                      strcmp(key, "to_say") == 0))
      TRY(treadle_tree_splice(a, before, before->count, 0, value));
    else if (both && strcmp(key, "blocks") == 0)
      TRY(merge_blocks(a, before, value));
    else
      TRY(treadle_tree_set(a, parent, key, value));
  }
out:
  return status;
}

treadle_status treadle_family_extend(treadle_assembly *a, const treadle_yaml *root, treadle_yaml **tree_p) {
  treadle_yaml *chain[TREADLE_MAX_EXTENDS]; /* the file, what it extends, and so on */
  const char *names[TREADLE_MAX_EXTENDS], *name;
  int count = 0;
  treadle_status status;
  if (root->type != TREADLE_YAML_MAP)
    return treadle_family_fail(a->reader, root, "a map of %s, ... is wanted here", "family");
  for (;; count++) {
    TRY(treadle_tree_copy(a, root, &chain[count]));
    TRY(treadle_family_text_of(a->reader, root, "extends", false, &name));
    if (!name) break;
    const treadle_yaml *at = treadle_yaml_get(root, "extends");
    for (int i = 0; i < count; i++)
      if (strcmp(names[i], name) == 0)
        return treadle_family_fail(a->reader, at, "extends: %s goes in a circle", name);
    if (count + 1 == TREADLE_MAX_EXTENDS)
      return treadle_family_fail(a->reader, at, "extends: more than %d files in a row",
                                 TREADLE_MAX_EXTENDS);
    names[count] = name;
    TRY(treadle_family_load(a, at, name, false, &root));
    if (root->type != TREADLE_YAML_MAP)
      return treadle_family_fail(a->reader, root, "a map of %s, ... is wanted here", "family");
  }
  treadle_yaml *tree = chain[count];
  for (int i = count - 1; i >= 0; i--) {
    treadle_yaml *inherited = treadle_tree_get(chain[i], "model_types");
    if (!inherited) return treadle_family_fail(a->reader, chain[i], "%s is missing", "model_types");
    treadle_yaml *forward = treadle_tree_get(tree, "forward");
    if (forward && forward->type == TREADLE_YAML_MAP) treadle_tree_unset(forward, "model");
    TRY(treadle_tree_merge(a, tree, chain[i], false));
  }
  tree->line = chain[0]->line;
  tree->file = chain[0]->file;
  treadle_tree_unset(tree, "extends");
  *tree_p = tree;
out:
  return status;
}
