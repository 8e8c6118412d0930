/* x / (1 + e^-x) * up, of 16 lanes. Included behind the lanes. */
#ifndef TREADLE_NN_LANES_SILU_H
#define TREADLE_NN_LANES_SILU_H

LANES_PART lanes lanes_silu(lanes x, lanes up) {
  lanes below = lanes_add(lanes_all(1.0f), lanes_exp(lanes_sub(lanes_all(-0.0f), x)));
  return lanes_mul(lanes_div(x, below), up);
}

#endif
