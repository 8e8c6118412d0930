/* Named conditions. A name of `conditions` may stand wherever a condition does (when, same_when, that, the values of traits),
 * and in conditions that follow it; here it is replaced by what it stands for, in parentheses, so that nobody else
 * knows of names.
 *
 * A name that nothing uses is refused, and so is a condition that never holds. That is found out by trying: each name in it
 * takes 0 to 3 and the numbers that the condition speaks of, with their neighbours. What cannot be tried (too many names,
 * a division by zero) counts as holding. */
#include "family/assemble.h"
#include "family/expr.h"

#include <string.h>

enum { MAX_NAMES = 6, MAX_VALUES = 16, MAX_TRIES = 200000 };

typedef struct namer {
  treadle_assembly *a;
  const treadle_yaml *conditions;
  size_t known; /* how many may be used, from the first one on */
  bool *used;   /* by position */
} namer;

/* The condition of a word; its position, or -1. */
static int64_t find(const namer *n, const char *word, size_t length) {
  for (size_t i = 0; i < n->known; i++)
    if (strlen(n->conditions->keys[i]) == length && strncmp(n->conditions->keys[i], word, length) == 0)
      return (int64_t)i;
  return -1;
}

/* Writes the names in an expression out. Words after `in`, and after a dot, are names of lists and of what is in them. */
static treadle_status write_out(namer *n, treadle_yaml *node) {
  treadle_builder text = {0};
  treadle_status status = TREADLE_OK;
  bool list = false, changed = false;
  for (const char *c = node->text; *c;) {
    size_t length = treadle_word_length(c);
    bool name = length && !list && (c == node->text || c[-1] != '.');
    int64_t found = name ? find(n, c, length) : -1;
    if (length) list = length == 2 && strncmp(c, "in", 2) == 0;
    if (found >= 0) {
      const char *stands_for = n->conditions->items[found]->text;
      bool alone = c == node->text && !c[length];
      treadle_builder_add(&text, alone ? "%s" : "(%s)", stands_for);
      n->used[found] = changed = true;
    } else {
      treadle_builder_add(&text, "%.*s", (int)(length ? length : 1), c);
    }
    c += length ? length : 1;
    if (text.text && strlen(text.text) > TREADLE_MAX_CONDITION) {
      status =
          treadle_family_fail(n->a->reader, node, "written out, the condition is longer than %d characters",
                              TREADLE_MAX_CONDITION);
      goto out;
    }
  }
  if (!changed && !text.failed) goto out;
  node->text = !text.failed ? treadle_arena_copy_text(n->a->reader->arena, text.text) : NULL;
  if (!node->text) status = treadle_family_no_memory();
out:
  treadle_builder_release(&text);
  return status;
}

/* ---- Does it ever hold? ------------------------------------------------------------------------- */

typedef struct trial {
  char texts[MAX_NAMES][64]; /* the names; "list.WORD" too */
  int names_count, values_count;
  int64_t values[MAX_VALUES];
  int64_t number; /* of the trial: which value each name has */
  bool too_many;
} trial;

static treadle_status try_name(void *context, const char *name, const int64_t *member, int64_t *value_p,
                               bool *found_p) {
  trial *t = context;
  int i = 0;
  while (i < t->names_count && strcmp(t->texts[i], name) != 0) i++;
  if (i == t->names_count && (i == MAX_NAMES || strlen(name) >= sizeof t->texts[i])) {
    t->too_many = true;
    i = 0;
  } else if (i == t->names_count) {
    memcpy(t->texts[t->names_count++], name, strlen(name) + 1);
  }
  int64_t rest = t->number;
  for (int k = 0; k < i; k++) rest /= t->values_count;
  *value_p = t->values[rest % t->values_count];
  if (member) *value_p = *value_p % 2;
  *found_p = true;
  return TREADLE_OK;
}

static void add_value(trial *t, int64_t value) {
  for (int i = 0; i < t->values_count; i++)
    if (t->values[i] == value) return;
  if (t->values_count == MAX_VALUES)
    t->too_many = true;
  else if (value >= 0)
    t->values[t->values_count++] = value;
}

