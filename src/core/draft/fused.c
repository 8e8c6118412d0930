/* One tensor of the checkpoint that is several of the family, one above the other: q, k and v, or gate and up. In the draft the tensor
 * stands in the place of the first, the others go, and views of it stand where rules spoke of them.
 *
 * Rows of q, k and v are counted in heads. Megatron interleaves them by groups, which such a view does not have: the draft does
 * without that engine, and says so. */
#include "draft/lines.h"

#include <string.h>

typedef struct fusion {
  treadle_role whole, parts[3];
  const char *axis;     /* of the tensor: what its parts are counted in */
  const char *views[3]; /* their names */
  const char *takes[3][2];
} fusion;

static const fusion fusions[] = {{TREADLE_IS_QKV,
                                  {TREADLE_IS_Q, TREADLE_IS_K, TREADLE_IS_V},
                                  "heads",
                                  {"q", "k", "v"},
                                  {{"0", "nh"}, {"nh", "ng"}, {"nh + ng", "ng"}}},
                                 {TREADLE_IS_GATE_UP,
                                  {TREADLE_IS_GATE, TREADLE_IS_UP, TREADLE_ROLE_UNKNOWN},
                                  "two",
                                  {"gate", "up", NULL},
                                  {{"0", "1"}, {"1", "1"}, {NULL, NULL}}}};

static const fusion *fusion_of(int32_t role) {
  for (size_t i = 0; i < sizeof fusions / sizeof *fusions; i++)
    if ((role & 1023) == (int32_t)fusions[i].whole) return &fusions[i];
  return NULL;
}

static bool has_dim(const treadle_family *family, const char *name) {
  for (int32_t i = 0; i < family->dim_count; i++)
    if (strcmp(family->dim_names[i], name) == 0) return true;
  return false;
}

/* The patterns that are parts of the drafted; false where the family has not all of them, or counts their rows otherwise. */
static bool find_parts(const treadle_family *family, const treadle_draft_tensor *p, const bool *taken,
                       int32_t *patterns) {
  const fusion *f = fusion_of(p->role);
  for (int i = 0; f && i < 3 && f->parts[i]; i++) {
    int32_t wanted = (p->role & ~1023) | (int32_t)f->parts[i], found = -1;
    for (int32_t k = 0; k < family->pattern_count; k++)
      if (!taken[k] && treadle_draft_pattern_role(family, &family->patterns[k]) == wanted) found = k;
    if (found < 0 || family->patterns[found].in_layer != p->in_layer) return false;
    patterns[i] = found;
  }
  if (!f) return false;
  if (f->whole == TREADLE_IS_GATE_UP) return true;
  return has_dim(family, "nh") && has_dim(family, "ng") && has_dim(family, "hd") &&
         strcmp(family->patterns[patterns[1]].axis_text[0], "ng") == 0 &&
         strcmp(family->patterns[patterns[1]].axis_text[1], "hd") == 0;
}

int32_t treadle_draft_pair_fused(const treadle_draft *d, const treadle_family *family, int32_t *patterns,
                                 bool *taken) {
  int32_t paired = 0;
  for (int32_t i = 0; i < d->drafted_count; i++) {
    int32_t parts[3] = {-1, -1, -1};
    if (patterns[i] != -1 || !find_parts(family, &d->drafted[i], taken, parts)) continue;
    patterns[i] = TREADLE_DRAFT_FUSED;
    for (int k = 0; k < 3 && parts[k] >= 0; k++) taken[parts[k]] = true;
    paired++;
  }
  return paired;
}

/* ---- The draft ---------------------------------------------------------------------------------- */

typedef struct fused_lines {
  treadle_draft *d;
  const fusion *fusion;
  const treadle_draft_tensor *drafted;
  const char *whole;    /* the name of the tensor in lines */
  const char *names[3]; /* of the parts, in the family's lines */
  const char *views[3];
} fused_lines;

/* The rows of the whole: "heads*hd", "two*I". */
static treadle_status shape_of(fused_lines *f, const treadle_pattern *part, treadle_yaml **shape_p) {
  treadle_draft *d = f->d;
  bool heads = f->fusion->whole == TREADLE_IS_QKV;
  treadle_yaml *item;
  treadle_status status;
  int lead = part->full_name.by_expert;
  TRY(treadle_draft_new(d, TREADLE_YAML_LIST, shape_p));
  for (int dim = lead; dim < part->ndim; dim++) {
    const char *text = dim > lead ? "" : heads ? "heads*hd" : "two";
    for (int a = 0; text && a < part->naxes; a++)
      if (part->axis_dim[a] == dim && !(heads && dim == lead))
        text = treadle_arena_format(d->arena, "%s%s%s", text, *text ? "*" : "", part->axis_text[a]);
    if (!text) return treadle_family_no_memory();
    TRY(treadle_draft_text(d, text, &item));
    TRY(treadle_draft_append(d, *shape_p, item));
  }
out:
  return status;
}

