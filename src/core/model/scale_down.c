/* Scaling a config down.
 *
 * A knob is a field of config.json that the family reads into a dim. Again and again the knob that is
 * farthest above its low mark is halved, down to a first low mark that leaves room for tensor and expert
 * parallelism, then to a second one. A step that would make a config that is refused, that has no fewer
 * elements, or that loses a pattern of tensor is not taken, and its knob not tried again before the next mark. */
#include "model/scale_down.h"

#include "io/json.h"
#include "model/build.h"

#include <inttypes.h>
#include <string.h>

typedef struct knob {
  const char *field;
  const char *with;     /* halved together with it; NULL: alone */
  int64_t low[2];       /* marks; of `with`, where the family reads it */
  int64_t low_alone[2]; /* of the field, where the family does not read `with`; 0: as low */
  int64_t unit;         /* stays a multiple of it */
  bool counts_tensors;  /* of layers or experts */
} knob;

/* clang-format off */
static const knob knobs[] = {
    {"num_hidden_layers", NULL, {4, 2}, {0}, 1, true},
    {"n_routed_experts", NULL, {8, 4}, {0}, 4, true},
    {"num_experts", NULL, {8, 4}, {0}, 4, true},
    {"num_local_experts", NULL, {8, 4}, {0}, 4, true},
    {"vocab_size", NULL, {1024, 256}, {0}, 8, false},
    {"hidden_size", NULL, {256, 64}, {0}, 64, false},
    {"intermediate_size", NULL, {256, 64}, {0}, 64, false},
    {"moe_intermediate_size", NULL, {256, 64}, {0}, 64, false},
    {"shared_expert_intermediate_size", NULL, {256, 64}, {0}, 64, false},
    {"num_attention_heads", "num_key_value_heads", {4, 2}, {8, 4}, 1, false},
    {"num_global_key_value_heads", NULL, {2, 1}, {0}, 1, false},
    {"head_dim", NULL, {64, 16}, {0}, 16, false},
    {"swa_num_attention_heads", "swa_num_key_value_heads", {4, 2}, {8, 4}, 1, false},
    {"swa_head_dim", NULL, {64, 16}, {0}, 16, false},
    {"swa_v_head_dim", NULL, {64, 16}, {0}, 16, false},
    {"global_head_dim", NULL, {64, 16}, {0}, 16, false},
    {"q_lora_rank", NULL, {128, 32}, {0}, 32, false},
    {"kv_lora_rank", NULL, {128, 32}, {0}, 32, false},
    {"qk_nope_head_dim", NULL, {64, 16}, {0}, 16, false},
    {"qk_rope_head_dim", NULL, {32, 16}, {0}, 16, false},
    {"v_head_dim", NULL, {64, 16}, {0}, 16, false},
    {"linear_num_key_heads", "linear_num_value_heads", {4, 2}, {0}, 1, false},
    {"linear_key_head_dim", NULL, {64, 16}, {0}, 16, false},
    {"linear_value_head_dim", NULL, {64, 16}, {0}, 16, false},
};
/* clang-format on */
enum { KNOBS = sizeof knobs / sizeof knobs[0], SMALL_BLOCK = 16 };

typedef struct scaling {
  const char *what;
  json_t *config;       /* as it is now */
  treadle_model *model; /* of config */
  const treadle_model *whole;
} scaling;

/* ---- Fields ------------------------------------------------------------------------------------ */

/* The object in which the family looks for a field first. */
static json_t *object_of(const treadle_model *model, json_t *config, const char *field) {
  json_t *inner = model->family->config ? json_object_get(config, model->family->config) : NULL;
  bool outside = !json_object_get(inner, field) && json_object_get(config, field);
  return inner && !outside ? inner : config;
}

/* The value of a field that the family reads into a dim; 0: it reads none. */
static int64_t value_of(const treadle_model *model, const char *field) {
  size_t length = strlen(field);
  for (int32_t i = 0; i < model->family->dim_count; i++) {
    const char *text = model->family->dim_texts[i];
    if (strncmp(text, field, length) != 0) continue;
    if (text[length] && strncmp(text + length, " ??", 3) != 0) continue;
    return model->dim_values[i];
  }
  return 0;
}

static void set(const treadle_model *model, json_t *config, const char *field, int64_t value) {
  json_object_set_new(object_of(model, config, field), field, json_integer(value));
}

/* Lists that have an item for each layer, and lists of layers. */
static void cut_lists(json_t *object, int64_t layers, int64_t fewer) {
  const char *key;
  void *next;
  json_t *value;
  json_object_foreach_safe(object, next, key, value) {
    if (!json_is_array(value)) continue;
    bool of_layers = strcmp(key, "mlp_only_layers") == 0;
    if (!of_layers && (int64_t)json_array_size(value) != layers) continue;
    for (size_t i = json_array_size(value); i-- > 0;)
      if ((of_layers ? json_integer_value(json_array_get(value, i)) : (int64_t)i) >= fewer)
        json_array_remove(value, i);
  }
}

