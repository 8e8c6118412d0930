/* Unicode's normal forms. */
#ifndef TREADLE_TOKEN_NORMAL_FORM_H
#define TREADLE_TOKEN_NORMAL_FORM_H

#include "token/unicode.h"

/* Appends the normal form of a text: C, D, KC or KD. */
treadle_status treadle_normal_form(const char *text, size_t bytes, bool compose, bool compatible,
                                   treadle_text_bytes *to);

#endif
