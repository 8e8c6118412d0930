/* What becomes of a batch of rows: what the files of gradients share.
 *
 *   gradients.c         rows through the layers, and their mean loss
 *   gradients_policy.c  log-probabilities of a policy's tokens, and gradients of a loss of theirs
 *   gradients_rows.c    what rows may be, and how they are divided: micro batches, and each replica's share of these
 *   gradients_fill.c    a micro batch, put together
 *   gradients_items.c   micro batches forward and backward through the layers of this rank, in the order of the pipeline */
#ifndef TREADLE_TRAIN_GRADIENTS_H
#define TREADLE_TRAIN_GRADIENTS_H

#include "train/trainer.h"

/* A step: the rows of this replica, in micro batches. */
typedef struct treadle_train_work {
  treadle_trainer *t;
  const treadle_train_row *rows;
  size_t count, micro_batch_size;
  int64_t max_tokens;
  int32_t micro_batches, most_batches; /* of this rank; of the rank with the most */
  bool backward;
  float scale;
  double nll;
  const int32_t *shared;        /* [count] as in the batch; NULL: nothing is */
  size_t from;                  /* the first of these rows in the batch */
  const treadle_policy *policy; /* NULL: the loss is the mean of -log p */
  size_t *numbers;              /* [rows of the batch + 1] of the first counted token of each */
  float *logprobs, *entropies;  /* [counted tokens of the batch] */
} treadle_train_work;

/* ---- gradients_rows.c ---- */

/* Tokens of a row that count. */
int64_t treadle_train_counted(const treadle_train_row *row);
/* The rows of a micro batch that begins at `first`. */
size_t treadle_train_rows_from(const treadle_train_work *w, size_t first);
/* Where micro batch `number` begins. */
size_t treadle_train_first_of(const treadle_train_work *w, int64_t number);
/* Checks all rows; *tokens_p: how many tokens count. */
treadle_status treadle_train_check_rows(const treadle_train_work *w, int64_t *tokens_p);
/* Then, of a policy: the number of the first counted token of each row. */
void treadle_train_number_tokens(treadle_train_work *w);
/* And then: this replica's rows, whole micro batches that follow each other. */
treadle_status treadle_train_take_share(treadle_train_work *w);

/* ---- gradients_fill.c ---- */

/* Rows side by side, in the trainer's buffers. */
treadle_train_step treadle_train_micro_batch(const treadle_train_work *w, int32_t micro_batch);

/* ---- gradients_items.c ---- */

/* All micro batches of this rank. Collective; a failure is told the others, who fail, too. */
treadle_status treadle_train_run_step(treadle_train_work *w);

/* ---- gradients.c ---- */

treadle_train_work treadle_train_work_of(treadle_trainer *t, const treadle_train_batch *batch,
                                         bool backward);
/* But for the rows themselves. The same on all ranks. */
treadle_status treadle_train_check_work(const treadle_train_work *w);
/* Rows through the layers; *tokens_p counts. Collective. */
treadle_status treadle_train_run(treadle_train_work *w, int64_t *tokens_p);
/* Does this rank say what its replica has found? One of the last stage does. */
bool treadle_train_speaks(const treadle_trainer *t);

#endif
