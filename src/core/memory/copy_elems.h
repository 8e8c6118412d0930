/* Copying elements that do not lie side by side on both sides. */
#ifndef TREADLE_MEMORY_COPY_ELEMS_H
#define TREADLE_MEMORY_COPY_ELEMS_H

#include "memory/cast.h"
#include "memory/copy.h"

/* What all elements of an op have in common. */
typedef struct treadle_route {
  const treadle_paged *to_paged, *from_paged;
  int64_t to_bytes, from_bytes; /* of an element */
  treadle_cast cast;
  treadle_mover mover;
} treadle_route;

/* Values by the mover's means, into a window; both sides are dense. */
void treadle_route_cast(const treadle_route *route, void *to, const void *from, size_t count);

/* A run of elements with any strides. */
void treadle_copy_elems(const treadle_route *route, int64_t to, int64_t to_stride, int64_t from,
                        int64_t from_stride, int64_t count);

/* A plane of `rows` by `columns` elements. Rows follow each other most closely at the source, columns at the
 * destination: it is transposed, tile by tile. */
typedef struct treadle_plane {
  int64_t rows, columns;
  int64_t to_row, to_column, from_row, from_column; /* strides */
} treadle_plane;
void treadle_copy_plane(const treadle_route *route, int64_t to, int64_t from, const treadle_plane *plane);

#endif
