/* The kernel for any processor.
 *
 * Order of additions, of one element of y and one leaf: 16 lanes, each begins with +0; element k of the leaf belongs to lane k % 16;
 * a lane adds its products in ascending order of k, each product rounded to fp32 before it is added. Then lane j += lane j + 8 for
 * j below 8, += lane j + 4 below 4, + 2, + 1; lane 0 is the sum of the leaf. Leaves: nn/leaf_tree.h. */
#include "nn/gemm_parts.h"

#include "base/dtype.h"

enum { LANES = 16, RUN = 256 /* weights that are widened at a time */ };

static const char *lacks(void) { return NULL; }

static bool takes(treadle_dtype dtype, int32_t leaf) {
  return (dtype == TREADLE_BF16 || dtype == TREADLE_FP32) && leaf > 0;
}

/* x as it is, or rounded to bf16 and widened again; rows lie without gaps. */
static size_t packed_bytes(treadle_gemm_inner inner, int64_t rows) {
  return (size_t)(treadle_gemm_width(inner) * rows) * sizeof(float);
}

static void pack(const treadle_gemm_source *source, void *packed, int32_t index, int32_t count) {
  int64_t width = treadle_gemm_width(source->inner), row;
  int64_t end = treadle_gemm_part(source->rows, index, count, &row);
  for (; row < end; row++) {
    const float *from = source->x + row * source->stride;
    float *to = (float *)packed + row * width;
    if (source->inner.dtype == TREADLE_FP32 || source->inner.fine)
      memcpy(to, from, (size_t)width * sizeof *to);
    else
      for (int64_t k = 0; k < width; k++) to[k] = treadle_gemm_widen(treadle_bf16_of_float(from[k]));
  }
}

static void widen(float *to, const char *from, treadle_dtype dtype, int64_t count) {
  if (dtype == TREADLE_FP32) {
    memcpy(to, from, (size_t)count * sizeof *to);
    return;
  }
  for (int64_t k = 0; k < count; k++) {
    uint16_t bits;
    memcpy(&bits, from + k * (int64_t)sizeof bits, sizeof bits);
    to[k] = treadle_gemm_widen(bits);
  }
}

static void add_products(float lanes[LANES], const float *w, const float *x, int64_t count) {
  int64_t k = 0;
  for (; k + LANES <= count; k += LANES)
    for (int lane = 0; lane < LANES; lane++) lanes[lane] = lanes[lane] + w[k + lane] * x[k + lane];
  for (int lane = 0; k + lane < count; lane++) lanes[lane] = lanes[lane] + w[k + lane] * x[k + lane];
}

static float sum_of_leaf(const char *w, const float *x, treadle_dtype dtype, int32_t leaf) {
  float lanes[LANES] = {0}, run[RUN];
  int64_t each = (int64_t)treadle_dtype_bytes(dtype);
  for (int64_t k = 0; k < leaf; k += RUN) {
    int64_t count = treadle_smaller(leaf - k, RUN);
    widen(run, w + k * each, dtype, count);
    add_products(lanes, run, x + k, count);
  }
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; lane++) lanes[lane] = lanes[lane] + lanes[lane + half];
  return lanes[0];
}

/* The sums of all nodes of one row of weights and one row of x. */
static void sum(const treadle_gemm_product *p, const char *w, const float *x, float *y) {
  float stack[TREADLE_LEAF_HEIGHT_MAX];
  int32_t height = 0;
  int64_t each = p->inner.leaf * (int64_t)treadle_dtype_bytes(p->inner.dtype);
  for (int32_t leaf = 0; leaf < p->inner.range.leaves; leaf++) {
    treadle_leaf_step step = treadle_leaf_step_of(p->inner.range, p->inner.range.first + leaf);
    float value =
        sum_of_leaf(w + leaf * each, x + (int64_t)leaf * p->inner.leaf, p->inner.dtype, p->inner.leaf);
    for (; step.merges > 0; step.merges--) value = stack[--height] + value;
    if (!step.ends) {
      stack[height++] = value;
      continue;
    }
    *y = value;
    y += p->node_stride;
  }
}

static void run(const treadle_gemm_product *p, int32_t index, int32_t count) {
  int64_t width = treadle_gemm_width(p->inner);
  treadle_gemm_walk walk = treadle_gemm_panels(p, 1, index, count);
  treadle_gemm_panel panel;
  while (treadle_gemm_next(&walk, &panel))
    for (int64_t row = 0; row < p->rows; row++)
      sum(p, panel.weights, (const float *)p->packed + row * width, p->y + row * p->stride + panel.column);
}

const treadle_gemm_kernel treadle_gemm_plain = {
    .name = "plain",
    .about = "any processor",
    .lacks = lacks,
    .takes = takes,
    .packed_bytes = packed_bytes,
    .pack = pack,
    .run = run,
};
