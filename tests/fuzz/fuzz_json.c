/* JSON, and whole numbers out of its fields. */
#include "io/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  json_t *root = NULL, *field;
  const char *key;
  if (treadle_json_parse("input", (const char *)bytes, count, &root) != TREADLE_OK) {
    if (!*treadle_error_message()) __builtin_trap(); /* a refusal has a reason */
    return 0;
  }
  json_object_foreach(root, key, field) {
    int64_t value = -1;
    treadle_status status = treadle_json_int("input", root, key, 0, 1000, &value);
    if (status == TREADLE_OK && (value < 0 || value > 1000 || !json_is_integer(field))) __builtin_trap();
  }
  json_decref(root);
  return 0;
}
