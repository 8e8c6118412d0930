/* peft's folder: a config that says what the adapters are, and their values. */
#include "adapter/adapter.h"

#include "base/dtype.h"
#include "base/finite.h"
#include "base/text.h"
#include "base/utf8.h"
#include "io/file.h"
#include "io/json.h"

#include <limits.h>
#include <string.h>
#include <strings.h>

static treadle_status join_path(char to[PATH_MAX], const char *folder, const char *name) {
  if (snprintf(to, PATH_MAX, "%s/%s", folder, name) < PATH_MAX) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s/%s: too long for a path", folder, name);
}

/* ---- The config -------------------------------------------------------------------------------------------- */

/* Is it absent, or as if it were: null, false, 0, "", {} or []? */
static bool is_nothing(const json_t *value) {
  if (!value || json_is_null(value) || json_is_false(value)) return true;
  if (json_is_number(value)) return json_number_value(value) == 0;
  if (json_is_string(value)) return json_string_length(value) == 0;
  if (json_is_array(value)) return json_array_size(value) == 0;
  return treadle_json_is_object(value) && json_object_size(value) == 0;
}

/* What would make other values of an adapter than scale * B A. */
static treadle_status check_known(const char *path, const json_t *config) {
  static const char *const others[][2] = {
      {"lora_dropout", "dropout"},
      {"use_dora", "DoRA"},
      {"use_rslora", "rank-stabilised scaling (rslora)"},
      {"use_qalora", "QALoRA"},
      {"lora_bias", "biases of B"},
      {"fan_in_fan_out", "transposed weights"},
      {"modules_to_save", "modules that are trained whole"},
      {"rank_pattern", "ranks that differ by module, as peft makes them of single experts, too,"},
      {"alpha_pattern", "an alpha that differs by module"},
      {"layers_to_transform", "some of the layers alone"},
      {"exclude_modules", "modules that are left out"},
      {"layer_replication", "layers that are repeated"},
      {"trainable_token_indices", "trained tokens"},
      {"alora_invocation_tokens", "tokens from which on they work (aLoRA)"},
      {"arrow_config", "a choice between several (Arrow)"},
      {"kasa_config", "weights of lower rank beside them (KaSA)"},
      {"use_bdlora", "blocks (BD-LoRA)"},
      {"target_parameters", "parameters that are not modules"}};
  const char *type = json_string_value(json_object_get(config, "peft_type"));
  const char *bias = json_string_value(json_object_get(config, "bias"));
  if (!type || strcmp(type, "LORA") != 0)
    REFUSE("%s: peft_type is %s; adapters of type LORA are read", path, type ? type : "not there");
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (!is_nothing(json_object_get(config, others[i][0])))
      REFUSE("%s: %s is set: adapters with %s are not known", path, others[i][0], others[i][1]);
  if (bias && strcmp(bias, "none") != 0)
    REFUSE("%s: bias is '%s': adapters with biases are not known", path, bias);
  return TREADLE_OK;
}

/* Is a text one of the names, or does it begin with one? */
static bool is_one_of(const char *text, const char *const *names, size_t count, bool whole) {
  for (size_t i = 0; i < count; i++)
    if (strncasecmp(text, names[i], strlen(names[i]) + whole) == 0) return true;
  return false;
}

/* What adapters began with. Some beginnings take scale * B A out of the weights, and peft does so again where it
 * loads such adapters (with lora_ga it should). Where peft has converted them, init_lora_weights is true, and the
 * other keys are still there. */
static treadle_status check_beginning(const char *path, const json_t *config) {
  static const char *const plain[] = {"gaussian", "eva", "orthogonal", "mica"};
  static const char *const changing[] = {"pissa", "corda", "olora", "loftq", "lora_ga"};
  static const char *const keys[] = {"loftq_config", "corda_config", "lora_ga_config"};
  static const char why[] =
      "which changes the weights beside the adapters; merge these where they were trained";
  const json_t *value = json_object_get(config, "init_lora_weights");
  const char *name = json_string_value(value);
  for (size_t i = 0; !value && i < sizeof keys / sizeof *keys; i++)
    if (!is_nothing(json_object_get(config, keys[i])))
      REFUSE("%s: %s is set, of a method %s", path, keys[i], why);
  if (!value || json_is_null(value) || json_is_boolean(value)) return TREADLE_OK;
  if (!name) REFUSE("%s: init_lora_weights is neither a name, true nor false", path);
  if (is_one_of(name, plain, sizeof plain / sizeof *plain, true)) return TREADLE_OK;
  REFUSE("%s: init_lora_weights is '%.100s', %s", path, treadle_text_shown(name),
         is_one_of(name, changing, sizeof changing / sizeof *changing, false) ? why : "which is not known");
}

