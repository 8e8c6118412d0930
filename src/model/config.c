/* Fields of a config.json. Whatever is not plainly what it should be is refused: 4096.0, "4096", -1. */
#include "model/config.h"
#include "base/dtype.h"

#include <inttypes.h>
#include <stdlib.h>

/* Refuses a field, with its value as it stands in the file. */
static treadle_status refuse(const char *name, const json_t *field, const char *wanted) {
  char *value = json_dumps(field, JSON_COMPACT | JSON_ENCODE_ANY);
  treadle_status status = value ? treadle_fail(TREADLE_REFUSED, "%s is %.80s, not %s", name, value, wanted)
                                : treadle_fail(TREADLE_NO_MEMORY, "no memory for the value of %s", name);
  free(value);
  return status;
}

treadle_status treadle_config_number(const json_t *config, const char *name, int64_t *value_p,
                                     bool *found_p) {
  const json_t *field = json_object_get(config, name);
  *found_p = field && !json_is_null(field);
  if (!*found_p) return TREADLE_OK;
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

bool treadle_config_is_boolean(const json_t *config, const char *name) {
  return json_is_boolean(json_object_get(config, name));
}

treadle_status treadle_config_model_type(const json_t *config, const char **type_p) {
  if (!json_is_object(config)) return treadle_fail(TREADLE_REFUSED, "the top level is no object");
  const json_t *field = json_object_get(config, "model_type");
  if (!field) return treadle_fail(TREADLE_REFUSED, "model_type is missing");
  if (!json_is_string(field)) return refuse("model_type", field, "a text");
  *type_p = json_string_value(field);
  return TREADLE_OK;
}

treadle_status treadle_config_dtype(const json_t *config, treadle_dtype *dtype_p) {
  const char *name = "dtype";
  const json_t *field = json_object_get(config, name);
  if (!field || json_is_null(field)) {
    name = "torch_dtype";
    field = json_object_get(config, name);
  }
  *dtype_p = TREADLE_FP32;
  if (!field || json_is_null(field)) return TREADLE_OK;
  if (!json_is_string(field) || !treadle_dtype_parse(json_string_value(field), dtype_p))
    return refuse(name, field, "float32, bfloat16 or float16");
  return TREADLE_OK;
}
