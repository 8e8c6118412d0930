/* A row while it is put together: parts of one text, each of which counts or does not; and the tokens of them. */
#ifndef TREADLE_SFT_ROWS_PARTS_H
#define TREADLE_SFT_ROWS_PARTS_H

#include "sft/rows_text.h"

#include "token/tokenizer.h"

typedef enum treadle_row_counts {
  TREADLE_ROW_CONTEXT, /* nothing of it counts */
  TREADLE_ROW_ALL,     /* all of it does */
  TREADLE_ROW_ANSWER   /* what a template writes of an answer: up to its end token */
} treadle_row_counts;

typedef struct treadle_row_part {
  size_t end, id_end; /* it begins where the part before ends: in the text, in the tokens */
  treadle_row_counts counts;
} treadle_row_part;

/* A zeroed struct is ready; no part is empty. */
typedef struct treadle_row_parts {
  treadle_text_bytes text;
  TREADLE_ARRAY(treadle_row_part) items;
  bool begins; /* the special tokens that begin a text come first */
  bool ends;   /* the end token comes last, and counts */
} treadle_row_parts;

treadle_status treadle_row_parts_add(treadle_row_parts *parts, const char *text, size_t bytes,
                                     treadle_row_counts counts);
/* The row, in the source's arena: without tokens at its end that do not count. */
treadle_status treadle_row_parts_keep(treadle_row_parts *parts, const treadle_row_source *source,
                                      treadle_sft_row *row);
void treadle_row_parts_release(treadle_row_parts *parts);

#endif
