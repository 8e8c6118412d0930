/* The engine sections of a family file: one rule for each storage tensor.
 *
 * What holds afterwards: parts are kinds, in layers exactly when the rule is; parts of one storage tensor
 * agree in all dimensions but the first; a fused axis is the first of each part; a name that comes again
 * differs in at, when or spec; and every kind has a rule in every section (under both of Megatron's specs),
 * so that nothing of a model is silently left behind. */
#include "model/family_read.h"

#include <string.h>

static const char *const rule_keys[] = {"name", "spec", "when", "at",  "of",
                                        "cut",  "over", "fuse", "pad", NULL};
static const char *const engine_names[] = {"megatron", "vllm", "sglang", NULL};
static const char *const spec_words[] = {"te", "local", NULL};
static const char *const pad_words[] = {"vocab", NULL};
/* In the order of the enums. */
static const char *const cut_words[] = {"none", "rows", "cols", "heads", NULL};
static const char *const at_words[] = {"layer", "first", "last", "norm", "every", NULL};

/* The position of a key's text among `words`; `otherwise` when absent. */
static treadle_status read_word(const treadle_family_reader *reader, const treadle_yaml *node,
                                const char *key, const char *const *words, int otherwise, int *word_p) {
  const char *text;
  treadle_status status;
  TRY(treadle_family_text_of(reader, node, key, false, &text));
  *word_p = otherwise;
  if (!text) return TREADLE_OK;
  treadle_nearest nearest = treadle_nearest_to(text);
  for (int i = 0; words[i]; i++) {
    treadle_nearest_try(&nearest, words[i]);
    if (strcmp(text, words[i]) == 0) *word_p = i;
  }
  if (nearest.distance != 0)
    return treadle_family_fail(reader, node, "%s: '%s' is none of its words; the nearest is '%s'", key,
                               text, nearest.best);
out:
  return status;
}

/* ---- One rule ---------------------------------------------------------------------------------- */

static treadle_status read_place(treadle_family_reader *reader, const treadle_yaml *node, bool in_layer,
                                 treadle_rule *rule) {
  int at;
  treadle_status status;
  TRY(read_word(reader, node, "at", at_words, in_layer ? TREADLE_AT_LAYER : -1, &at));
  if (at < 0)
    return treadle_family_fail(reader, node, "%s has no {l}; say at: first, last, norm or every",
                               rule->name);
  if (in_layer != (at == TREADLE_AT_LAYER))
    return treadle_family_fail(reader, node, "%s %s {l}, which does not go with at: %s", rule->name,
                               in_layer ? "has" : "has no", at_words[at]);
  rule->at = (treadle_place)at;
out:
  return status;
}

/* Do two kinds have the same axes in every dimension but the first? */
static bool same_width(const treadle_kind *a, const treadle_kind *b) {
  int i = 0, j = 0;
  if (a->ndim != b->ndim) return false;
  while (i < a->naxes && a->axis_dim[i] == 0) i++;
  while (j < b->naxes && b->axis_dim[j] == 0) j++;
  if (a->naxes - i != b->naxes - j) return false;
  for (; i < a->naxes; i++, j++)
    if (a->axis_dim[i] != b->axis_dim[j] || strcmp(a->axis_text[i], b->axis_text[j]) != 0) return false;
  return true;
}

static treadle_status check_part(const treadle_family_reader *reader, const treadle_yaml *node,
                                 const treadle_rule *rule, const treadle_kind *part) {
  const treadle_kind *first = &reader->family->kinds[rule->parts[0]];
  if (part->in_layer != (rule->at == TREADLE_AT_LAYER))
    return treadle_family_fail(reader, node, "of %s and %s, only one is in layers", rule->name, part->name);
  if (!same_width(first, part))
    return treadle_family_fail(reader, node, "parts %s and %s differ in more than their first dimension",
                               first->name, part->name);
  if (rule->fuse && strcmp(part->axis_text[0], rule->fuse) != 0)
    return treadle_family_fail(reader, node, "fuse: %s is not the first axis of %s, which is %s",
                               rule->fuse, part->name, part->axis_text[0]);
  if (rule->cut == TREADLE_CUT_COLS && part->ndim < 2)
    return treadle_family_fail(reader, node, "cut: cols, but %s has one dimension", part->name);
  return TREADLE_OK;
}

static treadle_status read_parts(treadle_family_reader *reader, const treadle_yaml *node,
                                 treadle_rule *rule) {
  const treadle_yaml *parts = treadle_yaml_get(node, "of");
  treadle_status status;
  TRY(treadle_family_check_list(reader, node, parts, "of"));
  if (parts->count > TREADLE_MAX_PARTS)
    return treadle_family_fail(reader, node, "%s has more than %d parts", rule->name, TREADLE_MAX_PARTS);
  for (size_t i = 0; i < parts->count; i++) {
    TRY(treadle_family_kind(reader, parts->items[i], parts->items[i]->text, &rule->parts[i]));
    TRY(check_part(reader, parts->items[i], rule, &reader->family->kinds[rule->parts[i]]));
  }
  rule->nparts = (int)parts->count;
out:
  return status;
}

