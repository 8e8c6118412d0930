/* Texts: making them, and what Python's str does with them. Positions are code points unless the name says bytes. */
#ifndef TREADLE_JINJA_JINJA_TEXT_H
#define TREADLE_JINJA_JINJA_TEXT_H

#include "base/utf8.h"
#include "jinja/jinja_machine.h"

/* Characters of a text, which is valid UTF-8. */
size_t treadle_jinja_points(const char *bytes, size_t length);

/* A text of a copy of the bytes; of the bytes themselves; of a name of this program. */
treadle_status treadle_jinja_copy(treadle_jinja_machine *machine, const char *bytes, size_t length,
                                  treadle_jinja_value *value_p);
treadle_status treadle_jinja_share(treadle_jinja_machine *machine, const char *bytes, size_t length,
                                   treadle_jinja_value *value_p);
treadle_status treadle_jinja_plain(treadle_jinja_machine *machine, const char *text,
                                   treadle_jinja_value *value_p);
/* The same text as Markup, or as a str. */
treadle_status treadle_jinja_mark(treadle_jinja_machine *machine, const treadle_jinja_text *text, bool safe,
                                  treadle_jinja_value *value_p);
/* Bytes [from, to) of a text; a part of Markup is Markup. */
treadle_status treadle_jinja_part(treadle_jinja_machine *machine, const treadle_jinja_text *text,
                                  size_t from, size_t to, treadle_jinja_value *value_p);

/* The byte at which character `point` begins. */
size_t treadle_jinja_offset(const treadle_jinja_text *text, size_t point);

/* The first, or last, place of `part` within bytes [from, to); SIZE_MAX: none. */
treadle_status treadle_jinja_find(treadle_jinja_machine *machine, const treadle_jinja_text *text,
                                  const treadle_jinja_text *part, size_t from, size_t to, size_t *found_p);
treadle_status treadle_jinja_find_last(treadle_jinja_machine *machine, const treadle_jinja_text *text,
                                       const treadle_jinja_text *part, size_t from, size_t to,
                                       size_t *found_p);

bool treadle_jinja_equals(const treadle_jinja_text *text, const char *plain);

/* Python's str.isspace() for one character. */
bool treadle_jinja_is_space(uint32_t code);

/* Bytes that strip() leaves; `set` NULL: white space; `machine` NULL: no steps are counted, and it does not fail. */
enum { JINJA_LEFT = 1, JINJA_RIGHT = 2 };
treadle_status treadle_jinja_strip(treadle_jinja_machine *machine, const char *bytes, size_t length,
                                   int sides, const treadle_jinja_text *set, size_t *from_p, size_t *to_p);

/* upper, lower, title, capitalize, swapcase, casefold: by Unicode's full mappings. */
typedef enum treadle_jinja_case {
  JINJA_UPPER,
  JINJA_LOWER,
  JINJA_TITLE,
  JINJA_CAPITAL,
  JINJA_SWAP,
  JINJA_FOLD
} treadle_jinja_case;
treadle_status treadle_jinja_change_case(treadle_jinja_machine *machine, const treadle_jinja_text *text,
                                         treadle_jinja_case how, treadle_jinja_value *value_p);

/* Questions of str: each character, or the text as a whole. */
typedef enum treadle_jinja_class {
  JINJA_IS_ALNUM,
  JINJA_IS_ALPHA,
  JINJA_IS_DECIMAL,
  JINJA_IS_DIGIT,
  JINJA_IS_NUMERIC,
  JINJA_IS_PRINTABLE,
  JINJA_IS_SPACE
} treadle_jinja_class;
bool treadle_jinja_is(treadle_jinja_class which, uint32_t code);
bool treadle_jinja_is_cased(uint32_t code, bool upper);
bool treadle_jinja_all_cased(const treadle_jinja_text *text, bool upper);
bool treadle_jinja_is_title(const treadle_jinja_text *text);

/* & < > ' " become entities. */
treadle_status treadle_jinja_escape(treadle_jinja_machine *machine, treadle_jinja_writer *writer,
                                    const treadle_jinja_text *text);

/* Python's between.join(items), each item as print writes it; Markup where `between` is (jinja_filter_list.c). */
treadle_status treadle_jinja_join_texts(treadle_jinja_machine *machine, const treadle_jinja_text *between,
                                        const treadle_jinja_value *items, size_t count,
                                        treadle_jinja_value *result_p);
/* text.replace(from, to, count); count < 0: all (jinja_split.c). */
treadle_status treadle_jinja_replace(treadle_jinja_machine *machine, const treadle_jinja_text *text,
                                     const treadle_jinja_text *from, const treadle_jinja_text *to,
                                     int64_t count, treadle_jinja_value *result_p);
/* text.splitlines(keepends). */
treadle_status treadle_jinja_split_lines(treadle_jinja_machine *machine, const treadle_jinja_text *text,
                                         bool keep, treadle_jinja_value *result_p);
/* text.split(by, most), text.rsplit(by, most); `by` NULL: white space; most < 0: all. */
treadle_status treadle_jinja_split(treadle_jinja_machine *machine, const treadle_jinja_text *text,
                                   const treadle_jinja_text *by, int64_t most, bool from_right,
                                   treadle_jinja_value *result_p);
/* The text in a wider field, with this many places before and behind it. */
treadle_status treadle_jinja_pad(treadle_jinja_machine *machine, const treadle_jinja_text *text,
                                 size_t before, size_t behind, const treadle_jinja_text *fill,
                                 treadle_jinja_value *result_p);

#endif
