/* A step: its stages, in the order in which they need each other. Those of other pools begin as soon as they can, and are waited for where what they find is
 * needed. */
#include "rl/loop.h"
#include "rl/trace.h"

#include "base/clock.h"
#include "base/hash.h"

#include <math.h>
#include <string.h>

/* ---- Stages -------------------------------------------------------------------------------------------------- */

static treadle_status run(treadle_rl_stages *stages, treadle_rl_stage_number stage, double *seconds_p) {
  treadle_rl_outcome outcome;
  treadle_status status;
  TRY(treadle_rl_stage_run(stages, stage, &outcome));
  *seconds_p += outcome.seconds;
out:
  return status;
}

/* What is done with the samples of a step before anything learns from them. *stages->stopped: the step is not taken, and its prompts are not drawn. */
static treadle_status prepare(treadle_rl_stages *stages) {
  treadle_rl_times *t = &stages->ledger->times;
  const bool *stopped = stages->stopped;
  const int64_t drawn = stages->state->drawn;
  treadle_status status;
  treadle_rl_begin_moments(&stages->ledger->moments);
  TRY(treadle_rl_stages_draw(stages, &t->gen));
  if (*stopped) goto out;
  TRY(run(stages, TREADLE_STAGE_RM_SCORE, &t->reward));
  TRY(run(stages, TREADLE_STAGE_OLD, &t->old_log_prob));
  TRY(run(stages, TREADLE_STAGE_REWARDS, &t->reward));
  if (*stopped) goto out;
  TRY(run(stages, TREADLE_STAGE_REFERENCE, &t->ref));
  TRY(run(stages, TREADLE_STAGE_VALUES, &t->values));
  TRY(run(stages, TREADLE_STAGE_ADVANTAGES, &t->adv));
out:
  if (*stopped) stages->state->drawn = drawn;
  return status;
}

/* In the order of mini batches, those of the critic before those of the policy. */
static void digest_losses(treadle_rl_ledger *ledger, treadle_rl_state *state) {
  uint64_t bits;
  for (size_t i = 0; i < ledger->losses.count; i++) {
    memcpy(&bits, &ledger->losses.items[i], sizeof bits);
    state->losses_digest = treadle_hash_more(state->losses_digest, bits);
  }
  ledger->losses.count = 0;
}

/* Both learn from the same samples: neither waits for the other, if they are on ranks of their own. */
static treadle_status learn(treadle_rl_stages *stages, treadle_rl_outcome *policy) {
  treadle_rl_times *t = &stages->ledger->times;
  const bool warms_up = treadle_rl_warms_up(stages->settings, stages->state->step + 1);
  treadle_rl_outcome critic;
  treadle_status status = TREADLE_OK;
  *policy = (treadle_rl_outcome){
      .last = {.loss = NAN, .kl_loss = NAN, .entropy = NAN, .grad_norm = NAN, .lr = NAN}};
  if (treadle_rl_stage_is_beside(stages, TREADLE_STAGE_UPDATE_CRITIC) && !warms_up) {
    TRY(treadle_rl_stage_start(stages, TREADLE_STAGE_UPDATE_CRITIC));
    TRY(treadle_rl_stage_start(stages, TREADLE_STAGE_UPDATE));
  }
  TRY(treadle_rl_stage_run(stages, TREADLE_STAGE_UPDATE_CRITIC, &critic));
  t->update_critic = critic.seconds;
  if (!warms_up) TRY(treadle_rl_stage_run(stages, TREADLE_STAGE_UPDATE, policy));
  t->update_actor = policy->seconds;
  policy->skipped = policy->skipped || critic.skipped;
  digest_losses(stages->ledger, stages->state);
out:
  return status;
}

/* ---- Figures ------------------------------------------------------------------------------------------------- */

static void note_times(treadle_rl_values *values, const treadle_train_settings *settings,
                       const treadle_rl_times *t) {
  treadle_rl_value(values, "timing_s/gen", t->gen);
  treadle_rl_value(values, "timing_s/reward", t->reward);
  treadle_rl_value(values, "timing_s/old_log_prob", t->old_log_prob);
  if (treadle_rl_uses_kl(settings)) treadle_rl_value(values, "timing_s/ref", t->ref);
  if (treadle_train_has_critic(settings)) treadle_rl_value(values, "timing_s/values", t->values);
  treadle_rl_value(values, "timing_s/adv", t->adv);
  if (treadle_train_has_critic(settings))
    treadle_rl_value(values, "timing_s/update_critic", t->update_critic);
  treadle_rl_value(values, "timing_s/update_actor", t->update_actor);
  treadle_rl_value(values, "timing_s/step", t->step);
  treadle_rl_value(values, "timing/resharding_to_infer", t->to_infer);
  treadle_rl_value(values, "timing/resharding_to_train", t->to_train);
  treadle_rl_value(values, "control/idle_s", t->idle);
}

