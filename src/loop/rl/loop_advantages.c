/* From samples and their scores to advantages: old log-probabilities and those of the reference, KL in the reward, penalties of length. */
#include "rl/loop.h"

#include "base/alloc.h"
#include "rl/dapo.h"

#include <math.h>
#include <string.h>

/* ---- Old log-probabilities ----------------------------------------------------------------------------------- */

treadle_status treadle_rl_old_logprobs(treadle_rl_workers *workers, const treadle_train_settings *settings,
                                       treadle_rl_ledger *ledger, treadle_rl_batch *b) {
  treadle_rl_rows rows;
  int64_t *numbers = NULL;
  treadle_status status;
  if (!treadle_rl_check_is_due(settings, b) || treadle_rl_update_checks(settings, b))
    return treadle_rl_call_enter(workers, treadle_rl_uses_kl(settings) || treadle_train_has_critic(settings)
                                              ? TREADLE_FORWARD
                                              : TREADLE_TRAIN);
  TRY(treadle_rl_rows_from(b, 0, &numbers, &rows));
  TRY(treadle_rl_take_old(b));
  TRY(treadle_rl_call_logprobs(workers, &rows, false, b->old, b->entropies));
  TRY(treadle_rl_compare(ledger, settings, b));
out:
  treadle_free(numbers);
  return status;
}

treadle_status treadle_rl_ref_logprobs(treadle_rl_workers *workers, const treadle_train_settings *settings,
                                       treadle_rl_batch *b, size_t from) {
  treadle_rl_rows rows;
  int64_t *numbers = NULL;
  treadle_status status = TREADLE_OK;
  if (!treadle_rl_uses_kl(settings)) return TREADLE_OK;
  TRY(treadle_rl_rows_from(b, from, &numbers, &rows));
  TRY(treadle_rl_grow_values(b, from, "log-probabilities of the reference", &b->ref));
  TRY(treadle_rl_call_logprobs(workers, &rows, true, b->ref, NULL));
out:
  treadle_free(numbers);
  return status;
}

/* ---- Rewards ------------------------------------------------------------------------------------------------- */

static void punish_length(const treadle_train_settings *t, const treadle_rl_bounds *bounds,
                          treadle_rl_made *s) {
  if (!t->rl.lengths.overlong_buffer_enable) return;
  int64_t most =
      t->rl.lengths.rollout_max_tokens > 0 ? t->rl.lengths.rollout_max_tokens : bounds->response_most;
  s->reward += treadle_rl_overlong_penalty((int64_t)s->count, most, t->rl.lengths.overlong_buffer,
                                           t->rl.lengths.overlong_buffer_penalty_factor);
}

/* Token rewards: what rewards give each, the rest of the score at the last token, and what the KL takes of each. The mean KL: as verl has it, that of
 * the means of samples. */
static double place_rewards(const treadle_train_settings *t, const treadle_rl_bounds *bounds,
                            double kl_coef, treadle_rl_batch *b) {
  double means = 0;
  for (size_t i = 0; i < b->samples.count; i++) {
    treadle_rl_made *s = &b->samples.items[i];
    double sum = 0;
    punish_length(t, bounds, s);
    for (size_t k = s->first; b->scored.count && k < s->first + s->count; k++)
      b->rewards[k] += b->scored.items[k];
    if (s->count)
      b->rewards[s->first + s->count - 1] += b->scored.count ? s->reward - s->at_tokens : s->reward;
    for (size_t k = s->first; t->rl.kl.in_reward && k < s->first + s->count; k++) {
      const float old = b->old ? b->old[k] : b->rollout.items[k];
      double one = treadle_kl_value((treadle_kl_kind)t->rl.kl.penalty, (double)old, (double)b->ref[k]);
      b->rewards[k] -= kl_coef * one;
      s->reward -= kl_coef * one;
      sum += one;
    }
    if (s->count) means += sum / (double)s->count;
  }
  return b->samples.count ? means / (double)b->samples.count : 0;
}

