/* From pieces to segments. Axes of rows are stepped through from the outside in, and those that lie one behind the other, in the
 * matrix and in memory alike, are one. */
#include "pass/weights.h"

#include "base/dtype.h"

#include <stdlib.h>

typedef TREADLE_ARRAY(treadle_segment) segments;

typedef struct finder {
  const treadle_layout *layout;
  const treadle_tensor *tensor;
  int64_t rank, expert;
  int dim;         /* that of rows */
  int32_t storage; /* of the present piece */
  treadle_weight *weight;
  segments found;
} finder;

static treadle_status refuse(const finder *f, const char *why) {
  return treadle_fail(TREADLE_REFUSED, "%s on rank %lld of %s: %s", f->tensor->name, (long long)f->rank,
                      f->layout->text, why);
}

/* The columns of a piece: one stretch. */
static treadle_status find_columns(const finder *f, const treadle_piece *piece, int64_t each,
                                   int64_t *first_p, int64_t *count_p) {
  const treadle_tensor *t = f->tensor;
  int64_t weight = 1, first = 0, count = 1;
  bool whole = true; /* all axes inside */
  for (int a = t->naxes - 1; a >= 0 && t->axis_dim[a] > f->dim; a--) {
    if (piece->box.size[a] > 1 && piece->stride[a] != each * count)
      return refuse(f, "the engine needs the columns of a row side by side");
    if (piece->box.size[a] > 1 && !whole)
      return refuse(f, "the engine needs columns that follow each other");
    first += piece->box.start[a] * weight;
    count *= piece->box.size[a];
    whole = whole && piece->box.size[a] == t->axis[a];
    weight *= t->axis[a];
  }
  *first_p = first;
  *count_p = count;
  return TREADLE_OK;
}

/* Appends the rows of a piece, from axis `a` on: those of the axes before it are chosen. */
static treadle_status add_rows(finder *f, const treadle_piece *piece, int a, int64_t row, int64_t at) {
  const treadle_tensor *t = f->tensor;
  int64_t each = (int64_t)treadle_dtype_bytes(piece->dtype), weight = 1, distance;
  int last = a;
  treadle_status status = TREADLE_OK;
  while (last + 1 < t->naxes && t->axis_dim[last + 1] == f->dim) last++;
  distance = piece->stride[last];
  bool even = true; /* axes a..last follow each other in the matrix and in memory */
  int64_t rows = piece->box.size[last];
  for (int b = last - 1; b >= a && even; b--) {
    even = piece->box.size[b] == 1 ||
           (piece->box.size[b + 1] == t->axis[b + 1] && piece->stride[b] == distance * rows);
    rows *= piece->box.size[b];
  }
  for (int b = a + 1; b <= last; b++) weight *= t->axis[b];
  if (even) {
    int64_t first = row;
    int64_t step = 1;
    for (int b = last; b >= a; b--) {
      first += piece->box.start[b] * step;
      step *= t->axis[b];
    }
    if (distance % each != 0) return refuse(f, "rows do not begin at whole elements");
    treadle_segment segment = {
        .at = (size_t)at, .first = first, .rows = rows, .stride = distance / each, .storage = f->storage};
    return treadle_array_push(&f->found, segment);
  }
  for (int64_t i = 0; i < piece->box.size[a]; i++)
    TRY(add_rows(f, piece, a + 1, row + (piece->box.start[a] + i) * weight, at + i * piece->stride[a]));
out:
  return status;
}

