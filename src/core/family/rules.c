/* The engine sections of a family file: one rule for each storage tensor.
 *
 * What holds afterwards: parts are patterns, in layers exactly when the rule is; parts of one storage tensor
 * agree in all dimensions but the first; a fused axis is the first of each part; a name that comes again
 * differs in at, when or spec; and every pattern has a rule in every section (under both of Megatron's specs),
 * so that nothing of a model is silently left behind. */
#include "family/expr.h"
#include "family/read.h"

#include <string.h>

static const char *const rule_keys[] = {
    "name",    "spec",  "when",  "at",     "of",     "cut",   "over",  "fuse",  "pad",  "also",  "add",
    "derived", "dtype", "named", "buffer", "beside", "merge", "round", "least", "fill", "shown", NULL};
static const char *const packed_keys[] = {"name", "of", NULL};
static const char *const mtp_keys[] = {"mtp", NULL};
static const char *const mtp_words[] = {"layers", NULL};
static const char *const engine_names[] = {"megatron", "vllm", "sglang", NULL};
static const char *const spec_words[] = {"te", "local", NULL};
static const char *const pad_words[] = {"vocab", NULL};
static const char *const fill_words[] = {"zeros", "minus_infinity", NULL};
/* In the order of the enums. */
static const char *const cut_words[] = {"none", "rows", "cols", "first", "heads", NULL};
static const char *const at_words[] = {"layer", "first", "last", "norm", "every", "mtp", "draft", NULL};

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
  if (in_layer != (at == TREADLE_AT_LAYER) && at != TREADLE_AT_DRAFT)
    return treadle_family_fail(reader, node, "%s %s {l}, which does not go with at: %s", rule->name,
                               in_layer ? "has" : "has no", at_words[at]);
  rule->at = (treadle_stage_choice)at;
out:
  return status;
}

static treadle_status check_part(const treadle_family_reader *reader, const treadle_yaml *node,
                                 const treadle_rule *rule, int position) {
  const treadle_family *family = reader->family;
  treadle_part_name name = rule->parts[position];
  const treadle_pattern *part = &family->patterns[name.pattern],
                        *first = &family->patterns[rule->parts[0].pattern];
  bool in_layer = rule->at == TREADLE_AT_LAYER, extra = position >= rule->nparts - rule->also;
  int dim = 0, index = 0;
  if (part->in_layer != in_layer && (in_layer || rule->at != TREADLE_AT_DRAFT))
    return treadle_family_fail(reader, node, "of %s and %s, only one is in layers", rule->name, part->name);
  if (part->experts != (rule->experts && !extra))
    return treadle_family_fail(reader, node, "%s and %s: only one of them is of experts", rule->name,
                               part->name);
  if (!extra && !treadle_family_same_width(family, rule->parts[0], name))
    return treadle_family_fail(reader, node, "parts %s and %s differ in more than their first dimension",
                               first->name, part->name);
  const char *leading = treadle_family_axis(family, name, 0, &dim);
  if (rule->fuse && (!leading || strcmp(leading, rule->fuse) != 0))
    return treadle_family_fail(reader, node, "fuse: %s is not the first axis of %s, which is %s",
                               rule->fuse, part->name, leading ? leading : "none");
  while (treadle_family_axis(family, name, index, &dim)) index++;
  if (rule->cut == TREADLE_CUT_COLS && dim < 1)
    return treadle_family_fail(reader, node, "cut: cols, but %s has one dimension", part->name);
  return TREADLE_OK;
}

/* Appends the parts of one key; only part `one` where the line is about several storage tensors (one >= 0). */
static treadle_status read_list(treadle_family_reader *reader, const treadle_yaml *node, const char *key,
                                int one, treadle_rule *rule) {
  const treadle_yaml *parts = treadle_yaml_get(node, key);
  treadle_status status;
  TRY(treadle_family_check_list(reader, node, parts, key));
  for (size_t i = 0; i < parts->count; i++) {
    if (one >= 0 && (int)i != one) continue;
    if (rule->nparts == TREADLE_MAX_PARTS)
      return treadle_family_fail(reader, parts, "%s has more than %d parts", rule->name, TREADLE_MAX_PARTS);
    TRY(treadle_family_part(reader, parts->items[i], parts->items[i]->text, &rule->parts[rule->nparts]));
    rule->nparts++;
  }
out:
  return status;
}

