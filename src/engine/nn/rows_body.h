/* Row operations in terms of lanes (nn/lanes.h); each file that includes this makes one treadle_row_ops of it. */
#ifndef TREADLE_NN_ROWS_BODY_H
#define TREADLE_NN_ROWS_BODY_H

#include "nn/lanes_rows.h"
#include "nn/lanes_silu.h"
#include "nn/rows.h"

#include <math.h>

/* ---- Operations ---- */

LANES_PART void norm_as(treadle_dtype dtype, float *to, const float *x, const void *weight, int64_t count,
                        float eps) {
  lanes squares = lanes_all(0.0f);
  for (int64_t i = 0; i < count; i += LANES) {
    fetch(x + i);
    lanes values = load(x + i, count - i);
    squares = lanes_add(squares, lanes_mul(values, values));
  }
  lanes scale = lanes_all(1.0f / sqrtf(lanes_sum(squares) / (float)count + eps));
  for (int64_t i = 0; i < count; i += LANES) {
    lanes scaled = lanes_mul(load(x + i, count - i), scale);
    store(to + i, lanes_mul(scaled, load_as(dtype, weight, i, count - i)), count - i);
  }
}

LANES_CODE static void norm(float *to, const float *x, const void *weight, treadle_dtype dtype,
                            int64_t count, float eps) {
  if (dtype == TREADLE_FP32)
    norm_as(TREADLE_FP32, to, x, weight, count, eps);
  else
    norm_as(TREADLE_BF16, to, x, weight, count, eps);
}

LANES_PART void add_as(treadle_dtype dtype, float *to, const void *x, int64_t count) {
  for (int64_t i = 0; i < count; i += LANES)
    store(to + i, lanes_add(load(to + i, count - i), load_as(dtype, x, i, count - i)), count - i);
}

LANES_CODE static void add(float *to, const void *x, treadle_dtype dtype, int64_t count) {
  if (dtype == TREADLE_FP32)
    add_as(TREADLE_FP32, to, x, count);
  else
    add_as(TREADLE_BF16, to, x, count);
}

LANES_CODE static void add_scaled(float *to, const float *x, float scale, int64_t count) {
  lanes factor = lanes_all(scale);
  for (int64_t i = 0; i < count; i += LANES) {
    lanes scaled = lanes_mul(load(x + i, count - i), factor);
    store(to + i, lanes_add(load(to + i, count - i), scaled), count - i);
  }
}

LANES_CODE static void silu(float *to, const float *gate, const float *up, int64_t count) {
  for (int64_t i = 0; i < count; i += LANES)
    store(to + i, lanes_silu(load(gate + i, count - i), load(up + i, count - i)), count - i);
}

LANES_PART void widen_as(treadle_dtype dtype, float *to, const void *from, int64_t count) {
  for (int64_t i = 0; i < count; i += LANES) store(to + i, load_as(dtype, from, i, count - i), count - i);
}

LANES_CODE static void widen(float *to, const void *from, treadle_dtype dtype, int64_t count) {
  if (dtype == TREADLE_FP32)
    widen_as(TREADLE_FP32, to, from, count);
  else
    widen_as(TREADLE_BF16, to, from, count);
}

LANES_CODE static void narrow(void *to, treadle_dtype dtype, const float *from, int64_t count) {
  if (dtype == TREADLE_FP32) {
    widen_as(TREADLE_FP32, to, from, count);
    return;
  }
  uint16_t *bf16 = to;
  for (int64_t i = 0; i < count; i += LANES) {
    fetch(from + i);
    if (count - i >= LANES)
      lanes_store_bf16(bf16 + i, lanes_load(from + i));
    else
      lanes_store_bf16_part(bf16 + i, lanes_load_part(from + i, (int)(count - i)), (int)(count - i));
  }
}

LANES_PART void turn_as(treadle_dtype dtype, void *to, int64_t step, const float *from, int64_t stride,
                        int64_t rows, int64_t count) {
  for (int64_t d = 0; d < count; d += LANES) {
    lanes x[LANES];
    for (int64_t r = 0; r < LANES; r++)
      x[r] = r < rows ? load(from + r * stride + d, count - d) : lanes_all(0.0f);
    lanes_transpose(x);
    for (int64_t i = 0; i < LANES && d + i < count; i++) {
      if (dtype == TREADLE_FP32)
        store((float *)to + (d + i) * step, x[i], rows);
      else if (rows == LANES)
        lanes_store_bf16((uint16_t *)to + (d + i) * step, x[i]);
      else
        lanes_store_bf16_part((uint16_t *)to + (d + i) * step, x[i], (int)rows);
    }
  }
}

