/* A config.json: a model that comes back has tensors whose sizes are positive and add up. */
#include "io/json.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  json_t *config = NULL;
  treadle_model *model = NULL;
  if (treadle_json_parse("input", (const char *)bytes, count, &config) != TREADLE_OK) return 0;
  if (treadle_model_from_config("input", config, NULL, &model) == TREADLE_OK) {
    int64_t elems = 0;
    for (int32_t i = 0; i < treadle_model_tensor_count(model); i++) {
      treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
      if (treadle_model_tensor(model, i, &info) != TREADLE_OK || info.elems <= 0) __builtin_trap();
      if (!info.same_as) elems += info.elems;
    }
    if (elems != treadle_model_elems(model)) __builtin_trap();
  } else if (!*treadle_error_message()) {
    __builtin_trap(); /* a refusal has a reason */
  }
  treadle_model_close(model);
  json_decref(config);
  return 0;
}