/* The coefficient of the next step, by the KL of this one. */
void treadle_rl_steer_kl(treadle_rl_state *state, const treadle_train_settings *s, size_t samples,
                         double kl) {
  const treadle_rl_kl_controller controller = {s->rl.kl.ctrl_type != 0, s->rl.kl.target, s->rl.kl.horizon};
  state->kl_coef = treadle_rl_kl_control(&controller, state->kl_coef, kl, (int64_t)samples);
}

/* What an estimator sees of the samples. */
typedef struct seen {
  int64_t *group;
  size_t *first;
  double *scores, *of_samples;
} seen;

static void release(seen *s) {
  treadle_free(s->group);
  treadle_free(s->first);
  treadle_free(s->scores);
  treadle_free(s->of_samples);
}

static treadle_status see(const treadle_rl_batch *b, seen *s) {
  const size_t samples = b->samples.count;
  s->group = treadle_alloc_array(samples + 1, sizeof *s->group);
  s->first = treadle_alloc_array(samples + 1, sizeof *s->first);
  s->scores = treadle_alloc_array(samples + 1, sizeof *s->scores);
  s->of_samples = treadle_alloc_array(samples + 1, sizeof *s->of_samples);
  if (!s->group || !s->first || !s->scores || !s->of_samples)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for advantages of %zu samples", samples);
  for (size_t i = 0; i < samples; i++) {
    s->group[i] = b->samples.items[i].group;
    s->first[i] = b->samples.items[i].first;
    s->scores[i] = b->samples.items[i].reward;
  }
  s->first[samples] = b->ids.count; /* the tokens of samples lie one behind the other */
  return TREADLE_OK;
}

static treadle_status take_values(treadle_rl_batch *b) {
  double **const values[] = {&b->rewards, &b->advantages, &b->returns};
  const size_t tokens = b->ids.count + 1;
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    *values[i] = treadle_alloc_array(tokens, sizeof **values[i]);
    if (!*values[i])
      return treadle_fail(TREADLE_NO_MEMORY, "no memory for advantages of %zu tokens", tokens);
    memset(*values[i], 0, tokens * sizeof **values[i]);
  }
  return TREADLE_OK;
}

/* Returns as the critic's loss reads them. */
static treadle_status set_targets(treadle_rl_batch *b) {
  b->targets = treadle_rl_values_of(b);
  if (!b->targets) return treadle_fail(TREADLE_NO_MEMORY, "no memory for returns");
  for (size_t t = 0; t < b->ids.count; t++) b->targets[t] = (float)b->returns[t];
  return TREADLE_OK;
}

treadle_status treadle_rl_find_advantages(treadle_rl *rl) {
  treadle_rl_batch *b = &rl->batch;
  const treadle_train_settings *s = rl->task.settings;
  seen v = {0};
  double kl;
  treadle_status status;
  TRY(take_values(b));
  kl = place_rewards(s, &rl->bounds, rl->state.kl_coef, b);
  TRY(see(b, &v));
  const treadle_rl_scored scored = {.samples = b->samples.count,
                                    .group = v.group,
                                    .first = v.first,
                                    .token_rewards = b->rewards,
                                    .scores = v.scores,
                                    .values = b->values};
  const treadle_rl_estimator_options options = {.estimator =
                                                    (treadle_rl_estimator)s->rl.advantage.estimator,
                                                .by_std = s->rl.advantage.norm_by_std,
                                                .whiten = s->rl.advantage.whiten,
                                                .gamma = s->rl.advantage.gamma,
                                                .lam = s->rl.advantage.lam};
  TRY(treadle_rl_advantages(&options, &scored, b->advantages, b->returns, v.of_samples));
  if (s->rl.advantage.normalize) treadle_rl_normalize_advantages(&scored, b->advantages, v.of_samples);
  for (size_t i = 0; i < b->samples.count; i++) b->samples.items[i].advantage = v.of_samples[i];
  if (treadle_train_has_critic(s)) TRY(set_targets(b));
  if (s->rl.kl.in_reward) {
    treadle_rl_value(&rl->ledger.values, "actor/reward_kl_penalty", kl);
    treadle_rl_value(&rl->ledger.values, "actor/reward_kl_penalty_coeff", rl->state.kl_coef);
    treadle_rl_steer_kl(&rl->state, s, b->samples.count, kl);
  }
out:
  release(&v);
  return status;
}
