/* Decoders of tokenizer.json: from the texts of tokens to one text. ByteLevel, Metaspace, ByteFallback, Fuse, Strip, Replace, and Sequence
 * of them; others are refused by name. llama2.c's way is one, too. */
#ifndef TREADLE_TOKEN_DECODER_H
#define TREADLE_TOKEN_DECODER_H

#include "token/regex.h"
#include "token/unicode.h"

#include <jansson.h>

typedef enum treadle_decoder_type {
  TREADLE_DECODE_BYTE_LEVEL,
  TREADLE_DECODE_METASPACE,
  TREADLE_DECODE_BYTE_FALLBACK,
  TREADLE_DECODE_FUSE,
  TREADLE_DECODE_STRIP,
  TREADLE_DECODE_REPLACE,
  TREADLE_DECODE_LLAMA2C
} treadle_decoder_type;

/* One step. */
typedef struct treadle_decoder {
  treadle_decoder_type type;
  uint32_t code;              /* METASPACE: the sign for a space; STRIP */
  bool drop_first;            /* METASPACE: the signs of the first token go away */
  int64_t start, stop;        /* STRIP: at most this many */
  treadle_regex *pattern;     /* REPLACE */
  treadle_text_bytes content; /* REPLACE */
} treadle_decoder;

typedef TREADLE_ARRAY(treadle_decoder) treadle_decoders;

/* Texts one after the other: text i ends where ends.items[i] says. */
typedef struct treadle_text_list {
  treadle_text_bytes text;
  TREADLE_ARRAY(size_t) ends;
} treadle_text_list;

/* Appends the steps of a decoder; NULL or null has none: texts are then joined with blanks. */
treadle_status treadle_decoders_read(const json_t *json, treadle_decoders *steps);
treadle_status treadle_decoders_add(treadle_decoders *steps, treadle_decoder_type type);
/* All steps: `list` becomes the result, which is joined to one text by who called. */
treadle_status treadle_decoders_run(const treadle_decoders *steps, treadle_regex_room *room,
                                    treadle_text_list *list, treadle_text_list *spare);
void treadle_decoders_release(treadle_decoders *steps);

treadle_status treadle_text_list_add(treadle_text_list *list, const char *text, size_t bytes);
void treadle_text_list_release(treadle_text_list *list);

/* The pieces that decoding in one go and decoding as tokens come have in common. */

/* Is it <0xNN>? Its byte. */
bool treadle_decode_byte(const char *text, size_t bytes, unsigned char *byte_p);
/* The bytes that a text in the byte-level alphabet stands for; of any other text, its own. */
treadle_status treadle_decode_byte_level(const char *text, size_t bytes, treadle_text_bytes *to);
treadle_status treadle_decode_metaspace(const treadle_decoder *step, bool first, const char *text,
                                        size_t bytes, treadle_text_bytes *to);
treadle_status treadle_decode_strip(const treadle_decoder *step, const char *text, size_t bytes,
                                    treadle_text_bytes *to);
treadle_status treadle_decode_replace(const treadle_decoder *step, treadle_regex_room *room,
                                      const char *text, size_t bytes, treadle_text_bytes *to);
/* llama2.c: the token's text, without a blank at the start of all; <0xNN> is a byte. */
treadle_status treadle_decode_llama2c(bool first, const char *text, size_t bytes, treadle_text_bytes *to);

#endif
