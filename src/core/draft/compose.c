/* The file of a draft: what it extends, where its layers and its config lie, its tensors by their own names; then what lines.c finds
 * different. */
#include "draft/draft.h"

#include "base/utf8.h"
#include "draft/lines.h"
#include "model/build.h"
#include "model/names.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Nodes -------------------------------------------------------------------------------------- */

treadle_status treadle_draft_new(treadle_draft *d, treadle_yaml_type type, treadle_yaml **node_p) {
  static const treadle_yaml nowhere = {.file = "the draft"};
  return treadle_tree_new(&d->assembly, type, d->root ? d->root : &nowhere, node_p);
}

treadle_status treadle_draft_text(treadle_draft *d, const char *text, treadle_yaml **node_p) {
  treadle_status status;
  TRY(treadle_draft_new(d, TREADLE_YAML_SCALAR, node_p));
  (*node_p)->text = treadle_arena_copy_text(d->arena, text);
  if (!(*node_p)->text) status = treadle_family_no_memory();
out:
  return status;
}

treadle_status treadle_draft_append(treadle_draft *d, treadle_yaml *list, treadle_yaml *item) {
  treadle_yaml *one;
  treadle_status status;
  TRY(treadle_draft_new(d, TREADLE_YAML_LIST, &one));
  one->items = &item;
  one->count = 1;
  TRY(treadle_tree_splice(&d->assembly, list, list->count, 0, one));
out:
  return status;
}

treadle_status treadle_draft_part(treadle_draft *d, treadle_yaml *map, const char *key,
                                  treadle_yaml_type type, treadle_yaml **part_p) {
  treadle_status status = TREADLE_OK;
  *part_p = treadle_tree_get(map, key);
  if (*part_p) return TREADLE_OK;
  TRY(treadle_draft_new(d, type, part_p));
  TRY(treadle_tree_set(&d->assembly, map, key, *part_p));
out:
  return status;
}

treadle_status treadle_draft_set(treadle_draft *d, treadle_yaml *map, const char *key, const char *text) {
  treadle_yaml *node;
  treadle_status status;
  TRY(treadle_draft_text(d, text, &node));
  TRY(treadle_tree_set(&d->assembly, map, key, node));
out:
  return status;
}

treadle_status treadle_draft_ask(treadle_draft *d, treadle_yaml *at, const char *format, ...) {
  char line[1200];
  treadle_yaml *point;
  treadle_status status = TREADLE_OK;
  va_list values;
  va_start(values, format);
  vsnprintf(line, sizeof line, format, values);
  va_end(values);
  const char *shown = treadle_text_shown(line);
  at->note = treadle_arena_format(d->arena, "%s%sTO SAY: %s", at->note ? at->note : "",
                                  at->note ? "\n" : "", shown);
  treadle_builder_add(&d->open, "%s\n", shown);
  d->open_count++;
  if (!at->note || d->open.failed) return treadle_family_no_memory();
  if (!d->to_say) TRY(treadle_draft_new(d, TREADLE_YAML_LIST, &d->to_say));
  TRY(treadle_draft_text(d, shown, &point));
  TRY(treadle_draft_append(d, d->to_say, point));
out:
  return status;
}

/* ---- Names -------------------------------------------------------------------------------------- */

/* The name in the form of the family that is extended, which may read files with other beginnings. */
static const char *restore(const treadle_draft *d, const char *name) {
  const treadle_family *like = d->like;
  for (int32_t i = 0; i < like->stored_prefix_count; i++)
    if (treadle_text_starts(name, like->stored_instead[i]))
      return treadle_arena_format(d->arena, "%s%s", like->stored_prefixes[i],
                                  name + strlen(like->stored_instead[i]));
  return name;
}

const char *treadle_draft_written(const treadle_draft *d, const treadle_draft_tensor *drafted) {
  if (drafted->in_layer) return treadle_arena_format(d->arena, "L.%s", drafted->rest);
  return restore(d, drafted->text);
}

