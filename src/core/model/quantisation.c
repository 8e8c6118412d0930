/* What config.json says of quantised weights, and whether treadle understands all of it.
 *
 * A rule and no list of what is unknown: a quantisation is read only if each of its keys is in the table of its method
 * with a value that the table knows. Anything else would be taken for other weights than the engines make of it, so it
 * is refused by name. A key that is null says nothing, but for those that must be there. A family may name methods of
 * which only the plain weights are known (`plain_only`): its published config is taken, and a note says so. */
#include "model/build.h"

#include "io/file_look.h"
#include "model/modules.h"

#include <stdlib.h>
#include <string.h>

static const char HINT[] =
    "treadle reads plain weights, fp8 in blocks with a scale each (quant_method fp8, "
    "activation_scheme dynamic, a weight_block_size), and MXFP4 of gpt-oss; for the plain "
    "weights of this model remove the key";

/* Keys under which configs say it; the second is older (compressed-tensors). */
static const char *const places[] = {"quantization_config", "compression_config"};
/* Any other key with one of these words in its name says it in a way that treadle does not read: "quantization" (MLX), "quantize",
 * "quant_config". */
static const char *const words[] = {"quant", "quantize", "quantized", "quantization"};

/* ---- The tables ---------------------------------------------------------------------------------- */

typedef enum value_type { TEXTS, SIZES, MODULES } value_type;

typedef struct known_key {
  const char *method, *name;
  value_type type;
  bool needed;
  const char *values[4]; /* of TEXTS, as JSON writes them without quotes */
} known_key;

static const known_key known[] = {
    {"fp8", "quant_method", TEXTS, true, {"fp8"}},
    {"fp8", "activation_scheme", TEXTS, false, {"dynamic"}},
    {"fp8", "fmt", TEXTS, false, {"e4m3", "float8_e4m3fn"}},
    {"fp8", "scale_fmt", TEXTS, false, {"float", "ue8m0"}},
    {"fp8", "expert_dtype", TEXTS, false, {"fp8"}},
    {"fp8", "dequantize", TEXTS, false, {"false"}},
    {"fp8", "weight_block_size", SIZES, true, {NULL}},
    {"fp8", "modules_to_not_convert", MODULES, false, {NULL}},
    {"fp8", "ignored_layers", MODULES, false, {NULL}},
    {"mxfp4", "quant_method", TEXTS, true, {"mxfp4"}},
    {"mxfp4", "dequantize", TEXTS, false, {"false"}},
    {"mxfp4", "modules_to_not_convert", MODULES, false, {NULL}},
};
enum { KNOWN = sizeof known / sizeof *known };

/* ---- Refusing ------------------------------------------------------------------------------------ */

static treadle_status refuse(const char *place, const char *key, const json_t *value, const char *why) {
  json_t *copy = json_deep_copy(value); /* NULL of NULL */
  char *text = copy ? treadle_json_dump(copy, JSON_COMPACT) : NULL;
  treadle_status status = treadle_fail(TREADLE_REFUSED, "%s%s%s%s%.80s %s; %s", place, key ? ": " : "",
                                       key ? key : "", value ? " " : "", text ? text : "", why, HINT);
  json_decref(copy);
  free(text);
  return status;
}

/* ---- One key ------------------------------------------------------------------------------------- */

static bool is_known(const known_key *key, const json_t *value) {
  const char *text = json_is_true(value)    ? "true"
                     : json_is_false(value) ? "false"
                                            : json_string_value(value);
  for (int i = 0; text && key->values[i]; i++)
    if (strcmp(text, key->values[i]) == 0) return true;
  return false;
}

static treadle_status read_sizes(treadle_model *model, const char *place, const char *key,
                                 const json_t *value) {
  for (size_t i = 0; i < 2; i++) {
    const json_t *number = json_array_get(value, i);
    model->block[i] = json_integer_value(number);
    if (json_array_size(value) != 2 || !json_is_integer(number) || model->block[i] < 1 ||
        model->block[i] > 1 << 20)
      return refuse(place, key, value, "is not a pair of sizes from 1 to 2^20");
  }
  return TREADLE_OK;
}

static treadle_status read_key(treadle_model *model, const char *place, const known_key *key,
                               const json_t *value) {
  treadle_status status;
  if (key->type == SIZES) return read_sizes(model, place, key->name, value);
  if (key->type == TEXTS)
    return is_known(key, value) ? TREADLE_OK : refuse(place, key->name, value, "is not known");
  status = treadle_modules_add(&model->unquantised, key->name, value);
  return status ? treadle_fail_in(status, "%s: ", place) : status;
}

