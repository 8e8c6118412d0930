#include "rl/loss.h"

#include <math.h>

enum { EXPONENT = 20 };

static double hold(double value, double least, double most) {
  return value < least ? least : value > most ? most : value;
}

/* pg, and its derivative by the log-probability. */
static double policy_loss(const treadle_rl_loss *l, const treadle_rl_token *t, treadle_rl_token_loss *r) {
  const double difference = t->logprob - t->old, held = hold(difference, -EXPONENT, EXPONENT);
  const double ratio = exp(held), a = t->advantage;
  const double slope = held == difference ? -a * ratio : 0;
  const double plain = -a * ratio, clipped = -a * hold(ratio, 1 - l->clip_low, 1 + l->clip_high);
  r->ppo_kl = -held;
  r->clipped = clipped > plain;
  r->pg = r->clipped ? clipped : plain;
  double by = r->clipped ? 0 : slope; /* where it is clipped, nothing moves it */
  r->clipped_lower = a < 0 && r->pg > -a * l->clip_c;
  if (r->clipped_lower) {
    r->pg = -a * l->clip_c;
    by = 0;
  }
  return by;
}

void treadle_rl_token_loss_of(const treadle_rl_loss *loss, const treadle_rl_token *token,
                              treadle_rl_token_loss *result_p) {
  treadle_rl_token_loss r = {0};
  double by = policy_loss(loss, token, &r), importance = 1;
  if (loss->importance_cap > 0) {
    importance = exp(hold(token->old - token->rollout, -EXPONENT, EXPONENT));
    if (importance > loss->importance_cap) importance = loss->importance_cap;
  }
  r.pg *= importance;
  by *= importance;
  r.loss = r.pg - loss->entropy_coeff * token->entropy;
  if (loss->use_kl) {
    r.kl = treadle_rl_kl_value(loss->kl_kind, token->logprob, token->ref);
    r.loss += loss->kl_coef * r.kl;
    by += loss->kl_coef * treadle_rl_kl_slope(loss->kl_kind, token->logprob, token->ref);
  }
  r.loss *= token->weight;
  r.by_logprob = token->weight * by;
  r.by_entropy = -token->weight * loss->entropy_coeff;
  *result_p = r;
}

double treadle_rl_token_weight(const treadle_rl_loss *loss, int64_t length, int64_t tokens,
                               int64_t samples) {
  switch (loss->aggregation) {
  case TREADLE_RL_TOKEN_MEAN: return 1 / (double)tokens;
  case TREADLE_RL_SEQ_MEAN_TOKEN_SUM: return 1 / (double)samples;
  case TREADLE_RL_SEQ_MEAN_TOKEN_MEAN: return 1 / (double)samples / (double)length;
  case TREADLE_RL_SEQ_MEAN_TOKEN_SUM_NORM: return 1 / (double)samples / loss->norm_length;
  }
  return NAN;
}

void treadle_rl_batch_loss(const treadle_rl_loss *loss, const treadle_rl_token *tokens, size_t count,
                           treadle_rl_batch_figures *figures_p) {
  treadle_rl_batch_figures f = {0};
  for (size_t i = 0; i < count; i++) {
    treadle_rl_token_loss one;
    treadle_rl_token_loss_of(loss, &tokens[i], &one);
    f.loss += one.loss;
    f.pg_loss += tokens[i].weight * one.pg;
    f.kl_loss += tokens[i].weight * one.kl;
    f.entropy += tokens[i].weight * tokens[i].entropy;
    f.clipfrac += one.clipped;
    f.clipfrac_lower += one.clipped_lower;
    f.ppo_kl += one.ppo_kl;
  }
  if (count) {
    f.clipfrac /= (double)count;
    f.clipfrac_lower /= (double)count;
    f.ppo_kl /= (double)count;
  }
  *figures_p = f;
}
