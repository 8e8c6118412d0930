/* Biases that the family does not have, of matrices that it has: engines fuse and cut them as the matrices, but that nothing is cut
 * where the matrix is cut by columns. So a rule for them follows from that of the matrix. */
#include "draft/lines.h"

#include <string.h>

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), size = strlen(end);
  return length > size && strcmp(text + length - size, end) == 0;
}

/* "x.weight" to "x.bias", "layer_norm_weight" to "layer_norm_bias"; NULL: it is not such a name, or memory is out. */
static const char *bias_name(const treadle_draft *d, const char *name) {
  size_t length = strlen(name), size = strlen("weight");
  if (!ends_with(name, ".weight") && !ends_with(name, "_weight")) return NULL;
  return treadle_arena_format(d->arena, "%.*sbias", (int)(length - size), name);
}

/* The drafted of a new bias whose matrix the family knows by this name; NULL: none. */
static const treadle_draft_tensor *find_bias(const treadle_draft *d, const treadle_draft_names *names,
                                             const char *matrix) {
  for (int32_t i = 0; i < d->drafted_count; i++) {
    const treadle_draft_tensor *p = &d->drafted[i];
    if (p->pattern < 0 || p->pattern >= names->count || strcmp(names->written[p->pattern], matrix) != 0)
      continue;
    const char *name = bias_name(d, p->text);
    for (int32_t k = 0; name && k < d->drafted_count; k++)
      if (d->drafted[k].pattern == -1 && strcmp(d->drafted[k].text, name) == 0) return &d->drafted[k];
  }
  return NULL;
}

/* Makes the rule for biases out of one part, or all parts, of the rule of their matrices. */
static treadle_status make_rule(treadle_draft *d, const treadle_yaml *matrix, const char *name,
                                treadle_yaml *parts, treadle_yaml **rule_p) {
  treadle_status status;
  TRY(treadle_tree_copy(&d->assembly, matrix, rule_p));
  TRY(treadle_draft_set(d, *rule_p, "name", name));
  TRY(treadle_tree_set(&d->assembly, *rule_p, "of", parts));
  if (strcmp(treadle_yaml_text(matrix, "cut", ""), "cols") == 0) {
    treadle_tree_unset(*rule_p, "cut");
    treadle_tree_unset(*rule_p, "over");
  }
out:
  return status;
}

/* The rule of a matrix as one for its bias: `first` of its biases asks. NULL rule: they are not all there, or it is another's. */
static treadle_status rule_from(treadle_draft *d, const treadle_yaml *matrix,
                                const treadle_draft_tensor *first, treadle_yaml **rule_p, bool *known_p) {
  const treadle_draft_names names = treadle_draft_pattern_names(d);
  const treadle_yaml *of = treadle_yaml_get(matrix, "of"), *name = treadle_yaml_get(matrix, "name");
  treadle_yaml *parts, *part;
  treadle_status status = TREADLE_OK;
  bool several = name && name->type == TREADLE_YAML_LIST, mine = false;
  if (!names.written) return treadle_family_no_memory();
  if (!of || !name || of->type != TREADLE_YAML_LIST || treadle_yaml_get(matrix, "derived"))
    return TREADLE_OK;
  TRY(treadle_draft_new(d, TREADLE_YAML_LIST, &parts));
  const char *storage = several ? NULL : bias_name(d, name->text);
  const treadle_draft_tensor *leader = NULL;
  for (size_t i = 0; i < of->count; i++) {
    const treadle_draft_tensor *bias = find_bias(d, &names, of->items[i]->text);
    if (!bias && !several) return TREADLE_OK;
    if (!bias || (several && bias != first)) continue;
    if (several && i < name->count) storage = bias_name(d, name->items[i]->text);
    const char *own = treadle_draft_written(d, bias);
    if (!own) return treadle_family_no_memory();
    TRY(treadle_draft_text(d, own, &part));
    TRY(treadle_draft_append(d, parts, part));
    if (!leader) leader = bias;
    mine |= bias == first;
  }
  if (!mine || !storage || (!several && strchr(name->text, '*'))) return TREADLE_OK;
  *known_p = true;
  if (leader == first) TRY(make_rule(d, matrix, storage, parts, rule_p));
out:
  return status;
}

treadle_status treadle_draft_bias_rules(treadle_draft *d, const treadle_draft_tensor *p, const char *engine,
                                        treadle_yaml *rules, bool *known_p) {
  const treadle_yaml *matrices = treadle_tree_section(d->like_tree, engine);
  treadle_status status = TREADLE_OK;
  *known_p = false;
  for (size_t i = 0; ends_with(p->text, ".bias") && matrices && i < matrices->count; i++) {
    treadle_yaml *rule = NULL;
    TRY(rule_from(d, matrices->items[i], p, &rule, known_p));
    if (rule) TRY(treadle_draft_append(d, rules, rule));
  }
out:
  return status;
}
