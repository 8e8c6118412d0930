/* From Oniguruma to PCRE2, in one pass over the pattern. Most is copied. Classes are in oniguruma_class.c. */
#include "token/oniguruma_parts.h"

#include "token/properties.h"

#include <ctype.h>
#include <string.h>

/* ---- Escapes ---- */

/* \p{L}, \P{L}, \p{^L}: what stands inside of a class for it, and whether that is turned round. t->at is behind the p. */
static treadle_status translate_property(treadle_oniguruma *t, char letter, treadle_text_bytes *to,
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
treadle_status treadle_oniguruma_word(bool alone, treadle_text_bytes *to) {
  static const char *const parts[] = {"Alphabetic", "M", "Nd", "Pc"};
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    TRY(treadle_property_add(parts[i], strlen(parts[i]), to));
  if (alone) TRY(treadle_text_bytes_add_text(to, "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"));
out:
  return status;
}

/* An escape that stands for a set: what stands inside of a class for it. *done_p: it is one; t->at is behind it then. */
treadle_status treadle_oniguruma_set(treadle_oniguruma *t, bool alone, treadle_text_bytes *to,
                                     bool *negated_p, bool *done_p) {
  char letter = t->at + 1 < t->end ? t->at[1] : 0;
  *done_p = letter && strchr("sSwWdDhHpP", letter);
  if (!*done_p) return TREADLE_OK;
  t->at += 2;
  *negated_p = letter == 'S' || letter == 'W' || letter == 'D' || letter == 'H';
  switch (letter) {
  case 's':
  case 'S': return treadle_text_bytes_add_text(to, SPACES);
  case 'w':
  case 'W': return treadle_oniguruma_word(alone, to);
  case 'd':
  case 'D': return treadle_property_add("Nd", 2, to);
  case 'h':
  case 'H': return treadle_text_bytes_add_text(to, "0-9A-Fa-f");
  default: return translate_property(t, letter, to, negated_p);
  }
}

/* \uHHHH; t->at is behind the u. */
static treadle_status translate_number(treadle_oniguruma *t, treadle_text_bytes *to) {
  treadle_status status;
  for (int i = 0; i < 4; i++)
    if (t->at + i >= t->end || !isxdigit((unsigned char)t->at[i])) REFUSE("\\u without four digits");
  TRY(treadle_text_bytes_add_text(to, "\\x{"));
  TRY(treadle_text_bytes_add(to, t->at, 4));
  TRY(treadle_text_bytes_add_text(to, "}"));
  t->at += 4;
out:
  return status;
}

/* An escape that stands for one character. t->at is behind the letter. *done_p: it is one. */
treadle_status treadle_oniguruma_character(treadle_oniguruma *t, char letter, treadle_text_bytes *to,
                                           bool *done_p) {
  treadle_status status = TREADLE_OK;
  *done_p = true;
  if (letter == 'u') {
    TRY(translate_number(t, to));
  } else if (letter == 'v') {
    TRY(treadle_text_bytes_add_text(to, "\\x{b}"));
  } else if ((unsigned char)letter >= 0x80) { /* a character is itself */
    uint32_t code;
    size_t length = treadle_utf8_decode(--t->at, &code);
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

/* ---- The rest ---- */

/* \b and \B: between a character of a word and one of none, or not. */
static treadle_status add_boundary(bool negated, treadle_text_bytes *to) {
  static const char *const looks[2][4] = {{"(?:(?<=[", "])(?![", "])|(?<![", "])(?=["},
                                          {"(?:(?<=[", "])(?=[", "])|(?<![", "])(?!["}};
  treadle_status status = TREADLE_OK;
  for (int i = 0; i < 4; i++) {
    TRY(treadle_text_bytes_add_text(to, looks[negated][i]));
    TRY(treadle_oniguruma_word(true, to));
  }
  TRY(treadle_text_bytes_add_text(to, "]))"));
out:
  return status;
}

static treadle_status translate_escape(treadle_oniguruma *t, treadle_text_bytes *to) {
  treadle_text_bytes set = {0};
  treadle_status status = TREADLE_OK;
  bool done, negated;
  if (t->at + 1 >= t->end) REFUSE("a pattern ends with \\");
  TRY(treadle_oniguruma_set(t, true, &set, &negated, &done));
  if (done) {
    TRY(treadle_text_bytes_add_text(to, negated ? "[^" : "["));
    TRY(treadle_text_bytes_add(to, set.items, set.count));
    TRY(treadle_text_bytes_add_text(to, "]"));
    goto out;
  }
  char letter = t->at[1];
  t->at += 2;
  if (letter == 'b' || letter == 'B') {
    TRY(add_boundary(letter == 'B', to));
    goto out;
  }
  TRY(treadle_oniguruma_character(t, letter, to, &done));
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
static treadle_status translate_group(treadle_oniguruma *t, treadle_text_bytes *to) {
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
static treadle_status translate_braces(treadle_oniguruma *t, treadle_text_bytes *to) {
  treadle_status status;
  const char *at = t->at + 1, *low = at;
  while (at < t->end && isdigit((unsigned char)*at)) at++;
  bool has_low = at > low, comma = at < t->end && *at == ',';
  const char *high = at + comma, *close = high;
  while (close < t->end && isdigit((unsigned char)*close)) close++;
  if (close >= t->end || *close != '}' || (!has_low && (!comma || close == high))) {
    t->at++;
    return treadle_text_bytes_add_text(to, "\\{");
  }
  char next = close + 1 < t->end ? close[1] : 0;
  if (next == '+' || (next == '?' && !comma))
    REFUSE("%.*s%c means other things in other syntaxes", (int)(close + 1 - t->at), t->at, next);
  TRY(treadle_text_bytes_add_text(to, has_low ? "{" : "{0"));
  TRY(treadle_text_bytes_add(to, low, (size_t)(close + 1 - low)));
  t->at = close + 1;
out:
  return status;
}

treadle_status treadle_oniguruma_translate(const char *pattern, size_t bytes, treadle_text_bytes *to) {
  treadle_status status = TREADLE_OK;
  treadle_oniguruma t = {.at = pattern, .end = pattern + bytes};
  while (t.at < t.end) {
    switch (*t.at) {
    case '\\': TRY(translate_escape(&t, to)); break;
    case '[': TRY(treadle_oniguruma_class(&t, to)); break;
    case '(': TRY(translate_group(&t, to)); break;
    case '{': TRY(translate_braces(&t, to)); break;
    default: TRY(treadle_text_bytes_add(to, t.at++, 1));
    }
  }
out:
  return status;
}
