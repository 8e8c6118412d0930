/* Backward of routing (nn/router.h): from what the loss says of the weights of a token's experts to its logits. Which experts were chosen
 * has no gradient, nor has the bias. */
#ifndef TREADLE_NN_ROUTER_BACK_H
#define TREADLE_NN_ROUTER_BACK_H

#include "nn/router.h"

/* Losses of the router itself, as they are of one token. */
typedef struct treadle_router_losses {
  const float *
      by_probability; /* [experts] derivatives by the probabilities: the scores, or sigmoids over their sum; NULL: none */
  float z; /* of the squared log-sum-exp of the logits; 0: none */
} treadle_router_losses;

/* A token: its experts, and the derivatives of the loss by their weights, [top_k]. */
typedef struct treadle_router_token {
  const treadle_routed *routed;
  const float *by_weight;
  treadle_router_losses losses;
} treadle_router_token;

/* logits [experts] become the derivatives by them. scores: room for 2 * experts values. Returns what the losses come to.
 *
 *   w = scale * p, or scale * p / S where weights are renormalised, S the sum of the chosen p (noaux_tc: + 1e-20)
 *   soft-max: dlogit = p * (dp - sum of all dp * p)    sigmoid: dlogit = dp * p * (1 - p)
 *
 * Sums are made in the order of the experts, in fp32. */
double treadle_router_back(const treadle_router *router, const treadle_row_ops *ops,
                           const treadle_router_token *token, float *logits, float *scores);

#endif
