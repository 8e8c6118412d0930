/* Where data ends and tags begin, and what white space around them stays.
 *
 * A sign behind {% {# {{ or before %} #} }} changes it: - strips all white space on that side, + keeps it. Without a sign the
 * environment decides: a line's white space before {% and {# goes if nothing else stands before them (lstrip_blocks), one line end
 * after %} and #} goes (trim_blocks). The last line end of the template goes as well. Tokens inside of a tag are read by
 * jinja_lexeme.c; a tag ends only where all brackets are closed, so that }} may end two dicts. */
#include "jinja/jinja_lexer.h"

#include "jinja/jinja_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef treadle_jinja_lexer lexer;
typedef treadle_jinja_lexeme lexeme;

treadle_status treadle_jinja_lexer_open(lexer *l, treadle_jinja_machine *m, const char *text,
                                        size_t length) {
  char *copy;
  size_t count = 0;
  PASS(treadle_jinja_alloc(m, length, 1, &copy));
  for (size_t i = 0; i < length; i++) { /* \r\n and \r are \n */
    if (text[i] == '\r' && i + 1 < length && text[i + 1] == '\n') continue;
    copy[count++] = text[i] == '\r' ? '\n' : text[i];
  }
  if (count && copy[count - 1] == '\n') count--;
  *l = (lexer){.machine = m, .text = copy, .length = count, .line = 1, .line_begins = true};
  return TREADLE_OK;
}

void treadle_jinja_lexer_close(lexer *l) {
  treadle_hash_map_release(&l->words);
  treadle_array_release(&l->interned);
}

