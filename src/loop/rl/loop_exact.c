/* What exact mode needs: that both layouts compute in one type, and with sums whose leaves both of them cut. Engines refuse cuts within a leaf
 * themselves; what they cannot see alone is looked at here. And its check: the trainer's log-probabilities of what was generated beside the
 * generator's, bit for bit. */
#include "rl/critic.h"
#include "rl/ledger.h"
#include "rl/models.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "layout/layout.h"
#include "pass/transformer.h"

#include <math.h>
#include <string.h>

static const char *name_of(treadle_dtype dtype) { return dtype == TREADLE_BF16 ? "bf16" : "fp32"; }

static treadle_dtype computed_in(const treadle_layout *layout, const treadle_transformer *d) {
  return treadle_layout_dtype(layout, &layout->model->tensors[d->embed]) == TREADLE_BF16 ? TREADLE_BF16
                                                                                         : TREADLE_FP32;
}

treadle_status treadle_rl_check_exact(const treadle_rl_models *models, const treadle_rl_task *task) {
  treadle_transformer *d = NULL;
  treadle_status status = TREADLE_OK;
  if (!task->settings->actor.exact) return TREADLE_OK;
  TRY(treadle_transformer_create(models->model, &d));
  treadle_dtype train = computed_in(models->train, d), infer = computed_in(models->infer, d);
  if (train != infer)
    status = treadle_fail(
        TREADLE_REFUSED,
        "exact mode: '%s' computes in %s, '%s' in %s, so log-probabilities are not the same bits: "
        "give both one type (%s, %s), or actor_config.exact=false",
        models->train->text, name_of(train), models->infer->text, name_of(infer),
        TREADLE_RL_PLACE(task, training.bf16), TREADLE_RL_PLACE(task, generate.layout));
out:
  treadle_transformer_destroy(d);
  return status;
}

/* ---- The check -------------------------------------------------------------------------------------------------- */

bool treadle_rl_check_is_due(const treadle_train_settings *s, const treadle_rl_batch *batch) {
  return !s->actor.exact ||
         (s->rl.logprobs.exact_check > 0 && batch->step % s->rl.logprobs.exact_check == 0);
}

bool treadle_rl_update_checks(const treadle_train_settings *s, const treadle_rl_batch *batch) {
  return s->actor.exact && !treadle_rl_warms_up(s, batch->step) &&
         (s->rl.batches.mini_batch_samples <= 0 ||
          (size_t)s->rl.batches.mini_batch_samples >= batch->samples.count);
}

float *treadle_rl_values_of(const treadle_rl_batch *b) {
  float *values = treadle_alloc_array(b->ids.count + 1, sizeof *values);
  if (values) memset(values, 0, (b->ids.count + 1) * sizeof *values);
  return values;
}

treadle_status treadle_rl_grow_values(const treadle_rl_batch *b, size_t from, const char *what,
                                      float **values_p) {
  const size_t before = from < b->samples.count ? b->samples.items[from].first : b->ids.count;
  float *all = treadle_rl_values_of(b);
  if (!all) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %s", what);
  if (*values_p && from) memcpy(all, *values_p, before * sizeof *all);
  treadle_free(*values_p);
  *values_p = all;
  return TREADLE_OK;
}

treadle_status treadle_rl_take_differing(treadle_rl_batch *b) {
  if (!b->experts.count || b->awaits_experts || b->differing) return TREADLE_OK;
  b->differing = treadle_alloc_array(b->samples.count, sizeof *b->differing);
  if (!b->differing)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for counts of %zu samples", b->samples.count);
  memset(b->differing, 0, b->samples.count * sizeof *b->differing);
  return TREADLE_OK;
}

treadle_status treadle_rl_take_old(treadle_rl_batch *b) {
  b->old = treadle_rl_values_of(b);
  b->entropies = treadle_rl_values_of(b);
  if (!b->old || !b->entropies) return treadle_fail(TREADLE_NO_MEMORY, "no memory for log-probabilities");
  return treadle_rl_take_differing(b);
}

typedef struct comparison {
  int64_t tokens, differing, sample, token; /* sample, token: where the first one is */
  int64_t elsewhere,
      first_elsewhere; /* tokens that would have gone to other experts; the first sample with some */
  double most, sum;
} comparison;

