/* The critic's part of a step: values before the advantages, and its update, mini batch by mini batch, in the order of the policy's. */
#include "rl/critic.h"

#include "base/alloc.h"
#include "rl/mini_batches.h"

#include <math.h>

/* ---- Values ------------------------------------------------------------------------------------------------ */

treadle_status treadle_rl_find_values(treadle_rl_workers *workers, const treadle_train_settings *settings,
                                      treadle_rl_batch *b, size_t from) {
  treadle_rl_rows rows;
  int64_t *numbers = NULL;
  treadle_status status = TREADLE_OK;
  if (!treadle_train_has_critic(settings)) return TREADLE_OK;
  TRY(treadle_rl_rows_from(b, from, &numbers, &rows));
  TRY(treadle_rl_grow_values(b, from, "values", &b->values));
  TRY(treadle_rl_call_values(workers, &rows, b->values));
  TRY(treadle_rl_call_rest(workers));
out:
  treadle_free(numbers);
  return status;
}

/* ---- The update ------------------------------------------------------------------------------------------------ */

/* Sums over mini batches that had tokens. */
typedef struct sums {
  double vf_loss, vf_clipfrac, vpred_mean, grad_norm, lr;
  int64_t taken;
} sums;

static bool has_tokens(const treadle_rl_rows *rows) {
  bool found = false;
  for (size_t i = 0; i < rows->count; i++)
    found = found || rows->batch->samples.items[rows->samples[i]].count > 0;
  return found;
}

static treadle_status take_mini_batch(const treadle_rl_critic_update *u, const treadle_rl_rows *rows,
                                      sums *s, bool *skipped_p) {
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_rl_state *state = u->state;
  treadle_status status = TREADLE_OK;
  if (!has_tokens(rows)) return TREADLE_OK;
  s->lr = treadle_schedule_lr(u->schedule, state->critic_steps);
  TRY(treadle_rl_call_update_critic(u->workers, rows, s->lr, &figures));
  if (!isfinite(figures.loss.loss))
    TRY(treadle_fail(TREADLE_REFUSED, "step %lld: the loss of the critic in a mini batch is not finite: %g",
                     (long long)state->step + 1, figures.loss.loss));
  TRY(treadle_array_push(&u->ledger->losses, figures.loss.loss));
  state->critic_steps = figures.steps;
  *skipped_p = *skipped_p || figures.skipped;
  s->vf_loss += figures.loss.vf_loss;
  s->vf_clipfrac += figures.loss.vf_clipfrac;
  s->vpred_mean += figures.loss.vpred_mean;
  s->grad_norm += figures.grad_norm;
  s->taken++;
out:
  return status;
}

static void note(treadle_rl_values *values, const sums *s) {
  const double count = (double)s->taken;
  if (!s->taken) return;
  treadle_rl_value(values, "critic/vf_loss", s->vf_loss / count);
  treadle_rl_value(values, "critic/vf_clipfrac", s->vf_clipfrac / count);
  treadle_rl_value(values, "critic/vpred_mean", s->vpred_mean / count);
  treadle_rl_value(values, "critic/grad_norm", s->grad_norm / count);
  treadle_rl_value(values, "critic/lr", s->lr);
}

treadle_status treadle_rl_update_critic(const treadle_rl_critic_update *u, bool *skipped_p) {
  const treadle_config_batches *batches = &u->settings->rl.batches;
  const size_t all = u->batch->samples.count,
               size = batches->mini_batch_samples > 0 ? (size_t)batches->mini_batch_samples : all;
  int64_t *places = treadle_alloc_array(all + 1, sizeof *places);
  sums s = {0};
  treadle_status status = TREADLE_OK;
  if (!places) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for mini batches"));
  TRY(treadle_rl_set_columns(u->batch));
  for (int64_t epoch = 0; epoch < batches->epochs; epoch++) {
    TRY(treadle_rl_mini_order(all, batches->shuffle_mini_batch, (uint64_t)u->settings->training.seed,
                              u->state->step, epoch, places));
    for (size_t first = 0; first < all; first += size) {
      const treadle_rl_rows rows = {
          .batch = u->batch, .samples = places + first, .count = all - first < size ? all - first : size};
      TRY(take_mini_batch(u, &rows, &s, skipped_p));
    }
  }
  TRY(treadle_rl_call_rest(u->workers));
  note(&u->ledger->values, &s);
out:
  treadle_free(places);
  return status;
}

/* ---- Figures --------------------------------------------------------------------------------------------------- */

double treadle_rl_explained_variance(const double *returns, const float *values, size_t count) {
  double mean = 0, mean_rest = 0, squares = 0, squares_rest = 0;
  if (count < 2) return NAN;
  for (size_t i = 0; i < count; i++) {
    mean += returns[i];
    mean_rest += returns[i] - (double)values[i];
  }
  mean /= (double)count;
  mean_rest /= (double)count;
  for (size_t i = 0; i < count; i++) {
    const double a = returns[i] - mean, b = returns[i] - (double)values[i] - mean_rest;
    squares += a * a;
    squares_rest += b * b;
  }
  return 1 - squares_rest / (double)(count - 1) / (squares / (double)(count - 1) + 1e-5);
}
