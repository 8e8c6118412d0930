/* Adapters, merged into what was filled with their matrices. */
#include "convert/fill.h"

#include "base/dtype.h"

typedef struct merging {
  const treadle_filler *f;
  const treadle_adapter_matrix *matrix;
  const treadle_tensor *tensor;
  const treadle_piece *piece;
  const treadle_strided *part;
} merging;

/* `count` elements that follow each other from this row and column on. */
static void merge_run(const merging *m, int64_t row, int64_t column, int64_t count, char *at) {
  const treadle_adapter *a = m->f->adapter;
  const treadle_adapter_row run = {.b = m->f->adapter_values + m->matrix->at_b + row * a->rank,
                                   .a = m->f->adapter_values + m->matrix->at_a + column,
                                   .a_stride = m->matrix->columns,
                                   .w = at,
                                   .dtype = m->piece->dtype,
                                   .count = count};
  treadle_adapter_merge_row(a, &run);
}

/* From axis `axis` on; those before it are chosen, and have come to this row and column. */
static void merge_axes(const merging *m, int axis, int64_t row, int64_t column, char *at) {
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

void treadle_fill_merge(const treadle_filler *f, const treadle_piece *piece, const treadle_strided *part,
                        char *buffer) {
  const merging m = {.f = f,
                     .matrix = &f->adapter->matrices[f->adapter->of_tensor[piece->tensor]],
                     .tensor = &f->source->model->tensors[piece->tensor],
                     .piece = piece,
                     .part = part};
  merge_axes(&m, 0, 0, 0, buffer + part->offset);
}
