/* From config.json to frequencies, in the roundings of torch: a tensor of fp32 with a Python number rounds the number to
 * fp32 first; a number divided by a tensor is the number times the tensor's reciprocal. */
#include "nn/rope.h"

#include "base/alloc.h"
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST 1e30 /* what is larger is not a number that a model means, and might not fit into fp32 */
#define PI   3.14159265358979323846

typedef struct fields {
  const json_t *config, *section; /* section: rope_scaling or rope_parameters, or NULL */
  const char *name;               /* of the section */
} fields;

static const char *const types[] = {
    [TREADLE_ROPE_DEFAULT] = "default",
    [TREADLE_ROPE_LINEAR] = "linear",
    [TREADLE_ROPE_LLAMA3] = "llama3",
    [TREADLE_ROPE_YARN] = "yarn",
};
enum { TYPES = sizeof types / sizeof *types };

/* What may stand in the section; a type does not look at all of them. */
static const char *const known[] = {"rope_type",
                                    "type",
                                    "rope_theta",
                                    "partial_rotary_factor",
                                    "factor",
                                    "original_max_position_embeddings",
                                    "low_freq_factor",
                                    "high_freq_factor",
                                    "attention_factor",
                                    "beta_fast",
                                    "beta_slow",
                                    "mscale",
                                    "mscale_all_dim",
                                    "truncate",
                                    NULL};

/* ---- Fields ---- */

/* A field that is there and not null. */
static const json_t *field(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return value && !json_is_null(value) ? value : NULL;
}

/* A number of an object, `prefix` its name and a dot; the default where there is none. */
static treadle_status read_number(const json_t *object, const char *prefix, const char *key,
                                  double otherwise, double *value_p) {
  const json_t *value = field(object, key);
  *value_p = otherwise;
  if (!value) return TREADLE_OK;
  if (!json_is_number(value)) REFUSE("%s%s is not a number%s", prefix, key, treadle_json_note(value));
  *value_p = json_number_value(value);
  if (!isfinite(*value_p)) REFUSE("%s%s is not finite", prefix, key);
  return TREADLE_OK;
}

static treadle_status of_section(const fields *f, const char *key, double otherwise, double *value_p) {
  char prefix[32];
  snprintf(prefix, sizeof prefix, "%s.", f->name);
  return read_number(f->section, prefix, key, otherwise, value_p);
}

static treadle_status of_config(const fields *f, const char *key, double otherwise, double *value_p) {
  return read_number(f->config, "", key, otherwise, value_p);
}

/* In the section, else beside it, else the default. */
static treadle_status of_either(const fields *f, const char *key, double otherwise, double *value_p) {
  treadle_status status;
  TRY(of_config(f, key, otherwise, value_p));
  TRY(of_section(f, key, *value_p, value_p));
out:
  return status;
}

/* A number of the section that has to be there, above 0. */
static treadle_status need_positive(const fields *f, const char *key, double otherwise, double *value_p) {
  treadle_status status;
  TRY(of_section(f, key, otherwise, value_p));
  if (isnan(*value_p)) REFUSE("%s.%s is missing", f->name, key);
  if (!(*value_p > 0.0 && *value_p <= MOST))
    REFUSE("%s.%s is %g: it has to be above 0", f->name, key, *value_p);
out:
  return status;
}

static treadle_status find_section(const json_t *config, fields *f) {
  static const char *const names[] = {"rope_scaling", "rope_parameters"};
  *f = (fields){.config = config, .name = names[1]};
  for (int i = 1; i >= 0; i--) {
    const json_t *section = field(config, names[i]);
    if (!section) continue;
    if (!treadle_json_is_object(section))
      REFUSE("%s is not an object%s", names[i], treadle_json_note(section));
    if (json_object_size(section) > 0) *f = (fields){config, section, names[i]};
  }
  return TREADLE_OK;
}