static treadle_status read_parts(treadle_family_reader *reader, const treadle_yaml *node, int one,
                                 treadle_rule *rule) {
  treadle_status status;
  TRY(read_list(reader, node, "of", one, rule));
  rule->experts = reader->family->patterns[rule->parts[0].pattern].experts;
  int own = rule->nparts;
  if (treadle_yaml_get(node, "also")) TRY(read_list(reader, node, "also", one, rule));
  rule->also = rule->nparts - own;
  if (rule->also && (!rule->experts || rule->full_name.by_expert || rule->also != own))
    return treadle_family_fail(reader, node,
                               "also: %s must stack experts, and needs %d parts for one more, not %d",
                               rule->name, own, rule->also);
  if (rule->full_name.by_expert && !rule->experts)
    return treadle_family_fail(reader, node, "%s has '*', but its parts are not of experts", rule->name);
  if (rule->full_name.by_expert && rule->cut == TREADLE_CUT_FIRST)
    return treadle_family_fail(reader, node, "cut: first needs a stack of experts, and %s has '*'",
                               rule->name);
  if (rule->pad_vocab && (rule->nparts > 1 || rule->experts))
    return treadle_family_fail(reader, node, "pad: %s has more than one matrix to pad", rule->name);
  for (int i = 0; i < rule->nparts; i++) TRY(check_part(reader, node, rule, i));
out:
  return status;
}

/* add, derived and dtype. */
static treadle_status read_value(treadle_family_reader *reader, const treadle_yaml *node,
                                 treadle_rule *rule) {
  static const char *const adds[] = {"-1", "0", "1", NULL};
  static const char *const merges[] = {"rows", "cols", NULL};
  int add, merge;
  treadle_status status;
  TRY(treadle_family_flag(reader, node, "derived", &rule->derived));
  TRY(treadle_family_flag(reader, node, "buffer", &rule->buffer));
  TRY(treadle_family_flag(reader, node, "beside", &rule->beside));
  TRY(read_word(reader, node, "merge", merges, -1, &merge));
  rule->merge = (int8_t)(merge + 1);
  if (rule->beside &&
      (rule->also || rule->fuse || rule->cut == TREADLE_CUT_ROWS || rule->cut == TREADLE_CUT_HEADS))
    return treadle_family_fail(
        reader, node, "%s: parts that are beside one another are cut by cols or not at all", rule->name);
  if (merge >= 0 && (!rule->experts || rule->full_name.by_expert || rule->also))
    return treadle_family_fail(reader, node, "merge: %s is not a plain stack of experts", rule->name);
  TRY(read_word(reader, node, "add", adds, 1, &add));
  TRY(treadle_family_dtype(reader, node, &rule->dtype));
  rule->add = (int8_t)(add - 1);
  for (int i = 0; i < rule->nparts; i++) {
    const treadle_pattern *pattern = &reader->family->patterns[rule->parts[i].pattern];
    bool integers = pattern->dtype == TREADLE_INT32;
    if (rule->dtype == TREADLE_INT32 || (integers && (rule->nparts > 1 || rule->add || rule->dtype)))
      return treadle_family_fail(
          reader, node, "%s: integers stay what they are, alone and in tensors of them", rule->name);
  }
  for (int i = 0; rule->add && i < rule->nparts; i++)
    reader->family->patterns[rule->parts[i].pattern].shifted = true;
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
  if (rule->pad_vocab && (rule->fuse || (rule->cut != TREADLE_CUT_NONE && rule->cut != TREADLE_CUT_ROWS)))
    return treadle_family_fail(reader, node, "pad of %s goes with cut: rows, or with none", rule->name);
  if (!rule->over) rule->over = "tp";
out:
  return status;
}

/* round, least, fill and shown. */
static treadle_status read_room(treadle_family_reader *reader, const treadle_yaml *node,
                                treadle_rule *rule) {
  bool plain = !rule->fuse && !rule->pad_vocab && !rule->beside && !rule->also && !rule->merge,
       cut = rule->cut == TREADLE_CUT_ROWS || rule->cut == TREADLE_CUT_COLS;
  int fill;
  treadle_status status;
  TRY(treadle_family_condition(reader, node, "round", &rule->round));
  TRY(treadle_family_condition(reader, node, "least", &rule->least));
  TRY(read_word(reader, node, "fill", fill_words, -1, &fill));
  TRY(treadle_family_texts_of(reader, node, "shown", &rule->shown_count, &rule->shown));
  rule->minus_infinity = fill == 1;
  if (rule->round && (!plain || rule->experts || rule->least || rule->cut == TREADLE_CUT_FIRST))
    return treadle_family_fail(
        reader, node, "round: %s must be parts one above the other, and not of experts", rule->name);
  if (rule->least && (!plain || !cut))
    return treadle_family_fail(
        reader, node, "least: %s must be parts one above the other, cut by rows or cols", rule->name);
  if (fill >= 0 && !rule->round && !rule->least)
    return treadle_family_fail(reader, node, "fill: %s has no padding; say round or least", rule->name);
  if (rule->shown_count && (rule->experts || rule->shown_count > TREADLE_MAX_DIMS))
    return treadle_family_fail(reader, node,
                               "shown: %s must not be of experts, and has at most %d dimensions",
                               rule->name, TREADLE_MAX_DIMS);
  for (int32_t i = 0; i < rule->shown_count; i++) {
    const char *what = treadle_family_place(reader, node);
    if (!what) return treadle_family_no_memory();
    TRY(treadle_expr_check(what, rule->shown[i], NULL, NULL));
  }
out:
  return status;
}

