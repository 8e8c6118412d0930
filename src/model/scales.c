/* Block scales of fp8 models: what config.json says of them, and their shapes. docs/rules.md 4.10. */
#include "model/build.h"
#include "model/stored.h"

#include <stdio.h>
#include <string.h>

/* quantization_config, where it speaks of fp8; NULL: it does not. */
static const json_t *find_quantisation(const treadle_model *model) {
  const json_t *inner = treadle_model_inner_config(model),
               *found = json_object_get(inner, "quantization_config");
  if (!found) found = json_object_get(model->config, "quantization_config");
  const char *method = json_string_value(json_object_get(found, "quant_method"));
  return method && strcmp(method, "fp8") == 0 ? found : NULL;
}

treadle_status treadle_model_read_blocks(treadle_model *model) {
  const json_t *size = json_object_get(find_quantisation(model), "weight_block_size");
  if (!size || json_is_null(size)) return TREADLE_OK;
  for (size_t i = 0; i < 2; i++) {
    const json_t *number = json_array_get(size, i);
    model->block[i] = json_integer_value(number);
    if (json_array_size(size) != 2 || !json_is_integer(number) || model->block[i] < 1 ||
        model->block[i] > 1 << 20)
      return treadle_fail(TREADLE_REFUSED, "weight_block_size of quantization_config is no pair of sizes");
  }
  model->is_fp8 = true; /* until files say otherwise */
  return TREADLE_OK;
}

bool treadle_model_fp8_blocks(const treadle_model *model, int64_t block[2]) {
  for (int i = 0; i < 2; i++) block[i] = model->block[i] ? model->block[i] : 128;
  return find_quantisation(model);
}

/* The axes of the block scales of a tensor: of each dimension those in front whose steps are whole blocks, and blocks;
 * where even a step of the first is none, blocks of the whole dimension. */
void treadle_scales_measure(const treadle_model *model, const treadle_pattern *pattern,
                            const treadle_tensor *tensor, treadle_tensor *scales) {
  int first = pattern->experts;
  *scales = *tensor;
  scales->naxes = first;
  scales->elems = first ? tensor->axis[0] : 1;
  for (int dim = first; dim < tensor->ndim; dim++) {
    int64_t block = model->block[dim - first], inner = 1;
    int begin = first, end = first, cut;
    while (tensor->axis_dim[begin] != dim) begin++;
    for (end = begin; end < tensor->naxes && tensor->axis_dim[end] == dim;) end++;
    for (cut = end; cut > begin && (cut == end || inner % block != 0);) inner *= tensor->axis[--cut];
    scales->shape[dim] = 1;
    for (int a = begin; a <= cut; a++) {
      int64_t size = a < cut ? tensor->axis[a] : (inner + block - 1) / block;
      scales->axis[scales->naxes] = size;
      scales->axis_dim[scales->naxes] = (int8_t)dim;
      scales->axis_name[scales->naxes++] = tensor->axis_name[a];
      scales->shape[dim] *= size;
    }
    scales->elems *= scales->shape[dim];
  }
  for (int a = scales->naxes; a < TREADLE_MAX_AXES; a++) scales->axis[a] = 0, scales->axis_dim[a] = 0;
  scales->dtype = TREADLE_FP32;
  scales->fixed_dtype = true;
}

/* Is the weight of these scales one that the config's quantization_config leaves unquantised? */
bool treadle_scales_left_out(const treadle_model *model, const treadle_pattern *scales, int32_t layer) {
  static const char *const keys[] = {"modules_to_not_convert", "ignored_layers"};
  const json_t *quantisation = find_quantisation(model);
  char name[320];
  treadle_name_format(&model->family->patterns[scales->scale_of].full_name, layer, model->layers, layer, 0,
                      name, sizeof name);
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
    const json_t *list = json_object_get(quantisation, keys[k]);
    for (size_t i = 0; i < json_array_size(list); i++) {
      const char *module = json_string_value(json_array_get(list, i));
      if (module && strstr(name, module)) return true;
    }
  }
  return false;
}
