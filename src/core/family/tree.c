/* Trees of family files that are edited, and the files that they come from. Nothing is freed: all is in the arena of the
 * family. */
#include "family/assemble.h"

#include "io/file_look.h"

#include <string.h>

const char *const treadle_section_names[] = {"tensors", "views",  "packed", "megatron",
                                             "vllm",    "sglang", NULL};

treadle_status treadle_tree_new(treadle_assembly *a, treadle_yaml_type type, const treadle_yaml *at,
                                treadle_yaml **node_p) {
  treadle_yaml *node = *node_p = treadle_arena_alloc(a->reader->arena, sizeof *node);
  if (!node) return treadle_family_no_memory();
  node->type = type;
  node->line = at->line;
  node->file = at->file;
  return TREADLE_OK;
}

treadle_status treadle_tree_copy(treadle_assembly *a, const treadle_yaml *node, treadle_yaml **copy_p) {
  treadle_yaml *copy;
  treadle_status status;
  TRY(treadle_tree_new(a, node->type, node, &copy));
  *copy_p = copy;
  copy->text = node->text;
  copy->count = node->count;
  if (node->type == TREADLE_YAML_SCALAR) return TREADLE_OK;
  copy->items = treadle_arena_alloc_array(a->reader->arena, node->count + 1, sizeof *copy->items);
  copy->keys = treadle_arena_alloc_array(a->reader->arena, node->count + 1, sizeof *copy->keys);
  if (!copy->items || !copy->keys) return treadle_family_no_memory();
  for (size_t i = 0; i < node->count; i++) {
    if (node->type == TREADLE_YAML_MAP) copy->keys[i] = node->keys[i];
    TRY(treadle_tree_copy(a, node->items[i], &copy->items[i]));
  }
out:
  return status;
}

/* The place of a key in a map; its count where it has none such. */
static size_t place_of(const treadle_yaml *map, const char *key) {
  size_t at = 0;
  while (at < map->count && strcmp(map->keys[at], key) != 0) at++;
  return at;
}

treadle_yaml *treadle_tree_get(const treadle_yaml *map, const char *key) {
  if (!map || map->type != TREADLE_YAML_MAP) return NULL;
  size_t at = place_of(map, key);
  return at < map->count ? map->items[at] : NULL;
}

treadle_status treadle_tree_set(treadle_assembly *a, treadle_yaml *map, const char *key,
                                treadle_yaml *value) {
  size_t at = place_of(map, key), count = map->count;
  if (at == count) {
    treadle_yaml **items = treadle_arena_alloc_array(a->reader->arena, count + 1, sizeof *items);
    const char **keys = treadle_arena_alloc_array(a->reader->arena, count + 1, sizeof *keys);
    if (!items || !keys) return treadle_family_no_memory();
    for (size_t i = 0; i < count; i++) items[i] = map->items[i], keys[i] = map->keys[i];
    keys[at] = key;
    map->items = items;
    map->keys = keys;
    map->count++;
  }
  map->items[at] = value;
  return TREADLE_OK;
}

void treadle_tree_unset(treadle_yaml *map, const char *key) {
  size_t kept = 0;
  for (size_t i = 0; i < map->count; i++) {
    if (strcmp(map->keys[i], key) == 0) continue;
    map->keys[kept] = map->keys[i];
    map->items[kept++] = map->items[i];
  }
  map->count = kept;
}

treadle_status treadle_tree_splice(treadle_assembly *a, treadle_yaml *list, size_t at, size_t removed,
                                   const treadle_yaml *from) {
  size_t added = from ? from->count : 0, count = list->count - removed + added;
  if (count > TREADLE_MAX_RULE_NODES)
    return treadle_family_fail(a->reader, list, "the list becomes longer than %d lines",
                               TREADLE_MAX_RULE_NODES);
  treadle_yaml **items = treadle_arena_alloc_array(a->reader->arena, count + 1, sizeof *items);
  if (!items) return treadle_family_no_memory();
  for (size_t i = 0; i < at; i++) items[i] = list->items[i];
  for (size_t i = 0; i < added; i++) items[at + i] = from->items[i];
  for (size_t i = at + removed; i < list->count; i++) items[i + added - removed] = list->items[i];
  list->items = items;
  list->count = count;
  return TREADLE_OK;
}

treadle_yaml *treadle_tree_section(const treadle_yaml *tree, const char *name) {
  bool engine = strcmp(name, "tensors") != 0 && strcmp(name, "views") != 0 && strcmp(name, "packed") != 0;
  treadle_yaml *list = treadle_tree_get(engine ? treadle_tree_get(tree, "engines") : tree, name);
  return list && list->type == TREADLE_YAML_LIST ? list : NULL;
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

size_t treadle_word_length(const char *text) {
  size_t length = 0;
  while (is_letter(text[length]) || (length && text[length] >= '0' && text[length] <= '9')) length++;
  return length;
}

/* ---- Files ------------------------------------------------------------------------------------- */

static bool is_plain(const char *name) {
  size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
  return length > 0 && length < 64 && !name[length];
}

static treadle_status refuse_name(treadle_assembly *a, const treadle_yaml *at, const char *name,
                                  bool block) {
  treadle_nearest nearest = treadle_nearest_to(name);
  for (const treadle_family_text *text = block ? treadle_block_texts : treadle_family_texts; text->name;
       text++) {
    const char *candidate = treadle_arena_format(a->reader->arena, "%.*s", (int)strlen(text->name) - 5,
                                                 text->name); /* without .yaml */
    if (candidate) treadle_nearest_try(&nearest, candidate);
  }
  return treadle_family_fail(a->reader, at, "there is no %s '%.64s'; the nearest is '%s'",
                             block ? "block" : "family file", name, nearest.best);
}

treadle_status treadle_family_load(treadle_assembly *a, const treadle_yaml *at, const char *name,
                                   bool block, const treadle_yaml **root_p) {
  const char *middle = block ? "blocks/" : "";
  treadle_arena *arena = a->reader->arena;
  treadle_status status;
  if (!is_plain(name)) return refuse_name(a, at, name, block);
  if (a->folder) {
    treadle_file_type type;
    const char *path = treadle_arena_format(arena, "%s/%s%s.yaml", a->folder, middle, name);
    if (!path) return treadle_family_no_memory();
    TRY(treadle_file_look(path, &type));
    if (type != TREADLE_FILE_NONE) return treadle_yaml_load(path, arena, root_p);
  }
  const char *wanted = treadle_arena_format(arena, "%s.yaml", name);
  const char *path = treadle_arena_format(arena, "families/%s%s.yaml", middle, name);
  if (!wanted || !path) return treadle_family_no_memory();
  for (const treadle_family_text *text = block ? treadle_block_texts : treadle_family_texts; text->name;
       text++)
    if (strcmp(text->name, wanted) == 0)
      return treadle_yaml_parse(path, text->text, strlen(text->text), arena, root_p);
  return refuse_name(a, at, name, block);
out:
  return status;
}