static treadle_status check_known(const fields *f) {
  void *at = f->section ? json_object_iter(json_object_get(f->config, f->name)) : NULL;
  for (; at; at = json_object_iter_next(json_object_get(f->config, f->name), at)) {
    const char *key = json_object_iter_key(at);
    if (json_is_null(json_object_iter_value(at))) continue;
    if (treadle_json_is_object(json_object_iter_value(at)))
      REFUSE("%s.%s: rope for each type of layer is not implemented", f->name, key);
    int i = 0;
    while (known[i] && strcmp(known[i], key) != 0) i++;
    if (!known[i]) REFUSE("%s.%s is not known", f->name, key);
  }
  return TREADLE_OK;
}

static treadle_status read_type(const fields *f, treadle_rope_type *type_p) {
  const char *key = field(f->section, "rope_type") ? "rope_type" : "type";
  const json_t *value = field(f->section, key);
  *type_p = TREADLE_ROPE_DEFAULT;
  if (!value) return TREADLE_OK;
  if (!json_is_string(value)) REFUSE("%s.%s is not a text%s", f->name, key, treadle_json_note(value));
  for (int i = 0; i < TYPES; i++) {
    if (strcmp(json_string_value(value), types[i]) != 0) continue;
    *type_p = (treadle_rope_type)i;
    return TREADLE_OK;
  }
  REFUSE("%s.%s is \"%.40s\": of rope, default, linear, llama3 and yarn are implemented", f->name, key,
         json_string_value(value));
}

/* ---- Shape ---- */

static treadle_status read_head_dim(const fields *f, const treadle_rope_spec *spec, double *head_dim_p) {
  treadle_status status = TREADLE_OK;
  double hidden, heads;
  *head_dim_p = (double)spec->head_dim;
  if (spec->head_dim) goto out;
  TRY(of_config(f, "head_dim", 0.0, head_dim_p));
  if (*head_dim_p != 0.0) goto out;
  TRY(of_config(f, "hidden_size", 0.0, &hidden));
  TRY(of_config(f, "num_attention_heads", 0.0, &heads));
  if (hidden < 1.0 || heads < 1.0)
    REFUSE("head_dim is missing, and hidden_size or num_attention_heads too");
  *head_dim_p = floor(hidden / heads);
out:
  return status;
}

static treadle_status read_shape(const fields *f, const treadle_rope_spec *spec, treadle_rope *rope) {
  treadle_status status;
  double head_dim, partial;
  TRY(read_head_dim(f, spec, &head_dim));
  if (!(head_dim >= 1.0 && head_dim <= 65536.0) || head_dim != floor(head_dim))
    REFUSE("head_dim is %g: rope takes whole numbers from 2 to 65536", head_dim);
  TRY(of_either(f, "partial_rotary_factor", spec->partial > 0.0 ? spec->partial : 1.0, &partial));
  if (!(partial > 0.0 && partial <= 1.0))
    REFUSE("partial_rotary_factor is %g: it has to be above 0 and at most 1", partial);
  int64_t rotated = (int64_t)(head_dim * partial);
  if (rotated < 2 || rotated % 2)
    REFUSE("head_dim %g with partial_rotary_factor %g: rope would rotate %lld values, which are no pairs",
           head_dim, partial, (long long)rotated);
  rope->pairs = rotated / 2;
  TRY(of_either(f, "rope_theta", spec->theta > 0.0 ? spec->theta : 10000.0, &rope->theta));
  if (!(rope->theta >= 1.0 && rope->theta <= MOST))
    REFUSE("rope_theta is %g: it has to be at least 1", rope->theta);
out:
  return status;
}

/* ---- Frequencies ---- */

/* theta^(2 i / rotated) */
static float stretched(const treadle_rope *rope, int64_t i) {
  float exponent = (float)(2 * i) / (float)(2 * rope->pairs);
  return (float)treadle_power((double)(float)rope->theta, (double)exponent);
}

