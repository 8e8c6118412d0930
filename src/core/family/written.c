/* A family that is put together, as one file: of the same language, without extends, blocks, changes and conditions. */
#include "family/assemble.h"

/* Keys in the order of docs/families.md. */
static const char *const order[] = {
    "family",    "model_types",  "config",   "dims",  "layers",     "experts",         "mtp",
    "prefixes",  "mtp_prefixes", "tensors",  "views", "packed",     "stored_prefixes", "carried",
    "quantised", "field_names",  "defaults", "coded", "plain_only", "outer",           "traits",
    "requires",  "engines",      "to_say",   NULL};

static treadle_status put_in_order(treadle_assembly *a, const treadle_yaml *whole, treadle_yaml **tree_p) {
  treadle_yaml *tree;
  treadle_status status;
  TRY(treadle_tree_new(a, TREADLE_YAML_MAP, whole, &tree));
  for (int i = 0; order[i]; i++) {
    treadle_yaml *value = treadle_tree_get(whole, order[i]);
    if (value) TRY(treadle_tree_set(a, tree, order[i], value));
  }
  for (size_t i = 0; i < whole->count; i++) TRY(treadle_tree_set(a, tree, whole->keys[i], whole->items[i]));
  *tree_p = tree;
out:
  return status;
}

treadle_status treadle_family_write(const char *path, const char *text, size_t length, const char *folder,
                                    treadle_builder *to) {
  treadle_arena arena = {0};
  treadle_family_reader reader = {.path = path, .arena = &arena};
  treadle_assembly assembly = {.reader = &reader, .folder = folder};
  const treadle_yaml *root;
  treadle_yaml *tree;
  treadle_status status;
  TRY(treadle_yaml_parse(path, text, length, &arena, &root));
  TRY(treadle_family_assemble(&assembly, root, &root));
  TRY(put_in_order(&assembly, root, &tree));
  treadle_yaml_write(to, tree);
  if (to->failed) status = treadle_family_no_memory();
out:
  treadle_arena_release(&arena);
  return status;
}
