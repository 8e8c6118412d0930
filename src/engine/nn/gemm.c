/* The table of kernels. */
#include "nn/gemm.h"

#include "base/dtype.h"
#include "nn/gemm_parts.h"

#include <assert.h>

static const treadle_gemm_kernel *const kernels[] = {
    &treadle_gemm_plain,
#if defined(__x86_64__)
    &treadle_gemm_avx2,
    &treadle_gemm_avx512,
    &treadle_gemm_amx,
#endif
};

enum { KERNELS = sizeof kernels / sizeof *kernels };

const treadle_gemm_kernel *treadle_gemm_kernel_at(int32_t number) {
  return number >= 0 && number < KERNELS ? kernels[number] : NULL;
}

/* The number of the kernel of this name, -1 where there is none. "auto" is the last one. */
static int32_t number_of(const char *name) {
  if (strcmp(name, "auto") == 0) return KERNELS - 1;
  for (int32_t i = 0; i < KERNELS; i++)
    if (strcmp(name, kernels[i]->name) == 0) return i;
  return -1;
}

static treadle_status refuse_name(const char *name) {
  char names[256] = "auto";
  for (int32_t i = 0; i < KERNELS; i++) {
    size_t length = strlen(names);
    snprintf(names + length, sizeof names - length, ", %s", kernels[i]->name);
  }
  REFUSE("no kernels are named \"%.64s\"; there are %s", name, names);
}

treadle_status treadle_gemm_choose(const char *name, treadle_dtype dtype, int32_t leaf,
                                   const treadle_gemm_kernel **kernel_p) {
  int32_t number = number_of(name);
  *kernel_p = NULL;
  if (dtype != TREADLE_BF16 && dtype != TREADLE_FP32)
    REFUSE("there are kernels for weights of bf16 and fp32, and none for %s", treadle_dtype_name(dtype));
  if (number < 0) return refuse_name(name);
  const char *lacks = strcmp(name, "auto") == 0 ? NULL : kernels[number]->lacks();
  if (lacks) REFUSE("the kernels \"%s\" cannot run here: %s", name, lacks);
  while (kernels[number]->lacks() || !kernels[number]->takes(dtype, leaf)) number--;
  assert(number >= 0); /* the plain one takes all */
  *kernel_p = kernels[number];
  return TREADLE_OK;
}

/* ---- Panels ---- */

static int64_t panels_of(const treadle_gemm_segment *segment, int64_t each) {
  return (segment->rows + each - 1) / each;
}

treadle_gemm_walk treadle_gemm_panels(const treadle_gemm_product *product, int64_t each, int32_t index,
                                      int32_t count) {
  treadle_gemm_walk walk = {.product = product, .each = each};
  int64_t panels = 0, begin;
  for (int32_t i = 0; i < product->count; i++) panels += panels_of(&product->segments[i], each);
  walk.left = treadle_gemm_part(panels, index, count, &begin) - begin;
  if (walk.left == 0) return walk;
  while (begin >= panels_of(&product->segments[walk.segment], each))
    begin -= panels_of(&product->segments[walk.segment++], each);
  walk.row = begin * each;
  return walk;
}

bool treadle_gemm_next(treadle_gemm_walk *walk, treadle_gemm_panel *panel_p) {
  if (walk->left == 0) return false;
  const treadle_gemm_segment *segment = &walk->product->segments[walk->segment];
  while (walk->row >= segment->rows) {
    segment = &walk->product->segments[++walk->segment];
    walk->row = 0;
  }
  int64_t stride = segment->stride * (int64_t)treadle_dtype_bytes(walk->product->inner.dtype);
  int64_t rows = treadle_smaller(segment->rows - walk->row, walk->each);
  *panel_p = (treadle_gemm_panel){.weights = (const char *)segment->weights + walk->row * stride,
                                  .gates = (const char *)segment->gates,
                                  .stride = stride,
                                  .rows = rows,
                                  .next = segment->rows - walk->row - rows,
                                  .column = segment->column + walk->row};
  if (panel_p->gates) panel_p->gates += walk->row * stride;
  walk->row += rows;
  walk->left--;
  return true;
}
