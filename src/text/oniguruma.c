/* From Oniguruma to PCRE2, in one pass over the pattern. Outside of classes most is copied. A class becomes one class of PCRE2, or,
 * where it has others inside, a group of lookaheads and alternatives that takes one character. */
#include "text/oniguruma.h"

#include "text/properties.h"

#include <ctype.h>
#include <string.h>

enum { DEEPEST_CLASS = 32 };

/* Sets, as they stand inside of a class. */
#define SPACES                                                                                             \
  "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{" \
  "3000}"
#define ANY "(?s:.)"

typedef struct translator {
  const char *at, *end;
  int depth; /* of classes */
} translator;

static treadle_status add(treadle_text_bytes *to, const char *text) {
  return treadle_text_bytes_add(to, text, strlen(text));
}

/* ---- Escapes ---- */

/* \p{L}, \P{L}, \p{^L}: what stands inside of a class for it, and whether that is turned round. t->at is behind the p. */
static treadle_status translate_property(translator *t, char letter, treadle_text_bytes *to,
                                         bool *negated_p) {
  const char *close = t->at < t->end && *t->at == '{' ? memchr(t->at, '}', (size_t)(t->end - t->at)) : NULL;
  if (!close) REFUSE("\\%c without a property in braces", letter);
  const char *name = t->at + 1;
  *negated_p = letter == 'P';
  if (*name == '^') {
    *negated_p = !*negated_p;
    name++;
  }
  t->at = close + 1;
  return treadle_property_add(name, (size_t)(close - name), to);
}

/* What stands inside of a class for \w. Where it stands `alone`, Oniguruma counts small and broken numbers of Latin-1, too. */
static treadle_status add_word(bool alone, treadle_text_bytes *to) {
  static const char *const parts[] = {"Alphabetic", "M", "Nd", "Pc"};
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    TRY(treadle_property_add(parts[i], strlen(parts[i]), to));
  if (alone) TRY(add(to, "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"));
out:
  return status;
}

/* An escape that stands for a set: what stands inside of a class for it. *done_p: it is one; t->at is behind it then. */
static treadle_status translate_set(translator *t, bool alone, treadle_text_bytes *to, bool *negated_p,
                                    bool *done_p) {
  char letter = t->at + 1 < t->end ? t->at[1] : 0;
  *done_p = letter && strchr("sSwWdDhHpP", letter);
  if (!*done_p) return TREADLE_OK;
  t->at += 2;
  *negated_p = letter == 'S' || letter == 'W' || letter == 'D' || letter == 'H';
  switch (letter) {
  case 's':
  case 'S': return add(to, SPACES);
  case 'w':
  case 'W': return add_word(alone, to);
  case 'd':
  case 'D': return treadle_property_add("Nd", 2, to);
  case 'h':
  case 'H': return add(to, "0-9A-Fa-f");
  default: return translate_property(t, letter, to, negated_p);
  }
}

/* \uHHHH; t->at is behind the u. */
static treadle_status translate_number(translator *t, treadle_text_bytes *to) {
  treadle_status status;
  for (int i = 0; i < 4; i++)
    if (t->at + i >= t->end || !isxdigit((unsigned char)t->at[i])) REFUSE("\\u without four digits");
  TRY(add(to, "\\x{"));
  TRY(treadle_text_bytes_add(to, t->at, 4));
  TRY(add(to, "}"));
  t->at += 4;
out:
  return status;
}

/* An escape that stands for one character. t->at is behind the letter. *done_p: it is one. */
static treadle_status translate_character(translator *t, char letter, treadle_text_bytes *to,
                                          bool *done_p) {
  treadle_status status = TREADLE_OK;
  *done_p = true;
  if (letter == 'u') {
    TRY(translate_number(t, to));
  } else if (letter == 'v') {
    TRY(add(to, "\\x{b}"));
  } else if ((unsigned char)letter >= 0x80) { /* a character is itself */
    uint32_t code;
    size_t length = treadle_unicode_decode(--t->at, &code);
    TRY(treadle_text_bytes_add(to, t->at, length));
    t->at += length;
  } else if (strchr("nrtfaex", letter) || !isalnum((unsigned char)letter)) {
    const char same[] = {'\\', letter};
    const char *close = letter == 'x' && t->at < t->end && *t->at == '{'
                            ? memchr(t->at, '}', (size_t)(t->end - t->at))
                            : NULL;
    TRY(treadle_text_bytes_add(to, same, 2));
    if (close) TRY(treadle_text_bytes_add(to, t->at, (size_t)(close + 1 - t->at)));
    if (close) t->at = close + 1;
  } else {
    *done_p = false;
  }
out:
  return status;
}

