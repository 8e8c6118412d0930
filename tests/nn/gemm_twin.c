#include "nn/gemm_twin.h"

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

test_gemm_twin *test_gemm_twin_of(const char *name) {
  static const struct {
    const char *name;
    test_gemm_twin *twin;
  } twins[] = {{"plain", plain}};
  for (size_t i = 0; i < sizeof twins / sizeof *twins; i++)
    if (strcmp(name, twins[i].name) == 0) return twins[i].twin;
  return NULL;
}
