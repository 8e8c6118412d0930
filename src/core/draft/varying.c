/* Tensors that have another shape in some layers: layer_dims, where some dims with other values explain it and a condition tells the
 * layers.
 *
 * Tensors that vary in the same axes belong together. Their layers fall into groups of the same shapes. A group has one equation for
 * each dimension of each paired tensor that is there: the product of its axes is the size. What the dims say already has to stay
 * true. As few dims as will do get other values, and what follows from them follows here as well. A group that is not explained is said in plain words. */
#include "draft/draft.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_OTHERS = 2, MOST_DIMS = 256 };

typedef struct varying {
  treadle_draft *d;
  int32_t all; /* layers, with MTP layers */
  int32_t dim_count;
  int64_t base[MOST_DIMS];     /* values of the dims */
  int32_t together[MOST_DIMS]; /* by dim: the least that varies with it */
  int32_t *members;            /* by drafted: the same of the dims that it varies in; -1: it does not */
} varying;

typedef struct other_dims { /* of one group of layers */
  int count;
  int32_t dims[MOST_OTHERS];
  int64_t values[MOST_OTHERS];
} other_dims;

/* ---- Equations ----------------------------------------------------------------------------------- */

static const treadle_pattern *pattern_of(const varying *v, const treadle_draft_tensor *p) {
  if (p->pattern < 0 || !p->in_layer || p->ndim < 0 || p->mixed) return NULL;
  const treadle_pattern *pattern = &v->d->like->patterns[p->pattern];
  return pattern->ndim == p->ndim + pattern->full_name.by_expert ? pattern : NULL;
}

/* The size of a dimension by the values of dims; -1: it has none. */
static int64_t size_of(const varying *v, const treadle_pattern *pattern, int dim, const int64_t *values) {
  int64_t size = 1;
  for (int a = 0; a < pattern->naxes; a++) {
    if (pattern->axis_dim[a] != dim + pattern->full_name.by_expert) continue;
    int64_t value = treadle_draft_axis_value(v->d, values, pattern->axis_text[a]);
    if (value < 1 || __builtin_mul_overflow(size, value, &size)) return -1;
  }
  return size;
}

static bool varies(const treadle_draft_tensor *p, int dim) {
  for (int s = 1; s < p->shape_count; s++)
    if (p->shapes[s]->shape[dim] != p->shapes[0]->shape[dim]) return true;
  return false;
}

/* The least dim of those that the tensor varies in; -1: it does not, or in no dim. */
static int32_t member_of(const varying *v, const treadle_draft_tensor *p) {
  const treadle_pattern *pattern = pattern_of(v, p);
  for (int a = 0; pattern && p->shape_count > 1 && a < pattern->naxes; a++) {
    int dim = pattern->axis_dim[a] - pattern->full_name.by_expert;
    int64_t at = treadle_draft_find_dim(v->d, v->d->dims->count, pattern->axis_text[a]);
    if (dim >= 0 && at >= 0 && varies(p, dim)) return v->together[at];
  }
  return -1;
}

static void find_together(varying *v) {
  for (int32_t i = 0; i < v->dim_count; i++) v->together[i] = i;
  for (int32_t i = 0; i < v->d->drafted_count; i++) {
    const treadle_draft_tensor *p = &v->d->drafted[i];
    const treadle_pattern *pattern = pattern_of(v, p);
    int32_t mine = member_of(v, p);
    for (int a = 0; mine >= 0 && a < pattern->naxes; a++) {
      int dim = pattern->axis_dim[a] - pattern->full_name.by_expert;
      int64_t at = treadle_draft_find_dim(v->d, v->d->dims->count, pattern->axis_text[a]);
      if (dim < 0 || at < 0 || !varies(p, dim)) continue;
      int32_t from = v->together[at], least = from < mine ? from : mine, most = from < mine ? mine : from;
      for (int32_t k = 0; k < v->dim_count; k++)
        if (v->together[k] == most) v->together[k] = least;
      mine = least;
    }
  }
}

typedef struct equations {
  const varying *v;
  int32_t member, layer;
  const int64_t *values;
  int count, hold;
  int64_t wanted, had; /* of the first that does not hold, behind `skip` others */
  int skip;
} equations;

