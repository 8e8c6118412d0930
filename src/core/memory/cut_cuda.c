/* An op is brought to the normal form of copy.c: axes of one element dropped, the others ordered by the destination's
 * strides, neighbours that lie densely on both sides merged. How its last axes lie then says which kind of box it is.
 *
 * Rows are cut into units, the widest that the addresses allow. Where a row begins between two of them, or ends there,
 * and is long, its ends go into boxes of their own: a head and a tail of single bytes or values. An axis that is too
 * long for 32 bits becomes two, and a box for the rest. */
#include "memory/cut_cuda.h"

#include "base/dtype.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)TREADLE_CUDA_FP32 == TREADLE_FP32 && (int)TREADLE_CUDA_BF16 == TREADLE_BF16 &&
                   (int)TREADLE_CUDA_FP16 == TREADLE_FP16 &&
                   (int)TREADLE_CUDA_FP8_E4M3 == TREADLE_FP8_E4M3 &&
                   (int)TREADLE_CUDA_INT32 == TREADLE_INT32,
               "kernel_cuda.h has the numbers of treadle_dtype");
_Static_assert((int)TREADLE_CUDA_AXES == TREADLE_MAX_AXES + 1, "one more than an op has");
_Static_assert(sizeof(treadle_cuda_box) % 8 == 0 && sizeof(treadle_cuda_block) % 8 == 0 &&
                   sizeof(treadle_cuda_elements) % 8 == 0,
               "kernels take them by words of 8 bytes");

/* A row is cut into head, units and tail where it has at least this many units. */
enum { WIDEST = 16, LONG = 8, LEAST_TILE = 16 };

/* One side of an op. A fill has only the destination, on both sides. */
typedef struct side {
  treadle_cuda_view view;
  int64_t bytes; /* of an element */
  int64_t stride[TREADLE_CUDA_AXES];
} side;

typedef struct walk {
  int ndim;
  int64_t size[TREADLE_CUDA_AXES];
  side from, to;
} walk;

typedef struct cut {
  treadle_cuda_box form; /* what all boxes have in common */
  treadle_cuda_box *boxes;
  int count;
} cut;

/* ---- The normal form ---- */

static void take_axis(walk *w, int at, int64_t size, int64_t from, int64_t to) {
  w->size[at] = size;
  w->from.stride[at] = from;
  w->to.stride[at] = to;
}

static void move_axis(walk *w, int to, int from) {
  take_axis(w, to, w->size[from], w->from.stride[from], w->to.stride[from]);
}

/* Keeps axes ordered by the destination's strides. */
static void add_axis(walk *w, int64_t size, int64_t from, int64_t to) {
  if (size == 1) return;
  int at = w->ndim++;
  for (; at > 0 && llabs(w->to.stride[at - 1]) < llabs(to); at--) move_axis(w, at, at - 1);
  take_axis(w, at, size, from, to);
}

static bool continues(const side *s, int last, int64_t size, int d) {
  return s->stride[last] == size * s->stride[d];
}

static void merge_axes(walk *w) {
  int kept = 0;
  for (int d = 0; d < w->ndim; d++) {
    int64_t size = w->size[d];
    if (kept > 0 && continues(&w->from, kept - 1, size, d) && continues(&w->to, kept - 1, size, d))
      size *= w->size[--kept];
    take_axis(w, kept++, size, w->from.stride[d], w->to.stride[d]);
  }
  w->ndim = kept;
}

/* false: there is no element. */
static bool normalise(walk *w, const treadle_op *op, bool fill) {
  for (int d = 0; d < op->ndim; d++) {
    if (op->size[d] <= 0) return false;
    add_axis(w, op->size[d], fill ? op->to_stride[d] : op->from_stride[d], op->to_stride[d]);
  }
  merge_axes(w);
  if (w->ndim == 0) { /* a single element is a row of one */
    take_axis(w, 0, 1, w->from.bytes, w->to.bytes);
    w->ndim = 1;
  }
  return true;
}

/* The axis that is the source's fastest moves to the last place but one, if tiles are worth their while there. */
static bool turn(walk *w) {
  int last = w->ndim - 1, fastest = last;
  for (int d = last - 1; d >= 0; d--)
    if (llabs(w->from.stride[d]) < llabs(w->from.stride[fastest])) fastest = d;
  if (fastest == last || w->size[fastest] < LEAST_TILE || w->size[last] < LEAST_TILE) return false;
  const int64_t size = w->size[fastest], from = w->from.stride[fastest], to = w->to.stride[fastest];
  for (int d = fastest; d < last - 1; d++) move_axis(w, d, d + 1);
  take_axis(w, last - 1, size, from, to);
  return true;
}

