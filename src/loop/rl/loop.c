/* A run: steps one after the other. Rank 0 goes through them; the others serve its calls. */
#include "rl/loop.h"
#include "rl/pools.h"
#include "rl/trace.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/clock.h"
#include "base/sized.h"
#include "group/group.h"
#include "io/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The folder of the run -------------------------------------------------------------------------------------- */

static treadle_status write_config(const treadle_rl_task *task) {
  char path[PATH_MAX];
  char *text = NULL;
  treadle_status status;
  snprintf(path, sizeof path, "%s/config.yaml", task->settings->actor.save);
  TRY(treadle_train_config_text(task->config, &text));
  TRY(treadle_file_write(path, text, strlen(text)));
out:
  free(text);
  return status;
}

static treadle_status open_figures(treadle_rl_ledger *ledger, const treadle_rl_task *task,
                                   const treadle_rl_crew *crew, int64_t after) {
  char line[PATH_MAX + 200];
  treadle_status status;
  TRY(write_config(task));
  TRY(treadle_metrics_open(task->settings->actor.save, after, &ledger->metrics));
  TRY(treadle_trace_open(task->settings->actor.save, after, &ledger->trace));
  treadle_metrics_note(ledger->metrics, line, sizeof line);
  treadle_rl_warn(crew, line);
  treadle_trace_note(ledger->trace, line, sizeof line);
  treadle_rl_warn(crew, line);
out:
  return status;
}

static treadle_status open_samples(treadle_rl_ledger *ledger, const treadle_train_settings *settings,
                                   const treadle_rl_crew *crew, int64_t after) {
  const char *folder = settings->actor.save;
  char path[PATH_MAX], line[PATH_MAX + 200];
  treadle_status status = TREADLE_OK;
  snprintf(path, sizeof path, "%s/validation", folder);
  if (settings->rl.validation.log_generations > 0) TRY(treadle_rl_make_folders(path));
  TRY(treadle_rl_sample_log_open(folder, after, &ledger->sample_log));
  treadle_rl_sample_log_note(ledger->sample_log, line, sizeof line);
  treadle_rl_warn(crew, line);
out:
  return status;
}

static treadle_status open_run(treadle_rl *rl) {
  const int64_t after = rl->state.from[0] ? treadle_train_checkpoint_step_of(rl->state.from) : -1;
  treadle_status status = TREADLE_OK;
  if (rl->crew.leads) TRY(open_figures(&rl->ledger, &rl->task, &rl->crew, after));
  if (rl->crew.has_samples) TRY(open_samples(&rl->ledger, rl->task.settings, &rl->crew, after));
out:
  return status;
}

/* ---- A step ------------------------------------------------------------------------------------------------------ */

static bool is_due(int64_t step, int64_t interval) { return interval > 0 && step % interval == 0; }

static double since(double *begin) {
  double now = treadle_clock_seconds(), seconds = now - *begin;
  *begin = now;
  return seconds;
}

static treadle_status write_values(treadle_rl_ledger *ledger, int64_t step) {
  if (ledger->values.lost) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the figures of a step");
  return treadle_metrics_write(ledger->metrics, step, ledger->values.all.items, ledger->values.all.count);
}

static treadle_status write_step(treadle_rl *rl) {
  treadle_rl_outcome outcome;
  treadle_status status;
  if (rl->ledger.saving_since > 0)
    treadle_rl_value(&rl->ledger.values, "timing_s/save_checkpoint",
                     treadle_clock_seconds() - rl->ledger.saving_since);
  TRY(treadle_trace_write(rl->ledger.trace));
  TRY(write_values(&rl->ledger, rl->state.step));
  TRY(treadle_rl_stage_run(&rl->stages, TREADLE_STAGE_WRITE, &outcome));
  rl->state.written = rl->state.step;
out:
  return status;
}

treadle_status treadle_rl_write_step(treadle_rl *rl) {
  return treadle_rl_agree(&rl->crew, rl->crew.leads && rl->state.written < rl->state.step ? write_step(rl)
                                                                                          : TREADLE_OK);
}

static void begin_values(treadle_rl_ledger *ledger) {
  treadle_rl_values_clear(&ledger->values);
  ledger->times = (treadle_rl_times){0};
}

static treadle_status save(treadle_rl *rl, treadle_rl_figures *result) {
  treadle_status status;
  rl->ledger.saving_since = treadle_clock_seconds();
  TRY(treadle_rl_save(rl, result->checkpoint, sizeof result->checkpoint));
out:
  rl->ledger.saving_since = 0;
  return status;
}

/* Asked to stop while samples were drawn or scored: that step is not taken, and what was before it is kept. */
static treadle_status stop_before(treadle_rl *rl, treadle_rl_figures *result) {
  result->stopped = true;
  return rl->state.step > 0 && rl->state.step != rl->state.saved ? save(rl, result) : TREADLE_OK;
}