/* Counts the equations of a layer that hold. Tensors of other members, and what was wrong before, are no business of these. */
static void count_equations(equations *e) {
  const varying *v = e->v;
  int failed = 0;
  e->count = e->hold = 0;
  e->wanted = -1;
  for (int32_t i = 0; i < v->d->drafted_count; i++) {
    const treadle_draft_tensor *p = &v->d->drafted[i];
    const treadle_pattern *pattern = pattern_of(v, p);
    if (!pattern || !p->layers[e->layer]) continue;
    const treadle_stored *stored = p->shapes[p->layers[e->layer] - 1];
    bool mine = v->members[i] == e->member;
    for (int dim = 0; dim < p->ndim; dim++) {
      if (!mine && size_of(v, pattern, dim, v->base) != stored->shape[dim]) continue;
      int64_t size = size_of(v, pattern, dim, e->values);
      e->count++;
      e->hold += size == stored->shape[dim];
      if (size == stored->shape[dim] || failed++ != e->skip) continue;
      e->wanted = stored->shape[dim];
      e->had = size;
    }
  }
}

static void set_values(const varying *v, const other_dims *others, int64_t *values) {
  int64_t fixed[MOST_DIMS];
  for (int32_t i = 0; i < v->dim_count; i++) fixed[i] = -1;
  for (int i = 0; i < others->count; i++) fixed[others->dims[i]] = others->values[i];
  treadle_draft_evaluate(v->d, fixed, values);
}

/* Dims, at most `more` besides the present ones, which explain the shapes of a layer. */
static bool solve_with(const varying *v, int32_t member, int32_t layer, other_dims *others, int more) {
  int64_t values[MOST_DIMS];
  equations now = {.v = v, .member = member, .layer = layer, .values = values};
  set_values(v, others, values);
  count_equations(&now);
  int wrong = now.count - now.hold;
  if (!wrong || !more) return !wrong;
  for (int32_t dim = 0; dim < v->dim_count; dim++) {
    int64_t last = values[dim];
    bool had = false;
    for (int i = 0; i < others->count; i++) had |= others->dims[i] == dim;
    for (now.skip = 0; now.skip < wrong && !had; now.skip++) {
      int64_t value = values[dim];
      count_equations(&now);
      if (value < 1 || now.had < 1 || __builtin_mul_overflow(value, now.wanted, &value) ||
          value % now.had != 0 || value / now.had == last || value / now.had == values[dim])
        continue;
      last = value / now.had;
      others->dims[others->count] = dim;
      others->values[others->count++] = last;
      if (solve_with(v, member, layer, others, more - 1)) return true;
      others->count--;
    }
  }
  return false;
}

/* As few dims as explain the shapes; those that stand first in the family. *found_p false: there are none; no others: the dims do as
 * they are. */
static void solve(const varying *v, int32_t member, int32_t layer, other_dims *others, bool *found_p) {
  *found_p = false;
  for (int more = 0; more <= MOST_OTHERS && !*found_p; more++) {
    *others = (other_dims){0};
    *found_p = solve_with(v, member, layer, others, more);
  }
}

/* ---- The draft ----------------------------------------------------------------------------------- */

/* The word of "l in FIELD.WORD", or the first dim and its value. */
static const char *mark_of(const varying *v, const char *when, const other_dims *others) {
  const char *dot = strncmp(when, "l in ", 5) == 0 ? strrchr(when, '.') : NULL;
  if (dot && treadle_word_length(dot + 1) == strlen(dot + 1)) return dot + 1;
  return treadle_arena_format(v->d->arena, "%s%" PRId64, v->d->dims->keys[others->dims[0]],
                              others->values[0]);
}

static treadle_status add_entry(const varying *v, const char *when, const other_dims *others) {
  treadle_draft *d = v->d;
  treadle_yaml *entries, *entry, *dims;
  treadle_status status;
  const char *mark = mark_of(v, when, others);
  if (!mark) return treadle_family_no_memory();
  TRY(treadle_draft_part(d, d->root, "layer_dims", TREADLE_YAML_MAP, &entries));
  while ((entry = treadle_tree_get(entries, mark)) &&
         strcmp(treadle_yaml_text(entry, "when", ""), when) != 0)
    if (!(mark = treadle_arena_format(d->arena, "%s_", mark))) return treadle_family_no_memory();
  TRY(treadle_draft_part(d, entries, mark, TREADLE_YAML_MAP, &entry));
  TRY(treadle_draft_set(d, entry, "when", when));
  TRY(treadle_draft_part(d, entry, "dims", TREADLE_YAML_MAP, &dims));
  for (int i = 0; i < others->count; i++) {
    const char *name = d->dims->keys[others->dims[i]], *field = NULL,
               *number = treadle_arena_format(d->arena, "%" PRId64, others->values[i]);
    int fields = treadle_draft_fields_of(d, others->values[i], &field);
    if (!number) return treadle_family_no_memory();
    const char *dot = strrchr(when, '.');
    bool listed = dot && strcmp(dot + 1, number) == 0; /* the list has the number itself */
    TRY(treadle_draft_set(d, dims, name, fields && !listed ? field : number));
    if (fields != 1 && !listed)
      TRY(treadle_draft_ask(d, entry, "%s is %s in these layers, by the shapes: %s", name, number,
                            fields ? "several fields have it" : "of which field?"));
  }
  if (strstr(when, "l == ") || strstr(when, "l != "))
    TRY(treadle_draft_ask(d, entry, "these layers have other sizes (%s), by no rule that is plain: when?",
                          when));
out:
  return status;
}

