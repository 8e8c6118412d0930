/* The lower bound of a rank if fp8 blocks are quantised or dequantised: from boxes and bits alone. */
#ifndef TREADLE_LAYOUT_INBOUND_BLOCKS_H
#define TREADLE_LAYOUT_INBOUND_BLOCKS_H

#include "layout/cuts.h"
#include "layout/scale_set.h"
#include "layout/sums.h"

typedef struct treadle_block_bound {
  const treadle_layout *from;
  int64_t rank;
  const treadle_counting *counting; /* NULL: all is counted here */
  treadle_cuts cuts;
  int32_t tensor; /* at hand; -1: none yet */
  treadle_blocks blocks;
  treadle_scale_set scale_set; /* blocks of the tensor at hand, where has_seen */
  bool has_seen;
  treadle_boxes boxes, rest, spare;
  treadle_cells cells;
  treadle_pieces held;
  int64_t bytes; /* found so far */
} treadle_block_bound;

void treadle_block_bound_release(treadle_block_bound *bound);

/* Are these codes, or scales, that are made of values of `from`? */
bool treadle_is_made_of_values(const treadle_layout *from, const treadle_piece *piece);

/* The boxes of a tensor are dequantised from blocks of other ranks: the scale of each block once, as long as no other
 * tensor comes in between. */
treadle_status treadle_block_bound_scales(treadle_block_bound *bound, int32_t tensor,
                                          const treadle_boxes *boxes);

/* The codes among all pieces of a tensor on the rank are made of values: of a block that one other rank has, codes and
 * scale; of one that several have, what this rank lacks in the type of the source. */
treadle_status treadle_block_bound_codes(treadle_block_bound *bound, int32_t tensor,
                                         const treadle_pieces *pieces);

#endif
