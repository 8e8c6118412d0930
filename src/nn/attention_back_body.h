/* Backward of attention in terms of lanes (nn/lanes.h). Keys and values are there twice: as rows, and turned, so that 16 keys are the
 * lanes of one vector. */
#ifndef TREADLE_NN_ATTENTION_BACK_BODY_H
#define TREADLE_NN_ATTENTION_BACK_BODY_H

#include "nn/attention_back.h"
#include "nn/lanes_rows.h"

#include <math.h>
#include <string.h>

enum { BACK_VECTORS = 4 }; /* of 16 keys, or of 16 dimensions, that are taken together */

typedef struct back_memory {
  float *keys, *values;               /* [rows, key_dim], [rows, value_dim], rounded */
  float *turned_keys, *turned_values; /* [key_dim, room], [value_dim, room] */
  float *p, *ds;                      /* [room] */
  int64_t room;                       /* rows, up to whole vectors; behind rows are zeros */
} back_memory;

/* rounded [rows, dim], and turned. */
LANES_PART void take_rows(const treadle_attention_back *a, const float *from, int64_t stride, int64_t dim,
                          float *rounded, float *turned, int64_t room) {
  for (int64_t row = 0; row < a->rows; row++)
    for (int64_t i = 0; i < dim; i += LANES) {
      lanes value = load(from + row * stride + i, dim - i);
      if (a->dtype == TREADLE_BF16) {
        uint16_t narrow[LANES];
        lanes_store_bf16(narrow, value);
        value = lanes_load_bf16(narrow);
      }
      store(rounded + row * dim + i, value, dim - i);
    }
  for (int64_t row = 0; row < room; row += LANES)
    for (int64_t i = 0; i < dim; i += LANES) {
      lanes square[LANES];
      for (int64_t r = 0; r < LANES; r++)
        square[r] = row + r < a->rows ? load(rounded + (row + r) * dim + i, dim - i) : lanes_all(0.0f);
      lanes_transpose(square);
      for (int64_t d = 0; d < LANES && i + d < dim; d++)
        lanes_store(turned + (i + d) * room + row, square[d]);
    }
}

/* to[key] = the chain over d of x[d] * turned[d][key], times scale, for keys below `end`, up to whole vectors. */
LANES_PART void compare(float *to, const float *x, const float *turned, int64_t dim, int64_t room,
                        int64_t end, float scale) {
  lanes factor = lanes_all(scale);
  int64_t key = 0;
  for (; key + BACK_VECTORS * LANES <= room && key < end; key += BACK_VECTORS * LANES) {
    lanes sum[BACK_VECTORS];
    LANES_UNROLLED
    for (int v = 0; v < BACK_VECTORS; v++) sum[v] = lanes_all(0.0f);
    for (int64_t d = 0; d < dim; d++) {
      lanes value = lanes_all(x[d]);
      LANES_UNROLLED
      for (int v = 0; v < BACK_VECTORS; v++)
        sum[v] = lanes_fma(value, lanes_load(turned + d * room + key + v * LANES), sum[v]);
    }
    LANES_UNROLLED
    for (int v = 0; v < BACK_VECTORS; v++) lanes_store(to + key + v * LANES, lanes_mul(sum[v], factor));
  }
  for (; key < end; key += LANES) {
    lanes sum = lanes_all(0.0f);
    for (int64_t d = 0; d < dim; d++)
      sum = lanes_fma(lanes_all(x[d]), lanes_load(turned + d * room + key), sum);
    lanes_store(to + key, lanes_mul(sum, factor));
  }
}

/* Scores become p; keys from `end` on get 0. */
LANES_PART void weigh(float *p, int64_t end) {
  lanes most = lanes_all(-INFINITY), sum = lanes_all(0.0f);
  for (int64_t key = 0; key < end; key += LANES) {
    lanes score = lanes_load(p + key);
    if (end - key < LANES) score = lanes_within(score, 0, (int)(end - key), -INFINITY);
    lanes_store(p + key, score);
    most = lanes_max(score, most);
  }
  lanes top = lanes_all(lanes_largest(most));
  for (int64_t key = 0; key < end; key += LANES) {
    lanes power = lanes_exp(lanes_sub(lanes_load(p + key), top));
    lanes_store(p + key, power);
    sum = lanes_add(sum, power);
  }
  lanes all = lanes_all(lanes_sum(sum));
  for (int64_t key = 0; key < end; key += LANES) lanes_store(p + key, lanes_div(lanes_load(p + key), all));
}

