#include "rl/kl.h"

#include <math.h>

enum { EXPONENT = 20, VALUE = 10 };

static double hold(double value, double most) {
  return value > most ? most : value < -most ? -most : value;
}

double treadle_rl_kl_value(treadle_rl_kl_kind kind, double logprob, double ref) {
  const double d = logprob - ref;
  switch ((int)kind % TREADLE_RL_KL_KINDS) {
  case TREADLE_RL_KL:
  case TREADLE_RL_K1: return d;
  case TREADLE_RL_ABS: return fabs(d);
  case TREADLE_RL_MSE:
  case TREADLE_RL_K2: return 0.5 * d * d;
  case TREADLE_RL_LOW_VAR_KL:
  case TREADLE_RL_K3: {
    double held = hold(-d, EXPONENT);
    return hold(exp(held) - held - 1, VALUE);
  }
  }
  return NAN;
}

double treadle_rl_kl_slope(treadle_rl_kl_kind kind, double logprob, double ref) {
  const double d = logprob - ref;
  switch (kind >= TREADLE_RL_KL_PLUS ? TREADLE_RL_K2 : kind) {
  case TREADLE_RL_KL:
  case TREADLE_RL_K1: return 1;
  case TREADLE_RL_ABS: return d > 0 ? 1 : d < 0 ? -1 : 0;
  case TREADLE_RL_MSE:
  case TREADLE_RL_K2: return d;
  case TREADLE_RL_LOW_VAR_KL:
  case TREADLE_RL_K3: {
    double held = hold(-d, EXPONENT), value = exp(held) - held - 1;
    return held != -d || value > VALUE ? 0 : 1 - exp(-d);
  }
  default: break;
  }
  return NAN;
}

double treadle_rl_kl_control(const treadle_rl_kl_controller *controller, double coefficient, double kl,
                             int64_t samples) {
  if (!controller->adaptive) return coefficient;
  return coefficient * (1 + hold(kl / controller->target - 1, 0.2) * (double)samples / controller->horizon);
}
