/* What the files of grid layouts say to each other. */
#ifndef TREADLE_LAYOUT_GRID_PARTS_H
#define TREADLE_LAYOUT_GRID_PARTS_H

#include "layout/grid.h"

/* Lists, by canonical tensor, its regions and their holders (grid_holders.c). Refuses a tensor that no rank has. */
treadle_status treadle_grid_list_holders(treadle_layout *layout, treadle_grid *grid);

/* Refuses a rule of block scales whose weights are cut inside of blocks, or refines its blocks (grid_blocks.c). */
treadle_status treadle_grid_check_blocks(const treadle_layout *layout, bool refines,
                                         treadle_grid_rule *rule);
/* The storage tensor that a holder of a cell has it in. */
const treadle_holder *treadle_grid_holder(const treadle_grid *grid, const treadle_cell *cell,
                                          int64_t holder);

extern const treadle_layout_ops treadle_grid_ops;

#endif
