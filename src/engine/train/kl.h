/* How far a policy is from its reference, a token at a time. Formulas are verl's (verl/trainer/ppo/core_algos.py,
 * kl_penalty). */
#ifndef TREADLE_TRAIN_KL_H
#define TREADLE_TRAIN_KL_H

#include <stdbool.h>
#include <stdint.h>

/* In the order of the words of rl_config.kl_penalty. d = logprob - ref. */
typedef enum treadle_kl_kind {
  TREADLE_KL_PLAIN,   /* d */
  TREADLE_KL_K1,      /* d */
  TREADLE_KL_ABS,     /* |d| */
  TREADLE_KL_MSE,     /* d^2 / 2 */
  TREADLE_KL_K2,      /* d^2 / 2 */
  TREADLE_KL_LOW_VAR, /* e^-d + d - 1, -d held within 20 and the value within 10 */
  TREADLE_KL_K3,      /* the same */
  TREADLE_KL_KINDS,
  /* The same again with a + behind the name: the slope is that of k2, whose expectation is the gradient of the KL. */
  TREADLE_KL_PLUS = TREADLE_KL_KINDS,
  TREADLE_KL_END = 2 * TREADLE_KL_KINDS
} treadle_kl_kind;

double treadle_kl_value(treadle_kl_kind kind, double logprob, double ref);
/* By logprob; 0 where the value is held. */
double treadle_kl_slope(treadle_kl_kind kind, double logprob, double ref);

/* "low_var_kl" */
const char *treadle_kl_name(treadle_kl_kind kind);
/* Finds a kind by its name; false: it is none. */
bool treadle_kl_find(const char *name, treadle_kl_kind *kind_p);

#endif