/* The beginning of names in layers. */
static treadle_status add_prefix(treadle_draft *d) {
  const char *before = treadle_yaml_text(treadle_yaml_get(d->like_tree, "prefixes"), "L.", NULL);
  treadle_yaml *prefixes;
  treadle_status status = TREADLE_OK;
  if (!d->layer_prefix) return treadle_draft_ask(d, d->root->items[0], "no name has the number of a layer");
  const char *own = treadle_arena_format(d->arena, "%s{l}.", d->layer_prefix);
  if (own) own = restore(d, own);
  if (!own) return treadle_family_no_memory();
  if (before && strcmp(before, own) == 0) return TREADLE_OK;
  TRY(treadle_draft_part(d, d->root, "prefixes", TREADLE_YAML_MAP, &prefixes));
  TRY(treadle_draft_set(d, prefixes, "L.", own));
out:
  return status;
}

/* Tensors that are paired with one of another name. */
static treadle_status add_renamed(treadle_draft *d) {
  const treadle_draft_names names = treadle_draft_pattern_names(d);
  treadle_yaml *renamed;
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; i < d->drafted_count; i++) {
    const treadle_draft_tensor *p = &d->drafted[i];
    if (p->pattern < 0 || p->pattern >= names.count) continue;
    const char *before = names.written[p->pattern], *own = treadle_draft_written(d, p);
    if (!own) return treadle_family_no_memory();
    if (strcmp(before, own) == 0) continue;
    const char *dot = strstr(before, "."); /* N.: a prefix of MTP layers that stands for the same as L. */
    if (p->in_layer && dot && strcmp(dot + 1, p->rest) == 0 && dot - before == 1) continue;
    TRY(treadle_draft_part(d, d->root, "renamed", TREADLE_YAML_MAP, &renamed));
    TRY(treadle_draft_set(d, renamed, before, own));
  }
out:
  return status;
}

/* ---- What is not part of the language model ------------------------------------------------------ */

/* The beginning of a name up to where it leaves that of the layers; NULL: it does not. */
static const char *branch_of(const treadle_draft *d, const char *name) {
  size_t same = 0;
  for (size_t i = 0; d->layer_prefix && name[i] && name[i] == d->layer_prefix[i]; i++)
    if (name[i] == '.') same = i + 1;
  size_t length = same + strcspn(name + same, ".");
  return name[length] && strchr(name + length + 1, '.')
             ? treadle_arena_format(d->arena, "%.*s.", (int)length, name)
             : NULL;
}

static treadle_status add_carried(treadle_draft *d) {
  static const char *const words[] = {"visi", "visual", "image", "audio", "projector", "tower", NULL};
  treadle_yaml *carried, *item;
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; i < d->drafted_count; i++) {
    treadle_draft_tensor *p = &d->drafted[i];
    const char *branch = p->pattern == -1 && !p->in_layer ? branch_of(d, p->text) : NULL;
    bool other = false;
    for (int w = 0; branch && words[w]; w++) other |= strstr(branch, words[w]) != NULL;
    if (!other) continue;
    TRY(treadle_draft_part(d, d->root, "carried", TREADLE_YAML_LIST, &carried));
    TRY(treadle_draft_text(d, branch, &item));
    TRY(treadle_draft_append(d, carried, item));
    int32_t count = 0;
    for (int32_t k = i; k < d->drafted_count; k++)
      if (d->drafted[k].pattern == -1 && treadle_text_starts(d->drafted[k].text, branch)) {
        d->drafted[k].pattern = TREADLE_DRAFT_OTHERWISE;
        count += d->drafted[k].count;
      }
    TRY(treadle_draft_ask(d, carried, "%d tensors of %s are taken for no part of the language model",
                          (int)count, branch));
  }
out:
  return status;
}

/* ---- fp8 ---------------------------------------------------------------------------------------- */