/* ---- Boxes ---- */

static void write_side(treadle_cuda_view *view, int64_t *stride, const side *s, int ndim) {
  *view = s->view;
  for (int d = 0; d < ndim; d++) stride[d] = s->stride[d];
}

static void put_short(cut *c, const walk *w) {
  treadle_cuda_box *box = &c->boxes[c->count];
  assert(c->count < TREADLE_CUDA_BOXES);
  *box = c->form;
  box->ndim = (uint8_t)w->ndim;
  for (int d = 0; d < w->ndim; d++) box->size[d] = (uint32_t)w->size[d];
  write_side(&box->to, box->to_stride, &w->to, w->ndim);
  if (box->kind != TREADLE_CUDA_FILL) write_side(&box->from, box->from_stride, &w->from, w->ndim);
  box->is_first = c->count++ == 0;
  if (!box->is_first) box->mark = 0;
}

/* The part of an axis from `start` on. */
static walk part_of(const walk *w, int axis, int64_t start, int64_t size) {
  walk part = *w;
  part.size[axis] = size;
  part.from.view.at += start * w->from.stride[axis];
  part.to.view.at += start * w->to.stride[axis];
  return part;
}

/* An axis of this many elements, of which one may be too long: memory has no room for two of them. */
static void put(cut *c, const walk *w) {
  const int64_t most = TREADLE_CUDA_MOST_SIZE;
  int axis = 0;
  while (axis < w->ndim && w->size[axis] <= most) axis++;
  if (axis == w->ndim) {
    put_short(c, w);
    return;
  }
  int64_t times = w->size[axis] / most, from = w->from.stride[axis], to = w->to.stride[axis];
  walk whole = part_of(w, axis, 0, most),
       rest = part_of(w, axis, times * most, w->size[axis] - times * most);
  for (int d = whole.ndim++; d > 0; d--) move_axis(&whole, d, d - 1);
  take_axis(&whole, 0, times, most * from, most * to);
  put_short(c, &whole);
  if (rest.size[axis] > 0) put_short(c, &rest);
}

/* ---- Units ---- */

/* Can a unit of `elems` elements be read or written at once, where it begins at element `start` of the last axis, and
 * wherever the first `axes` axes lead from there? It needs an alignment of its bytes, at most of 16, and no border of
 * pages in it. */
static bool fits(const side *s, int axes, int64_t start, int64_t elems) {
  const uint64_t width = (uint64_t)(elems * s->bytes), at = (uint64_t)(s->view.at + start * s->bytes);
  uint64_t steps = 0;
  for (int d = 0; d < axes; d++) steps |= (uint64_t)s->stride[d];
  if (s->view.table) return (s->view.base | at | steps | UINT64_C(1) << s->view.page_shift) % width == 0;
  return ((s->view.base + at) | steps) % (width < WIDEST ? width : WIDEST) == 0;
}

/* The number of the first element at which a unit can begin on both sides; -1: none. */
static int64_t first_unit(const walk *w, int64_t elems) {
  for (int64_t start = 0; start < elems; start++)
    if (fits(&w->from, w->ndim - 1, start, elems) && fits(&w->to, w->ndim - 1, start, elems)) return start;
  return -1;
}

static void put_units(cut *c, const walk *w, int64_t start, int64_t count, int64_t elems) {
  const int last = w->ndim - 1;
  if (count == 0) return;
  walk part = part_of(w, last, start, count);
  part.from.stride[last] *= elems;
  part.to.stride[last] *= elems;
  c->form.width = (uint8_t)(c->form.kind == TREADLE_CUDA_VALUES ? elems : elems * w->to.bytes);
  put(c, &part);
}

/* Dense rows in units of `elems` elements; false: that does not suit them. */
static bool put_rows(cut *c, const walk *w, int64_t elems) {
  const int64_t size = w->size[w->ndim - 1], head = first_unit(w, elems);
  if (head < 0) return false;
  const bool whole = head == 0 && size % elems == 0;
  if (!whole && size < LONG * elems) return false;
  const int64_t count = (size - head) / elems, end = head + count * elems;
  put_units(c, w, 0, head, 1);
  put_units(c, w, head, count, elems);
  put_units(c, w, end, size - end, 1);
  return true;
}

/* Single elements, wherever they lie: in tiles, or one by one. */
static void put_elems(cut *c, walk *w) {
  const bool by_bytes = !fits(&w->from, w->ndim, 0, 1) || !fits(&w->to, w->ndim, 0, 1);
  if (c->form.kind != TREADLE_CUDA_FILL)
    c->form.kind = !by_bytes && turn(w) ? TREADLE_CUDA_TILES : TREADLE_CUDA_VALUES;
  c->form.by_bytes = by_bytes;
  c->form.width = (uint8_t)(c->form.kind == TREADLE_CUDA_FILL ? w->to.bytes : 1);
  put(c, w);
}