static treadle_status read_keys(treadle_model *model, const char *place, const char *method,
                                json_t *object) {
  treadle_status status = TREADLE_OK;
  const char *name;
  json_t *value;
  for (int i = 0; i < KNOWN; i++) {
    bool of_method = strcmp(known[i].method, method) == 0;
    value = json_object_get(object, known[i].name);
    if (!of_method || (!known[i].needed && (!value || json_is_null(value)))) continue;
    if (!value) return refuse(place, known[i].name, NULL, "is missing");
    TRY(read_key(model, place, &known[i], value));
  }
  json_object_foreach(object, name, value) {
    int i = 0;
    while (i < KNOWN && (strcmp(known[i].method, method) != 0 || strcmp(known[i].name, name) != 0)) i++;
    if (i == KNOWN && !json_is_null(value)) return refuse(place, name, value, "is not known");
  }
  const json_t *lists[] = {json_object_get(object, "modules_to_not_convert"),
                           json_object_get(object, "ignored_layers")};
  if (json_array_size(lists[0]) && json_array_size(lists[1]) && !json_equal(lists[0], lists[1]))
    return refuse(place, "modules_to_not_convert and ignored_layers", NULL, "name different modules");
out:
  return status;
}

/* ---- One quantisation ---------------------------------------------------------------------------- */

static bool has_text(const char **texts, int32_t count, const char *text) {
  for (int32_t i = 0; i < count; i++)
    if (strcmp(texts[i], text) == 0) return true;
  return false;
}

static treadle_status read_one(treadle_model *model, const char *place, json_t *object) {
  const treadle_family *family = model->family;
  const json_t *field = json_object_get(object, "quant_method");
  const char *method = json_string_value(field);
  treadle_status status = TREADLE_OK;
  if (!json_is_object(object)) return refuse(place, NULL, object, "is not an object");
  if (!method) return refuse(place, "quant_method", field, field ? "is not a text" : "is missing");
  bool fp8 = strcmp(method, "fp8") == 0 && family->quantised_count > 0;
  if (!fp8 && has_text(family->plain_only, family->plain_only_count, method))
    return treadle_model_note(
        model,
        "%s: of family %s treadle knows no files with quant_method %s: all figures are those of "
        "plain weights",
        place, family->name, method);
  if (!fp8 && !has_text(family->coded, family->coded_count, method))
    return refuse(place, "quant_method", field,
                  strcmp(method, "fp8") == 0 || strcmp(method, "mxfp4") == 0 ? "is not known of this family"
                                                                             : "is not known");
  if (model->quantisation && !json_equal(model->quantisation, object))
    return refuse(place, NULL, NULL, "differs from another quantization_config of the same file");
  if (!model->quantisation) TRY(read_keys(model, place, method, object));
  model->quantisation = object;
  model->is_fp8 = fp8; /* until files say otherwise */
out:
  return status;
}

static bool is_place(const char *key) {
  for (size_t i = 0; i < sizeof places / sizeof *places; i++)
    if (strcmp(key, places[i]) == 0) return true;
  return false;
}

/* Is one of the words in the name, between underscores? num_quantizers, of a codec of sound, has none. */
static bool has_word(const char *key) {
  for (size_t length; *key; key += length + (key[length] == '_')) {
    length = strcspn(key, "_");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
      if (strlen(words[i]) == length && strncmp(key, words[i], length) == 0) return true;
  }
  return false;
}

/* null, false and 0 say that there is none. */
static bool says_no(const json_t *value) {
  return json_is_null(value) || json_is_false(value) ||
         (json_is_integer(value) && json_integer_value(value) == 0);
}

/* Those of an object, NAME in messages: "" for the file's outermost one. */
static treadle_status read_object(treadle_model *model, const char *name, json_t *object) {
  treadle_status status = TREADLE_OK;
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    char place[100];
    snprintf(place, sizeof place, "%.40s%s%.50s", name, *name ? "." : "", key);
    if (is_place(key) && !json_is_null(value)) TRY(read_one(model, place, value));
    if (!is_place(key) && has_word(key) && !says_no(value))
      TRY(refuse(place, NULL, value, "is not a quantization_config"));
  }
out:
  return status;
}

treadle_status treadle_model_read_quantisation(treadle_model *model) {
  treadle_status status;
  const char *name;
  json_t *inner;
  TRY(read_object(model, "", model->config));
  json_object_foreach(model->config, name, inner) {
    if (!is_place(name) && json_is_object(inner)) TRY(read_object(model, name, inner));
  }
out:
  return status;
}

/* ---- Beside the config --------------------------------------------------------------------------- */

treadle_status treadle_model_check_beside(const treadle_model *model, const char *config_path) {
  /* ModelOpt's, and older ones of AutoAWQ and AutoGPTQ: engines read them if config.json says nothing. */
  static const char *const names[] = {"hf_quant_config.json", "quant_config.json", "quantize_config.json"};
  const char *slash = strrchr(config_path, '/');
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; !model->quantisation && i < sizeof names / sizeof *names; i++) {
    char path[4096];
    treadle_file_type type;
    int length = snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash + 1 - config_path) : 0,
                          config_path, names[i]);
    if (length < 0 || (size_t)length >= sizeof path) break; /* no such file then */
    TRY(treadle_file_look(path, &type));
    if (type != TREADLE_FILE_NONE)
      return treadle_fail(
          TREADLE_REFUSED,
          "%s: this file says that the weights are quantised, and config.json does not; %s (here: this "
          "file)",
          path, HINT);
  }
out:
  return status;
}
