/* A merge sort of places. The comparison may fail (a str with an int), and ends the sort then. */
#include "jinja/jinja_sort.h"

#include "jinja/jinja_run.h"
#include "jinja/jinja_text.h"

#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;

/* Does the key at place b belong before that at a, which stands before it? */
static treadle_status is_before(machine *m, const value *keys, size_t a, size_t b, bool reverse,
                                bool *before_p) {
  return treadle_jinja_compare(m, "<", keys[reverse ? a : b], keys[reverse ? b : a], before_p);
}

/* [from, middle) and [middle, to) of `in` are sorted; `out` gets both. */
static treadle_status merge(machine *m, const value *keys, bool reverse, const size_t *in, size_t *out,
                            const size_t range[3]) {
  size_t a = range[0], b = range[1];
  for (size_t at = range[0]; at < range[2]; at++) {
    bool second = a == range[1];
    if (!second && b < range[2]) PASS(is_before(m, keys, in[a], in[b], reverse, &second));
    out[at] = second ? in[b++] : in[a++];
  }
  return TREADLE_OK;
}

treadle_status treadle_jinja_sort(machine *m, const value *keys, size_t count, bool reverse,
                                  size_t **places_p) {
  size_t *in, *out;
  PASS(treadle_jinja_alloc(m, count, sizeof *in, &in));
  PASS(treadle_jinja_alloc(m, count, sizeof *out, &out));
  for (size_t i = 0; i < count; i++) in[i] = i;
  for (size_t width = 1; width < count; width *= 2) {
    for (size_t from = 0; from < count; from += 2 * width) {
      size_t middle = from + width < count ? from + width : count;
      size_t to = middle + width < count ? middle + width : count;
      PASS(merge(m, keys, reverse, in, out, (size_t[]){from, middle, to}));
    }
    size_t *swapped = in;
    in = out;
    out = swapped;
  }
  *places_p = in;
  return TREADLE_OK;
}

/* ---- Keys ---------------------------------------------------------------------------------------------- */

static treadle_status step(machine *m, const treadle_jinja_key *key, value name, value *item_p) {
  PASS(treadle_jinja_element(m, *item_p, name, item_p));
  bool replaced = item_p->kind == JINJA_UNDEFINED && key->otherwise.kind != JINJA_ABSENT &&
                  key->otherwise.kind != JINJA_NONE;
  if (replaced) *item_p = key->otherwise;
  return TREADLE_OK;
}

/* "a.b.0": parts of digits alone are numbers. */
static treadle_status walk(machine *m, const treadle_jinja_key *key, const treadle_jinja_text *path,
                           value *item_p) {
  PASS(treadle_jinja_scan(m, path->length));
  for (size_t from = 0; from <= path->length;) {
    PASS(treadle_jinja_step(m, 1));
    const char *dot = memchr(path->bytes + from, '.', path->length - from);
    size_t end = dot ? (size_t)(dot - path->bytes) : path->length;
    int64_t number = 0;
    bool digits = end > from && end - from < 18;
    for (size_t i = from; i < end && digits; i++) {
      digits = path->bytes[i] >= '0' && path->bytes[i] <= '9';
      number = number * 10 + path->bytes[i] - '0';
    }
    value name = treadle_jinja_int(number);
    if (!digits) PASS(treadle_jinja_part(m, path, from, end, &name));
    PASS(step(m, key, name, item_p));
    from = end + 1;
  }
  return TREADLE_OK;
}

treadle_status treadle_jinja_key_of(machine *m, const treadle_jinja_key *key, value item, value *value_p) {
  *value_p = item;
  if (key->attribute.kind == JINJA_TEXT)
    PASS(walk(m, key, key->attribute.text, value_p));
  else if (key->attribute.kind != JINJA_ABSENT && key->attribute.kind != JINJA_NONE)
    PASS(step(m, key, key->attribute, value_p));
  if (!key->folded || value_p->kind != JINJA_TEXT) return TREADLE_OK;
  return treadle_jinja_change_case(m, value_p->text, JINJA_LOWER, value_p);
}
