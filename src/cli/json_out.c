/* Writing JSON as it comes. */
#include "cli/json_out.h"

#include "base/utf8.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the character at `text`, of which `room` are there; 0: none that is whole. */
static int character(const char *text, size_t room, uint32_t *code_p) {
  char whole[5] = "";
  memcpy(whole, text, room < 4 ? room : 4);
  return treadle_utf8_read(whole, code_p);
}

/* Plain characters as they are, others as \uNNNN; each byte that is not part of a character becomes U+FFFD. */
static void write_text(FILE *file, const char *text, size_t bytes) {
  const char *end = text + bytes;
  fputc('"', file);
  while (text < end) {
    uint32_t code = 0;
    const char *at = text;
    int length = 0;
    while (at < end && (length = character(at, (size_t)(end - at), &code)) > 0 &&
           treadle_utf8_is_plain(code) && *at != '"' && *at != '\\')
      at += length;
    fwrite(text, 1, (size_t)(at - text), file);
    if (at == end) break;
    if (*at == '"' || *at == '\\')
      fprintf(file, "\\%c", *at);
    else
      fprintf(file, "\\u%04x", length > 0 ? code : 0xfffdu); /* all that are not plain have four digits */
    text = at + (length > 0 ? length : 1);
  }
  fputc('"', file);
}

/* What stands before a value: comma, line break, key. */
static void begin_value(treadle_json_out *out, const char *key, bool is_container) {
  bool *filled = &out->filled[out->depth];
  if (out->depth > 0) {
    bool own_line = !out->line && (out->depth == 1 || (out->depth == 2 && is_container));
    if (*filled) fputs(own_line ? "," : ", ", out->file);
    if (own_line) fprintf(out->file, "\n%*s", 2 * out->depth, "");
  }
  *filled = true;
  if (key) {
    write_text(out->file, key, strlen(key));
    fputs(": ", out->file);
  }
}

void treadle_json_out_open(treadle_json_out *out, const char *key, char bracket) {
  begin_value(out, key, true);
  fputc(bracket, out->file);
  out->depth++;
  assert(out->depth < (int)(sizeof out->filled / sizeof out->filled[0]));
  out->filled[out->depth] = false;
  out->ends[out->depth] = bracket == '{' ? '}' : ']';
}

void treadle_json_out_close(treadle_json_out *out, char bracket) {
  assert(out->depth > 0);
  out->depth--;
  if (out->depth == 0 && !out->line) fputc('\n', out->file);
  fputc(bracket, out->file);
  if (out->depth == 0) fputc('\n', out->file);
}

void treadle_json_out_fail(treadle_json_out *out, const char *message) {
  while (out->depth > 1) treadle_json_out_close(out, out->ends[out->depth]);
  if (out->depth == 0) return;
  treadle_json_out_text(out, "error", message);
  treadle_json_out_close(out, '}');
}

void treadle_json_out_text(treadle_json_out *out, const char *key, const char *text) {
  begin_value(out, key, false);
  if (text)
    write_text(out->file, text, strlen(text));
  else
    fputs("null", out->file);
}

void treadle_json_out_bytes(treadle_json_out *out, const char *key, const char *text, size_t bytes) {
  begin_value(out, key, false);
  write_text(out->file, text, bytes);
}

void treadle_json_out_lines(treadle_json_out *out, const char *key, const char *lines) {
  treadle_json_out_open(out, key, '[');
  while (*lines) {
    char line[1300];
    size_t length = strcspn(lines, "\n");
    snprintf(line, sizeof line, "%.*s", (int)length, lines);
    treadle_json_out_text(out, NULL, line);
    lines += length + (lines[length] == '\n');
  }
  treadle_json_out_close(out, ']');
}

void treadle_json_out_int(treadle_json_out *out, const char *key, int64_t value) {
  begin_value(out, key, false);
  fprintf(out->file, "%lld", (long long)value);
}

void treadle_json_out_real(treadle_json_out *out, const char *key, double value) {
  begin_value(out, key, false);
  if (isfinite(value))
    fprintf(out->file, "%.9g", value);
  else
    fputs("null", out->file);
}

void treadle_json_out_exact(treadle_json_out *out, const char *key, double value) {
  char text[32];
  if (!isfinite(value)) {
    treadle_json_out_real(out, key, value);
    return;
  }
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  begin_value(out, key, false);
  fputs(text, out->file);
}

void treadle_json_out_bool(treadle_json_out *out, const char *key, bool value) {
  begin_value(out, key, false);
  fputs(value ? "true" : "false", out->file);
}
