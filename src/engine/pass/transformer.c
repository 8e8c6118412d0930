#include "pass/transformer.h"

#include "base/alloc.h"
#include "family/expr.h"
#include "model/build.h"
#include "model/config.h"
#include "pass/switches.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct look {
  const treadle_model *model;
  int64_t layer; /* -1: l is not a name */
} look;

static treadle_status look_up(void *context, const char *name, const int64_t *member, int64_t *value_p,
                              bool *found_p) {
  const look *in = context;
  if (member || in->layer < 0 || strcmp(name, "l") != 0)
    return treadle_model_lookup(in->model, name, member, value_p, found_p);
  *value_p = in->layer;
  *found_p = true;
  return TREADLE_OK;
}

const struct json_t *treadle_transformer_config(const treadle_transformer *transformer) {
  const json_t *inner = treadle_model_inner_config(transformer->model);
  return inner ? inner : transformer->model->config;
}

const struct json_t *treadle_transformer_field(const treadle_transformer *transformer, const char *name) {
  const json_t *inner = treadle_model_inner_config(transformer->model);
  const json_t *field = inner ? json_object_get(inner, name) : NULL;
  if (!field) field = json_object_get(transformer->model->config, name);
  return field && !json_is_null(field) ? field : NULL;
}

/* ---- Facts ------------------------------------------------------------------------------------------ */

static treadle_status refuse(const treadle_transformer *d, treadle_fact fact, const char *why) {
  const treadle_forward_section *section = d->model->family->forward;
  return treadle_fail(TREADLE_REFUSED, "%s line %d: forward: %s %s", section->file, section->line,
                      treadle_fact_text(fact), why);
}

/* The value of an expression; `otherwise` where the family says nothing. */
static treadle_status number_of(const treadle_transformer *d, treadle_fact fact, int64_t layer,
                                int64_t otherwise, int64_t *value_p) {
  const treadle_forward_section *section = d->model->family->forward;
  const char *text = section->facts[fact];
  look in = {.model = d->model, .layer = layer};
  char what[300];
  *value_p = otherwise;
  if (!text) return TREADLE_OK;
  snprintf(what, sizeof what, "%s: %s of %s", d->model->path, treadle_fact_text(fact), section->file);
  return treadle_expr_evaluate(what, text, look_up, &in, value_p);
}

static treadle_status size_of(const treadle_transformer *d, treadle_fact fact, int64_t *value_p) {
  treadle_status status;
  if (!d->model->family->forward->facts[fact]) return refuse(d, fact, "is missing");
  TRY(number_of(d, fact, -1, 0, value_p));
  if (*value_p <= 0 || *value_p > TREADLE_MAX_SIZE)
    return treadle_fail(TREADLE_REFUSED, "%s: %s is %lld: at least 1 is needed", d->model->path,
                        treadle_fact_text(fact), (long long)*value_p);
out:
  return status;
}

static treadle_status flag_of(const treadle_transformer *d, treadle_fact fact, int64_t layer,
                              bool otherwise, bool *flag_p) {
  int64_t value;
  treadle_status status = number_of(d, fact, layer, otherwise, &value);
  *flag_p = status == TREADLE_OK && value != 0;
  return status;
}

/* FIELD, or FIELD ?? NUMBER: any finite number of the config. */
static treadle_status real_of(const treadle_transformer *d, treadle_fact fact, double otherwise,
                              float *value_p) {
  const char *text = d->model->family->forward->facts[fact];
  char field[128];
  *value_p = (float)otherwise;
  if (!text) return TREADLE_OK;
  size_t length = strcspn(text, " ");
  const char *beside = strstr(text, "??");
  if (length >= sizeof field) return refuse(d, fact, "has too long a name");
  memcpy(field, text, length);
  field[length] = 0;
  const json_t *value = treadle_transformer_field(d, field);
  if (!value && !beside) return treadle_fail(TREADLE_REFUSED, "%s: %s is missing", d->model->path, field);
  if (value && (!json_is_number(value) || !isfinite((float)json_number_value(value))))
    return treadle_fail(TREADLE_REFUSED, "%s: %s is not a number%s", d->model->path, field,
                        treadle_json_note(value));
  *value_p = (float)(value ? json_number_value(value) : strtod(beside + 2, NULL));
  if (!(*value_p > 0))
    return treadle_fail(TREADLE_REFUSED, "%s: %s is %g; it has to be above 0", d->model->path, field,
                        value ? json_number_value(value) : (double)*value_p);
  return TREADLE_OK;
}

