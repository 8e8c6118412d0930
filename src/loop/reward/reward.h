/* Rewards: functions from completions to numbers, each a file reward_<name>.c and a row in the table of reward.c.
 *
 * A row judges one sample at a time (judge), or a whole batch (score). What it keeps from create on is its own: `state`. */
#ifndef TREADLE_REWARD_REWARD_H
#define TREADLE_REWARD_REWARD_H

#include "base/status.h"
#include "treadle_loop.h"

#include <stdatomic.h>

/* The tokens of what is judged, for rewards that give each token its own. */
typedef struct treadle_reward_tokens {
  const int32_t *ids;  /* of all samples */
  const size_t *first; /* [count] where those of each sample begin, samples[i].tokens of them */
  double *rewards;     /* like ids: what each token gets */
  bool
      *given; /* [count] has the sample such rewards? Then its score is their sum, in the order of tokens */
} treadle_reward_tokens;

/* What is to be judged, and where results go: scores [count], preds [count], which begin as 0 and NULL. */
typedef struct treadle_reward_batch {
  const treadle_reward_sample *samples;
  size_t count;
  double *scores;
  char **preds;                        /* NULL: nobody wants them */
  const treadle_reward_tokens *tokens; /* NULL: they are not known */
  const atomic_bool *stops;            /* nobody waits any more: TREADLE_CANCELLED as soon as may be */
} treadle_reward_batch;

typedef struct treadle_reward_rule {
  const char *name, *argument; /* "regex", "P": what stands behind the colon; NULL: nothing may */
  const char *help;
  bool needs_answers;
  bool judges_texts; /* so that completions without a tokenizer, which are empty texts, are not for it */
  /* Can a completion be right that is compared with this answer? NULL: with any. */
  bool (*can_match)(const char *answer);
  /* *state_p stays NULL where nothing is kept. May be NULL; also release. */
  treadle_status (*create)(const treadle_reward_options *options, const char *argument, void **state_p);
  void (*release)(void *state);
  /* pred_p may be NULL; what it is given comes from treadle_alloc. One of the two is there. */
  treadle_status (*judge)(void *state, const treadle_reward_sample *sample, double *score_p, char **pred_p);
  treadle_status (*score)(void *state, const treadle_reward_batch *batch);
} treadle_reward_rule;

extern const treadle_reward_rule treadle_reward_sequence, treadle_reward_gsm8k, treadle_reward_math,
    treadle_reward_regex, treadle_reward_length, treadle_reward_command;

/* Must its samples have answers? Rewards that look at answers where there are some do not need them. */
bool treadle_reward_needs_answers(const treadle_reward *reward);
/* Can some completion be right by this answer? Where none can, the score is 0 whatever a policy learns. */
bool treadle_reward_can_match(const treadle_reward *reward, const char *answer);
/* Does it judge what completions say, and not only how many tokens they have? */
bool treadle_reward_judges_texts(const treadle_reward *reward);

/* treadle_reward_start, with the tokens of the samples, which stay as they are until the wait. NULL: as that one. */
treadle_status treadle_reward_start_tokens(treadle_reward *reward, const treadle_reward_sample *samples,
                                           size_t count, const treadle_reward_tokens *tokens);
/* Waits so long at most. Has what was started come to its end, so that treadle_reward_wait is none? */
bool treadle_reward_ends_within(treadle_reward *reward, double seconds);
/* Ends what was started and is not waited for: when this is back, nobody reads the samples any more. */
void treadle_reward_abandon(treadle_reward *reward);

/* *pred_p = a copy of `count` bytes; nothing where pred_p is NULL. */
treadle_status treadle_reward_keep(const char *bytes, size_t count, char **pred_p);

#endif
