/* JSON by way of jansson: its parser, our messages. jansson takes only whole documents whose root is an
 * object or a list, at most 2,048 deep, in UTF-8 without zero characters, with numbers that fit. */
#include "io/json.h"

#include "base/alloc.h"
#include "io/file.h"

#include <inttypes.h>

enum { LARGEST_FILE = 1 << 30 };

treadle_status treadle_json_parse(const char *what, const char *text, size_t length, json_t **root_p) {
  json_error_t error;
  json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
  if (!root)
    return treadle_fail(json_error_code(&error) == json_error_out_of_memory ? TREADLE_NO_MEMORY
                                                                            : TREADLE_REFUSED,
                        "%s: line %d, column %d: %s", what, error.line, error.column, error.text);
  *root_p = root;
  return TREADLE_OK;
}

treadle_status treadle_json_load(const char *path, json_t **root_p) {
  char *text = NULL;
  size_t length = 0;
  treadle_status status;
  TRY(treadle_file_read(path, LARGEST_FILE, &text, &length));
  TRY(treadle_json_parse(path, text, length, root_p));
out:
  treadle_free(text);
  return status;
}
