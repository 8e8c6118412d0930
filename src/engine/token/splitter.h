/* Pre-tokenizers of tokenizer.json: how a text is cut into words, before pairs in them are merged. Split, ByteLevel, Metaspace, Digits,
 * Punctuation, WhitespaceSplit, and Sequence of them; others are refused by name. */
#ifndef TREADLE_TOKEN_SPLITTER_H
#define TREADLE_TOKEN_SPLITTER_H

#include "token/regex.h"
#include "token/unicode.h"

#include <jansson.h>

typedef enum treadle_splitter_type {
  TREADLE_SPLIT_PATTERN,
  TREADLE_SPLIT_BYTE_LEVEL,
  TREADLE_SPLIT_METASPACE,
  TREADLE_SPLIT_CLASS
} treadle_splitter_type;

/* What becomes of matches, in the order of the words that JSON has. */
typedef enum treadle_split_behavior {
  TREADLE_SPLIT_REMOVED,
  TREADLE_SPLIT_ISOLATED,
  TREADLE_SPLIT_WITH_PREVIOUS,
  TREADLE_SPLIT_WITH_NEXT,
  TREADLE_SPLIT_CONTIGUOUS
} treadle_split_behavior;

/* Where a sign is put in front of a text, in the order of the words that JSON has. */
typedef enum treadle_split_prepend {
  TREADLE_PREPEND_ALWAYS,
  TREADLE_PREPEND_FIRST,
  TREADLE_PREPEND_NEVER
} treadle_split_prepend;

/* One step. */
typedef struct treadle_splitter {
  treadle_splitter_type type;
  treadle_regex *pattern;          /* PATTERN, BYTE_LEVEL; NULL: the words are not cut */
  bool (*is_match)(uint32_t code); /* CLASS: characters that match */
  treadle_split_behavior behavior; /* PATTERN, CLASS */
  bool invert;                     /* PATTERN: what does not match is the match */
  bool cut;                        /* METASPACE: words are cut in front of the sign */
  treadle_split_prepend prepend;   /* BYTE_LEVEL (a space), METASPACE (the sign) */
  char sign[4];                    /* METASPACE: what stands for a space */
  size_t sign_bytes;
} treadle_splitter;

typedef TREADLE_ARRAY(treadle_splitter) treadle_splitters;

typedef struct treadle_text_word {
  size_t start, bytes; /* in the text of the words */
  bool first;          /* at the start of all that is encoded */
} treadle_text_word;

typedef struct treadle_text_words {
  treadle_text_bytes text;
  TREADLE_ARRAY(treadle_text_word) items;
} treadle_text_words;

/* Part of a word, in bytes of the text. */
typedef struct treadle_text_cut {
  size_t start, end;
  bool match;
} treadle_text_cut;

/* Room for cutting: words of the next step, and the cuts of one word. */
typedef struct treadle_splitter_room {
  treadle_regex_room *regex;
  treadle_text_words next;
  TREADLE_ARRAY(treadle_text_cut) cuts;
} treadle_splitter_room;

/* Appends the steps of a pre-tokenizer; NULL or null has none. */
treadle_status treadle_splitters_read(const json_t *json, treadle_splitters *steps);
/* Appends Split by a pattern, each match alone; ByteLevel, which cuts with GPT-2's pattern if `cut`. */
treadle_status treadle_splitters_add_pattern(treadle_splitters *steps, const char *pattern);
treadle_status treadle_splitters_add_byte_level(treadle_splitters *steps, bool prefix_space, bool cut);
/* Cuts words further. */
treadle_status treadle_splitters_run(const treadle_splitters *steps, treadle_splitter_room *room,
                                     treadle_text_words *words);
void treadle_splitters_release(treadle_splitters *steps);
void treadle_text_words_release(treadle_text_words *words);

#endif
