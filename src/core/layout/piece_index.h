/* Finds the pieces of one tensor that may overlap a box, without looking at all of them: if each expert is a piece of its own, a
 * rank has thousands. Pieces are found by their first axis. */
#ifndef TREADLE_LAYOUT_PIECE_INDEX_H
#define TREADLE_LAYOUT_PIECE_INDEX_H

#include "layout/layout.h"

typedef struct treadle_piece_index_entry {
  int64_t start; /* of a piece, on axis 0 */
  int64_t reach; /* the largest end of this piece and of those before it */
  int32_t piece;
} treadle_piece_index_entry;

/* A zeroed struct is ready; treadle_piece_index_make may be called again and again. The pieces stay as they are meanwhile. */
typedef struct treadle_piece_index {
  TREADLE_ARRAY(treadle_piece_index_entry) entries; /* by start; none where the pieces are few */
  TREADLE_ARRAY(int32_t) found;
} treadle_piece_index;

treadle_status treadle_piece_index_make(treadle_piece_index *piece_index, const treadle_pieces *pieces);
void treadle_piece_index_release(treadle_piece_index *piece_index);

/* Numbers of pieces below `below`, ascending: all that meet the box, and perhaps others. They live until the next call. */
treadle_status treadle_piece_index_find(treadle_piece_index *piece_index, const treadle_box *box,
                                        size_t below, const int32_t **found_p, size_t *count_p);

#endif
