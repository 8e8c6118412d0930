/* The normalisation of the MATH data (Hendrycks and others, 2021: modeling/math_equivalence.py of github.com/hendrycks/math), which verl
 * and others use. The steps are the original's, in its order, for the same score of the same text:
 *
 *   replacements    no line ends, \! or \left; \\ is \; tfrac and dfrac are frac; no degrees and no \$
 *   units           what stands from "\text{ " on goes
 *   more of them    no \%; a point after a space or a brace gets a 0
 *   "x = "          goes where at most two characters stand before the one =
 *   \sqrt3          becomes \sqrt{3}
 *   spaces          go
 *   \frac12         becomes \frac{1}{2}
 *   0.5             becomes \frac{1}{2}, and that alone
 *   a/b             becomes \frac{a}{b} for two whole numbers
 *
 * The original counts characters, not bytes; so does this. */
#include "reward/math_form.h"

#include "base/utf8.h"

#include <string.h>

typedef struct replacement {
  const char *from, *to;
} replacement;

static const replacement before_units[] = {
    {"\n", ""},     {"\\!", ""},     {"\\\\", "\\"},    {"tfrac", "frac"}, {"dfrac", "frac"},
    {"\\left", ""}, {"\\right", ""}, {"^{\\circ}", ""}, {"^\\circ", ""},   {"\\$", ""}};
static const replacement after_units[] = {{"\\%", ""}, {" .", " 0."}, {"{.", "{0."}};
static const replacement spaces[] = {{" ", ""}};

#define COUNT(table) (sizeof(table) / sizeof *(table))

static const char *text_of(const treadle_builder *builder) { return builder->text ? builder->text : ""; }

/* *form = *next, which is a builder of this step. */
static void become(treadle_builder *form, treadle_builder next) {
  next.failed |= form->failed;
  treadle_builder_release(form);
  *form = next;
}

static void replace(treadle_builder *form, const replacement *table, size_t count) {
  for (size_t i = 0; i < count; i++) {
    treadle_builder next = {0};
    const char *at = text_of(form), *found;
    if (!strstr(at, table[i].from)) continue;
    for (; (found = strstr(at, table[i].from)); at = found + strlen(table[i].from)) {
      treadle_builder_add_bytes(&next, at, (size_t)(found - at));
      treadle_builder_add(&next, "%s", table[i].to);
    }
    treadle_builder_add(&next, "%s", at);
    become(form, next);
  }
}

/* Bytes of the first character of a text, one of those that are none. */
static size_t first_bytes(const char *text) {
  uint32_t code;
  int bytes = treadle_utf8_read(text, &code);
  return bytes > 0 ? (size_t)bytes : 1;
}

/* How often a part stands in a text. */
static size_t count_of(const char *text, const char *part) {
  size_t count = 0;
  for (; (text = strstr(text, part)); text += strlen(part)) count++;
  return count;
}

static bool drop_units(treadle_builder *form) {
  static const char unit[] = "\\text{ ";
  size_t count = count_of(text_of(form), unit);
  if (count > 1) return false;
  if (count == 1) {
    form->length = (size_t)(strstr(form->text, unit) - form->text);
    form->text[form->length] = 0;
  }
  return true;
}

static void put_leading_zero(treadle_builder *form) {
  treadle_builder next = {0};
  if (*text_of(form) != '.') return;
  treadle_builder_add(&next, "0%s", form->text);
  become(form, next);
}

static void drop_name(treadle_builder *form) {
  const char *text = text_of(form), *sign = strchr(text, '=');
  size_t characters = 0;
  if (!sign || strchr(sign + 1, '=')) return;
  for (const char *at = text; at < sign; at += first_bytes(at)) characters++;
  if (characters > 2) return;
  treadle_builder next = {0};
  treadle_builder_add(&next, "%s", sign + 1);
  become(form, next);
}

static bool brace_roots(treadle_builder *form) {
  static const char root[] = "\\sqrt";
  treadle_builder next = {0};
  const char *at = text_of(form), *found;
  bool good = true;
  if (!strstr(at, root)) return true;
  for (; good && (found = strstr(at, root));) {
    treadle_builder_add_bytes(&next, at, (size_t)(found - at) + sizeof root - 1);
    at = found + sizeof root - 1;
    good = *at && strncmp(at, root, sizeof root - 1) != 0;
    if (!good || *at == '{') continue;
    size_t bytes = first_bytes(at);
    treadle_builder_add(&next, "{%.*s}", (int)bytes, at);
    at += bytes;
  }
  treadle_builder_add(&next, "%s", at);
  become(form, next);
  return good;
}

/* What stands from one \frac to the next, [bytes] at `part`: "12..." becomes "{1}{2}...", "1{2}" becomes "{1}{2}". False: it is one
 * character alone. */
