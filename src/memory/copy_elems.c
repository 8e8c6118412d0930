/* Elements by way of buffers that stay in the first-level cache.
 *
 * A run is gathered, cast and scattered a chunk at a time. A plane is cut into tiles: each is read along the
 * source, line by line, cast, transposed in the cache, and written along the destination, so that memory
 * sees whole lines on both sides. Tiles follow each other along the source; the lines of the next one are
 * asked for while one is at work. */
#include "memory/copy_elems.h"

#include "memory/copy_stream.h"
#include "memory/transpose.h"

enum { CHUNK = 512, TILE = TREADLE_TILE, LINE = 64 };

void treadle_route_cast(const treadle_route *route, void *to, const void *from, size_t count) {
  if (route->mover == TREADLE_MOVER_STREAM)
    treadle_cast_run(route->cast, to, from, count);
  else
    treadle_dtype_convert_add(to, route->cast.to, from, route->cast.from, route->cast.add, count);
}

/* ---- Gathering and scattering ---- */

/* Loops for each size of element; every second element, as in interleaved gate and up, has its own. */
#define STRIDED(suffix, type)                                                                              \
  static void gather_##suffix(type *to, const char *from, int64_t stride, int64_t count) {                 \
    if (stride == 2 * (int64_t)sizeof(type))                                                               \
      for (int64_t i = 0; i < count; i++)                                                                  \
        memcpy(&to[i], from + i * 2 * (int64_t)sizeof(type), sizeof(type));                                \
    else                                                                                                   \
      for (int64_t i = 0; i < count; i++) memcpy(&to[i], from + i * stride, sizeof(type));                 \
  }                                                                                                        \
  static void scatter_##suffix(char *to, const type *from, int64_t stride, int64_t count) {                \
    for (int64_t i = 0; i < count; i++) memcpy(to + i * stride, &from[i], sizeof(type));                   \
  }
STRIDED(1, uint8_t)
STRIDED(2, uint16_t)
STRIDED(4, uint32_t)

/* Are elements with this stride in one extent? */
static bool together(const treadle_view *view, int64_t at, int64_t stride, int64_t each, int64_t count) {
  int64_t span = (count - 1) * stride + each;
  return !view->table || (stride >= 0 && treadle_view_extent(view, at, span) == span);
}

/* `count` elements of `each` bytes side by side: where they lie, or in the buffer. */
static const void *gather(const treadle_view *view, int64_t at, int64_t stride, int64_t each, int64_t count,
                          void *buffer) {
  bool whole = together(view, at, stride, each, count);
  if (whole && stride == each) return treadle_view_address(view, at);
  if (stride == each)
    treadle_view_read(view, at, buffer, each * count);
  else if (!whole)
    for (int64_t i = 0; i < count; i++)
      treadle_view_read(view, at + i * stride, (char *)buffer + i * each, each);
  else if (each == 1)
    gather_1(buffer, treadle_view_address(view, at), stride, count);
  else if (each == 2)
    gather_2(buffer, treadle_view_address(view, at), stride, count);
  else
    gather_4(buffer, treadle_view_address(view, at), stride, count);
  return buffer;
}

static void scatter(const treadle_view *view, int64_t at, int64_t stride, int64_t each, int64_t count,
                    const void *buffer) {
  if (stride == each)
    treadle_view_write(view, at, buffer, each * count);
  else if (!together(view, at, stride, each, count))
    for (int64_t i = 0; i < count; i++)
      treadle_view_write(view, at + i * stride, (const char *)buffer + i * each, each);
  else if (each == 1)
    scatter_1(treadle_view_address(view, at), buffer, stride, count);
  else if (each == 2)
    scatter_2(treadle_view_address(view, at), buffer, stride, count);
  else
    scatter_4(treadle_view_address(view, at), buffer, stride, count);
}

