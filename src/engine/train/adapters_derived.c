/* What engines make of a matrix after loading, such as kv_b_proj's rows for keys and for values in shapes of their own: storage tensors of a layout
 * that are derived. They get the values of the merged matrix, which lies in the same window. */
#include "train/adapters_derived.h"

#include "base/dtype.h"

typedef struct deriving {
  const treadle_tensor *tensor;
  const treadle_weight *w;
  treadle_piece piece;
  char *window;
} deriving;

static const char *row_at(const deriving *v, int64_t row) {
  const treadle_segment *s = v->w->segments;
  while (row >= s->first + s->rows) s++;
  return v->window + s->at + (row - s->first) * s->stride * (int64_t)treadle_dtype_bytes(v->w->dtype);
}

/* From an axis on; those before it are chosen, and have come to this row and column. */
static void take_axes(const deriving *v, int axis, int64_t row, int64_t column, char *to) {
  const treadle_tensor *t = v->tensor;
  const treadle_piece *piece = &v->piece;
  const int dim = t->axis_dim[axis];
  const int64_t each = (int64_t)treadle_dtype_bytes(v->w->dtype), stride = piece->stride[axis];
  const bool last = axis == t->naxes - 1;
  const int64_t run =
      last && stride == (int64_t)treadle_dtype_bytes(piece->dtype) ? piece->box.size[axis] : 1;
  int64_t weight = 1;
  for (int b = axis + 1; b < t->naxes && t->axis_dim[b] == dim; b++) weight *= t->axis[b];
  for (int64_t i = 0; i < piece->box.size[axis]; i += run, to += run * stride) {
    const int64_t step = (piece->box.start[axis] + i) * weight;
    const int64_t r = dim == 0 ? row + step : row, c = dim == 1 ? column + step : column;
    if (last)
      treadle_dtype_convert(to, piece->dtype, row_at(v, r) + c * each, v->w->dtype, (size_t)run);
    else
      take_axes(v, axis + 1, r, c, to);
  }
}

/* Are the rows of a piece among those that lie here? */
static bool has_rows(const deriving *v) {
  const treadle_tensor *t = v->tensor;
  int64_t first = 0, last = 0, weight = 1;
  for (int a = t->naxes - 1; a >= 0; a--) {
    if (t->axis_dim[a] != 0) continue;
    first += v->piece.box.start[a] * weight;
    last += (v->piece.box.start[a] + v->piece.box.size[a] - 1) * weight;
    weight *= t->axis[a];
  }
  return v->w->row_count == v->w->end_row - v->w->first_row && first >= v->w->first_row &&
         last < v->w->end_row && v->w->column_count == v->w->columns;
}

/* Each thread has a part of the first axis, such as some of the heads. */
static void take_part(void *context, int32_t index, int32_t count) {
  deriving v = *(const deriving *)context;
  const int64_t all = v.piece.box.size[0], first = all * index / count, end = all * (index + 1) / count;
  v.piece.box.start[0] += first;
  v.piece.box.size[0] = end - first;
  take_axes(&v, 0, 0, 0, v.window + v.piece.offset + first * v.piece.stride[0]);
}

treadle_status treadle_train_take_derived(treadle_team *team, const treadle_layout *layout, int64_t rank,
                                          const treadle_weight *w, int32_t tensor, char *window) {
  deriving v = {.tensor = &layout->model->tensors[tensor], .w = w, .window = window};
  treadle_pieces pieces = {0};
  int32_t count;
  treadle_status status;
  TRY(treadle_layout_pieces_of(layout, rank, tensor, &pieces));
  const treadle_storage *storages = treadle_layout_storages(layout, rank, &count);
  for (size_t i = 0; i < pieces.count; i++) {
    v.piece = pieces.items[i];
    if (v.piece.tensor != tensor || !storages[v.piece.storage].derived) continue;
    if (!has_rows(&v))
      TRY(treadle_fail(TREADLE_REFUSED,
                       "layout '%s': rank %lld has values derived of %s, but not all of the rows that they "
                       "are made of, so their adapter cannot be merged",
                       layout->text, (long long)rank, v.tensor->name));
    treadle_team_run(team, take_part, &v);
  }
out:
  treadle_array_release(&pieces);
  return status;
}