static bool brace_part(treadle_builder *next, const char *part, size_t bytes) {
  if (*part == '{') {
    treadle_builder_add_bytes(next, part, bytes);
    return true;
  }
  size_t a = first_bytes(part);
  if (a >= bytes) return false;
  treadle_builder_add(next, "{%.*s}", (int)a, part);
  part += a;
  bytes -= a;
  size_t b = *part == '{' ? 0 : first_bytes(part);
  if (b) treadle_builder_add(next, "{%.*s}", (int)b, part);
  treadle_builder_add_bytes(next, part + b, bytes - b);
  return true;
}

static bool brace_fractions(treadle_builder *form) {
  static const char frac[] = "\\frac";
  treadle_builder next = {0};
  const char *at = text_of(form), *found = strstr(at, frac);
  if (!found) return true;
  treadle_builder_add_bytes(&next, at, (size_t)(found - at));
  while (found) {
    at = found + sizeof frac - 1;
    found = strstr(at, frac);
    size_t bytes = found ? (size_t)(found - at) : strlen(at);
    bool none = bytes == 0;
    treadle_builder_add(&next, "%s", frac);
    if (none || !brace_part(&next, at, bytes)) {
      treadle_builder_release(&next);
      return !none; /* with one character alone, all stays as it is */
    }
  }
  become(form, next);
  return true;
}

/* A whole number as it is printed, up to `end`. */
static bool is_whole(const char *text, const char *end) {
  bool minus = *text == '-';
  text += minus;
  if (text == end || (*text == '0' && (minus || text + 1 != end))) return false;
  for (; text < end; text++)
    if (*text < '0' || *text > '9') return false;
  return true;
}

static void make_fraction(treadle_builder *form) {
  const char *text = text_of(form), *slash = strchr(text, '/'), *end = text + strlen(text);
  if (!slash || !is_whole(text, slash) || !is_whole(slash + 1, end)) return;
  treadle_builder next = {0};
  treadle_builder_add(&next, "\\frac{%.*s}{%s}", (int)(slash - text), text, slash + 1);
  become(form, next);
}

static void make_half(treadle_builder *form) {
  if (strcmp(text_of(form), "0.5") != 0) return;
  treadle_builder next = {0};
  treadle_builder_add(&next, "\\frac{1}{2}");
  become(form, next);
}

bool treadle_math_form(const char *text, treadle_builder *form) {
  treadle_builder_add(form, "%s", text);
  replace(form, before_units, COUNT(before_units));
  if (!drop_units(form)) return false;
  replace(form, after_units, COUNT(after_units));
  put_leading_zero(form);
  drop_name(form);
  if (!brace_roots(form)) return false;
  replace(form, spaces, COUNT(spaces));
  if (!brace_fractions(form)) return false;
  make_half(form);
  make_fraction(form);
  return true;
}

treadle_status treadle_math_same(const char *a, const char *b, bool *same_p) {
  treadle_builder one = {0}, other = {0};
  bool formed = treadle_math_form(a, &one) && treadle_math_form(b, &other);
  bool failed = one.failed || other.failed;
  *same_p = formed ? strcmp(text_of(&one), text_of(&other)) == 0 : strcmp(a, b) == 0;
  treadle_builder_release(&one);
  treadle_builder_release(&other);
  return failed ? treadle_fail(TREADLE_NO_MEMORY, "no memory for an answer") : TREADLE_OK;
}

/* ---- Boxes -------------------------------------------------------------------------------------------- */

/* The last `mark` that is a whole command: behind it stands a brace or a space. Else NULL. */
static const char *find_last(const char *text, size_t bytes, const char *mark) {
  size_t length = strlen(mark);
  for (size_t at = bytes; at-- > 0;)
    if (bytes - at > length && memcmp(text + at, mark, length) == 0 && strchr("{ ", text[at + length]) &&
        text[at + length])
      return text + at + length;
  return NULL;
}

size_t treadle_math_box(const char *text, size_t bytes, const char **box_p) {
  const char *at = find_last(text, bytes, "\\boxed"), *end = text + bytes, *start;
  int open = 0;
  *box_p = NULL;
  if (!at) at = find_last(text, bytes, "\\fbox");
  if (!at) return 0;
  while (at < end && *at == ' ') at++;
  if (at == end) return 0;
  if (*at != '{') {
    for (start = at; at < end && *at != '$' && *at; at++) continue;
    *box_p = start;
    return (size_t)(at - start);
  }
  for (start = at + 1; at < end; at++) {
    open += (*at == '{') - (*at == '}');
    if (open > 0) continue;
    *box_p = start;
    return (size_t)(at - start);
  }
  return 0;
}