void treadle_copy_elems(const treadle_route *route, int64_t to, int64_t to_stride, int64_t from,
                        int64_t from_stride, int64_t count) {
  uint32_t in[CHUNK], out[CHUNK];
  for (int64_t i = 0; i < count; i += CHUNK) {
    int64_t part = count - i < CHUNK ? count - i : CHUNK, at = to + i * to_stride;
    const void *dense =
        gather(route->from_view, from + i * from_stride, from_stride, route->from_bytes, part, in);
    if (to_stride == route->to_bytes && together(route->to_view, at, to_stride, route->to_bytes, part)) {
      treadle_route_cast(route, treadle_view_address(route->to_view, at), dense, (size_t)part);
      continue;
    }
    if (!treadle_cast_is_copy(route->cast)) {
      treadle_route_cast(route, out, dense, (size_t)part);
      dense = out;
    }
    scatter(route->to_view, at, to_stride, route->to_bytes, part, dense);
  }
}

/* ---- Planes ---- */

/* Rows and columns have TILE elements a line, whatever their size. */
typedef struct turntable {
  _Alignas(LINE) uint32_t read[TILE * TILE], turned[TILE * TILE];
} turntable;

static void prefetch(const treadle_route *route, int64_t at, int64_t bytes) {
  const char *begin = treadle_view_address(route->from_view, at);
  for (int64_t line = 0; line < bytes; line += LINE) __builtin_prefetch(begin + line);
}

/* `more`: another tile follows along the rows. */
static void read_tile(const treadle_route *route, const treadle_plane *plane, int64_t from, int64_t rows,
                      int64_t columns, bool more, turntable *tile) {
  uint32_t buffer[TILE];
  int64_t pitch = TILE * route->to_bytes;
  for (int64_t column = 0; column < columns; column++) {
    int64_t at = from + column * plane->from_column;
    const void *dense = gather(route->from_view, at, plane->from_row, route->from_bytes, rows, buffer);
    if (more) prefetch(route, at + rows * plane->from_row, rows * plane->from_row);
    treadle_route_cast(route, (char *)tile->read + column * pitch, dense, (size_t)rows);
  }
}

static void write_tile(const treadle_route *route, const treadle_plane *plane, int64_t to, int64_t rows,
                       int64_t columns, const turntable *tile) {
  int64_t pitch = TILE * route->to_bytes, bytes = columns * route->to_bytes;
  for (int64_t row = 0; row < rows; row++) {
    const char *turned = (const char *)tile->turned + row * pitch;
    int64_t at = to + row * plane->to_row;
    if (plane->to_column == route->to_bytes && route->mover == TREADLE_MOVER_STREAM &&
        treadle_view_extent(route->to_view, at, bytes) == bytes)
      treadle_stream_lines(treadle_view_address(route->to_view, at), turned, (size_t)bytes);
    else
      scatter(route->to_view, at, plane->to_column, route->to_bytes, columns, turned);
  }
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

void treadle_copy_plane(const treadle_route *route, int64_t to, int64_t from, const treadle_plane *plane) {
  turntable tile;
  memset(&tile, 0, sizeof tile); /* blocks at the edges turn more than was read */
  for (int64_t column = 0, columns; column < plane->columns; column += columns) {
    int64_t column_to = to + column * plane->to_column, column_from = from + column * plane->from_column;
    columns =
        smaller(plane->columns - column, TILE - column_to % LINE / route->to_bytes); /* then whole lines */
    for (int64_t row = 0, rows; row < plane->rows; row += rows) {
      rows = smaller(plane->rows - row, TILE);
      bool more = plane->rows - row >= 2 * TILE && plane->from_row <= 4 * route->from_bytes;
      read_tile(route, plane, column_from + row * plane->from_row, rows, columns, more, &tile);
      if (route->mover == TREADLE_MOVER_STREAM)
        treadle_transpose_tile(tile.turned, tile.read, (size_t)columns, (size_t)rows,
                               (size_t)route->to_bytes);
      else
        treadle_transpose_plain(tile.turned, tile.read, (size_t)columns, (size_t)rows,
                                (size_t)route->to_bytes);
      write_tile(route, plane, column_to + row * plane->to_row, rows, columns, &tile);
    }
  }
}
