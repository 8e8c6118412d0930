/* The coefficient that a KL is multiplied by, from step to step (verl/trainer/ppo/core_algos.py, the KL controllers). */
#ifndef TREADLE_RL_KL_CONTROL_H
#define TREADLE_RL_KL_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct treadle_rl_kl_controller {
  bool adaptive;
  double target, horizon;
} treadle_rl_kl_controller;

/* The coefficient after a step with this KL and this many samples. */
double treadle_rl_kl_control(const treadle_rl_kl_controller *controller, double coefficient, double kl,
                             int64_t samples);

#endif