static treadle_status use_default(const fields *f, treadle_rope *rope) {
  (void)f;
  for (int64_t i = 0; i < rope->pairs; i++) rope->inverse[i] = 1.0f / stretched(rope, i);
  return TREADLE_OK;
}

static treadle_status use_linear(const fields *f, treadle_rope *rope) {
  treadle_status status;
  TRY(need_positive(f, "factor", NAN, &rope->factor));
  TRY(use_default(f, rope));
  for (int64_t i = 0; i < rope->pairs; i++) rope->inverse[i] = rope->inverse[i] / (float)rope->factor;
out:
  return status;
}

static treadle_status read_original(const fields *f, double *original_p) {
  treadle_status status;
  double most;
  TRY(of_config(f, "original_max_position_embeddings", NAN, original_p));
  if (!isnan(*original_p)) goto check;
  TRY(of_config(f, "max_position_embeddings", NAN, &most));
  TRY(of_section(f, "original_max_position_embeddings", most, original_p));
check:
  if (isnan(*original_p)) REFUSE("%s.original_max_position_embeddings is missing", f->name);
  if (!(*original_p >= 1.0 && *original_p <= MOST))
    REFUSE("original_max_position_embeddings is %g: it has to be at least 1", *original_p);
out:
  return status;
}

/* Long waves are stretched by the factor, short ones are kept, and those between are mixed (Llama 3.1). */
static treadle_status use_llama3(const fields *f, treadle_rope *rope) {
  treadle_status status;
  double low, high, original;
  TRY(need_positive(f, "factor", NAN, &rope->factor));
  TRY(need_positive(f, "low_freq_factor", NAN, &low));
  TRY(need_positive(f, "high_freq_factor", NAN, &high));
  if (high == low) REFUSE("%s: low_freq_factor and high_freq_factor are both %g", f->name, low);
  TRY(read_original(f, &original));
  TRY(use_default(f, rope));
  float long_wave = (float)(original / low), short_wave = (float)(original / high);
  float factor = (float)rope->factor;
  for (int64_t i = 0; i < rope->pairs; i++) {
    float inverse = rope->inverse[i], wave = (1.0f / inverse) * (float)(2.0 * PI);
    float kept = wave > long_wave ? inverse / factor : inverse;
    float smooth = ((1.0f / wave) * (float)original - (float)low) / (float)(high - low);
    float mixed = (1.0f - smooth) * kept / factor + smooth * kept;
    rope->inverse[i] = wave < short_wave || wave > long_wave ? kept : mixed;
  }
out:
  return status;
}

static double mscale_of(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * treadle_log(factor) + 1.0;
}

/* The pair that turns this many times in the original length, as a real number. */
static double correction(const treadle_rope *rope, double turns, double original) {
  return (double)(2 * rope->pairs) * treadle_log(original / (turns * 2.0 * PI)) /
         (2.0 * treadle_log(rope->theta));
}

static treadle_status read_yarn_factors(const fields *f, double original, treadle_rope *rope) {
  treadle_status status;
  double most, mscale, all_dim, given;
  TRY(of_config(f, "max_position_embeddings", NAN, &most));
  TRY(need_positive(f, "factor", most / original, &rope->factor));
  TRY(of_section(f, "mscale", 0.0, &mscale));
  TRY(of_section(f, "mscale_all_dim", 0.0, &all_dim));
  double both = mscale != 0.0 && all_dim != 0.0
                    ? mscale_of(rope->factor, mscale) / mscale_of(rope->factor, all_dim)
                    : mscale_of(rope->factor, 1.0);
  TRY(of_section(f, "attention_factor", both, &given));
  if (!(given >= 0.0 && given <= MOST))
    REFUSE("%s: attention_factor, or what mscale and mscale_all_dim make, is %g", f->name, given);
  rope->attention_factor = (float)given;
out:
  return status;
}

