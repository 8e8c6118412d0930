/* Lanes (nn/lanes.h) in plain C: the twin that the others are compared with, and what machines without AVX2 run. */
#ifndef TREADLE_NN_LANES_PLAIN_H
#define TREADLE_NN_LANES_PLAIN_H

#include "nn/exp.h"
#include "nn/lanes.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define LANES_CODE
#define LANES_PART static inline
/* Sums of 16 lanes that are kept at once: what registers hold. */
#define LANES_UNROLLED
#define LANES_KEPT 4

static inline bool lanes_supported(void) { return true; }

typedef struct lanes {
  float at[LANES];
} lanes;

#define LANES_EACH for (int i = 0; i < LANES; i++)

LANES_PART lanes lanes_all(float x) {
  lanes made;
  LANES_EACH made.at[i] = x;
  return made;
}

LANES_PART lanes lanes_load(const float *from) {
  lanes made;
  memcpy(made.at, from, sizeof made.at);
  return made;
}

LANES_PART lanes lanes_pin(lanes x) { return x; }

LANES_PART lanes lanes_load_part(const float *from, int count) {
  lanes made = lanes_all(0.0f);
  memcpy(made.at, from, (size_t)count * sizeof *from);
  return made;
}

LANES_PART lanes lanes_load_bf16_part(const uint16_t *from, int count) {
  lanes made = lanes_all(0.0f);
  for (int i = 0; i < count; i++) made.at[i] = treadle_bf16_to_float(from[i]);
  return made;
}

LANES_PART lanes lanes_load_bf16(const uint16_t *from) { return lanes_load_bf16_part(from, LANES); }

LANES_PART void lanes_store(float *to, lanes x) { memcpy(to, x.at, sizeof x.at); }

LANES_PART void lanes_store_part(float *to, lanes x, int count) {
  memcpy(to, x.at, (size_t)count * sizeof *to);
}

LANES_PART void lanes_store_bf16_part(uint16_t *to, lanes x, int count) {
  for (int i = 0; i < count; i++) to[i] = treadle_bf16_of_float(x.at[i]);
}

LANES_PART void lanes_store_bf16(uint16_t *to, lanes x) { lanes_store_bf16_part(to, x, LANES); }

LANES_PART lanes lanes_add(lanes a, lanes b) {
  LANES_EACH a.at[i] = a.at[i] + b.at[i];
  return a;
}

LANES_PART lanes lanes_sub(lanes a, lanes b) {
  LANES_EACH a.at[i] = a.at[i] - b.at[i];
  return a;
}

LANES_PART lanes lanes_mul(lanes a, lanes b) {
  LANES_EACH a.at[i] = a.at[i] * b.at[i];
  return a;
}

LANES_PART lanes lanes_div(lanes a, lanes b) {
  LANES_EACH a.at[i] = a.at[i] / b.at[i];
  return a;
}

LANES_PART lanes lanes_sqrt(lanes a) {
  LANES_EACH a.at[i] = sqrtf(a.at[i]);
  return a;
}

/* fmaf is exact by the standard, so it does not matter who computes it. */
LANES_PART lanes lanes_fma(lanes a, lanes b, lanes c) {
  LANES_EACH a.at[i] = fmaf(a.at[i], b.at[i], c.at[i]);
  return a;
}

LANES_PART lanes lanes_max(lanes a, lanes b) {
  LANES_EACH a.at[i] = a.at[i] > b.at[i] ? a.at[i] : b.at[i];
  return a;
}

LANES_PART lanes lanes_within(lanes x, int from, int to, float other) {
  LANES_EACH if (i < from || i >= to) x.at[i] = other;
  return x;
}

LANES_PART lanes lanes_swap(lanes x) {
  lanes made;
  LANES_EACH made.at[i] = x.at[i ^ 1];
  return made;
}

LANES_PART void lanes_transpose(lanes x[LANES]) {
  for (int i = 0; i < LANES; i++)
    for (int j = 0; j < i; j++) {
      float other = x[i].at[j];
      x[i].at[j] = x[j].at[i];
      x[j].at[i] = other;
    }
}

LANES_PART float lanes_sum(lanes x) {
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) x.at[i] = x.at[i] + x.at[i + half];
  return x.at[0];
}

LANES_PART float lanes_largest(lanes x) {
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) x.at[i] = x.at[i] > x.at[i + half] ? x.at[i] : x.at[i + half];
  return x.at[0];
}

LANES_PART lanes lanes_exp(lanes x) {
  LANES_EACH x.at[i] = treadle_exp(x.at[i]);
  return x;
}

#undef LANES_EACH

#endif
