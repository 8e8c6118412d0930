/* Making texts, finding in them, stripping them. */
#include "jinja/jinja_text.h"

#include <string.h>

size_t treadle_jinja_points(const char *bytes, size_t length) {
  size_t points = 0;
  for (size_t i = 0; i < length; i++) points += ((unsigned char)bytes[i] & 0xc0) != 0x80;
  return points;
}

treadle_status treadle_jinja_share(treadle_jinja_machine *m, const char *bytes, size_t length,
                                   treadle_jinja_value *value_p) {
  treadle_jinja_text *text;
  PASS(treadle_jinja_alloc(m, 1, sizeof *text, &text));
  PASS(treadle_jinja_work(m, length));
  *text = (treadle_jinja_text){bytes ? bytes : "", length, treadle_jinja_points(bytes, length), false};
  *value_p = treadle_jinja_of_text(text);
  return TREADLE_OK;
}

treadle_status treadle_jinja_copy(treadle_jinja_machine *m, const char *bytes, size_t length,
                                  treadle_jinja_value *value_p) {
  char *copy;
  PASS(treadle_jinja_alloc(m, length, 1, &copy));
  if (length) memcpy(copy, bytes, length);
  return treadle_jinja_share(m, copy, length, value_p);
}

treadle_status treadle_jinja_plain(treadle_jinja_machine *m, const char *plain,
                                   treadle_jinja_value *value_p) {
  return treadle_jinja_share(m, plain, strlen(plain), value_p);
}

treadle_status treadle_jinja_mark(treadle_jinja_machine *m, const treadle_jinja_text *text, bool safe,
                                  treadle_jinja_value *value_p) {
  treadle_jinja_text *marked;
  if (text->safe == safe) {
    *value_p = treadle_jinja_of_text(text);
    return TREADLE_OK;
  }
  PASS(treadle_jinja_alloc(m, 1, sizeof *marked, &marked));
  *marked = *text;
  marked->safe = safe;
  *value_p = treadle_jinja_of_text(marked);
  return TREADLE_OK;
}

treadle_status treadle_jinja_part(treadle_jinja_machine *m, const treadle_jinja_text *text, size_t from,
                                  size_t to, treadle_jinja_value *value_p) {
  treadle_jinja_text *part;
  bool ascii = text->points == text->length;
  PASS(treadle_jinja_alloc(m, 1, sizeof *part, &part));
  if (!ascii) PASS(treadle_jinja_work(m, to - from));
  *part = (treadle_jinja_text){text->bytes + from, to - from,
                               ascii ? to - from : treadle_jinja_points(text->bytes + from, to - from),
                               text->safe};
  *value_p = treadle_jinja_of_text(part);
  return TREADLE_OK;
}

size_t treadle_jinja_offset(const treadle_jinja_text *text, size_t point) {
  if (text->points == text->length) return point;
  size_t at = 0;
  for (size_t i = 0; i < text->length; i++) {
    if (((unsigned char)text->bytes[i] & 0xc0) == 0x80) continue;
    if (at++ == point) return i;
  }
  return text->length;
}

treadle_status treadle_jinja_find(treadle_jinja_machine *m, const treadle_jinja_text *text,
                                  const treadle_jinja_text *part, size_t from, size_t to, size_t *found_p) {
  *found_p = SIZE_MAX;
  if (from > to || part->length > to - from) return treadle_jinja_step(m, 1);
  if (part->length == 0) *found_p = from;
  if (part->length == 0) return treadle_jinja_step(m, 1);
  const char *found = memmem(text->bytes + from, to - from, part->bytes, part->length);
  if (found) *found_p = (size_t)(found - text->bytes);
  return treadle_jinja_scan(m, (found ? *found_p - from : to - from) + part->length);
}

/* Goes back from one place of the part's first byte to the next. */
treadle_status treadle_jinja_find_last(treadle_jinja_machine *m, const treadle_jinja_text *text,
                                       const treadle_jinja_text *part, size_t from, size_t to,
                                       size_t *found_p) {
  *found_p = SIZE_MAX;
  if (from > to || part->length > to - from) return treadle_jinja_step(m, 1);
  if (part->length == 0) *found_p = to;
  for (size_t end = to - part->length + 1; part->length > 0 && *found_p == SIZE_MAX;) {
    const char *at = memrchr(text->bytes + from, *part->bytes, end - from);
    PASS(treadle_jinja_scan(m, part->length + (at ? (size_t)(text->bytes + end - at) : end - from)));
    if (!at) return TREADLE_OK;
    end = (size_t)(at - text->bytes);
    if (memcmp(at, part->bytes, part->length) == 0) *found_p = end;
  }
  return TREADLE_OK;
}

bool treadle_jinja_equals(const treadle_jinja_text *text, const char *plain) {
  return strlen(plain) == text->length && memcmp(text->bytes, plain, text->length) == 0;
}

bool treadle_jinja_is_space(uint32_t code) {
  return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20) || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

static bool is_stripped(const char *at, size_t length, const treadle_jinja_text *set) {
  uint32_t code;
  if (set) {
    return memmem(set->bytes, set->length, at, length) != NULL;
  }
  treadle_utf8_decode(at, &code);
  return treadle_jinja_is_space(code);
}

/* A character that goes takes as many steps as it takes to look it up. m NULL: nobody counts. */
static treadle_status count_one(treadle_jinja_machine *m, const treadle_jinja_text *set) {
  return m ? treadle_jinja_scan(m, set ? set->length : 1) : TREADLE_OK;
}

treadle_status treadle_jinja_strip(treadle_jinja_machine *m, const char *bytes, size_t length, int sides,
                                   const treadle_jinja_text *set, size_t *from_p, size_t *to_p) {
  size_t from = 0, to = length;
  uint32_t code;
  while ((sides & JINJA_LEFT) && from < to) {
    size_t one = treadle_utf8_decode(bytes + from, &code);
    PASS(count_one(m, set));
    if (!is_stripped(bytes + from, one, set)) break;
    from += one;
  }
  while ((sides & JINJA_RIGHT) && to > from) {
    size_t last = to - 1;
    while (((unsigned char)bytes[last] & 0xc0) == 0x80) last--;
    PASS(count_one(m, set));
    if (!is_stripped(bytes + last, to - last, set)) break;
    to = last;
  }
  *from_p = from;
  *to_p = to;
  return TREADLE_OK;
}

treadle_status treadle_jinja_escape(treadle_jinja_machine *m, treadle_jinja_writer *w,
                                    const treadle_jinja_text *text) {
  PASS(treadle_jinja_scan(m, text->length));
  for (size_t i = 0, from = 0; i <= text->length; i++) {
    char c = i < text->length ? text->bytes[i] : 0;
    const char *entity = c == '&'    ? "&amp;"
                         : c == '<'  ? "&lt;"
                         : c == '>'  ? "&gt;"
                         : c == '\'' ? "&#39;"
                         : c == '"'  ? "&#34;"
                                     : NULL;
    if (!entity && i < text->length) continue;
    PASS(treadle_jinja_write(m, w, text->bytes + from, i - from));
    if (entity) PASS(treadle_jinja_write_plain(m, w, entity));
    from = i + 1;
  }
  return TREADLE_OK;
}
