/* JSON. What is taken says the same when it is written and read again; what jansson's own reader takes is taken, with the same values;
 * what it does not take has an odd value, a mark of the byte order or a zero character, escaped, in it. */
#include "io/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static bool has_odd(json_t *value) {
  size_t i;
  json_t *item;
  const char *key;
  if (treadle_json_odd(value)) return true;
  json_array_foreach(value, i, item) if (has_odd(item)) return true;
  json_object_foreach(value, key, item) if (strstr(key, TREADLE_JSON_ZERO) || has_odd(item)) return true;
  return false;
}

static void compare(const char *text, size_t count, json_t *root) {
  if (memchr(text, 0, count)) { /* jansson overlooks one behind a number */
    if (root) __builtin_trap();
    return;
  }
  json_t *plain = json_loadb(text, count, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
  if (plain && (!root || !json_equal(plain, root))) __builtin_trap();
  if (!plain && root && !has_odd(root) && !treadle_json_mark(text, count)) __builtin_trap();
  json_decref(plain);
}

static treadle_status parse(const char *text, size_t count, json_t **root_p) {
  const treadle_json_source source = {.what = "input", .text = text, .count = count, .zeros = true};
  return treadle_json_read(&source, root_p);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  json_t *root = NULL, *again = NULL;
  const char *text = (const char *)bytes;
  treadle_status status = parse(text, count, &root);
  if (status && !*treadle_error_message()) __builtin_trap(); /* a refusal has a reason */
  compare(text, count, status ? NULL : root);
  if (status) return 0;
  for (size_t flags = 0; flags < 3; flags++) { /* compact, with lines, with spaces */
    char *written = treadle_json_dump(root, flags == 0 ? JSON_COMPACT : flags == 1 ? JSON_INDENT(2) : 0);
    if (!written || parse(written, strlen(written), &again) != TREADLE_OK) __builtin_trap();
    char *rewritten = treadle_json_dump(again, JSON_COMPACT),
         *first = treadle_json_dump(root, JSON_COMPACT);
    if (!rewritten || !first || strcmp(rewritten, first) != 0) __builtin_trap();
    free(written);
    free(rewritten);
    free(first);
    json_decref(again);
    again = NULL;
  }
  json_decref(root);
  return 0;
}
