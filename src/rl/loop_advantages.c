/* From samples and their scores to advantages: old log-probabilities and those of the reference, KL in the reward, penalties of length. */
#include "rl/loop.h"

#include "base/alloc.h"
#include "rl/dapo.h"

#include <math.h>
#include <string.h>

/* All samples of the batch. */
static treadle_status all_rows(const treadle_rl_batch *b, int64_t **numbers_p, treadle_rl_rows *rows) {
  int64_t *numbers = treadle_alloc_array(b->samples.count + 1, sizeof *numbers);
  *numbers_p = numbers;
  if (!numbers) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu samples", b->samples.count);
  for (size_t i = 0; i < b->samples.count; i++) numbers[i] = (int64_t)i;
  *rows = (treadle_rl_rows){.batch = b, .samples = numbers, .count = b->samples.count};
  return TREADLE_OK;
}

/* ---- Old log-probabilities ----------------------------------------------------------------------------------- */

treadle_status treadle_rl_old_logprobs(treadle_rl *rl) {
  treadle_rl_batch *b = &rl->batch;
  treadle_rl_rows rows;
  int64_t *numbers = NULL;
  treadle_status status;
  if (!treadle_rl_check_is_due(rl) || treadle_rl_update_checks(rl))
    return treadle_rl_call_enter(rl, treadle_rl_uses_kl(rl->settings) ? TREADLE_FORWARD : TREADLE_TRAIN);
  TRY(all_rows(b, &numbers, &rows));
  TRY(treadle_rl_take_old(b));
  TRY(treadle_rl_call_logprobs(rl, &rows, false, b->old, b->entropies));
  TRY(treadle_rl_compare(rl));
out:
  treadle_free(numbers);
  return status;
}

treadle_status treadle_rl_ref_logprobs(treadle_rl *rl) {
  treadle_rl_batch *b = &rl->batch;
  treadle_rl_rows rows;
  int64_t *numbers = NULL;
  treadle_status status = TREADLE_OK;
  if (!treadle_rl_uses_kl(rl->settings)) return TREADLE_OK;
  TRY(all_rows(b, &numbers, &rows));
  b->ref = treadle_rl_values_of(b);
  if (!b->ref) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for log-probabilities of the reference"));
  TRY(treadle_rl_call_logprobs(rl, &rows, true, b->ref, NULL));
out:
  treadle_free(numbers);
  return status;
}

/* ---- Rewards ------------------------------------------------------------------------------------------------- */

static void punish_length(const treadle_rl *rl, treadle_rl_made *s) {
  const treadle_train_settings *t = rl->settings;
  if (!t->overlong_buffer_enable) return;
  int64_t most = t->rollout_max_tokens > 0 ? t->rollout_max_tokens : rl->response_most;
  s->reward += treadle_rl_overlong_penalty((int64_t)s->count, most, t->overlong_buffer,
                                           t->overlong_buffer_penalty_factor);
}

/* Token rewards: the score at the last token, and what the KL takes of each. */
static double place_rewards(treadle_rl *rl) {
  treadle_rl_batch *b = &rl->batch;
  const treadle_train_settings *t = rl->settings;
  double kl = 0;
  int64_t tokens = 0;
  for (size_t i = 0; i < b->samples.count; i++) {
    treadle_rl_made *s = &b->samples.items[i];
    punish_length(rl, s);
    if (s->count) b->rewards[s->first + s->count - 1] += s->reward;
    for (size_t k = s->first; t->use_kl_in_reward && k < s->first + s->count; k++, tokens++) {
      const float old = b->old ? b->old[k] : b->rollout.items[k];
      double one = treadle_rl_kl_value((treadle_rl_kl_kind)t->kl_penalty, (double)old, (double)b->ref[k]);
      b->rewards[k] -= rl->kl_coef * one;
      s->reward -= rl->kl_coef * one;
      kl += one;
    }
  }
  return tokens ? kl / (double)tokens : 0;
}

/* The samples' tokens one behind the other, which those of the batch need not be: some were left out. */
typedef struct packed {
  int64_t *group;
  size_t *first;
  double *rewards, *scores, *advantages, *returns, *of_samples;
} packed;