static treadle_status add_view(fused_lines *f, const treadle_pattern *pattern, int part,
                               treadle_yaml *views) {
  treadle_draft *d = f->d;
  treadle_yaml *view, *take, *range, *item, *shape;
  treadle_status status;
  TRY(treadle_draft_new(d, TREADLE_YAML_MAP, &view));
  TRY(treadle_draft_set(d, view, "name", f->views[part]));
  TRY(treadle_draft_set(d, view, "of", f->whole));
  TRY(treadle_draft_part(d, view, "take", TREADLE_YAML_MAP, &take));
  TRY(treadle_draft_part(d, take, f->fusion->axis, TREADLE_YAML_LIST, &range));
  for (int i = 0; i < 2; i++) {
    TRY(treadle_draft_text(d, f->fusion->takes[part][i], &item));
    TRY(treadle_draft_append(d, range, item));
  }
  TRY(shape_of(f, pattern, &shape));
  if (f->fusion->whole == TREADLE_IS_GATE_UP) { /* the axis is taken away: "two*I" becomes "I" */
    const char *text = shape->items[0]->text;
    TRY(treadle_draft_text(d, text + strlen("two*"), &shape->items[0]));
  }
  TRY(treadle_tree_set(&d->assembly, view, "shape", shape));
  TRY(treadle_draft_append(d, views, view));
out:
  return status;
}

/* The parts of a rule, with views in the place of what is fused; *found_p false: it has none of it. */
static treadle_status parts_of(fused_lines *f, const treadle_yaml *rule, treadle_yaml **parts_p,
                               bool *found_p) {
  const treadle_yaml *of = treadle_yaml_get(rule, "of");
  treadle_status status = TREADLE_OK;
  *found_p = false;
  if (!of || of->type != TREADLE_YAML_LIST) return TREADLE_OK;
  TRY(treadle_tree_copy(&f->d->assembly, of, parts_p));
  for (size_t i = 0; i < of->count; i++)
    for (int k = 0; k < 3 && f->names[k]; k++)
      if (strcmp(of->items[i]->text, f->names[k]) == 0) {
        (*parts_p)->items[i]->text = f->views[k];
        *found_p = true;
      }
out:
  return status;
}

static treadle_status change_rule(fused_lines *f, const char *engine, const treadle_yaml *rule,
                                  treadle_yaml *parts) {
  static const char *const keys[] = {"at", "spec", NULL};
  treadle_draft *d = f->d;
  const treadle_yaml *name = treadle_yaml_get(rule, "name");
  treadle_yaml *changes, *change, *set;
  treadle_status status;
  TRY(treadle_draft_part(d, d->root, "changes", TREADLE_YAML_LIST, &changes));
  TRY(treadle_draft_new(d, TREADLE_YAML_MAP, &change));
  TRY(treadle_draft_append(d, changes, change));
  TRY(treadle_draft_set(d, change, "in", engine));
  TRY(treadle_draft_set(d, change, "name",
                        name->type == TREADLE_YAML_LIST ? name->items[0]->text : name->text));
  for (int i = 0; keys[i]; i++)
    if (treadle_yaml_text(rule, keys[i], NULL))
      TRY(treadle_draft_set(d, change, keys[i], treadle_yaml_text(rule, keys[i], NULL)));
  TRY(treadle_draft_part(d, change, "set", TREADLE_YAML_MAP, &set));
  TRY(treadle_tree_set(&d->assembly, set, "of", parts));
out:
  return status;
}

bool treadle_draft_has_engine(const treadle_draft *d, const char *engine) {
  return strcmp(treadle_yaml_text(treadle_yaml_get(d->root, "engines"), engine, ""), "none") != 0;
}

/* Changes of rules of an engine that has gone since. */
static void remove_changes(treadle_draft *d, const char *engine) {
  treadle_yaml *changes = treadle_tree_get(d->root, "changes");
  size_t kept = 0;
  for (size_t i = 0; changes && i < changes->count; i++)
    if (strcmp(treadle_yaml_text(changes->items[i], "in", ""), engine) != 0)
      changes->items[kept++] = changes->items[i];
  if (changes) changes->count = kept;
}

/* Rules that fuse by groups cannot have views by heads: their engine goes. */
static treadle_status change_engine(fused_lines *f, const char *engine) {
  treadle_draft *d = f->d;
  const treadle_yaml *rules = treadle_tree_section(d->like_tree, engine);
  treadle_yaml *parts, *engines;
  bool found;
  treadle_status status = TREADLE_OK;
  if (!treadle_draft_has_engine(d, engine)) return TREADLE_OK;
  for (size_t i = 0; rules && i < rules->count; i++) {
    TRY(parts_of(f, rules->items[i], &parts, &found));
    if (!found || !treadle_yaml_get(rules->items[i], "fuse")) continue;
    TRY(treadle_draft_part(d, d->root, "engines", TREADLE_YAML_MAP, &engines));
    TRY(treadle_draft_set(d, engines, engine, "none"));
    remove_changes(d, engine);
    TRY(treadle_draft_ask(
        d, treadle_tree_get(engines, engine),
        "%s interleaves q, k and v by groups, which views of %s by heads do not have: it is left out",
        engine, f->drafted->text));
    return TREADLE_OK;
  }
  for (size_t i = 0; rules && i < rules->count; i++) {
    TRY(parts_of(f, rules->items[i], &parts, &found));
    if (found) TRY(change_rule(f, engine, rules->items[i], parts));
  }
out:
  return status;
}

