/* Classes of Oniguruma. A class becomes one class of PCRE2, or, where it has others inside, a group of lookaheads and alternatives that takes
 * one character. */
#include "token/oniguruma_parts.h"

#include "token/properties.h"

#include <string.h>

enum { DEEPEST_CLASS = 32 };

#define ANY "(?s:.)"

/* One of the sets that && joins: characters that make one class, and classes inside as alternatives to it. */
typedef struct joined {
  treadle_text_bytes plain, nested;
} joined;

static void joined_release(joined *one) {
  treadle_array_release(&one->plain);
  treadle_array_release(&one->nested);
}

static treadle_status add_nested(joined *one, const char *text, size_t bytes) {
  treadle_status status = TREADLE_OK;
  if (one->nested.count) TRY(treadle_text_bytes_add_text(&one->nested, "|"));
  TRY(treadle_text_bytes_add(&one->nested, text, bytes));
out:
  return status;
}

/* A set inside of a class; one that is turned round is a class of its own. No range begins with a set. */
static treadle_status add_set(treadle_oniguruma *t, const treadle_text_bytes *set, bool negated,
                              joined *one) {
  treadle_status status = TREADLE_OK;
  treadle_text_bytes class = {0};
  if (negated) {
    TRY(treadle_text_bytes_add_text(&class, "[^"));
    TRY(treadle_text_bytes_add(&class, set->items, set->count));
    TRY(treadle_text_bytes_add_text(&class, "]"));
    TRY(add_nested(one, class.items, class.count));
  } else {
    TRY(treadle_text_bytes_add(&one->plain, set->items, set->count));
  }
  if (t->at < t->end && *t->at == '-') {
    t->at++;
    TRY(treadle_text_bytes_add_text(&one->plain, "\\-"));
  }
out:
  treadle_array_release(&class);
  return status;
}

static treadle_status translate_class_escape(treadle_oniguruma *t, joined *one) {
  treadle_text_bytes set = {0};
  treadle_status status = TREADLE_OK;
  bool done, negated;
  if (t->at + 1 >= t->end) REFUSE("a pattern ends in a class");
  TRY(treadle_oniguruma_set(t, false, &set, &negated, &done));
  if (done) {
    TRY(add_set(t, &set, negated, one));
    goto out;
  }
  char letter = t->at[1];
  t->at += 2;
  if (letter == 'b') { /* a backspace */
    TRY(treadle_text_bytes_add_text(&one->plain, "\\x{8}"));
    goto out;
  }
  TRY(treadle_oniguruma_character(t, letter, &one->plain, &done));
  if (!done && (letter < '0' || letter > '7'))
    TRY(treadle_fail(TREADLE_REFUSED, "\\%c in a class is not known here", letter));
  if (!done) {
    const char octal[] = {'\\', letter};
    TRY(treadle_text_bytes_add(&one->plain, octal, 2));
  }
out:
  treadle_array_release(&set);
  return status;
}

/* What stands for [:name:] inside of a class. */
static treadle_status add_named(const char *name, treadle_text_bytes *to) {
  static const struct {
    const char *name, *properties[2];
    const char *more;
  } rows[] = {
      {"alpha", {"Alphabetic", NULL}, ""}, {"alnum", {"Alphabetic", "Nd"}, ""},
      {"digit", {"Nd", NULL}, ""},         {"punct", {"P", "S"}, ""},
      {"upper", {"Uppercase", NULL}, ""},  {"lower", {"Lowercase", NULL}, ""},
      {"cntrl", {"Cc", NULL}, ""},         {"blank", {"Zs", NULL}, "\\t"},
      {"space", {NULL, NULL}, SPACES},     {"xdigit", {NULL, NULL}, "0-9A-Fa-f"},
  };
  treadle_status status = TREADLE_OK;
  if (strcmp(name, "word") == 0) return treadle_oniguruma_word(false, to);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (strcmp(rows[i].name, name) != 0) continue;
    for (int p = 0; p < 2 && rows[i].properties[p]; p++)
      TRY(treadle_property_add(rows[i].properties[p], strlen(rows[i].properties[p]), to));
    TRY(treadle_text_bytes_add_text(to, rows[i].more));
    return TREADLE_OK;
  }
  REFUSE("[:%s:] is not known here", name);
out:
  return status;
}

