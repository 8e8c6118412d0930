#include "nn/router_back.h"

#include <math.h>
#include <string.h>

/* Derivatives by the scores of the chosen experts, from those by their weights. */
static void back_weights(const treadle_router *r, const float *scores, const treadle_routed *routed,
                         const float *by_weight, float *by_score) {
  float sum = 0, given = 0;
  for (int i = 0; i < r->top_k; i++) sum = sum + scores[routed[i].expert];
  if (r->type == TREADLE_ROUTER_NOAUX_TC) sum = sum + 1e-20f;
  for (int i = 0; i < r->top_k; i++) given = given + by_weight[i] * (scores[routed[i].expert] / sum);
  for (int i = 0; i < r->top_k; i++)
    by_score[i] = r->renormalised ? r->scale * ((by_weight[i] - given) / sum) : r->scale * by_weight[i];
}

/* Derivatives by the scores of all experts. */
static void spread(const treadle_router *r, const treadle_routed *routed, const float *by_score,
                   float *all) {
  memset(all, 0, (size_t)r->experts * sizeof *all);
  for (int i = 0; i < r->top_k; i++) all[routed[i].expert] = by_score[i];
}

/* Adds those of the loss of probabilities, and returns it. Sigmoids become probabilities by their sum. */
static double add_probabilities(const treadle_router *r, const float *by, const float *scores, float *all) {
  const bool softmax = r->type != TREADLE_ROUTER_NOAUX_TC;
  float sum = 0;
  double loss = 0;
  for (int i = 0; !softmax && i < r->experts; i++) sum = sum + scores[i];
  if (softmax) sum = 1;
  for (int i = 0; i < r->experts; i++) loss += (double)by[i] * (double)(scores[i] / sum);
  for (int i = 0; i < r->experts; i++) all[i] = all[i] + (softmax ? by[i] : (by[i] - (float)loss) / sum);
  return loss;
}

/* From derivatives by scores to those by logits, in place. */
static void back_scores(const treadle_router *r, const float *scores, float *all) {
  const bool softmax = r->type != TREADLE_ROUTER_NOAUX_TC;
  float sum = 0;
  for (int i = 0; softmax && i < r->experts; i++) sum = sum + all[i] * scores[i];
  for (int i = 0; i < r->experts; i++)
    all[i] = scores[i] * (softmax ? all[i] - sum : all[i] * (1 - scores[i]));
}

/* Adds the derivatives of z * lse^2, and returns that. Scores become the softmax of the logits, if they are not. */
static double add_z(const treadle_router *r, const treadle_row_ops *ops, float z, const float *logits,
                    float *scores, float *all) {
  float largest;
  double sum;
  ops->sum_exp(logits, r->experts, 1, &largest, &sum);
  const double lse = (double)largest + log(sum);
  if (r->type == TREADLE_ROUTER_NOAUX_TC) ops->softmax(scores, logits, r->experts);
  for (int i = 0; i < r->experts; i++) all[i] = all[i] + (float)(2 * (double)z * lse) * scores[i];
  return (double)z * lse * lse;
}

double treadle_router_back(const treadle_router *r, const treadle_row_ops *ops,
                           const treadle_router_token *token, float *logits, float *scores) {
  float by_score[TREADLE_ROUTER_MAX_CHOSEN], *all = scores + r->experts;
  const treadle_router_losses *losses = &token->losses;
  double loss = 0;
  treadle_router_score(r, ops, logits, scores);
  back_weights(r, scores, token->routed, token->by_weight, by_score);
  spread(r, token->routed, by_score, all);
  if (losses->by_probability) loss += add_probabilities(r, losses->by_probability, scores, all);
  back_scores(r, scores, all);
  if (losses->z > 0) loss += add_z(r, ops, losses->z, logits, scores, all);
  memcpy(logits, all, (size_t)r->experts * sizeof *all);
  return loss;
}
