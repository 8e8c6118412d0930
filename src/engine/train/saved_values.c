/* What data.json of a checkpoint says of the run that wrote it. */
#include "train/saved_values.h"

#include <stdlib.h>
#include <string.h>

treadle_status treadle_saved_number(const json_t *root, const char *path, const char *name,
                                    int64_t *number_p) {
  const json_t *value = json_object_get(root, name);
  *number_p = json_integer_value(value);
  if (json_is_integer(value) && *number_p >= 0) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s: '%s' is not a whole number from 0 on", path, name);
}

treadle_status treadle_saved_count(const json_t *root, const char *path, const char *name,
                                   int64_t *count_p) {
  treadle_status status = treadle_saved_number(root, path, name, count_p);
  if (status || *count_p <= TREADLE_SAVED_MOST) return status;
  return treadle_fail(TREADLE_REFUSED,
                      "%s: '%s' is %lld, and no run counts beyond %lld (2^40): it is damaged", path, name,
                      (long long)*count_p, (long long)TREADLE_SAVED_MOST);
}

treadle_status treadle_saved_digest(const json_t *root, const char *path, const char *name,
                                    uint64_t *digest_p) {
  const char *text = json_string_value(json_object_get(root, name));
  if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
    return treadle_fail(TREADLE_REFUSED, "%s: '%s' is not a digest", path, name);
  *digest_p = strtoull(text, NULL, 16);
  return TREADLE_OK;
}

treadle_status treadle_saved_check_same(const json_t *root, const char *path, const char *name, int64_t now,
                                        const char *else_what) {
  int64_t then;
  treadle_status status = treadle_saved_number(root, path, name, &then);
  if (status || then == now) return status;
  return treadle_fail(TREADLE_REFUSED, "%s: the checkpoint has %s %lld, this run %lld: %s", path, name,
                      (long long)then, (long long)now, else_what);
}

treadle_status treadle_saved_check_order(const json_t *root, const char *path, bool no_shuffle,
                                         const char *else_what) {
  if (!no_shuffle && !json_object_get(root, "no_shuffle")) return TREADLE_OK;
  return treadle_saved_check_same(root, path, "no_shuffle", no_shuffle, else_what);
}
