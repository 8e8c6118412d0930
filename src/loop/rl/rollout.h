/* Drawing samples of prompts, and scoring them: what a run and an evaluation (eval.c) both do. */
#ifndef TREADLE_RL_ROLLOUT_H
#define TREADLE_RL_ROLLOUT_H

#include "rl/bounds.h"
#include "rl/data.h"
#include "rl/validate.h"
#include "rl/workers.h"

/* What it takes. All of it is the caller's. */
typedef struct treadle_rl_rollout {
  const treadle_train_settings *settings;
  const treadle_rl_crew *crew;
  const treadle_rl_bounds *bounds;
  const treadle_tokenizer *tokenizer; /* NULL: completions have no text */
  treadle_rl_workers *workers;
  treadle_rl_rewards *rewards;
  bool *stopped; /* becomes true when a rank was asked to stop: there are no scores */
} treadle_rl_rollout;

/* ---- loop_draw.c ---- */

/* Samples of `count` prompts, into the batch, after the present ones. */
treadle_status treadle_rl_draw(const treadle_rl_rollout *rollout, const treadle_rl_prompt *const *prompts,
                               int64_t count, const treadle_rl_sampling *sampling, treadle_rl_batch *batch);
/* Begins to score what is in the batch from sample `from` on, and waits for it. preds: NULL, or what samples were taken to answer, by
 * sample. Where one of them fails, and behind the wait, no reward looks at the batch any more. Scores that have not come half a second after the
 * run was asked to stop are not waited for: *rollout->stopped, and there are none. */
treadle_status treadle_rl_score_start(const treadle_rl_rollout *rollout, treadle_rl_batch *batch,
                                      size_t from);
treadle_status treadle_rl_score_wait(const treadle_rl_rollout *rollout, treadle_rl_batch *batch,
                                     size_t from, char **preds);
/* No reward looks at any sample any more. */
void treadle_rl_abandon_scores(treadle_rl_rewards *rewards);

/* loop_token_rewards.c: what the rewards see of the tokens of samples from `from` on; and what reward `number` has given them, which is added to
 * batch->scored. scores: of these samples, by that reward. */
treadle_status treadle_rl_show_tokens(treadle_rl_rewards *rewards, const treadle_rl_batch *batch,
                                      size_t from);
treadle_status treadle_rl_take_token_rewards(const treadle_rl_rewards *rewards, int number,
                                             treadle_rl_batch *batch, size_t from, const double *scores);

/* loop_test.c: val_n samples of each of the tests, in the batch, which is empty before, but has its step. The caller releases it, whatever is returned. */
treadle_status treadle_rl_draw_tests(const treadle_rl_rollout *rollout, const treadle_rl_prompts *tests,
                                     treadle_rl_batch *batch);
/* Their scores, and what these come to, which the caller releases, too. *rollout->stopped: there are no scores. */
treadle_status treadle_rl_judge_tests(const treadle_rl_rollout *rollout, treadle_rl_batch *batch,
                                      treadle_rl_verdicts *verdicts);

/* ---- loop_worker.c ---- */

/* What treadle_rl_call_generate asks for: all prompts, which lie in the message, and how answers are drawn. */
typedef struct treadle_rl_asked {
  treadle_batch *prompts;
  treadle_sampling sampling;
  int32_t end;               /* of sampling.stop_token_ids */
  treadle_observer observer; /* rank 0 tells how far it is; its context is the crew */
} treadle_rl_asked;
treadle_status treadle_rl_take_asked(treadle_rl_crew *crew, const treadle_train_settings *settings,
                                     const treadle_rl_bounds *bounds, treadle_message *in,
                                     treadle_rl_asked *asked_p);
/* What this rank answers: to prompts from `first` on. NULL: another rank of its replica does. */
void treadle_rl_put_answers(treadle_message *out, int64_t first, const treadle_batch *answers);

#endif
