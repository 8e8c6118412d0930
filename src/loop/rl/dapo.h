/* What DAPO adds to rewards (arXiv 2503.14476; verl/workers/reward_manager/dapo.py). */
#ifndef TREADLE_RL_DAPO_H
#define TREADLE_RL_DAPO_H

#include <stdint.h>

/* What is added to the reward of a response of `length` tokens: 0 up to most - buffer, and then down to -factor at `most`. */
double treadle_rl_overlong_penalty(int64_t length, int64_t most, int64_t buffer, double factor);

#endif
