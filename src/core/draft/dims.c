/* The dims of the family that is extended, for this config: fields by other names; then what shapes say, where no name tells: a
 * tensor that is paired with a line of the family has the sizes that the line's dims must have; then what is said by the tensors that
 * are there. */
#include "draft/draft.h"

#include "base/json.h"
#include "base/text.h"
#include "family/expr.h"
#include "model/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- Values ------------------------------------------------------------------------------------- */

typedef struct dim_values {
  treadle_draft *d;
  size_t known;         /* how many dims may be used, from the first one on */
  int64_t *values;      /* -1: it has none, a field is absent */
  const int64_t *fixed; /* what some are without a question, else -1; NULL: none */
} dim_values;

int64_t treadle_draft_find_dim(const treadle_draft *d, size_t known, const char *name) {
  for (size_t i = 0; i < known; i++)
    if (strcmp(d->dims->keys[i], name) == 0) return (int64_t)i;
  return -1;
}

int64_t treadle_draft_axis_value(const treadle_draft *d, const int64_t *values, const char *axis) {
  int64_t dim = treadle_draft_find_dim(d, d->dims->count, axis), number;
  if (dim >= 0) return values[dim];
  return treadle_text_to_int64(axis, &number) ? number : -1;
}

static treadle_status look_up(void *context, const char *name, const int64_t *member, int64_t *value_p,
                              bool *found_p) {
  dim_values *v = context;
  int64_t dim = member ? -1 : treadle_draft_find_dim(v->d, v->known, name);
  bool is_member = false;
  *found_p = false;
  if (dim >= 0) {
    *value_p = v->values[dim];
    *found_p = *value_p >= 0;
  } else if (!member) {
    *found_p = treadle_draft_field(v->d, name, value_p);
  } else if (treadle_config_member(v->d->inner, name, *member, &is_member, found_p) == TREADLE_OK) {
    *value_p = is_member;
  }
  return TREADLE_OK;
}

static void evaluate(dim_values *v) {
  for (v->known = 0; v->known < v->d->dims->count; v->known++) {
    int64_t value = v->fixed ? v->fixed[v->known] : -1;
    if (value < 0 &&
        treadle_expr_evaluate("", v->d->dims->items[v->known]->text, look_up, v, &value) != TREADLE_OK)
      value = -1;
    v->values[v->known] = value;
  }
}

void treadle_draft_evaluate(treadle_draft *d, const int64_t *fixed, int64_t *values) {
  dim_values v = {.d = d, .values = values, .fixed = fixed};
  evaluate(&v);
}

/* Replaces each word `from` of an expression. */
static treadle_status replace_word(treadle_draft *d, const char **text_p, const char *from,
                                   const char *to) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  treadle_builder text = {0};
  for (const char *c = *text_p; *c;) {
    size_t length = strspn(c, letters);
    bool same = length == strlen(from) && strncmp(c, from, length) == 0;
    treadle_builder_add(&text, "%.*s", (int)(same ? strlen(to) : length ? length : 1), same ? to : c);
    c += length ? length : 1;
  }
  *text_p = text.failed ? NULL : treadle_arena_copy_text(d->arena, text.text ? text.text : "");
  treadle_builder_release(&text);
  return *text_p ? TREADLE_OK : treadle_family_no_memory();
}

typedef struct dim_fields {
  treadle_draft *d;
  const dim_values *values;
  const char *text; /* with fields of this config */
  bool changed;
} dim_fields;

static treadle_status visit_field(void *context, const char *name) {
  dim_fields *f = context;
  if (treadle_draft_find_dim(f->d, f->values->known, name) >= 0 || treadle_draft_has_field(f->d, name))
    return TREADLE_OK;
  const char *other = treadle_draft_other_field(f->d, name);
  if (!other) return TREADLE_OK;
  f->changed = true;
  return replace_word(f->d, &f->text, name, other);
}

static treadle_status set_dim(dim_values *v, size_t dim, const char *text, treadle_yaml **node_p) {
  treadle_draft *d = v->d;
  treadle_yaml *dims;
  treadle_status status;
  TRY(treadle_draft_part(d, d->root, "dims", TREADLE_YAML_MAP, &dims));
  TRY(treadle_draft_set(d, dims, v->d->dims->keys[dim], text));
  *node_p = treadle_tree_get(dims, v->d->dims->keys[dim]);
  v->d->dims->items[dim] = *node_p;
out:
  return status;
}

