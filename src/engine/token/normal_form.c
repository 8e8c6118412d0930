/* Normal forms by the tables of utf8proc: decompose each character, put marks in canonical order, compose. The order is made by
 * counting, since utf8proc's own takes quadratic time where thousands of marks follow each other. */
#include "token/normal_form.h"

#include "base/alloc.h"

#include <string.h>
#include <utf8proc.h>

static bool is_ascii(const char *text, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if ((unsigned char)text[i] >= 0x80) return false;
  return true;
}

static unsigned class_of(utf8proc_int32_t code) {
  return (unsigned)utf8proc_get_property(code)->combining_class;
}

/* Puts marks [0, count) in the order of their classes, equal ones as they are. */
static void sort_marks(utf8proc_int32_t *marks, utf8proc_int32_t *spare, size_t count) {
  size_t begin[257] = {0};
  for (size_t i = 0; i < count; i++) begin[(class_of(marks[i]) & 0xff) + 1]++;
  for (size_t c = 1; c < 257; c++) begin[c] += begin[c - 1];
  for (size_t i = 0; i < count; i++) spare[begin[class_of(marks[i]) & 0xff]++] = marks[i];
  memcpy(marks, spare, count * sizeof *marks);
}

static void sort_all(utf8proc_int32_t *codes, utf8proc_int32_t *spare, size_t count) {
  for (size_t i = 0, end; i < count; i = end) {
    bool sorted = true;
    for (end = i; end < count && class_of(codes[end]) > 0; end++)
      if (end > i && class_of(codes[end]) < class_of(codes[end - 1])) sorted = false;
    if (!sorted) sort_marks(codes + i, spare, end - i);
    if (end == i) end++;
  }
}

/* Characters whose decomposition is newer than the tables of the tokenizers library, which leaves them as they are. */
static bool stays(uint32_t code) {
  static const struct {
    uint32_t first, last;
  } rows[] = {{0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},   {0xab69, 0xab69},   {0x10781, 0x10785},
              {0x10787, 0x107b0}, {0x107b2, 0x107ba}, {0x11938, 0x11938}, {0x1e030, 0x1e06d},
              {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9}};
  if (code < rows[0].first) return false;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (code >= rows[i].first && code <= rows[i].last) return true;
  return false;
}

/* The decomposition of all characters; `room` is for this many. *count_p is how many there are, also when there was no room. */
static void decompose(const char *text, size_t bytes, bool compatible, utf8proc_int32_t *codes, size_t room,
                      size_t *count_p) {
  utf8proc_option_t options =
      (utf8proc_option_t)(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0));
  size_t count = 0;
  for (size_t at = 0; at < bytes;) {
    uint32_t code;
    int boundary = 0;
    at += treadle_utf8_decode(text + at, &code);
    bool fits = count < room;
    if (stays(code)) {
      if (fits) codes[count] = (utf8proc_int32_t)code;
      count++;
      continue;
    }
    utf8proc_ssize_t got =
        utf8proc_decompose_char((utf8proc_int32_t)code, fits ? codes + count : NULL,
                                fits ? (utf8proc_ssize_t)(room - count) : 0, options, &boundary);
    count += got > 0 ? (size_t)got : 0;
  }
  *count_p = count;
}

treadle_status treadle_normal_form(const char *text, size_t bytes, bool compose, bool compatible,
                                   treadle_text_bytes *to) {
  if (is_ascii(text, bytes)) return treadle_text_bytes_add(to, text, bytes);
  treadle_status status = TREADLE_OK;
  size_t count, made;
  decompose(text, bytes, compatible, NULL, 0, &count);
  utf8proc_int32_t *codes = treadle_alloc_array(count, sizeof *codes);
  utf8proc_int32_t *spare = treadle_alloc_array(count, sizeof *spare);
  if (!codes || !spare) {
    status = treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu characters", count);
    goto out;
  }
  decompose(text, bytes, compatible, codes, count, &made);
  sort_all(codes, spare, count);
  if (compose) {
    utf8proc_ssize_t left = utf8proc_normalize_utf32(
        codes, (utf8proc_ssize_t)count, (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    count = left > 0 ? (size_t)left : 0;
  }
  for (size_t i = 0; i < count; i++) TRY(treadle_text_bytes_add_code(to, (uint32_t)codes[i]));
out:
  treadle_free(codes);
  treadle_free(spare);
  return status;
}
