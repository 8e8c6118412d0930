/* One block: a part of families that stands in a file of its own (families/blocks/), or in the family's `blocks`.
 *
 * Its options have a value each unless the family gives another. `$name`, or `${name}` before a letter, in a text
 * stands for the value. Two things are
 * decided here, while the block is read: a line with `if`, an expression over the options, stands only where it holds;
 * and a line whose `when` becomes true or false by an option loses it, or goes. */
#include "family/assemble.h"
#include "family/expr.h"

#include <string.h>

static const char *const block_keys[] = {
    "block",  "fills",    "options",   "conditions",  "dims",         "config", "layers",
    "mtp",    "experts",  "prefixes",  "tensors",     "mtp_prefixes", "views",  "stored_prefixes",
    "packed", "carried",  "quantised", "field_names", "defaults",     "coded",  "plain_only",
    "outer",  "requires", "traits",    "engines",     "changes",      "to_say", "forward",
    NULL};

typedef struct block_reader {
  treadle_assembly *a;
  treadle_yaml *options; /* name to value, the family's in place */
} block_reader;

/* ---- Options ----------------------------------------------------------------------------------- */

static treadle_status unknown_option(const block_reader *b, const treadle_yaml *at, const char *name) {
  treadle_nearest nearest = treadle_nearest_to(name);
  for (size_t i = 0; i < b->options->count; i++) treadle_nearest_try(&nearest, b->options->keys[i]);
  return treadle_family_fail(b->a->reader, at, "the block has no option '%s'; the nearest is '%s'", name,
                             nearest.best);
}

/* Puts the family's options, which stand in `item`, over those of the block. */
static treadle_status read_options(block_reader *b, treadle_yaml *block, const treadle_yaml *item) {
  treadle_yaml *options = treadle_tree_get(block, "options");
  treadle_status status = TREADLE_OK;
  if (!options) TRY(treadle_tree_new(b->a, TREADLE_YAML_MAP, block, &options));
  if (options->type != TREADLE_YAML_MAP)
    return treadle_family_fail(b->a->reader, options, "%s must be a map of names to values", "options");
  b->options = options;
  for (size_t i = 0; item && item->type == TREADLE_YAML_MAP && i < item->count; i++) {
    if (strcmp(item->keys[i], "block") == 0) continue;
    if (!treadle_yaml_get(options, item->keys[i])) return unknown_option(b, item->items[i], item->keys[i]);
    TRY(treadle_tree_set(b->a, options, item->keys[i], item->items[i]));
  }
  for (size_t i = 0; i < options->count; i++)
    if (options->items[i]->type != TREADLE_YAML_SCALAR || !treadle_expr_is_name(options->keys[i]))
      return treadle_family_fail(b->a->reader, options->items[i],
                                 "option '%.64s' is not a name with a text", options->keys[i]);
out:
  return status;
}

static size_t name_length(const char *text) {
  return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
}

/* Replaces each $name of a text. What is put in is not looked at again. */
static treadle_status substitute_text(block_reader *b, treadle_yaml *node) {
  treadle_builder text = {0};
  treadle_status status = TREADLE_OK;
  const char *from = node->text, *dollar;
  if (!strchr(from, '$')) return TREADLE_OK;
  while ((dollar = strchr(from, '$'))) {
    bool braces = dollar[1] == '{';
    size_t length = name_length(dollar + 1 + braces);
    const char *name = treadle_arena_format(b->a->reader->arena, "%.*s", (int)length, dollar + 1 + braces);
    if (!name) goto no_memory;
    const treadle_yaml *value = treadle_yaml_get(b->options, name);
    if (!value) {
      status = unknown_option(b, node, name);
      goto out;
    }
    treadle_builder_add(&text, "%.*s%s", (int)(dollar - from), from, value->text);
    from = dollar + 1 + length + braces;
    if (braces && *from++ != '}') {
      status = treadle_family_fail(b->a->reader, node, "%.160s: '}' is missing", node->text);
      goto out;
    }
  }
  treadle_builder_add(&text, "%s", from);
  node->text = !text.failed ? treadle_arena_copy_text(b->a->reader->arena, text.text) : NULL;
  if (node->text) goto out;
no_memory:
  status = treadle_family_no_memory();
out:
  treadle_builder_release(&text);
  return status;
}

