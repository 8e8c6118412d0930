/* A run: steps one after the other. Rank 0 goes through them; the others serve its calls. */
#include "rl/loop.h"

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

static treadle_status write_config(const treadle_rl *rl) {
  char path[PATH_MAX];
  char *text = NULL;
  treadle_status status;
  snprintf(path, sizeof path, "%s/config.yaml", rl->settings->actor.save);
  TRY(treadle_train_config_text(rl->config, &text));
  TRY(treadle_file_write(path, text, strlen(text)));
out:
  free(text);
  return status;
}

static treadle_status open_run(treadle_rl *rl) {
  const treadle_train_settings *s = rl->settings;
  const int64_t after = rl->from[0] ? rl->step : -1;
  char path[PATH_MAX], line[PATH_MAX + 200];
  treadle_status status;
  if (rl->rank > 0) return TREADLE_OK;
  snprintf(path, sizeof path, "%s/validation", s->actor.save);
  if (s->rl.validation.log_generations > 0) TRY(treadle_rl_make_folders(path));
  TRY(write_config(rl));
  TRY(treadle_metrics_open(s->actor.save, after, &rl->metrics));
  TRY(treadle_rl_sample_log_open(s->actor.save, after, &rl->sample_log));
  treadle_metrics_note(rl->metrics, line, sizeof line);
  treadle_rl_warn(rl, line);
  treadle_rl_sample_log_note(rl->sample_log, line, sizeof line);
  treadle_rl_warn(rl, line);
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

/* What the samples of a step need before the policy learns from them. rl->stopped: the step is not taken, and its prompts are not drawn. */
static treadle_status prepare(treadle_rl *rl) {
  treadle_rl_times *t = &rl->times;
  const int64_t drawn = rl->drawn;
  double at = treadle_clock_seconds();
  size_t scored;
  treadle_status status, waited;
  treadle_rl_begin_moments(rl);
  treadle_rl_stage(rl, "generate");
  TRY(treadle_rl_draw_step(rl, &scored));
  if (rl->stopped) goto out;
  treadle_rl_stage(rl, "old log-probabilities");
  t->gen = since(&at);
  status = treadle_rl_old_logprobs(rl);
  t->old_log_prob = since(&at);
  waited =
      scored < rl->batch.samples.count ? treadle_rl_score_wait(rl, &rl->batch, scored, NULL) : TREADLE_OK;
  if (!status) status = waited;
  t->reward = since(&at);
  if (status || rl->stopped) goto out;
  if (treadle_rl_uses_kl(rl->settings)) treadle_rl_stage(rl, "reference");
  TRY(treadle_rl_ref_logprobs(rl));
  t->ref = since(&at);
  TRY(treadle_rl_find_advantages(rl));
  t->adv = since(&at);
out:
  if (rl->stopped) rl->drawn = drawn;
  return status;
}

static void note_times(treadle_rl *rl) {
  const treadle_rl_times *t = &rl->times;
  treadle_rl_value(rl, "timing_s/gen", t->gen);
  treadle_rl_value(rl, "timing_s/reward", t->reward);
  treadle_rl_value(rl, "timing_s/old_log_prob", t->old_log_prob);
  if (treadle_rl_uses_kl(rl->settings)) treadle_rl_value(rl, "timing_s/ref", t->ref);
  treadle_rl_value(rl, "timing_s/adv", t->adv);
  treadle_rl_value(rl, "timing_s/update_actor", t->update_actor);
  treadle_rl_value(rl, "timing_s/step", t->step);
  treadle_rl_value(rl, "timing/resharding_to_infer", t->to_infer);
  treadle_rl_value(rl, "timing/resharding_to_train", t->to_train);
}

static void note_gauges(treadle_rl *rl, const treadle_rl_gauges *g) {
  static const struct {
    const char *name;
    treadle_class which;
  } classes[] = {
      {"params", TREADLE_PARAMS},      {"grads", TREADLE_GRADS}, {"optimizer", TREADLE_OPTIMIZER},
      {"infer", TREADLE_INFER_PARAMS}, {"kv", TREADLE_KV},       {"work", TREADLE_WORK},
      {"reference", TREADLE_REFERENCE}};
  char name[64];
  treadle_rl_value(rl, "perf/max_memory_allocated_gb", (double)g->fullest.peak_bytes / (double)(1 << 30));
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
    snprintf(name, sizeof name, "memory/%s_peak", classes[i].name);
    treadle_rl_count(rl, name, (int64_t)g->fullest.peaks[classes[i].which]);
  }
}

static int64_t tokens_of(const treadle_rl *rl) {
  int64_t tokens = 0;
  for (size_t i = 0; i < rl->batch.samples.count; i++)
    tokens += rl->batch.samples.items[i].prompt->count + (int64_t)rl->batch.samples.items[i].count;
  return tokens;
}

static double mean_reward(const treadle_rl *rl) {
  double sum = 0;
  for (size_t i = 0; i < rl->batch.samples.count; i++) sum += rl->batch.samples.items[i].reward;
  return rl->batch.samples.count ? sum / (double)rl->batch.samples.count : 0;
}