static treadle_status read_yarn_range(const fields *f, double original, const treadle_rope *rope,
                                      double *low_p, double *high_p) {
  treadle_status status;
  double fast, slow;
  const json_t *truncate = field(f->section, "truncate");
  if (truncate && !json_is_boolean(truncate)) REFUSE("%s.truncate is neither true nor false", f->name);
  if (rope->theta == 1.0) REFUSE("rope_theta is 1: yarn has no frequencies between");
  TRY(of_section(f, "beta_fast", 0.0, &fast));
  TRY(of_section(f, "beta_slow", 0.0, &slow));
  if (fast == 0.0) fast = 32.0;
  if (slow == 0.0) slow = 1.0;
  if (fast < 0.0 || slow < 0.0)
    REFUSE("%s: beta_fast %g and beta_slow %g have to be above 0", f->name, fast, slow);
  double low = correction(rope, fast, original), high = correction(rope, slow, original);
  if (!truncate || json_is_true(truncate)) {
    low = floor(low);
    high = ceil(high);
  }
  *low_p = low > 0.0 ? low : 0.0;
  *high_p = high < (double)(2 * rope->pairs - 1) ? high : (double)(2 * rope->pairs - 1);
  if (*low_p == *high_p) *high_p += 0.001;
out:
  return status;
}

/* Pairs below `low` keep their frequency, those above `high` are stretched, and those between are mixed. */
static treadle_status use_yarn(const fields *f, treadle_rope *rope) {
  treadle_status status;
  double original, low = 0.0, high = 0.0;
  TRY(read_original(f, &original));
  TRY(read_yarn_factors(f, original, rope));
  TRY(read_yarn_range(f, original, rope, &low, &high));
  for (int64_t i = 0; i < rope->pairs; i++) {
    float ramp = ((float)i - (float)low) / (float)(high - low);
    ramp = ramp < 0.0f ? 0.0f : ramp > 1.0f ? 1.0f : ramp;
    float wave = stretched(rope, i), keep = 1.0f - ramp;
    rope->inverse[i] = 1.0f / ((float)rope->factor * wave) * (1.0f - keep) + 1.0f / wave * keep;
  }
out:
  return status;
}

static treadle_status (*const uses[])(const fields *f, treadle_rope *rope) = {
    [TREADLE_ROPE_DEFAULT] = use_default,
    [TREADLE_ROPE_LINEAR] = use_linear,
    [TREADLE_ROPE_LLAMA3] = use_llama3,
    [TREADLE_ROPE_YARN] = use_yarn,
};

treadle_status treadle_rope_read(const json_t *config, const treadle_rope_spec *spec,
                                 treadle_rope *rope_p) {
  treadle_status status;
  fields f;
  double all_dim;
  treadle_rope rope = {.factor = 1.0, .attention_factor = 1.0f, .softmax_factor = 1.0};
  TRY(find_section(config, &f));
  TRY(check_known(&f));
  TRY(read_type(&f, &rope.type));
  TRY(read_shape(&f, spec, &rope));
  const json_t *interleave = field(config, "rope_interleave");
  if (interleave && !json_is_boolean(interleave))
    TRY(treadle_fail(TREADLE_REFUSED, "rope_interleave is neither true nor false"));
  rope.interleaved = spec->interleaved && !json_is_false(interleave);
  rope.inverse = treadle_alloc_array((size_t)rope.pairs, sizeof *rope.inverse);
  if (!rope.inverse)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld rope frequencies", (long long)rope.pairs));
  TRY(uses[rope.type](&f, &rope));
  TRY(of_section(&f, "mscale_all_dim", 0.0, &all_dim));
  if (rope.type != TREADLE_ROPE_DEFAULT && all_dim != 0.0) {
    double mscale = mscale_of(rope.factor, all_dim);
    rope.softmax_factor = mscale * mscale;
  }
  *rope_p = rope;
  rope = (treadle_rope){0};
out:
  treadle_rope_release(&rope);
  return status;
}
