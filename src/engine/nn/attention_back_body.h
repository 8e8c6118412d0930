/* Backward of attention in terms of lanes (nn/lanes.h). Keys and values are there twice: as rows, and turned, so that 16 keys are the
 * lanes of one vector. */
#ifndef TREADLE_NN_ATTENTION_BACK_BODY_H
#define TREADLE_NN_ATTENTION_BACK_BODY_H

#include "nn/attention_back.h"
#include "nn/lanes_rows.h"

#include <math.h>
#include <string.h>

/* Rows, and vectors of 16 keys or dimensions, that are taken together: as many sums as registers hold. */
enum { BACK_ROWS = LANES_KEPT >= 16 ? 4 : 2, BACK_VECTORS = LANES_KEPT >= 16 ? 4 : 2 };

typedef struct back_memory {
  float *keys, *values;               /* [rows, key_dim], [rows, value_dim], rounded */
  float *turned_keys, *turned_values; /* [key_dim, room], [value_dim, room] */
  float *p, *ds;                      /* [BACK_ROWS, room] */
  float *zeros, *nothing;             /* rows that are not there: read, and written */
  int64_t room;                       /* rows, up to whole vectors; behind rows are zeros */
} back_memory;

/* A row of a block, of one query head. */
typedef struct back_rows {
  const float *q[BACK_ROWS], *dout[BACK_ROWS];
  float *dq[BACK_ROWS];
} back_rows;

/* Keys or values, and where they lie. */
typedef struct back_source {
  const float *before, *own;
  int64_t stride, dim;
} back_source;

/* rounded [before + rows, dim], and turned. */
LANES_PART void take_rows(const treadle_attention_back *a, const back_source *source, float *rounded,
                          float *turned, int64_t room) {
  const int64_t dim = source->dim, all = a->before + a->rows;
  for (int64_t row = 0; row < all; row++) {
    const float *from = row < a->before ? source->before + row * source->stride
                                        : source->own + (row - a->before) * source->stride;
    for (int64_t i = 0; i < dim; i += LANES) {
      lanes value = load(from + i, dim - i);
      if (a->dtype == TREADLE_BF16) {
        uint16_t narrow[LANES];
        lanes_store_bf16(narrow, value);
        value = lanes_load_bf16(narrow);
      }
      store(rounded + row * dim + i, value, dim - i);
    }
  }
  for (int64_t row = 0; row < room; row += LANES)
    for (int64_t i = 0; i < dim; i += LANES) {
      lanes square[LANES];
      for (int64_t r = 0; r < LANES; r++)
        square[r] = row + r < all ? load(rounded + (row + r) * dim + i, dim - i) : lanes_all(0.0f);
      lanes_transpose(square);
      for (int64_t d = 0; d < LANES && i + d < dim; d++)
        lanes_store(turned + (i + d) * room + row, square[d]);
    }
}

/* to[row][key] = the chain over d of x[row][d] * turned[d][key], times scale, for keys below `end`, up to whole vectors. */
LANES_PART void compare(float *to, const float *const *x, const float *turned, int64_t dim, int64_t room,
                        int64_t end, float scale) {
  lanes factor = lanes_all(scale);
  int64_t key = 0;
  for (; key + BACK_VECTORS * LANES <= room && key < end; key += BACK_VECTORS * LANES) {
    lanes sum[BACK_ROWS][BACK_VECTORS];
    LANES_UNROLLED
    for (int r = 0; r < BACK_ROWS; r++) {
      LANES_UNROLLED
      for (int v = 0; v < BACK_VECTORS; v++) sum[r][v] = lanes_all(0.0f);
    }
    for (int64_t d = 0; d < dim; d++) {
      lanes keys[BACK_VECTORS];
      LANES_UNROLLED
      for (int v = 0; v < BACK_VECTORS; v++) keys[v] = lanes_load(turned + d * room + key + v * LANES);
      LANES_UNROLLED
      for (int r = 0; r < BACK_ROWS; r++) {
        lanes value = lanes_all(x[r][d]);
        LANES_UNROLLED
        for (int v = 0; v < BACK_VECTORS; v++) sum[r][v] = lanes_fma(value, keys[v], sum[r][v]);
      }
    }
    LANES_UNROLLED
    for (int r = 0; r < BACK_ROWS; r++) {
      LANES_UNROLLED
      for (int v = 0; v < BACK_VECTORS; v++)
        lanes_store(to + r * room + key + v * LANES, lanes_mul(sum[r][v], factor));
    }
  }
  for (; key < end; key += LANES)
    for (int r = 0; r < BACK_ROWS; r++) {
      lanes sum = lanes_all(0.0f);
      for (int64_t d = 0; d < dim; d++)
        sum = lanes_fma(lanes_all(x[r][d]), lanes_load(turned + d * room + key), sum);
      lanes_store(to + r * room + key, lanes_mul(sum, factor));
    }
}

