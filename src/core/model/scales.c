/* Block scales of fp8 models: their shapes, and which weights have none. docs/rules.md 4.10. */
#include "model/build.h"
#include "model/modules.h"

#include <stdio.h>
#include <string.h>

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

/* ---- What is not quantised ----------------------------------------------------------------------- */

enum { NAME_BYTES = 320 };

/* Is a module left out that has this name, as Hugging Face's files have it or as an engine has it? */
static bool is_left_out(const treadle_model *model, const treadle_name *name, int32_t layer,
                        int64_t expert) {
  const treadle_family *family = model->family;
  char path[NAME_BYTES], other[2 * NAME_BYTES];
  treadle_name_format(name, layer, model->layers, layer, expert, path, sizeof path);
  char *end = strrchr(path, '.');
  if (end) *end = 0; /* the module of NAME.weight */
  if (treadle_modules_have(model->unquantised, path)) return true;
  for (int32_t i = 0; i < family->stored_prefix_count; i++) {
    const char *prefix = family->stored_prefixes[i];
    if (!treadle_text_starts(path, prefix)) continue;
    snprintf(other, sizeof other, "%s%s", family->stored_instead[i], path + strlen(prefix));
    if (treadle_modules_have(model->unquantised, other)) return true;
  }
  return false;
}

static bool has_part(const treadle_rule *rule, int32_t pattern) {
  for (int p = 0; p < rule->nparts; p++)
    if (rule->parts[p].pattern == pattern) return true;
  return false;
}

/* By its own name, or by that of an engine's module that has it as a part: qkv_proj. */
static bool is_left_out_anywhere(const treadle_model *model, int32_t pattern, int32_t layer,
                                 int64_t expert) {
  const treadle_family *family = model->family;
  if (is_left_out(model, &family->patterns[pattern].full_name, layer, expert)) return true;
  for (int32_t e = 0; e < family->engine_count; e++) {
    const treadle_engine_rules *engine = &family->engines[e];
    if (strcmp(engine->engine, "megatron") == 0) continue; /* it reads no quantization_config */
    for (int32_t r = 0; r < engine->count; r++)
      if (!engine->rules[r].scales && has_part(&engine->rules[r], pattern) &&
          is_left_out(model, &engine->rules[r].full_name, layer, expert))
        return true;
  }
  return false;
}

treadle_status treadle_scales_left_out(const treadle_model *model, const treadle_pattern *scales,
                                       int32_t layer, int64_t experts, bool *left_out_p) {
  int32_t pattern = scales->scale_of;
  *left_out_p = false;
  if (!model->unquantised) return TREADLE_OK;
  *left_out_p = is_left_out_anywhere(model, pattern, layer, experts ? 0 : -1);
  if (!treadle_modules_name_experts(model->unquantised)) return TREADLE_OK;
  for (int64_t expert = 1; expert < experts; expert++)
    if (is_left_out_anywhere(model, pattern, layer, expert) != *left_out_p)
      return treadle_fail(
          TREADLE_REFUSED,
          "quantization_config leaves expert %lld of %s in layer %d %s, unlike expert 0; all experts "
          "of a layer must be alike",
          (long long)expert, model->family->patterns[pattern].name, layer,
          *left_out_p ? "quantised" : "unquantised");
  return TREADLE_OK;
}
