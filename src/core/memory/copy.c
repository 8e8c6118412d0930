/* Copying strided boxes.
 *
 * An op is brought to a normal form: dimensions of size 1 dropped, the others ordered by the destination's
 * strides, neighbours that lie densely on both sides merged. Where the fastest dimension is then dense on
 * both sides and values stay what they are, it is a row of bytes, and the next dimension counts rows. A table
 * of pages cuts a window into extents, ranges that are contiguous in memory too: as many rows as lie in one
 * extent on both sides go to the mover at once, a row that crosses a border goes in parts. Rows whose values
 * change are cast on the way, straight from window to window. What is dense on one side only goes through
 * buffers: as a transposed plane where the source is read faster along another dimension. Any alignment on
 * both sides. */
#include "memory/copy.h"

#include "base/dtype.h"
#include "memory/copy_elems.h"
#include "memory/copy_stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An op in normal form. */
typedef struct walk {
  treadle_route route;
  int ndim;
  bool dense;  /* the last dimension is, on both sides */
  bool turned; /* the last but one dimension is the source's fastest */
  int64_t size[TREADLE_MAX_AXES + 1], from[TREADLE_MAX_AXES + 1], to[TREADLE_MAX_AXES + 1]; /* strides */
} walk;

treadle_mover treadle_copy_choose(void) {
  return treadle_stream_supported() && treadle_cast_supported() ? TREADLE_MOVER_STREAM
                                                                : TREADLE_MOVER_PLAIN;
}

void treadle_copy_fence(void) { treadle_stream_fence(); }

/* ---- Rows of bytes ---- */

static void move_rows(treadle_mover mover, char *to, size_t to_stride, const char *from, size_t from_stride,
                      size_t row, size_t rows) {
  if (mover == TREADLE_MOVER_STREAM) {
    treadle_stream_rows(to, to_stride, from, from_stride, row, rows);
    return;
  }
  for (size_t i = 0; i < rows; i++) /* strides may be negative */
    memcpy(to + (ptrdiff_t)(i * to_stride), from + (ptrdiff_t)(i * from_stride), row);
}

/* One run that may cross page borders on either side. */
static void copy_run(const treadle_route *route, int64_t to, int64_t from, int64_t bytes) {
  const treadle_paged *to_paged = route->to_paged, *from_paged = route->from_paged;
  while (bytes > 0) {
    int64_t part = treadle_paged_extent(from_paged, from, treadle_paged_extent(to_paged, to, bytes));
    move_rows(route->mover, treadle_paged_into(to_paged, to), 0, treadle_paged_address(from_paged, from), 0,
              (size_t)part, 1);
    to += part;
    from += part;
    bytes -= part;
  }
}

/* How many of `rows` rows lie in the extent at `at`. */
static int64_t rows_within(const treadle_paged *paged, int64_t at, int64_t stride, int64_t row,
                           int64_t rows) {
  if (!paged->table) return rows;
  if (stride < 0) return 0;
  int64_t bytes = treadle_paged_extent(paged, at, (rows - 1) * stride + row);
  if (bytes < row) return 0;
  int64_t within = stride > 0 ? (bytes - row) / stride + 1 : rows;
  return within < rows ? within : rows;
}

static void copy_rows(const treadle_route *route, int64_t to, int64_t to_stride, int64_t from,
                      int64_t from_stride, int64_t row, int64_t rows) {
  while (rows > 0) {
    int64_t count = rows_within(route->to_paged, to, to_stride, row, rows);
    if (count > 0) count = rows_within(route->from_paged, from, from_stride, row, count);
    if (count > 0) {
      move_rows(route->mover, treadle_paged_into(route->to_paged, to), (size_t)to_stride,
                treadle_paged_address(route->from_paged, from), (size_t)from_stride, (size_t)row,
                (size_t)count);
    } else {
      count = 1;
      copy_run(route, to, from, row);
    }
    to += count * to_stride;
    from += count * from_stride;
    rows -= count;
  }
}

/* ---- Rows of values ---- */

/* A value that lies across a border goes alone. */
static void cast_run(const treadle_route *route, int64_t to, int64_t from, int64_t count) {
  while (count > 0) {
    int64_t part =
        treadle_paged_extent(route->from_paged, from, count * route->from_bytes) / route->from_bytes;
    part = treadle_paged_extent(route->to_paged, to, part * route->to_bytes) / route->to_bytes;
    if (part > 0) {
      treadle_route_cast(route, treadle_paged_into(route->to_paged, to),
                         treadle_paged_address(route->from_paged, from), (size_t)part);
    } else {
      char in[4], out[4];
      part = 1;
      treadle_paged_read(route->from_paged, from, in, route->from_bytes);
      treadle_route_cast(route, out, in, 1);
      treadle_paged_write(route->to_paged, to, out, route->to_bytes);
    }
    to += part * route->to_bytes;
    from += part * route->from_bytes;
    count -= part;
  }
}

/* ---- The walk ---- */

static void take_dim(walk *w, int at, int64_t size, int64_t from, int64_t to) {
  w->size[at] = size;
  w->from[at] = from;
  w->to[at] = to;
}

/* Keeps dimensions ordered by the destination's strides. */
static void add_dim(walk *w, int64_t size, int64_t from, int64_t to) {
  if (size == 1) return;
  int at = w->ndim++;
  for (; at > 0 && llabs(w->to[at - 1]) < llabs(to); at--)
    take_dim(w, at, w->size[at - 1], w->from[at - 1], w->to[at - 1]);
  take_dim(w, at, size, from, to);
}