/* Prompts that are not trained on; *mean_p is left where the run was stopped meanwhile. */
static treadle_status run_test(treadle_rl_stages *stages, double *mean_p) {
  treadle_rl_totals *totals = &stages->ledger->totals;
  treadle_rl_outcome outcome;
  treadle_status status;
  TRY(treadle_rl_stage_run(stages, TREADLE_STAGE_TEST_DRAW, &outcome));
  TRY(treadle_rl_stage_run(stages, TREADLE_STAGE_TEST_RM_SCORE, &outcome));
  TRY(treadle_rl_stage_run(stages, TREADLE_STAGE_TEST_JUDGE, &outcome));
  if (*stages->stopped) goto out;
  *mean_p = outcome.test;
  if (isnan(totals->val_first)) totals->val_first = *mean_p;
  totals->val_last = *mean_p;
out:
  return status;
}

static treadle_status run_step(treadle_rl *rl, treadle_rl_figures *result, treadle_rl_gauges *gauges) {
  const treadle_train_settings *s = rl->task.settings;
  treadle_rl_step step = {.struct_size = sizeof step, .steps = s->training.train_iters};
  double at;
  treadle_status status;
  TRY(treadle_rl_take_step(&rl->stages, &rl->workers, &step, gauges));
  if (rl->stopped) return stop_before(rl, result);
  bool last = rl->state.step == s->training.train_iters, stops = gauges->stops && !last;
  if (treadle_observe_stop(&rl->crew.observer)) stops = !last; /* a controller apart is told alone */
  at = treadle_clock_seconds();
  if (rl->data.tests && (is_due(rl->state.step, s->training.test_interval) || last)) {
    treadle_rl_doing(&rl->crew, "the test");
    TRY(run_test(&rl->stages, &step.val_reward));
    step.tested = !rl->stopped;
    stops = stops || rl->stopped;
    if (step.tested) treadle_rl_value(&rl->ledger.values, "timing_s/testing", since(&at));
  }
  if (is_due(rl->state.step, s->training.save_interval) || last || stops) {
    TRY(save(rl, result));
    step.checkpoint = result->checkpoint;
  } else
    TRY(write_step(rl));
  result->stopped = stops;
  result->steps++;
  if (rl->task.options->progress) rl->task.options->progress(rl->task.options->context, &step);
  begin_values(&rl->ledger);
out:
  return status;
}

/* ---- The run ------------------------------------------------------------------------------------------------------ */

static treadle_status test_before(treadle_rl *rl, treadle_rl_figures *result) {
  double mean, at = treadle_clock_seconds();
  treadle_status status = TREADLE_OK;
  if (!rl->data.tests || !rl->task.settings->rl.validation.before_train || rl->state.from[0] ||
      rl->state.step == rl->task.settings->training.train_iters)
    return TREADLE_OK;
  begin_values(&rl->ledger);
  treadle_rl_doing(&rl->crew, "the test");
  TRY(run_test(&rl->stages, &mean));
  result->stopped = rl->stopped;
  if (rl->stopped) return TREADLE_OK;
  treadle_rl_value(&rl->ledger.values, "timing_s/testing", since(&at));
  TRY(write_values(&rl->ledger, rl->state.step));
  if (rl->task.options->progress) {
    const treadle_rl_step step = {.struct_size = sizeof step,
                                  .steps = rl->task.settings->training.train_iters,
                                  .tested = true,
                                  .val_reward = mean,
                                  .kl = NAN,
                                  .entropy = NAN};
    rl->task.options->progress(rl->task.options->context, &step);
  }
  begin_values(&rl->ledger);
out:
  return status;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double mean(const double *values, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) sum += values[i];
  return count ? sum / (double)count : NAN;
}

static treadle_status finish(treadle_rl *rl, treadle_rl_figures *result, const treadle_rl_gauges *g) {
  treadle_rl_totals *t = &rl->ledger.totals;
  const size_t steps = t->rewards.count, some = steps < 10 ? steps > 0 : steps / 10;
  treadle_status status;
  result->reward_first = result->reward_last = mean(t->rewards.items, some);
  if (steps) result->reward_last = mean(t->rewards.items + (steps - some), some);
  if (steps) qsort(t->seconds.items, steps, sizeof(double), compare);
  result->step_seconds = steps ? t->seconds.items[steps / 2] : NAN;
  result->tokens_per_second = t->all_seconds > 0 ? (double)t->tokens / t->all_seconds : 0;
  result->last_step = rl->state.step;
  result->val_first = t->val_first;
  result->val_last = t->val_last;
  result->logprob_tokens = t->compared;
  result->logprob_differing = t->differing;
  result->logprob_max_diff = t->most_difference;
  result->peak_bytes = g->fullest.peak_bytes;
  result->kv_blocks = g->fullest.kv_blocks;
  result->peak_predicted_bytes = rl->predicted;
  result->losses_digest = rl->state.losses_digest;
  result->weights = treadle_rl_weights(&rl->models, rl->state.from);
  TRY(treadle_rl_call_digest(&rl->workers, &result->weights_digest));
out:
  return status;
}

