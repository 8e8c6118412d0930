/* What a test says: figures by data source and for all, as verl names them (verl/trainer/ppo/metric_utils.py). N samples of each prompt:
 *
 *   mean@N         mean of the scores
 *   best@N/mean    what the best of N draws with replacement from a prompt's samples scores; verl draws 1,000 times, here it is the expectation
 *   maj@N/mean     what the answer that most of N draws give scores, over 1,000 draws with a fixed seed; where the reward says of
 *                  all samples what it took for the answer
 *
 * A prompt counts once, and a figure is the mean over prompts. */
#ifndef TREADLE_RL_VALIDATE_H
#define TREADLE_RL_VALIDATE_H

#include "base/arena.h"
#include "base/array.h"
#include "base/status.h"

typedef struct treadle_rl_judged {
  const char *data_source;
  int64_t prompt; /* samples of one prompt are neighbours */
  double score;
  const char *pred; /* NULL: the reward does not say */
} treadle_rl_judged;

typedef struct treadle_rl_verdict {
  const char *name; /* "val-core/gsm8k/reward/mean@8" */
  double value;
} treadle_rl_verdict;

typedef struct treadle_rl_verdicts {
  TREADLE_ARRAY(treadle_rl_verdict) items;
  double mean, best, majority; /* over all prompts; majority: NaN: not every prompt has one */
  bool has_majority;
  treadle_arena arena;
} treadle_rl_verdicts;

/* judged [count], n of each prompt. *verdicts_p is ended by release, whatever is returned. */
treadle_status treadle_rl_validate(const treadle_rl_judged *judged, size_t count, int64_t n,
                                   treadle_rl_verdicts *verdicts_p);
void treadle_rl_verdicts_release(treadle_rl_verdicts *verdicts);

/* Of the n samples of one prompt. scores, drawn [n]: room for the computation. */
double treadle_rl_best(const treadle_rl_judged *judged, int64_t n, double *scores);
/* NaN: a sample has no pred. */
double treadle_rl_majority(const treadle_rl_judged *judged, int64_t n, int64_t *drawn);

#endif
