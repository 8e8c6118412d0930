/* Batches of prompts and their answers, for tests of generating. */
#ifndef TREADLE_TESTS_PROMPTS_H
#define TREADLE_TESTS_PROMPTS_H

#include "base/random.h"
#include "treadle_builtin.h"

enum { PROMPTS_VOCABULARY = 203, PROMPTS_LONGEST = 20 }; /* of the golden models */

/* Rows of 1 to PROMPTS_LONGEST ids, with a column seed or without. */
treadle_batch *prompts_draw(treadle_random *random, int64_t rows, bool seeds);
/* A batch with one column, whose struct_size is filled in. */
treadle_batch *prompts_of(int64_t rows, treadle_column column);
/* The ids of row `row` in a column of ragged int32. */
const int32_t *prompts_ids(const treadle_batch *batch, const char *name, int64_t row, int64_t *count_p);

/* The first column in which `own` has other bits than rows `first` on of `all`: other names, or values. NULL: none. version is passed
 * over. Any thread may call it. */
const char *prompts_differ(const treadle_batch *own, const treadle_batch *all, int64_t first);

#endif