/* Does the dim alone say whether some tensors are there? Their names then say more than other fields. */
static bool is_presence(const dim_values *v, const char *dim) {
  const treadle_family *like = v->d->like;
  for (int32_t k = 0; k < like->pattern_count; k++)
    if (like->patterns[k].when && strcmp(like->patterns[k].when, dim) == 0) return true;
  return false;
}

/* Fields by other names. */
static treadle_status use_other_fields(dim_values *v) {
  treadle_status status = TREADLE_OK;
  treadle_yaml *node;
  for (v->known = 0; v->known < v->d->dims->count; v->known++) {
    dim_fields f = {.d = v->d, .values = v, .text = v->d->dims->items[v->known]->text};
    if (is_presence(v, v->d->dims->keys[v->known])) continue;
    TRY(treadle_expr_check("dims", f.text, visit_field, &f));
    if (f.changed) TRY(set_dim(v, v->known, f.text, &node));
  }
out:
  return status;
}

/* ---- What shapes say ----------------------------------------------------------------------------- */

static bool follows_from(const dim_values *v, const char *axis, const char *dim) {
  int64_t at = treadle_draft_find_dim(v->d, v->known, axis);
  return at >= 0 && treadle_expr_names(v->d->dims->items[at]->text, dim);
}

/* The size that a dimension of a paired tensor wants of an axis: of its last one, or with `any` of one that no other axis of it
 * follows from; -1: nothing. */
static int64_t wanted_of(const dim_values *v, const treadle_pattern *pattern, const treadle_draft_tensor *p,
                         int dim, size_t wanted_dim, bool any) {
  const char *wanted = v->d->dims->keys[wanted_dim];
  int64_t others = 1, size = p->shape[dim - pattern->full_name.by_expert];
  bool found = false, last = false;
  for (int a = 0; a < pattern->naxes; a++) {
    if (pattern->axis_dim[a] != dim) continue;
    last = strcmp(pattern->axis_text[a], wanted) == 0;
    if (last && found) return -1;
    found |= last;
    if (last) continue;
    int64_t value = treadle_draft_axis_value(v->d, v->values, pattern->axis_text[a]);
    if (any && follows_from(v, pattern->axis_text[a], wanted)) return -1;
    if (value < 1 || __builtin_mul_overflow(others, value, &others)) return -1;
  }
  return found && (last || any) && size % others == 0 ? size / others : -1;
}

/* Does the dim ask for a field that is not a number here, such as a list with one for each layer? */
static bool asks_no_number(const dim_values *v, size_t dim) {
  const char *key;
  json_t *field;
  json_object_foreach(
      v->d->inner, key,
      field) if ((json_is_array(field) || treadle_json_is_object(field) || json_is_string(field)) &&
                 treadle_expr_names(v->d->dims->items[dim]->text, key)) return true;
  return false;
}

enum { MOST_VOTES = 16 };

typedef struct size_votes {
  int64_t sizes[MOST_VOTES];
  int counts[MOST_VOTES], count;
} size_votes;

static void vote(size_votes *votes, int64_t size) {
  int i = 0;
  while (i < votes->count && votes->sizes[i] != size) i++;
  if (i == MOST_VOTES) return;
  if (i == votes->count) votes->sizes[votes->count++] = size;
  votes->counts[i]++;
}

/* The value that most paired tensors want of a dim, where it has another one, or none; -1: it will do. */
static int64_t wanted_value(const dim_values *v, size_t dim, bool any) {
  size_votes votes = {0};
  for (int32_t i = 0; i < v->d->drafted_count; i++) {
    const treadle_draft_tensor *p = &v->d->drafted[i];
    if (p->pattern < 0 || p->ndim < 0 || p->mixed) continue;
    const treadle_pattern *pattern = &v->d->like->patterns[p->pattern];
    if (pattern->ndim != p->ndim + pattern->full_name.by_expert) continue;
    for (int k = pattern->full_name.by_expert; k < pattern->ndim; k++) {
      int64_t wanted = wanted_of(v, pattern, p, k, dim, any);
      if (wanted > 0) vote(&votes, wanted);
    }
  }
  int best = -1;
  for (int i = 0; i < votes.count; i++)
    if (best < 0 || votes.counts[i] > votes.counts[best] ||
        (votes.counts[i] == votes.counts[best] && votes.sizes[i] == v->values[dim]))
      best = i;
  return best < 0 || votes.sizes[best] == v->values[dim] ? -1 : votes.sizes[best];
}

