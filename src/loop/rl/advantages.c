#include "rl/advantages.h"

#include "base/alloc.h"
#include "rl/statistics.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct group_sums {
  double sum, mean, deviation;
  int64_t count;
} group_sums;

/* Squares of fp32's range are finite in a double, so that each deviation is one: rewards of 1e300 would all have advantage 0. */
static treadle_status check(const treadle_rl_scored *s) {
  for (size_t i = 0; i < s->samples; i++)
    if (!(fabs(s->scores[i]) <= (double)FLT_MAX))
      REFUSE("sample %zu: its reward is %g, and must be within fp32's range, %g", i, s->scores[i],
             (double)FLT_MAX);
  for (size_t i = 0; s->values && i < s->samples; i++)
    for (size_t t = s->first[i]; t < s->first[i + 1]; t++)
      if (!isfinite(s->values[t]))
        REFUSE("sample %zu: the value before its token %zu is %g, and must be finite", i, t - s->first[i],
               (double)s->values[t]);
  return TREADLE_OK;
}

/* By number of the group; the caller frees. */
static treadle_status sum_groups(const treadle_rl_scored *s, group_sums **groups_p) {
  int64_t most = 0;
  group_sums *g;
  for (size_t i = 0; i < s->samples; i++) most = s->group[i] > most ? s->group[i] : most;
  *groups_p = g = treadle_alloc_array((size_t)most + 1, sizeof *g);
  if (!g) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld groups", (long long)most + 1);
  memset(g, 0, ((size_t)most + 1) * sizeof *g);
  for (size_t i = 0; i < s->samples; i++) {
    g[s->group[i]].sum += s->scores[i];
    g[s->group[i]].count++;
  }
  for (int64_t k = 0; k <= most; k++) g[k].mean = g[k].count ? g[k].sum / (double)g[k].count : 0;
  for (size_t i = 0; i < s->samples; i++) {
    double d = s->scores[i] - g[s->group[i]].mean;
    g[s->group[i]].deviation += d * d;
  }
  for (int64_t k = 0; k <= most; k++)
    g[k].deviation = g[k].count > 1 ? sqrt(g[k].deviation / (double)(g[k].count - 1)) : 1;
  return TREADLE_OK;
}

static double advantage_of(treadle_rl_estimator estimator, bool by_std, const group_sums *g, double score) {
  const double mean = g->count > 1 ? g->mean : 0;
  if (estimator == TREADLE_RL_RLOO)
    return g->count > 1 ? score - (g->sum - score) / (double)(g->count - 1) : score;
  if (estimator == TREADLE_RL_REINFORCE_PLUS_PLUS_BASELINE) return score - g->mean;
  return by_std ? (score - mean) / (g->deviation + 1e-6) : score - mean;
}

static treadle_status by_group(treadle_rl_estimator estimator, bool by_std, const treadle_rl_scored *s,
                               double *advantages, double *of_samples) {
  group_sums *groups = NULL;
  treadle_status status;
  TRY(sum_groups(s, &groups));
  for (size_t i = 0; i < s->samples; i++) {
    of_samples[i] = advantage_of(estimator, by_std, &groups[s->group[i]], s->scores[i]);
    for (size_t t = s->first[i]; t < s->first[i + 1]; t++) advantages[t] = of_samples[i];
  }
out:
  treadle_free(groups);
  return status;
}

static void discount(const treadle_rl_scored *s, double gamma, double *advantages) {
  for (size_t i = 0; i < s->samples; i++) {
    double running = 0;
    for (size_t t = s->first[i + 1]; t-- > s->first[i];) {
      running = s->token_rewards[t] + gamma * running;
      advantages[t] = running;
    }
  }
}

/* The next value and advantage of a sample's last token are 0. */
static void estimate(const treadle_rl_estimator_options *o, const treadle_rl_scored *s, double *advantages,
                     double *returns) {
  for (size_t i = 0; i < s->samples; i++) {
    double next_value = 0, running = 0;
    for (size_t t = s->first[i + 1]; t-- > s->first[i];) {
      const double value = (double)s->values[t];
      running = s->token_rewards[t] + o->gamma * next_value - value + o->gamma * o->lam * running;
      next_value = value;
      advantages[t] = running;
      returns[t] = running + value;
    }
  }
}

static void take_means(const treadle_rl_scored *s, const double *advantages, double *of_samples) {
  for (size_t i = 0; i < s->samples; i++) {
    double sum = 0;
    for (size_t t = s->first[i]; t < s->first[i + 1]; t++) sum += advantages[t];
    of_samples[i] = s->first[i + 1] > s->first[i] ? sum / (double)(s->first[i + 1] - s->first[i]) : 0;
  }
}

static treadle_status whiten(const treadle_rl_scored *s, double *advantages, double *of_samples) {
  treadle_status status;
  TRY(treadle_rl_whiten(advantages, s->first[s->samples]));
  take_means(s, advantages, of_samples);
out:
  return status;
}

void treadle_rl_normalize_advantages(const treadle_rl_scored *s, double *advantages, double *of_samples) {
  const size_t tokens = s->first[s->samples];
  double sum = 0, squares = 0;
  for (size_t t = 0; t < tokens; t++) sum += advantages[t];
  const double mean = tokens ? sum / (double)tokens : 0;
  for (size_t t = 0; t < tokens; t++) squares += (advantages[t] - mean) * (advantages[t] - mean);
  const double deviation = tokens ? sqrt(squares / (double)tokens) : 0;
  for (size_t t = 0; t < tokens; t++) advantages[t] = (advantages[t] - mean) / (deviation + 1e-5);
  take_means(s, advantages, of_samples);
}

static bool is_whitened(const treadle_rl_estimator_options *o) {
  return o->estimator == TREADLE_RL_GAE ? o->whiten
                                        : o->estimator == TREADLE_RL_REINFORCE_PLUS_PLUS ||
                                              o->estimator == TREADLE_RL_REINFORCE_PLUS_PLUS_BASELINE;
}

treadle_status treadle_rl_advantages(const treadle_rl_estimator_options *options,
                                     const treadle_rl_scored *scored, double *advantages, double *returns,
                                     double *of_samples) {
  const size_t tokens = scored->first[scored->samples];
  const bool is_gae = options->estimator == TREADLE_RL_GAE;
  treadle_status status;
  TRY(check(scored));
  if (is_gae)
    estimate(options, scored, advantages, returns);
  else if (options->estimator == TREADLE_RL_REINFORCE_PLUS_PLUS)
    discount(scored, options->gamma, advantages);
  else
    TRY(by_group(options->estimator, options->by_std, scored, advantages, of_samples));
  if (tokens && !is_gae) memcpy(returns, advantages, tokens * sizeof *returns);
  if (is_whitened(options))
    TRY(whiten(scored, advantages, of_samples));
  else if (is_gae)
    take_means(scored, advantages, of_samples);
out:
  return status;
}
