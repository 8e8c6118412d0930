/* Changes of the family's lines: tensors that are not there get `when: false`, so that their rules go, too; others get the layers and
 * the shape that the checkpoint has. A line of several names is taken apart where they are not all alike. */
#include "draft/lines.h"

#include <string.h>

treadle_draft_names treadle_draft_pattern_names(const treadle_draft *d) {
  treadle_draft_names names = {0};
  const treadle_yaml *tensors = treadle_yaml_get(d->like_tree, "tensors");
  const char **written =
      treadle_arena_alloc_array(d->arena, (size_t)d->like->pattern_count + 1, sizeof *written);
  for (size_t i = 0; written && i < tensors->count; i++) {
    const treadle_yaml *name = treadle_yaml_get(tensors->items[i], "name");
    for (size_t k = 0; k < treadle_family_count_names(tensors->items[i]); k++)
      written[names.count++] = name->type == TREADLE_YAML_LIST ? name->items[k]->text : name->text;
  }
  names.written = written;
  return names;
}

/* ---- What is different --------------------------------------------------------------------------- */

static bool has_own(const treadle_model *model, int32_t pattern, int32_t layer) {
  int32_t tensor = treadle_model_find(model, pattern, layer);
  return tensor >= 0 && model->tensors[tensor].pattern == pattern;
}

/* A tensor that the model expects, if only as a copy. */
static bool is_expected(const treadle_model *model, int32_t pattern, bool own) {
  for (int32_t l = -1; l < model->layers + model->mtp_layers; l++)
    if (own ? has_own(model, pattern, l) : treadle_model_find(model, pattern, l) >= 0) return true;
  return false;
}

/* The tensor of a pattern in a layer, or of one of the same name that is there in its place; -1: none. */
static int32_t find_tensor(const treadle_draft *d, const treadle_model *model, int32_t pattern,
                           int32_t layer) {
  for (int32_t k = 0; k < d->like->pattern_count; k++) {
    int32_t tensor = treadle_draft_is_twin(d->like, k, pattern) ? treadle_model_find(model, k, layer) : -1;
    if (tensor >= 0) return tensor;
  }
  return -1;
}

/* Has the model the shapes of all layers, by layer_dims that the family has? */
static bool has_shapes(const treadle_draft *d, const treadle_model *model, int32_t pattern,
                       const treadle_draft_tensor *p) {
  for (int32_t l = 0; l < d->layers; l++) {
    int32_t tensor = p->layers[l] ? find_tensor(d, model, pattern, l) : -1;
    if (!p->layers[l]) continue;
    if (tensor < 0) return false;
    const treadle_tensor *own = &model->tensors[tensor];
    const treadle_stored *stored = p->shapes[p->layers[l] - 1];
    if (own->ndim - own->by_expert != stored->ndim ||
        memcmp(own->shape + own->by_expert, stored->shape, (size_t)stored->ndim * sizeof *stored->shape) !=
            0)
      return false;
  }
  return !p->mixed;
}

static treadle_status find_layers(treadle_draft *d, const treadle_model *model, int32_t pattern,
                                  const treadle_draft_tensor *p, treadle_line_change *change) {
  bool apart = d->like->patterns[pattern].full_name.mtp != NULL; /* MTP layers have names of their own */
  int32_t all = model->layers + (apart ? 0 : model->mtp_layers), differ = 0;
  bool found;
  treadle_status status = TREADLE_OK;
  uint8_t *layers = treadle_arena_alloc(d->arena, (size_t)all + 1);
  if (!layers) return treadle_family_no_memory();
  for (int32_t l = 0; l < all; l++) {
    layers[l] = l < d->layers && p->layers[l];
    differ += layers[l] != (find_tensor(d, model, pattern, l) >= 0);
  }
  if (!differ) return TREADLE_OK;
  TRY(treadle_draft_condition(d, layers, all, &change->when, &found));
  change->has_when = found;
  if (!found)
    TRY(treadle_draft_ask(d, d->root->items[0],
                          "%s stands in %d of %d layers, by no rule that is plain: when?", p->text,
                          (int)p->layer_count, (int)all));
out:
  return status;
}

static bool has_shape(const treadle_model *model, int32_t pattern, const treadle_draft_tensor *p) {
  const treadle_tensor *tensor = &model->tensors[model->first_tensor[pattern]];
  int lead = tensor->by_expert;
  return p->ndim < 0 || (tensor->ndim - lead == p->ndim &&
                         memcmp(tensor->shape + lead, p->shape, (size_t)p->ndim * sizeof *p->shape) == 0);
}