/* The endings of names that have scales, where the family does not speak of them: they replace its list. */
static treadle_status add_quantised(treadle_draft *d) {
  treadle_yaml *list, *item;
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; i < d->drafted_count; i++) {
    const treadle_draft_tensor *p = &d->drafted[i];
    if (p->pattern != TREADLE_DRAFT_SCALES) continue;
    const char *name =
        treadle_arena_format(d->arena, "%.*s", (int)(strlen(p->text) - strlen("_scale_inv")), p->text);
    if (!name) return treadle_family_no_memory();
    size_t at = strlen(name);
    for (int dots = 0; at > 0 && dots < 2; at--) dots += name[at - 1] == '.';
    bool known = false;
    const treadle_yaml *own = treadle_yaml_get(d->root, "quantised");
    for (int32_t q = 0; !own && q < d->like->quantised_count && !known; q++) {
      size_t length = strlen(d->like->quantised[q]);
      known = length <= strlen(name) && strcmp(name + strlen(name) - length, d->like->quantised[q]) == 0;
    }
    for (size_t q = 0; own && q < own->count && !known; q++)
      known = strcmp(own->items[q]->text, name + at) == 0;
    if (known) continue;
    TRY(treadle_draft_part(d, d->root, "quantised", TREADLE_YAML_LIST, &list));
    for (int32_t q = 0; !own && q < d->like->quantised_count; q++) {
      TRY(treadle_draft_text(d, d->like->quantised[q], &item));
      TRY(treadle_draft_append(d, list, item));
    }
    TRY(treadle_draft_text(d, name + at, &item));
    TRY(treadle_draft_append(d, list, item));
  }
out:
  return status;
}

/* ---- The draft ---------------------------------------------------------------------------------- */

treadle_status treadle_draft_extend(treadle_draft *d) {
  const char *model_type = json_string_value(json_object_get(d->config, "model_type"));
  treadle_yaml *types, *type;
  treadle_status status;
  TRY(treadle_draft_part(d, d->root, "model_types", TREADLE_YAML_LIST, &types));
  TRY(treadle_draft_text(d, model_type, &type));
  TRY(treadle_draft_append(d, types, type));
  TRY(treadle_draft_set(d, d->root, "extends", d->like_name));
  TRY(treadle_draft_ask(
      d, treadle_tree_get(d->root, "extends"),
      "the rules of the engines are those of %s: what do their own classes of this model name, "
      "fuse and cut otherwise?",
      d->like_name));
out:
  return status;
}

treadle_status treadle_draft_begin(treadle_draft *d) {
  treadle_status status;
  if (d->inner_name && (!d->like->config || strcmp(d->like->config, d->inner_name) != 0))
    TRY(treadle_draft_set(d, d->root, "config", d->inner_name));
  TRY(add_prefix(d));
  if (d->blocks) TRY(treadle_tree_set(&d->assembly, d->root, "blocks", d->blocks));
  TRY(treadle_draft_dims(d));
  TRY(add_renamed(d));
  TRY(add_carried(d));
  TRY(add_quantised(d));
out:
  return status;
}

treadle_status treadle_draft_compose(treadle_draft *d, const treadle_model *model) {
  treadle_status status;
  TRY(treadle_draft_change(d, model));
  TRY(treadle_draft_add(d, model));
out:
  return status;
}

/* With as many MTP layers as the files have. */
static treadle_status make_model(treadle_draft *d, treadle_family *family, treadle_model **model_p) {
  int32_t mtp_layers;
  treadle_status status;
  TRY(treadle_model_of(family, d->config_path, d->config, -1, model_p));
  if (!family->mtp) goto out;
  TRY(treadle_names_mtp_layers(*model_p, d->checkpoint, &mtp_layers));
  if (mtp_layers == (*model_p)->mtp_layers) goto out;
  treadle_model_close(*model_p);
  *model_p = NULL;
  TRY(treadle_model_of(family, d->config_path, d->config, mtp_layers, model_p));
out:
  return status;
}

treadle_status treadle_draft_model(treadle_draft *d, treadle_model **model_p) {
  const char *path = treadle_arena_format(d->arena, "%s.yaml", d->name);
  const treadle_yaml *root;
  treadle_family *family;
  treadle_status status;
  if (!path) return treadle_family_no_memory();
  treadle_builder_release(&d->text);
  d->text = (treadle_builder){0};
  treadle_tree_unset(d->root, "to_say"); /* it stands last */
  if (d->to_say) TRY(treadle_tree_set(&d->assembly, d->root, "to_say", d->to_say));
  treadle_yaml_write(&d->text, d->root);
  if (d->text.failed) return treadle_family_no_memory();
  TRY(treadle_yaml_parse(path, d->text.text, d->text.length, d->arena, &root));
  TRY(treadle_family_read(path, root, d->folder, d->arena, &family));
  TRY(make_model(d, family, model_p));
out:
  return status;
}