treadle_status treadle_jinja_lexer_fail(lexer *l, const char *format, ...) {
  char words[400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  if (!l->machine->line) l->machine->line = l->line;
  return treadle_fail(TREADLE_REFUSED, "%s", words);
}

static int count_lines(const char *bytes, size_t length) {
  int lines = 0;
  for (size_t i = 0; i < length; i++) lines += bytes[i] == '\n';
  return lines;
}

void treadle_jinja_lexer_take(lexer *l, size_t end) {
  l->line += count_lines(l->text + l->at, end - l->at);
  if (end > l->at) l->line_begins = l->text[end - 1] == '\n';
  l->at = end;
}

/* ---- Finding tags --------------------------------------------------------------------------------- */

static bool stands(const lexer *l, size_t at, const char *what) {
  size_t length = strlen(what);
  return at <= l->length && length <= l->length - at && memcmp(l->text + at, what, length) == 0;
}

static size_t skip_space(const lexer *l, size_t at) {
  uint32_t code;
  while (at < l->length) {
    size_t one = treadle_utf8_decode(l->text + at, &code);
    if (!treadle_jinja_is_space(code)) break;
    at += one;
  }
  return at;
}

/* The end of a tag whose closing mark is `mark`: +%} or -%} with the space behind it or %} with one line end behind it. 0: none. */
static size_t end_of_tag(const lexer *l, size_t at, const char *mark, bool trims) {
  if (trims && at < l->length && l->text[at] == '+' && stands(l, at + 1, mark)) return at + 3;
  if (at < l->length && l->text[at] == '-' && stands(l, at + 1, mark)) return skip_space(l, at + 3);
  if (!stands(l, at, mark)) return 0;
  at += 2;
  return trims && at < l->length && l->text[at] == '\n' ? at + 1 : at;
}

static size_t is_sign(const lexer *l, size_t at) {
  return at < l->length && (l->text[at] == '-' || l->text[at] == '+');
}

/* The end of {% raw %}, 0 where that does not stand at `at`. */
static size_t end_of_raw(const lexer *l, size_t at) {
  if (!stands(l, at, "{%")) return 0;
  at = skip_space(l, at + 2 + is_sign(l, at + 2));
  if (!stands(l, at, "raw")) return 0;
  at = skip_space(l, at + 3);
  if (stands(l, at, "-%}")) return skip_space(l, at + 3);
  return stands(l, at, "%}") ? at + 2 : 0;
}

/* {% endraw %} at `at`: its end, else 0. */
static size_t end_of_endraw(const lexer *l, size_t at) {
  if (!stands(l, at, "{%")) return 0;
  at += 2;
  if (is_sign(l, at)) at++;
  at = skip_space(l, at);
  if (!stands(l, at, "endraw")) return 0;
  return end_of_tag(l, skip_space(l, at + 6), "%}", true);
}

/* ---- Data ----------------------------------------------------------------------------------------- */

/* Data [at, end) before a tag that begins at `end`: what of it stays, and its lines. */
static treadle_status take_data(lexer *l, size_t end, bool variable, lexeme *t) {
  size_t stay = end, from;
  char sign = end + 2 < l->length ? l->text[end + 2] : 0;
  if (sign == '-') {
    (void)treadle_jinja_strip(NULL, l->text + l->at, end - l->at, JINJA_RIGHT, NULL, &from, &stay);
    stay += l->at;
  } else if (sign != '+' && !variable) {
    size_t begin = end;
    while (begin > l->at && l->text[begin - 1] != '\n') begin--;
    bool begins = begin > l->at || l->line_begins;
    if (begins && begin < end && skip_space(l, begin) >= end) stay = begin;
  }
  *t = (lexeme){.sign = JINJA_DATA, .line = l->line};
  PASS(treadle_jinja_share(l->machine, l->text + l->at, stay - l->at, &t->value));
  /* white space that - strips counts its lines, that of lstrip_blocks has none */
  l->line += count_lines(l->text + l->at, end - l->at);
  l->at = end;
  return TREADLE_OK;
}

/* Data up to the next tag, with the tag's begin as the token after it; or the rest of the template. */
static treadle_status read_data(lexer *l, lexeme *t) {
  size_t end = l->at;
  while (end < l->length && !(l->text[end] == '{' && end + 1 < l->length &&
                              strchr("%#{", l->text[end + 1]) && l->text[end + 1]))
    end++;
  if (end == l->length) {
    *t = (lexeme){.sign = JINJA_DATA, .line = l->line};
    PASS(treadle_jinja_share(l->machine, l->text + l->at, end - l->at, &t->value));
    treadle_jinja_lexer_take(l, end);
    return TREADLE_OK;
  }
  char mark = l->text[end + 1];
  size_t raw = end_of_raw(l, end);
  PASS(take_data(l, end, mark == '{', t));
  if (mark != '#' && !raw) {
    l->has_next = true;
    l->next = (lexeme){.sign = mark == '{' ? JINJA_VARIABLE_BEGIN : JINJA_BLOCK_BEGIN, .line = l->line};
  }
  l->where = raw           ? JINJA_IN_RAW
             : mark == '{' ? JINJA_IN_VARIABLE
             : mark == '%' ? JINJA_IN_BLOCK
                           : JINJA_IN_COMMENT;
  treadle_jinja_lexer_take(l, raw ? raw : end + 2 + is_sign(l, end + 2));
  return TREADLE_OK;
}

static treadle_status read_raw(lexer *l, lexeme *t) {
  for (size_t end = l->at; end < l->length; end++) {
    size_t after = end_of_endraw(l, end);
    if (!after) continue;
    PASS(take_data(l, end, false, t));
    treadle_jinja_lexer_take(l, after);
    l->where = JINJA_IN_DATA;
    return TREADLE_OK;
  }
  if (l->at < l->length) return treadle_jinja_lexer_fail(l, "{%% raw %%} is not closed by {%% endraw %%}");
  *t = (lexeme){.sign = JINJA_END, .line = l->line};
  return TREADLE_OK;
}

static treadle_status skip_comment(lexer *l) {
  for (size_t at = l->at; at < l->length; at++) {
    size_t after = end_of_tag(l, at, "#}", true);
    if (!after) continue;
    treadle_jinja_lexer_take(l, after);
    l->where = JINJA_IN_DATA;
    return TREADLE_OK;
  }
  if (l->at < l->length) return treadle_jinja_lexer_fail(l, "a comment is not closed by #}");
  l->where = JINJA_IN_DATA;
  return TREADLE_OK;
}

static treadle_status read_tag(lexer *l, lexeme *t) {
  bool block = l->where == JINJA_IN_BLOCK;
  for (;;) {
    size_t end = l->open_count ? 0 : end_of_tag(l, l->at, block ? "%}" : "}}", block);
    if (end) {
      *t = (lexeme){.sign = block ? JINJA_BLOCK_END : JINJA_VARIABLE_END, .line = l->line};
      treadle_jinja_lexer_take(l, end);
      l->where = JINJA_IN_DATA;
      return TREADLE_OK;
    }
    size_t next = skip_space(l, l->at);
    if (next == l->at) break;
    treadle_jinja_lexer_take(l, next);
  }
  if (l->at < l->length) return treadle_jinja_lexer_lexeme(l, t);
  *t = (lexeme){.sign = JINJA_END, .line = l->line};
  return TREADLE_OK;
}

treadle_status treadle_jinja_lexer_next(lexer *l, lexeme *t) {
  for (;;) {
    PASS(treadle_jinja_step(l->machine, 1));
    if (l->has_next) {
      l->has_next = false;
      *t = l->next;
      return TREADLE_OK;
    }
    if (l->where == JINJA_IN_BLOCK || l->where == JINJA_IN_VARIABLE) return read_tag(l, t);
    if (l->where == JINJA_IN_COMMENT)
      PASS(skip_comment(l));
    else if (l->where == JINJA_IN_RAW || l->at < l->length) {
      PASS(l->where == JINJA_IN_RAW ? read_raw(l, t) : read_data(l, t));
      if (t->sign == JINJA_END || t->value.text->length) return TREADLE_OK;
    } else {
      *t = (lexeme){.sign = JINJA_END, .line = l->line};
      return TREADLE_OK;
    }
  }
}
