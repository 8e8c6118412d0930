/* Normalizers of tokenizer.json: what is done to a text before it is cut. NFC, NFD, NFKC, NFKD, Lowercase, Strip, Replace,
 * Prepend, ByteLevel, and Sequence of them; others are refused by name. */
#ifndef TREADLE_TOKEN_NORMALIZER_H
#define TREADLE_TOKEN_NORMALIZER_H

#include "token/regex.h"
#include "token/unicode.h"

#include <jansson.h>

typedef enum treadle_normalizer_type {
  TREADLE_NORMALIZE_UNICODE,
  TREADLE_NORMALIZE_LOWERCASE,
  TREADLE_NORMALIZE_STRIP,
  TREADLE_NORMALIZE_REPLACE,
  TREADLE_NORMALIZE_PREPEND,
  TREADLE_NORMALIZE_BYTE_LEVEL
} treadle_normalizer_type;

/* One step. */
typedef struct treadle_normalizer {
  treadle_normalizer_type type;
  bool compose, compatible;   /* UNICODE: NFC and NFKC compose, NFKC and NFKD are compatible */
  bool left, right;           /* STRIP */
  treadle_regex *pattern;     /* REPLACE */
  treadle_text_bytes content; /* REPLACE, PREPEND */
} treadle_normalizer;

typedef TREADLE_ARRAY(treadle_normalizer) treadle_normalizers;

/* Appends the steps of a normalizer; NULL or null has none. */
treadle_status treadle_normalizers_read(const json_t *json, treadle_normalizers *steps);
/* All steps, one after the other: `text` becomes the result. `spare` is room. */
treadle_status treadle_normalizers_run(const treadle_normalizers *steps, treadle_regex_room *room,
                                       treadle_text_bytes *text, treadle_text_bytes *spare);
void treadle_normalizers_release(treadle_normalizers *steps);

/* {"String": "..."} or {"Regex": "..."}, or a text alone. */
treadle_status treadle_pattern_read(const json_t *json, treadle_regex **regex_p);

/* Appends text with what matches put by the content. */
treadle_status treadle_replace(treadle_regex_search search, const treadle_text_bytes *content,
                               treadle_text_bytes *to);

/* The byte-level alphabet of GPT-2: a character for each byte. Printable ones of Latin-1 stand for themselves. */
uint32_t treadle_byte_level_code(unsigned char byte);
int treadle_byte_level_byte(uint32_t code); /* -1: none */
treadle_status treadle_byte_level_add(treadle_text_bytes *to, const char *text, size_t bytes);

#endif
