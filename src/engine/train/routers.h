/* What routers have beside their weights: losses of their own, which keep experts evenly loaded, and biases, which have no gradient.
 *
 * Of a micro batch of T tokens and a layer with E experts, of which k are chosen for each token:
 *
 *   aux   aux_loss_coeff * E / (k * T^2) * the sum over experts of (how often it was chosen) * (the sum over tokens of its probability)
 *         probabilities over all experts; of sigmoid scores, each divided by their sum
 *         with seq_aux_loss: the mean over rows of the same, of the tokens of each (sequence_losses.h)
 *   z     z_loss_coeff * the mean over tokens of the squared log-sum-exp of the logits
 *
 * Micro batches are weighted by their tokens over those of the whole step, on all ranks. */
#ifndef TREADLE_TRAIN_ROUTERS_H
#define TREADLE_TRAIN_ROUTERS_H

#include "base/arena.h"
#include "nn/router_back.h"
#include "train/ranks.h"
#include "train/sequence_losses.h"
#include "train/windows.h"
#include "treadle_builtin.h"

/* windows, pass and ranks are the trainer's. */
typedef struct treadle_train_routers {
  const treadle_transformer *transformer;
  const treadle_train_windows *windows;
  treadle_pass *pass;
  const treadle_train_ranks *ranks;
  int64_t data_rank, data_ranks;
  double aux, z, bias_rate; /* coefficients; how far a step moves a bias */
  bool frozen;              /* routers have no gradients */
  bool by_sequence;         /* aux is of each row */
  double tokens;            /* of a step, on all ranks */
  int64_t
      *counts; /* [layers, experts]: choices of a step by the tokens of this coordinate; after it, of all */
  double *losses;        /* [layers] the same of losses */
  float *by_probability; /* [experts] derivatives of a layer's aux by the probabilities of a token */
  treadle_sequence_losses sequences;
} treadle_train_routers;

/* Fills all but windows, pass, ranks and coordinates. Without experts all arrays are NULL. Refused: coefficients that are no numbers from 0 on. */
treadle_status treadle_train_routers_take(const treadle_transformer *transformer,
                                          const treadle_trainer_options *options, treadle_arena *arena,
                                          treadle_train_routers *routers);
/* A step begins, of this many tokens on all ranks. */
void treadle_train_routers_begin(treadle_train_routers *routers, int64_t tokens);
/* What a layer's micro batch adds to the gradients of its logits. begin: [experts + 1] of treadle_pass_list_places; routed: of
 * its tokens. */
treadle_router_losses treadle_train_routers_of(treadle_train_routers *routers, int32_t layer,
                                               const int64_t *begin, const treadle_routed *routed);
/* Then: the same of a token. */
treadle_router_losses treadle_train_routers_at(const treadle_train_routers *routers,
                                               treadle_router_losses losses, int64_t token);
/* Of all layers and ranks: counts, losses, and their figures. Collective. */
treadle_status treadle_train_join_routers(treadle_train_routers *routers, treadle_loss *loss_p);
/* The biases of all layers of this rank, from a window of weights to where the pass reads them. */
treadle_status treadle_train_read_biases(const treadle_train_routers *routers, const void *weights);
/* After a step that was taken: by bias_rate up where an expert was chosen less often than the mean, or down. */
treadle_status treadle_train_move_biases(const treadle_train_routers *routers);

#endif