/* The names while a number of the layout holds. */
static treadle_status read_other_names(treadle_family_reader *reader, const treadle_yaml *node,
                                       treadle_rule *rule) {
  const treadle_yaml *named = treadle_yaml_get(node, "named");
  treadle_status status = TREADLE_OK;
  if (!named) return TREADLE_OK;
  if (named->type != TREADLE_YAML_MAP || named->count > TREADLE_MAX_OTHERS)
    return treadle_family_fail(reader, named, "named must be a map of at most %d names",
                               TREADLE_MAX_OTHERS);
  for (size_t i = 0; i < named->count; i++) {
    treadle_optional_name *other = &rule->other[rule->others++];
    const char *text;
    other->number = named->keys[i];
    TRY(treadle_family_text_of(reader, named, named->keys[i], true, &text));
    TRY(treadle_family_expand(reader, named, text, &other->name));
    if (other->name.in_layer != rule->full_name.in_layer)
      return treadle_family_fail(reader, named, "of %s and %s, only one is in layers", rule->name,
                                 other->name.text);
    if (other->name.by_expert && (!rule->experts || rule->also || rule->cut == TREADLE_CUT_FIRST))
      return treadle_family_fail(reader, named,
                                 "%s has '*', which needs parts of experts, without also or cut: first",
                                 other->name.text);
  }
out:
  return status;
}

/* Rule number `position` of a line; with a list of names it has the part of that position. */
static treadle_status read_rule(treadle_family_reader *reader, const treadle_yaml *node, size_t position,
                                const char *const *keys, treadle_rule *rule) {
  const treadle_yaml *names = treadle_yaml_get(node, "name"), *parts = treadle_yaml_get(node, "of");
  const char *name;
  bool listed = names && names->type == TREADLE_YAML_LIST;
  int spec, word;
  treadle_status status;
  rule->file = node->file;
  rule->line = node->line;
  if (keys == rule_keys && treadle_yaml_get(node, "mtp")) {
    rule->at = TREADLE_AT_MTP_LAYERS;
    TRY(treadle_family_check_keys(reader, node, mtp_keys));
    return read_word(reader, node, "mtp", mtp_words, 0, &word);
  }
  TRY(treadle_family_check_keys(reader, node, keys));
  if (listed) {
    TRY(treadle_family_check_list(reader, node, names, "name"));
    if (!parts || parts->count != names->count || treadle_yaml_get(node, "named"))
      return treadle_family_fail(reader, node, "%zu names need as many parts, one each, and no other names",
                                 names->count);
    name = names->items[position]->text;
  } else {
    TRY(treadle_family_text_of(reader, node, "name", true, &name));
  }
  TRY(treadle_family_expand(reader, node, name, &rule->full_name));
  rule->name = rule->full_name.text;
  TRY(read_word(reader, node, "spec", spec_words, -1, &spec));
  rule->spec = spec >= 0 ? spec_words[spec] : NULL;
  TRY(treadle_family_condition(reader, node, "when", &rule->when));
  TRY(read_place(reader, node, rule->full_name.in_layer, rule));
  TRY(read_cut(reader, node, rule));
  TRY(read_parts(reader, node, listed ? (int)position : -1, rule));
  TRY(read_other_names(reader, node, rule));
  TRY(read_value(reader, node, rule));
  TRY(read_room(reader, node, rule));
out:
  return status;
}

/* ---- One section ------------------------------------------------------------------------------- */