static bool word_is(const treadle_transformer *d, treadle_fact fact, const char *word) {
  const char *text = d->model->family->forward->facts[fact];
  return text && strcmp(text, word) == 0;
}

/* ---- Tensors ---------------------------------------------------------------------------------------- */

/* The canonical tensor of a role in a layer; -1 where the model has none. */
static int32_t find_tensor(const treadle_transformer *d, treadle_role role, int32_t layer) {
  const treadle_name *name = &d->model->family->forward->roles[role];
  char text[512];
  if (!name->text || (name->in_layer && layer < 0)) return -1;
  int length =
      treadle_name_format(name, name->in_layer ? layer : -1, d->model->layers, layer, 0, text, sizeof text);
  if (length < 0 || (size_t)length >= sizeof text) return -1;
  int64_t entry = treadle_hash_map_get(&d->model->by_name, text, -1);
  return entry < 0 ? -1 : d->model->entries[entry].tensor;
}

static treadle_status need(const treadle_transformer *d, treadle_role role, int32_t layer, int32_t tensor) {
  if (tensor >= 0) return TREADLE_OK;
  const treadle_forward_section *section = d->model->family->forward;
  if (layer < 0)
    return treadle_fail(TREADLE_REFUSED, "%s line %d: forward: the model has no %s", section->file,
                        section->line, treadle_role_text(role));
  return treadle_fail(TREADLE_REFUSED, "%s line %d: forward: layer %d of the model has no %s",
                      section->file, section->line, layer, treadle_role_text(role));
}

/* The roles that a layer cannot do without. Ended by TREADLE_ROLES. */
static const treadle_role gqa_roles[] = {TREADLE_ROLE_Q, TREADLE_ROLE_K, TREADLE_ROLE_V, TREADLE_ROLES};
static const treadle_role mla_roles[] = {TREADLE_ROLE_KV_DOWN, TREADLE_ROLE_KV_DOWN_NORM,
                                         TREADLE_ROLE_KV_UP, TREADLE_ROLES};
static const treadle_role narrow_roles[] = {TREADLE_ROLE_Q_DOWN_NORM, TREADLE_ROLE_Q_UP, TREADLE_ROLES};
static const treadle_role wide_roles[] = {TREADLE_ROLE_Q, TREADLE_ROLES};
static const treadle_role every_role[] = {TREADLE_ROLE_ATTENTION_NORM, TREADLE_ROLE_MLP_NORM,
                                          TREADLE_ROLE_O, TREADLE_ROLES};
static const treadle_role mlp_roles[] = {TREADLE_ROLE_GATE, TREADLE_ROLE_UP, TREADLE_ROLE_DOWN,
                                         TREADLE_ROLES};
static const treadle_role expert_roles[] = {TREADLE_ROLE_EXPERT_GATE, TREADLE_ROLE_EXPERT_UP,
                                            TREADLE_ROLE_EXPERT_DOWN, TREADLE_ROLES};
static const treadle_role shared_roles[] = {TREADLE_ROLE_SHARED_UP, TREADLE_ROLE_SHARED_DOWN,
                                            TREADLE_ROLES};

static treadle_status need_all(const treadle_transformer *d, const treadle_role *roles, int32_t number) {
  const treadle_transformer_layer *layer = &d->layer[number];
  treadle_status status = TREADLE_OK;
  for (; *roles != TREADLE_ROLES; roles++) TRY(need(d, *roles, number, layer->tensor[*roles]));
out:
  return status;
}

static treadle_status fill_layer(treadle_transformer *d, int32_t number) {
  treadle_transformer_layer *layer = &d->layer[number];
  treadle_status status;
  for (int role = 0; role < TREADLE_ROLES; role++) {
    const treadle_name *name = &d->model->family->forward->roles[role];
    layer->tensor[role] = name->in_layer ? find_tensor(d, (treadle_role)role, number) : -1;
  }
  const int32_t *tensor = layer->tensor;
  layer->sparse = tensor[TREADLE_ROLE_ROUTER] >= 0;
  TRY(flag_of(d, TREADLE_FACT_ROTATE, number, true, &layer->rotates));
  TRY(need_all(d, every_role, number));
  if (d->attention == TREADLE_ATTENTION_GQA) {
    TRY(need_all(d, gqa_roles, number));
  } else {
    TRY(need_all(d, mla_roles, number));
    TRY(need_all(d, tensor[TREADLE_ROLE_Q_DOWN] >= 0 ? narrow_roles : wide_roles, number));
  }
  TRY(need_all(d, layer->sparse ? expert_roles : mlp_roles, number));
  if (tensor[TREADLE_ROLE_SHARED_GATE] >= 0) TRY(need_all(d, shared_roles, number));
  const treadle_tensor *all = d->model->tensors;
  if (layer->sparse) {
    d->expert_intermediate = all[tensor[TREADLE_ROLE_EXPERT_GATE]].shape[1];
    if (tensor[TREADLE_ROLE_SHARED_GATE] >= 0)
      d->shared_intermediate = all[tensor[TREADLE_ROLE_SHARED_GATE]].shape[0];
  } else {
    d->intermediate = all[tensor[TREADLE_ROLE_GATE]].shape[0];
  }
out:
  return status;
}

