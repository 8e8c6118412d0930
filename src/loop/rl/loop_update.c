/* Mini batches: which samples they have, what their losses come to. */
#include "rl/loop.h"

#include "base/alloc.h"
#include "rl/coordinate_tokens.h"
#include "rl/mini_batches.h"

#include <math.h>
#include <string.h>

treadle_loss_options treadle_rl_loss_of(const treadle_train_settings *s, const treadle_rl_bounds *bounds,
                                        double kl_coef) {
  return (treadle_loss_options){
      .struct_size = sizeof(treadle_loss_options),
      .name = "ppo",
      .clip_low = s->rl.loss.clip_ratio_low,
      .clip_high = s->rl.loss.clip_ratio_high,
      .clip_c = s->rl.loss.clip_ratio_c,
      .aggregation = treadle_ppo_aggregation_name((treadle_ppo_aggregation)s->rl.loss.agg_mode),
      .norm_length = (double)bounds->response_most,
      .entropy_coeff = s->rl.loss.entropy_coeff,
      .kl = s->rl.kl.in_loss ? treadle_kl_name((treadle_kl_kind)s->rl.kl.penalty) : NULL,
      .kl_coef = kl_coef,
      .importance_cap =
          s->actor.exact || !s->rl.logprobs.rollout_is ? 0 : s->rl.logprobs.rollout_is_threshold};
}

/* A mini batch on its way. */
typedef struct mini {
  const treadle_rl_task *task;
  const treadle_lr_schedule *schedule;
  treadle_rl_workers *workers;
  treadle_rl_batch *batch;
  treadle_rl_state *state;
  treadle_rl_ledger *ledger;
  treadle_rl_update update;
  float *logprobs, *entropies;
  treadle_rl_mini_result sums; /* of those that had tokens */
  int64_t taken;               /* how many these are */
  treadle_rl_tokens tokens;    /* of the first epoch */
  double kl;                   /* the sum of their mean KLs */
} mini;

/* Are there samples with tokens? */
static bool has_tokens(const mini *m) {
  bool found = false;
  for (size_t i = 0; i < m->update.rows.count; i++)
    found = found || m->batch->samples.items[m->update.rows.samples[i]].count > 0;
  return found;
}

/* Of the means of samples, as the KL in rewards has it: it does not depend on how losses are added up. */
static double mean_kl(const mini *m) {
  const treadle_rl_batch *b = m->batch;
  const treadle_kl_kind kind = (treadle_kl_kind)m->task->settings->rl.kl.penalty;
  double means = 0;
  for (size_t i = 0; i < m->update.rows.count; i++) {
    const treadle_rl_made *s = &b->samples.items[m->update.rows.samples[i]];
    double sum = 0;
    for (size_t t = s->first; t < s->first + s->count; t++)
      sum += treadle_kl_value(kind, (double)m->logprobs[t], (double)b->ref[t]);
    if (s->count) means += sum / (double)s->count;
  }
  return means / (double)m->update.rows.count;
}

/* The mean ratio of no sample is above the limit, so that of no micro batch is: RLinf drops those. */
static treadle_status check_ratios(const mini *m) {
  const treadle_rl_batch *b = m->batch;
  const double most = m->task->settings->rl.loss.early_stop_imp_ratio;
  for (size_t i = 0; most > 0 && i < m->update.rows.count; i++) {
    const treadle_rl_made *s = &b->samples.items[m->update.rows.samples[i]];
    double sum = 0;
    for (size_t t = s->first; t < s->first + s->count; t++)
      sum += exp((double)m->logprobs[t] - (double)(b->old ? b->old[t] : b->rollout.items[t]));
    if (s->count && sum / (double)s->count > most)
      REFUSE("step %lld: a sample of a mini batch has a mean ratio of %g, more than %s, %g; RLinf drops a "
             "micro "
             "batch with such a mean, which is not done here: smaller steps, or a higher limit, or 0",
             (long long)m->state->step + 1, sum / (double)s->count,
             TREADLE_RL_PLACE(m->task, rl.loss.early_stop_imp_ratio), most);
  }
  return TREADLE_OK;
}

/* Loads are those of the mini batch where they are farthest from the mean. */
static void add_experts(treadle_rl_mini_result *sums, const treadle_loss *f) {
  sums->aux_loss += f->aux_loss;
  if (f->expert_load_max > sums->load_max) {
    if (sums->load_max == 0) sums->load_min = f->expert_load_min;
    sums->load_max = f->expert_load_max;
  }
  if (f->expert_load_min < sums->load_min) sums->load_min = f->expert_load_min;
}

