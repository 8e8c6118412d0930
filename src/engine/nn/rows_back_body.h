/* Backward of row operations in terms of lanes (nn/lanes.h); each file that includes this makes one treadle_row_back_ops of it. */
#ifndef TREADLE_NN_ROWS_BACK_BODY_H
#define TREADLE_NN_ROWS_BACK_BODY_H

#include "nn/lanes_rows.h"
#include "nn/rows_back_kinds.h"

#include <math.h>

LANES_PART void norm_as(treadle_dtype dtype, float *dx, float *dweight, const float *dy,
                        const treadle_normed_row *row) {
  const float *x = row->x;
  const int64_t count = row->count;
  lanes squares = lanes_all(0.0f), products = lanes_all(0.0f);
  for (int64_t i = 0; i < count; i += LANES) {
    fetch(x + i), fetch(dy + i), fetch(dx + i);
    lanes value = load(x + i, count - i);
    lanes given = lanes_mul(load(dy + i, count - i), load_as(dtype, row->weight, i, count - i));
    squares = lanes_add(squares, lanes_mul(value, value));
    products = lanes_add(products, lanes_mul(given, value));
  }
  float r = 1.0f / sqrtf(lanes_sum(squares) / (float)count + row->eps);
  lanes scale = lanes_all(r), share = lanes_all(r * r * r * (lanes_sum(products) / (float)count));
  for (int64_t i = 0; i < count; i += LANES) {
    lanes value = load(x + i, count - i), given = load(dy + i, count - i);
    lanes scaled = lanes_mul(lanes_mul(given, load_as(dtype, row->weight, i, count - i)), scale);
    lanes change = lanes_sub(scaled, lanes_mul(value, share));
    lanes part = lanes_mul(given, lanes_mul(value, scale));
    store(dx + i, lanes_add(load(dx + i, count - i), change), count - i);
    store(dweight + i, lanes_add(load(dweight + i, count - i), part), count - i);
  }
}

LANES_CODE static void norm(float *dx, float *dweight, const float *dy, const treadle_normed_row *row) {
  if (row->dtype == TREADLE_FP32)
    norm_as(TREADLE_FP32, dx, dweight, dy, row);
  else
    norm_as(TREADLE_BF16, dx, dweight, dy, row);
}

LANES_CODE static void silu(float *dgate, float *dup, float *y, const float *dy, const float *gate,
                            const float *up, int64_t count) {
  lanes one = lanes_all(1.0f);
  for (int64_t i = 0; i < count; i += LANES) {
    fetch(gate + i), fetch(up + i), fetch(dy + i);
    lanes g = load(gate + i, count - i), u = load(up + i, count - i), given = load(dy + i, count - i);
    lanes below = lanes_add(one, lanes_exp(lanes_sub(lanes_all(-0.0f), g))), s = lanes_div(one, below);
    lanes slope = lanes_mul(s, lanes_add(one, lanes_mul(g, lanes_sub(one, s))));
    store(dgate + i, lanes_mul(lanes_mul(given, u), slope), count - i);
    store(dup + i, lanes_mul(given, lanes_mul(g, s)), count - i);
    store(y + i, lanes_mul(lanes_div(g, below), u), count - i);
  }
}

LANES_CODE static void add(float *to, const float *x, int64_t count) {
  for (int64_t i = 0; i < count; i += LANES)
    store(to + i, lanes_add(load(to + i, count - i), load(x + i, count - i)), count - i);
}

LANES_CODE static void loss(float *logits, int64_t count, float lse, int64_t target, float scale) {
  lanes sum = lanes_all(lse), factor = lanes_all(scale);
  float p = target < 0 ? 0 : treadle_exp(logits[target] - lse);
  for (int64_t i = 0; i < count; i += LANES)
    store(logits + i, lanes_mul(lanes_exp(lanes_sub(load(logits + i, count - i), sum)), factor), count - i);
  if (target >= 0) logits[target] = (p - 1.0f) * scale;
}

LANES_CODE static void policy(float *logits, int64_t count, const treadle_policy_row *row) {
  const lanes lse = lanes_all(row->lse), temperature = lanes_all(row->temperature),
              h = lanes_all(row->entropy);
  const lanes by_logprob = lanes_all(-row->by_logprob), by_entropy = lanes_all(-row->by_entropy);
  for (int64_t i = 0; i < count; i += LANES) {
    lanes x = lanes_sub(lanes_div(load(logits + i, count - i), temperature), lse);
    lanes slope = by_logprob;
    if (row->by_entropy != 0) slope = lanes_fma(by_entropy, lanes_add(x, h), slope);
    lanes value = lanes_div(lanes_mul(lanes_exp(x), slope), temperature);
    store(logits + i, value, count - i);
  }
  if (row->target >= 0) logits[row->target] += row->by_logprob / row->temperature;
}

LANES_CODE static double entropy(const float *logits, int64_t count, float lse, float temperature) {
  const lanes all = lanes_all(lse), divisor = lanes_all(temperature);
  lanes sum = lanes_all(0.0f);
  for (int64_t i = 0; i < count; i += LANES) {
    lanes x = lanes_sub(all, lanes_div(load(logits + i, count - i), divisor));
    lanes term = lanes_mul(lanes_exp(lanes_sub(lanes_all(0.0f), x)), x);
    if (count - i < LANES) term = lanes_within(term, 0, (int)(count - i), 0.0f);
    sum = lanes_add(sum, term);
  }
  return (double)lanes_sum(sum);
}

LANES_CODE static float sum_products(const float *a, const float *b, int64_t count) {
  lanes sum = lanes_all(0.0f);
  for (int64_t i = 0; i < count; i += LANES)
    sum = lanes_add(sum, lanes_mul(load(a + i, count - i), load(b + i, count - i)));
  return lanes_sum(sum);
}

#define ROW_BACK_OPS(text, supported)                                                                      \
  { text, supported, norm, silu, add, loss, policy, entropy, sum_products }

#endif
