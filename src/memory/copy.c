/* Copying strided boxes.
 *
 * An op is brought to a normal form: dimensions of size 1 dropped, neighbours that lie densely on both
 * sides merged. Where the fastest dimension is then dense on both sides and no type is converted, it is a
 * row of bytes, and the next dimension counts rows. A table of pages cuts a window into extents, ranges
 * that are contiguous in memory too: as many rows as lie in one extent on both sides go to the mover at
 * once, a row that crosses a border goes in parts. What is left (conversions, and dimensions that are dense
 * on one side only) goes through a buffer, a chunk of elements at a time, with any alignment on both sides.
 */
#include "memory/copy.h"

#include "base/dtype.h"
#include "memory/copy_stream.h"

#include <string.h>

enum { CHUNK = 1024 }; /* elements of a converted chunk */

/* An op in normal form. */
typedef struct walk {
  const treadle_view *from_view, *to_view;
  treadle_mover mover;
  treadle_dtype from_dtype, to_dtype;
  int64_t from_bytes, to_bytes; /* of an element */
  int ndim;
  int64_t size[TREADLE_MAX_AXES + 1], from[TREADLE_MAX_AXES + 1], to[TREADLE_MAX_AXES + 1]; /* strides */
} walk;

treadle_mover treadle_copy_choose(void) {
  return treadle_stream_supported() ? TREADLE_MOVER_STREAM : TREADLE_MOVER_PLAIN;
}

void treadle_copy_fence(void) { treadle_stream_fence(); }

/* ---- Views ---- */

static char *address(const treadle_view *view, int64_t at) {
  if (!view->table) return view->base + at;
  int64_t page = at >> view->page_shift, in_page = at & (((int64_t)1 << view->page_shift) - 1);
  return view->base + ((int64_t)view->table[page] << view->page_shift) + in_page;
}

/* How many of the `wanted` bytes from `at` on are contiguous in memory. */
static int64_t extent(const treadle_view *view, int64_t at, int64_t wanted) {
  if (!view->table) return wanted;
  int64_t page_bytes = (int64_t)1 << view->page_shift, page = at >> view->page_shift;
  int64_t bytes = page_bytes - (at & (page_bytes - 1));
  for (; bytes < wanted && view->table[page + 1] == view->table[page] + 1; page++) bytes += page_bytes;
  return bytes < wanted ? bytes : wanted;
}

/* ---- Rows of bytes ---- */

static void move_rows(treadle_mover mover, char *to, size_t to_stride, const char *from, size_t from_stride,
                      size_t row, size_t rows) {
  if (mover == TREADLE_MOVER_STREAM) {
    treadle_stream_rows(to, to_stride, from, from_stride, row, rows);
    return;
  }
  for (size_t i = 0; i < rows; i++) memcpy(to + i * to_stride, from + i * from_stride, row);
}

/* One run that may cross page borders on either side. */
static void copy_run(const treadle_view *to_view, int64_t to, const treadle_view *from_view, int64_t from,
                     int64_t bytes, treadle_mover mover) {
  while (bytes > 0) {
    int64_t part = extent(from_view, from, extent(to_view, to, bytes));
    move_rows(mover, address(to_view, to), 0, address(from_view, from), 0, (size_t)part, 1);
    to += part;
    from += part;
    bytes -= part;
  }
}

/* How many of `rows` rows lie in the extent at `at`. */
static int64_t rows_within(const treadle_view *view, int64_t at, int64_t stride, int64_t row,
                           int64_t rows) {
  if (!view->table) return rows;
  if (stride < 0) return 0;
  int64_t bytes = extent(view, at, (rows - 1) * stride + row);
  if (bytes < row) return 0;
  int64_t within = stride > 0 ? (bytes - row) / stride + 1 : rows;
  return within < rows ? within : rows;
}

static void copy_rows(const walk *w, int64_t to, int64_t to_stride, int64_t from, int64_t from_stride,
                      int64_t row, int64_t rows) {
  while (rows > 0) {
    int64_t count = rows_within(w->to_view, to, to_stride, row, rows);
    if (count > 0) count = rows_within(w->from_view, from, from_stride, row, count);
    if (count > 0) {
      move_rows(w->mover, address(w->to_view, to), (size_t)to_stride, address(w->from_view, from),
                (size_t)from_stride, (size_t)row, (size_t)count);
    } else {
      count = 1;
      copy_run(w->to_view, to, w->from_view, from, row, w->mover);
    }
    to += count * to_stride;
    from += count * from_stride;
    rows -= count;
  }
}

/* ---- Elements through a buffer ---- */

/* Gathers `count` elements of `each` bytes (2 or 4) into the buffer, or, with `scatter`, puts them where
 * they belong. */