static treadle_status read_cut(treadle_family_reader *reader, const treadle_yaml *node,
                               treadle_rule *rule) {
  int cut, pad;
  treadle_status status;
  TRY(read_word(reader, node, "cut", cut_words, TREADLE_CUT_NONE, &cut));
  TRY(read_word(reader, node, "pad", pad_words, -1, &pad));
  TRY(treadle_family_text_of(reader, node, "over", false, &rule->over));
  TRY(treadle_family_text_of(reader, node, "fuse", false, &rule->fuse));
  rule->cut = (treadle_cut)cut;
  rule->pad_vocab = pad >= 0;
  if (rule->over && rule->cut == TREADLE_CUT_NONE)
    return treadle_family_fail(reader, node, "over: %s says by what to cut, but nothing is cut",
                               rule->over);
  if (rule->fuse && rule->cut != TREADLE_CUT_NONE && rule->cut != TREADLE_CUT_ROWS)
    return treadle_family_fail(reader, node, "a fused matrix is cut by rows, not by %s", cut_words[cut]);
  if (!rule->over) rule->over = "tp";
out:
  return status;
}

static treadle_status read_rule(treadle_family_reader *reader, const treadle_yaml *node,
                                treadle_rule *rule) {
  const char *name;
  bool in_layer;
  int spec;
  treadle_status status;
  TRY(treadle_family_check_keys(reader, node, rule_keys));
  TRY(treadle_family_text_of(reader, node, "name", true, &name));
  TRY(treadle_family_expand(reader, node, name, &rule->name, &in_layer));
  TRY(read_word(reader, node, "spec", spec_words, -1, &spec));
  rule->spec = spec >= 0 ? spec_words[spec] : NULL;
  TRY(treadle_family_condition(reader, node, "when", &rule->when));
  TRY(read_place(reader, node, in_layer, rule));
  TRY(read_cut(reader, node, rule));
  TRY(read_parts(reader, node, rule));
  rule->line = node->line;
out:
  return status;
}

/* ---- One section ------------------------------------------------------------------------------- */

static bool same_text(const char *a, const char *b) {
  return a && b ? strcmp(a, b) == 0 : a == b;
}

/* `seen` leads from a name to the last rule that has it, `before` from a rule to the one before it. */
static treadle_status check_repeat(const treadle_family_reader *reader, const treadle_yaml *node,
                                   const treadle_engine_rules *engine, int32_t position, treadle_map *seen,
                                   int32_t *before) {
  const treadle_rule *rule = &engine->rules[position];
  before[position] = (int32_t)treadle_map_get(seen, rule->name, -1);
  for (int32_t i = before[position]; i >= 0; i = before[i]) {
    const treadle_rule *other = &engine->rules[i];
    if (other->at == rule->at && same_text(other->when, rule->when) && same_text(other->spec, rule->spec))
      return treadle_family_fail(reader, node,
                                 "%s stands twice in %s (line %d) with the same at, when and spec",
                                 rule->name, engine->engine, other->line);
  }
  return treadle_map_put(seen, rule->name, position);
}

/* Every kind is a part of a rule, under each spec. */
static treadle_status check_complete(const treadle_family_reader *reader, const treadle_yaml *node,
                                     const treadle_engine_rules *engine) {
  const treadle_family *family = reader->family;
  for (int s = 0; spec_words[s]; s++) {
    bool *used = treadle_arena_alloc_array(reader->arena, (size_t)family->kind_count, sizeof *used);
    if (!used) return treadle_family_no_memory();
    for (int32_t r = 0; r < engine->count; r++) {
      const treadle_rule *rule = &engine->rules[r];
      if (rule->spec && rule->spec != spec_words[s]) continue;
      for (int p = 0; p < rule->nparts; p++) used[rule->parts[p]] = true;
    }
    for (int32_t k = 0; k < family->kind_count; k++)
      if (!used[k])
        return treadle_family_fail(reader, node, "%s has no rule for %s under spec %s", engine->engine,
                                   family->kinds[k].name, spec_words[s]);
  }
  return TREADLE_OK;
}

static treadle_status read_engine(treadle_family_reader *reader, const char *name, const treadle_yaml *list,
                                  treadle_engine_rules *engine) {
  treadle_map seen = {0};
  treadle_status status = TREADLE_OK;
  engine->engine = name;
  if (list->kind != TREADLE_YAML_LIST || !list->count)
    return treadle_family_fail(reader, list, "%s must be a list of rules", name);
  engine->rules = treadle_arena_alloc_array(reader->arena, list->count, sizeof *engine->rules);
  int32_t *before = treadle_arena_alloc_array(reader->arena, list->count, sizeof *before);
  if (!engine->rules || !before) return treadle_family_no_memory();
  for (; engine->count < (int32_t)list->count; engine->count++) {
    const treadle_yaml *node = list->items[engine->count];
    TRY(read_rule(reader, node, &engine->rules[engine->count]));
    TRY(check_repeat(reader, node, engine, engine->count, &seen, before));
  }
  TRY(check_complete(reader, list, engine));
out:
  treadle_map_release(&seen);
  return status;
}

treadle_status treadle_family_read_engines(treadle_family_reader *reader, const treadle_yaml *engines) {
  treadle_family *family = reader->family;
  treadle_status status;
  if (!engines) return treadle_fail(TREADLE_REFUSED, "%s: engines is missing", reader->path);
  TRY(treadle_family_check_keys(reader, engines, engine_names));
  family->engines = treadle_arena_alloc_array(reader->arena, engines->count + 1, sizeof *family->engines);
  if (!family->engines) return treadle_family_no_memory();
  for (size_t i = 0; i < engines->count; i++) {
    TRY(read_engine(reader, engines->keys[i], engines->items[i], &family->engines[i]));
    family->engine_count++;
  }
out:
  return status;
}
