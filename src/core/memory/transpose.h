/* Transposing tiles that lie in the first-level cache. */
#ifndef TREADLE_MEMORY_TRANSPOSE_H
#define TREADLE_MEMORY_TRANSPOSE_H

#include <stddef.h>

/* A matrix in the cache, `pitch` bytes from row to row. */
typedef struct treadle_tile {
  char *base;
  size_t pitch;
} treadle_tile;

/* to[column][row] = from[row][column] for elements of `each` bytes (1, 2 or 4). Works in blocks: on both sides
 * there is room for rows and columns rounded up to 16, and what lies there is read and written too. */
void treadle_transpose_tile(treadle_tile to, treadle_tile from, size_t rows, size_t columns, size_t each);
/* The plain twin: rows * columns elements. */
void treadle_transpose_plain(treadle_tile to, treadle_tile from, size_t rows, size_t columns, size_t each);

#endif