static void merge_dims(walk *w) {
  int kept = 0;
  for (int d = 0; d < w->ndim; d++) {
    int last = kept - 1;
    if (kept > 0 && w->from[last] == w->size[d] * w->from[d] && w->to[last] == w->size[d] * w->to[d])
      take_dim(w, last, w->size[last] * w->size[d], w->from[d], w->to[d]);
    else
      take_dim(w, kept++, w->size[d], w->from[d], w->to[d]);
  }
  w->ndim = kept;
}

/* Is another dimension faster at the source? It moves to the last place but one. */
static void turn(walk *w) {
  int last = w->ndim - 1, fastest = last;
  w->dense = w->from[last] == w->route.from_bytes && w->to[last] == w->route.to_bytes;
  if (w->dense) return;
  for (int d = last - 1; d >= 0; d--)
    if (llabs(w->from[d]) < llabs(w->from[fastest])) fastest = d;
  if (fastest == last) return;
  w->turned = true;
  int64_t size = w->size[fastest], from = w->from[fastest], to = w->to[fastest];
  for (int d = fastest; d < last - 1; d++) take_dim(w, d, w->size[d + 1], w->from[d + 1], w->to[d + 1]);
  take_dim(w, last - 1, size, from, to);
}

static void descend(const walk *w, int d, int64_t to, int64_t from) {
  const treadle_route *route = &w->route;
  int left = w->ndim - d;
  bool bytes = w->dense && treadle_cast_is_copy(route->cast);
  if (left == 1 && bytes) {
    copy_run(route, to, from, w->size[d] * route->to_bytes);
  } else if (left == 2 && bytes) {
    copy_rows(route, to, w->to[d], from, w->from[d], w->size[d + 1] * route->to_bytes, w->size[d]);
  } else if (left == 1 && w->dense) {
    cast_run(route, to, from, w->size[d]);
  } else if (left == 1) {
    treadle_copy_elems(route, to, w->to[d], from, w->from[d], w->size[d]);
  } else if (left == 2 && w->turned) {
    treadle_plane plane = {w->size[d], w->size[d + 1], w->to[d], w->to[d + 1], w->from[d], w->from[d + 1]};
    treadle_copy_plane(route, to, from, &plane);
  } else {
    for (int64_t i = 0; i < w->size[d]; i++) descend(w, d + 1, to + i * w->to[d], from + i * w->from[d]);
  }
}

/* ---- Fills ---- */

static void zero_run(const treadle_paged *paged, int64_t at, int64_t bytes) {
  while (bytes > 0) {
    int64_t part = treadle_paged_extent(paged, at, bytes);
    memset(treadle_paged_into(paged, at), 0, (size_t)part);
    at += part;
    bytes -= part;
  }
}

/* `value`: of one element; NULL: zeros. */
static void fill_run(const treadle_route *route, int64_t at, int64_t count, const char *value) {
  if (!value) {
    zero_run(route->to_paged, at, count * route->to_bytes);
    return;
  }
  for (int64_t i = 0; i < count; i++)
    treadle_paged_write(route->to_paged, at + i * route->to_bytes, value, route->to_bytes);
}

static void fill_all(const walk *w, int d, int64_t at, const char *value) {
  if (d == w->ndim - 1 && w->to[d] == w->route.to_bytes) {
    fill_run(&w->route, at, w->size[d], value);
  } else if (d == w->ndim) {
    fill_run(&w->route, at, 1, value);
  } else {
    for (int64_t i = 0; i < w->size[d]; i++) fill_all(w, d + 1, at + i * w->to[d], value);
  }
}

static void fill_op(const walk *w, const treadle_op *op) {
  const float infinite = -INFINITY;
  char value[8];
  if (op->tensor == TREADLE_FILL_MINUS_INFINITY)
    treadle_dtype_convert(value, (treadle_dtype)op->to_dtype, &infinite, TREADLE_FP32, 1);
  fill_all(w, 0, op->to, op->tensor == TREADLE_FILL_MINUS_INFINITY ? value : NULL);
}

void treadle_copy_op(const treadle_op *op, const treadle_paged *from, const treadle_paged *to,
                     treadle_mover mover) {
  bool fill = op->source < 0;
  walk w = {.route = {.to_paged = to, .from_paged = from, .mover = mover}};
  w.route.cast.to = (treadle_dtype)op->to_dtype;
  w.route.cast.from = fill ? w.route.cast.to : (treadle_dtype)op->from_dtype;
  w.route.cast.add = op->add;
  w.route.to_bytes = (int64_t)treadle_dtype_bytes(w.route.cast.to);
  w.route.from_bytes = (int64_t)treadle_dtype_bytes(w.route.cast.from);
  for (int d = 0; d < op->ndim; d++) {
    if (op->size[d] <= 0) return;
    add_dim(&w, op->size[d], fill ? op->to_stride[d] : op->from_stride[d], op->to_stride[d]);
  }
  merge_dims(&w);
  if (w.ndim == 0) { /* a single element is a row of one */
    take_dim(&w, 0, 1, w.route.from_bytes, w.route.to_bytes);
    w.ndim = 1;
  }
  turn(&w);
  if (fill)
    fill_op(&w, op);
  else
    descend(&w, 0, op->to, op->from);
}
