/* Runs: a storage tensor's elements in its own row-major order, as maximal stretches of a Hugging Face
 * tensor. For people, tests and programs that look at a layout; plans do not use them. */
#include "base/argument.h"
#include "base/dtype.h"
#include "base/limits.h"
#include "layout/layout.h"

#include <stdlib.h>

typedef TREADLE_ARRAY(treadle_run) run_array;

/* One dimension of a piece: size, and strides in local and in canonical elements. */
typedef struct step {
  int64_t size, local, canonical;
} step;

static treadle_status push_piece(const treadle_layout *layout, const treadle_piece *piece, int64_t begin,
                                 run_array *runs);

static int by_local_stride(const void *a, const void *b) {
  int64_t x = ((const step *)a)->local, y = ((const step *)b)->local;
  return (x < y) - (x > y); /* slow first */
}

/* A stacked tensor's piece, expert by expert: they are tensors of their own to users. Of those that follow `begin`
 * less than `bytes` away. */
static treadle_status push_experts(const treadle_layout *layout, const treadle_piece *piece, int64_t begin,
                                   int64_t bytes, run_array *runs) {
  treadle_status status = TREADLE_OK;
  int64_t count = piece->box.size[0], first = 0;
  if (piece->stride[0] > 0 && piece->offset < begin) first = (begin - piece->offset) / piece->stride[0];
  for (int64_t e = first; e < count && piece->offset + e * piece->stride[0] < begin + bytes; e++) {
    treadle_piece one = *piece;
    one.box.start[0] += e;
    one.box.size[0] = 1;
    one.offset += e * piece->stride[0];
    if (one.offset >= begin) TRY(push_piece(layout, &one, begin, runs));
  }
out:
  return status;
}

static treadle_status refuse_runs(const treadle_layout *layout, const char *name) {
  return treadle_fail(TREADLE_REFUSED, "layout '%s': %s lies in more than %d runs of one storage tensor",
                      layout->text, name, TREADLE_MAX_RUNS);
}

/* The runs of a fill that begin from `begin` on, less than `bytes` away. */
static treadle_status push_fill(const treadle_layout *layout, const treadle_piece *fill, int64_t begin,
                                int64_t bytes, run_array *runs) {
  treadle_status status = TREADLE_OK;
  const treadle_op op = treadle_fill_op(fill);
  int64_t size = (int64_t)treadle_dtype_bytes(fill->dtype), index[TREADLE_MAX_AXES] = {0};
  int last = op.ndim - 1, d;
  bool dense = op.to_stride[last] == size;
  do {
    int64_t at = fill->offset - begin;
    for (int a = 0; a <= last; a++) at += index[a] * op.to_stride[a];
    if (runs->count >= TREADLE_MAX_RUNS) return refuse_runs(layout, "padding");
    if (at >= 0 && at < bytes)
      TRY(treadle_array_push(runs,
                             ((treadle_run){at / size, fill->tensor, 0, 0, dense ? op.size[last] : 1, 0})));
    d = last - dense;
    while (d >= 0 && ++index[d] == op.size[d]) index[d--] = 0;
  } while (d >= 0);
out:
  return status;
}

