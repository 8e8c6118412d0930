/* Which tokens a sequence has, for penalties: those of the prompt, and how often each was generated. A zeroed struct is empty.
 *
 * A hash table with room for the tokens that occur, not for the vocabulary: a batch has many sequences. */
#ifndef TREADLE_GENERATE_TOKEN_COUNTS_H
#define TREADLE_GENERATE_TOKEN_COUNTS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct treadle_token_count {
  int32_t token; /* -1: an empty place */
  int32_t generated;
} treadle_token_count;

typedef struct treadle_token_counts {
  treadle_token_count *items; /* [capacity] in no order */
  int64_t count, capacity;    /* capacity: 0 or a power of two */
} treadle_token_counts;

/* Tokens of the prompt are there with 0 generated. */
treadle_status treadle_token_counts_add(treadle_token_counts *counts, int32_t token, bool generated);
void treadle_token_counts_release(treadle_token_counts *counts);

#endif