/* ---- Classes ---- */

static treadle_status translate_class(translator *t, treadle_text_bytes *to);

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
  if (one->nested.count) TRY(add(&one->nested, "|"));
  TRY(treadle_text_bytes_add(&one->nested, text, bytes));
out:
  return status;
}

/* A set inside of a class; one that is turned round is a class of its own. No range begins with a set. */
static treadle_status add_set(translator *t, const treadle_text_bytes *set, bool negated, joined *one) {
  treadle_status status = TREADLE_OK;
  treadle_text_bytes class = {0};
  if (negated) {
    TRY(add(&class, "[^"));
    TRY(treadle_text_bytes_add(&class, set->items, set->count));
    TRY(add(&class, "]"));
    TRY(add_nested(one, class.items, class.count));
  } else {
    TRY(treadle_text_bytes_add(&one->plain, set->items, set->count));
  }
  if (t->at < t->end && *t->at == '-') {
    t->at++;
    TRY(add(&one->plain, "\\-"));
  }
out:
  treadle_array_release(&class);
  return status;
}

static treadle_status translate_class_escape(translator *t, joined *one) {
  treadle_text_bytes set = {0};
  treadle_status status = TREADLE_OK;
  bool done, negated;
  if (t->at + 1 >= t->end) REFUSE("a pattern ends in a class");
  TRY(translate_set(t, false, &set, &negated, &done));
  if (done) {
    TRY(add_set(t, &set, negated, one));
    goto out;
  }
  char letter = t->at[1];
  t->at += 2;
  if (letter == 'b') { /* a backspace */
    TRY(add(&one->plain, "\\x{8}"));
    goto out;
  }
  TRY(translate_character(t, letter, &one->plain, &done));
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
  if (strcmp(name, "word") == 0) return add_word(false, to);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (strcmp(rows[i].name, name) != 0) continue;
    for (int p = 0; p < 2 && rows[i].properties[p]; p++)
      TRY(treadle_property_add(rows[i].properties[p], strlen(rows[i].properties[p]), to));
    TRY(add(to, rows[i].more));
    return TREADLE_OK;
  }
  REFUSE("[:%s:] is not known here", name);
out:
  return status;
}

