/* Rows of literals as a batch to train on, and what a trainer gave for their tokens. A rank may call these functions. */
#ifndef TREADLE_TESTS_ROWS_H
#define TREADLE_TESTS_ROWS_H

#include "treadle_builtin.h"

typedef struct rows_row {
  const int32_t *ids;  /* [count] */
  const uint8_t *mask; /* [count]; NULL: the batch has no mask */
  size_t count;
  size_t prompt; /* the first of them, which go into prompt_ids */
} rows_row;

/* A batch with the columns ids, mask and, if a row has a prompt, prompt_ids. */
treadle_status rows_batch(const rows_row *rows, size_t count, treadle_batch **batch_p);
/* Adds a column like ids; values: one behind the other, NULL: zeros. */
treadle_status rows_add(treadle_batch *batch, const char *name, treadle_column_type type,
                        const void *values);
/* Adds a column of fp32 zeros like the ids of another batch. */
treadle_status rows_add_like(treadle_batch *batch, const treadle_batch *other, const char *name);
/* Adds a column fp64 of one value a row. */
treadle_status rows_add_reals(treadle_batch *batch, const char *name, const double *values);
/* A batch of as many rows, without columns. */
treadle_status rows_out(const treadle_batch *batch, treadle_batch **out_p);

/* The values of `out` of all tokens that count, one behind the other. 0: out has no such column. */
size_t rows_counted(const treadle_batch *batch, const treadle_batch *out, const char *name, float *values);
/* treadle_trainer_logprobs, and its values as above; entropies may be NULL. *count_p: of values, 0 on ranks that are
 * not given them; may be NULL. */
treadle_status rows_logprobs(treadle_trainer *trainer, const treadle_batch *batch,
                             const treadle_forward_options *forward, const void *weights, float *logprobs,
                             float *entropies, size_t *count_p);

#endif
