/* The blocks of one tensor whose scales were counted, since each scale counts once. One byte for each block. */
#ifndef TREADLE_LAYOUT_SCALE_SET_H
#define TREADLE_LAYOUT_SCALE_SET_H

#include "layout/blocks.h"

typedef struct treadle_scale_set {
  uint8_t *blocks;  /* [experts, down, across] */
  size_t capacity;  /* of zeros, but for those in */
  size_t low, high; /* [low, high) */
} treadle_scale_set;

/* No block of this tensor was seen yet. */
treadle_status treadle_scale_set_start(treadle_scale_set *scale_set, const treadle_blocks *blocks);
void treadle_scale_set_release(treadle_scale_set *scale_set);

/* Of row `down` of blocks of an expert, those from the one with column `column` on, `columns` columns: how many were not
 * seen before? */
int64_t treadle_scale_set_fresh(const treadle_scale_set *scale_set, const treadle_blocks *blocks,
                                int64_t expert, int64_t down, int64_t column, int64_t columns);
/* The same; they are seen then. */
int64_t treadle_scale_set_add(treadle_scale_set *scale_set, const treadle_blocks *blocks, int64_t expert,
                              int64_t down, int64_t column, int64_t columns);
/* Were the same ones of them seen in two rows? */
bool treadle_scale_set_equal(const treadle_scale_set *scale_set, const treadle_blocks *blocks,
                             int64_t expert, int64_t down, int64_t other, int64_t column, int64_t columns);
/* Sees the blocks that the elements of a box lie in; how many were not seen before? */
int64_t treadle_scale_set_add_box(treadle_scale_set *scale_set, const treadle_blocks *blocks,
                                  const treadle_box *box);

#endif