static treadle_status take_mini_batch(mini *m, treadle_rl_mini_result *last_p, bool *skipped_p) {
  treadle_rl_mini_result *sums = &m->sums;
  treadle_optimizer_figures result = TREADLE_INIT(treadle_optimizer_figures);
  treadle_loss f;
  treadle_status status;
  if (!has_tokens(m)) return TREADLE_OK; /* empty responses alone */
  m->update.step.lr = treadle_schedule_lr(m->schedule, m->state->optimizer_steps);
  TRY(treadle_rl_call_update(m->workers, &m->update, &result));
  f = result.loss;
  TRY(check_ratios(m));
  if (!isfinite(f.loss))
    TRY(treadle_fail(TREADLE_REFUSED, "step %lld: the loss of a mini batch is not finite: %g",
                     (long long)m->state->step + 1, f.loss));
  TRY(treadle_array_push(&m->ledger->losses, f.loss));
  m->state->optimizer_steps = result.steps;
  *skipped_p = *skipped_p || result.skipped;
  *last_p = (treadle_rl_mini_result){
      f.loss,   f.pg_loss,        f.kl_loss,         f.entropy,  f.clipfrac,        f.clipfrac_lower,
      f.ppo_kl, result.grad_norm, m->update.step.lr, f.aux_loss, f.expert_load_max, f.expert_load_min};
  add_experts(sums, &f);
  sums->loss += f.loss;
  sums->pg_loss += f.pg_loss;
  sums->kl_loss += f.kl_loss;
  sums->entropy += f.entropy;
  sums->clipfrac += f.clipfrac;
  sums->clipfrac_lower += f.clipfrac_lower;
  sums->ppo_kl += f.ppo_kl;
  sums->grad_norm += result.grad_norm;
  sums->lr = m->update.step.lr;
  if (m->task->settings->rl.kl.in_loss) m->kl += mean_kl(m);
  m->taken++;
out:
  return status;
}

/* Means over the mini batches. Where there was none, with empty responses alone, there is nothing to say. */
static void note(const mini *m) {
  const treadle_rl_mini_result *sums = &m->sums;
  const double count = (double)m->taken;
  if (!m->taken) return;
  treadle_rl_value(&m->ledger->values, "actor/loss", sums->loss / count);
  treadle_rl_value(&m->ledger->values, "actor/pg_loss", sums->pg_loss / count);
  treadle_rl_value(&m->ledger->values, "actor/pg_clipfrac", sums->clipfrac / count);
  treadle_rl_value(&m->ledger->values, "actor/pg_clipfrac_lower", sums->clipfrac_lower / count);
  treadle_rl_value(&m->ledger->values, "actor/ppo_kl", sums->ppo_kl / count);
  if (m->task->settings->rl.kl.in_loss) {
    treadle_rl_value(&m->ledger->values, "actor/kl_loss", sums->kl_loss / count);
    treadle_rl_value(&m->ledger->values, "actor/kl_coef", m->state->kl_coef);
  }
  if (m->update.entropies) treadle_rl_value(&m->ledger->values, "actor/entropy", sums->entropy / count);
  treadle_rl_value(&m->ledger->values, "actor/grad_norm", sums->grad_norm / count);
  treadle_rl_value(&m->ledger->values, "actor/lr", sums->lr);
  if (sums->load_max > 0) {
    treadle_rl_value(&m->ledger->values, "actor/aux_loss", sums->aux_loss / count);
    treadle_rl_value(&m->ledger->values, "actor/expert_load/max_over_mean", sums->load_max);
    treadle_rl_value(&m->ledger->values, "actor/expert_load/min_over_mean", sums->load_min);
  }
  treadle_rl_tokens_values(&m->tokens, &m->ledger->values);
}

static treadle_status take_memory(mini *m, size_t tokens) {
  m->logprobs = treadle_alloc_array(tokens + 1, sizeof *m->logprobs);
  m->entropies = treadle_alloc_array(tokens + 1, sizeof *m->entropies);
  if (m->logprobs && m->entropies) return TREADLE_OK;
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for mini batches of %zu tokens", tokens);
}

/* Behind the first mini batch. From then on entropies are those that it has found. */
static treadle_status check(mini *m) {
  treadle_status status = TREADLE_OK;
  if (!treadle_rl_check_is_due(m->task->settings, m->batch) ||
      !treadle_rl_update_checks(m->task->settings, m->batch))
    return TREADLE_OK;
  TRY(treadle_rl_compare_update(m->ledger, m->task->settings, m->batch, m->logprobs, m->entropies));
  if (m->task->settings->rl.loss.entropy_coeff == 0) m->update.entropies = NULL;
  m->update.differing = NULL;
out:
  return status;
}