/* target_modules as a list with commas. */
static treadle_status read_modules(const char *path, const json_t *config, treadle_builder *modules) {
  const json_t *value = json_object_get(config, "target_modules");
  if (json_is_string(value)) {
    if (strcmp(json_string_value(value), "all-linear") != 0)
      REFUSE("%s: target_modules is an expression, '%.100s'; give a list of names", path,
             json_string_value(value));
    treadle_builder_add(modules, "all-linear");
    return TREADLE_OK;
  }
  if (is_nothing(value) || !json_is_array(value)) REFUSE("%s: target_modules is not a list of names", path);
  for (size_t i = 0; i < json_array_size(value); i++) {
    const char *name = json_string_value(json_array_get(value, i));
    if (!name || !*name || strchr(name, ','))
      REFUSE("%s: target_modules has an entry that is not a name", path);
    treadle_builder_add(modules, "%s%s", i ? "," : "", strrchr(name, '.') ? strrchr(name, '.') + 1 : name);
  }
  return modules->failed ? treadle_fail(TREADLE_NO_MEMORY, "no memory for adapters") : TREADLE_OK;
}

static treadle_status read_config(const char *path, const json_t *config, treadle_adapter_spec *spec,
                                  treadle_builder *modules) {
  const json_t *rank = json_object_get(config, "r"), *alpha = json_object_get(config, "lora_alpha");
  treadle_status status;
  if (!treadle_json_is_object(config)) REFUSE("%s: not an object", path);
  TRY(check_known(path, config));
  TRY(check_beginning(path, config));
  if (!json_is_integer(rank)) REFUSE("%s: r is not a whole number%s", path, treadle_json_note(rank));
  if (!json_is_number(alpha)) REFUSE("%s: lora_alpha is not a number%s", path, treadle_json_note(alpha));
  TRY(read_modules(path, config, modules));
  *spec = (treadle_adapter_spec){
      .rank = json_integer_value(rank), .alpha = json_number_value(alpha), .modules = modules->text};
out:
  return status;
}

treadle_status treadle_adapter_need_folder(const char *folder) {
  static const char *const files[] = {TREADLE_ADAPTER_CONFIG, TREADLE_ADAPTER_WEIGHTS};
  char path[PATH_MAX];
  treadle_status status = TREADLE_OK;
  if (!*folder) REFUSE("adapters: the path of their folder is empty");
  if (!treadle_file_is_folder(folder))
    REFUSE("%s: %s; adapters are a folder with " TREADLE_ADAPTER_CONFIG " and " TREADLE_ADAPTER_WEIGHTS,
           folder, treadle_file_exists(folder) ? "it is not a folder" : "there is no such folder");
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    TRY(join_path(path, folder, files[i]));
    if (!treadle_file_exists(path)) REFUSE("%s: has no adapters: %s is not there", folder, files[i]);
  }
out:
  return status;
}

treadle_status treadle_adapter_open(const treadle_model *base, const char *folder,
                                    treadle_adapter **adapter_p) {
  treadle_adapter_spec spec;
  treadle_builder modules = {0};
  char path[PATH_MAX];
  json_t *config = NULL;
  treadle_status status;
  *adapter_p = NULL;
  TRY(treadle_adapter_need_folder(folder));
  TRY(join_path(path, folder, TREADLE_ADAPTER_CONFIG));
  TRY(treadle_as_refusal(treadle_json_load(path, &config)));
  TRY(read_config(path, config, &spec, &modules));
  status = treadle_adapter_create(base, &spec, adapter_p);
  if (status) status = treadle_fail_in(status, "%s: ", path);
out:
  json_decref(config);
  treadle_builder_release(&modules);
  return status;
}

