/* Prompts that are not trained on: val_n samples of each, drawn as in training, with seeds of their own that no step shares. In a run, and
 * alone (eval.c). */
#include "rl/loop.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>

enum { TEST_KEY = -1, PROMPTS_AT_ONCE = 4096 };

static treadle_status take_prompts(treadle_rl *rl, treadle_rl_batch *b) {
  const treadle_train_settings *s = rl->settings;
  const treadle_rl_sampling sampling = {.n = s->rl.validation.n,
                                        .key = TEST_KEY,
                                        .temperature =
                                            s->rl.validation.greedy ? 0 : s->rl.validation.temperature,
                                        .top_p = s->rl.validation.top_p,
                                        .top_k = s->rl.validation.top_k};
  size_t count;
  const treadle_rl_prompt *items = treadle_rl_prompts_items(rl->tests, &count);
  const treadle_rl_prompt **prompts = treadle_alloc_array(count, sizeof *prompts);
  treadle_status status = TREADLE_OK;
  if (!prompts) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu prompts", count);
  for (size_t i = 0; i < count; i++) prompts[i] = &items[i];
  for (size_t first = 0; first < count; first += PROMPTS_AT_ONCE) {
    size_t some = count - first < PROMPTS_AT_ONCE ? count - first : PROMPTS_AT_ONCE;
    TRY(treadle_rl_draw(rl, prompts + first, (int64_t)some, &sampling, b));
  }
out:
  treadle_free(prompts);
  return status;
}

static treadle_status judge(const treadle_rl *rl, const treadle_rl_batch *b, char *const *preds,
                            treadle_rl_verdicts *verdicts) {
  treadle_rl_judged *judged = treadle_alloc_array(b->samples.count + 1, sizeof *judged);
  treadle_status status;
  if (!judged) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu samples", b->samples.count);
  for (size_t i = 0; i < b->samples.count; i++) {
    const treadle_rl_made *s = &b->samples.items[i];
    judged[i] = (treadle_rl_judged){s->prompt->data_source, s->group, s->score, preds[i]};
  }
  status = treadle_rl_validate(judged, b->samples.count, rl->settings->rl.validation.n, verdicts);
  treadle_free(judged);
  return status;
}

treadle_status treadle_rl_judge_tests(treadle_rl *rl, treadle_rl_batch *batch,
                                      treadle_rl_verdicts *verdicts) {
  char **preds = NULL;
  treadle_status status;
  batch->tests = true;
  batch->step = rl->step;
  TRY(take_prompts(rl, batch));
  preds = treadle_alloc_array(batch->samples.count + 1, sizeof *preds);
  if (!preds) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu samples", batch->samples.count));
  TRY(treadle_rl_score_start(rl, batch, 0));
  TRY(treadle_rl_score_wait(rl, batch, 0, preds));
  if (!rl->stopped) TRY(judge(rl, batch, preds, verdicts));
out:
  for (size_t i = 0; preds && i < batch->samples.count; i++) free(preds[i]);
  treadle_free(preds);
  return treadle_as_failure(status);
}

treadle_status treadle_rl_test(treadle_rl *rl, double *mean_p) {
  treadle_rl_batch b = {0};
  treadle_rl_verdicts verdicts = {0};
  treadle_status status;
  treadle_rl_doing(rl, "the test");
  TRY(treadle_rl_judge_tests(rl, &b, &verdicts));
  if (rl->stopped) goto out;
  for (size_t i = 0; i < verdicts.items.count; i++)
    treadle_rl_value(rl, verdicts.items.items[i].name, verdicts.items.items[i].value);
  *mean_p = verdicts.mean;
  TRY(treadle_rl_write_test(rl, &b));
  if (isnan(rl->val_first)) rl->val_first = *mean_p;
  rl->val_last = *mean_p;
out:
  treadle_rl_verdicts_release(&verdicts);
  treadle_rl_batch_release(&b);
  return status;
}