LANES_PART float dot(const float *a, const float *b, int64_t count) {
  lanes sum = lanes_all(0.0f);
  for (int64_t i = 0; i < count; i += LANES)
    sum = lanes_add(sum, lanes_mul(load(a + i, count - i), load(b + i, count - i)));
  return lanes_sum(sum);
}

/* to = the chain over keys of weight[key] * rows[key]. */
LANES_PART void gather(float *to, const float *weight, const float *rows, int64_t dim, int64_t keys) {
  int64_t i = 0;
  for (; i + BACK_VECTORS * LANES <= dim; i += BACK_VECTORS * LANES) {
    lanes sum[BACK_VECTORS];
    LANES_UNROLLED
    for (int v = 0; v < BACK_VECTORS; v++) sum[v] = lanes_all(0.0f);
    for (int64_t key = 0; key < keys; key++) {
      lanes factor = lanes_all(weight[key]);
      LANES_UNROLLED
      for (int v = 0; v < BACK_VECTORS; v++)
        sum[v] = lanes_fma(factor, lanes_load(rows + key * dim + i + v * LANES), sum[v]);
    }
    LANES_UNROLLED
    for (int v = 0; v < BACK_VECTORS; v++) lanes_store(to + i + v * LANES, sum[v]);
  }
  for (; i < dim; i += LANES) {
    lanes sum = lanes_all(0.0f);
    for (int64_t key = 0; key < keys; key++)
      sum = lanes_fma(lanes_all(weight[key]), load(rows + key * dim + i, dim - i), sum);
    store(to + i, sum, dim - i);
  }
}

/* rows[key] += weight[key] * x, for all keys. */
LANES_PART void scatter(float *rows, int64_t stride, const float *weight, const float *x, int64_t dim,
                        int64_t keys) {
  for (int64_t i = 0; i < dim; i += LANES) {
    lanes value = load(x + i, dim - i);
    for (int64_t key = 0; key < keys; key++) {
      float *row = rows + key * stride + i;
      store(row, lanes_fma(lanes_all(weight[key]), value, load(row, dim - i)), dim - i);
    }
  }
}

LANES_PART void back_row(const treadle_attention_back *a, const back_memory *m, int64_t head, int64_t row) {
  const float *q = a->q + row * a->q_stride + head * a->key_dim;
  const float *dout = a->dout + row * a->dout_stride + head * a->value_dim;
  const int64_t keys = row + 1;
  compare(m->p, q, m->turned_keys, a->key_dim, m->room, keys, a->scale);
  weigh(m->p, keys);
  compare(m->ds, dout, m->turned_values, a->value_dim, m->room, keys, 1.0f);
  lanes d = lanes_all(dot(dout, a->out + row * a->out_stride + head * a->value_dim, a->value_dim));
  lanes scale = lanes_all(a->scale);
  for (int64_t key = 0; key < keys; key += LANES) {
    lanes slope = lanes_mul(lanes_load(m->p + key), lanes_sub(lanes_load(m->ds + key), d));
    lanes_store(m->ds + key, lanes_mul(slope, scale));
  }
  gather(a->dq + row * a->dq_stride + head * a->key_dim, m->ds, m->keys, a->key_dim, keys);
  scatter(a->dk, a->dk_stride, m->ds, q, a->key_dim, keys);
  scatter(a->dv, a->dv_stride, m->p, dout, a->value_dim, keys);
}

LANES_CODE static void back_attention(const treadle_attention_back *a, void *scratch) {
  back_memory m = {.keys = scratch, .room = (a->rows + LANES - 1) / LANES * LANES};
  m.turned_keys = m.keys + m.room * a->key_dim;
  m.values = m.turned_keys + m.room * a->key_dim;
  m.turned_values = m.values + m.room * a->value_dim;
  m.p = m.turned_values + m.room * a->value_dim;
  m.ds = m.p + m.room;
  take_rows(a, a->k, a->k_stride, a->key_dim, m.keys, m.turned_keys, m.room);
  take_rows(a, a->v, a->v_stride, a->value_dim, m.values, m.turned_values, m.room);
  for (int64_t row = 0; row < a->rows; row++) {
    memset(a->dk + row * a->dk_stride, 0, (size_t)a->key_dim * sizeof(float));
    memset(a->dv + row * a->dv_stride, 0, (size_t)a->value_dim * sizeof(float));
  }
  for (int64_t head = 0; head < a->queries_per_head; head++)
    for (int64_t row = 0; row < a->rows; row++) back_row(a, &m, head, row);
}

#endif