/* Another shape in a dimension of several axes, which rules fuse and cut by, is not a change: the dims are not what they should be. */
static treadle_status compare_shape(treadle_draft *d, const treadle_model *model, int32_t pattern,
                                    const treadle_draft_tensor *p, treadle_line_change *change) {
  const treadle_tensor *tensor = &model->tensors[model->first_tensor[pattern]];
  change->has_shape = !has_shape(model, pattern, p);
  for (int i = 0; change->has_shape && i < p->ndim && i + tensor->by_expert < tensor->ndim; i++) {
    int axes = 0, dim = i + tensor->by_expert;
    for (int a = 0; a < tensor->naxes; a++) axes += tensor->axis_dim[a] == dim;
    if (axes < 2 || tensor->shape[dim] == p->shape[i]) continue;
    change->has_shape = false;
    return treadle_draft_ask(
        d, d->root->items[0],
        "%s has %lld in dimension %d, and %lld by the dims of %s: which of them are others?", p->text,
        (long long)p->shape[i], i, (long long)tensor->shape[dim], d->like_name);
  }
  return TREADLE_OK;
}

static treadle_status compare_kind(treadle_draft *d, const treadle_model *model, int32_t pattern,
                                   treadle_line_change *change) {
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; i < d->drafted_count; i++)
    if (d->drafted[i].pattern == pattern) change->drafted = &d->drafted[i];
  const treadle_draft_tensor *p = change->drafted;
  if (!p) {
    change->has_when = !d->taken[pattern] && is_expected(model, pattern, true);
    change->when = "false";
    for (int32_t i = 0; i < d->drafted_count; i++)
      change->asks |= change->has_when && !d->like->patterns[pattern].when && d->drafted[i].pattern == -1;
    return TREADLE_OK;
  }
  if (!is_expected(model, pattern, false)) {
    change->has_when = true; /* by a condition on the config */
    if (p->in_layer && p->layer_count < model->layers) TRY(find_layers(d, model, pattern, p, change));
    return TREADLE_OK;
  }
  if (p->in_layer) TRY(find_layers(d, model, pattern, p, change));
  if (p->shape_count > 1 && has_shapes(d, model, pattern, p)) return TREADLE_OK;
  TRY(compare_shape(d, model, pattern, p, change));
  if (p->shape_count > 1 && !p->explained) TRY(treadle_draft_ask_shapes(d, d->root->items[0], p));
  if (p->by_expert && model->experts && p->experts != model->experts)
    TRY(treadle_draft_ask(d, d->root->items[0], "%s has %d experts, the config %lld", p->text,
                          (int)p->experts, (long long)model->experts));
out:
  return status;
}

/* ---- Changes ------------------------------------------------------------------------------------- */

/* Puts what is different into the keys of a line. */
static treadle_status put_change(treadle_draft *d, const treadle_model *model,
                                 const treadle_line_change *change, treadle_yaml *at, treadle_yaml *line) {
  treadle_yaml *shape;
  treadle_status status = TREADLE_OK;
  if (change->has_when && change->when) TRY(treadle_draft_set(d, line, "when", change->when));
  if (change->asks)
    TRY(treadle_draft_ask(d, at, "%s of %s is not there: is it a new one by another name (renamed)?",
                          treadle_yaml_text(line, "name", treadle_yaml_text(at, "name", "")),
                          d->like_name));
  if (change->has_shape) {
    TRY(treadle_draft_shape(d, model, change->drafted, at, &shape));
    TRY(treadle_tree_set(&d->assembly, line, "shape", shape));
    TRY(treadle_draft_ask(d, at,
                          "%s has another shape than in %s: do its rules still cut what they should?",
                          change->drafted->text, d->like_name));
  }
out:
  return status;
}

/* One name of a line as a line of its own. */
static treadle_status single_line(treadle_draft *d, const treadle_yaml *line, const char *name,
                                  treadle_yaml **single_p) {
  treadle_status status;
  TRY(treadle_tree_copy(&d->assembly, line, single_p));
  TRY(treadle_draft_set(d, *single_p, "name", name));
out:
  return status;
}

