/* Names to drafted. The layer is the first number that stands alone between dots, of the beginning that most names have in common;
 * a number behind it counts experts where the word before says so, or where there are as many as the config has experts. Other
 * numbers stay in the name. */
#include "draft/draft.h"

#include "base/hash_map.h"
#include "base/utf8.h"

#include <string.h>

typedef struct pattern_maker {
  treadle_draft *d;
  treadle_hash_map by_text;
  TREADLE_ARRAY(treadle_draft_tensor) drafted;
  int32_t strange; /* names that no family file can have */
  const char *first_strange;
} pattern_maker;

/* A number between dots at or behind `text`; its value, -1 where it is none or too large. NULL: there is none. */
static const char *find_number(const char *begin, const char *text, const char **end_p, int64_t *value_p) {
  for (const char *c = text; *c; c++) {
    if (c > begin && c[-1] != '.') continue;
    size_t length = strspn(c, "0123456789");
    if (!length || (c[length] && c[length] != '.')) continue;
    *value_p = 0;
    for (size_t i = 0; i < length && *value_p >= 0; i++) {
      *value_p = *value_p * 10 + (c[i] - '0');
      if (*value_p >= TREADLE_MAX_DRAFT_LAYERS) *value_p = -1;
    }
    if (length > 1 && *c == '0') *value_p = -1; /* no other name would be written so */
    *end_p = c + length;
    return c;
  }
  return NULL;
}

/* May it stand in a family file? There "L." and the like stand for beginnings of names. */
static bool is_sound(const char *name) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  bool prefix = name[0] >= 'A' && name[0] <= 'Z' && name[1] == '.';
  return *name && !prefix && strlen(name) <= TREADLE_MAX_PATTERN_NAME && !name[strspn(name, letters)];
}

/* ---- The beginning of the layers ---------------------------------------------------------------- */

typedef struct beginning {
  const char *text;
  int32_t names;
  int64_t most;
} beginning;

/* The beginning of most names; of those whose layers are as many as the config's, if there are any. */
static treadle_status find_layers(treadle_draft *d) {
  TREADLE_ARRAY(beginning) all = {0};
  treadle_hash_map by_text = {0};
  treadle_status status = TREADLE_OK;
  int64_t layers = -1;
  const char *field = treadle_draft_other_field(d, "num_hidden_layers");
  if (field) treadle_draft_field(d, field, &layers);
  for (int32_t i = 0; i < d->checkpoint->count; i++) {
    const char *name = d->checkpoint->tensors[i].name, *end;
    int64_t number;
    const char *at = is_sound(name) ? find_number(name, name, &end, &number) : NULL;
    if (!at || at == name || number < 0 || !*end) continue;
    char text[TREADLE_MAX_PATTERN_NAME + 1];
    memcpy(text, name, (size_t)(at - name));
    text[at - name] = 0;
    int64_t found = treadle_hash_map_get(&by_text, text, -1);
    if (found < 0) {
      beginning one = {.text = treadle_arena_copy_text(d->arena, text), .most = -1};
      if (!one.text) TRY(treadle_family_no_memory());
      found = (int64_t)all.count;
      TRY(treadle_array_push(&all, one));
      TRY(treadle_hash_map_put(&by_text, one.text, found));
    }
    beginning *b = &all.items[found];
    b->names++;
    if (number > b->most) b->most = number;
  }
  const beginning *best = NULL;
  for (size_t i = 0; i < all.count; i++) {
    const beginning *b = &all.items[i];
    bool fits = b->most + 1 == layers, best_fits = best && best->most + 1 == layers;
    if (!best || (fits == best_fits ? b->names > best->names : fits)) best = b;
  }
  if (best) d->layer_prefix = best->text;
  if (best) d->layers = (int32_t)best->most + 1;
out:
  treadle_hash_map_release(&by_text);
  treadle_array_release(&all);
  return status;
}

/* ---- Patterns ---------------------------------------------------------------------------------- */

