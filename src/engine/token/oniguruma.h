/* Patterns of tokenizer.json are written for Oniguruma in Ruby's syntax, which the tokenizers library uses. This turns one into a
 * pattern for PCRE2 with UTF, UCP and MULTILINE that matches the same. What differs:
 *
 *   \s \w \h \v         other sets of characters
 *   [a[b]] [a&&b]       classes in classes, and what classes have in common
 *   \p{Han}             a script, not its extensions; \p{Letter} and other long names
 *   (?m)                the dot takes line ends, too
 *   \uHHHH {,n}         other words for \x{HHHH} and {0,n}
 *
 * What is neither the same in both nor in this list is refused by name. */
#ifndef TREADLE_TOKEN_ONIGURUMA_H
#define TREADLE_TOKEN_ONIGURUMA_H

#include "token/unicode.h"

/* Appends to `to`, which is not ended by a 0 byte. */
treadle_status treadle_oniguruma_translate(const char *pattern, size_t bytes, treadle_text_bytes *to);

#endif
