/* Jinja as Hugging Face runs it: a template is parsed once and rendered any number of times.
 *
 * The environment is that of transformers: Jinja2's immutable sandbox with trim_blocks and lstrip_blocks, break and continue, the
 * tag generation, the filter tojson, the functions raise_exception, strftime_now, namespace, dict and those of Jinja2. What
 * is missing is refused by line and name. A template that does not end is ended by
 * limits. */
#ifndef TREADLE_JINJA_JINJA_H
#define TREADLE_JINJA_JINJA_H

#include "base/array.h"
#include "base/status.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

typedef struct treadle_jinja_template treadle_jinja_template;

/* Code points [start, end) of the output that a block {% generation %} wrote. */
typedef struct treadle_jinja_span {
  size_t start, end;
} treadle_jinja_span;
typedef TREADLE_ARRAY(treadle_jinja_span) treadle_jinja_spans;

/* Limits; 0 is the default. */
typedef struct treadle_jinja_options {
  int64_t steps;   /* expressions, statements and items; bytes count too */
  int64_t memory;  /* bytes of all values that a rendering makes */
  int64_t output;  /* bytes of its output */
  const char *now; /* what strftime_now sees: "2025-03-14T15:09:26"; NULL: the clock's local time */
} treadle_jinja_options;

/* `what` names the template in messages, here and in renderings; it and the text are copied. The text is UTF-8. A template never
 * changes: any number of threads may render it. */
treadle_status treadle_jinja_parse(const char *what, const char *text, size_t length,
                                   treadle_jinja_template **template_p);
void treadle_jinja_destroy(treadle_jinja_template *template);

/* `variables` is an object. *text_p is ended by a 0 byte and freed by treadle_free(). spans_p may be NULL; else the
 * caller releases the array. */
treadle_status treadle_jinja_render(const treadle_jinja_template *template, json_t *variables,
                                    const treadle_jinja_options *options, char **text_p, size_t *length_p,
                                    treadle_jinja_spans *spans_p);

#endif
