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
#define ZLIB_CONST /* what is unpacked is only read */
#include <zlib.h>

enum { LARGEST_TEXT = 1 << 28, STEP = 1 << 20 };

typedef TREADLE_ARRAY(treadle_stored) stored_array;

typedef struct unpacked {
  char *text;
  size_t length, room;
} unpacked;

static treadle_status make_room(const char *path, treadle_arena *arena, unpacked *out) {
  if (out->length < out->room) return TREADLE_OK;
  char *more = treadle_arena_alloc(arena, out->room * 2 + STEP + 1);
  if (!more) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its text", path);
  if (out->length) memcpy(more, out->text, out->length);
  out->text = more;
  out->room = out->room * 2 + STEP;
  return TREADLE_OK;
}

static bool is_gzip(const void *bytes, size_t count) {
  return count > 1 && memcmp(bytes, "\x1f\x8b", 2) == 0;
}

/* Members of gzip, one behind the other, to the end of the file. zlib's own gzread would pass over what is none. */
static treadle_status unpack(const char *path, const char *packed, size_t bytes, treadle_arena *arena,
                             unpacked *out) {
  z_stream z = {.next_in = (const Bytef *)packed, .avail_in = (uInt)bytes};
  treadle_status status = TREADLE_OK;
  if (inflateInit2(&z, MAX_WBITS + 16) != Z_OK)
    return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory to unpack it", path);
  for (int result = Z_OK; result != Z_STREAM_END || z.avail_in > 0;) {
    if (result == Z_STREAM_END && !is_gzip(z.next_in, z.avail_in))
      TRY(treadle_fail(TREADLE_REFUSED, "%s: the last %u of its %zu bytes stand behind the end of the list",
                       path, z.avail_in, bytes));
    if (result == Z_STREAM_END) (void)inflateReset(&z);
    TRY(make_room(path, arena, out));
    z.next_out = (Bytef *)out->text + out->length;
    z.avail_out = (uInt)(out->room - out->length < STEP ? out->room - out->length : STEP);
    result = inflate(&z, Z_NO_FLUSH);
    out->length = (size_t)((char *)z.next_out - out->text);
    if (result == Z_BUF_ERROR) TRY(treadle_fail(TREADLE_REFUSED, "%s: ends in the middle", path));
    if (result == Z_MEM_ERROR) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory to unpack it", path));
    if (result != Z_OK && result != Z_STREAM_END)
      TRY(treadle_fail(TREADLE_REFUSED, "%s: cannot be read: %s", path, z.msg ? z.msg : "no gzip"));
    if (out->length > LARGEST_TEXT)
      TRY(treadle_fail(TREADLE_REFUSED, "%s: more than %d bytes of text", path, (int)LARGEST_TEXT));
  }
out:
  inflateEnd(&z);
  return status;
}

/* The whole text, ended by a 0. */
static treadle_status read_text(const char *path, treadle_arena *arena, char **text_p, size_t *length_p) {
  char *bytes = NULL;
  size_t count;
  unpacked out = {0};
  treadle_status status;
  TRY(treadle_file_read(path, LARGEST_TEXT, &bytes, &count));
  if (is_gzip(bytes, count)) {
    TRY(unpack(path, bytes, count, arena, &out));
    TRY(make_room(path, arena, &out));
  } else {
    out = (unpacked){.text = treadle_arena_alloc(arena, count + 1), .length = count};
    if (!out.text) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its text", path));
    memcpy(out.text, bytes, count);
  }
  out.text[out.length] = 0;
  *text_p = out.text;
  *length_p = out.length;
out:
  treadle_free(bytes);
  return status;
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
  treadle_hash_map lines = {0}; /* by name */
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
    int64_t before = treadle_hash_map_get(&lines, tensor.name, 0);
    if (before)
      TRY(treadle_fail(TREADLE_REFUSED, "%s: '%s' stands in line %" PRId64 " already", where, tensor.name,
                       before));
    TRY(treadle_hash_map_put(&lines, tensor.name, number));
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
  treadle_hash_map_release(&lines);
  treadle_array_release(&tensors);
  return status;
}