/* The step itself; `step` gets what it came to. */
static treadle_status take_step(treadle_rl *rl, treadle_rl_step *step, treadle_rl_gauges *before) {
  treadle_rl_mini_result last;
  treadle_rl_gauges after;
  double begin = treadle_clock_seconds(), at;
  const int64_t differing = rl->totals.differing;
  treadle_status status;
  TRY(prepare(rl));
  if (rl->stopped) return TREADLE_OK;
  at = treadle_clock_seconds();
  treadle_rl_stage(rl, "update");
  TRY(treadle_rl_update_actor(rl, &last, &step->skipped));
  treadle_rl_stage(rl, NULL);
  rl->times.update_actor = since(&at);
  rl->step++;
  rl->times.step = treadle_clock_seconds() - begin;
  TRY(treadle_rl_call_gauges(rl, &after));
  rl->times.to_infer = after.fullest.to_infer - before->fullest.to_infer;
  rl->times.to_train = after.fullest.to_train - before->fullest.to_train;
  *before = after;
  step->step = rl->step;
  step->reward = mean_reward(rl);
  step->kl = rl->settings->rl.kl.in_loss ? last.kl_loss : NAN;
  step->entropy = last.entropy;
  step->loss = last.loss;
  step->grad_norm = last.grad_norm;
  step->lr = last.lr;
  step->tokens = tokens_of(rl);
  step->seconds = rl->times.step;
  step->gen_seconds = rl->times.gen;
  step->switch_seconds = rl->times.to_infer + rl->times.to_train;
  step->peak_bytes = after.fullest.peak_bytes;
  step->logprob_differing = rl->totals.differing - differing;
  double length = 0;
  for (size_t i = 0; i < rl->batch.samples.count; i++) length += (double)rl->batch.samples.items[i].count;
  step->response_length = rl->batch.samples.count ? length / (double)rl->batch.samples.count : 0;
out:
  return status;
}

static treadle_status note_step(treadle_rl *rl, const treadle_rl_step *step, const treadle_rl_gauges *g) {
  treadle_status status;
  treadle_rl_batch_values(rl);
  treadle_rl_value(rl, "perf/time_per_step", step->seconds);
  treadle_rl_value(rl, "perf/throughput",
                   step->seconds > 0 ? (double)step->tokens / step->seconds / rl->ranks : 0);
  treadle_rl_count(rl, "training/skipped", step->skipped);
  note_times(rl);
  note_gauges(rl, g);
  TRY(treadle_array_push(&rl->totals.seconds, step->seconds));
  TRY(treadle_array_push(&rl->totals.rewards, step->reward));
  rl->totals.tokens += step->tokens;
  rl->totals.all_seconds += step->seconds;
out:
  return status;
}

static treadle_status write_values(treadle_rl *rl) {
  if (rl->values_lost) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the figures of a step");
  return treadle_metrics_write(rl->metrics, rl->step, rl->values.items, rl->values.count);
}

static treadle_status write_step(treadle_rl *rl) {
  treadle_status status;
  if (rl->saving_since > 0)
    treadle_rl_value(rl, "timing_s/save_checkpoint", treadle_clock_seconds() - rl->saving_since);
  TRY(write_values(rl));
  TRY(treadle_rl_log_samples(rl));
  TRY(treadle_rl_dump_step(rl));
  rl->written = rl->step;
out:
  return status;
}

treadle_status treadle_rl_write_step(treadle_rl *rl) {
  return treadle_rl_agree(rl, rl->rank == 0 && rl->written < rl->step ? write_step(rl) : TREADLE_OK);
}

static void begin_values(treadle_rl *rl) {
  rl->values.count = 0;
  rl->values_lost = false;
  treadle_arena_release(&rl->names);
  rl->times = (treadle_rl_times){0};
}

static treadle_status save(treadle_rl *rl, treadle_rl_figures *result) {
  treadle_status status;
  rl->saving_since = treadle_clock_seconds();
  TRY(treadle_rl_save(rl, result->checkpoint, sizeof result->checkpoint));
out:
  rl->saving_since = 0;
  return status;
}

/* Asked to stop while samples were drawn or scored: that step is not taken, and what was before it is kept. */
static treadle_status stop_before(treadle_rl *rl, treadle_rl_figures *result) {
  result->stopped = true;
  return rl->step > 0 && rl->step != rl->saved ? save(rl, result) : TREADLE_OK;
}

