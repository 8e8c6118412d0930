/* A batch with all columns that losses read, and losses of all kinds, for tests of losses. A rank may call these
 * functions. */
#ifndef TREADLE_TESTS_LOSS_BATCH_H
#define TREADLE_TESTS_LOSS_BATCH_H

#include "train/rows.h"

enum { LOSS_ROWS = 10, LOSS_LOSSES = 5, LOSS_VOCABULARY = 16 };

/* "nll", and "ppo" with all that it can do: each aggregation, entropies, KL, a cap, both clips. */
extern const treadle_loss_options loss_options[LOSS_LOSSES];
/* Micro batches of 3 rows; a temperature and entropies, if the loss takes them. */
treadle_forward_options loss_forward(const treadle_loss_options *loss);

/* Row 2 has `longest` tokens, row 5 none that counts; two share a prompt. by_token: advantages differ by token. The
 * weights are those of examples/sequence. */
treadle_status loss_batch(size_t longest, bool by_token, treadle_batch **batch_p);

#endif
