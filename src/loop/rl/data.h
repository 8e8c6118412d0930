/* What rank 0 draws prompts from, and what scores the answers. */
#ifndef TREADLE_RL_DATA_H
#define TREADLE_RL_DATA_H

#include "base/arena.h"
#include "base/array.h"
#include "reward/reward.h"
#include "rl/prompts.h"
#include "run/order.h"
#include "treadle_loop.h"

enum { TREADLE_RL_REWARDS = 8 };

typedef struct treadle_rl_data {
  treadle_rl_prompts *prompts, *tests; /* tests: NULL: there are none */
  treadle_train_order order;           /* in which prompts are drawn */
} treadle_rl_data;

void treadle_rl_data_close(treadle_rl_data *data);

/* A sample's score is the sum of what all of them say, each times its weight. */
typedef struct treadle_rl_rewards {
  treadle_reward *items[TREADLE_RL_REWARDS];
  double weights[TREADLE_RL_REWARDS];
  int count;
  bool needs_answers;                               /* one of them does */
  TREADLE_ARRAY(treadle_reward_sample) judged;      /* what they see now */
  treadle_arena judged_texts;                       /* and of what follows */
  treadle_reward_tokens tokens[TREADLE_RL_REWARDS]; /* what each gives their tokens */
} treadle_rl_rewards;

void treadle_rl_rewards_release(treadle_rl_rewards *rewards);

#endif
