/* The plain quantiser: scale = amax / 448, or 1; code = e4m3(clamp(x / scale)); value = code * scale. */
#include "plan/coded.h"

#include "base/dtype.h"
#include "model/model.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float LARGEST = 448;

static float *scale_of(const pair *p, const coded *c, const oracle_tensor *tensor, int64_t index) {
  int64_t row = index / tensor->shape[1] / p->oracle->block[0],
          column = index % tensor->shape[1] / p->oracle->block[1];
  return &c->scales[row * p->oracle->tensors[tensor->scale].shape[1] + column];
}

static void start(const pair *p, const oracle_tensor *tensor, bool is_coded, coded *c) {
  const oracle_tensor *scales = &p->oracle->tensors[tensor->scale];
  c->values = calloc((size_t)tensor->elems, sizeof *c->values);
  c->codes = is_coded ? calloc((size_t)tensor->elems, 1) : NULL;
  c->scales = calloc((size_t)scales->elems, sizeof *c->scales);
  assert_true(c->values && c->scales && (c->codes || !is_coded));
}

static void evaluate(const pair *p, const oracle_tensor *tensor, coded *c) {
  for (int64_t i = 0; i < tensor->elems; i++)
    c->values[i] = treadle_fp8_to_float(c->codes[i]) * *scale_of(p, c, tensor, i);
}

/* All codes but the two of NaN, and scales of any mantissa from 2^-12 to 2^-2. */
static void make_codes(const pair *p, int32_t t, coded *c) {
  const oracle_tensor *tensor = &p->oracle->tensors[t];
  for (int64_t i = 0; i < tensor->elems; i++) {
    c->codes[i] = (uint8_t)oracle_value(p->oracle, t, i);
    if ((c->codes[i] & 0x7f) == 0x7f) c->codes[i] ^= 1;
  }
  for (int64_t i = 0; i < p->oracle->tensors[tensor->scale].elems; i++) {
    uint64_t hash = oracle_value(p->oracle, tensor->scale, i);
    c->scales[i] = ldexpf(1 + (float)(hash % (1 << 23)) / (1 << 23), -3 - (int)(hash >> 40 & 0xff) % 10);
  }
  evaluate(p, tensor, c);
}

static void quantise(const pair *p, const oracle_tensor *tensor, const coded *from, coded *to) {
  for (int64_t i = 0; i < tensor->elems; i++) {
    float *scale = scale_of(p, to, tensor, i);
    *scale = fmaxf(*scale, fabsf(from->values[i]));
  }
  for (int64_t i = 0; i < p->oracle->tensors[tensor->scale].elems; i++)
    to->scales[i] = to->scales[i] / LARGEST > 0 ? to->scales[i] / LARGEST : 1;
  for (int64_t i = 0; i < tensor->elems; i++) {
    float x = from->values[i] / *scale_of(p, to, tensor, i);
    to->codes[i] = treadle_fp8_of_float(fminf(fmaxf(x, -LARGEST), LARGEST));
  }
  evaluate(p, tensor, to);
}

/* The tensor in another layout. */
static void carry(const pair *p, int32_t t, const coded *from, const treadle_layout *layout, coded *to) {
  const oracle_tensor *tensor = &p->oracle->tensors[t];
  treadle_dtype dtype = treadle_layout_dtype(layout, &p->model->tensors[p->tensors[t]]);
  start(p, tensor, layout->fp8, to);
  if (layout->fp8 && !from->codes) {
    quantise(p, tensor, from, to);
  } else if (layout->fp8) {
    memcpy(to->codes, from->codes, (size_t)tensor->elems);
    memcpy(to->scales, from->scales, sizeof(float) * (size_t)p->oracle->tensors[tensor->scale].elems);
    evaluate(p, tensor, to);
  } else {
    for (int64_t i = 0; i < tensor->elems; i++) {
      uint32_t rounded = 0;
      treadle_dtype_convert(&rounded, dtype, &from->values[i], TREADLE_FP32, 1);
      treadle_dtype_convert(&to->values[i], TREADLE_FP32, &rounded, dtype, 1);
    }
  }
}

void coded_make(const pair *p, coded_value value, coded_truth *truth) {
  for (int m = 0; m < CODED_MOMENTS; m++) {
    truth->tensors[m] = calloc((size_t)p->oracle->tensor_count, sizeof *truth->tensors[m]);
    assert_non_null(truth->tensors[m]);
  }
  for (int32_t t = 0; t < p->oracle->tensor_count; t++) {
    const oracle_tensor *tensor = &p->oracle->tensors[t];
    coded *first = &truth->tensors[0][t];
    if (!tensor->scale) continue;
    start(p, tensor, p->from.layout->fp8, first);
    if (first->codes)
      make_codes(p, t, first);
    else
      for (int64_t i = 0; i < tensor->elems; i++) first->values[i] = value(p, t, i);
    carry(p, t, first, p->to.layout, &truth->tensors[1][t]);
    carry(p, t, &truth->tensors[1][t], p->from.layout, &truth->tensors[2][t]);
  }
}

void coded_release(const pair *p, coded_truth *truth) {
  for (int m = 0; m < CODED_MOMENTS; m++) {
    for (int32_t t = 0; truth->tensors[m] && t < p->oracle->tensor_count; t++) {
      free(truth->tensors[m][t].values);
      free(truth->tensors[m][t].codes);
      free(truth->tensors[m][t].scales);
    }
    free(truth->tensors[m]);
  }
}

void coded_bits(const pair *p, const coded_truth *truth, int moment, int32_t tensor, int64_t index,
                treadle_dtype dtype, void *bits) {
  const oracle_tensor *of = &p->oracle->tensors[tensor];
  const coded *c = &truth->tensors[moment][of->scale ? tensor : of->weight];
  if (of->weight)
    memcpy(bits, &c->scales[index], sizeof(float));
  else if (dtype == TREADLE_FP8_E4M3)
    memcpy(bits, &c->codes[index], 1);
  else
    treadle_dtype_convert(bits, dtype, &c->values[index], TREADLE_FP32, 1);
}
