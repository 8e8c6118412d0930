/* Changes of single lines of what blocks and other families say:
 *
 *   {in: vllm, name: lm_head.weight, set: {over: head_tp}, unset: [when]}
 *   {in: [vllm, sglang], name: L.mlp.gate.weight, drop: true}
 *   {in: tensors, name: X, after: [LINE, ...]}        or before:, or instead:
 *   {in: sglang, name: X, ahead_of: Y}                moves the line
 *
 * A line is found by a name as it is written, and must be there; of a line with several names, one will do. `at` and `spec`
 * choose among lines of one name. */
#include "family/assemble.h"

#include <string.h>

static const char *const change_keys[] = {"in",   "name",  "at",     "spec",    "set",      "unset",
                                          "drop", "after", "before", "instead", "ahead_of", NULL};

static bool has_name(const treadle_yaml *line, const char *name) {
  const treadle_yaml *names = treadle_yaml_get(line, "name");
  if (!names) return false;
  if (names->type == TREADLE_YAML_SCALAR) return strcmp(names->text, name) == 0;
  for (size_t i = 0; i < names->count; i++)
    if (names->items[i]->type == TREADLE_YAML_SCALAR && strcmp(names->items[i]->text, name) == 0)
      return true;
  return false;
}

/* Is the key of a line what the change asks for, if it asks? */
static bool agrees(const treadle_yaml *line, const treadle_yaml *change, const char *key) {
  const char *wanted = treadle_yaml_text(change, key, NULL);
  return !wanted || strcmp(treadle_yaml_text(line, key, ""), wanted) == 0;
}

static treadle_status copy_list(treadle_assembly *a, const treadle_yaml *change, const char *key,
                                treadle_yaml **list_p) {
  const treadle_yaml *list = treadle_yaml_get(change, key);
  *list_p = NULL;
  if (!list) return TREADLE_OK;
  if (list->type != TREADLE_YAML_LIST || !list->count)
    return treadle_family_fail(a->reader, list, "%s must be a list of lines", key);
  return treadle_tree_copy(a, list, list_p);
}

/* Changes the line at *at_p, which then is that of the last line it has become. */
static treadle_status change_line(treadle_assembly *a, const treadle_yaml *change, treadle_yaml *list,
                                  size_t *at_p) {
  treadle_yaml *line = list->items[*at_p], *before, *after, *instead;
  const treadle_yaml *set = treadle_yaml_get(change, "set");
  const char **unset = NULL;
  int32_t unset_count;
  bool drop;
  treadle_status status;
  TRY(treadle_family_flag(a->reader, change, "drop", &drop));
  TRY(treadle_family_texts_of(a->reader, change, "unset", &unset_count, &unset));
  TRY(copy_list(a, change, "before", &before));
  TRY(copy_list(a, change, "after", &after));
  TRY(copy_list(a, change, "instead", &instead));
  if (!drop && !unset && !before && !after && !instead && !set)
    return treadle_family_fail(a->reader, change, "the change of %s says nothing to change",
                               treadle_yaml_text(change, "name", "a line"));
  if (set && set->type != TREADLE_YAML_MAP)
    return treadle_family_fail(a->reader, set, "%s must be a map", "set");
  for (size_t i = 0; set && i < set->count; i++) {
    treadle_yaml *value;
    TRY(treadle_tree_copy(a, set->items[i], &value));
    TRY(treadle_tree_set(a, line, set->keys[i], value));
  }
  for (int32_t i = 0; i < unset_count; i++) {
    if (!treadle_yaml_get(line, unset[i]))
      return treadle_family_fail(a->reader, change, "unset: the line has no %s", unset[i]);
    treadle_tree_unset(line, unset[i]);
  }
  size_t at = *at_p;
  if (before) TRY(treadle_tree_splice(a, list, at, 0, before));
  if (before) at += before->count;
  if (after) TRY(treadle_tree_splice(a, list, at + 1, 0, after));
  if (drop || instead) TRY(treadle_tree_splice(a, list, at, 1, instead));
  at += (after ? after->count : 0) + (instead ? instead->count : 0);
  *at_p = at - (drop || instead); /* may wrap below the first: the caller adds one */
out:
  return status;
}

