/* Matrices that a layout stores in another type than the pass computes in, such as routers in fp32 beside weights in bf16: bits may not
 * depend on the layout, so such a matrix is read from a copy in the type of the pass. Packed weights count these copies. */
#include "pass/pass_steps.h"

#include "base/dtype.h"

#include <string.h>

static treadle_status take_copy(treadle_pass *p, treadle_weight *weight) {
  treadle_status status = TREADLE_OK;
  if (!weight->segment_count || weight->columns <= 1 || weight->dtype == p->options.dtype)
    return TREADLE_OK;
  size_t bytes = (size_t)(weight->row_count * weight->column_count) * treadle_dtype_bytes(p->options.dtype);
  treadle_pass_copy *copy = treadle_arena_alloc(&p->arena, sizeof *copy);
  treadle_segment *whole =
      treadle_arena_alloc_array(&p->arena, (size_t)weight->segment_count, sizeof *whole);
  if (!copy || !whole) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a forward pass");
  *copy = (treadle_pass_copy){.weight = weight,
                              .from = weight->segments,
                              .dtype = weight->dtype,
                              .from_count = weight->segment_count,
                              .whole = whole,
                              .bytes = bytes,
                              .next = p->copies};
  int64_t row = 0;
  for (int32_t s = 0; s < weight->segment_count; s++) {
    whole[s] = (treadle_segment){.at = (size_t)(row * weight->column_count) *
                                       treadle_dtype_bytes(p->options.dtype),
                                 .first = weight->segments[s].first,
                                 .rows = weight->segments[s].rows,
                                 .stride = weight->column_count};
    row += weight->segments[s].rows;
  }
  weight->segments = whole;
  weight->dtype = p->options.dtype;
  p->copies = copy;
  return status;
}

void treadle_pass_place_copy(treadle_pass_copy *copy, char *to) {
  copy->to = to;
  for (int32_t s = 0; s < copy->from_count; s++) copy->whole[s].copy = to;
}

static treadle_status take_experts(treadle_pass *p, treadle_weight *experts) {
  treadle_status status = TREADLE_OK;
  for (int64_t e = 0; experts && e < p->transformer->routing.experts; e++) TRY(take_copy(p, &experts[e]));
out:
  return status;
}

treadle_status treadle_pass_take_copies(treadle_pass *p) {
  treadle_status status = TREADLE_OK;
  for (int32_t l = 0; l < p->transformer->layers; l++) {
    treadle_layer_weights *w = &p->layers[l];
    for (int role = 0; role < TREADLE_ROLES; role++) TRY(take_copy(p, &w->weight[role]));
    TRY(take_experts(p, w->expert_gate));
    TRY(take_experts(p, w->expert_up));
    TRY(take_experts(p, w->expert_down));
  }
  TRY(take_copy(p, &p->head));
out:
  return status;
}

void treadle_pass_fill_copies(treadle_pass *p) {
  for (const treadle_pass_copy *copy = p->copies; copy; copy = copy->next) {
    const treadle_weight *weight = copy->weight;
    size_t to_bytes = (size_t)weight->column_count * treadle_dtype_bytes(weight->dtype),
           from_each = treadle_dtype_bytes(copy->dtype);
    char *to = copy->to;
    for (int32_t s = 0; s < copy->from_count; s++) {
      const char *from = treadle_pass_at(p, &copy->from[s]);
      for (int64_t row = 0; row < copy->from[s].rows; row++, to += to_bytes)
        treadle_dtype_convert(to, weight->dtype, from + (size_t)(row * copy->from[s].stride) * from_each,
                              copy->dtype, (size_t)weight->column_count);
    }
  }
}
