/* AdamW in terms of lanes (nn/lanes.h); each file that includes this makes one treadle_adam_ops of it. */
#ifndef TREADLE_NN_ADAM_BODY_H
#define TREADLE_NN_ADAM_BODY_H

#include "nn/adam_kinds.h"
#include "nn/lanes_rows.h"

LANES_PART void store_narrow(uint16_t *to, lanes x, int64_t left) {
  if (left >= LANES)
    lanes_store_bf16(to, x);
  else
    lanes_store_bf16_part(to, x, (int)left);
}

LANES_PART lanes step_lanes(const treadle_adam_factors *f, const treadle_adam_run *run, int64_t i) {
  const int64_t left = run->count - i;
  lanes g = lanes_mul(load(run->grad + i, left), lanes_all(f->scale));
  lanes average = load(run->exp_avg + i, left), square = load(run->exp_avg_sq + i, left);
  lanes apart = lanes_sub(g, average);
  average = f->mix < 0.5f ? lanes_add(average, lanes_mul(apart, lanes_all(f->mix)))
                          : lanes_sub(g, lanes_mul(apart, lanes_all(1.0f - f->mix)));
  square =
      lanes_add(lanes_mul(square, lanes_all(f->keep_sq)), lanes_mul(lanes_mul(g, lanes_all(f->mix_sq)), g));
  store(run->exp_avg + i, average, left);
  store(run->exp_avg_sq + i, square, left);
  lanes size = lanes_add(lanes_div(lanes_sqrt(square), lanes_all(f->root)), lanes_all(f->eps));
  lanes change = lanes_div(lanes_mul(average, lanes_all(f->minus_step)), size);
  lanes master = lanes_add(lanes_mul(load(run->master + i, left), lanes_all(f->decay)), change);
  store(run->master + i, master, left);
  return master;
}

LANES_CODE static void step(const treadle_adam_factors *factors, const treadle_adam_run *run) {
  const treadle_adam_factors f = *factors;
  const treadle_adam_run r = *run;
  if (r.weights && r.dtype == TREADLE_BF16)
    for (int64_t i = 0; i < r.count; i += LANES)
      store_narrow((uint16_t *)r.weights + i, step_lanes(&f, &r, i), r.count - i);
  else if (r.weights)
    for (int64_t i = 0; i < r.count; i += LANES)
      store((float *)r.weights + i, step_lanes(&f, &r, i), r.count - i);
  else
    for (int64_t i = 0; i < r.count; i += LANES) step_lanes(&f, &r, i);
}

#define ADAM_OPS(text, supported)                                                                          \
  { text, supported, step }

#endif
