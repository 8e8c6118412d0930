/* Names in values: ${a.b} is the value of that path of the file, ${oc.select:a.b,x} the same, or x where there is none. An override of the
 * path goes first. What OmegaConf has beyond that (paths of the environment, relative paths) is refused. */
#include "train/config.h"

#include "base/utf8.h"

#include <string.h>

enum { DEEPEST = 16, MOST_STEPS = 256, MOST_BYTES = 1 << 16 };

/* One value that is worked out. */
typedef struct name_walk {
  const treadle_train_names *names;
  const char *where;
  int steps; /* names that were looked up */
} name_walk;

static treadle_status no_memory(const name_walk *walk) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its value", walk->where);
}

/* The node of a path; keys may have points themselves. */
static const treadle_yaml *find_node(const treadle_yaml *node, const char *path) {
  if (!*path) return node;
  for (size_t i = 0; node->type == TREADLE_YAML_MAP && i < node->count; i++) {
    size_t length = strlen(node->keys[i]);
    if (!length || strncmp(path, node->keys[i], length) != 0) continue;
    if (path[length] && path[length] != '.') continue;
    const treadle_yaml *found = find_node(node->items[i], path + length + (path[length] == '.'));
    if (found) return found;
  }
  return NULL;
}

/* The text that a path has; NULL: it has none. */
static treadle_status look_up(const name_walk *walk, const char *path, const char **text_p) {
  const treadle_train_names *names = walk->names;
  size_t length = strlen(path);
  *text_p = NULL;
  for (size_t i = 0; i < names->count; i++)
    if (strncmp(names->overrides[i], path, length) == 0 && names->overrides[i][length] == '=') {
      *text_p = names->overrides[i] + length + 1;
      return TREADLE_OK;
    }
  const treadle_yaml *node = *path ? find_node(names->root, path) : NULL;
  if (!node &&
      treadle_text_starts(path, "actor.")) /* RLinf's documents show parts of actor by themselves */
    node = find_node(names->root, path + strlen("actor."));
  if (node && node->type != TREADLE_YAML_SCALAR)
    REFUSE("%s: ${%s} is no single value", walk->where, treadle_text_shown(path));
  *text_p = node ? node->text : NULL;
  return TREADLE_OK;
}

static treadle_status expand(name_walk *walk, const char *text, int depth, const char **text_p);

/* What stands between ${ and }; *text_p is what takes its place. */
static treadle_status expand_name(name_walk *walk, char *name, int depth, const char **text_p) {
  static const char select[] = "oc.select:";
  const char *otherwise = NULL, *shown = treadle_text_shown(name);
  bool selects = treadle_text_starts(name, select);
  treadle_status status;
  if (selects) {
    name += sizeof select - 1;
    char *comma = strchr(name, ',');
    if (comma) {
      otherwise = comma + 1 + strspn(comma + 1, " ");
      *comma = 0;
    }
  } else if (strpbrk(name, ":${") || *name == '.') {
    REFUSE("%s: ${%s} is not looked up; ${a.b} and ${oc.select:a.b,x} are", walk->where, shown);
  }
  if (depth == DEEPEST || ++walk->steps > MOST_STEPS)
    REFUSE("%s: ${%s}: names that lead to names, and do not end", walk->where, shown);
  TRY(look_up(walk, name, text_p));
  if (!*text_p && !selects)
    status = treadle_fail(TREADLE_REFUSED, "%s: ${%s}: there is no such value", walk->where, shown);
  else if (!*text_p || (otherwise && treadle_train_is_null(*text_p)))
    *text_p = otherwise ? otherwise : "null";
  if (!status) status = expand(walk, *text_p, depth + 1, text_p);
out:
  return status;
}

/* All names of a text; one that is the whole text gives its value as it is. */
static treadle_status expand(name_walk *walk, const char *text, int depth, const char **text_p) {
  treadle_arena *arena = walk->names->arena;
  treadle_builder whole = {0};
  treadle_status status = TREADLE_OK;
  const char *rest = text, *value = text, *begin;
  while ((begin = strstr(rest, "${"))) {
    size_t length = strcspn(begin, "}");
    char *name = treadle_arena_format(arena, "%.*s", (int)(length - 2), begin + 2);
    if (!name) TRY(no_memory(walk));
    if (!begin[length]) {
      status = treadle_fail(TREADLE_REFUSED, "%s: '%s': a ${ is not closed", walk->where,
                            treadle_text_shown(text));
      goto out;
    }
    TRY(expand_name(walk, name, depth, &value));
    if (begin == text && !begin[length + 1]) break;
    if (treadle_train_is_null(value)) {
      status = treadle_fail(TREADLE_REFUSED, "%s: '%s': a part of it is null", walk->where,
                            treadle_text_shown(text));
      goto out;
    }
    treadle_builder_add_bytes(&whole, rest, (size_t)(begin - rest));
    treadle_builder_add_bytes(&whole, value, strlen(value));
    rest = begin + length + 1;
    if (whole.length > MOST_BYTES) {
      status =
          treadle_fail(TREADLE_REFUSED, "%s: its value is longer than %d bytes", walk->where, MOST_BYTES);
      goto out;
    }
  }
  if (rest != text) {
    treadle_builder_add_bytes(&whole, rest, strlen(rest));
    value = whole.failed ? NULL : treadle_arena_copy_text(arena, whole.text);
    if (!value) TRY(no_memory(walk));
  }
  *text_p = value;
out:
  treadle_builder_release(&whole);
  return status;
}

treadle_status treadle_train_expand(const treadle_train_names *names, const char *where, const char *text,
                                    const char **text_p) {
  name_walk walk = {names, where, 0};
  return expand(&walk, text, 0, text_p);
}
