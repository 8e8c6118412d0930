/* A small critic for tests: its files, a batch to train it on, and a twin that computes in double, by plain loops that share nothing with the
 * engine. A rank may call all functions but those of the twin. */
#ifndef TREADLE_TESTS_CRITIC_H
#define TREADLE_TESTS_CRITIC_H

#include "train/loss_batch.h"

enum { CRITIC_LAYERS = 4, CRITIC_HIDDEN = 32, CRITIC_TENSORS = 64 };

/* Which tensors follow the last norm in the files. Tied: the config says so, and there is a score head. */
typedef enum critic_head {
  CRITIC_LM,
  CRITIC_SCORE,
  CRITIC_SCORE_BIAS,
  CRITIC_TWO_LABELS,
  CRITIC_BOTH,
  CRITIC_TIED
} critic_head;

/* Writes config.json and model.safetensors, fp32, into a folder. */
treadle_status critic_write(const char *folder, critic_head head);
/* treadle_model_open with a score head. */
treadle_status critic_open(const char *folder, bool zeros, treadle_model **model_p);
/* The batch of losses, with the columns values and returns. */
treadle_status critic_batch(size_t longest, treadle_batch **batch_p);

/* ---- The twin ---- */

typedef struct critic_twin {
  char names[CRITIC_TENSORS][80];
  double *weights[CRITIC_TENSORS];
  int64_t counts[CRITIC_TENSORS];
  int count;
} critic_twin;

/* The weights of the files. */
void critic_twin_open(critic_twin *twin, const char *folder);
void critic_twin_close(critic_twin *twin);
double *critic_twin_find(const critic_twin *twin, const char *name,
                         int64_t *count_p); /* NULL: it has none */
/* The head at each position of a row: to [count]. */
void critic_twin_run(const critic_twin *twin, const int32_t *ids, size_t count, double *to);
/* Values of a batch's tokens, like ids; those that do not count are 0. */
void critic_twin_values(const critic_twin *twin, const treadle_batch *batch, double *to);
/* The loss "value" of a batch. */
double critic_twin_loss(const critic_twin *twin, const treadle_batch *batch,
                        const treadle_loss_options *loss);

#endif
