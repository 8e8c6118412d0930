/* Characters: UTF-8 of known length (0 bytes are characters too), classes of characters as the tokenizers library has them, and a
 * growing array of bytes. Prose about tokens says "text" for what a person writes. */
#ifndef TREADLE_TOKEN_UNICODE_H
#define TREADLE_TOKEN_UNICODE_H

#include "base/array.h"
#include "base/utf8.h"

#include <stdbool.h>
#include <stdint.h>

typedef TREADLE_ARRAY(char) treadle_text_bytes;

/* `bytes` may not lie in `to`. */
treadle_status treadle_text_bytes_add(treadle_text_bytes *to, const char *bytes, size_t count);
treadle_status treadle_text_bytes_add_text(treadle_text_bytes *to, const char *text);
treadle_status treadle_text_bytes_add_code(treadle_text_bytes *to, uint32_t code);

/* How many bytes from the start are valid UTF-8: all of them, or those before the first that are not. */
size_t treadle_unicode_valid(const char *text, size_t bytes);

/* Appends the characters that `bytes` make. Bytes that no character can begin or go on with become one U+FFFD for each maximal
 * subpart (Unicode 3.9). Characters that are not complete at the end are left unless `all`: *used_p says how many bytes were used. */
treadle_status treadle_unicode_complete(treadle_text_bytes *to, const char *bytes, size_t count, bool all,
                                        size_t *used_p);

bool treadle_unicode_is_space(uint32_t code);       /* White_Space */
bool treadle_unicode_is_word(uint32_t code);        /* \w of Rust's regex */
bool treadle_unicode_is_number(uint32_t code);      /* Nd, Nl, No */
bool treadle_unicode_is_punctuation(uint32_t code); /* P, and all of ASCII's */

#endif