/* ---- Ops ---- */

static uint64_t fill_value(const treadle_op *op) {
  const float infinite = -INFINITY;
  unsigned char value[8] = {0};
  const size_t bytes = treadle_dtype_bytes((treadle_dtype)op->to_dtype);
  if (op->tensor == TREADLE_FILL_MINUS_INFINITY)
    treadle_dtype_convert(value, (treadle_dtype)op->to_dtype, &infinite, TREADLE_FP32, 1);
  for (size_t i = bytes; i < sizeof value; i++) value[i] = value[i - bytes];
  uint64_t all;
  memcpy(&all, value, sizeof all);
  return all;
}

/* Rows of elements that are not aligned: of bytes. */
static void bytes_of_row(walk *w) {
  const int last = w->ndim - 1;
  take_axis(w, last, w->size[last] * w->to.bytes, 1, 1);
  w->from.bytes = w->to.bytes = 1;
}

static void cut_dense(cut *c, walk *w, bool converts) {
  if (converts) {
    c->form.kind = TREADLE_CUDA_VALUES;
    if (!put_rows(c, w, 8)) put_elems(c, w);
    return;
  }
  if (first_unit(w, 1) < 0 && c->form.kind == TREADLE_CUDA_FILL) {
    put_elems(c, w);
    return;
  }
  if (first_unit(w, 1) < 0) bytes_of_row(w);
  for (int64_t elems = WIDEST / w->to.bytes; !put_rows(c, w, elems);) elems /= 2;
}

int treadle_cuda_cut(const treadle_op *op, const treadle_cuda_view *from, const treadle_cuda_view *to,
                     treadle_cuda_box *boxes) {
  const bool fill = op->source < 0;
  const uint8_t from_dtype = fill ? op->to_dtype : op->from_dtype;
  cut c = {.boxes = boxes};
  c.form = (treadle_cuda_box){.kind = fill ? TREADLE_CUDA_FILL : TREADLE_CUDA_ROWS,
                              .from_dtype = from_dtype,
                              .to_dtype = op->to_dtype,
                              .add = fill ? 0 : op->add,
                              .mark = treadle_op_mark(op),
                              .value = fill ? fill_value(op) : 0};
  walk w = {.from.view = fill ? *to : *from, .to.view = *to};
  w.from.view.at = fill ? op->to : op->from;
  w.to.view.at = op->to;
  w.from.bytes = (int64_t)treadle_dtype_bytes((treadle_dtype)from_dtype);
  w.to.bytes = (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype);
  if (!normalise(&w, op, fill)) return 0;
  const int last = w.ndim - 1;
  if (w.from.stride[last] == w.from.bytes && w.to.stride[last] == w.to.bytes)
    cut_dense(&c, &w, from_dtype != op->to_dtype || c.form.add != 0);
  else
    put_elems(&c, &w);
  return c.count;
}

/* ---- Items ---- */

static int64_t tiles(uint32_t size) { return ((int64_t)size + TREADLE_CUDA_TILE - 1) / TREADLE_CUDA_TILE; }

/* Units of a box, or tiles. */
static int64_t units_of(const treadle_cuda_box *box) {
  int64_t units = 1;
  for (int d = 0; d < box->ndim; d++)
    units *= box->kind == TREADLE_CUDA_TILES && d >= box->ndim - 2 ? tiles(box->size[d]) : box->size[d];
  return units;
}

static int64_t units_of_item(const treadle_cuda_box *box) {
  if (box->kind == TREADLE_CUDA_TILES) return 1;
  size_t bytes = box->width;
  if (box->kind == TREADLE_CUDA_VALUES) bytes *= treadle_dtype_bytes((treadle_dtype)box->to_dtype);
  return TREADLE_CUDA_ITEM_BYTES / (int64_t)bytes;
}

int64_t treadle_cuda_item_count(const treadle_cuda_box *box) {
  const int64_t each = units_of_item(box);
  return (units_of(box) + each - 1) / each;
}

treadle_cuda_item treadle_cuda_item_of(const treadle_cuda_box *box, uint32_t number, int64_t i) {
  const int64_t each = units_of_item(box), left = units_of(box) - i * each;
  return (treadle_cuda_item){
      .box = number, .start = (uint64_t)(i * each), .count = (uint32_t)(left < each ? left : each)};
}
