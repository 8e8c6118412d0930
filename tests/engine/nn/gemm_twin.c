#include "nn/gemm_twin.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static float plain(treadle_dtype dtype, const float *x, const float *w, int32_t leaf) {
  (void)dtype;
  float lanes[16] = {0};
  for (int32_t k = 0; k < leaf; k++) {
    float product = w[k] * x[k];
    lanes[k % 16] += product;
  }
  for (int half = 8; half > 0; half /= 2)
    for (int lane = 0; lane < half; lane++) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

/* That of AVX2 and AVX-512: lanes along the leaf, `lanes` of them. */
static void add_lanes(float *sums, int lanes, treadle_dtype dtype, const float *x, const float *w,
                      int32_t leaf) {
  int32_t step = dtype == TREADLE_BF16 ? 2 * lanes : lanes, each = step / lanes;
  for (int32_t done = 0; done < leaf; done += step) {
    int32_t at = done + step > leaf && leaf > step ? leaf - step : done;
    for (int32_t k = at; k < at + step; k++) {
      float product_x = k < done || k >= leaf ? 0 : x[k], product_w = k < leaf ? w[k] : 0;
      float *lane = &sums[(k - at) / each];
      *lane = fmaf(product_w, product_x, *lane);
    }
  }
}

static float avx2(treadle_dtype dtype, const float *x, const float *w, int32_t leaf) {
  float l[8] = {0};
  add_lanes(l, 8, dtype, x, w, leaf);
  return ((l[0] + l[1]) + (l[2] + l[3])) + ((l[4] + l[5]) + (l[6] + l[7]));
}

static float avx512(treadle_dtype dtype, const float *x, const float *w, int32_t leaf) {
  float l[16] = {0};
  add_lanes(l, 16, dtype, x, w, leaf);
  for (int lane = 0; lane < 8; lane++) l[lane] += l[lane + 8];
  return ((l[0] + l[1]) + (l[2] + l[3])) + ((l[4] + l[5]) + (l[6] + l[7]));
}

/* A number that AMX reads or makes. */
static float flushed(float value) { return fabsf(value) < 0x1p-126f ? copysignf(0, value) : value; }

static float amx(treadle_dtype dtype, const float *x, const float *w, int32_t leaf) {
  (void)dtype;
  float sum = 0;
  for (int32_t done = 0; done < leaf; done += 32) {
    int32_t at = done + 32 > leaf ? leaf - 32 : done;
    float of[2] = {0, 0};
    for (int32_t k = at; k < at + 32; k++) {
      float xk = k < done ? 0 : flushed(x[k]);
      of[(k - at) % 2] = flushed(fmaf(flushed(w[k]), xk, of[(k - at) % 2]));
    }
    sum = flushed(sum + flushed(of[0] + of[1]));
  }
  return sum;
}

test_gemm_twin *test_gemm_twin_of(const char *name) {
  static const struct {
    const char *name;
    test_gemm_twin *twin;
  } twins[] = {{"plain", plain}, {"avx2", avx2}, {"avx512", avx512}, {"amx", amx}};
  for (size_t i = 0; i < sizeof twins / sizeof *twins; i++)
    if (strcmp(name, twins[i].name) == 0) return twins[i].twin;
  return NULL;
}

bool test_gemm_twin_has_parts(const char *name) { return strcmp(name, "amx") == 0; }
