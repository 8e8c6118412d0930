/* How far a policy is from its reference, a token at a time, and the coefficient that a KL is multiplied by. Formulas are verl's
 * (verl/trainer/ppo/core_algos.py, kl_penalty and the KL controllers). */
#ifndef TREADLE_RL_KL_H
#define TREADLE_RL_KL_H

#include <stdbool.h>
#include <stdint.h>

/* In the order of the words of rl_config.kl_penalty. d = logprob - ref. */
typedef enum treadle_rl_kl_kind {
  TREADLE_RL_KL,         /* d */
  TREADLE_RL_K1,         /* d */
  TREADLE_RL_ABS,        /* |d| */
  TREADLE_RL_MSE,        /* d^2 / 2 */
  TREADLE_RL_K2,         /* d^2 / 2 */
  TREADLE_RL_LOW_VAR_KL, /* e^-d + d - 1, -d held within 20 and the value within 10 */
  TREADLE_RL_K3,         /* the same */
  TREADLE_RL_KL_KINDS,
  /* The same again with a + behind the name: the slope is that of k2, whose expectation is the gradient of the KL. */
  TREADLE_RL_KL_PLUS = TREADLE_RL_KL_KINDS,
  TREADLE_RL_KL_END = 2 * TREADLE_RL_KL_KINDS
} treadle_rl_kl_kind;

double treadle_rl_kl_value(treadle_rl_kl_kind kind, double logprob, double ref);
/* By logprob; 0 where the value is held. */
double treadle_rl_kl_slope(treadle_rl_kl_kind kind, double logprob, double ref);

typedef struct treadle_rl_kl_controller {
  bool adaptive;
  double target, horizon;
} treadle_rl_kl_controller;

/* The coefficient after a step with this KL and this many samples. */
double treadle_rl_kl_control(const treadle_rl_kl_controller *controller, double coefficient, double kl,
                             int64_t samples);

#endif
