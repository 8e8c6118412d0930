/* YAML: a tree that comes back is whole, so every node can be visited. */
#include "io/yaml.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static size_t visit(const treadle_yaml *node, int depth) {
  size_t seen = node->type == TREADLE_YAML_SCALAR ? strlen(node->text) : 0;
  if (depth > 64 || node->line < 1) __builtin_trap();
  for (size_t i = 0; i < node->count; i++) {
    if (node->type == TREADLE_YAML_MAP && treadle_yaml_get(node, node->keys[i]) != node->items[i])
      __builtin_trap(); /* a key stands once */
    seen += visit(node->items[i], depth + 1);
  }
  return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  treadle_arena arena = {0};
  const treadle_yaml *root = NULL;
  if (treadle_yaml_parse("input", (const char *)bytes, count, &arena, &root) == TREADLE_OK)
    visit(root, 1);
  else if (!*treadle_error_message())
    __builtin_trap(); /* a refusal has a reason */
  treadle_arena_release(&arena);
  return 0;
}
