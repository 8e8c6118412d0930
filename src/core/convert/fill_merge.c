/* Adapters, merged into what was filled with their matrices. */
#include "convert/fill.h"

#include "base/dtype.h"

typedef struct merging {
  const treadle_filler *f;
  const treadle_adapter_matrix *matrix;
  const treadle_tensor *tensor;
  const treadle_piece *piece;
  const treadle_strided *part;
  int64_t odd_row, odd_column; /* of the first element that is not finite any more; -1: there is none */
} merging;

/* `count` elements that follow each other from this row and column on. */
static void merge_run(merging *m, int64_t row, int64_t column, int64_t count, char *at) {
  const treadle_adapter *a = m->f->adapter;
  const treadle_adapter_row run = {.b = m->f->adapter_values + m->matrix->at_b + row * a->rank,
                                   .a = m->f->adapter_values + m->matrix->at_a + column,
                                   .a_stride = m->matrix->columns,
                                   .w = at,
                                   .dtype = m->piece->dtype,
                                   .count = count};
  const int64_t odd = treadle_adapter_merge_row(a, &run);
  if (odd < 0 || m->odd_row >= 0) return;
  m->odd_row = row;
  m->odd_column = column + odd;
}

/* From axis `axis` on; those before it are chosen, and have come to this row and column. */
static void merge_axes(merging *m, int axis, int64_t row, int64_t column, char *at) {
  const treadle_box *box = &m->part->box;
  const int dim = m->tensor->axis_dim[axis];
  const bool last = axis == m->tensor->naxes - 1;
  const int64_t stride = m->piece->stride[axis];
  int64_t weight = 1;
  for (int b = axis + 1; b < m->tensor->naxes && m->tensor->axis_dim[b] == dim; b++)
    weight *= m->tensor->axis[b];
  if (last && dim == 1 && stride == (int64_t)treadle_dtype_bytes(m->piece->dtype)) {
    merge_run(m, row, column + box->start[axis], box->size[axis], at);
    return;
  }
  for (int64_t i = 0; i < box->size[axis]; i++, at += stride) {
    const int64_t step = (box->start[axis] + i) * weight;
    const int64_t r = dim == 0 ? row + step : row, c = dim == 1 ? column + step : column;
    if (last)
      merge_run(m, r, c, 1, at);
    else
      merge_axes(m, axis + 1, r, c, at);
  }
}

treadle_status treadle_fill_merge(treadle_filler *f, const treadle_piece *piece,
                                  const treadle_strided *part, char *buffer) {
  merging m = {.f = f,
               .matrix = &f->adapter->matrices[f->adapter->of_tensor[piece->tensor]],
               .tensor = &f->source->model->tensors[piece->tensor],
               .piece = piece,
               .part = part,
               .odd_row = -1};
  merge_axes(&m, 0, 0, 0, buffer + part->offset);
  if (m.odd_row < 0) return TREADLE_OK;
  f->wrong = true;
  REFUSE("%s: element [%lld, %lld] with its adapter is infinite or not a number in %s", m.tensor->name,
         (long long)m.odd_row, (long long)m.odd_column, treadle_dtype_name(piece->dtype));
}
