/* A set of layers as a condition on l, from the plainest form to the longest: all; those of a list of the config, which says most; from or
 * up to a layer, by a field of the config where one has that number; every n-th; single ones. */
#include "draft/draft.h"

#include "family/expr.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_SINGLE = 12, MOST_RANGES = 12 };

typedef struct layer_set {
  treadle_draft *d;
  const uint8_t *layers;
  int32_t count, size;
} layer_set;

/* A field with this value by whose name layers begin, or come again; else the number. */
static const char *number_text(const layer_set *s, int64_t value, bool step) {
  static const char *const begins[] = {"first_k_dense_replace", NULL}, *const steps[] = {
                                                                           "decoder_sparse_step",
                                                                           "moe_layer_freq", NULL};
  const char *const *fields = step ? steps : begins;
  for (int i = 0; fields[i]; i++) {
    const char *name = treadle_draft_other_field(s->d, fields[i]);
    int64_t found;
    if (name && treadle_draft_field(s->d, name, &found) && found == value) return name;
  }
  return treadle_arena_format(s->d->arena, "%" PRId64, value);
}

/* The set is [begin, end). */
static bool is_range(const layer_set *s, int32_t *begin_p, int32_t *end_p) {
  int32_t begin = 0, end = s->size;
  while (begin < s->size && !s->layers[begin]) begin++;
  while (end > begin && !s->layers[end - 1]) end--;
  *begin_p = begin;
  *end_p = end;
  return s->count == end - begin;
}

static const char *as_all(const layer_set *s, bool *found_p) {
  *found_p = s->count == s->size;
  return NULL;
}

static const char *as_range(const layer_set *s, bool *found_p) {
  int32_t begin, end;
  *found_p = is_range(s, &begin, &end);
  if (!*found_p) return NULL;
  const char *from = number_text(s, begin, false), *to = number_text(s, end, false);
  if (!from || !to) return NULL;
  return begin == 0         ? treadle_arena_format(s->d->arena, "l < %s", to)
         : end == s->size   ? treadle_arena_format(s->d->arena, "l >= %s", from)
         : end == begin + 1 ? treadle_arena_format(s->d->arena, "l == %s", from)
                            : treadle_arena_format(s->d->arena, "l >= %s and l < %s", from, to);
}

/* Every n-th layer. */
static const char *as_step(const layer_set *s, bool *found_p) {
  for (int32_t step = 2; step <= 16 && step <= s->size; step++)
    for (int32_t first = 0; first < step; first++) {
      int32_t differ = 0;
      for (int32_t l = 0; l < s->size; l++) differ += (l % step == first) != (s->layers[l] != 0);
      if (differ) continue;
      *found_p = true;
      const char *text = number_text(s, step, true);
      return !text               ? NULL
             : first == step - 1 ? treadle_arena_format(s->d->arena, "(l + 1) %% %s == 0", text)
                                 : treadle_arena_format(s->d->arena, "l %% %s == %d", text, (int)first);
    }
  return NULL;
}

/* The words of a list that stand where the set has layers, and nowhere else. */
static const char *find_word(const layer_set *s, const json_t *list) {
  const char *word = NULL;
  for (int32_t l = 0; l < s->size; l++) {
    const char *here = json_string_value(json_array_get(list, (size_t)l));
    if (!here) return NULL;
    if (s->layers[l] && !word) word = here;
  }
  for (int32_t l = 0; word && l < s->size; l++)
    if ((strcmp(json_string_value(json_array_get(list, (size_t)l)), word) == 0) != (s->layers[l] != 0))
      return NULL;
  return word && treadle_expr_is_name(word) ? word : NULL;
}

/* Does the number stand in a list where the set has layers, and nowhere else? */
static bool is_number_of(const layer_set *s, const json_t *list, int64_t number) {
  for (int32_t l = 0; l < s->size; l++) {
    const json_t *here = json_array_get(list, (size_t)l);
    if (!json_is_integer(here) || (json_integer_value(here) == number) != (s->layers[l] != 0)) return false;
  }
  return number >= 0;
}

/* The number of a list that does so; -1: there is none. */
static int64_t find_number(const layer_set *s, const json_t *list) {
  int32_t first = 0;
  while (first < s->size && !s->layers[first]) first++;
  int64_t number = json_integer_value(json_array_get(list, (size_t)first)); /* 0 of what is none */
  return first < s->size && is_number_of(s, list, number) ? number : -1;
}

/* Are the numbers of a list the layers of the set (1), or those that it has not (-1)? */
static int compare_numbers(const layer_set *s, const json_t *list) {
  int32_t in = 0, out = 0, strange = 0;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i);
    int64_t l = json_is_integer(item) ? json_integer_value(item) : -1;
    strange += l < 0 || l >= s->size;
    if (l >= 0 && l < s->size) *(s->layers[l] ? &in : &out) += 1;
  }
  if (strange || in + out == 0) return 0;
  return in == s->count && !out ? 1 : out == s->size - s->count && !in ? -1 : 0;
}