static bool same_text(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

/* `seen` leads from a name to the last rule that has it, `before` from a rule to the one before it. */
static treadle_status check_repeat(const treadle_family_reader *reader, const treadle_yaml *node,
                                   const treadle_engine_rules *engine, int32_t position,
                                   treadle_hash_map *seen, int32_t *before) {
  const treadle_rule *rule = &engine->rules[position];
  if (!rule->name) return TREADLE_OK;
  before[position] = (int32_t)treadle_hash_map_get(seen, rule->name, -1);
  for (int32_t i = before[position]; i >= 0; i = before[i]) {
    const treadle_rule *other = &engine->rules[i];
    if (other->at == rule->at && same_text(other->when, rule->when) && same_text(other->spec, rule->spec))
      return treadle_family_fail(reader, node,
                                 "%s stands twice in %s (line %d) with the same at, when and spec",
                                 rule->name, engine->engine, other->line);
  }
  return treadle_hash_map_put(seen, rule->name, position);
}

/* Is it never a tensor of its own? */
static bool is_always_copy(const treadle_pattern *pattern) {
  return pattern->same_as >= 0 && strcmp(pattern->same_when, "true") == 0;
}

/* By pattern: is it a part of a rule under the spec? */
static bool *find_used(const treadle_family_reader *reader, const treadle_engine_rules *engine,
                       const char *spec) {
  bool *used =
      treadle_arena_alloc_array(reader->arena, (size_t)reader->family->pattern_count, sizeof *used);
  for (int32_t r = 0; used && r < engine->count; r++) {
    const treadle_rule *rule = &engine->rules[r];
    if (rule->spec && rule->spec != spec) continue;
    for (int p = 0; p < rule->nparts; p++) used[rule->parts[p].pattern] = true;
  }
  return used;
}

/* The family's file comes first, with the line of the tensor or, where a block or another family has it, the line that asks for
 * those: somebody who writes that file reads this. The spec is named where the other one has a rule, which is Megatron alone. */
static treadle_status refuse_pattern(const treadle_family_reader *reader, const treadle_yaml *node,
                                     const treadle_engine_rules *engine, const treadle_pattern *pattern,
                                     const char *spec) {
  bool own = strcmp(pattern->file, reader->path) == 0;
  return treadle_fail(
      TREADLE_REFUSED, "%s line %d: %s has no rule for %s (%s line %d)%s%s; its rules begin in %s line %d",
      reader->path, own ? pattern->line : reader->uses_line, engine->engine, pattern->name, pattern->file,
      pattern->line, spec ? " under spec " : "", spec ? spec : "", node->file, node->line);
}

/* Every pattern is a part of a rule, under each spec. */
static treadle_status check_complete(const treadle_family_reader *reader, const treadle_yaml *node,
                                     const treadle_engine_rules *engine) {
  const treadle_family *family = reader->family;
  const bool *te = find_used(reader, engine, spec_words[0]),
             *local = find_used(reader, engine, spec_words[1]);
  if (!te || !local) return treadle_family_no_memory();
  for (int32_t k = 0; k < family->pattern_count; k++)
    if ((!te[k] || !local[k]) && !is_always_copy(&family->patterns[k]))
      return refuse_pattern(reader, node, engine, &family->patterns[k],
                            te[k]      ? spec_words[1]
                            : local[k] ? spec_words[0]
                                       : NULL);
  return TREADLE_OK;
}

static treadle_status read_engine(treadle_family_reader *reader, const char *name, const treadle_yaml *list,
                                  const char *const *keys, treadle_engine_rules *engine) {
  treadle_hash_map seen = {0};
  treadle_status status = TREADLE_OK;
  engine->engine = name;
  if (list->type != TREADLE_YAML_LIST || !list->count)
    return treadle_family_fail(reader, list, "%s must be a list of rules", name);
  size_t count = 0;
  for (size_t i = 0; i < list->count; i++) count += treadle_family_count_names(list->items[i]);
  engine->rules = treadle_arena_alloc_array(reader->arena, count + 1, sizeof *engine->rules);
  int32_t *before = treadle_arena_alloc_array(reader->arena, count + 1, sizeof *before);
  if (!engine->rules || !before) return treadle_family_no_memory();
  for (size_t i = 0; i < list->count; i++) {
    const treadle_yaml *node = list->items[i];
    size_t names = treadle_family_count_names(node);
    for (size_t k = 0; k < names; k++, engine->count++) {
      TRY(read_rule(reader, node, k, keys, &engine->rules[engine->count]));
      if (engine->rules[engine->count].spec && strcmp(name, "megatron") != 0)
        TRY(treadle_family_fail(reader, node, "spec: %s has none, only megatron has", name));
      TRY(check_repeat(reader, node, engine, engine->count, &seen, before));
    }
  }
out:
  treadle_hash_map_release(&seen);
  return status;
}

treadle_status treadle_family_read_engines(treadle_family_reader *reader, const treadle_yaml *root) {
  treadle_family *family = reader->family;
  const treadle_yaml *engines = treadle_yaml_get(root, "engines"),
                     *packed = treadle_yaml_get(root, "packed");
  treadle_status status;
  if (!engines) return treadle_fail(TREADLE_REFUSED, "%s: engines is missing", reader->path);
  TRY(treadle_family_check_keys(reader, engines, engine_names));
  family->engines = treadle_arena_alloc_array(reader->arena, engines->count + 1, sizeof *family->engines);
  if (!family->engines) return treadle_family_no_memory();
  for (size_t i = 0; i < engines->count; i++) {
    TRY(read_engine(reader, engines->keys[i], engines->items[i], rule_keys, &family->engines[i]));
    TRY(check_complete(reader, engines->items[i], &family->engines[i]));
    family->engine_count++;
  }
  if (packed) TRY(read_engine(reader, "packed", packed, packed_keys, &family->packed));
out:
  return status;
}
