/* What the files of block rows share: block_rows.c walks and assigns waves, block_rows_quantise.c makes blocks, of the values that
 * block_rows_sources.c finds, block_rows_near.c does so where there are several nodes, block_rows_dequantise.c makes values from
 * blocks. */
#ifndef TREADLE_PLAN_BLOCK_ROWS_PARTS_H
#define TREADLE_PLAN_BLOCK_ROWS_PARTS_H

#include "base/larger.h"
#include "plan/block_rows.h"

/* Quantises all codes of a tensor in the rank's window of `to`, scales with them (block_rows_quantise.c). */
treadle_status treadle_block_rows_quantise(treadle_block_row_walk *walk, int32_t tensor);
/* The same of codes that come first with their row and column, over nodes; `all`: their whole blocks (block_rows_near.c). */
treadle_status treadle_block_rows_quantise_near(treadle_block_row_walk *w,
                                                const treadle_placed_rectangle *codes,
                                                const treadle_rectangle *all);
/* Those of all of a matrix, where they are of one rank; else of its first row of blocks that has two. */
treadle_status treadle_block_rows_find_whole(treadle_block_row_walk *w, const treadle_rectangle *all,
                                             bool *simple_p);
/* From the sources at hand, `count` block rows that are alike, of columns whose scales lie in one place. */
treadle_status treadle_block_rows_quantise_columns(treadle_block_row_walk *w, const treadle_rectangle *of,
                                                   const treadle_placed_rectangle *codes,
                                                   const treadle_placed_rectangle *scales, int64_t count);
/* How many block rows from this one on are made as it is made, from the sources at hand. */
/* Turns w->here to an expert: a rank of a layout that cuts across experts has pieces of each. */
treadle_status treadle_block_rows_turn(treadle_block_row_walk *w, int64_t expert);
int64_t treadle_block_rows_alike(const treadle_block_row_walk *w, const treadle_rectangle *of,
                                 const treadle_placed_rectangle *codes,
                                 const treadle_placed_rectangle *scales, bool simple);
/* Of the places of a window that have the scale of a block, the one where it is written; NULL: none. */
const treadle_placed_rectangle *treadle_block_rows_scales(const treadle_placed_rectangles *scales,
                                                          int64_t expert, int64_t down, int64_t across);
/* The scales of these blocks, from the place where they are written to all others of the window. */
treadle_status treadle_block_rows_repeat(treadle_block_row_walk *w, const treadle_rectangle *blocks,
                                         const treadle_placed_rectangle *from, int32_t wave);
/* Dequantises the boxes of a piece (block_rows_dequantise.c). */
treadle_status treadle_block_rows_dequantise(treadle_block_row_walk *walk, const treadle_piece *piece,
                                             const treadle_boxes *boxes);

/* Values of blocks over nodes (block_rows_share.c): makes w->sharers, the node's ranks that get all that a piece has. */
treadle_status treadle_block_rows_find_sharers(treadle_block_row_walk *w, const treadle_piece *piece);
/* Which of them makes row `down` of blocks, where the node has not the codes; NULL: this rank. *end_p: so do rows down..*end_p - 1. */
const treadle_block_row_sharer *treadle_block_rows_sharer(const treadle_block_row_walk *w,
                                                          const treadle_piece *piece, int64_t expert,
                                                          int64_t down, int64_t *end_p);
/* Copies what it has made there of a rectangle and a box. */
treadle_status treadle_block_rows_relay(treadle_block_row_walk *w, const treadle_block_row_sharer *sharer,
                                        const treadle_piece *piece, const treadle_box *box,
                                        const treadle_rectangle *of, int32_t wave);

/* The wave of a block row: that of its first element, on every rank and both ways. *end_p: block rows down..*end_p - 1 are known to have
 * it; they may go on behind the last one. */
treadle_status treadle_block_rows_wave(treadle_block_row_walk *w, int64_t expert, int64_t down,
                                       int32_t *wave_p, int64_t *end_p);
/* Rows are one axis, so that block rows may be alike. */
static inline bool treadle_block_rows_plain(const treadle_blocks *blocks) {
  return blocks->first_column - blocks->first_row == 1;
}
/* A copy between a box of a piece and its place in the scratch of `of`, whose values are of type `value`. */
treadle_block_row_part treadle_block_rows_part(const treadle_block_row_walk *w, const treadle_rectangle *of,
                                               const treadle_box *box, const treadle_piece *piece,
                                               treadle_dtype value, bool to_scratch);
/* What two rectangles of one expert share; no rows or columns, or fewer, where that is nothing. */
treadle_rectangle treadle_block_rows_meet(const treadle_rectangle *a, const treadle_rectangle *b);
/* A block row without parts and wave. */
treadle_block_row treadle_block_rows_add(const treadle_block_row_walk *w, const treadle_rectangle *of,
                                         const treadle_placed_rectangle *codes,
                                         const treadle_placed_rectangle *scales);
/* The rank of holder k of a cell, beginning at another one for each expert and reader. */
int64_t treadle_block_rows_holder(const treadle_block_row_walk *w, const treadle_cell *cell, int64_t expert,
                                  int64_t k);

#endif