/* The change of a line with one name; *nothing_p: there is none to make. */
static treadle_status change_single(treadle_draft *d, const treadle_model *model, const treadle_yaml *line,
                                    const treadle_line_change *change, treadle_yaml *node,
                                    bool *nothing_p) {
  bool unset = change->has_when && !change->when && treadle_yaml_get(line, "when");
  treadle_yaml *set, *list, *item;
  treadle_status status;
  if (change->line) {
    node->note = change->line->note;
    change->line->note = NULL;
    TRY(treadle_draft_part(d, node, "instead", TREADLE_YAML_LIST, &list));
    return treadle_draft_append(d, list, change->line);
  }
  if (change->drop) return treadle_draft_set(d, node, "drop", "true");
  TRY(treadle_draft_new(d, TREADLE_YAML_MAP, &set));
  TRY(put_change(d, model, change, node, set));
  if (set->count) TRY(treadle_tree_set(&d->assembly, node, "set", set));
  *nothing_p = !set->count && !unset; /* a condition goes that is not there */
  if (!unset) return TREADLE_OK;
  TRY(treadle_draft_part(d, node, "unset", TREADLE_YAML_LIST, &list));
  TRY(treadle_draft_text(d, "when", &item));
  TRY(treadle_draft_append(d, list, item));
out:
  return status;
}

/* Of a line with several names, each that stays gets its own. */
static treadle_status change_several(treadle_draft *d, const treadle_model *model, const treadle_yaml *line,
                                     const char *const *names, const treadle_line_change *changes,
                                     treadle_yaml *node) {
  treadle_yaml *list, *single;
  treadle_status status;
  TRY(treadle_draft_new(d, TREADLE_YAML_LIST, &list));
  for (size_t i = 0; i < treadle_family_count_names(line); i++) {
    if (changes[i].line) TRY(treadle_draft_append(d, list, changes[i].line));
    if (changes[i].drop) continue;
    TRY(single_line(d, line, names[i], &single));
    if (changes[i].has_when && !changes[i].when) treadle_tree_unset(single, "when");
    TRY(put_change(d, model, &changes[i], node, single));
    TRY(treadle_draft_append(d, list, single));
  }
  if (!list->count) return treadle_draft_set(d, node, "drop", "true");
  TRY(treadle_tree_set(&d->assembly, node, "instead", list));
out:
  return status;
}

static treadle_status change_line(treadle_draft *d, const treadle_model *model, const treadle_yaml *line,
                                  const char *const *names, const treadle_line_change *changes) {
  size_t count = treadle_family_count_names(line);
  bool any = false, nothing = false;
  treadle_yaml *list, *node;
  treadle_status status;
  if (strchr(names[0], '@'))
    return TREADLE_OK; /* made of a line before it by layer_dims, with its changes */
  for (size_t i = 0; i < count; i++) any |= changes[i].has_when || changes[i].has_shape || changes[i].drop;
  if (!any) return TREADLE_OK;
  TRY(treadle_draft_new(d, TREADLE_YAML_MAP, &node));
  TRY(treadle_draft_set(d, node, "in", "tensors"));
  TRY(treadle_draft_set(d, node, "name", names[0]));
  if (count == 1)
    TRY(change_single(d, model, line, &changes[0], node, &nothing));
  else
    TRY(change_several(d, model, line, names, changes, node));
  if (nothing) return TREADLE_OK;
  TRY(treadle_draft_part(d, d->root, "changes", TREADLE_YAML_LIST, &list));
  TRY(treadle_draft_append(d, list, node));
out:
  return status;
}

treadle_status treadle_draft_change(treadle_draft *d, const treadle_model *model) {
  const treadle_yaml *tensors = treadle_yaml_get(d->like_tree, "tensors");
  const treadle_draft_names names = treadle_draft_pattern_names(d);
  treadle_line_change *changes =
      treadle_arena_alloc_array(d->arena, (size_t)names.count + 1, sizeof *changes);
  treadle_status status = TREADLE_OK;
  if (!names.written || !changes) return treadle_family_no_memory();
  for (int32_t k = 0; k < names.count; k++) TRY(compare_kind(d, model, k, &changes[k]));
  TRY(treadle_draft_fuse(d, changes));
  for (size_t i = 0, k = 0; i < tensors->count; i++) {
    TRY(change_line(d, model, tensors->items[i], names.written + k, changes + k));
    k += treadle_family_count_names(tensors->items[i]);
  }
out:
  return status;
}