static comparison compare(const treadle_rl_batch *b) {
  comparison c = {0};
  for (size_t i = 0; i < b->samples.count; i++) {
    const treadle_rl_made *s = &b->samples.items[i];
    if (b->differing && b->differing[i] && !c.elsewhere) c.first_elsewhere = (int64_t)i;
    c.elsewhere += b->differing ? b->differing[i] : 0;
    for (size_t t = s->first; t < s->first + s->count; t++, c.tokens++) {
      double difference = fabs(exp((double)b->old[t]) - exp((double)b->rollout.items[t]));
      c.sum += difference;
      if (difference > c.most) c.most = difference;
      if (memcmp(&b->old[t], &b->rollout.items[t], sizeof(float)) == 0) continue;
      if (!c.differing++) {
        c.sample = (int64_t)i;
        c.token = (int64_t)(t - s->first);
      }
    }
  }
  return c;
}

static double most_difference(const treadle_rl_batch *b) {
  double most = 0;
  for (size_t i = 0; i < b->samples.count; i++)
    for (size_t t = b->samples.items[i].first; t < b->samples.items[i].first + b->samples.items[i].count;
         t++)
      if (fabs((double)b->old[t] - (double)b->rollout.items[t]) > most)
        most = fabs((double)b->old[t] - (double)b->rollout.items[t]);
  return most;
}

static void note(treadle_rl_ledger *ledger, const comparison *c, double most) {
  treadle_rl_value(&ledger->values, "training/rollout_probs_diff_max", c->most);
  treadle_rl_value(&ledger->values, "training/rollout_probs_diff_mean",
                   c->tokens ? c->sum / (double)c->tokens : 0);
  treadle_rl_count(&ledger->values, "training/logprob_tokens", c->tokens);
  treadle_rl_count(&ledger->values, "training/logprob_differing", c->differing);
  ledger->totals.compared += c->tokens;
  ledger->totals.differing += c->differing;
  if (most > ledger->totals.most_difference) ledger->totals.most_difference = most;
}

treadle_status treadle_rl_compare(treadle_rl_ledger *ledger, const treadle_train_settings *settings,
                                  const treadle_rl_batch *b) {
  const comparison c = compare(b);
  note(ledger, &c, most_difference(b));
  if (b->differing) treadle_rl_count(&ledger->values, "actor/router_differing", c.elsewhere);
  if (!settings->actor.exact || (!c.differing && !c.elsewhere)) return TREADLE_OK;
  if (!c.differing)
    return treadle_fail(
        TREADLE_DIFFERENT,
        "step %lld: %lld tokens would have gone to other experts in training, the first of prompt %lld, "
        "sample %lld; their log-probabilities are the same bits",
        (long long)b->step, (long long)c.elsewhere, (long long)b->samples.items[c.first_elsewhere].group,
        (long long)b->samples.items[c.first_elsewhere].index);
  const treadle_rl_made *s = &b->samples.items[c.sample];
  size_t at = s->first + (size_t)c.token;
  return treadle_fail(
      TREADLE_DIFFERENT,
      "step %lld: %lld of %lld log-probabilities are not the trainer's bits, the first of prompt %lld, "
      "sample %lld, token %lld: generated with %.9g, computed again as %.9g",
      (long long)b->step, (long long)c.differing, (long long)c.tokens, (long long)s->group,
      (long long)s->index, (long long)c.token, (double)b->rollout.items[at], (double)b->old[at]);
}

treadle_status treadle_rl_compare_update(treadle_rl_ledger *ledger, const treadle_train_settings *settings,
                                         treadle_rl_batch *b, const float *logprobs,
                                         const float *entropies) {
  treadle_status status;
  TRY(treadle_rl_take_old(b));
  for (size_t i = 0; i < b->samples.count; i++) {
    const treadle_rl_made *s = &b->samples.items[i];
    if (!s->count) continue;
    memcpy(b->old + s->first, logprobs + s->first, s->count * sizeof *logprobs);
    memcpy(b->entropies + s->first, entropies + s->first, s->count * sizeof *entropies);
  }
  TRY(treadle_rl_compare(ledger, settings, b));
out:
  return status;
}
