/* The loss that keeps experts evenly loaded, of each row of a micro batch by itself (Megatron's seq_aux_loss). A row may share its prompt's
 * tokens with rows beside it: a part of tokens is a prompt that several rows have, or what a row has of its own. */
#ifndef TREADLE_TRAIN_SEQUENCE_LOSSES_H
#define TREADLE_TRAIN_SEQUENCE_LOSSES_H

#include "nn/router.h"
#include "treadle_engine.h"

/* The parts of a row; -1: it has no such tokens. */
typedef struct treadle_row_parts {
  int32_t prompt, own;
} treadle_row_parts;

/* part NULL: there is no such loss. most: rows of a micro batch. */
typedef struct treadle_sequence_losses {
  int64_t experts;
  int32_t *part;         /* [tokens] of each */
  treadle_row_parts *rows; /* [most] */
  int64_t *tokens;       /* [2 * most] of each part */
  int64_t *chosen;       /* [2 * most, experts] how often */
  float *by_probability; /* [2 * most, experts] derivatives by the probabilities of a token of the part */
  int64_t count;         /* rows of the micro batch at hand */
  int32_t parts;
} treadle_sequence_losses;

/* A micro batch begins; then its rows: their shared tokens, which `brings` says to be new, and their own. */
void treadle_sequence_losses_begin(treadle_sequence_losses *losses);
void treadle_sequence_losses_add(treadle_sequence_losses *losses, treadle_row_range shared, bool brings,
                                 treadle_row_range own);
/* Of a layer: by_probability, from the choices [tokens, top]. each: aux_loss_coeff * E / k, and as the micro batch is weighted. */
void treadle_sequence_losses_find(treadle_sequence_losses *losses, const treadle_routed *routed, int64_t top,
                                  double each);

#endif
