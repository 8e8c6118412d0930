/* Files of JSON, and texts as JSON has them. */
#include "io/json.h"

#include "base/utf8.h"

#include "base/alloc.h"
#include "io/file.h"

#include <inttypes.h>

enum { LARGEST_FILE = 1 << 30 };

treadle_status treadle_json_parse(const char *what, const char *text, size_t length, json_t **root_p) {
  const treadle_json_source source = {.what = what, .text = text, .count = length};
  return treadle_json_read(&source, root_p);
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

/* Bytes of characters that may stand in JSON as they are. What is not part of a character does not. */
static size_t plain_bytes(const char *text, size_t count) {
  size_t length = 0;
  while (length < count && text[length] != '"' && text[length] != '\\') {
    uint32_t code = 0;
    int bytes = treadle_utf8_read(text + length, &code);
    if (bytes == 0 || length + (size_t)bytes > count || !treadle_utf8_is_plain(code)) break;
    length += (size_t)bytes;
  }
  return length;
}

/* text[count] is readable: texts end with 0. */
void treadle_json_add_text(treadle_builder *builder, const char *text, size_t count) {
  treadle_builder_add(builder, "\"");
  for (size_t at = 0; at < count;) {
    size_t length = plain_bytes(text + at, count - at);
    if (length > 0) treadle_builder_add_bytes(builder, text + at, length);
    at += length;
    if (at == count) break;
    uint32_t code = 0;
    int bytes = treadle_utf8_read(text + at, &code);
    if (text[at] == '"' || text[at] == '\\')
      treadle_builder_add(builder, "\\%c", text[at]);
    else /* all that are not plain have four digits */
      treadle_builder_add(builder, "\\u%04x", bytes > 0 ? code : 0xfffdu);
    at += bytes > 0 ? (size_t)bytes : 1;
  }
  treadle_builder_add(builder, "\"");
}