static void pass(const treadle_view *view, int64_t at, int64_t stride, int64_t each, char *buffer,
                 int64_t count, bool scatter) {
  const treadle_view dense = {.base = buffer};
  if (stride == each) {
    if (scatter)
      copy_run(view, at, &dense, 0, each * count, TREADLE_MOVER_PLAIN);
    else
      copy_run(&dense, 0, view, at, each * count, TREADLE_MOVER_PLAIN);
    return;
  }
  int64_t span = (count - 1) * stride + each;
  bool together = stride > 0 && extent(view, at, span) == span;
  char *begin = address(view, at);
  for (int64_t i = 0; i < count; i++) {
    char *buffered = buffer + i * each, *placed = begin + i * stride;
    if (together && each == 2)
      memcpy(scatter ? placed : buffered, scatter ? buffered : placed, 2);
    else if (together)
      memcpy(scatter ? placed : buffered, scatter ? buffered : placed, 4);
    else if (scatter)
      copy_run(view, at + i * stride, &dense, i * each, each, TREADLE_MOVER_PLAIN);
    else
      copy_run(&dense, i * each, view, at + i * stride, each, TREADLE_MOVER_PLAIN);
  }
}

static void copy_elems(const walk *w, int64_t to, int64_t to_stride, int64_t from, int64_t from_stride,
                       int64_t count) {
  char in[CHUNK * sizeof(float)], out[CHUNK * sizeof(float)];
  for (int64_t i = 0; i < count; i += CHUNK) {
    int64_t part = count - i < CHUNK ? count - i : CHUNK;
    pass(w->from_view, from + i * from_stride, from_stride, w->from_bytes, in, part, false);
    treadle_dtype_convert(out, w->to_dtype, in, w->from_dtype, (size_t)part);
    pass(w->to_view, to + i * to_stride, to_stride, w->to_bytes, out, part, true);
  }
}

/* ---- The walk ---- */

static void add_dim(walk *w, int64_t size, int64_t from, int64_t to) {
  if (size == 1) return;
  int last = w->ndim - 1;
  if (last >= 0 && w->from[last] == size * from && w->to[last] == size * to) {
    w->size[last] *= size;
    w->from[last] = from;
    w->to[last] = to;
    return;
  }
  w->size[w->ndim] = size;
  w->from[w->ndim] = from;
  w->to[w->ndim++] = to;
}

static void descend(const walk *w, int d, int64_t to, int64_t from) {
  int left = w->ndim - d, last = w->ndim - 1;
  bool bytes = w->from_dtype == w->to_dtype && w->from[last] == w->from_bytes && w->to[last] == w->to_bytes;
  if (left == 1 && bytes) {
    copy_run(w->to_view, to, w->from_view, from, w->size[d] * w->to_bytes, w->mover);
  } else if (left == 2 && bytes) {
    copy_rows(w, to, w->to[d], from, w->from[d], w->size[d + 1] * w->to_bytes, w->size[d]);
  } else if (left == 1) {
    copy_elems(w, to, w->to[d], from, w->from[d], w->size[d]);
  } else {
    for (int64_t i = 0; i < w->size[d]; i++) descend(w, d + 1, to + i * w->to[d], from + i * w->from[d]);
  }
}

static void zero_run(const treadle_view *view, int64_t at, int64_t bytes) {
  while (bytes > 0) {
    int64_t part = extent(view, at, bytes);
    memset(address(view, at), 0, (size_t)part);
    at += part;
    bytes -= part;
  }
}

static void zero(const walk *w, int d, int64_t at) {
  if (d == w->ndim - 1 && w->to[d] == w->to_bytes) {
    zero_run(w->to_view, at, w->size[d] * w->to_bytes);
  } else if (d == w->ndim) {
    zero_run(w->to_view, at, w->to_bytes);
  } else {
    for (int64_t i = 0; i < w->size[d]; i++) zero(w, d + 1, at + i * w->to[d]);
  }
}

void treadle_copy_op(const treadle_op *op, const treadle_view *from, const treadle_view *to,
                     treadle_mover mover) {
  bool fill = op->source < 0;
  walk w = {.from_view = from, .to_view = to, .mover = mover, .to_dtype = (treadle_dtype)op->to_dtype};
  w.from_dtype = fill ? w.to_dtype : (treadle_dtype)op->from_dtype;
  w.from_bytes = (int64_t)treadle_dtype_bytes(w.from_dtype);
  w.to_bytes = (int64_t)treadle_dtype_bytes(w.to_dtype);
  for (int d = 0; d < op->ndim; d++) {
    if (op->size[d] <= 0) return;
    add_dim(&w, op->size[d], fill ? op->to_stride[d] : op->from_stride[d], op->to_stride[d]);
  }
  if (w.ndim == 0) { /* a single element is a row of one */
    w.size[0] = 1;
    w.from[0] = w.from_bytes;
    w.to[0] = w.to_bytes;
    w.ndim = 1;
  }
  if (fill)
    zero(&w, 0, op->to);
  else
    descend(&w, 0, op->to, op->from);
}