static treadle_status add_piece(finder *f, const treadle_piece *piece) {
  treadle_weight *weight = f->weight;
  int64_t at = piece->offset, first = 0, count = 0;
  int axis = 0;
  treadle_status status;
  if (f->dim > 0) { /* the expert's axis is the first */
    if (f->expert < piece->box.start[0] || f->expert >= piece->box.start[0] + piece->box.size[0])
      return TREADLE_OK;
    at += (f->expert - piece->box.start[0]) * piece->stride[0];
    axis = 1;
  }
  if (piece->dtype != TREADLE_FP32 && piece->dtype != TREADLE_BF16)
    return refuse(f, "the engine computes with bf16 and fp32; say dtype=bf16 in the layout");
  if (piece->add != 0) return refuse(f, "it is stored with something added");
  TRY(find_columns(f, piece, (int64_t)treadle_dtype_bytes(piece->dtype), &first, &count));
  if (f->found.count &&
      (first != weight->first_column || count != weight->column_count || piece->dtype != weight->dtype))
    return refuse(f, "its parts are of different columns or types");
  f->storage = piece->storage;
  weight->dtype = piece->dtype;
  weight->first_column = first;
  weight->column_count = count;
  TRY(add_rows(f, piece, axis, 0, at));
out:
  return status;
}

static int by_row(const void *a, const void *b) {
  const treadle_segment *x = a, *y = b;
  return x->first != y->first ? (x->first > y->first) - (x->first < y->first)
                              : (x->at > y->at) - (x->at < y->at);
}

/* Sorts; takes away rows that occur twice (a tied tensor may lie twice); joins what lies in one row. */
static void settle(finder *f) {
  segments *s = &f->found;
  size_t kept = 0;
  treadle_weight *w = f->weight;
  int64_t each = (int64_t)treadle_dtype_bytes(w->dtype), end = 0;
  if (s->count) qsort(s->items, s->count, sizeof *s->items, by_row);
  for (size_t i = 0; i < s->count; i++) {
    treadle_segment next = s->items[i];
    int64_t skip = kept && next.first < end ? end - next.first : 0;
    if (skip >= next.rows) continue;
    next.first += skip;
    next.rows -= skip;
    next.at += (size_t)(skip * next.stride * each);
    treadle_segment *before = kept ? &s->items[kept - 1] : NULL;
    bool joins = before && before->storage == next.storage && before->stride == next.stride &&
                 before->first + before->rows == next.first &&
                 next.at == before->at + (size_t)(before->rows * before->stride * each);
    if (joins)
      before->rows += next.rows;
    else
      s->items[kept++] = next;
    end = next.first + next.rows;
    w->row_count += next.rows;
  }
  s->count = kept;
  if (kept) {
    w->first_row = s->items[0].first;
    w->end_row = end;
  }
}

treadle_status treadle_weight_find(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                   int64_t expert, treadle_arena *arena, treadle_weight *weight_p) {
  const treadle_tensor *t = &layout->model->tensors[tensor];
  finder f = {.layout = layout, .tensor = t, .rank = rank, .expert = expert, .weight = weight_p};
  treadle_pieces pieces = {0};
  treadle_segment *segment = NULL;
  int32_t storage_count;
  treadle_status status;
  *weight_p = (treadle_weight){0};
  f.dim = expert >= 0;
  weight_p->rows = t->shape[f.dim];
  weight_p->columns = t->ndim > f.dim + 1 ? t->shape[f.dim + 1] : 1;
  if (t->ndim > f.dim + 2) {
    status = refuse(&f, "it has more than two dimensions");
    goto out;
  }
  TRY(treadle_layout_pieces_of(layout, rank, tensor, &pieces));
  const treadle_storage *storages = treadle_layout_storages(layout, rank, &storage_count);
  for (size_t i = 0; i < pieces.count; i++) /* what is made after loading is a copy in another form */
    if (pieces.items[i].tensor == tensor && !storages[pieces.items[i].storage].derived)
      TRY(add_piece(&f, &pieces.items[i]));
  settle(&f);
  if (f.found.count) {
    segment = treadle_arena_alloc_array(arena, f.found.count, sizeof *segment);
    if (!segment) {
      status = treadle_fail(TREADLE_NO_MEMORY, "no memory for the rows of %s", t->name);
      goto out;
    }
    for (size_t i = 0; i < f.found.count; i++) segment[i] = f.found.items[i];
  }
  weight_p->segments = segment;
  weight_p->segment_count = (int32_t)f.found.count;
out:
  treadle_array_release(&pieces);
  treadle_array_release(&f.found);
  return status;
}
