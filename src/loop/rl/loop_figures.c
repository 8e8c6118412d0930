/* What metrics.jsonl gets of a step, and what is written beside it. */
#include "rl/ledger.h"

#include "base/alloc.h"
#include "rl/advantages.h"
#include "rl/critic.h"
#include "rl/dump.h"

#include <math.h>
#include <string.h>

static void add(treadle_rl_values *values, const char *name, double value, bool whole) {
  const treadle_metric metric = {treadle_arena_copy_text(&values->names, name), value, whole};
  if (!metric.name || treadle_array_push(&values->all, metric)) values->lost = true;
}

void treadle_rl_value(treadle_rl_values *values, const char *name, double value) {
  add(values, name, value, false);
}
void treadle_rl_count(treadle_rl_values *values, const char *name, int64_t value) {
  add(values, name, (double)value, true);
}

void treadle_rl_values_clear(treadle_rl_values *values) {
  values->all.count = 0;
  values->lost = false;
  treadle_arena_release(&values->names);
}

void treadle_rl_ledger_close(treadle_rl_ledger *ledger) {
  treadle_metrics_close(ledger->metrics);
  treadle_rl_sample_log_close(ledger->sample_log);
  treadle_trace_close(ledger->trace);
  treadle_array_release(&ledger->losses);
  treadle_array_release(&ledger->totals.seconds);
  treadle_array_release(&ledger->totals.rewards);
  treadle_array_release(&ledger->moments.all);
  treadle_array_release(&ledger->values.all);
  treadle_arena_release(&ledger->values.names);
}

/* ---- Means, largest, smallest -------------------------------------------------------------------------------- */

typedef struct spread {
  double sum, most, least;
  int64_t count;
} spread;

static void take(spread *s, double value) {
  s->sum += value;
  s->most = s->count && s->most > value ? s->most : value;
  s->least = s->count && s->least < value ? s->least : value;
  s->count++;
}

static void put(treadle_rl_values *values, const char *name, const spread *s) {
  char text[96];
  if (!s->count) return;
  snprintf(text, sizeof text, "%s/mean", name);
  treadle_rl_value(values, text, s->sum / (double)s->count);
  snprintf(text, sizeof text, "%s/max", name);
  treadle_rl_value(values, text, s->most);
  snprintf(text, sizeof text, "%s/min", name);
  treadle_rl_value(values, text, s->least);
}

void treadle_rl_batch_values(treadle_rl_values *values, const treadle_train_settings *settings,
                             const treadle_rl_bounds *bounds, const treadle_rl_batch *b) {
  spread model = {0}, score = {0}, reward = {0}, advantage = {0}, ret = {0}, response = {0}, prompt = {0},
         value = {0};
  int64_t cut = 0, long_prompts = 0, tokens = 0;
  for (size_t i = 0; i < b->samples.count; i++) {
    const treadle_rl_made *s = &b->samples.items[i];
    if (treadle_train_has_reward_model(settings)) take(&model, s->model_score);
    take(&score, s->score);
    take(&reward, s->reward);
    take(&response, (double)s->count);
    take(&prompt, (double)s->prompt->count);
    cut += s->cut;
    long_prompts += s->prompt->count >= bounds->prompt_most;
    tokens += s->prompt->count + (int64_t)s->count;
    for (size_t t = s->first; t < s->first + s->count; t++) {
      take(&advantage, b->advantages[t]);
      take(&ret, b->returns[t]);
      if (b->values) take(&value, (double)b->values[t]);
    }
  }
  put(values, "critic/rm_score", &model);
  put(values, "critic/score", &score);
  put(values, "critic/rewards", &reward);
  put(values, "critic/advantages", &advantage);
  put(values, "critic/returns", &ret);
  put(values, "critic/values", &value);
  if (b->values)
    treadle_rl_value(values, "critic/vf_explained_var",
                     treadle_rl_explained_variance(b->returns, b->values, b->ids.count));
  put(values, "response_length", &response);
  treadle_rl_value(values, "response_length/clip_ratio",
                   (double)cut / (double)(response.count ? response.count : 1));
  put(values, "prompt_length", &prompt);
  treadle_rl_value(values, "prompt_length/clip_ratio",
                   (double)long_prompts / (double)(prompt.count ? prompt.count : 1));
  treadle_rl_count(values, "perf/total_num_tokens", tokens);
  if (settings->rl.filter_groups.enable) treadle_rl_count(values, "training/groups_left_out", b->left_out);
}

/* ---- Samples in files ------------------------------------------------------------------------------------------ */

