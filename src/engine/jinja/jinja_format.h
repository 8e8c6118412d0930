/* Python's two ways of formatting: "%5.2f" % x, and "{:>5}".format(x). Both end in one description of a field. */
#ifndef TREADLE_JINJA_JINJA_FORMAT_H
#define TREADLE_JINJA_JINJA_FORMAT_H

#include "jinja/jinja_ops.h"

typedef struct treadle_jinja_field {
  uint32_t fill; /* 0: a space */
  char align;    /* < > ^ =; 0: the type's own */
  char sign;     /* + - space; 0: - */
  char group;    /* , or _ between thousands; 0: none */
  char type;     /* 0: the value's own */
  bool alternate, zeros, no_minus_zero;
  int64_t width, precision; /* -1: none */
} treadle_jinja_field;

/* A number in the field; type one of d b o x X n c e E f F g G % or 0. */
treadle_status treadle_jinja_format_number(treadle_jinja_machine *machine, treadle_jinja_writer *writer,
                                           const treadle_jinja_field *field, treadle_jinja_value value);
/* A text in the field: precision cuts it. */
treadle_status treadle_jinja_format_text(treadle_jinja_machine *machine, treadle_jinja_writer *writer,
                                         const treadle_jinja_field *field, const treadle_jinja_text *text);
/* ascii(value): repr with escapes for all that is not ASCII. */
treadle_status treadle_jinja_ascii(treadle_jinja_machine *machine, treadle_jinja_value value,
                                   treadle_jinja_value *text_p);
/* text.format(*items, **names): names is a dict, or any value with elements. */
treadle_status treadle_jinja_format(treadle_jinja_machine *machine, const treadle_jinja_text *text,
                                    treadle_jinja_value items, treadle_jinja_value names,
                                    treadle_jinja_value *result_p);

#endif
