#include "train/ppo.h"

#include "base/status.h"
#include "base/utf8.h"

#include <math.h>
#include <string.h>

enum { EXPONENT = 20 };

static double hold(double value, double least, double most) {
  return value < least ? least : value > most ? most : value;
}

/* pg, and its derivative by the log-probability. */
static double policy_loss(const treadle_ppo *l, const treadle_ppo_token *t, treadle_ppo_term *r) {
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

void treadle_ppo_of_token(const treadle_ppo *loss, const treadle_ppo_token *token,
                          treadle_ppo_term *result_p) {
  treadle_ppo_term r = {0};
  double by = policy_loss(loss, token, &r), importance = 1;
  if (loss->importance_cap > 0) {
    importance = exp(hold(token->old - token->rollout, -EXPONENT, EXPONENT));
    if (importance > loss->importance_cap) importance = loss->importance_cap;
  }
  r.pg *= importance;
  by *= importance;
  r.loss = r.pg - loss->entropy_coeff * token->entropy;
  if (loss->use_kl) {
    r.kl = treadle_kl_value(loss->kl_kind, token->logprob, token->ref);
    r.loss += loss->kl_coef * r.kl;
    by += loss->kl_coef * treadle_kl_slope(loss->kl_kind, token->logprob, token->ref);
  }
  r.loss *= token->weight;
  r.by_logprob = token->weight * by;
  r.by_entropy = -token->weight * loss->entropy_coeff;
  r.weight = token->weight;
  r.entropy = token->entropy;
  *result_p = r;
}

double treadle_ppo_weight(const treadle_ppo *loss, int64_t length, int64_t tokens, int64_t samples) {
  switch (loss->aggregation) {
  case TREADLE_PPO_TOKEN_MEAN: return 1 / (double)tokens;
  case TREADLE_PPO_SEQ_MEAN_TOKEN_SUM: return 1 / (double)samples;
  case TREADLE_PPO_SEQ_MEAN_TOKEN_MEAN: return 1 / (double)samples / (double)length;
  case TREADLE_PPO_SEQ_MEAN_TOKEN_SUM_NORM: return 1 / (double)samples / loss->norm_length;
  }
  return NAN;
}

void treadle_ppo_add(treadle_ppo_sums *sums, const treadle_ppo_term *term) {
  sums->loss += term->loss;
  sums->pg += term->weight * term->pg;
  sums->kl += term->weight * term->kl;
  sums->entropy += term->weight * term->entropy;
  sums->clipped += term->clipped;
  sums->clipped_lower += term->clipped_lower;
  sums->ppo_kl += term->ppo_kl;
}

void treadle_ppo_figures(const treadle_ppo_sums *sums, int64_t tokens, treadle_loss *loss_p) {
  const double count = tokens ? (double)tokens : 1;
  loss_p->loss = sums->loss;
  loss_p->pg_loss = sums->pg;
  loss_p->kl_loss = sums->kl;
  loss_p->entropy = sums->entropy;
  loss_p->clipfrac = sums->clipped / count;
  loss_p->clipfrac_lower = sums->clipped_lower / count;
  loss_p->ppo_kl = sums->ppo_kl / count;
}

/* ---- Names and numbers ---- */

static const char *const aggregations[] = {"token-mean", "seq-mean-token-sum", "seq-mean-token-mean",
                                           "seq-mean-token-sum-norm"};

const char *treadle_ppo_aggregation_name(treadle_ppo_aggregation aggregation) {
  return aggregations[aggregation];
}

static treadle_status find_aggregation(const char *name, treadle_ppo_aggregation *aggregation_p) {
  const size_t count = sizeof aggregations / sizeof *aggregations;
  size_t i = 0;
  if (!name) name = aggregations[0];
  while (i < count && strcmp(aggregations[i], name) != 0) i++;
  if (i == count)
    REFUSE("loss: aggregation '%s': token-mean, seq-mean-token-sum, seq-mean-token-mean or "
           "seq-mean-token-sum-norm",
           treadle_text_shown(name));
  *aggregation_p = (treadle_ppo_aggregation)i;
  return TREADLE_OK;
}

static treadle_status check_numbers(const treadle_loss_options *o) {
  const struct {
    const char *name;
    double value;
  } numbers[] = {
      {"clip_low", o->clip_low}, {"clip_high", o->clip_high}, {"importance_cap", o->importance_cap}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (!(numbers[i].value >= 0)) REFUSE("loss: %s is %g: 0 at least", numbers[i].name, numbers[i].value);
  if (!(o->clip_c >= 1))
    REFUSE("loss: clip_c is %g: 1 at least, and infinity for no second clip", o->clip_c);
  if (!isfinite(o->entropy_coeff) || !isfinite(o->kl_coef))
    REFUSE("loss: entropy_coeff is %g, kl_coef %g: finite numbers", o->entropy_coeff, o->kl_coef);
  return TREADLE_OK;
}

treadle_status treadle_ppo_read_weights(const treadle_loss_options *o, treadle_ppo *ppo_p) {
  treadle_status status;
  if (!(o->norm_length >= 0)) REFUSE("loss: norm_length is %g: 0 at least", o->norm_length);
  if (isinf(o->norm_length)) REFUSE("loss: norm_length is %g: a finite number", o->norm_length);
  TRY(find_aggregation(o->aggregation, &ppo_p->aggregation));
  if (ppo_p->aggregation == TREADLE_PPO_SEQ_MEAN_TOKEN_SUM_NORM && !(o->norm_length > 0))
    REFUSE("loss: seq-mean-token-sum-norm needs a norm_length above 0, not %g", o->norm_length);
  ppo_p->norm_length = o->norm_length;
out:
  return status;
}

treadle_status treadle_ppo_read(const treadle_loss_options *options, treadle_ppo *ppo_p) {
  treadle_ppo ppo = {.clip_low = options->clip_low,
                     .clip_high = options->clip_high,
                     .clip_c = options->clip_c,
                     .entropy_coeff = options->entropy_coeff,
                     .use_kl = options->kl != NULL,
                     .kl_coef = options->kl_coef,
                     .importance_cap = options->importance_cap};
  treadle_status status;
  TRY(check_numbers(options));
  TRY(treadle_ppo_read_weights(options, &ppo));
  if (options->kl && !treadle_kl_find(options->kl, &ppo.kl_kind))
    REFUSE("loss: kl '%s': kl, k1, abs, mse, k2, low_var_kl or k3, each also with a + behind it",
           treadle_text_shown(options->kl));
  *ppo_p = ppo;
out:
  return status;
}