/* After a failure, stages that are under way elsewhere end when the run has. */
static treadle_status end(treadle_rl_stages *stages, const treadle_rl_crew *whole,
                          treadle_rl_workers *workers, treadle_status status) {
  char message[TREADLE_GROUP_MESSAGE];
  if (!status) treadle_rl_stages_clear(stages);
  status = treadle_rl_teams_end(stages->teams, whole, workers, status);
  snprintf(message, sizeof message, "%s", treadle_error_message());
  treadle_rl_stages_clear(stages);
  return status ? treadle_fail(status, "%s", message) : TREADLE_OK;
}

static treadle_status lead(treadle_rl *rl, treadle_rl_figures *result) {
  treadle_rl_gauges gauges;
  treadle_status status;
  if (rl->state.from[0]) snprintf(result->checkpoint, sizeof result->checkpoint, "%s", rl->state.from);
  TRY(treadle_rl_call_gauges(&rl->workers, &gauges));
  TRY(test_before(rl, result));
  TRY(treadle_rl_call_gauges(&rl->workers, &gauges));
  begin_values(&rl->ledger);
  while (rl->state.step < rl->task.settings->training.train_iters && !result->stopped)
    TRY(run_step(rl, result, &gauges));
  TRY(finish(rl, result, &gauges));
  /* The rest: of a step that is not taken, or after the last one. */
  const double now = treadle_clock_seconds();
  const treadle_rl_span rest = {rl->state.step + 1, rl->ledger.began > 0 ? rl->ledger.began : now, now};
  TRY(treadle_rl_trace_collect(&rl->workers, rl->ledger.trace, &rest, &rl->ledger.times.idle));
  TRY(treadle_trace_write(rl->ledger.trace));
  treadle_rl_trace_tell(&rl->crew, rl->ledger.trace);
  if (result->steps) TRY(treadle_rl_report(rl)); /* else what an earlier start wrote is still true */
out:
  return status;
}

/* All that comes before the first call. */
static treadle_status start(treadle_rl *rl) {
  double started = treadle_clock_seconds();
  treadle_status status;
  TRY(treadle_rl_check_same(&rl->whole, &rl->task));
  TRY(treadle_rl_teams_find(&rl->teams, &rl->task, &rl->whole, &rl->crew, &rl->beside));
  TRY(treadle_rl_agree(&rl->whole, rl->crew.leads
                                       ? treadle_rl_take_folders(&rl->folders, &rl->task, &rl->crew)
                                       : TREADLE_OK));
  TRY(treadle_rl_open(rl));
  TRY(treadle_rl_agree(&rl->whole, open_run(rl)));
  if (rl->ledger.trace) started -= treadle_trace_kept(rl->ledger.trace); /* an earlier start's go on */
  TRY(treadle_rl_trace_open(&rl->workers, &rl->whole, started));
out:
  return status;
}

static treadle_status run(treadle_rl *rl, treadle_rl_figures *result) {
  const treadle_rl_crew *whole = &rl->whole;
  treadle_status status;
  TRY(treadle_rl_agree(whole, treadle_train_config_need(rl->task.config, false)));
  TRY(treadle_rl_teams_meet(&rl->teams, &rl->task, whole));
  status = start(rl);
  if (status)
    status = treadle_rl_teams_fail(&rl->teams, whole, status);
  else if (!rl->crew.leads)
    status = treadle_as_failure(treadle_rl_teams_serve(&rl->teams, whole, &rl->workers));
  else {
    status = treadle_rl_teams_reach(&rl->teams, &rl->workers);
    if (!status) status = treadle_as_failure(lead(rl, result));
    status = end(&rl->stages, whole, &rl->workers, status);
  }
  treadle_rl_teams_part(&rl->teams);
out:
  return status;
}

treadle_status treadle_rl_run(treadle_group *group, const treadle_train_config *config,
                              const treadle_rl_options *options, treadle_rl_figures *result_p) {
  treadle_rl_options o;
  treadle_observer observer;
  treadle_rl_figures result = TREADLE_INIT(treadle_rl_figures);
  treadle_rl *rl;
  treadle_status status;
  TREADLE_NEED(config);
  TREADLE_NEED_SIZED(result_p);
  TRY(TREADLE_TAKE(options, &o));
  TRY(TREADLE_TAKE(o.observer, &observer));
  rl = treadle_alloc(sizeof *rl);
  if (!rl) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a run");
  rl->whole = treadle_rl_crew_of(group, &observer);
  rl->task.config = config;
  rl->task.options = &o;
  rl->task.settings = treadle_train_config_settings(config);
  status = run(rl, &result);
  if (!status) status = treadle_rl_share(&rl->whole, &result, sizeof result);
  treadle_rl_close(rl);
  treadle_rl_release_folders(&rl->folders);
  treadle_free(rl);
  if (status) goto out;
  TREADLE_GIVE(result_p, &result);
out:
  return status;
}