static treadle_status run_step(treadle_rl *rl, treadle_rl_figures *result, treadle_rl_gauges *gauges) {
  const treadle_train_settings *s = rl->settings;
  treadle_rl_step step = {.struct_size = sizeof step, .steps = s->training.train_iters};
  double at;
  treadle_status status;
  TRY(take_step(rl, &step, gauges));
  if (rl->stopped) return stop_before(rl, result);
  TRY(note_step(rl, &step, gauges));
  bool last = rl->step == s->training.train_iters, stops = gauges->stops && !last;
  at = treadle_clock_seconds();
  if (rl->tests && (is_due(rl->step, s->training.test_interval) || last)) {
    TRY(treadle_rl_test(rl, &step.val_reward));
    step.tested = !rl->stopped;
    stops = stops || rl->stopped;
    if (step.tested) treadle_rl_value(rl, "timing_s/testing", since(&at));
  }
  if (is_due(rl->step, s->training.save_interval) || last || stops) {
    TRY(save(rl, result));
    step.checkpoint = result->checkpoint;
  } else
    TRY(write_step(rl));
  result->stopped = stops;
  result->steps++;
  if (rl->options->progress) rl->options->progress(rl->options->context, &step);
  begin_values(rl);
out:
  return status;
}

/* ---- The run ------------------------------------------------------------------------------------------------------ */

static treadle_status test_before(treadle_rl *rl, treadle_rl_figures *result) {
  double mean, at = treadle_clock_seconds();
  treadle_status status = TREADLE_OK;
  if (!rl->tests || !rl->settings->rl.validation.before_train || rl->from[0] ||
      rl->step == rl->settings->training.train_iters)
    return TREADLE_OK;
  begin_values(rl);
  TRY(treadle_rl_test(rl, &mean));
  result->stopped = rl->stopped;
  if (rl->stopped) return TREADLE_OK;
  treadle_rl_value(rl, "timing_s/testing", since(&at));
  TRY(write_values(rl));
  if (rl->options->progress) {
    const treadle_rl_step step = {.struct_size = sizeof step,
                                  .steps = rl->settings->training.train_iters,
                                  .tested = true,
                                  .val_reward = mean,
                                  .kl = NAN,
                                  .entropy = NAN};
    rl->options->progress(rl->options->context, &step);
  }
  begin_values(rl);
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
  treadle_rl_totals *t = &rl->totals;
  const size_t steps = t->rewards.count, some = steps < 10 ? steps > 0 : steps / 10;
  treadle_status status;
  result->reward_first = result->reward_last = mean(t->rewards.items, some);
  if (steps) result->reward_last = mean(t->rewards.items + (steps - some), some);
  if (steps) qsort(t->seconds.items, steps, sizeof(double), compare);
  result->step_seconds = steps ? t->seconds.items[steps / 2] : NAN;
  result->tokens_per_second = t->all_seconds > 0 ? (double)t->tokens / t->all_seconds : 0;
  result->last_step = rl->step;
  result->val_first = rl->val_first;
  result->val_last = rl->val_last;
  result->logprob_tokens = t->compared;
  result->logprob_differing = t->differing;
  result->logprob_max_diff = t->most_difference;
  result->peak_bytes = g->fullest.peak_bytes;
  result->kv_blocks = g->fullest.kv_blocks;
  result->peak_predicted_bytes = rl->predicted;
  result->losses_digest = rl->losses_digest;
  result->weights = treadle_rl_weights(rl);
  TRY(treadle_rl_call_digest(rl, &result->weights_digest));
out:
  return status;
}

static treadle_status lead(treadle_rl *rl, treadle_rl_figures *result) {
  treadle_rl_gauges gauges;
  treadle_status status;
  if (rl->from[0]) snprintf(result->checkpoint, sizeof result->checkpoint, "%s", rl->from);
  TRY(treadle_rl_call_gauges(rl, &gauges));
  TRY(test_before(rl, result));
  TRY(treadle_rl_call_gauges(rl, &gauges));
  begin_values(rl);
  while (rl->step < rl->settings->training.train_iters && !result->stopped)
    TRY(run_step(rl, result, &gauges));
  TRY(finish(rl, result, &gauges));
  if (result->steps) TRY(treadle_rl_report(rl)); /* else what an earlier start wrote is still true */
out:
  return status;
}

static treadle_status run(treadle_rl *rl, treadle_rl_figures *result) {
  treadle_status status;
  TRY(treadle_rl_agree(rl, treadle_train_config_need(rl->config, false)));
  TRY(treadle_rl_agree(rl, rl->rank == 0 ? treadle_rl_take_folders(rl) : TREADLE_OK));
  TRY(treadle_rl_open(rl));
  TRY(treadle_rl_agree(rl, open_run(rl)));
  if (rl->rank > 0) return treadle_as_failure(treadle_worker_group_serve(&rl->workers));
  status = treadle_as_failure(lead(rl, result));
  return treadle_worker_group_end(&rl->workers, status);
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
  rl->group = group;
  rl->config = config;
  rl->options = &o;
  rl->observer = observer;
  rl->rank = group ? treadle_group_rank(group) : 0;
  rl->ranks = group ? treadle_group_size(group) : 1;
  rl->settings = treadle_train_config_settings(config);
  status = run(rl, &result);
  if (!status) status = treadle_rl_share(rl, &result, sizeof result);
  treadle_rl_close(rl);
  treadle_rl_release_folders(rl);
  treadle_free(rl);
  if (status) goto out;
  TREADLE_GIVE(result_p, &result);
out:
  return status;
}