LANES_CODE static void turn(void *to, treadle_dtype dtype, int64_t step, const float *from, int64_t stride,
                            int64_t rows, int64_t count) {
  if (dtype == TREADLE_FP32)
    turn_as(TREADLE_FP32, to, step, from, stride, rows, count);
  else
    turn_as(TREADLE_BF16, to, step, from, stride, rows, count);
}

/* ---- Soft-max ---- */

LANES_PART lanes load_heated(const float *x, int64_t left, bool heated, lanes temperature) {
  lanes z = load(x, left);
  return heated ? lanes_div(z, temperature) : z;
}

LANES_PART float largest_of(const float *x, int64_t count, bool heated, lanes temperature) {
  lanes most = lanes_all(-INFINITY);
  for (int64_t i = 0; i < count; i += LANES) {
    lanes z = load_heated(x + i, count - i, heated, temperature);
    if (count - i < LANES) z = lanes_within(z, 0, (int)(count - i), -INFINITY);
    most = lanes_max(z, most);
  }
  return lanes_largest(most);
}

/* Writes each e^(z - largest) where `to` is given. */
LANES_PART double sum_blocks(float *to, const float *x, int64_t count, float largest, bool heated,
                             lanes temperature) {
  double sum = 0.0;
  lanes top = lanes_all(largest);
  for (int64_t block = 0; block < count; block += TREADLE_ROW_BLOCK) {
    int64_t end = count - block < TREADLE_ROW_BLOCK ? count : block + TREADLE_ROW_BLOCK;
    lanes part = lanes_all(0.0f);
    for (int64_t i = block; i < end; i += LANES) {
      lanes power = lanes_exp(lanes_sub(load_heated(x + i, end - i, heated, temperature), top));
      if (end - i < LANES) power = lanes_within(power, 0, (int)(end - i), 0.0f);
      part = lanes_add(part, power);
      if (to) store(to + i, power, end - i);
    }
    sum += (double)lanes_sum(part);
  }
  return sum;
}

LANES_CODE static void sum_exp(const float *x, int64_t count, float temperature, float *largest_p,
                               double *sum_p) {
  lanes heat = lanes_all(temperature);
  if (temperature == 1.0f) { /* to divide by 1 changes no bit */
    *largest_p = largest_of(x, count, false, heat);
    *sum_p = sum_blocks(NULL, x, count, *largest_p, false, heat);
  } else {
    *largest_p = largest_of(x, count, true, heat);
    *sum_p = sum_blocks(NULL, x, count, *largest_p, true, heat);
  }
}

LANES_CODE static void softmax(float *to, const float *x, int64_t count) {
  lanes heat = lanes_all(1.0f);
  float largest = largest_of(x, count, false, heat);
  lanes sum = lanes_all((float)sum_blocks(to, x, count, largest, false, heat));
  for (int64_t i = 0; i < count; i += LANES)
    store(to + i, lanes_div(load(to + i, count - i), sum), count - i);
}

/* ---- Rope ---- */

LANES_CODE static void rotate_halves(float *x, const float *cosine, const float *sine, int64_t pairs) {
  for (int64_t i = 0; i < pairs; i += LANES) {
    int64_t left = pairs - i;
    lanes a = load(x + i, left), b = load(x + pairs + i, left), c = load(cosine + i, left),
          s = load(sine + i, left);
    store(x + i, lanes_sub(lanes_mul(a, c), lanes_mul(b, s)), left);
    store(x + pairs + i, lanes_add(lanes_mul(b, c), lanes_mul(a, s)), left);
  }
}

LANES_CODE static void rotate_neighbours(float *x, const float *cosine, const float *sine, int64_t pairs) {
  for (int64_t i = 0; i < 2 * pairs; i += LANES) {
    int64_t left = 2 * pairs - i;
    lanes a = load(x + i, left);
    lanes turned = lanes_mul(lanes_swap(a), load(sine + i, left));
    store(x + i, lanes_add(lanes_mul(a, load(cosine + i, left)), turned), left);
  }
}

#define ROW_OPS(text, supported)                                                                           \
  {                                                                                                        \
    text, supported, norm, add, add_scaled, silu, widen, narrow, turn, sum_exp, softmax, rotate_halves,    \
        rotate_neighbours                                                                                  \
  }

#endif
