/* renamed: {NAME: OTHER}. Tensors of the family that is extended, or of blocks, by other names.
 *
 * It is what is done last: blocks and changes, those of the file too, know tensors by the names that the blocks gave them. Here
 * the lines of `tensors` get the new ones, and so does all that speaks of them: same_as, and the parts of views, packed forms and
 * rules. Names of storage tensors stay: an engine has its own. */
#include "family/assemble.h"

#include <string.h>

/* Each text of a node, one or a list, that is a key of `renamed`, or one with a word of layer_dims behind it (NAME@WORD). */
static treadle_status rename_texts(treadle_assembly *a, treadle_yaml *node, const treadle_yaml *renamed,
                                   bool *used) {
  treadle_status status = TREADLE_OK;
  if (!node) return TREADLE_OK;
  if (node->type != TREADLE_YAML_SCALAR) {
    for (size_t i = 0; i < node->count; i++) TRY(rename_texts(a, node->items[i], renamed, used));
    return TREADLE_OK;
  }
  for (size_t i = 0; i < renamed->count; i++) {
    size_t length = strlen(renamed->keys[i]);
    if (strncmp(renamed->keys[i], node->text, length) != 0) continue;
    if (node->text[length] != 0 && node->text[length] != '@') continue;
    node->text =
        treadle_arena_format(a->reader->arena, "%s%s", renamed->items[i]->text, node->text + length);
    if (!node->text) return treadle_family_no_memory();
    if (used) used[i] = true;
    break;
  }
out:
  return status;
}

static treadle_status rename_lines(treadle_assembly *a, treadle_yaml *list, const treadle_yaml *renamed,
                                   const char *const *keys) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; list && i < list->count; i++)
    for (int k = 0; keys[k]; k++)
      TRY(rename_texts(a, treadle_tree_get(list->items[i], keys[k]), renamed, NULL));
out:
  return status;
}

treadle_status treadle_renamed_apply(treadle_assembly *a, treadle_yaml *tree) {
  static const char *const same[] = {"same_as", NULL}, *const parts[] = {"of", "also", NULL};
  const treadle_yaml *renamed = treadle_yaml_get(tree, "renamed");
  treadle_status status = TREADLE_OK;
  if (!renamed) return TREADLE_OK;
  bool good = renamed->type == TREADLE_YAML_MAP;
  for (size_t i = 0; good && i < renamed->count; i++)
    good = renamed->items[i]->type == TREADLE_YAML_SCALAR && *renamed->items[i]->text;
  if (!good)
    return treadle_family_fail(a->reader, renamed, "%s must be a map of names of tensors, old and new",
                               "renamed");
  bool *used = treadle_arena_alloc_array(a->reader->arena, renamed->count + 1, sizeof *used);
  if (!used) return treadle_family_no_memory();
  treadle_yaml *tensors = treadle_tree_section(tree, "tensors");
  for (size_t i = 0; tensors && i < tensors->count; i++)
    TRY(rename_texts(a, treadle_tree_get(tensors->items[i], "name"), renamed, used));
  for (size_t i = 0; i < renamed->count; i++)
    if (!used[i])
      return treadle_family_fail(a->reader, renamed->items[i], "renamed: no tensor is named %.160s",
                                 renamed->keys[i]);
  TRY(rename_lines(a, tensors, renamed, same));
  for (int i = 0; treadle_section_names[i]; i++)
    if (strcmp(treadle_section_names[i], "tensors") != 0)
      TRY(rename_lines(a, treadle_tree_section(tree, treadle_section_names[i]), renamed, parts));
  TRY(rename_texts(a, treadle_tree_get(tree, "forward"), renamed, NULL));
  treadle_tree_unset(tree, "renamed");
out:
  return status;
}
