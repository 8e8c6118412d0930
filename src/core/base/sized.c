/* Structs whose size the caller says. Their first field is a size_t. */
#include "base/sized.h"

#include <string.h>

static size_t size_of(const void *given) {
  size_t bytes;
  memcpy(&bytes, given, sizeof bytes);
  return bytes;
}

treadle_status treadle_sized_check(const char *function, const char *name, const void *given) {
  if (!given) return treadle_refuse_null(function, name);
  size_t bytes = size_of(given), step = sizeof(size_t); /* between steps a pointer would be cut in two */
  if (bytes >= step && bytes <= TREADLE_MOST_STRUCT && bytes % step == 0) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED,
                      "%s: %s has a struct_size of %zu bytes; it must be a multiple of %zu and at most %d; "
                      "TREADLE_INIT sets it",
                      function, name, bytes, step, TREADLE_MOST_STRUCT);
}

treadle_status treadle_sized_take(const char *function, const char *name, const void *given, void *copy_p,
                                  size_t bytes) {
  memset(copy_p, 0, bytes);
  if (given) {
    treadle_status status = treadle_sized_check(function, name, given);
    if (status) return status;
    size_t theirs = size_of(given);
    for (size_t at = bytes; at < theirs; at++)
      if (((const char *)given)[at])
        return treadle_fail(
            TREADLE_REFUSED,
            "%s: %s has %zu bytes, and is not 0 behind the %zu bytes that this library (%s) knows",
            function, name, theirs, bytes, TREADLE_VERSION);
    memcpy(copy_p, given, theirs < bytes ? theirs : bytes);
  }
  memcpy(copy_p, &bytes, sizeof bytes);
  return TREADLE_OK;
}

void treadle_sized_give(void *to_p, const void *from, size_t bytes) {
  size_t theirs = size_of(to_p), head = sizeof(size_t);
  if (theirs > bytes) memset((char *)to_p + bytes, 0, theirs - bytes);
  if (theirs < bytes) bytes = theirs;
  memcpy((char *)to_p + head, (const char *)from + head, bytes - head);
}