static void note_gauges(treadle_rl_values *values, const treadle_rl_gauges *g) {
  static const struct {
    const char *name;
    treadle_class which;
  } classes[] = {
      {"params", TREADLE_PARAMS},      {"grads", TREADLE_GRADS}, {"optimizer", TREADLE_OPTIMIZER},
      {"infer", TREADLE_INFER_PARAMS}, {"kv", TREADLE_KV},       {"work", TREADLE_WORK},
      {"reference", TREADLE_REFERENCE}};
  char name[64];
  treadle_rl_value(values, "perf/max_memory_allocated_gb",
                   (double)g->fullest.peak_bytes / (double)(1 << 30));
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
    snprintf(name, sizeof name, "memory/%s_peak", classes[i].name);
    treadle_rl_count(values, name, (int64_t)g->fullest.peaks[classes[i].which]);
  }
}

/* ---- The whole ------------------------------------------------------------------------------------------------ */

/* What the controller itself has sent and received in this step; and rows that ranks got of each other. */
static void note_control(treadle_rl_values *values, const treadle_rl_teams *teams,
                         const treadle_rl_traffic *before) {
  treadle_rl_traffic now;
  if (!teams->apart) return;
  treadle_rl_teams_traffic(teams, &now);
  treadle_rl_count(values, "control/calls", now.calls - before->calls);
  treadle_rl_count(values, "control/message_bytes", now.message_bytes - before->message_bytes);
  treadle_rl_count(values, "control/row_bytes_by_controller", now.by_controller - before->by_controller);
  treadle_rl_count(values, "control/row_bytes_by_workers", now.by_workers - before->by_workers);
}

static treadle_status take_step(treadle_rl_stages *stages, treadle_rl_workers *workers,
                                treadle_rl_step *step, treadle_rl_gauges *before) {
  treadle_rl_times *t = &stages->ledger->times;
  treadle_rl_outcome policy;
  treadle_rl_gauges after;
  const double begin = treadle_clock_seconds();
  const int64_t differing = stages->ledger->totals.differing;
  treadle_status status;
  stages->ledger->began = begin;
  TRY(prepare(stages));
  if (*stages->stopped) return TREADLE_OK;
  TRY(learn(stages, &policy));
  stages->begin(stages->run, NULL);
  stages->state->step++;
  t->step = treadle_clock_seconds() - begin;
  TRY(treadle_rl_call_gauges(workers, &after));
  const treadle_rl_span span = {stages->state->step, begin, begin + t->step};
  TRY(treadle_rl_trace_collect(workers, stages->ledger->trace, &span, &t->idle));
  stages->ledger->began = 0;
  t->to_infer = after.fullest.to_infer - before->fullest.to_infer;
  t->to_train = after.fullest.to_train - before->fullest.to_train;
  *before = after;
  step->step = stages->state->step;
  step->skipped = policy.skipped;
  step->kl = stages->settings->rl.kl.in_loss ? policy.last.kl_loss : NAN;
  step->entropy = policy.last.entropy;
  step->expert_load_max = policy.last.load_max;
  step->expert_load_min = policy.last.load_min;
  step->loss = policy.last.loss;
  step->grad_norm = policy.last.grad_norm;
  step->lr = policy.last.lr;
  step->seconds = t->step;
  step->gen_seconds = t->gen;
  step->switch_seconds = t->to_infer + t->to_train;
  step->peak_bytes = after.fullest.peak_bytes;
  step->logprob_differing = stages->ledger->totals.differing - differing;
out:
  return status;
}

static treadle_status note_step(treadle_rl_stages *stages, treadle_rl_step *step,
                                const treadle_rl_gauges *g) {
  treadle_rl_totals *totals = &stages->ledger->totals;
  treadle_rl_values *values = &stages->ledger->values;
  treadle_rl_outcome sums;
  treadle_status status;
  TRY(treadle_rl_stage_run(stages, TREADLE_STAGE_FIGURES, &sums));
  step->reward = sums.reward;
  step->response_length = sums.response_length;
  step->tokens = sums.tokens;
  treadle_rl_value(values, "perf/time_per_step", step->seconds);
  treadle_rl_value(values, "perf/throughput",
                   step->seconds > 0 ? (double)step->tokens / step->seconds / stages->processes : 0);
  treadle_rl_count(values, "training/skipped", step->skipped);
  note_times(values, stages->settings, &stages->ledger->times);
  note_gauges(values, g);
  TRY(treadle_array_push(&totals->seconds, step->seconds));
  TRY(treadle_array_push(&totals->rewards, step->reward));
  totals->tokens += step->tokens;
  totals->all_seconds += step->seconds;
out:
  return status;
}

treadle_status treadle_rl_take_step(treadle_rl_stages *stages, treadle_rl_workers *workers,
                                    treadle_rl_step *step, treadle_rl_gauges *gauges) {
  treadle_rl_traffic before = {0};
  treadle_status status;
  if (stages->teams->apart) treadle_rl_teams_traffic(stages->teams, &before);
  TRY(take_step(stages, workers, step, gauges));
  if (*stages->stopped) goto out;
  TRY(note_step(stages, step, gauges));
  note_control(&stages->ledger->values, stages->teams, &before);
out:
  return status;
}