/* Is the field a list that a condition can name? */
static bool is_list(const char *key, const json_t *field) {
  return json_is_array(field) && treadle_expr_is_name(key) && strlen(key) <= 60;
}

static const char *as_list(const layer_set *s, bool *found_p) {
  const char *key;
  json_t *field;
  json_object_foreach(s->d->inner, key, field) {
    if (!is_list(key, field) || strstr(key, "token")) continue;
    const char *word = find_word(s, field);
    int64_t number = word ? -1 : find_number(s, field);
    int numbers = word || number >= 0 ? 0 : compare_numbers(s, field);
    *found_p = word || number >= 0 || numbers;
    if (number >= 0) return treadle_arena_format(s->d->arena, "l in %s.%" PRId64, key, number);
    if (word) return treadle_arena_format(s->d->arena, "l in %s.%s", key, word);
    if (numbers) return treadle_arena_format(s->d->arena, "%sl in %s", numbers < 0 ? "not " : "", key);
  }
  return NULL;
}

static const char *as_single(const layer_set *s, bool *found_p) {
  const char *text = "";
  bool without = s->count > s->size / 2;
  *found_p = (without ? s->size - s->count : s->count) <= MOST_SINGLE;
  for (int32_t l = 0; *found_p && text && l < s->size; l++)
    if ((s->layers[l] != 0) != without)
      text = treadle_arena_format(s->d->arena, "%s%sl %s %d", text,
                                  *text ? (without ? " and " : " or ") : "", without ? "!=" : "==", (int)l);
  return text;
}

treadle_status treadle_draft_condition(treadle_draft *d, const uint8_t *layers, int32_t count,
                                       const char **text_p, bool *found_p) {
  layer_set set = {.d = d, .layers = layers, .size = count};
  const char *(*const forms[])(const layer_set *, bool *) = {as_all, as_list, as_range, as_step, as_single};
  for (int32_t l = 0; l < count; l++) set.count += layers[l] != 0;
  *text_p = NULL;
  *found_p = false;
  for (size_t i = 0; i < sizeof forms / sizeof *forms && !*found_p; i++) {
    *text_p = forms[i](&set, found_p);
    if (*found_p && !*text_p && set.count < set.size) return treadle_family_no_memory();
  }
  if (!*found_p) *text_p = NULL;
  return TREADLE_OK;
}

bool treadle_draft_list_of(treadle_draft *d, const uint8_t *layers, int32_t count, int64_t number,
                           const char **text_p) {
  const layer_set set = {.d = d, .layers = layers, .size = count};
  const char *key;
  json_t *field;
  *text_p = NULL;
  json_object_foreach(d->inner, key, field) {
    if (is_list(key, field) && is_number_of(&set, field, number))
      *text_p = treadle_arena_format(d->arena, "l in %s.%" PRId64, key, number);
    if (*text_p) return true;
  }
  return false;
}

/* ---- In words ----------------------------------------------------------------------------------- */

static void add_layers(treadle_builder *text, const treadle_draft *d, const treadle_draft_tensor *p,
                       int shape) {
  int ranges = 0;
  for (int32_t l = 0, end; l < d->layers; l = end) {
    for (end = l + 1; end < d->layers && p->layers[end] == p->layers[l];) end++;
    if (p->layers[l] != shape + 1) continue;
    if (ranges++ == MOST_RANGES) treadle_builder_add(text, ", ...");
    if (ranges > MOST_RANGES) continue;
    treadle_builder_add(text, end > l + 1 ? "%s%d-%d" : "%s%d", ranges > 1 ? ", " : "", (int)l,
                        (int)end - 1);
  }
}

treadle_status treadle_draft_ask_shapes(treadle_draft *d, treadle_yaml *at, const treadle_draft_tensor *p) {
  treadle_builder text = {0};
  treadle_status status;
  for (int s = 0; s < p->shape_count; s++) {
    treadle_builder_add(&text, s ? "; " : "");
    for (int i = 0; i < p->shapes[s]->ndim; i++)
      treadle_builder_add(&text, i ? "x%lld" : "%lld", (long long)p->shapes[s]->shape[i]);
    treadle_builder_add(&text, " in layers ");
    add_layers(&text, d, p, s);
  }
  if (text.failed)
    status = treadle_family_no_memory();
  else
    status = treadle_draft_ask(d, at, "%s has several shapes%s: %s: which dims differ (layer_dims)?",
                               p->text, p->mixed ? ", and not one a layer" : "", text.text);
  treadle_builder_release(&text);
  return status;
}