/* [:alpha:] and [:^alpha:], or a class inside, which is translated alone. */
static treadle_status translate_inner_class(translator *t, joined *one) {
  treadle_text_bytes inner = {0};
  treadle_status status = TREADLE_OK;
  if (t->at + 1 >= t->end || t->at[1] != ':') {
    TRY(translate_class(t, &inner));
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
static treadle_status read_joined(translator *t, bool first, joined *one) {
  treadle_status status = TREADLE_OK;
  for (bool begun = !first; t->at < t->end; begun = true) {
    if (*t->at == ']' && begun) break;
    if (t->end - t->at >= 2 && t->at[0] == '&' && t->at[1] == '&') break;
    if (*t->at == '\\') {
      TRY(translate_class_escape(t, one));
    } else if (*t->at == '[') {
      TRY(translate_inner_class(t, one));
    } else {
      if (*t->at == ']') TRY(add(&one->plain, "\\"));
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
  if (group) TRY(add(to, negated ? "(?:(?!" : "(?:"));
  if (one->plain.count) {
    TRY(add(to, negated && !group ? "[^" : "["));
    TRY(treadle_text_bytes_add(to, one->plain.items, one->plain.count));
    TRY(add(to, group ? "]|" : "]"));
  }
  TRY(treadle_text_bytes_add(to, one->nested.items, one->nested.count));
  if (group) TRY(add(to, negated ? ")" ANY ")" : ")"));
out:
  return status;
}

/* All sets that && joins, at [ and behind: lookaheads for all but the last. */
static treadle_status translate_class(translator *t, treadle_text_bytes *to) {
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
    TRY(add(&all, "(?="));
    TRY(write_joined(&one, false, &all));
    TRY(add(&all, ")"));
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
  TRY(add(to, negated ? "(?:(?!" : "(?:"));
  TRY(treadle_text_bytes_add(to, all.items, all.count));
  TRY(add(to, negated ? ")" ANY ")" : ")"));
out:
  joined_release(&one);
  treadle_array_release(&all);
  return status;
}

/* ---- The rest ---- */

/* \b and \B: between a character of a word and one of none, or not. */
static treadle_status add_boundary(bool negated, treadle_text_bytes *to) {
  static const char *const looks[2][4] = {{"(?:(?<=[", "])(?![", "])|(?<![", "])(?=["},
                                          {"(?:(?<=[", "])(?=[", "])|(?<![", "])(?!["}};
  treadle_status status = TREADLE_OK;
  for (int i = 0; i < 4; i++) {
    TRY(add(to, looks[negated][i]));
    TRY(add_word(true, to));
  }
  TRY(add(to, "]))"));
out:
  return status;
}

static treadle_status translate_escape(translator *t, treadle_text_bytes *to) {
  treadle_text_bytes set = {0};
  treadle_status status = TREADLE_OK;
  bool done, negated;
  if (t->at + 1 >= t->end) REFUSE("a pattern ends with \\");
  TRY(translate_set(t, true, &set, &negated, &done));
  if (done) {
    TRY(add(to, negated ? "[^" : "["));
    TRY(treadle_text_bytes_add(to, set.items, set.count));
    TRY(add(to, "]"));
    goto out;
  }
  char letter = t->at[1];
  t->at += 2;
  if (letter == 'b' || letter == 'B') {
    TRY(add_boundary(letter == 'B', to));
    goto out;
  }
  TRY(translate_character(t, letter, to, &done));
  if (!done && !strchr("AzZGkRXK", letter) && !isdigit((unsigned char)letter))
    TRY(treadle_fail(TREADLE_REFUSED, "\\%c is not known here", letter));
  if (!done) {
    const char same[] = {'\\', letter};
    TRY(treadle_text_bytes_add(to, same, 2));
  }
out:
  treadle_array_release(&set);
  return status;
}

/* (?imx-imx: and (?imx-imx): Ruby's m is PCRE2's s. Other groups are the same. */
static treadle_status translate_group(translator *t, treadle_text_bytes *to) {
  treadle_status status;
  TRY(treadle_text_bytes_add(to, t->at++, 1));
  if (t->at >= t->end || *t->at != '?') goto out;
  TRY(treadle_text_bytes_add(to, t->at++, 1));
  if (t->at < t->end && !strchr(":=!><#imx-", *t->at))
    TRY(treadle_fail(TREADLE_REFUSED, "(?%c is not known here", *t->at));
  if (t->at < t->end && *t->at == '#') {
    const char *close = memchr(t->at, ')', (size_t)(t->end - t->at));
    if (!close) TRY(treadle_fail(TREADLE_REFUSED, "(?# without )"));
    TRY(treadle_text_bytes_add(to, t->at, (size_t)(close - t->at)));
    t->at = close;
  }
  for (; t->at < t->end && strchr("imx-", *t->at); t->at++) {
    if (*t->at == 'x') TRY(treadle_fail(TREADLE_REFUSED, "(?x is not known here"));
    TRY(treadle_text_bytes_add(to, *t->at == 'm' ? "s" : t->at, 1));
  }
out:
  return status;
}

/* {n}, {n,}, {,m}, {n,m}; other braces stand for themselves. */
static treadle_status translate_braces(translator *t, treadle_text_bytes *to) {
  treadle_status status;
  const char *at = t->at + 1, *low = at;
  while (at < t->end && isdigit((unsigned char)*at)) at++;
  bool has_low = at > low, comma = at < t->end && *at == ',';
  const char *high = at + comma, *close = high;
  while (close < t->end && isdigit((unsigned char)*close)) close++;
  if (close >= t->end || *close != '}' || (!has_low && (!comma || close == high))) {
    t->at++;
    return add(to, "\\{");
  }
  char next = close + 1 < t->end ? close[1] : 0;
  if (next == '+' || (next == '?' && !comma))
    REFUSE("%.*s%c means other things in other syntaxes", (int)(close + 1 - t->at), t->at, next);
  TRY(add(to, has_low ? "{" : "{0"));
  TRY(treadle_text_bytes_add(to, low, (size_t)(close + 1 - low)));
  t->at = close + 1;
out:
  return status;
}

treadle_status treadle_oniguruma_translate(const char *pattern, size_t bytes, treadle_text_bytes *to) {
  treadle_status status = TREADLE_OK;
  translator t = {.at = pattern, .end = pattern + bytes};
  while (t.at < t.end) {
    switch (*t.at) {
    case '\\': TRY(translate_escape(&t, to)); break;
    case '[': TRY(translate_class(&t, to)); break;
    case '(': TRY(translate_group(&t, to)); break;
    case '{': TRY(translate_braces(&t, to)); break;
    default: TRY(treadle_text_bytes_add(to, t.at++, 1));
    }
  }
out:
  return status;
}
