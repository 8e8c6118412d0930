/* A list of tensors in place of a checkpoint: a line each, name, safetensors dtype and shape (AxBxC) between tabs, plain
 * or gzipped. It has names, types and shapes, and no values.
 *
 * The text is unpacked under a limit, whatever the file promises. */
#include "io/safetensors.h"

#include "base/alloc.h"
#include "base/array.h"
#include "base/dtype.h"
#include "base/text.h"
#include "io/file.h"
#include "io/safetensors_header.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { LARGEST_TEXT = 1 << 28, STEP = 1 << 20 };

typedef TREADLE_ARRAY(treadle_stored) stored_array;

/* Why reading ended, without the name that zlib gives a descriptor: "<fd:3>: WHY". */
static const char *reason(gzFile file, int *error_p) {
  const char *why = gzerror(file, error_p), *end = strncmp(why, "<fd:", 4) ? NULL : strstr(why, ">: ");
  return end ? end + 3 : why;
}

/* The whole text, ended by a 0. */
static treadle_status read_text(const char *path, treadle_arena *arena, char **text_p, size_t *length_p) {
  int fd = -1;
  size_t bytes, length = 0, capacity = 0;
  char *text = NULL;
  gzFile file = NULL;
  treadle_status status;
  TRY(treadle_file_open(path, &fd, &bytes));
  file = gzdopen(fd, "rb");
  if (!file) goto no_memory;
  fd = -1; /* the file's now */
  for (;;) {
    if (length == capacity) {
      char *more = treadle_arena_alloc(arena, capacity * 2 + STEP + 1);
      if (!more) goto no_memory;
      if (length) memcpy(more, text, length);
      text = more;
      capacity = capacity * 2 + STEP;
    }
    int got = gzread(file, text + length, (unsigned)(capacity - length < STEP ? capacity - length : STEP));
    if (got == 0) break;
    int error;
    const char *why = got < 0 ? reason(file, &error) : NULL;
    if (got < 0) TRY(treadle_fail(TREADLE_REFUSED, "%s: cannot be read: %s", path, why));
    length += (size_t)got;
    if (length > LARGEST_TEXT)
      TRY(treadle_fail(TREADLE_REFUSED, "%s: more than %d bytes of text", path, (int)LARGEST_TEXT));
  }
  int error = Z_OK;
  const char *why = reason(file, &error);
  if (error != Z_OK && error != Z_STREAM_END)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: ends in the middle: %s", path, why));
  text[length] = 0;
  *text_p = text;
  *length_p = length;
out:
  if (file) gzclose_r(file);
  if (fd >= 0) close(fd);
  return status;
no_memory:
  status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its text", path);
  goto out;
}

/* "AxBxC", or nothing for a scalar. */
static treadle_status read_shape(const char *where, const char *text, treadle_stored *tensor) {
  enum { MOST = sizeof tensor->shape / sizeof *tensor->shape };
  while (*text) {
    char *end;
    errno = 0;
    long long size = *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : -1;
    if (size < 0 || errno || (*end && (*end != 'x' || !end[1])))
      return treadle_fail(TREADLE_REFUSED, "%s: the shape of '%s' is not whole numbers with x between them",
                          where, tensor->name);
    if (tensor->ndim == MOST)
      return treadle_fail(TREADLE_REFUSED, "%s: '%s' has more than %d dimensions", where, tensor->name,
                          (int)MOST);
    tensor->shape[tensor->ndim++] = size;
    text = *end ? end + 1 : end;
  }
  return TREADLE_OK;
}

/* One line, whose tabs become ends. */
static treadle_status read_line(const char *where, char *line, treadle_stored *tensor) {
  treadle_status status;
  char *type = strchr(line, '\t'), *shape = type ? strchr(type + 1, '\t') : NULL;
  if (!shape || type == line || strchr(shape + 1, '\t'))
    return treadle_fail(TREADLE_REFUSED, "%s: is not name, dtype and shape with a tab between them", where);
  *type++ = 0;
  *shape++ = 0;
  *tensor = (treadle_stored){.name = line, .dtype_text = type};
  TRY(read_shape(where, shape, tensor));
  treadle_dtype dtype;
  if (treadle_dtype_parse(type, &dtype) && strcmp(treadle_dtype_safetensors(dtype), type) == 0)
    tensor->dtype = dtype;
  TRY(treadle_safetensors_measure(where, tensor));
out:
  return status;
}

treadle_status treadle_tensor_list_read(const char *path, treadle_arena *arena, treadle_stored **tensors_p,
                                        int32_t *count_p) {
  stored_array tensors = {0};
  treadle_map lines = {0}; /* by name */
  char *text = NULL, where[400];
  size_t length = 0;
  treadle_status status;
  TRY(read_text(path, arena, &text, &length));
  if (memchr(text, 0, length)) TRY(treadle_fail(TREADLE_REFUSED, "%s: has a zero byte: no text", path));
  for (int64_t number = 1; *text; number++) {
    treadle_stored tensor = {0};
    char *end = text + strcspn(text, "\n"), *next = *end ? end + 1 : end;
    if (end > text && end[-1] == '\r') end[-1] = 0; /* as Windows ends lines */
    *end = 0;
    snprintf(where, sizeof where, "%s: line %" PRId64, path, number);
    TRY(read_line(where, text, &tensor));
    int64_t before = treadle_map_get(&lines, tensor.name, 0);
    if (before)
      TRY(treadle_fail(TREADLE_REFUSED, "%s: '%s' stands in line %" PRId64 " already", where, tensor.name,
                       before));
    TRY(treadle_map_put(&lines, tensor.name, number));
    TRY(treadle_array_push(&tensors, tensor));
    text = next;
  }
  if (!tensors.count) TRY(treadle_fail(TREADLE_REFUSED, "%s: has no line", path));
  *tensors_p = treadle_arena_alloc_array(arena, tensors.count, sizeof **tensors_p);
  if (!*tensors_p)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for %zu tensors", path, tensors.count));
  memcpy(*tensors_p, tensors.items, tensors.count * sizeof **tensors_p);
  *count_p = (int32_t)tensors.count; /* a line has at least two bytes */
out:
  treadle_map_release(&lines);
  treadle_array_release(&tensors);
  return status;
}
