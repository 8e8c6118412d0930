/* A product of rows with weights that share them: the rows are packed once, then every thread takes a part of the weights' rows. */
#include "pass/pass_steps.h"

#include "nn/team_product.h"

#include <assert.h>

/* The segments of all terms, and the inner dimension, which they share. */
static int32_t list_segments(treadle_pass *pass, const treadle_product *product) {
  int32_t total = 0;
  for (int i = 0; i < (product->gated ? 1 : product->terms_count); i++) {
    const treadle_term *term = &product->terms[i];
    int64_t row = 0;
    for (int32_t s = 0; s < term->weight->segment_count; s++) {
      const treadle_segment *segment = &term->weight->segments[s];
      pass->buffers.segments[total++] = (treadle_gemm_segment){.weights = treadle_pass_at(pass, segment),
                                                               .rows = segment->rows,
                                                               .stride = segment->stride,
                                                               .column = term->column + row};
      row += segment->rows;
    }
  }
  return total;
}

/* The gates of the segments of a gated product. */
static void list_gates(treadle_pass *pass, const treadle_weight *gates) {
  for (int32_t s = 0; s < gates->segment_count; s++)
    pass->buffers.segments[s].gates = treadle_pass_at(pass, &gates->segments[s]);
}

bool treadle_pass_can_gate(const treadle_pass *pass, const treadle_weight *weight,
                           const treadle_weight *gates) {
  const treadle_gemm_kernel *kernel;
  if (weight->dtype != gates->dtype || weight->segment_count != gates->segment_count ||
      treadle_gemm_choose(pass->options.kernels, weight->dtype, (int32_t)weight->columns, &kernel))
    return false;
  for (int32_t s = 0; s < weight->segment_count; s++)
    if (weight->segments[s].rows != gates->segments[s].rows ||
        weight->segments[s].stride != gates->segments[s].stride)
      return false;
  return kernel->gates;
}

treadle_status treadle_pass_product(treadle_pass *pass, const treadle_product *product) {
  const treadle_weight *first = product->terms[0].weight;
  treadle_gemm_inner inner = {.dtype = first->dtype,
                              .leaf = (int32_t)(first->columns / product->leaves),
                              .range = treadle_pass_leaves(first, product->leaves),
                              .fine = product->fine};
  treadle_team_product w = {.packed = pass->buffers.packed};
  treadle_status status;
  assert(!product->gated || !product->fine);
  if (!product->rows || !first->segment_count) return TREADLE_OK; /* padding is all that the rank has */
  TRY(treadle_gemm_choose(pass->options.kernels, inner.dtype, inner.leaf, &w.kernel));
  w.source = (treadle_gemm_source){
      .inner = inner, .x = product->x, .rows = product->rows, .stride = product->stride};
  w.product = (treadle_gemm_product){.inner = inner,
                                     .packed = w.packed,
                                     .rows = product->rows,
                                     .segments = pass->buffers.segments,
                                     .count = list_segments(pass, product),
                                     .y = product->y,
                                     .stride = product->y_stride,
                                     .node_stride = product->node_stride,
                                     .gated = product->gated};
  if (product->gated) list_gates(pass, product->terms[1].weight);
  treadle_pass_share(pass, treadle_team_product_pack, &w, product->rows * inner.leaf * inner.range.leaves);
  treadle_team_run(pass->team, treadle_team_product_multiply, &w);
out:
  return status;
}
