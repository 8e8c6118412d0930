/* Files of JSON lines. */
#include "cli/json_lines.h"

#include "base/alloc.h"
#include "base/foreign.h"
#include "base/json.h"
#include "cli/cli.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_BYTES = 1 << 30 };

treadle_status treadle_json_lines_open(treadle_json_lines *lines, const char *path) {
  treadle_status status = TREADLE_OK;
  struct stat about;
  size_t room = 0, got;
  lines->path = path;
  FILE *file = fopen(path, "rb");
  if (!file) return treadle_fail(TREADLE_SYSTEM, "%s: cannot open: %s", path, strerror(errno));
  if (fstat(fileno(file), &about) == 0 && S_ISDIR(about.st_mode))
    TRY(treadle_fail(TREADLE_REFUSED, "%s: is a folder, not a file", path));
  do {
    if (lines->bytes == room) {
      room = room ? room * 2 : 1 << 16;
      char *text = treadle_realloc(lines->text, room);
      if (!text) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for %zu bytes", path, room));
      lines->text = text;
    }
    got = fread(lines->text + lines->bytes, 1, room - lines->bytes, file);
    if (!lines->bytes) TRY(treadle_foreign_check(path, lines->text, got)); /* of a pipe, what comes first */
    lines->bytes += got;
    if (lines->bytes > MOST_BYTES)
      TRY(treadle_fail(TREADLE_REFUSED, "%s: has more than %d bytes", path, MOST_BYTES));
  } while (got > 0);
  if (ferror(file)) TRY(treadle_fail(TREADLE_SYSTEM, "%s: cannot read: %s", path, strerror(errno)));
  if (lines->bytes == 0) TRY(treadle_fail(TREADLE_REFUSED, "%s: is empty", path));
out:
  fclose(file);
  return status;
}

treadle_status treadle_json_lines_fail(const treadle_json_lines *lines, treadle_status status) {
  return treadle_fail_in(status, "%s: line %lld: ", lines->path, (long long)lines->number);
}

treadle_status treadle_json_lines_next(treadle_json_lines *lines, json_t **object_p) {
  *object_p = NULL;
  if (lines->at == 0) lines->at = treadle_json_mark(lines->text, lines->bytes);
  if (lines->at >= lines->bytes) return TREADLE_OK;
  const char *line = lines->text + lines->at;
  const char *end = memchr(line, '\n', lines->bytes - lines->at);
  size_t length = end ? (size_t)(end - line) : lines->bytes - lines->at;
  lines->at += length + 1;
  lines->number++;
  const treadle_json_source source = {
      .what = lines->path, .text = line, .count = length, .line = lines->number, .zeros = true};
  json_t *object = NULL;
  treadle_status status = treadle_json_read(&source, &object);
  if (status) return status;
  if (!treadle_json_is_object(object)) {
    json_decref(object);
    treadle_fail(TREADLE_REFUSED, "is not an object");
    return treadle_json_lines_fail(lines, TREADLE_REFUSED);
  }
  *object_p = object;
  return TREADLE_OK;
}

treadle_status treadle_json_lines_check_keys(const treadle_json_lines *lines, json_t *object,
                                             const char *const *keys) {
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    size_t i = 0;
    while (keys[i] && strcmp(keys[i], key) != 0) i++;
    if (keys[i]) continue;
    const char *nearest = treadle_nearest_name(key, keys);
    treadle_fail(TREADLE_REFUSED,
                 nearest ? "there is no key '%s'; did you mean '%s'?" : "there is no key '%s'", key,
                 nearest);
    return treadle_json_lines_fail(lines, TREADLE_REFUSED);
  }
  return TREADLE_OK;
}

void treadle_json_lines_close(treadle_json_lines *lines) {
  treadle_free(lines->text);
  *lines = (treadle_json_lines){0};
}
