/* In which order the samples of a step are taken, mini batch by mini batch; and which rows of a mini batch share their prompts. */
#ifndef TREADLE_RL_MINI_BATCHES_H
#define TREADLE_RL_MINI_BATCHES_H

#include "base/status.h"
#include "treadle_builtin.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* places [count]: as they are, or in an order that follows from seed, step and epoch. */
treadle_status treadle_rl_mini_order(size_t count, bool shuffles, uint64_t seed, int64_t step,
                                     int64_t epoch, int64_t *places);

/* Tokens of a row's prompt: those before the first one that counts. */
size_t treadle_rl_prompt_tokens(const treadle_train_row *row);
/* treadle_train_batch.shared of a row: the tokens of its prompt where the row before it has the same one, else 0. before: NULL: there is none. */
int32_t treadle_rl_shared_tokens(const treadle_train_row *before, const treadle_train_row *row);

#endif
