#include "train/kl.h"

#include <math.h>
#include <string.h>

enum { EXPONENT = 20, VALUE = 10 };

static double hold(double value, double most) {
  return value > most ? most : value < -most ? -most : value;
}

double treadle_kl_value(treadle_kl_kind kind, double logprob, double ref) {
  const double d = logprob - ref;
  switch ((int)kind % TREADLE_KL_KINDS) {
  case TREADLE_KL_PLAIN:
  case TREADLE_KL_K1: return d;
  case TREADLE_KL_ABS: return fabs(d);
  case TREADLE_KL_MSE:
  case TREADLE_KL_K2: return 0.5 * d * d;
  case TREADLE_KL_LOW_VAR:
  case TREADLE_KL_K3: {
    double held = hold(-d, EXPONENT);
    return hold(exp(held) - held - 1, VALUE);
  }
  }
  return NAN;
}

double treadle_kl_slope(treadle_kl_kind kind, double logprob, double ref) {
  const double d = logprob - ref;
  switch (kind >= TREADLE_KL_PLUS ? TREADLE_KL_K2 : kind) {
  case TREADLE_KL_PLAIN:
  case TREADLE_KL_K1: return 1;
  case TREADLE_KL_ABS: return d > 0 ? 1 : d < 0 ? -1 : 0;
  case TREADLE_KL_MSE:
  case TREADLE_KL_K2: return d;
  case TREADLE_KL_LOW_VAR:
  case TREADLE_KL_K3: {
    double held = hold(-d, EXPONENT), value = exp(held) - held - 1;
    return held != -d || value > VALUE ? 0 : 1 - exp(-d);
  }
  default: break;
  }
  return NAN;
}

/* ---- Names ---- */

/* In the order of the kinds. */
static const char *const names[TREADLE_KL_END] = {
    "kl",  "k1",  "abs",  "mse",  "k2",  "low_var_kl",  "k3", /* and with the slope of k2 */
    "kl+", "k1+", "abs+", "mse+", "k2+", "low_var_kl+", "k3+"};

const char *treadle_kl_name(treadle_kl_kind kind) { return names[kind]; }

bool treadle_kl_find(const char *name, treadle_kl_kind *kind_p) {
  int i = 0;
  while (i < TREADLE_KL_END && strcmp(names[i], name) != 0) i++;
  if (i == TREADLE_KL_END) return false;
  *kind_p = (treadle_kl_kind)i;
  return true;
}