/* Scores become p; keys from `end` on get 0, up to those of the block's last row. */
LANES_PART void weigh(float *p, int64_t end, int64_t last) {
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
  for (int64_t key = (end + LANES - 1) / LANES * LANES; key < last; key += LANES)
    lanes_store(p + key, lanes_all(0.0f));
}

LANES_PART float dot(const float *a, const float *b, int64_t count) {
  lanes sum = lanes_all(0.0f);
  for (int64_t i = 0; i < count; i += LANES)
    sum = lanes_add(sum, lanes_mul(load(a + i, count - i), load(b + i, count - i)));
  return lanes_sum(sum);
}

/* to[row] = the chain over keys of weight[row][key] * rows[key]. Weights of keys that a row does not see are 0. */
LANES_PART void gather(float *const *to, const float *weight, int64_t room, const float *rows, int64_t dim,
                       int64_t keys) {
  int64_t i = 0;
  for (; i + BACK_VECTORS * LANES <= dim; i += BACK_VECTORS * LANES) {
    lanes sum[BACK_ROWS][BACK_VECTORS];
    LANES_UNROLLED
    for (int r = 0; r < BACK_ROWS; r++) {
      LANES_UNROLLED
      for (int v = 0; v < BACK_VECTORS; v++) sum[r][v] = lanes_all(0.0f);
    }
    for (int64_t key = 0; key < keys; key++) {
      lanes value[BACK_VECTORS];
      LANES_UNROLLED
      for (int v = 0; v < BACK_VECTORS; v++) value[v] = lanes_load(rows + key * dim + i + v * LANES);
      LANES_UNROLLED
      for (int r = 0; r < BACK_ROWS; r++) {
        lanes factor = lanes_all(weight[r * room + key]);
        LANES_UNROLLED
        for (int v = 0; v < BACK_VECTORS; v++) sum[r][v] = lanes_fma(factor, value[v], sum[r][v]);
      }
    }
    LANES_UNROLLED
    for (int r = 0; r < BACK_ROWS; r++) {
      LANES_UNROLLED
      for (int v = 0; v < BACK_VECTORS; v++) lanes_store(to[r] + i + v * LANES, sum[r][v]);
    }
  }
  for (; i < dim; i += LANES)
    for (int r = 0; r < BACK_ROWS; r++) {
      lanes sum = lanes_all(0.0f);
      for (int64_t key = 0; key < keys; key++)
        sum = lanes_fma(lanes_all(weight[r * room + key]), load(rows + key * dim + i, dim - i), sum);
      store(to[r] + i, sum, dim - i);
    }
}

/* rows[key] += weight[row][key] * x[row], row after row, for `keys` keys. */
LANES_PART void scatter(float *rows, int64_t stride, const float *weight, int64_t room,
                        const float *const *x, int64_t dim, int64_t keys) {
  for (int64_t i = 0; i < dim; i += LANES) {
    lanes value[BACK_ROWS];
    LANES_UNROLLED
    for (int r = 0; r < BACK_ROWS; r++) value[r] = load(x[r] + i, dim - i);
    for (int64_t key = 0; key < keys; key++) {
      float *row = rows + key * stride + i;
      lanes sum = load(row, dim - i);
      LANES_UNROLLED
      for (int r = 0; r < BACK_ROWS; r++) sum = lanes_fma(lanes_all(weight[r * room + key]), value[r], sum);
      store(row, sum, dim - i);
    }
  }
}

