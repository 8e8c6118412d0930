/* Elements by way of buffers that stay in the first-level cache.
 *
 * A run is gathered, cast and scattered a chunk at a time. A plane is cut into tiles: each is read along the
 * source, line by line, transposed in the cache, cast and written along the destination, so that memory
 * sees whole lines on both sides: one line of the source, four of the destination (docs/speed.md, "Values").
 * Tiles follow each other along the source; the lines of the next but one are asked for while one is at
 * work. */
#include "memory/copy_elems.h"

#include "base/larger.h"
#include "memory/copy_stream.h"
#include "memory/transpose.h"

#include <stdlib.h>

enum { CHUNK = 512, LINE = 64 };
/* Of a tile: the most rows and columns, bytes of a row at the destination, and what keeps rows out of one set of
 * the cache. */
enum { MOST_ROWS = LINE, MOST_COLUMNS = 256, WIDTH = 4 * LINE, PAD = 16 };

void treadle_route_cast(const treadle_route *route, void *to, const void *from, size_t count) {
  if (route->mover == TREADLE_MOVER_STREAM)
    treadle_cast_stream(route->cast, to, from, count);
  else
    treadle_dtype_convert_add(to, route->cast.to, from, route->cast.from, route->cast.add, count);
}

/* The same into a buffer, which stays in the cache. */
static void cast_in_cache(const treadle_route *route, void *to, const void *from, size_t count) {
  if (route->mover == TREADLE_MOVER_STREAM)
    treadle_cast_run(route->cast, to, from, count);
  else
    treadle_route_cast(route, to, from, count);
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
static bool together(const treadle_paged *paged, int64_t at, int64_t stride, int64_t each, int64_t count) {
  int64_t span = (count - 1) * stride + each;
  return !paged->table || (stride >= 0 && treadle_paged_extent(paged, at, span) == span);
}

/* `count` elements of `each` bytes side by side: where they lie, or in the buffer. */
static const void *gather(const treadle_paged *paged, int64_t at, int64_t stride, int64_t each,
                          int64_t count, void *buffer) {
  bool whole = together(paged, at, stride, each, count);
  if (whole && stride == each) return treadle_paged_address(paged, at);
  if (stride == each)
    treadle_paged_read(paged, at, buffer, each * count);
  else if (!whole)
    for (int64_t i = 0; i < count; i++)
      treadle_paged_read(paged, at + i * stride, (char *)buffer + i * each, each);
  else if (each == 1)
    gather_1(buffer, treadle_paged_address(paged, at), stride, count);
  else if (each == 2)
    gather_2(buffer, treadle_paged_address(paged, at), stride, count);
  else
    gather_4(buffer, treadle_paged_address(paged, at), stride, count);
  return buffer;
}

static void scatter(const treadle_paged *paged, int64_t at, int64_t stride, int64_t each, int64_t count,
                    const void *buffer) {
  if (stride == each)
    treadle_paged_write(paged, at, buffer, each * count);
  else if (!together(paged, at, stride, each, count))
    for (int64_t i = 0; i < count; i++)
      treadle_paged_write(paged, at + i * stride, (const char *)buffer + i * each, each);
  else if (each == 1)
    scatter_1(treadle_paged_into(paged, at), buffer, stride, count);
  else if (each == 2)
    scatter_2(treadle_paged_into(paged, at), buffer, stride, count);
  else
    scatter_4(treadle_paged_into(paged, at), buffer, stride, count);
}

void treadle_copy_elems(const treadle_route *route, int64_t to, int64_t to_stride, int64_t from,
                        int64_t from_stride, int64_t count) {
  uint32_t in[CHUNK], out[CHUNK];
  for (int64_t i = 0; i < count; i += CHUNK) {
    int64_t part = count - i < CHUNK ? count - i : CHUNK, at = to + i * to_stride;
    const void *dense =
        gather(route->from_paged, from + i * from_stride, from_stride, route->from_bytes, part, in);
    if (to_stride == route->to_bytes && together(route->to_paged, at, to_stride, route->to_bytes, part)) {
      treadle_route_cast(route, treadle_paged_into(route->to_paged, at), dense, (size_t)part);
      continue;
    }
    if (!treadle_cast_is_copy(route->cast)) {
      cast_in_cache(route, out, dense, (size_t)part);
      dense = out;
    }
    scatter(route->to_paged, at, to_stride, route->to_bytes, part, dense);
  }
}

/* ---- Planes ---- */

/* A row of `read` is a line; rows of `turned` times the bytes of an element are one too. */
typedef struct tiles {
  _Alignas(LINE) char read[MOST_COLUMNS * (LINE + PAD)], turned[MOST_ROWS * (MOST_COLUMNS + PAD)];
} tiles;

/* Whole lines, which are nearly all. A loop of its own: the fewer instructions between two loads, the more of them
 * are under way at once. */
static void read_lines(char *to, size_t to_step, const char *from, int64_t from_step, int64_t columns) {
  for (int64_t column = 0; column < columns; column++, from += from_step, to += to_step) {
    __builtin_prefetch(from + 2 * LINE);
    memcpy(to, from, LINE);
  }
}

/* A row of `read` for each column of the plane. */
static void read_tile(const treadle_route *route, const treadle_plane *plane, int64_t from, int64_t rows,
                      int64_t columns, treadle_tile read) {
  int64_t each = route->from_bytes;
  if (plane->from_row == each && rows * each == LINE &&
      together(route->from_paged, from, plane->from_column, LINE, columns)) {
    read_lines(read.base, read.pitch, treadle_paged_address(route->from_paged, from), plane->from_column,
               columns);
    return;
  }
  for (int64_t column = 0; column < columns; column++) {
    char *to = read.base + (size_t)column * read.pitch;
    int64_t at = from + column * plane->from_column;
    const char *line = gather(route->from_paged, at, plane->from_row, each, rows, to);
    __builtin_prefetch(treadle_paged_address(route->from_paged, at) + 2 * LINE);
    if (line != to) memcpy(to, line, (size_t)(rows * each));
  }
}

static void write_tile(const treadle_route *route, const treadle_plane *plane, int64_t to, int64_t rows,
                       int64_t columns, treadle_tile turned) {
  _Alignas(LINE) char cast[WIDTH];
  int64_t bytes = columns * route->to_bytes;
  for (int64_t row = 0; row < rows; row++) {
    const char *from = turned.base + (size_t)row * turned.pitch;
    int64_t at = to + row * plane->to_row;
    if (!treadle_cast_is_copy(route->cast)) {
      cast_in_cache(route, cast, from, (size_t)columns);
      from = cast;
    }
    if (plane->to_column == route->to_bytes && route->mover == TREADLE_MOVER_STREAM &&
        treadle_paged_extent(route->to_paged, at, bytes) == bytes)
      treadle_stream_lines(treadle_paged_into(route->to_paged, at), from, (size_t)bytes);
    else
      scatter(route->to_paged, at, plane->to_column, route->to_bytes, columns, from);
  }
}

void treadle_copy_plane(const treadle_route *route, int64_t to, int64_t from, const treadle_plane *plane) {
  tiles room; /* what lies beyond the edges is turned too, and written nowhere */
  int64_t each = route->from_bytes, tile_rows = LINE / each;
  int64_t tile_columns = treadle_smaller(WIDTH / route->to_bytes, 2 * WIDTH / each);
  const treadle_tile read = {room.read, LINE + PAD},
                     turned = {room.turned, (size_t)(tile_columns * each + PAD)};
  for (int64_t column = 0, columns; column < plane->columns; column += columns) {
    int64_t column_to = to + column * plane->to_column, column_from = from + column * plane->from_column;
    int64_t head = column_to % LINE / route->to_bytes; /* from the next tile on, whole lines */
    columns = treadle_smaller(plane->columns - column, tile_columns - head);
    for (int64_t row = 0, rows; row < plane->rows; row += rows) {
      rows = treadle_smaller(plane->rows - row, tile_rows);
      read_tile(route, plane, column_from + row * plane->from_row, rows, columns, read);
      if (route->mover == TREADLE_MOVER_STREAM)
        treadle_transpose_tile(turned, read, (size_t)columns, (size_t)rows, (size_t)each);
      else
        treadle_transpose_plain(turned, read, (size_t)columns, (size_t)rows, (size_t)each);
      write_tile(route, plane, column_to + row * plane->to_row, rows, columns, turned);
    }
  }
}
