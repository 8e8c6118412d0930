/* By the names of fields: what a config of transformers switches on with a field of such a name, whatever its family, the engine does not
 * compute. A value under which nothing changes is fine: null, false, and the one that the rule names. What has weights of its own (sinks,
 * biases, norms) needs no rule: its tensors are refused by their names. */
#include "pass/switches.h"

#include "io/json.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum neutral {
  NEUTRAL_NONE, /* null and false alone */
  NEUTRAL_TRUE, /* and true; false is not */
  NEUTRAL_0,
  NEUTRAL_1,
  NEUTRAL_HEAD_DIM,      /* of queries and keys */
  NEUTRAL_HEAD_DIM_ROOT, /* 1 / sqrt of it */
  NEUTRAL_HIDDEN
} neutral;

typedef struct rule {
  const char *name; /* "*x*" has x in it, "*x" ends with it, else it is the whole name */
  neutral neutral;
  const char *what;
} rule;

/* The first that fits counts. */
static const rule rules[] = {
    {"is_causal", NEUTRAL_TRUE, "attention to later tokens"},
    {"*bidirectional*", NEUTRAL_NONE, "attention to later tokens"},
    {"is_encoder_decoder", NEUTRAL_NONE, "a decoder with an encoder"},
    {"add_cross_attention", NEUTRAL_NONE, "cross attention"},
    {"*softcap*", NEUTRAL_0, "caps of attention or logits"},
    {"*soft_cap*", NEUTRAL_0, "caps of attention or logits"},
    {"query_pre_attn_scalar", NEUTRAL_HEAD_DIM, "another scale of attention"},
    {"attention_multiplier", NEUTRAL_HEAD_DIM_ROOT, "another scale of attention"},
    {"attn_temperature_tuning", NEUTRAL_0, "a scale of attention that depends on positions"},
    {"attn_scale", NEUTRAL_1, "another scale of attention"},
    {"*multiplier", NEUTRAL_1, "multipliers of embeddings, residuals or logits"},
    {"*multipliers", NEUTRAL_1, "multipliers of embeddings, residuals or logits"},
    {"*logit_scale", NEUTRAL_1, "scaled logits"},
    {"*logits_scal*", NEUTRAL_1, "scaled logits"},
    {"scale_emb", NEUTRAL_1, "scaled embeddings"},
    {"*embed_scale", NEUTRAL_1, "scaled embeddings"},
    {"*embedding_scale", NEUTRAL_1, "scaled embeddings"},
    {"*scale_embedding*", NEUTRAL_NONE, "scaled embeddings"},
    {"scale_depth", NEUTRAL_NONE, "scaled residuals"},
    {"dim_model_base", NEUTRAL_HIDDEN, "scaled logits"},
    {"clip_qkv", NEUTRAL_NONE, "clipped queries, keys and values"},
    {"swiglu_*", NEUTRAL_0, "another activation"},
    {"attention_chunk_size", NEUTRAL_0, "attention in chunks"},
    {"alibi", NEUTRAL_NONE, "positions by ALiBi"},
    {"parallel_attn", NEUTRAL_NONE, "attention and MLP side by side"},
    {"*parallel_residual", NEUTRAL_NONE, "attention and MLP side by side"},
};

static bool fits(const char *pattern, const char *name) {
  const size_t length = strlen(pattern), bytes = strlen(name);
  char inner[64];
  if (pattern[0] == '*' && pattern[length - 1] == '*') {
    snprintf(inner, sizeof inner, "%.*s", (int)length - 2, pattern + 1);
    return strstr(name, inner) != NULL;
  }
  if (pattern[length - 1] == '*') return strncmp(name, pattern, length - 1) == 0;
  if (pattern[0] != '*') return strcmp(name, pattern) == 0;
  return bytes >= length - 1 && strcmp(name + bytes - (length - 1), pattern + 1) == 0;
}

static const rule *rule_of(const char *name) {
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (fits(rules[i].name, name)) return &rules[i];
  return NULL;
}

/* Does a fact of the family's forward section read the field? */
static bool is_read(const treadle_transformer *d, const char *name) {
  const treadle_forward_section *section = d->model->family->forward;
  for (int fact = 0; fact < TREADLE_FACTS; fact++)
    if (section->facts[fact] && strstr(section->facts[fact], name)) return true;
  return false;
}

static bool is_number(const json_t *value, double number) {
  return json_is_number(value) && fabs(json_number_value(value) - number) <= 1e-6 * number;
}

static bool is_neutral(const treadle_transformer *d, neutral kind, const json_t *value) {
  const double head = (double)d->head_dim;
  if (json_is_null(value)) return true;
  if (json_is_array(value)) { /* of multipliers: one for each place */
    for (size_t i = 0; i < json_array_size(value); i++)
      if (!is_neutral(d, kind, json_array_get(value, i))) return false;
    return true;
  }
  if (json_is_boolean(value)) return json_is_true(value) == (kind == NEUTRAL_TRUE);
  switch (kind) {
  case NEUTRAL_0: return is_number(value, 0);
  case NEUTRAL_1: return is_number(value, 1);
  case NEUTRAL_HEAD_DIM: return is_number(value, head);
  case NEUTRAL_HEAD_DIM_ROOT: return is_number(value, 1 / sqrt(head));
  case NEUTRAL_HIDDEN: return is_number(value, (double)d->hidden);
  default: return false;
  }
}

static treadle_status check_field(const treadle_transformer *d, const char *name, const json_t *value) {
  const rule *of = rule_of(name);
  if (!of || is_read(d, name) || is_neutral(d, of->neutral, value)) return TREADLE_OK;
  char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
  treadle_status status =
      treadle_fail(TREADLE_REFUSED, "%s: %s is %.40s, and the engine does not compute %s", d->model->path,
                   name, text ? text : "set", of->what);
  free(text);
  return status;
}

/* A layer that attends in another way than to all tokens before it. */
static treadle_status check_layers(const treadle_transformer *d, const json_t *types) {
  for (size_t i = 0; i < json_array_size(types); i++) {
    const char *type = json_string_value(json_array_get(types, i));
    if (!type || strcmp(type, "full_attention") != 0)
      return treadle_fail(
          TREADLE_REFUSED,
          "%s: layer_types has '%.40s' for layer %d, and the engine computes full_attention",
          d->model->path, type ? type : "no text", (int)i);
  }
  return TREADLE_OK;
}

static treadle_status check_fields(const treadle_transformer *d, json_t *config) {
  const json_t *inner = treadle_transformer_config(d); /* of a part: an object in the config */
  const char *name;
  json_t *value;
  treadle_status status = TREADLE_OK;
  json_object_foreach(config, name, value)
      TRY(value == inner ? check_fields(d, value) : check_field(d, name, value));
out:
  return status;
}

treadle_status treadle_switches_check(const treadle_transformer *transformer) {
  treadle_status status;
  TRY(check_fields(transformer, transformer->model->config));
  TRY(check_layers(transformer, json_object_get(treadle_transformer_config(transformer), "layer_types")));
out:
  return status;
}