/* Gives a dim the value that it has to have: a field's, else the number. */
static treadle_status settle_dim(dim_values *v, size_t dim, int64_t value) {
  const char *name = v->d->dims->keys[dim], *before = v->d->dims->items[dim]->text, *field = NULL;
  int count = treadle_draft_fields_of(v->d, value, &field);
  treadle_yaml *node;
  treadle_status status;
  char number[32];
  snprintf(number, sizeof number, "%" PRId64, value);
  TRY(set_dim(v, dim, count ? field : number, &node));
  if (count != 1)
    TRY(treadle_draft_ask(v->d, node,
                          count ? "%s is %s by the shapes (%s of the family is not): %d fields have it"
                                : "%s is %s by the shapes (%s of the family is not): of which field?",
                          name, number, before, count));
out:
  return status;
}

/* Dims that have no value in this config, or another one than the shapes say. */
static treadle_status use_shapes(dim_values *v) {
  treadle_status status = TREADLE_OK;
  for (size_t dim = 0; dim < v->d->dims->count; dim++) {
    evaluate(v);
    bool no_number = asks_no_number(v, dim);
    int64_t wanted = wanted_value(v, dim, no_number);
    if (wanted > 0) {
      TRY(settle_dim(v, dim, wanted));
    } else if (v->values[dim] < 0 || no_number) {
      bool layers = strcmp(v->d->dims->keys[dim], v->d->like->layers) == 0;
      treadle_yaml *node;
      const char *before = v->d->dims->items[dim]->text;
      if (layers && v->d->layers > 0) {
        TRY(settle_dim(v, dim, v->d->layers));
        continue;
      }
      TRY(set_dim(v, dim, "1", &node));
      TRY(treadle_draft_ask(v->d, node, "%s: the config has not all fields of %s", v->d->dims->keys[dim],
                            before));
    }
  }
out:
  return status;
}

/* ---- Tensors whose presence depends on a dim ------------------------------------------------------ */

static bool is_present(const dim_values *v, const char *dim) {
  for (int32_t i = 0; i < v->d->drafted_count; i++) {
    int32_t pattern = v->d->drafted[i].pattern;
    const char *when = pattern >= 0 ? v->d->like->patterns[pattern].when : NULL;
    if (when && strcmp(when, dim) == 0) return true;
  }
  return false;
}

/* A dim that is the whole condition of some lines says whether their tensors are there; so they say what it is: by a field of
 * another name where one says the same, else as a fact. */
static treadle_status use_presence(dim_values *v) {
  treadle_status status = TREADLE_OK;
  for (size_t dim = 0; dim < v->d->dims->count; dim++) {
    const char *name = v->d->dims->keys[dim], *before = v->d->dims->items[dim]->text;
    bool present = is_present(v, name);
    treadle_yaml *node;
    evaluate(v);
    if (!is_presence(v, name) || present == (v->values[dim] > 0)) continue;
    dim_fields f = {.d = v->d, .values = v, .text = before};
    v->known = dim;
    TRY(treadle_expr_check("dims", f.text, visit_field, &f));
    TRY(set_dim(v, dim, f.text, &node));
    evaluate(v);
    if (f.changed && present == (v->values[dim] > 0)) continue;
    TRY(set_dim(v, dim, present ? "true" : "false", &node));
    TRY(treadle_draft_ask(v->d, node, "%s: the names in the checkpoint decide this; the family asks for %s",
                          name, before));
  }
out:
  return status;
}

treadle_status treadle_draft_dims(treadle_draft *d) {
  treadle_status status;
  TRY(treadle_tree_copy(&d->assembly, treadle_yaml_get(d->like_tree, "dims"), &d->dims));
  dim_values v = {.d = d};
  v.values = treadle_arena_alloc_array(d->arena, d->dims->count + 1, sizeof *v.values);
  if (!v.values) return treadle_family_no_memory();
  TRY(use_other_fields(&v));
  TRY(use_shapes(&v));
  TRY(use_presence(&v));
out:
  return status;
}