static void set_layers(const treadle_model *model, json_t *config, int64_t fewer) {
  int64_t layers = value_of(model, "num_hidden_layers"), dense = value_of(model, "first_k_dense_replace");
  cut_lists(object_of(model, config, "num_hidden_layers"), layers, fewer);
  int64_t most = fewer / 4 ? fewer / 4 : 1;
  if (dense > most) set(model, config, "first_k_dense_replace", most);
  set(model, config, "num_hidden_layers", fewer);
}

/* ---- Structure --------------------------------------------------------------------------------- */

/* In how many layers of [low, high) a model has a pattern, counted to two. */
static int count_layers(const treadle_model *model, int32_t pattern, int32_t low, int32_t high) {
  int count = 0;
  for (int32_t layer = low; layer < high && count < 2; layer++)
    count += treadle_model_find(model, pattern, layer) >= 0;
  return count;
}

static bool same_structure(const treadle_model *whole, const treadle_model *smaller) {
  const treadle_family *family = whole->family;
  for (int32_t k = 0; k < family->pattern_count; k++) {
    if ((whole->first_tensor[k] < 0) != (smaller->first_tensor[k] < 0)) return false;
    if (!family->patterns[k].in_layer) continue;
    int wanted = count_layers(whole, k, 0, whole->layers),
        got = count_layers(smaller, k, 0, smaller->layers);
    if (got < (family->patterns[k].experts ? wanted : wanted > 0)) return false;
    int32_t end = whole->layers + whole->mtp_layers, smaller_end = smaller->layers + smaller->mtp_layers;
    if (!count_layers(whole, k, whole->layers, end) !=
        !count_layers(smaller, k, smaller->layers, smaller_end))
      return false;
  }
  return true;
}

/* ---- Steps ------------------------------------------------------------------------------------- */

static int64_t low_of(const scaling *s, const knob *k, int mark) {
  bool alone = k->with && !value_of(s->model, k->with);
  return alone && k->low_alone[mark] ? k->low_alone[mark] : k->low[mark];
}

/* What of a knob is held against its low mark. */
static int64_t height_of(const scaling *s, const knob *k) {
  int64_t with = k->with ? value_of(s->model, k->with) : 0;
  return with && with < value_of(s->model, k->field) ? with : value_of(s->model, k->field);
}

static int64_t half(int64_t value, int64_t low, int64_t unit) {
  int64_t less = value / 2 / unit * unit;
  return less > low ? less : low;
}

/* Takes a config, if its model is smaller and has the same structure; otherwise nothing changes. Ends `config`. */
static treadle_status take(scaling *s, json_t *config, bool *taken_p) {
  treadle_model *model = NULL;
  treadle_status status = treadle_model_like(s->whole, s->what, config, &model);
  *taken_p = status == TREADLE_OK && model->elems < s->model->elems && same_structure(s->whole, model);
  if (*taken_p) {
    if (s->model != s->whole) treadle_model_close(s->model);
    json_decref(s->config);
    s->model = model;
    s->config = config;
    return TREADLE_OK;
  }
  treadle_model_close(model);
  json_decref(config);
  return status == TREADLE_REFUSED ? TREADLE_OK : status;
}

static treadle_status copy_config(const scaling *s, json_t **copy_p) {
  *copy_p = json_deep_copy(s->config);
  return *copy_p ? TREADLE_OK
                 : treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a smaller config", s->what);
}

/* The fewest layers, from half of them on, that keep the structure; multiples of 4 first, for pipelines and for layers
 * that differ by turns, and even numbers. */
static treadle_status halve_layers(scaling *s, int64_t low, bool *taken_p) {
  treadle_status status = TREADLE_OK;
  int64_t layers = value_of(s->model, "num_hidden_layers");
  json_t *config;
  *taken_p = false;
  int64_t fewer = (layers / 2 + 3) / 4 * 4;
  if (fewer >= layers || low < 4) fewer = half(layers, low, 1);
  fewer += fewer % 2; /* two stages share them */
  for (; fewer < layers && !*taken_p; fewer += 2) {
    TRY(copy_config(s, &config));
    set_layers(s->model, config, fewer);
    TRY(take(s, config, taken_p));
  }
out:
  return status;
}

