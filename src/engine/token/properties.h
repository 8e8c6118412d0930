/* Properties of characters, for patterns. */
#ifndef TREADLE_TOKEN_PROPERTIES_H
#define TREADLE_TOKEN_PROPERTIES_H

#include "token/unicode.h"

/* Appends what stands inside of a class of PCRE2 for \\p{name}, as Oniguruma knows it: a general category in its short or long name, a
 * script, or a property such as Alphabetic. */
treadle_status treadle_property_add(const char *name, size_t length, treadle_text_bytes *to);

#endif
