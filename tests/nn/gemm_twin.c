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
  } twins[] = {{"plain", plain}, {"amx", amx}};
  for (size_t i = 0; i < sizeof twins / sizeof *twins; i++)
    if (strcmp(name, twins[i].name) == 0) return twins[i].twin;
  return NULL;
}