/* A field and what is halved with it, which must be even then. */
static bool halve_field(const scaling *s, const knob *k, int64_t low, json_t *config) {
  int64_t value = value_of(s->model, k->field), with = k->with ? value_of(s->model, k->with) : 0;
  int64_t groups = strstr(k->field, "experts") ? value_of(s->model, "n_group") : 0;
  int64_t less = half(value, low, groups > k->unit ? groups : k->unit);
  if (k->with) {
    less = value / 2;
    if (value % 2 || with % 2) return false;
    if (with) set(s->model, config, k->with, with / 2);
    json_t *other = json_object_get(object_of(s->model, config, k->with), k->with);
    if (!with && json_is_integer(other) && json_integer_value(other) == value)
      json_integer_set(other, less);
  }
  json_t *chosen = json_object_get(object_of(s->model, config, k->field), "num_experts_per_tok");
  if (strstr(k->field, "experts") && json_integer_value(chosen) > less) json_integer_set(chosen, less);
  set(s->model, config, k->field, less);
  return true;
}

static treadle_status halve(scaling *s, const knob *k, int64_t low, bool *taken_p) {
  json_t *config;
  treadle_status status = TREADLE_OK;
  *taken_p = false;
  if (strcmp(k->field, "num_hidden_layers") == 0) return halve_layers(s, low, taken_p);
  TRY(copy_config(s, &config));
  if (halve_field(s, k, low, config)) return take(s, config, taken_p);
  json_decref(config);
out:
  return status;
}

/* Steps until there are few enough elements, or nothing is above its mark. */
static treadle_status step_down(scaling *s, int mark, int64_t elems) {
  treadle_status status = TREADLE_OK;
  bool stuck[KNOBS] = {false}, taken;
  while (s->model->elems > elems) {
    int best = -1;
    double farthest = 1;
    for (int i = 0; i < KNOBS; i++) {
      double above = (double)height_of(s, &knobs[i]) / (double)low_of(s, &knobs[i], mark);
      if (stuck[i] || above <= 1 || (knobs[i].with && above < 2)) continue;
      if (knobs[i].counts_tensors) above *= 4; /* the earlier, the faster are the other steps */
      if (above <= farthest) continue;
      best = i;
      farthest = above;
    }
    if (best < 0) return TREADLE_OK;
    TRY(halve(s, &knobs[best], low_of(s, &knobs[best], mark), &taken));
    stuck[best] = !taken;
  }
out:
  return status;
}

/* Blocks of fp8 shrink with the widths, to what every width is a multiple of; a whole model keeps its own. */
static void shrink_blocks(const scaling *s, treadle_builder *changes) {
  json_t *inner = s->model->family->config ? json_object_get(s->config, s->model->family->config) : NULL;
  json_t *of = json_object_get(inner, "quantization_config");
  if (!of) of = json_object_get(s->config, "quantization_config");
  json_t *size = json_object_get(of, "weight_block_size");
  for (size_t i = 0; s->model->elems < s->whole->elems && i < json_array_size(size); i++)
    json_integer_set(json_array_get(size, i), SMALL_BLOCK);
  if (json_array_size(size) > 0 && s->model->elems < s->whole->elems)
    treadle_builder_add(changes, " weight_block_size=%dx%d", SMALL_BLOCK, SMALL_BLOCK);
}

static void list_changes(const scaling *s, treadle_builder *changes) {
  for (int i = 0; i < KNOBS; i++)
    for (int second = 0; second < 2; second++) {
      const char *field = second ? knobs[i].with : knobs[i].field;
      if (!field || value_of(s->model, field) == value_of(s->whole, field)) continue;
      treadle_builder_add(changes, "%s%s=%" PRId64, changes->length ? " " : "", field,
                          value_of(s->model, field));
    }
}

treadle_status treadle_scale_down(const char *what, const json_t *config,
                                  const treadle_model_options *options, int64_t elems, json_t **smaller_p,
                                  treadle_builder *changes) {
  scaling s = {.what = what};
  treadle_model *whole = NULL;
  treadle_status status;
  s.config = json_deep_copy(config);
  if (!s.config) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a smaller config", what);
  TRY(treadle_model_from_config(what, s.config, options, &whole));
  s.model = whole;
  s.whole = whole;
  int64_t head_dim = value_of(whole, "head_dim"); /* stays what it is while other widths shrink */
  if (head_dim) set(whole, s.config, "head_dim", head_dim);
  for (int mark = 0; mark < 2; mark++) TRY(step_down(&s, mark, elems));
  if (s.model->elems > elems)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "%s: the smallest model of this structure has %" PRId64 " parameters; %" PRId64
                     " are allowed",
                     what, s.model->elems, elems));
  list_changes(&s, changes);
  shrink_blocks(&s, changes);
  if (changes->failed) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a text", what));
  *smaller_p = json_incref(s.config);
out:
  if (s.model != whole) treadle_model_close(s.model);
  treadle_model_close(whole);
  json_decref(s.config);
  return status;
}