/* An option in an expression: true, false or a number. */
static treadle_status look_up(void *context, const char *name, const int64_t *member, int64_t *value_p,
                              bool *found_p) {
  const block_reader *b = context;
  const treadle_yaml *value = member ? NULL : treadle_yaml_get(b->options, name);
  *found_p = value != NULL;
  if (!value) return unknown_option(b, b->options, name);
  bool truth;
  if (treadle_yaml_truth(value->text, &truth)) {
    *value_p = truth;
    return TREADLE_OK;
  }
  if (treadle_text_to_int64(value->text, value_p)) return TREADLE_OK;
  *value_p = 1; /* another text: it is given */
  return TREADLE_OK;
}

/* ---- Lines ------------------------------------------------------------------------------------- */

/* Does a line of a list stand? Takes its `if` away. */
static treadle_status stands(block_reader *b, treadle_yaml *line, bool *stands_p) {
  const char *text;
  int64_t holds = 1;
  treadle_status status;
  TRY(treadle_family_text_of(b->a->reader, line, "if", false, &text));
  if (text) {
    const char *what = treadle_family_place(b->a->reader, line);
    if (!what) return treadle_family_no_memory();
    TRY(treadle_expr_evaluate(what, text, look_up, b, &holds));
    treadle_tree_unset(line, "if");
  }
  *stands_p = holds != 0;
out:
  return status;
}

/* A `when` that an option made true or false. */
static void decide(treadle_yaml *line, bool *stands_p) {
  const char *when = treadle_yaml_text(line, "when", "");
  if (strcmp(when, "true") == 0 || strcmp(when, "not false") == 0) treadle_tree_unset(line, "when");
  if (strcmp(when, "false") == 0 || strcmp(when, "not true") == 0) *stands_p = false;
}

static treadle_status substitute(block_reader *b, treadle_yaml *node) {
  treadle_status status = TREADLE_OK;
  size_t kept = 0;
  if (node->type == TREADLE_YAML_SCALAR) return substitute_text(b, node);
  for (size_t i = 0; i < node->count; i++) {
    treadle_yaml *item = node->items[i];
    bool keep = true, is_line = item->type == TREADLE_YAML_MAP;
    if (is_line) TRY(stands(b, item, &keep));
    if (!keep) continue;
    const char *when = is_line ? treadle_yaml_text(item, "when", "") : "";
    bool by_option = strchr(when, '$') != NULL;
    TRY(substitute(b, item));
    if (by_option) decide(item, &keep);
    if (!keep) continue;
    if (node->type == TREADLE_YAML_MAP) node->keys[kept] = node->keys[i];
    node->items[kept++] = item;
  }
  node->count = kept;
out:
  return status;
}

treadle_status treadle_block_read(treadle_assembly *a, const treadle_yaml *item, treadle_yaml **block_p) {
  block_reader b = {.a = a};
  const treadle_yaml *root = item;
  const char *name =
                 item->type == TREADLE_YAML_SCALAR ? item->text : treadle_yaml_text(item, "block", NULL),
             *own;
  treadle_yaml *block;
  treadle_status status;
  if (item->type == TREADLE_YAML_LIST)
    return treadle_family_fail(a->reader, item, "%s are names, {block: NAME, ...} and blocks", "blocks");
  if (name) TRY(treadle_family_load(a, item, name, true, &root));
  TRY(treadle_tree_copy(a, root, &block));
  TRY(treadle_family_check_keys(a->reader, block, block_keys));
  if (name) {
    TRY(treadle_family_text_of(a->reader, block, "block", true, &own));
    if (strcmp(own, name) != 0)
      return treadle_family_fail(a->reader, block, "block: %s stands in the file of %s", own, name);
    TRY(read_options(&b, block, item));
    treadle_tree_unset(block, "block");
  } else {
    TRY(read_options(&b, block, NULL));
  }
  treadle_tree_unset(block, "options");
  TRY(substitute(&b, block));
  TRY(treadle_engines_derive(a, block));
  *block_p = block;
out:
  return status;
}

