#include "rl/dapo.h"

double treadle_rl_overlong_penalty(int64_t length, int64_t most, int64_t buffer, double factor) {
  const int64_t over = length - (most - buffer);
  return over > 0 && buffer > 0 ? -(double)over / (double)buffer * factor : 0;
}