/* Moves the line at *at_p to right before another one. */
static treadle_status move_line(treadle_assembly *a, const treadle_yaml *change, const char *ahead_of,
                                treadle_yaml *list, size_t *at_p) {
  treadle_yaml *line = list->items[*at_p], *one;
  size_t to = 0;
  treadle_status status;
  while (to < list->count && !has_name(list->items[to], ahead_of)) to++;
  if (to == list->count || to == *at_p)
    return treadle_family_fail(a->reader, change, "ahead_of: there is no other line %.160s", ahead_of);
  if (to == *at_p + 1) return TREADLE_OK; /* where a line that was moved is met again */
  TRY(treadle_tree_new(a, TREADLE_YAML_LIST, change, &one));
  one->items = &line;
  one->count = 1;
  TRY(treadle_tree_splice(a, list, *at_p, 1, NULL));
  TRY(treadle_tree_splice(a, list, to - (to > *at_p), 0, one));
  *at_p -= to > *at_p; /* may wrap below the first: the caller adds one */
out:
  return status;
}

static treadle_status apply_to(treadle_assembly *a, const treadle_yaml *change, const char *name,
                               treadle_yaml *list, bool *found_p) {
  const char *ahead_of;
  treadle_status status;
  TRY(treadle_family_text_of(a->reader, change, "ahead_of", false, &ahead_of));
  for (size_t i = 0; i < list->count; i++) {
    const treadle_yaml *line = list->items[i];
    if (!has_name(line, name) || !agrees(line, change, "at") || !agrees(line, change, "spec")) continue;
    *found_p = true;
    if (ahead_of)
      TRY(move_line(a, change, ahead_of, list, &i));
    else
      TRY(change_line(a, change, list, &i));
  }
out:
  return status;
}

static treadle_status apply(treadle_assembly *a, treadle_yaml *tree, const treadle_yaml *change,
                            treadle_yaml *only) {
  const treadle_yaml *in = treadle_yaml_get(change, "in"), *names = treadle_yaml_get(change, "name");
  treadle_status status;
  TRY(treadle_family_check_keys(a->reader, change, change_keys));
  if (!names) return treadle_family_fail(a->reader, change, "%s is missing", "name");
  if (!in != (only != NULL))
    return treadle_family_fail(a->reader, change, "%s",
                               in ? "in: the section is known here"
                                  : "in is missing: tensors, an engine, ...");
  bool several = names->type == TREADLE_YAML_LIST, sections = in && in->type == TREADLE_YAML_LIST;
  if (several) TRY(treadle_family_check_list(a->reader, change, names, "name"));
  if (sections) TRY(treadle_family_check_list(a->reader, change, in, "in"));
  for (size_t s = 0; s < (sections ? in->count : 1); s++) {
    const char *section = sections ? in->items[s]->text : in ? treadle_yaml_text(change, "in", "") : "";
    treadle_yaml *list = only ? only : treadle_tree_section(tree, section);
    if (!list) return treadle_family_fail(a->reader, in, "in: there is no section '%.64s'", section);
    for (size_t n = 0; n < (several ? names->count : 1); n++) {
      const char *name = several ? names->items[n]->text : treadle_yaml_text(change, "name", "");
      bool found = false;
      TRY(apply_to(a, change, name, list, &found));
      if (!found)
        return treadle_family_fail(a->reader, change, "nothing to change: %s has no line %.160s",
                                   *section ? section : "the engine", name);
    }
  }
out:
  return status;
}

treadle_status treadle_changes_apply(treadle_assembly *a, treadle_yaml *tree, const treadle_yaml *changes,
                                     treadle_yaml *only) {
  treadle_status status = TREADLE_OK;
  if (changes->type != TREADLE_YAML_LIST)
    return treadle_family_fail(a->reader, changes, "%s must be a list", "changes");
  for (size_t i = 0; i < changes->count; i++) TRY(apply(a, tree, changes->items[i], only));
out:
  return status;
}
