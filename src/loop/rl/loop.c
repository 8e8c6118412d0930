/* A run: steps one after the other. Rank 0 goes through them; the others serve its calls. */
#include "rl/loop.h"
#include "rl/pools.h"

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

static treadle_status open_run(treadle_rl *rl) {
  const treadle_train_settings *s = rl->task.settings;
  const int64_t after = rl->state.from[0] ? rl->state.step : -1;
  char path[PATH_MAX], line[PATH_MAX + 200];
  treadle_status status;
  if (!rl->crew.leads) return TREADLE_OK;
  snprintf(path, sizeof path, "%s/validation", s->actor.save);
  if (s->rl.validation.log_generations > 0) TRY(treadle_rl_make_folders(path));
  TRY(write_config(&rl->task));
  TRY(treadle_metrics_open(s->actor.save, after, &rl->ledger.metrics));
  TRY(treadle_rl_sample_log_open(s->actor.save, after, &rl->ledger.sample_log));
  treadle_metrics_note(rl->ledger.metrics, line, sizeof line);
  treadle_rl_warn(&rl->crew, line);
  treadle_rl_sample_log_note(rl->ledger.sample_log, line, sizeof line);
  treadle_rl_warn(&rl->crew, line);
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

/* What is done with the samples of a step before the policy learns from them: a critic has learned by then. rl->stopped: the step is not taken,
 * and its prompts are not drawn. */
static treadle_status prepare(treadle_rl *rl, bool *skipped_p) {
  const treadle_rl_critic_update critic = {.settings = rl->task.settings,
                                           .schedule = &rl->critic.schedule,
                                           .workers = &rl->workers,
                                           .batch = &rl->batch,
                                           .state = &rl->state,
                                           .values = &rl->ledger.values};
  treadle_rl_times *t = &rl->ledger.times;
  const treadle_rl_rollout rollout = treadle_rl_rollout_of(rl);
  const int64_t drawn = rl->state.drawn;
  double at = treadle_clock_seconds();
  size_t scored;
  treadle_status status, waited;
  treadle_rl_begin_moments(&rl->ledger.moments);
  treadle_rl_stage(rl, "generate");
  TRY(treadle_rl_draw_step(rl, &scored));
  if (rl->stopped) goto out;
  if (rl->reward_model.model) treadle_rl_stage(rl, "reward model");
  t->gen = since(&at);
  status = treadle_rl_find_rm_scores(&rl->workers, rl->task.settings, &rl->batch, scored);
  t->reward = since(&at);
  treadle_rl_stage(rl, "old log-probabilities");
  if (!status) status = treadle_rl_old_logprobs(&rl->workers, rl->task.settings, &rl->ledger, &rl->batch);
  t->old_log_prob = since(&at);
  waited = scored < rl->batch.samples.count ? treadle_rl_score_wait(&rollout, &rl->batch, scored, NULL)
                                            : TREADLE_OK;
  if (!status) status = waited;
  t->reward += since(&at);
  if (status || rl->stopped) goto out;
  if (treadle_rl_uses_kl(rl->task.settings)) treadle_rl_stage(rl, "reference");
  TRY(treadle_rl_ref_logprobs(&rl->workers, rl->task.settings, &rl->batch));
  t->ref = since(&at);
  if (rl->critic.model) treadle_rl_stage(rl, "values");
  TRY(treadle_rl_find_values(&rl->workers, rl->task.settings, &rl->batch));
  t->values = since(&at);
  TRY(treadle_rl_find_advantages(rl));
  t->adv = since(&at);
  if (!rl->critic.model) goto out;
  treadle_rl_stage(rl, "update of the critic");
  TRY(treadle_rl_update_critic(&critic, skipped_p));
  t->update_critic = since(&at);
out:
  if (rl->stopped) rl->state.drawn = drawn;
  return status;
}

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

static int64_t tokens_of(const treadle_rl_batch *batch) {
  int64_t tokens = 0;
  for (size_t i = 0; i < batch->samples.count; i++)
    tokens += batch->samples.items[i].prompt->count + (int64_t)batch->samples.items[i].count;
  return tokens;
}

static double mean_reward(const treadle_rl_batch *batch) {
  double sum = 0;
  for (size_t i = 0; i < batch->samples.count; i++) sum += batch->samples.items[i].reward;
  return batch->samples.count ? sum / (double)batch->samples.count : 0;
}

/* The step itself; `step` gets what it came to. */
static treadle_status take_step(treadle_rl *rl, treadle_rl_step *step, treadle_rl_gauges *before) {
  treadle_rl_mini_result last;
  treadle_rl_gauges after;
  double begin = treadle_clock_seconds(), at;
  bool skipped = false;
  const int64_t differing = rl->ledger.totals.differing;
  treadle_status status;
  TRY(prepare(rl, &skipped));
  if (rl->stopped) return TREADLE_OK;
  at = treadle_clock_seconds();
  last = (treadle_rl_mini_result){.loss = NAN, .kl_loss = NAN, .entropy = NAN, .grad_norm = NAN, .lr = NAN};
  if (!treadle_rl_warms_up(rl->task.settings, rl->batch.step)) {
    treadle_rl_stage(rl, "update");
    TRY(treadle_rl_update_actor(rl, &last, &step->skipped));
  }
  treadle_rl_stage(rl, NULL);
  rl->ledger.times.update_actor = since(&at);
  step->skipped = step->skipped || skipped;
  rl->state.step++;
  rl->ledger.times.step = treadle_clock_seconds() - begin;
  TRY(treadle_rl_call_gauges(&rl->workers, &after));
  rl->ledger.times.to_infer = after.fullest.to_infer - before->fullest.to_infer;
  rl->ledger.times.to_train = after.fullest.to_train - before->fullest.to_train;
  *before = after;
  step->step = rl->state.step;
  step->reward = mean_reward(&rl->batch);
  step->kl = rl->task.settings->rl.kl.in_loss ? last.kl_loss : NAN;
  step->entropy = last.entropy;
  step->loss = last.loss;
  step->grad_norm = last.grad_norm;
  step->lr = last.lr;
  step->tokens = tokens_of(&rl->batch);
  step->seconds = rl->ledger.times.step;
  step->gen_seconds = rl->ledger.times.gen;
  step->switch_seconds = rl->ledger.times.to_infer + rl->ledger.times.to_train;
  step->peak_bytes = after.fullest.peak_bytes;
  step->logprob_differing = rl->ledger.totals.differing - differing;
  double length = 0;
  for (size_t i = 0; i < rl->batch.samples.count; i++) length += (double)rl->batch.samples.items[i].count;
  step->response_length = rl->batch.samples.count ? length / (double)rl->batch.samples.count : 0;
out:
  return status;
}

static treadle_status note_step(treadle_rl *rl, const treadle_rl_step *step, const treadle_rl_gauges *g) {
  treadle_status status;
  treadle_rl_batch_values(&rl->ledger.values, rl->task.settings, &rl->bounds, &rl->batch);
  treadle_rl_value(&rl->ledger.values, "perf/time_per_step", step->seconds);
  treadle_rl_value(&rl->ledger.values, "perf/throughput",
                   step->seconds > 0 ? (double)step->tokens / step->seconds / rl->whole.ranks : 0);
  treadle_rl_count(&rl->ledger.values, "training/skipped", step->skipped);
  note_times(&rl->ledger.values, rl->task.settings, &rl->ledger.times);
  note_gauges(&rl->ledger.values, g);
  TRY(treadle_array_push(&rl->ledger.totals.seconds, step->seconds));
  TRY(treadle_array_push(&rl->ledger.totals.rewards, step->reward));
  rl->ledger.totals.tokens += step->tokens;
  rl->ledger.totals.all_seconds += step->seconds;
out:
  return status;
}

static treadle_status write_values(treadle_rl_ledger *ledger, int64_t step) {
  if (ledger->values.lost) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the figures of a step");
  return treadle_metrics_write(ledger->metrics, step, ledger->values.all.items, ledger->values.all.count);
}

static treadle_status write_step(treadle_rl *rl) {
  treadle_status status;
  if (rl->ledger.saving_since > 0)
    treadle_rl_value(&rl->ledger.values, "timing_s/save_checkpoint",
                     treadle_clock_seconds() - rl->ledger.saving_since);
  TRY(write_values(&rl->ledger, rl->state.step));
  TRY(treadle_rl_log_samples(&rl->ledger, rl->task.settings, &rl->state, &rl->batch));
  TRY(treadle_rl_dump_step(rl->task.settings, &rl->state, &rl->batch));
  rl->state.written = rl->state.step;
out:
  return status;
}

treadle_status treadle_rl_write_step(treadle_rl *rl) {
  return treadle_rl_agree(&rl->crew, rl->crew.leads && rl->state.written < rl->state.step ? write_step(rl)
                                                                                          : TREADLE_OK);
}

static void begin_values(treadle_rl_ledger *ledger) {
  ledger->values.all.count = 0;
  ledger->values.lost = false;
  treadle_arena_release(&ledger->values.names);
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

static treadle_status run_step(treadle_rl *rl, treadle_rl_figures *result, treadle_rl_gauges *gauges) {
  const treadle_train_settings *s = rl->task.settings;
  treadle_rl_step step = {.struct_size = sizeof step, .steps = s->training.train_iters};
  double at;
  treadle_status status;
  TRY(take_step(rl, &step, gauges));
  if (rl->stopped) return stop_before(rl, result);
  TRY(note_step(rl, &step, gauges));
  bool last = rl->state.step == s->training.train_iters, stops = gauges->stops && !last;
  at = treadle_clock_seconds();
  if (rl->data.tests && (is_due(rl->state.step, s->training.test_interval) || last)) {
    TRY(treadle_rl_test(rl, &step.val_reward));
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
  TRY(treadle_rl_test(rl, &mean));
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
  if (result->steps) TRY(treadle_rl_report(rl)); /* else what an earlier start wrote is still true */
out:
  return status;
}

static treadle_status run(treadle_rl *rl, treadle_rl_figures *result) {
  treadle_status status;
  TRY(treadle_rl_agree(&rl->whole, treadle_train_config_need(rl->task.config, false)));
  TRY(treadle_rl_teams_find(&rl->teams, &rl->task, &rl->whole, &rl->crew));
  TRY(treadle_rl_agree(&rl->whole, rl->crew.leads
                                       ? treadle_rl_take_folders(&rl->folders, &rl->task, &rl->crew)
                                       : TREADLE_OK));
  TRY(treadle_rl_open(rl));
  TRY(treadle_rl_agree(&rl->whole, open_run(rl)));
  if (!rl->crew.leads)
    return treadle_as_failure(treadle_rl_teams_serve(&rl->teams, &rl->whole, &rl->workers));
  status = treadle_rl_teams_reach(&rl->teams, &rl->workers);
  if (!status) status = treadle_as_failure(lead(rl, result));
  return treadle_rl_teams_end(&rl->teams, &rl->whole, &rl->workers, status);
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