enum { LOGGED = 4 }; /* samples of a step in samples.jsonl */

static treadle_rl_sample sample_of(const treadle_train_settings *settings, const treadle_rl_state *state,
                                   const treadle_rl_batch *b, const treadle_rl_made *s,
                                   char uid[TREADLE_RL_NAME]) {
  const treadle_config_rl *of = &settings->rl;
  treadle_rl_name_sample(b, s, uid);
  return (treadle_rl_sample){.uid = uid,
                             .prompt = s->prompt,
                             .ids = b->ids.items + s->first,
                             .count = (int64_t)s->count,
                             .completion = s->text,
                             .completion_bytes = s->bytes,
                             .rollout = b->rollout.items + s->first,
                             .old = b->old ? b->old + s->first : b->rollout.items + s->first,
                             .ref = b->ref ? b->ref + s->first : NULL,
                             .updated = b->updated ? b->updated + s->first : NULL,
                             .entropies = b->entropies ? b->entropies + s->first : NULL,
                             .score = s->score,
                             .reward = s->reward,
                             .advantage = s->advantage,
                             .advantages = (of->advantage.estimator == TREADLE_RL_REINFORCE_PLUS_PLUS ||
                                            of->advantage.estimator == TREADLE_RL_GAE) &&
                                                   b->advantages
                                               ? b->advantages + s->first
                                               : NULL,
                             .kept_counts = b->kept_counts.count ? b->kept_counts.items + s->first : NULL,
                             .kept = b->kept_counts.count ? b->kept.items + s->kept_first : NULL,
                             .experts = b->experts.count ? b->experts.items + s->experts_first : NULL,
                             .experts_bytes = s->experts_bytes,
                             .experts_top = (size_t)b->experts_top,
                             .kl_coef = of->kl.in_loss ? state->loss_kl_coef : NAN,
                             .mini_batch = s->mini_batch};
}

/* Samples [first, end) as files have them. The caller frees both. */
typedef struct shown_samples {
  treadle_rl_sample *items;
  char (*uids)[TREADLE_RL_NAME];
} shown_samples;

static treadle_status show(const treadle_train_settings *settings, const treadle_rl_state *state,
                           const treadle_rl_batch *b, size_t count, shown_samples *s) {
  s->items = treadle_alloc_array(count + 1, sizeof *s->items);
  s->uids = treadle_alloc_array(count + 1, sizeof *s->uids);
  if (!s->items || !s->uids) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu samples", count);
  for (size_t i = 0; i < count; i++)
    s->items[i] = sample_of(settings, state, b, &b->samples.items[i], s->uids[i]);
  return TREADLE_OK;
}

static void release(shown_samples *s) {
  treadle_free(s->items);
  treadle_free(s->uids);
}

treadle_status treadle_rl_dump_step(const treadle_train_settings *settings, const treadle_rl_state *state,
                                    const treadle_rl_batch *batch) {
  const char *folder = settings->rl.dump_rollouts;
  shown_samples s = {0};
  treadle_status status = TREADLE_OK;
  if (!folder) return TREADLE_OK;
  TRY(show(settings, state, batch, batch->samples.count, &s));
  TRY(treadle_rl_dump_write(folder, state->step, s.items, batch->samples.count));
out:
  release(&s);
  return status;
}

treadle_status treadle_rl_log_samples(treadle_rl_ledger *ledger, const treadle_train_settings *settings,
                                      const treadle_rl_state *state, const treadle_rl_batch *batch) {
  const size_t all = batch->samples.count, count = all < LOGGED ? all : LOGGED;
  shown_samples s = {0};
  treadle_status status;
  TRY(show(settings, state, batch, count, &s));
  TRY(treadle_rl_sample_log_put(ledger->sample_log, state->step, s.items, count));
out:
  release(&s);
  return status;
}

treadle_status treadle_rl_write_test(const treadle_train_settings *settings, const treadle_rl_state *state,
                                     const treadle_rl_batch *b) {
  const int64_t most = settings->rl.validation.log_generations;
  const size_t count = b->samples.count < (size_t)most ? b->samples.count : (size_t)most;
  char folder[PATH_MAX];
  shown_samples s = {0};
  treadle_status status = TREADLE_OK;
  if (most < 1) return TREADLE_OK;
  snprintf(folder, sizeof folder, "%s/validation", settings->actor.save);
  TRY(show(settings, state, b, count, &s));
  TRY(treadle_rl_samples_write(folder, state->step, s.items, count));
out:
  release(&s);
  return status;
}