static treadle_status add_dims(fused_lines *f) {
  treadle_yaml *dims;
  treadle_status status;
  TRY(treadle_draft_part(f->d, f->d->root, "dims", TREADLE_YAML_MAP, &dims));
  TRY(treadle_draft_set(f->d, dims, f->fusion->axis,
                        f->fusion->whole == TREADLE_IS_QKV ? "nh + 2 * ng" : "2"));
out:
  return status;
}

/* The tensor in the place of its first part, and the others away. */
static treadle_status change_tensors(fused_lines *f, const treadle_pattern *first,
                                     treadle_line_change *changes, const int32_t *patterns) {
  treadle_draft *d = f->d;
  const char *when = NULL;
  bool found = true;
  treadle_yaml *line, *shape;
  treadle_status status;
  TRY(treadle_draft_new(d, TREADLE_YAML_MAP, &line));
  TRY(treadle_draft_set(d, line, "name", f->whole));
  TRY(shape_of(f, first, &shape));
  TRY(treadle_tree_set(&d->assembly, line, "shape", shape));
  if (f->drafted->in_layer) TRY(treadle_draft_condition(d, f->drafted->layers, d->layers, &when, &found));
  if (when) TRY(treadle_draft_set(d, line, "when", when));
  if (!found)
    TRY(treadle_draft_ask(d, line, "%s stands in %d of %d layers, by no rule that is plain: when?",
                          f->drafted->text, (int)f->drafted->layer_count, (int)d->layers));
  TRY(treadle_draft_ask(d, line, "%s: are its rows those of %s%s%s, one behind the other?",
                        f->drafted->text, f->fusion->views[0], f->fusion->views[2] ? ", k and " : " and ",
                        f->fusion->views[2] ? "v" : "up"));
  if (f->drafted->shape_count > 1) TRY(treadle_draft_ask_shapes(d, line, f->drafted));
  changes[patterns[0]].line = line;
  for (int i = 0; i < 3 && f->names[i]; i++) changes[patterns[i]].drop = true;
out:
  return status;
}

treadle_status treadle_draft_fuse(treadle_draft *d, treadle_line_change *changes) {
  const treadle_draft_names names = treadle_draft_pattern_names(d);
  treadle_status status = TREADLE_OK;
  bool *taken = treadle_arena_alloc_array(d->arena, (size_t)d->like->pattern_count + 1, sizeof *taken);
  if (!names.written || !taken) return treadle_family_no_memory();
  for (int32_t i = 0; i < d->drafted_count; i++)
    if (d->drafted[i].pattern >= 0) taken[d->drafted[i].pattern] = true;
  for (int32_t i = 0; i < d->drafted_count; i++) {
    fused_lines f = {.d = d, .drafted = &d->drafted[i], .fusion = fusion_of(d->drafted[i].role)};
    int32_t patterns[3] = {-1, -1, -1};
    treadle_yaml *blocks, *block, *views;
    if (f.drafted->pattern != TREADLE_DRAFT_FUSED || !find_parts(d->like, f.drafted, taken, patterns))
      continue;
    f.whole = treadle_draft_written(d, f.drafted);
    for (int k = 0; k < 3 && patterns[k] >= 0; k++) {
      const char *last = strrchr(f.drafted->text, '.');
      bool bias = last && strcmp(last, ".bias") == 0;
      f.names[k] = names.written[patterns[k]];
      f.views[k] = treadle_arena_format(d->arena, "L.%s%s", f.fusion->views[k], bias ? "_bias" : "");
      if (!f.whole || !f.views[k]) return treadle_family_no_memory();
      taken[patterns[k]] = true;
    }
    TRY(add_dims(&f));
    TRY(treadle_draft_part(d, d->root, "blocks", TREADLE_YAML_LIST, &blocks));
    TRY(treadle_draft_new(d, TREADLE_YAML_MAP, &block));
    TRY(treadle_draft_append(d, blocks, block));
    TRY(treadle_draft_part(d, block, "views", TREADLE_YAML_LIST, &views));
    for (int k = 0; k < 3 && patterns[k] >= 0; k++)
      TRY(add_view(&f, &d->like->patterns[patterns[k]], k, views));
    TRY(change_tensors(&f, &d->like->patterns[patterns[0]], changes, patterns));
    for (int32_t e = 0; e < d->like->engine_count; e++) TRY(change_engine(&f, d->like->engines[e].engine));
  }
out:
  return status;
}