/* [:alpha:] and [:^alpha:], or a class inside, which is translated alone. */
static treadle_status translate_inner_class(treadle_oniguruma *t, joined *one) {
  treadle_text_bytes inner = {0};
  treadle_status status = TREADLE_OK;
  if (t->at + 1 >= t->end || t->at[1] != ':') {
    TRY(treadle_oniguruma_class(t, &inner));
    TRY(add_nested(one, inner.items, inner.count));
    goto out;
  }
  char name[16] = "";
  bool negated = t->at + 2 < t->end && t->at[2] == '^';
  const char *from = t->at + 2 + negated, *close = memmem(from, (size_t)(t->end - from), ":]", 2);
  if (!close || (size_t)(close - from) >= sizeof name)
    TRY(treadle_fail(TREADLE_REFUSED, "[: without a name and :]"));
  memcpy(name, from, (size_t)(close - from));
  t->at = close + 2;
  TRY(add_named(name, &inner));
  TRY(add_set(t, &inner, negated, one));
out:
  treadle_array_release(&inner);
  return status;
}

/* Up to && or the ] that ends the class. */
static treadle_status read_joined(treadle_oniguruma *t, bool first, joined *one) {
  treadle_status status = TREADLE_OK;
  for (bool begun = !first; t->at < t->end; begun = true) {
    if (*t->at == ']' && begun) break;
    if (t->end - t->at >= 2 && t->at[0] == '&' && t->at[1] == '&') break;
    if (*t->at == '\\') {
      TRY(translate_class_escape(t, one));
    } else if (*t->at == '[') {
      TRY(translate_inner_class(t, one));
    } else {
      if (*t->at == ']') TRY(treadle_text_bytes_add_text(&one->plain, "\\"));
      TRY(treadle_text_bytes_add(&one->plain, t->at++, 1));
    }
  }
  if (t->at >= t->end) TRY(treadle_fail(TREADLE_REFUSED, "a class without its ]"));
  if (!one->plain.count && !one->nested.count)
    TRY(treadle_fail(TREADLE_REFUSED, "a class, or a side of &&, is empty"));
out:
  return status;
}

/* One set as a pattern that takes one character. */
static treadle_status write_joined(const joined *one, bool negated, treadle_text_bytes *to) {
  treadle_status status = TREADLE_OK;
  bool group = one->nested.count > 0;
  if (group) TRY(treadle_text_bytes_add_text(to, negated ? "(?:(?!" : "(?:"));
  if (one->plain.count) {
    TRY(treadle_text_bytes_add_text(to, negated && !group ? "[^" : "["));
    TRY(treadle_text_bytes_add(to, one->plain.items, one->plain.count));
    TRY(treadle_text_bytes_add_text(to, group ? "]|" : "]"));
  }
  TRY(treadle_text_bytes_add(to, one->nested.items, one->nested.count));
  if (group) TRY(treadle_text_bytes_add_text(to, negated ? ")" ANY ")" : ")"));
out:
  return status;
}

/* All sets that && joins, at [ and behind: lookaheads for all but the last. */
treadle_status treadle_oniguruma_class(treadle_oniguruma *t, treadle_text_bytes *to) {
  treadle_status status = TREADLE_OK;
  joined one = {0};
  treadle_text_bytes all = {0};
  if (++t->depth > DEEPEST_CLASS) REFUSE("classes are nested more than %d deep", DEEPEST_CLASS);
  bool negated = t->at + 1 < t->end && t->at[1] == '^', joins = false;
  t->at += negated ? 2 : 1;
  TRY(read_joined(t, true, &one));
  while (*t->at == '&') {
    joins = true;
    t->at += 2;
    TRY(treadle_text_bytes_add_text(&all, "(?="));
    TRY(write_joined(&one, false, &all));
    TRY(treadle_text_bytes_add_text(&all, ")"));
    joined_release(&one);
    TRY(read_joined(t, false, &one));
  }
  t->at++;
  t->depth--;
  if (!joins) {
    TRY(write_joined(&one, negated, to));
    goto out;
  }
  TRY(write_joined(&one, false, &all));
  TRY(treadle_text_bytes_add_text(to, negated ? "(?:(?!" : "(?:"));
  TRY(treadle_text_bytes_add(to, all.items, all.count));
  TRY(treadle_text_bytes_add_text(to, negated ? ")" ANY ")" : ")"));
out:
  joined_release(&one);
  treadle_array_release(&all);
  return status;
}