/* ---- The whole -------------------------------------------------------------------------------------- */

static treadle_status read_attention(treadle_transformer *d) {
  treadle_status status;
  d->attention = word_is(d, TREADLE_FACT_ATTENTION, "mla") ? TREADLE_ATTENTION_MLA : TREADLE_ATTENTION_GQA;
  TRY(size_of(d, TREADLE_FACT_HEADS, &d->heads));
  if (d->attention == TREADLE_ATTENTION_GQA) {
    TRY(size_of(d, TREADLE_FACT_KV_HEADS, &d->kv_heads));
    TRY(size_of(d, TREADLE_FACT_HEAD_DIM, &d->head_dim));
    d->value_dim = d->rope_dim = d->head_dim;
  } else {
    TRY(size_of(d, TREADLE_FACT_NOPE_DIM, &d->nope_dim));
    TRY(size_of(d, TREADLE_FACT_ROPE_DIM, &d->rope_dim));
    TRY(size_of(d, TREADLE_FACT_VALUE_DIM, &d->value_dim));
    TRY(size_of(d, TREADLE_FACT_LATENT_DIM, &d->latent_dim));
    d->kv_heads = 1;
    d->head_dim = d->nope_dim + d->rope_dim;
  }
  if (d->heads % d->kv_heads != 0)
    return treadle_fail(TREADLE_REFUSED, "%s: %lld key and value heads do not divide %lld heads",
                        d->model->path, (long long)d->kv_heads, (long long)d->heads);
out:
  return status;
}

/* A word of the config that says how experts are chosen, where it is there. */
static treadle_status check_word(const treadle_transformer *d, const char *name, const char *word,
                                 const char *other) {
  const json_t *field = treadle_transformer_field(d, name);
  const char *text = json_string_value(field);
  if (!field || (text && (strcmp(text, word) == 0 || (other && strcmp(text, other) == 0))))
    return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s: %s is '%.32s'; for the family %s the engine computes %s%s%s",
                      d->model->path, name, text ? text : "no text", d->model->family->name, word,
                      other ? " and " : "", other ? other : "");
}

static treadle_status read_routing(treadle_transformer *d) {
  treadle_transformer_routing *r = &d->routing;
  const char *choice = d->model->family->forward->facts[TREADLE_FACT_GROUP_WHEN];
  treadle_status status;
  r->groups = r->top_groups = 1;
  r->scale = 1;
  if (!d->model->family->forward->facts[TREADLE_FACT_EXPERTS]) return TREADLE_OK;
  TRY(size_of(d, TREADLE_FACT_EXPERTS, &r->experts));
  TRY(size_of(d, TREADLE_FACT_TOP, &r->top));
  r->sigmoid = word_is(d, TREADLE_FACT_ROUTING, "sigmoid");
  r->group_top2 = word_is(d, TREADLE_FACT_GROUP_SCORE, "top2");
  TRY(flag_of(d, TREADLE_FACT_RENORMALISE, -1, false, &r->renormalise));
  TRY(real_of(d, TREADLE_FACT_SCALE, 1, &r->scale));
  TRY(number_of(d, TREADLE_FACT_GROUPS, -1, 1, &r->groups));
  TRY(number_of(d, TREADLE_FACT_TOP_GROUPS, -1, r->groups, &r->top_groups));
  if (choice) {
    char field[128];
    size_t length = strcspn(choice, ".");
    snprintf(field, sizeof field, "%.*s", (int)length, choice);
    const json_t *word = treadle_transformer_field(d, field);
    if (!json_is_string(word) || strcmp(json_string_value(word), choice + length + 1) != 0)
      r->groups = r->top_groups = 1;
  }
  TRY(check_word(d, "scoring_func", r->sigmoid ? "sigmoid" : "softmax", NULL));
  TRY(check_word(d, "topk_method", r->sigmoid ? "noaux_tc" : "greedy",
                 choice ? "group_limited_greedy" : NULL));
  if (r->top > r->experts || r->groups < 1 || r->experts % r->groups != 0 || r->top_groups < 1 ||
      r->top_groups > r->groups || r->top > r->experts / r->groups * r->top_groups ||
      (r->groups > 1 && r->group_top2 && r->experts / r->groups < 2))
    return treadle_fail(TREADLE_REFUSED, "%s: %lld of %lld experts in %lld of %lld groups cannot be chosen",
                        d->model->path, (long long)r->top, (long long)r->experts, (long long)r->top_groups,
                        (long long)r->groups);
out:
  return status;
}

