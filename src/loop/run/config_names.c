/* Names in values: ${a.b} is the value of that path of the file, ${oc.select:a.b,x} the same, or x where there is none; ${.b} stands beside the
 * value that has the name, ${..b} one section above it; a name may have names inside: ${a.${b}}. An override of the path goes first; and RLinf's
 * sums of them. What OmegaConf has beyond that is refused, the environment by the name of its variable. */
#include "run/config.h"

#include "base/text.h"
#include "base/utf8.h"

#include <stdio.h>
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

/* The text that a path has; NULL: it has none. *at_p is where it stands. */
static treadle_status look_up(const name_walk *walk, const char *path, const char **at_p,
                              const char **text_p) {
  const treadle_train_names *names = walk->names;
  size_t length = strlen(path);
  *text_p = NULL;
  *at_p = path;
  for (size_t i = 0; i < names->count; i++)
    if (strncmp(names->overrides[i], path, length) == 0 && names->overrides[i][length] == '=') {
      *text_p = names->overrides[i] + length + 1;
      return TREADLE_OK;
    }
  const treadle_yaml *node = *path ? find_node(names->root, path) : NULL;
  if (!node &&
      treadle_text_starts(path, "actor.")) { /* RLinf's documents show parts of actor by themselves */
    *at_p = path + strlen("actor.");
    node = find_node(names->root, *at_p);
  }
  if (node && node->type != TREADLE_YAML_SCALAR)
    REFUSE("%s: ${%s} is not a single value", walk->where, treadle_text_shown(path));
  *text_p = node ? node->text : NULL;
  return TREADLE_OK;
}

/* `at`: the path of the value that has the text; NULL: it has none, and no relative names. */
static treadle_status expand(name_walk *walk, const char *at, const char *text, int depth,
                             const char **text_p);

/* How much of a path is left without its last `count` names. */
static size_t without(const char *path, size_t count) {
  size_t length = strlen(path);
  for (; count && length; count--) {
    while (length && path[length - 1] != '.') length--;
    if (length) length--;
  }
  return length;
}

/* In the value of one.two.three, ".x" is one.two.x and "..x" is one.x. */
static treadle_status settle_relative(const name_walk *walk, const char *at, const char **name_p) {
  const char *name = *name_p, *shown = treadle_text_shown(name);
  const size_t dots = strspn(name, ".");
  size_t length = at ? without(at, dots) : 0, names = 1;
  if (!dots) return TREADLE_OK;
  for (const char *dot = at; dot && (dot = strchr(dot, '.')); dot++) names++;
  if (!at || dots > names || !name[dots]) REFUSE("%s: ${%s} leads out of the file", walk->where, shown);
  *name_p =
      treadle_arena_format(walk->names->arena, "%.*s%s%s", (int)length, at, length ? "." : "", name + dots);
  return *name_p ? TREADLE_OK : no_memory(walk);
}

/* From ${ on: up to the } that ends it, which may have others inside; the end of the text where there is none. */
static size_t inside_of(const char *begin) {
  int open = 0;
  size_t at = 0;
  for (; begin[at]; at++) {
    open += begin[at] == '$' && begin[at + 1] == '{';
    if (begin[at] == '}' && --open == 0) break;
  }
  return at;
}

/* The comma between two arguments; NULL: there is none. */
static char *comma_of(char *arguments) {
  for (char *at = arguments; *at; at++) {
    if (*at == ',') return at;
    if (at[0] == '$' && at[1] == '{') at += inside_of(at);
    if (!*at) break;
  }
  return NULL;
}

/* RLinf's: subtract, multiply and int_div of two whole numbers, and `not`. */
static treadle_status compute(name_walk *walk, const char *at, const char *name, char *arguments, int depth,
                              const char **text_p) {
  const bool is_not = strcmp(name, "not") == 0;
  const char *texts[2] = {0};
  char *second = is_not ? NULL : comma_of(arguments);
  int64_t a = 0, b = 0, result = 0;
  bool truth, fails = false;
  treadle_status status;
  if (second) *second++ = 0;
  TRY(expand(walk, at, arguments + strspn(arguments, " "), depth + 1, &texts[0]));
  if (is_not) {
    if (!treadle_yaml_truth(texts[0], &truth))
      REFUSE("%s: not of '%s', which is neither true nor false", walk->where, treadle_text_shown(texts[0]));
    *text_p = truth ? "false" : "true";
    return TREADLE_OK;
  }
  if (!second) REFUSE("%s: %s needs two numbers", walk->where, name);
  TRY(expand(walk, at, second + strspn(second, " "), depth + 1, &texts[1]));
  if (!treadle_text_to_int64(texts[0], &a) || !treadle_text_to_int64(texts[1], &b))
    REFUSE("%s: %s of '%s' and '%s', which are no whole numbers", walk->where, name,
           treadle_text_shown(texts[0]), treadle_text_shown(texts[1]));
  if (strcmp(name, "subtract") == 0)
    fails = __builtin_sub_overflow(a, b, &result);
  else if (strcmp(name, "multiply") == 0)
    fails = __builtin_mul_overflow(a, b, &result);
  else if (!(fails = b <= 0 || a < 0))
    result = a / b;
  if (fails)
    REFUSE("%s: %s of %lld and %lld cannot be computed", walk->where, name, (long long)a, (long long)b);
  *text_p = treadle_arena_format(walk->names->arena, "%lld", (long long)result);
  if (!*text_p) status = no_memory(walk);
out:
  return status;
}

/* The arguments of one of those; NULL: it is none. */
static char *arguments_of(char *name) {
  static const char *const known[] = {"subtract:", "multiply:", "int_div:", "not:"};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (treadle_text_starts(name, known[i])) {
      name[strlen(known[i]) - 1] = 0;
      return name + strlen(known[i]);
    }
  return NULL;
}

