/* Calls with rows of a batch, which ranks divide, and what they answer of each. */
#ifndef TREADLE_RL_CALLS_ROWS_H
#define TREADLE_RL_CALLS_ROWS_H

#include "rl/workers.h"

/* Rows of the batch that have tokens; the others have nothing to give. */
typedef struct treadle_rl_rows_choice {
  treadle_rl_batch *batch;
  int64_t *rows; /* [count] */
  size_t count;
} treadle_rl_rows_choice;
/* The caller frees c->rows. */
treadle_status treadle_rl_choose(const treadle_rl_rows *rows, treadle_rl_rows_choice *c);

/* A call whose message ends with these columns [count] of the rows. With workers->balances c->rows are in another order afterwards, by which
 * answers find their samples. */
treadle_status treadle_rl_call_rows(treadle_rl_workers *workers, const char *method,
                                    const treadle_rl_rows_choice *c, const char *const *names,
                                    size_t count);

/* ---- loop_balance.c ---- */

/* Who takes which rows of a call. */
typedef struct treadle_rl_rows_shares {
  const char *method;
  const int64_t *lengths; /* of the rows */
  treadle_forward_options forward;
  treadle_row_range *by_rank; /* [ranks] */
} treadle_rl_rows_shares;
/* Counts tokens of a call, if somebody does, and with workers->balances puts c->rows in another order. by_rank: as the engine divides the rows as
 * they come; then, of what order they have. *forms_p: the batch has got the column micro_batch, which the caller removes. */
treadle_status treadle_rl_balance(const treadle_rl_workers *workers, const treadle_rl_rows_choice *c,
                                  const treadle_rl_rows_shares *shares, bool *forms_p);

/* A column of answers, and where its values go: each to its place in the batch; NULL: nowhere. */
typedef struct treadle_rl_answer_column {
  const char *name;
  float *values;
  int64_t *by_row; /* of a column with a number for each sample, in place of values */
  uint8_t *records; /* of one with the experts of each */
} treadle_rl_answer_column;
/* What all ranks have found: columns of `wanted`, which ends with one without a name; a rank without the first one answers nothing. Ranks with
 * equal rows may all answer, with the same values. *rest_p: what rank 0 answers behind its rows. */
treadle_status treadle_rl_take_answers(treadle_rl_workers *workers, const treadle_rl_rows_choice *c,
                                       const treadle_rl_answer_column *wanted, treadle_message *rest_p);

#endif