typedef struct parsed_name {
  char text[TREADLE_MAX_PATTERN_NAME + 16];
  size_t rest;           /* where it begins in text */
  int64_t layer, expert; /* -1: none */
} parsed_name;

static void parse(const treadle_draft *d, const char *name, parsed_name *p) {
  size_t prefix = d->layer_prefix ? strlen(d->layer_prefix) : 0;
  const char *end = name, *at = NULL;
  int64_t number = -1;
  *p = (parsed_name){.layer = -1, .expert = -1};
  if (prefix && strncmp(name, d->layer_prefix, prefix) == 0 && name[prefix])
    at = find_number(name, name + prefix, &end, &number);
  if (at != name + prefix || number < 0 || *end != '.') { /* outside of layers */
    memcpy(p->text, name, strlen(name) + 1);
    return;
  }
  p->layer = number;
  int length = snprintf(p->text, sizeof p->text, "%s{l}.", d->layer_prefix);
  p->rest = (size_t)length;
  const char *rest = end + 1, *begin = rest;
  at = find_number(begin, rest, &end, &number);
  bool named =
      at && at - begin > 7 && (strncmp(at - 7, "expert.", 7) == 0 || strncmp(at - 8, "experts.", 8) == 0);
  if (!at || number < 0 || !*end || !named) {
    snprintf(p->text + length, sizeof p->text - (size_t)length, "%s", rest);
    return;
  }
  p->expert = number;
  snprintf(p->text + length, sizeof p->text - (size_t)length, "%.*s*%s", (int)(at - begin), begin, end);
}

static bool same_shape(const treadle_stored *a, const treadle_stored *b) {
  return a->ndim == b->ndim &&
         (a->ndim < 0 || memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0);
}

/* Which shape a layer has. */
static void add_shape(treadle_draft_tensor *p, int64_t layer, const treadle_stored *stored) {
  int shape = 0;
  while (shape < p->shape_count && !same_shape(p->shapes[shape], stored)) shape++;
  if (shape == TREADLE_DRAFT_SHAPES) shape = 0, p->mixed = true;
  if (shape == p->shape_count) p->shapes[p->shape_count++] = stored;
  p->mixed |= stored->ndim != p->ndim || (p->layers[layer] && p->layers[layer] != shape + 1);
  if (!p->layers[layer]) p->layer_count++;
  p->layers[layer] = (uint8_t)(shape + 1);
}

/* The shape of most layers comes first. */
static void choose_shape(const treadle_draft *d, treadle_draft_tensor *p) {
  int32_t counts[TREADLE_DRAFT_SHAPES] = {0};
  int most = 0;
  for (int32_t l = 0; p->in_layer && l < d->layers; l++)
    if (p->layers[l]) counts[p->layers[l] - 1]++;
  for (int s = 1; s < p->shape_count; s++)
    if (counts[s] > counts[most]) most = s;
  if (!most) return;
  p->first = p->shapes[most];
  p->ndim = p->first->ndim;
  for (int i = 0; i < p->ndim; i++) p->shape[i] = p->first->shape[i];
}

static treadle_status begin_pattern(pattern_maker *m, const parsed_name *p, const treadle_stored *stored) {
  treadle_draft *d = m->d;
  treadle_status status;
  char *text = treadle_arena_copy_text(d->arena, p->text);
  if (!text) return treadle_family_no_memory();
  treadle_draft_tensor one = {.text = text,
                              .rest = text + p->rest,
                              .in_layer = p->layer >= 0,
                              .by_expert = p->expert >= 0,
                              .ndim = stored->ndim,
                              .first = stored,
                              .pattern = -1};
  for (int i = 0; i < stored->ndim; i++) one.shape[i] = stored->shape[i];
  if (one.in_layer && !(one.layers = treadle_arena_alloc(d->arena, (size_t)d->layers)))
    return treadle_family_no_memory();
  if (m->drafted.count == TREADLE_MAX_PATTERNS)
    return treadle_fail(
        TREADLE_REFUSED,
        "the names follow no rule: %d of them differ in more than numbers of layers and experts; the "
        "last is %s",
        TREADLE_MAX_PATTERNS, treadle_text_shown(stored->name));
  TRY(treadle_hash_map_put(&m->by_text, text, (int64_t)m->drafted.count));
  TRY(treadle_array_push(&m->drafted, one));
out:
  return status;
}

