/* Transposing tiles that lie in the first-level cache. */
#ifndef TREADLE_MEMORY_TRANSPOSE_H
#define TREADLE_MEMORY_TRANSPOSE_H

#include <stddef.h>

/* A tile has up to this many elements a side. */
enum { TREADLE_TILE = 64 };

/* to[column][row] = from[row][column] for elements of `each` bytes (1, 2 or 4). Both sides have TREADLE_TILE elements a
 * row and room for whole blocks: rows and columns are rounded up to 16, and what lies there is written too. */
void treadle_transpose_tile(void *to, const void *from, size_t rows, size_t columns, size_t each);
/* The plain twin: writes rows * columns elements. */
void treadle_transpose_plain(void *to, const void *from, size_t rows, size_t columns, size_t each);

#endif