static treadle_status push_piece(const treadle_layout *layout, const treadle_piece *piece, int64_t begin,
                                 run_array *runs) {
  treadle_status status = TREADLE_OK;
  int64_t size = (int64_t)treadle_dtype_bytes(piece->dtype), local = (piece->offset - begin) / size;
  const treadle_tensor *tensor = &layout->model->tensors[piece->tensor];
  int32_t entry = tensor->first_entry;
  step steps[TREADLE_MAX_AXES];
  int count = 0;
  int64_t weight = 1, start = 0;
  for (int a = tensor->naxes - 1; a >= 0; a--) {
    start += piece->box.start[a] * weight;
    if (piece->box.size[a] > 1)
      steps[count++] = (step){piece->box.size[a], piece->stride[a] / size, weight};
    weight *= tensor->axis[a];
  }
  if (tensor->by_expert) {
    start -= piece->box.start[0] * (weight / tensor->axis[0]);
    entry += (int32_t)piece->box.start[0];
  }
  qsort(steps, (size_t)count, sizeof *steps, by_local_stride);
  step inner = {1, 1, 1}; /* the run: what is contiguous in local memory */
  if (count > 0 && steps[count - 1].local == 1) inner = steps[--count];
  while (count > 0 && steps[count - 1].local == inner.size &&
         steps[count - 1].canonical == inner.size * inner.canonical)
    inner.size *= steps[--count].size;

  int64_t index[TREADLE_MAX_AXES] = {0};
  for (;;) {
    if (runs->count >= TREADLE_MAX_RUNS) return refuse_runs(layout, tensor->name);
    int64_t at = local, from = start;
    for (int d = 0; d < count; d++) {
      at += index[d] * steps[d].local;
      from += index[d] * steps[d].canonical;
    }
    TRY(treadle_array_push(runs,
                           ((treadle_run){at, entry, from, inner.canonical, inner.size, piece->add})));
    int d = count - 1;
    while (d >= 0 && ++index[d] == steps[d].size) index[d--] = 0;
    if (d < 0) break;
  }
out:
  return status;
}

static int by_local_start(const void *a, const void *b) {
  int64_t x = ((const treadle_run *)a)->local_start, y = ((const treadle_run *)b)->local_start;
  return (x > y) - (x < y);
}

/* Joins b to a when it goes on where a ends, at a's pace; a run of one element takes any pace. */
static bool join(treadle_run *a, const treadle_run *b) {
  if (a->tensor != b->tensor || a->add != b->add || a->local_start + a->count != b->local_start)
    return false;
  if (a->tensor >= 0) {
    int64_t stride = a->count > 1 ? a->stride : b->start - a->start;
    if (stride < 1 || (b->count > 1 && b->stride != stride)) return false;
    if (b->start != a->start + a->count * stride) return false;
    a->stride = stride;
  }
  a->count += b->count;
  return true;
}

treadle_status treadle_layout_runs(const treadle_layout *layout, int64_t rank, int32_t storage,
                                   treadle_run **runs_p, size_t *count_p) {
  treadle_status status = TREADLE_OK;
  treadle_pieces pieces = {0};
  run_array runs = {0};
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  TREADLE_NEED(runs_p);
  TREADLE_NEED(count_p);
  *runs_p = NULL;
  *count_p = 0;
  int32_t index = 0;
  int64_t expert;
  TRY(treadle_layout_storage(layout, rank, storage, &info));
  treadle_layout_public(layout, rank, storage, &index, &expert);
  TRY(treadle_layout_pieces_in(layout, rank, index, &pieces));
  for (size_t i = 0; i < pieces.count; i++) {
    const treadle_piece *piece = &pieces.items[i];
    int64_t begin = (int64_t)info.offset_bytes;
    if (piece->tensor < 0)
      TRY(push_fill(layout, piece, begin, (int64_t)info.bytes, &runs));
    else if (layout->model->family->patterns[layout->model->tensors[piece->tensor].pattern].experts)
      TRY(push_experts(layout, piece, begin, (int64_t)info.bytes, &runs));
    else
      TRY(push_piece(layout, piece, begin, &runs));
  }
  if (runs.count > 0) qsort(runs.items, runs.count, sizeof *runs.items, by_local_start);
  size_t kept = 0;
  for (size_t i = 1; i < runs.count; i++)
    if (!join(&runs.items[kept], &runs.items[i])) runs.items[++kept] = runs.items[i];
  if (runs.count > 0) runs.count = kept + 1;
  treadle_run *out = malloc((runs.count ? runs.count : 1) * sizeof *out); /* the caller's free() ends it */
  if (!out) {
    status = treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
    goto out;
  }
  for (size_t i = 0; i < runs.count; i++) out[i] = runs.items[i];
  *runs_p = out;
  *count_p = runs.count;
out:
  treadle_array_release(&pieces);
  treadle_array_release(&runs);
  return status;
}
