#include "nn/router_back.h"

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

static void find_scores(const treadle_router *r, const treadle_row_ops *ops, const float *logits,
                        float *scores) {
  if (r->type != TREADLE_ROUTER_NOAUX_TC) {
    ops->softmax(scores, logits, r->experts);
    return;
  }
  for (int i = 0; i < r->experts; i++) scores[i] = treadle_sigmoid(logits[i]);
}

void treadle_router_back(const treadle_router *r, const treadle_row_ops *ops, const treadle_routed *routed,
                         const float *by_weight, const float *logits, float *scores, float *dlogits) {
  float by_score[TREADLE_ROUTER_MAX_CHOSEN], sum = 0;
  const bool softmax = r->type != TREADLE_ROUTER_NOAUX_TC;
  find_scores(r, ops, logits, scores);
  back_weights(r, scores, routed, by_weight, by_score);
  for (int i = 0; softmax && i < r->top_k; i++) sum = sum + by_score[i] * scores[routed[i].expert];
  for (int i = 0, next = 0; i < r->experts; i++) {
    float slope = 0;
    if (next < r->top_k && routed[next].expert == i) slope = by_score[next++];
    dlogits[i] = scores[i] * (softmax ? slope - sum : slope * (1 - scores[i]));
  }
}