static treadle_status add_name(pattern_maker *m, const treadle_stored *stored) {
  parsed_name p;
  treadle_status status = TREADLE_OK;
  for (int i = 0; i < stored->ndim; i++)
    if (stored->shape[i] == 0)
      return treadle_fail(TREADLE_REFUSED, "%s: dimension %d is of size 0, which no family can say",
                          treadle_text_shown(stored->name), i);
  if (!is_sound(stored->name)) {
    if (!m->strange++) m->first_strange = stored->name;
    return TREADLE_OK;
  }
  parse(m->d, stored->name, &p);
  int64_t at = treadle_hash_map_get(&m->by_text, p.text, -1);
  if (at < 0) {
    at = (int64_t)m->drafted.count;
    TRY(begin_pattern(m, &p, stored));
  }
  treadle_draft_tensor *drafted = &m->drafted.items[at];
  drafted->count++;
  if (p.layer >= 0) add_shape(drafted, p.layer, stored);
  if (p.expert >= drafted->experts) drafted->experts = (int32_t)p.expert + 1;
out:
  return status;
}

treadle_status treadle_draft_patterns(treadle_draft *d) {
  pattern_maker m = {.d = d};
  treadle_status status;
  if (!d->checkpoint->count)
    return treadle_fail(TREADLE_REFUSED, "there is no tensor to draft a family from: the list is empty");
  TRY(find_layers(d));
  for (int32_t i = 0; i < d->checkpoint->count; i++) TRY(add_name(&m, &d->checkpoint->tensors[i]));
  if (!m.drafted.count)
    TRY(treadle_fail(TREADLE_REFUSED, "none of %d names can stand in a family file; the first is %s",
                     d->checkpoint->count, treadle_text_shown(m.first_strange ? m.first_strange : "")));
  d->drafted = treadle_arena_alloc_array(d->arena, m.drafted.count, sizeof *d->drafted);
  if (!d->drafted) TRY(treadle_family_no_memory());
  memcpy(d->drafted, m.drafted.items, m.drafted.count * sizeof *d->drafted);
  d->drafted_count = (int32_t)m.drafted.count;
  for (int32_t i = 0; i < d->drafted_count; i++)
    if (d->drafted[i].experts > d->experts) d->experts = d->drafted[i].experts;
  for (int32_t i = 0; i < d->drafted_count && !d->experts; i++) { /* in stacks */
    const char *count = treadle_draft_other_field(d, "num_experts");
    if (count && strstr(d->drafted[i].text, "expert") && !treadle_draft_field(d, count, &d->experts))
      d->experts = 0;
  }
  int64_t width = -1; /* of an MLP: "fc1" may be gate and up, or up alone */
  const char *field = treadle_draft_other_field(d, "intermediate_size");
  if (field && !treadle_draft_field(d, field, &width)) width = -1;
  for (int32_t i = 0; i < d->drafted_count; i++) {
    treadle_draft_tensor *p = &d->drafted[i];
    choose_shape(d, p);
    p->role = treadle_draft_role(p->rest, p->in_layer, p->by_expert, d->experts > 0);
    if (p->role == TREADLE_IS_GATE_UP && p->ndim > 0 && p->shape[0] == width) p->role = TREADLE_IS_UP;
  }
  if (m.strange)
    TRY(treadle_draft_ask(d, d->root,
                          "%d names cannot stand in a family file and are left over; the first is %s",
                          m.strange, treadle_text_shown(m.first_strange)));
out:
  treadle_hash_map_release(&m.by_text);
  treadle_array_release(&m.drafted);
  return status;
}
