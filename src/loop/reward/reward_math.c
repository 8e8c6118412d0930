/* Competition mathematics: the last \boxed{...} of the completion against that of the answer, which may also be plain. */
#include "reward/reward.h"

#include "base/alloc.h"
#include "reward/math_form.h"

#include <string.h>

/* Shown is the form, so that answers which are the same are the same text: a majority is counted by it. */
static treadle_status show(const char *box, char **pred_p) {
  treadle_builder form = {0};
  bool formed = treadle_math_form(box, &form);
  const char *text = formed && form.text ? form.text : formed ? "" : box;
  treadle_status status = form.failed ? treadle_fail(TREADLE_NO_MEMORY, "no memory for an answer")
                                      : treadle_reward_keep(text, strlen(text), pred_p);
  treadle_builder_release(&form);
  return status;
}

static treadle_status judge(void *state, const treadle_reward_sample *sample, double *score_p,
                            char **pred_p) {
  char *box = NULL, *answer = NULL;
  const char *found, *wanted;
  bool same;
  treadle_status status = TREADLE_OK;
  (void)state;
  size_t bytes = treadle_math_box(sample->completion, sample->completion_bytes, &found), wanted_bytes;
  if (!found) return TREADLE_OK; /* 0, and nothing to show */
  wanted_bytes = treadle_math_box(sample->answer, strlen(sample->answer), &wanted);
  if (!wanted) wanted = sample->answer, wanted_bytes = strlen(wanted);
  TRY(treadle_reward_keep(found, bytes, &box));
  TRY(treadle_reward_keep(wanted, wanted_bytes, &answer));
  TRY(treadle_math_same(box, answer, &same));
  *score_p = same;
  if (pred_p) TRY(show(box, pred_p));
out:
  treadle_free(box);
  treadle_free(answer);
  return status;
}

const treadle_reward_rule treadle_reward_math = {
    .name = "math",
    .help = "1 if the last \\boxed{...} equals the answer after MATH's normalisation, else 0",
    .needs_answers = true,
    .judges_texts = true,
    .judge = judge};
