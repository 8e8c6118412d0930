/* Prompts that are not trained on: val_n samples of each, drawn as in training, with seeds of their own that no step shares. In a run, and
 * alone (eval.c). */
#include "rl/loop.h"

#include "base/alloc.h"

#include <stdlib.h>

enum { TEST_KEY = -1, PROMPTS_AT_ONCE = 4096 };

static treadle_status take_prompts(const treadle_rl_rollout *r, const treadle_rl_prompts *tests,
                                   treadle_rl_batch *b) {
  const treadle_train_settings *s = r->settings;
  const treadle_rl_sampling sampling = {.n = s->rl.validation.n,
                                        .key = TEST_KEY,
                                        .temperature =
                                            s->rl.validation.greedy ? 0 : s->rl.validation.temperature,
                                        .top_p = s->rl.validation.top_p,
                                        .top_k = s->rl.validation.top_k};
  size_t count;
  const treadle_rl_prompt *items = treadle_rl_prompts_items(tests, &count);
  const treadle_rl_prompt **prompts = treadle_alloc_array(count, sizeof *prompts);
  treadle_status status = TREADLE_OK;
  if (!prompts) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu prompts", count);
  for (size_t i = 0; i < count; i++) prompts[i] = &items[i];
  for (size_t first = 0; first < count; first += PROMPTS_AT_ONCE) {
    size_t some = count - first < PROMPTS_AT_ONCE ? count - first : PROMPTS_AT_ONCE;
    TRY(treadle_rl_draw(r, prompts + first, (int64_t)some, &sampling, b));
  }
out:
  treadle_free(prompts);
  return status;
}

static treadle_status judge(const treadle_train_settings *settings, const treadle_rl_batch *b,
                            char *const *preds, treadle_rl_verdicts *verdicts) {
  treadle_rl_judged *judged = treadle_alloc_array(b->samples.count + 1, sizeof *judged);
  treadle_status status;
  if (!judged) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu samples", b->samples.count);
  for (size_t i = 0; i < b->samples.count; i++) {
    const treadle_rl_made *s = &b->samples.items[i];
    judged[i] = (treadle_rl_judged){s->prompt->data_source, s->group, s->score, preds[i]};
  }
  status = treadle_rl_validate(judged, b->samples.count, settings->rl.validation.n, verdicts);
  treadle_free(judged);
  return status;
}

treadle_status treadle_rl_draw_tests(const treadle_rl_rollout *r, const treadle_rl_prompts *tests,
                                     treadle_rl_batch *batch) {
  batch->tests = true;
  return take_prompts(r, tests, batch);
}

treadle_status treadle_rl_judge_tests(const treadle_rl_rollout *r, treadle_rl_batch *batch,
                                      treadle_rl_verdicts *verdicts) {
  char **preds = treadle_alloc_array(batch->samples.count + 1, sizeof *preds);
  treadle_status status;
  if (!preds) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu samples", batch->samples.count));
  TRY(treadle_rl_score_start(r, batch, 0));
  TRY(treadle_rl_score_wait(r, batch, 0, preds));
  if (!*r->stopped) TRY(judge(r->settings, batch, preds, verdicts));
out:
  for (size_t i = 0; preds && i < batch->samples.count; i++) free(preds[i]);
  treadle_free(preds);
  return treadle_as_failure(status);
}

treadle_status treadle_rl_test(treadle_rl *rl, double *mean_p) {
  const treadle_rl_rollout rollout = treadle_rl_rollout_of(rl);
  treadle_rl_verdicts verdicts = {0};
  treadle_status status;
  TRY(treadle_rl_judge_tests(&rollout, &rl->tests, &verdicts));
  if (rl->stopped) goto out;
  for (size_t i = 0; i < verdicts.items.count; i++)
    treadle_rl_value(&rl->ledger.values, verdicts.items.items[i].name, verdicts.items.items[i].value);
  *mean_p = verdicts.mean;
  TRY(treadle_rl_write_test(rl->task.settings, &rl->state, &rl->tests));
out:
  treadle_rl_batch_clear(&rl->tests);
  treadle_rl_verdicts_release(&verdicts);
  return status;
}
