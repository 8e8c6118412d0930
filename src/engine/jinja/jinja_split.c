/* Replacing in texts, and cutting them into lists. */
#include "jinja/jinja_ops.h"
#include "jinja/jinja_text.h"

#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;
typedef treadle_jinja_text text;

/* Values that are found one by one. */
typedef struct pieces {
  value *items;
  size_t count, capacity;
} pieces;

static treadle_status add(machine *m, pieces *p, const text *of, size_t from, size_t to) {
  if (p->count == p->capacity) {
    value *more;
    size_t capacity = 2 * p->capacity + 8;
    PASS(treadle_jinja_alloc(m, capacity, sizeof *more, &more));
    if (p->count) memcpy(more, p->items, p->count * sizeof *more);
    p->items = more;
    p->capacity = capacity;
  }
  return treadle_jinja_part(m, of, from, to, &p->items[p->count++]);
}

/* ---- replace ------------------------------------------------------------------------------------------ */

/* An empty text is found before each character and at the end. */
static treadle_status replace_empty(machine *m, const text *t, const text *to, int64_t count,
                                    treadle_jinja_writer *w) {
  uint32_t code;
  for (size_t at = 0;; count--) {
    if (count == 0) return treadle_jinja_write(m, w, t->bytes + at, t->length - at);
    PASS(treadle_jinja_write(m, w, to->bytes, to->length));
    if (at == t->length) return TREADLE_OK;
    size_t next = at + treadle_utf8_decode(t->bytes + at, &code);
    PASS(treadle_jinja_step(m, 1));
    PASS(treadle_jinja_write(m, w, t->bytes + at, next - at));
    at = next;
  }
}

static treadle_status replace_found(machine *m, const text *t, const text *from, const text *to,
                                    int64_t count, treadle_jinja_writer *w) {
  size_t at = 0, found;
  for (; count != 0; count--, at = found + from->length) {
    PASS(treadle_jinja_find(m, t, from, at, t->length, &found));
    if (found == SIZE_MAX) break;
    PASS(treadle_jinja_write(m, w, t->bytes + at, found - at));
    PASS(treadle_jinja_write(m, w, to->bytes, to->length));
  }
  return treadle_jinja_write(m, w, t->bytes + at, t->length - at);
}

treadle_status treadle_jinja_replace(machine *m, const text *t, const text *from, const text *to,
                                     int64_t count, value *result_p) {
  treadle_jinja_writer w = {0};
  treadle_status status =
      from->length ? replace_found(m, t, from, to, count, &w) : replace_empty(m, t, to, count, &w);
  PASS(status);
  PASS(treadle_jinja_written(m, &w, result_p));
  return treadle_jinja_mark(m, result_p->text, t->safe, result_p);
}

/* ---- splitlines ----------------------------------------------------------------------------------------- */

static bool ends_line(uint32_t code) {
  return (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

treadle_status treadle_jinja_split_lines(machine *m, const text *t, bool keep, value *result_p) {
  pieces lines = {0};
  size_t from = 0;
  uint32_t code;
  PASS(treadle_jinja_look(m, t));
  for (size_t at = 0; at < t->length;) {
    size_t next = at + treadle_utf8_decode(t->bytes + at, &code);
    if (code == '\r' && next < t->length && t->bytes[next] == '\n') next++;
    if (ends_line(code)) {
      PASS(add(m, &lines, t, from, keep ? next : at));
      from = next;
    }
    at = next;
  }
  if (from < t->length) PASS(add(m, &lines, t, from, t->length));
  return treadle_jinja_list_of(m, JINJA_LIST, lines.items, lines.count, result_p);
}

/* ---- split ---------------------------------------------------------------------------------------------- */

/* Words between white space; the rest, behind `most` of them, loses the space before it (or, from the right, behind it). */
static treadle_status split_words(machine *m, const text *t, int64_t most, bool from_right, pieces *words) {
  size_t from, to, rest_from = 0, rest_to = t->length;
  uint32_t code;
  for (; most != 0; most--) {
    PASS(treadle_jinja_strip(m, t->bytes + rest_from, rest_to - rest_from,
                             from_right ? JINJA_RIGHT : JINJA_LEFT, NULL, &from, &to));
    to += rest_from;
    from += rest_from;
    if (from == to) return TREADLE_OK;
    if (from_right) {
      size_t at = to;
      while (at > rest_from) {
        size_t before = at - 1;
        while (((unsigned char)t->bytes[before] & 0xc0) == 0x80) before--;
        treadle_utf8_decode(t->bytes + before, &code);
        if (treadle_jinja_is_space(code)) break;
        at = before;
      }
      PASS(treadle_jinja_scan(m, 4 * (to - at)));
      PASS(add(m, words, t, at, to));
      rest_to = at;
    } else {
      size_t at = from, one = 0;
      for (; at < rest_to; at += one) {
        one = treadle_utf8_decode(t->bytes + at, &code);
        if (treadle_jinja_is_space(code)) break;
      }
      PASS(treadle_jinja_scan(m, 4 * (at - from)));
      PASS(add(m, words, t, from, at));
      rest_from = at;
    }
  }
  PASS(treadle_jinja_strip(m, t->bytes + rest_from, rest_to - rest_from,
                           from_right ? JINJA_RIGHT : JINJA_LEFT, NULL, &from, &to));
  return from < to ? add(m, words, t, rest_from + from, rest_from + to) : TREADLE_OK;
}

static treadle_status split_at(machine *m, const text *t, const text *by, int64_t most, bool from_right,
                               pieces *parts) {
  size_t from = 0, to = t->length;
  for (; most != 0; most--) {
    size_t found;
    PASS(from_right ? treadle_jinja_find_last(m, t, by, from, to, &found)
                    : treadle_jinja_find(m, t, by, from, to, &found));
    if (found == SIZE_MAX) break;
    if (from_right) {
      PASS(add(m, parts, t, found + by->length, to));
      to = found;
    } else {
      PASS(add(m, parts, t, from, found));
      from = found + by->length;
    }
  }
  return add(m, parts, t, from, to);
}

treadle_status treadle_jinja_split(machine *m, const text *t, const text *by, int64_t most, bool from_right,
                                   value *result_p) {
  pieces parts = {0};
  if (by && by->length == 0) REFUSE("a text is split by an empty text");
  treadle_status status =
      by ? split_at(m, t, by, most, from_right, &parts) : split_words(m, t, most, from_right, &parts);
  PASS(status);
  for (size_t i = 0; from_right && i < parts.count / 2; i++) {
    value swapped = parts.items[i];
    parts.items[i] = parts.items[parts.count - 1 - i];
    parts.items[parts.count - 1 - i] = swapped;
  }
  return treadle_jinja_list_of(m, JINJA_LIST, parts.items, parts.count, result_p);
}
