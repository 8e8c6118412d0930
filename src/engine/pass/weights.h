/* What a rank has of a weight, as rows that lie in its window: rows of the Hugging Face matrix, in order, each in one stretch.
 *
 * Layouts fuse and interleave: q, k and v of a group, gate and up, experts. The engine does not know how. It asks the layout for the
 * pieces of a tensor (layout/layout.h) and makes segments of them: `rows` rows from `first` on, `stride` elements apart. Each engine's storage
 * is so used as it lies; no copy is made. */
#ifndef TREADLE_PASS_WEIGHTS_H
#define TREADLE_PASS_WEIGHTS_H

#include "base/arena.h"
#include "layout/layout.h"

typedef struct treadle_segment {
  const char *copy; /* NULL: in the window; else it begins here in place of the window */
  size_t at;        /* bytes from the start of the window to the first element, as the layout has it */
  int64_t first;    /* row of the whole matrix */
  int64_t rows;     /* how many */
  int64_t stride;   /* elements from one row to the next */
  int32_t storage;  /* the storage tensor that they are of: a plan may place it elsewhere (alias) */
} treadle_segment;

/* A matrix [rows, columns], of which a rank has some rows, and of all of these the same columns. A vector is a matrix of one
 * column. */
typedef struct treadle_weight {
  treadle_dtype dtype;
  int64_t rows, columns;              /* of the whole */
  int64_t first_row, end_row;         /* the first row that is here, and the one behind the last */
  int64_t row_count;                  /* how many are here */
  int64_t first_column, column_count; /* that are here */
  int32_t segment_count;              /* ascending by row, no row twice; 0: nothing is here */
  const treadle_segment *segments;
} treadle_weight;

/* What `rank` has of a tensor; of an expert where the tensor is a stack of them, else expert is -1. Refused, by name: a part that
 * is not whole rows or no stretch of each, values in fp8, values that the layout stores with something added. Memory is the arena's. */
treadle_status treadle_weight_find(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                   int64_t expert, treadle_arena *arena, treadle_weight *weight_p);

#endif
