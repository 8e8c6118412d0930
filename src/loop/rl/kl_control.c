#include "rl/kl_control.h"

double treadle_rl_kl_control(const treadle_rl_kl_controller *controller, double coefficient, double kl,
                             int64_t samples) {
  const double error = kl / controller->target - 1;
  const double held = error > 0.2 ? 0.2 : error < -0.2 ? -0.2 : error;
  if (!controller->adaptive) return coefficient;
  return coefficient * (1 + held * (double)samples / controller->horizon);
}