/* The layers with the shapes that `layer` has. */
static bool same_shapes(const varying *v, int32_t member, int32_t layer, int32_t other) {
  for (int32_t i = 0; i < v->d->drafted_count; i++) {
    const treadle_draft_tensor *p = &v->d->drafted[i];
    if (v->members[i] == member && p->layers[layer] != p->layers[other]) return false;
  }
  return true;
}

static bool same_dims(const other_dims *a, const other_dims *b) {
  bool same = a->count == b->count;
  for (int i = 0; same && i < a->count; i++)
    same = a->dims[i] == b->dims[i] && a->values[i] == b->values[i];
  return same;
}

/* All layers of what varies together. Entries are made when each layer is explained. */
static treadle_status explain(const varying *v, int32_t member) {
  enum { MOST_ENTRIES = 16, MOST_GROUPS = 64 };
  treadle_draft *d = v->d;
  other_dims found[MOST_ENTRIES];
  const char *whens[MOST_ENTRIES];
  int32_t firsts[MOST_GROUPS], groups = 0; /* a layer of each: those of one have the same shapes */
  int count = 0;
  treadle_status status = TREADLE_OK;
  uint8_t *which = treadle_arena_alloc(d->arena, (size_t)v->all + 1), /* by layer: 1 + its entry */
      *layers = treadle_arena_alloc(d->arena, (size_t)v->all + 1);
  if (!which || !layers) return treadle_family_no_memory();
  for (int32_t l = 0; l < d->layers && l < v->all; l++) {
    other_dims others;
    bool explained;
    int32_t before = 0;
    while (before < groups && !same_shapes(v, member, firsts[before], l)) before++;
    if (before < groups) {
      which[l] = which[firsts[before]];
      continue;
    }
    if (groups == MOST_GROUPS) return TREADLE_OK;
    firsts[groups++] = l;
    solve(v, member, l, &others, &explained);
    if (!explained) return TREADLE_OK;
    if (!others.count) continue;
    int at = 0;
    while (at < count && !same_dims(&found[at], &others)) at++;
    if (at == MOST_ENTRIES) return TREADLE_OK;
    if (at == count) found[count++] = others;
    which[l] = (uint8_t)(at + 1);
  }
  for (int i = 0; i < count; i++) {
    bool plain;
    for (int32_t l = 0; l < v->all; l++) layers[l] = which[l] == i + 1;
    plain = treadle_draft_list_of(d, layers, v->all, found[i].values[0], &whens[i]);
    if (!plain) TRY(treadle_draft_condition(d, layers, v->all, &whens[i], &plain));
    if (!plain) return TREADLE_OK;
  }
  for (int i = 0; i < count; i++) TRY(add_entry(v, whens[i] ? whens[i] : "true", &found[i]));
  for (int32_t i = 0; i < d->drafted_count; i++)
    if (v->members[i] == member) d->drafted[i].explained = true;
out:
  return status;
}

treadle_status treadle_draft_vary(treadle_draft *d, const treadle_model *model) {
  varying v = {.d = d, .all = model->layers + model->mtp_layers};
  treadle_status status = TREADLE_OK;
  for (int32_t k = 0; k < d->like->pattern_count; k++)
    for (int32_t other = 0; other < k; other++) /* it has layer_dims of its own */
      if (treadle_draft_is_twin(d->like, k, other)) return TREADLE_OK;
  if (d->dims->count > MOST_DIMS) return TREADLE_OK;
  v.dim_count = (int32_t)d->dims->count;
  treadle_draft_evaluate(d, NULL, v.base);
  find_together(&v);
  v.members = treadle_arena_alloc_array(d->arena, (size_t)d->drafted_count + 1, sizeof *v.members);
  if (!v.members) return treadle_family_no_memory();
  for (int32_t i = 0; i < d->drafted_count; i++) v.members[i] = member_of(&v, &d->drafted[i]);
  for (int32_t member = 0; member < v.dim_count; member++) {
    bool any = false;
    for (int32_t i = 0; i < d->drafted_count && !any; i++) any = v.members[i] == member;
    if (any) TRY(explain(&v, member));
  }
out:
  return status;
}
