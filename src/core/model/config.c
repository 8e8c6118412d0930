/* Fields of a config.json. Whatever is not plainly what it should be is refused: 4096.0, "4096", -1. */
#include "model/config.h"
#include "base/dtype.h"
#include "base/json.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Refuses a field, with its value as it stands in the file. */
static treadle_status refuse(const char *name, const json_t *field, const char *wanted) {
  json_t *copy = json_deep_copy(field);
  char *value = copy ? treadle_json_dump(copy, JSON_COMPACT) : NULL;
  treadle_status status = value ? treadle_fail(TREADLE_REFUSED, "%s is %.80s%s, not %s", name, value,
                                               treadle_json_note(field), wanted)
                                : treadle_fail(TREADLE_NO_MEMORY, "no memory for the value of %s", name);
  json_decref(copy);
  free(value);
  return status;
}

/* What a name means, through objects: *rest_p is what is left of it behind the last one. NULL: absent or null. */
static const json_t *look_up(const json_t *config, const char *name, const char **rest_p) {
  const json_t *field = config;
  *rest_p = name;
  while (treadle_json_is_object(field) && **rest_p) {
    size_t length = strcspn(*rest_p, ".");
    char word[64]; /* longer ones are none of an expression */
    snprintf(word, sizeof word, "%.*s", (int)length, *rest_p);
    field = json_object_get(field, word);
    *rest_p += length + ((*rest_p)[length] == '.');
  }
  return json_is_null(field) ? NULL : field;
}

treadle_status treadle_config_number(const json_t *config, const char *name, int64_t *value_p,
                                     bool *found_p) {
  const char *rest;
  const json_t *field = look_up(config, name, &rest);
  *found_p = field != NULL;
  if (!*found_p) return TREADLE_OK;
  if (*rest) return refuse(name, field, "an object with such a field");
  if (json_is_boolean(field)) {
    *value_p = json_is_true(field);
    return TREADLE_OK;
  }
  if (!json_is_integer(field) || json_integer_value(field) < 0 ||
      json_integer_value(field) > TREADLE_MAX_SIZE)
    return refuse(name, field, "a whole number from 0 to 2^40");
  *value_p = json_integer_value(field);
  return TREADLE_OK;
}

/* Does the list have the word, or the number, at this place? */
static treadle_status has_at(const char *name, const json_t *list, const char *word, int64_t place,
                             bool *is_member_p) {
  bool number = *word >= '0' && *word <= '9';
  const json_t *item = place < 0 ? NULL : json_array_get(list, (size_t)place);
  const char *wanted = number ? "a list of whole numbers" : "a list of words";
  if (!json_is_array(list) || (item && !(number ? json_is_integer(item) : json_is_string(item))))
    return refuse(name, list, wanted);
  int64_t value = 0;
  if (number && !treadle_text_to_int64(word, &value)) return refuse(name, list, wanted);
  *is_member_p =
      item && (number ? json_integer_value(item) == value : strcmp(json_string_value(item), word) == 0);
  return TREADLE_OK;
}

treadle_status treadle_config_member(const json_t *config, const char *name, int64_t member,
                                     bool *is_member_p, bool *found_p) {
  const char *word;
  const json_t *field = look_up(config, name, &word);
  *is_member_p = false;
  *found_p = field != NULL;
  if (!*found_p) return TREADLE_OK;
  if (*word) {
    char list[64];
    snprintf(list, sizeof list, "%.*s", (int)(word - 1 - name), name);
    return has_at(list, field, word, member, is_member_p);
  }
  bool good = json_is_array(field);
  for (size_t i = 0; good && i < json_array_size(field); i++) {
    const json_t *item = json_array_get(field, i);
    good = json_is_integer(item);
    *is_member_p = *is_member_p || json_integer_value(item) == member;
  }
  return good ? TREADLE_OK : refuse(name, field, "a list of whole numbers");
}

bool treadle_config_is_boolean(const json_t *config, const char *name) {
  return json_is_boolean(json_object_get(config, name));
}

treadle_status treadle_config_model_type(const json_t *config, const char **type_p) {
  if (!treadle_json_is_object(config))
    return treadle_fail(TREADLE_REFUSED, "the top level is not an object");
  const json_t *field = json_object_get(config, "model_type");
  if (!field) return treadle_fail(TREADLE_REFUSED, "model_type is missing");
  if (!json_is_string(field)) return refuse("model_type", field, "a text");
  *type_p = json_string_value(field);
  return TREADLE_OK;
}

bool treadle_config_has_dtype(const json_t *config, const json_t *inner) {
  const json_t *configs[] = {inner, config};
  for (int i = 0; i < 2; i++)
    if (json_is_string(json_object_get(configs[i], "dtype")) ||
        json_is_string(json_object_get(configs[i], "torch_dtype")))
      return true;
  return false;
}

void treadle_config_dtypes_differ(const json_t *config, const json_t *inner, const char **taken_p,
                                  const char **other_p, const char **other_name_p) {
  static const char *const names[] = {"dtype", "torch_dtype"};
  const json_t *configs[] = {inner, config};
  treadle_dtype first, next;
  *taken_p = *other_p = *other_name_p = NULL;
  for (int i = 0; i < 4 && !*other_p; i++) {
    const char *text = json_string_value(json_object_get(configs[i / 2], names[i % 2]));
    if (!text) continue;
    if (!*taken_p)
      *taken_p = text;
    else if (!treadle_dtype_parse(*taken_p, &first) || !treadle_dtype_parse(text, &next) || first != next)
      *other_p = text, *other_name_p = names[i % 2];
  }
}

treadle_status treadle_config_check_positive(const json_t *config) {
  static const char *const names[] = {"rms_norm_eps", "rope_theta", "routed_scaling_factor",
                                      "max_position_embeddings"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const json_t *field = json_object_get(config, names[i]);
    if (!field || json_is_null(field)) continue;
    float value = (float)json_number_value(field);
    if (!json_is_number(field) || !(value > 0) || isinf(value))
      return refuse(names[i], field, "a number above 0");
  }
  return TREADLE_OK;
}

treadle_status treadle_config_dtype(const json_t *config, const json_t *inner, treadle_dtype *dtype_p) {
  static const char *const names[] = {"dtype", "torch_dtype"};
  const json_t *configs[] = {inner, config};
  *dtype_p = TREADLE_FP32;
  for (int i = 0; i < 4; i++) {
    const char *name = names[i % 2];
    const json_t *field = configs[i / 2] ? json_object_get(configs[i / 2], name) : NULL;
    if (!field || json_is_null(field)) continue;
    if (json_is_string(field) && treadle_dtype_parse(json_string_value(field), dtype_p) &&
        *dtype_p < TREADLE_FP8_E4M3) /* fp8 has scales, of which quantization_config speaks */
      return TREADLE_OK;
    return refuse(name, field, "float32, bfloat16 or float16");
  }
  for (int i = 0; i < 2; i++) {
    const json_t *quantisation = json_object_get(configs[i], "quantization_config");
    const char *method = json_string_value(json_object_get(quantisation, "quant_method"));
    if (method && strcmp(method, "mxfp4") == 0)
      *dtype_p = TREADLE_BF16; /* what transformers unpacks it to */
  }
  return TREADLE_OK;
}