/* ---- An engine that is another's --------------------------------------------------------------- */

/* The rule's names begin with other prefixes. */
static treadle_status rename_rule(treadle_assembly *a, treadle_yaml *node, const treadle_yaml *prefixes) {
  treadle_status status = TREADLE_OK;
  if (node->type != TREADLE_YAML_SCALAR) {
    for (size_t i = 0; i < node->count; i++) TRY(rename_rule(a, node->items[i], prefixes));
    return TREADLE_OK;
  }
  for (size_t i = 0; i < prefixes->count; i++) {
    if (!treadle_text_starts(node->text, prefixes->keys[i])) continue;
    node->text = treadle_arena_format(a->reader->arena, "%s%s", prefixes->items[i]->text,
                                      node->text + strlen(prefixes->keys[i]));
    return node->text ? TREADLE_OK : treadle_family_no_memory();
  }
out:
  return status;
}

static treadle_status check_texts(treadle_assembly *a, const treadle_yaml *map, const char *key) {
  bool good = !map || map->type == TREADLE_YAML_MAP;
  for (size_t i = 0; map && good && i < map->count; i++) good = map->items[i]->type == TREADLE_YAML_SCALAR;
  return good ? TREADLE_OK
              : treadle_family_fail(a->reader, map, "%s must be a map of texts, from and to", key);
}

/* Copies the rules of another engine: cut over other meshes, named by other prefixes. */
static treadle_status derive(treadle_assembly *a, treadle_yaml *engines, size_t at) {
  static const char *const keys[] = {"as", "over", "names", "changes", NULL};
  const treadle_yaml *how = engines->items[at], *over = treadle_yaml_get(how, "over"),
                     *names = treadle_yaml_get(how, "names"), *changes = treadle_yaml_get(how, "changes");
  const char *as;
  treadle_yaml *list;
  treadle_status status;
  TRY(treadle_family_check_keys(a->reader, how, keys));
  TRY(treadle_family_text_of(a->reader, how, "as", true, &as));
  TRY(check_texts(a, over, "over"));
  TRY(check_texts(a, names, "names"));
  const treadle_yaml *original = treadle_yaml_get(engines, as);
  if (!original || original->type != TREADLE_YAML_LIST)
    return treadle_family_fail(a->reader, how, "as: %s has no rules of its own here", as);
  TRY(treadle_tree_copy(a, original, &list));
  for (size_t i = 0; i < list->count; i++) {
    treadle_yaml *rule = list->items[i], *mesh;
    const char *cut = treadle_yaml_text(rule, "cut", NULL);
    const char *from = treadle_yaml_text(rule, "over", "tp"), *to = treadle_yaml_text(over, from, NULL);
    if (cut && to) {
      TRY(treadle_tree_new(a, TREADLE_YAML_SCALAR, how, &mesh));
      mesh->text = to;
      TRY(treadle_tree_set(a, rule, "over", mesh));
    }
    if (names && treadle_yaml_get(rule, "name")) TRY(rename_rule(a, treadle_tree_get(rule, "name"), names));
    if (names && treadle_yaml_get(rule, "named"))
      TRY(rename_rule(a, treadle_tree_get(rule, "named"), names));
  }
  if (changes) TRY(treadle_changes_apply(a, NULL, changes, list));
  engines->items[at] = list;
out:
  return status;
}

treadle_status treadle_engines_derive(treadle_assembly *a, treadle_yaml *tree) {
  treadle_yaml *engines = treadle_tree_get(tree, "engines");
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; engines && engines->type == TREADLE_YAML_MAP && i < engines->count; i++)
    if (engines->items[i]->type == TREADLE_YAML_MAP) TRY(derive(a, engines, i));
out:
  return status;
}