/* The slopes of a row's scores, out of those of its p. */
LANES_PART void slope(const treadle_attention_back *a, const float *p, float *ds, float d, int64_t keys) {
  lanes sum = lanes_all(d), scale = lanes_all(a->scale);
  for (int64_t key = 0; key < keys; key += LANES) {
    lanes value = lanes_mul(lanes_load(p + key), lanes_sub(lanes_load(ds + key), sum));
    lanes_store(ds + key, lanes_mul(value, scale));
  }
}

/* Rows [row, row + BACK_ROWS) of a query head; those from `rows` on are not there, and are zeros that go nowhere. */
LANES_PART void back_block(const treadle_attention_back *a, const back_memory *m, int64_t head,
                           int64_t row) {
  int64_t some = a->rows - row < BACK_ROWS ? a->rows - row : BACK_ROWS, last = a->before + row + some;
  back_rows b;
  for (int r = 0; r < BACK_ROWS; r++) {
    b.q[r] = r < some ? a->q + (row + r) * a->q_stride + head * a->key_dim : m->zeros;
    b.dout[r] = r < some ? a->dout + (row + r) * a->dout_stride + head * a->value_dim : m->zeros;
    b.dq[r] = r < some ? a->dq + (row + r) * a->dq_stride + head * a->key_dim : m->nothing;
  }
  compare(m->p, b.q, m->turned_keys, a->key_dim, m->room, last, a->scale);
  compare(m->ds, b.dout, m->turned_values, a->value_dim, m->room, last, 1.0f);
  for (int64_t r = 0; r < BACK_ROWS; r++) {
    const float *out = a->out + (row + r) * a->out_stride + head * a->value_dim;
    float *p = m->p + r * m->room, *ds = m->ds + r * m->room;
    weigh(p, r < some ? a->before + row + r + 1 : last, last);
    slope(a, p, ds, r < some ? dot(b.dout[r], out, a->value_dim) : 0, last);
  }
  if (a->before) {
    scatter(a->before_dk, a->dk_stride, m->ds, m->room, b.q, a->key_dim, a->before);
    scatter(a->before_dv, a->dv_stride, m->p, m->room, b.dout, a->value_dim, a->before);
  }
  scatter(a->dk, a->dk_stride, m->ds + a->before, m->room, b.q, a->key_dim, last - a->before);
  scatter(a->dv, a->dv_stride, m->p + a->before, m->room, b.dout, a->value_dim, last - a->before);
  gather(b.dq, m->ds, m->room, m->keys, a->key_dim, last); /* last: dq may be q */
}

LANES_CODE static void back_attention(const treadle_attention_back *a, void *scratch) {
  int64_t widest = (a->key_dim > a->value_dim ? a->key_dim : a->value_dim) + LANES;
  back_memory m = {.keys = scratch, .room = (a->before + a->rows + LANES - 1) / LANES * LANES};
  const back_source keys = {a->before_k, a->k, a->k_stride, a->key_dim},
                    values = {a->before_v, a->v, a->v_stride, a->value_dim};
  m.turned_keys = m.keys + m.room * a->key_dim;
  m.values = m.turned_keys + m.room * a->key_dim;
  m.turned_values = m.values + m.room * a->value_dim;
  m.p = m.turned_values + m.room * a->value_dim;
  m.ds = m.p + BACK_ROWS * m.room;
  m.zeros = m.ds + BACK_ROWS * m.room;
  m.nothing = m.zeros + widest;
  memset(m.zeros, 0, (size_t)widest * sizeof *m.zeros);
  take_rows(a, &keys, m.keys, m.turned_keys, m.room);
  take_rows(a, &values, m.values, m.turned_values, m.room);
  for (int64_t row = 0; row < a->rows; row++) {
    memset(a->dk + row * a->dk_stride, 0, (size_t)a->key_dim * sizeof(float));
    memset(a->dv + row * a->dv_stride, 0, (size_t)a->value_dim * sizeof(float));
  }
  for (int64_t head = 0; head < a->queries_per_head; head++)
    for (int64_t row = 0; row < a->rows; row += BACK_ROWS) back_block(a, &m, head, row);
}

#endif