static treadle_status refuse_others(const treadle_transformer *d) {
  const json_t *act = treadle_transformer_field(d, "hidden_act"),
               *window = treadle_transformer_field(d, "sliding_window"),
               *uses = treadle_transformer_field(d, "use_sliding_window");
  if (act && (!json_is_string(act) || strcmp(json_string_value(act), "silu") != 0))
    return treadle_fail(TREADLE_REFUSED, "%s: hidden_act is '%.32s'; the engine computes silu",
                        d->model->path, json_is_string(act) ? json_string_value(act) : "no text");
  if (window && (!uses || json_is_true(uses)))
    return treadle_fail(TREADLE_REFUSED, "%s: the engine does not compute attention with a sliding_window",
                        d->model->path);
  return TREADLE_OK;
}

static treadle_status fill(treadle_transformer *d) {
  const treadle_model *model = d->model;
  const json_t *positions;
  treadle_status status;
  if (!model->family->forward)
    return treadle_fail(TREADLE_REFUSED, "%s: treadle's engine does not compute the family %s", model->path,
                        model->family->name);
  TRY(refuse_others(d));
  TRY(read_attention(d));
  TRY(read_routing(d));
  TRY(real_of(d, TREADLE_FACT_EPS, 1e-6, &d->eps));
  TRY(flag_of(d, TREADLE_FACT_INTERLEAVED, -1, false, &d->interleaved));
  d->embed = find_tensor(d, TREADLE_ROLE_EMBED, -1);
  d->final_norm = find_tensor(d, TREADLE_ROLE_FINAL_NORM, -1);
  d->head = find_tensor(d, TREADLE_ROLE_HEAD, -1);
  d->score = find_tensor(d, TREADLE_ROLE_SCORE, -1);
  d->score_bias = find_tensor(d, TREADLE_ROLE_SCORE_BIAS, -1);
  TRY(need(d, TREADLE_ROLE_EMBED, -1, d->embed));
  TRY(need(d, TREADLE_ROLE_FINAL_NORM, -1, d->final_norm));
  if (d->score < 0) TRY(need(d, TREADLE_ROLE_HEAD, -1, d->head));
  d->vocabulary = model->tensors[d->embed].shape[0];
  d->hidden = model->tensors[d->embed].shape[1];
  TRY(treadle_switches_check(d));
  d->layers = model->layers;
  d->layer = treadle_arena_alloc_array(&d->arena, (size_t)d->layers, sizeof *d->layer);
  if (!d->layer) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld layers", (long long)d->layers);
  for (int32_t l = 0; l < model->layers; l++) TRY(fill_layer(d, l));
  positions = treadle_transformer_field(d, "max_position_embeddings");
  if (treadle_json_odd(positions))
    TRY(treadle_fail(TREADLE_REFUSED, "%s: max_position_embeddings is not a whole number%s", model->path,
                     treadle_json_note(positions)));
  if (json_is_integer(positions) && json_integer_value(positions) > 0)
    d->most_positions = json_integer_value(positions);
out:
  return status;
}

treadle_status treadle_transformer_create(const treadle_model *model, treadle_transformer **transformer_p) {
  treadle_transformer *d = treadle_alloc(sizeof *d);
  treadle_status status;
  *transformer_p = NULL;
  if (!d) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a transformer");
  d->model = model;
  TRY(fill(d));
  *transformer_p = d;
  d = NULL;
out:
  treadle_transformer_destroy(d);
  return status;
}

void treadle_transformer_destroy(treadle_transformer *transformer) {
  if (!transformer) return;
  treadle_arena_release(&transformer->arena);
  treadle_free(transformer);
}

int64_t treadle_transformer_leaves(int64_t parts) {
  int64_t leaves = 1;
  for (int64_t tp = 2; tp <= 8; tp++) {
    int64_t a = leaves, b = tp;
    if (parts % tp != 0) continue;
    while (b) {
      int64_t rest = a % b;
      a = b;
      b = rest;
    }
    leaves = leaves / a * tp;
  }
  return leaves;
}