static void release(packed *p) {
  treadle_free(p->group);
  treadle_free(p->first);
  treadle_free(p->rewards);
  treadle_free(p->scores);
  treadle_free(p->advantages);
  treadle_free(p->returns);
  treadle_free(p->of_samples);
}

static treadle_status pack(const treadle_rl_batch *b, packed *p) {
  const size_t samples = b->samples.count, tokens = b->ids.count;
  size_t at = 0;
  p->group = treadle_alloc_array(samples + 1, sizeof *p->group);
  p->first = treadle_alloc_array(samples + 1, sizeof *p->first);
  p->scores = treadle_alloc_array(samples + 1, sizeof *p->scores);
  p->of_samples = treadle_alloc_array(samples + 1, sizeof *p->of_samples);
  p->rewards = treadle_alloc_array(tokens + 1, sizeof *p->rewards);
  p->advantages = treadle_alloc_array(tokens + 1, sizeof *p->advantages);
  p->returns = treadle_alloc_array(tokens + 1, sizeof *p->returns);
  if (!p->group || !p->first || !p->scores || !p->of_samples || !p->rewards || !p->advantages ||
      !p->returns)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for advantages of %zu tokens", tokens);
  for (size_t i = 0; i < samples; i++) {
    const treadle_rl_made *s = &b->samples.items[i];
    p->group[i] = s->group;
    p->first[i] = at;
    p->scores[i] = s->reward;
    if (s->count) memcpy(p->rewards + at, b->rewards + s->first, s->count * sizeof(double));
    at += s->count;
  }
  p->first[samples] = at;
  return TREADLE_OK;
}

static void unpack(treadle_rl_batch *b, const packed *p) {
  for (size_t i = 0; i < b->samples.count; i++) {
    treadle_rl_made *s = &b->samples.items[i];
    s->advantage = p->of_samples[i];
    if (!s->count) continue;
    memcpy(b->advantages + s->first, p->advantages + p->first[i], s->count * sizeof(double));
    memcpy(b->returns + s->first, p->returns + p->first[i], s->count * sizeof(double));
  }
}

treadle_status treadle_rl_find_advantages(treadle_rl *rl) {
  treadle_rl_batch *b = &rl->batch;
  const treadle_train_settings *s = rl->settings;
  const size_t tokens = b->ids.count + 1;
  packed p = {0};
  treadle_status status;
  b->rewards = treadle_alloc_array(tokens, sizeof *b->rewards);
  b->advantages = treadle_alloc_array(tokens, sizeof *b->advantages);
  b->returns = treadle_alloc_array(tokens, sizeof *b->returns);
  if (!b->rewards || !b->advantages || !b->returns)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for advantages of %zu tokens", tokens);
  memset(b->rewards, 0, tokens * sizeof *b->rewards);
  memset(b->advantages, 0, tokens * sizeof *b->advantages);
  memset(b->returns, 0, tokens * sizeof *b->returns);
  double kl = place_rewards(rl);
  TRY(pack(b, &p));
  const treadle_rl_scored scored = {.samples = b->samples.count,
                                    .group = p.group,
                                    .first = p.first,
                                    .token_rewards = p.rewards,
                                    .scores = p.scores};
  TRY(treadle_rl_advantages((treadle_rl_estimator)s->adv_estimator, s->norm_adv_by_std, s->gamma, &scored,
                            p.advantages, p.returns, p.of_samples));
  unpack(b, &p);
  if (s->use_kl_in_reward) {
    treadle_rl_value(rl, "actor/reward_kl_penalty", kl);
    treadle_rl_value(rl, "actor/reward_kl_penalty_coeff", rl->kl_coef);
    const treadle_rl_kl_controller controller = {s->kl_ctrl_type != 0, s->kl_target, s->kl_horizon};
    rl->kl_coef = treadle_rl_kl_control(&controller, rl->kl_coef, kl, (int64_t)b->samples.count);
  }
out:
  release(&p);
  return status;
}