/* As peft writes it: keys it has defaults for are left out, but for those that readers look at. */
treadle_status treadle_adapter_write_config(const treadle_adapter *adapter, const char *folder) {
  const char *base = adapter->base->folder ? adapter->base->folder : adapter->base->path;
  treadle_builder text = {0};
  char path[PATH_MAX];
  treadle_status status;
  TRY(join_path(path, folder, TREADLE_ADAPTER_CONFIG));
  treadle_builder_add(&text, "{\n  \"base_model_name_or_path\": ");
  treadle_json_add_text(&text, base, strlen(base));
  treadle_builder_add(
      &text,
      ",\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": false,\n  \"inference_mode\": true,\n"
      "  \"init_lora_weights\": true,\n  \"lora_alpha\": %.17g,\n  \"lora_dropout\": 0.0,\n"
      "  \"modules_to_save\": null,\n  \"peft_type\": \"LORA\",\n  \"r\": %lld,\n"
      "  \"target_modules\": [",
      adapter->alpha, (long long)adapter->rank);
  for (int32_t i = 0; i < adapter->module_count; i++) {
    treadle_builder_add(&text, i ? ", " : "");
    treadle_json_add_text(&text, adapter->modules[i], strlen(adapter->modules[i]));
  }
  treadle_builder_add(
      &text, "],\n  \"task_type\": \"CAUSAL_LM\",\n  \"use_dora\": false,\n  \"use_rslora\": false\n}\n");
  if (text.failed) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for adapters"));
  TRY(treadle_file_write(path, text.text, text.length));
out:
  treadle_builder_release(&text);
  return status;
}

/* ---- Values ------------------------------------------------------------------------------------------------ */

static treadle_status check_stored(const char *path, const treadle_stored *stored,
                                   const treadle_tensor *t) {
  if (!stored) REFUSE("%s: tensor '%s' is missing", path, t->name);
  if (stored->ndim != 2 || stored->shape[0] != t->shape[0] || stored->shape[1] != t->shape[1])
    REFUSE("%s: tensor '%s' is [%lld, %lld]; an adapter of this rank for this model has [%lld, %lld]", path,
           t->name, (long long)(stored->ndim > 0 ? stored->shape[0] : 0),
           (long long)(stored->ndim > 1 ? stored->shape[1] : 0), (long long)t->shape[0],
           (long long)t->shape[1]);
  if (stored->dtype != TREADLE_FP32 && stored->dtype != TREADLE_BF16 && stored->dtype != TREADLE_FP16)
    REFUSE("%s: tensor '%s' is of type %s; fp32, bf16 and fp16 are read", path, t->name,
           stored->dtype_text);
  return TREADLE_OK;
}

static treadle_status read_tensor(const char *path, const treadle_checkpoint *file, const treadle_tensor *t,
                                  float *values) {
  const treadle_stored *stored = treadle_checkpoint_find(file, t->name);
  treadle_status status;
  int64_t odd;
  TRY(check_stored(path, stored, t));
  treadle_dtype_convert(values, TREADLE_FP32, stored->data, stored->dtype, (size_t)t->elems);
  odd = treadle_first_not_finite((const char *)values, t->elems, TREADLE_FP32);
  if (odd >= 0)
    status = treadle_fail(TREADLE_REFUSED, "%s: element [%lld, %lld] of '%s' is infinite or not a number",
                          path, (long long)(odd / t->shape[1]), (long long)(odd % t->shape[1]), t->name);
out:
  return status;
}

treadle_status treadle_adapter_read(const treadle_adapter *adapter, const char *path, float *values) {
  const treadle_model *model = adapter->model;
  treadle_checkpoint *file = NULL;
  treadle_status status;
  if (!treadle_file_exists(path))
    REFUSE("%s: there is no such file, and the adapters' values are in it", path);
  TRY(treadle_as_refusal(treadle_checkpoint_open(path, &file)));
  if (!file) TRY(treadle_fail(TREADLE_REFUSED, "%s: there are no adapters", path));
  for (int32_t i = 0; i < file->count; i++) {
    bool known = treadle_hash_map_get(&model->by_name, file->tensors[i].name, -1) >= 0;
    if (!known) TRY(treadle_adapter_check_copy(adapter, path, &file->tensors[i], &known));
    if (!known)
      TRY(treadle_fail(TREADLE_REFUSED, "%s: tensor '%s' is of no matrix of %s that has an adapter", path,
                       file->tensors[i].name, adapter->base->path));
  }
  for (int32_t i = 0; i < adapter->count; i++) {
    const treadle_adapter_matrix *m = &adapter->matrices[i];
    TRY(read_tensor(path, file, &model->tensors[m->a], values + m->at_a));
    TRY(read_tensor(path, file, &model->tensors[m->b], values + m->at_b));
  }
  TRY(treadle_checkpoint_unchanged(file));
out:
  treadle_checkpoint_close(file);
  return status;
}