static bool may_hold(const char *text) {
  trial t = {.values = {0, 1, 2, 3}, .values_count = 4};
  for (const char *c = text; *c; c++) {
    int64_t value = 0;
    if (*c < '0' || *c > '9' || (c > text && treadle_word_length(c - 1))) continue;
    while (*c >= '0' && *c <= '9' && value < INT64_MAX / 20) value = value * 10 + *c++ - '0';
    for (int64_t near = -1; near <= 1; near++) add_value(&t, value + near);
    if (!*c) break;
  }
  int64_t tries = 1;
  for (t.number = 0; t.number < tries && !t.too_many; t.number++) {
    int64_t value;
    if (treadle_expr_evaluate("", text, try_name, &t, &value) != TREADLE_OK || value) return true;
    tries = 1; /* names appear as they are looked up */
    for (int k = 0; k < t.names_count; k++) tries *= t.values_count;
    if (tries > MAX_TRIES) return true;
  }
  return t.too_many;
}

/* ---- The file ---------------------------------------------------------------------------------- */

static treadle_status read_conditions(namer *n, const treadle_yaml *dims) {
  const treadle_yaml *conditions = n->conditions;
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < conditions->count; i++, n->known++) {
    treadle_yaml *item = conditions->items[i];
    const char *name = conditions->keys[i], *text;
    if (treadle_yaml_get(dims, name))
      return treadle_family_fail(n->a->reader, item, "condition %s has the name of a dim", name);
    if (!treadle_expr_is_name(name))
      return treadle_family_fail(n->a->reader, item, "'%.64s' cannot be the name of a condition", name);
    TRY(treadle_family_condition(n->a->reader, conditions, name, &text));
    TRY(write_out(n, item));
    if (!may_hold(item->text))
      return treadle_family_fail(n->a->reader, item, "condition %s is never true: %.160s", name,
                                 item->text);
  }
out:
  return status;
}

/* All texts of a map's values, or the values of some keys of a line. */
static treadle_status apply_to(namer *n, treadle_yaml *node, bool inside) {
  static const char *const keys[] = {"when", "same_when", "that", NULL};
  treadle_status status = TREADLE_OK;
  if (node->type == TREADLE_YAML_SCALAR) return inside ? write_out(n, node) : TREADLE_OK;
  for (size_t i = 0; i < node->count; i++) {
    bool here = inside;
    for (int k = 0; node->type == TREADLE_YAML_MAP && keys[k]; k++)
      here |= strcmp(keys[k], node->keys[i]) == 0;
    TRY(apply_to(n, node->items[i], here));
  }
out:
  return status;
}

treadle_status treadle_conditions_apply(treadle_assembly *a, treadle_yaml *tree, const treadle_yaml *own) {
  const treadle_yaml *conditions = treadle_yaml_get(tree, "conditions");
  namer n = {.a = a, .conditions = conditions};
  treadle_status status;
  if (!conditions) return TREADLE_OK;
  if (conditions->type != TREADLE_YAML_MAP)
    return treadle_family_fail(a->reader, conditions, "%s must be a map of names to conditions",
                               "conditions");
  n.used = treadle_arena_alloc_array(a->reader->arena, conditions->count + 1, sizeof *n.used);
  if (!n.used) return treadle_family_no_memory();
  TRY(read_conditions(&n, treadle_yaml_get(tree, "dims")));
  static const char *const parts[] = {"tensors", "requires", "engines", NULL};
  for (int i = 0; parts[i]; i++)
    if (treadle_yaml_get(tree, parts[i])) TRY(apply_to(&n, treadle_tree_get(tree, parts[i]), false));
  if (treadle_yaml_get(tree, "traits")) TRY(apply_to(&n, treadle_tree_get(tree, "traits"), true));
  for (size_t i = 0; i < conditions->count; i++)
    if (!n.used[i] && treadle_yaml_get(own, conditions->keys[i]))
      return treadle_family_fail(a->reader, conditions->items[i], "condition %s is used nowhere",
                                 conditions->keys[i]);
  treadle_tree_unset(tree, "conditions");
out:
  return status;
}
