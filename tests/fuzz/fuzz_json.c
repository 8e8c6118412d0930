/* JSON. What is taken says the same when it is written and read again. */
#include "io/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  json_t *root = NULL, *again = NULL;
  if (treadle_json_parse("input", (const char *)bytes, count, &root) != TREADLE_OK) {
    if (!*treadle_error_message()) __builtin_trap(); /* a refusal has a reason */
    return 0;
  }
  char *text = json_dumps(root, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
  if (!text || treadle_json_parse("again", text, strlen(text), &again) != TREADLE_OK) __builtin_trap();
  if (!json_equal(root, again)) __builtin_trap();
  free(text);
  json_decref(again);
  json_decref(root);
  return 0;
}