/* What is not a path: a resolver of OmegaConf's or of the project's own. */
static treadle_status refuse_resolver(const name_walk *walk, const char *name) {
  static const char environment[] = "oc.env:";
  const char *shown = treadle_text_shown(name);
  if (treadle_text_starts(name, environment))
    REFUSE("%s: ${%s} is of the environment, which is not read; give the value of %.*s itself, in the file "
           "or as an override",
           walk->where, shown, (int)strcspn(name + sizeof environment - 1, ","),
           treadle_text_shown(name + sizeof environment - 1));
  REFUSE("%s: ${%s} is not looked up; ${a.b} and ${oc.select:a.b,x} are", walk->where, shown);
}

/* The path that a name is: names inside of it have their values, and one that is relative is none. */
static treadle_status path_of(name_walk *walk, const char *at, const char *name, int depth,
                              const char **path_p) {
  treadle_status status = TREADLE_OK;
  *path_p = name;
  if (strstr(name, "${")) TRY(expand(walk, at, name, depth + 1, path_p));
  if (strpbrk(*path_p, ":${")) TRY(refuse_resolver(walk, *path_p));
  TRY(settle_relative(walk, at, path_p));
out:
  return status;
}

/* What stands between ${ and }; *text_p is what takes its place. */
static treadle_status expand_name(name_walk *walk, const char *at, char *name, int depth,
                                  const char **text_p) {
  static const char select[] = "oc.select:";
  const char *otherwise = NULL, *shown = treadle_text_shown(name), *path;
  char *arguments;
  bool selects = treadle_text_starts(name, select);
  treadle_status status;
  if (depth == DEEPEST || ++walk->steps > MOST_STEPS)
    REFUSE("%s: ${%s}: names that lead to names, and do not end", walk->where, shown);
  if ((arguments = arguments_of(name))) return compute(walk, at, name, arguments, depth, text_p);
  if (selects) {
    name += sizeof select - 1;
    char *comma = comma_of(name);
    if (comma) {
      otherwise = comma + 1 + strspn(comma + 1, " ");
      *comma = 0;
    }
  } else if (!strstr(name, "${") && strpbrk(name, ":$")) {
    return refuse_resolver(walk, name);
  }
  TRY(path_of(walk, at, name, depth, &path));
  TRY(look_up(walk, path, &path, text_p));
  if (!*text_p && !selects)
    status = treadle_fail(TREADLE_REFUSED, "%s: ${%s}: there is no such value", walk->where, shown);
  else if (!*text_p || (otherwise && treadle_train_is_null(*text_p))) {
    *text_p = otherwise ? otherwise : "null";
    path = at;
  }
  if (!status) status = expand(walk, path, *text_p, depth + 1, text_p);
out:
  return status;
}

/* All names of a text; one that is the whole text gives its value as it is. */
static treadle_status expand(name_walk *walk, const char *at, const char *text, int depth,
                             const char **text_p) {
  treadle_arena *arena = walk->names->arena;
  treadle_builder whole = {0};
  treadle_status status = TREADLE_OK;
  const char *rest = text, *value = text, *begin;
  while ((begin = strstr(rest, "${"))) {
    size_t length = inside_of(begin);
    char *name = treadle_arena_format(arena, "%.*s", (int)(length - 2), begin + 2);
    if (!name) TRY(no_memory(walk));
    if (!begin[length]) {
      status = treadle_fail(TREADLE_REFUSED, "%s: '%s': a ${ is not closed", walk->where,
                            treadle_text_shown(text));
      goto out;
    }
    TRY(expand_name(walk, at, name, depth, &value));
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

/* Does a text have ${path}, or the path as an argument? */
static bool has_name(const char *text, const char *path) {
  const size_t length = strlen(path);
  for (const char *at = text; (at = strstr(at, path)); at++)
    if (at > text && (at[-1] == '{' || at[-1] == ':') && (at[length] == '}' || at[length] == ','))
      return true;
  return false;
}

/* Does the text of the value `at` have the path as a relative name? */
static bool has_relative(const char *text, const char *at, const char *path) {
  for (const char *dot = text; (dot = strchr(dot, '.')); dot += strspn(dot, ".")) {
    const size_t dots = strspn(dot, "."), length = strcspn(dot + dots, "},"), base = without(at, dots);
    if (dot == text || (dot[-1] != '{' && dot[-1] != ':') || strncmp(at, path, base) != 0) continue;
    const char *rest = path + base + (base && path[base] == '.');
    if (strlen(rest) == length && strncmp(rest, dot + dots, length) == 0) return true;
  }
  return false;
}

static bool has_name_in(const treadle_yaml *node, const char *at, const char *path) {
  char inner[TREADLE_TRAIN_PATH];
  if (node->type == TREADLE_YAML_SCALAR)
    return has_name(node->text, path) || has_relative(node->text, at, path);
  for (size_t i = 0; i < node->count; i++) {
    if (node->type == TREADLE_YAML_MAP)
      snprintf(inner, sizeof inner, "%s%s%s", at, *at ? "." : "", node->keys[i]);
    else
      snprintf(inner, sizeof inner, "%s.%zu", at, i);
    if (has_name_in(node->items[i], inner, path)) return true;
  }
  return false;
}

bool treadle_train_is_name(const treadle_train_names *names, const char *path) {
  for (size_t i = 0; i < names->count; i++)
    if (has_name(names->overrides[i], path)) return true;
  return has_name_in(names->root, "", path);
}

treadle_status treadle_train_expand(const treadle_train_names *names, const char *where, const char *at,
                                    const char *text, const char **text_p) {
  name_walk walk = {names, where, 0};
  return expand(&walk, at, text, 0, text_p);
}