static treadle_status run_all(mini *m, treadle_rl_mini_result *last_p, bool *skipped_p) {
  treadle_rl_batch *b = m->batch;
  const treadle_train_settings *s = m->task->settings;
  const int64_t size =
      s->rl.batches.mini_batch_samples > 0 ? s->rl.batches.mini_batch_samples : (int64_t)b->samples.count;
  int64_t *places = treadle_alloc_array(b->samples.count + 1, sizeof *places), number = 0;
  treadle_status status;
  if (!places) return treadle_fail(TREADLE_NO_MEMORY, "no memory for mini batches");
  for (int64_t epoch = 0; epoch < s->rl.batches.epochs; epoch++) {
    TRY(treadle_rl_mini_order(b->samples.count, s->rl.batches.shuffle_mini_batch,
                              (uint64_t)s->training.seed, m->state->step, epoch, places));
    m->workers->tokens = epoch == 0 ? &m->tokens : NULL;
    for (size_t first = 0; first < b->samples.count; first += (size_t)size, number++) {
      size_t count = b->samples.count - first < (size_t)size ? b->samples.count - first : (size_t)size;
      m->update.rows = (treadle_rl_rows){.batch = b, .samples = places + first, .count = count};
      for (size_t i = 0; epoch == 0 && i < count; i++)
        b->samples.items[places[first + i]].mini_batch = number;
      TRY(take_mini_batch(m, last_p, skipped_p));
      if (number == 0) TRY(check(m));
    }
  }
  note(m);
  if (s->rl.kl.in_loss && m->taken)
    treadle_rl_steer_kl(m->state, s, b->samples.count, m->kl / (double)m->taken);
out:
  treadle_free(places);
  return status;
}

/* Of all samples of the step, added up as their losses are. */
static double mean_entropy(const treadle_train_settings *settings, const treadle_rl_bounds *bounds,
                           const treadle_rl_batch *b) {
  const treadle_ppo loss = {.aggregation = (treadle_ppo_aggregation)settings->rl.loss.agg_mode,
                            .norm_length = (double)bounds->response_most};
  int64_t tokens = 0, samples = 0;
  double sum = 0;
  for (size_t i = 0; i < b->samples.count; i++) {
    tokens += (int64_t)b->samples.items[i].count;
    samples += b->samples.items[i].count > 0;
  }
  for (size_t i = 0; i < b->samples.count; i++) {
    const treadle_rl_made *s = &b->samples.items[i];
    double weight = s->count ? treadle_ppo_weight(&loss, (int64_t)s->count, tokens, samples) : 0;
    for (size_t t = s->first; t < s->first + s->count; t++) sum += weight * (double)b->entropies[t];
  }
  return sum;
}

/* What the update has found stays with the batch, for its dump: log-probabilities, and entropies that actor/entropy is made of. */
static void keep(mini *m) {
  treadle_rl_batch *b = m->batch;
  b->updated = m->logprobs;
  m->logprobs = NULL;
  if (!m->update.entropies) return;
  treadle_free(b->entropies);
  b->entropies = m->entropies;
  m->entropies = NULL;
}

treadle_status treadle_rl_update_actor(treadle_rl *rl, treadle_rl_mini_result *last_p, bool *skipped_p) {
  const treadle_train_settings *s = rl->task.settings;
  mini m = {.task = &rl->task,
            .schedule = &rl->schedule,
            .workers = &rl->workers,
            .batch = &rl->batch,
            .state = &rl->state,
            .ledger = &rl->ledger};
  treadle_status status;
  *skipped_p = false;
  *last_p = (treadle_rl_mini_result){.grad_norm = NAN};
  TRY(take_memory(&m, rl->batch.ids.count));
  rl->state.loss_kl_coef = rl->state.kl_coef;
  m.update.logprobs = m.logprobs;
  m.update.entropies = s->rl.loss.entropy_coeff != 0 || !rl->batch.entropies ? m.entropies : NULL;
  m.update.loss = treadle_rl_loss_of(s, &rl->bounds, rl->state.kl_coef);
  m.update.step.struct_size = sizeof m.update.step;
  if (treadle_rl_check_is_due(s, m.batch) && treadle_rl_update_checks(s, m.batch)) {
    TRY(treadle_rl_take_differing(m.batch));
    m.update.differing = m.batch->differing;
  }
  TRY(treadle_rl_set_columns(&rl->batch));
  TRY(run_all(&m, last_p, skipped_p));
  if (!m.update.entropies) { /* those of the pass before, which are the same policy's */
    last_p->entropy = mean_entropy(rl->task.settings, &rl->bounds, &rl->batch);
    treadle_rl_value(&rl->ledger.values, "actor/entropy", last_p->entropy);
  }
  keep(&m);
out:
  rl->workers.tokens = NULL;
  treadle_rl_tokens_release(&m.tokens);
  treadle_free(m.logprobs);
  treadle_free(m.entropies);
  return status;
}
