/* treadle_exp (nn/exp.h) of 16 lanes: the same operations in the same order. Included by lanes that are vectors. */
#ifndef TREADLE_NN_LANES_EXP_H
#define TREADLE_NN_LANES_EXP_H

#include "nn/exp.h"

#include <math.h>

LANES_PART lanes lanes_exp(lanes x) {
  lanes round = lanes_all(TREADLE_EXP_ROUND);
  lanes rounded = lanes_add(lanes_mul(x, lanes_all(TREADLE_EXP_LOG2E)), round);
  lanes n = lanes_sub(rounded, round);
  lanes r = lanes_sub(x, lanes_mul(n, lanes_all(TREADLE_EXP_LN2_HIGH)));
  r = lanes_sub(r, lanes_mul(n, lanes_all(TREADLE_EXP_LN2_LOW)));
  lanes q = lanes_add(lanes_mul(r, lanes_all(TREADLE_EXP_Q4)), lanes_all(TREADLE_EXP_Q3));
  q = lanes_add(lanes_mul(q, r), lanes_all(TREADLE_EXP_Q2));
  q = lanes_add(lanes_mul(q, r), lanes_all(TREADLE_EXP_Q1));
  q = lanes_add(lanes_mul(q, r), lanes_all(TREADLE_EXP_Q0));
  lanes power = lanes_add(lanes_all(1.0f), lanes_add(r, lanes_mul(lanes_mul(r, r), q)));
  lanes made = lanes_raise(power, rounded);
  made = lanes_where_less(x, lanes_all(TREADLE_EXP_LEAST), lanes_all(0.0f), made);
  return lanes_where_less(lanes_all(TREADLE_EXP_MOST), x, lanes_all(INFINITY), made);
}

#endif
