/* What the files of grid layouts share. */
#ifndef TREADLE_GRID_GRID_PARTS_H
#define TREADLE_GRID_GRID_PARTS_H

#include "grid/grid.h"

/* Lists, by canonical tensor, its regions and their holders (holders.c). Refuses a tensor that no rank has. */
treadle_status treadle_grid_list_holders(treadle_layout *layout, treadle_grid *grid);

/* Refuses a rule of block scales whose weights are cut inside of blocks, or refines its blocks (blocks.c). */
treadle_status treadle_grid_check_blocks(const treadle_layout *layout, bool refines,
                                         treadle_grid_rule *rule);
/* The storage tensor that a holder of a cell has it in. */
const treadle_holder *treadle_grid_holder(const treadle_grid *grid, const treadle_cell *cell,
                                          int64_t holder);

/* ---- Of all of them ---- */

static inline const treadle_grid *treadle_grid_of(const treadle_layout *layout) { return layout->state; }

static inline int64_t treadle_grid_index(const treadle_dim *dim, int64_t layout_rank) {
  return dim ? treadle_dim_index(dim, layout_rank) : 0;
}

/* Which of the tables of a stage is that of a rank of ep. */
static inline int32_t treadle_grid_variant(const treadle_grid *grid, int64_t ep_rank) {
  if (grid->variants == 1) return 0;
  const treadle_slots *slots = grid->slots[0];
  return ep_rank >= slots->count % slots->ep;
}

/* ---- Who has this box? As the functions of treadle_layout_ops (cells.c) ---- */

treadle_status treadle_grid_cells(const treadle_layout *layout, int32_t tensor, const treadle_box *box,
                                  treadle_cells *cells);
int64_t treadle_grid_cell_rank(const treadle_layout *layout, const treadle_cell *cell, int64_t holder);
int64_t treadle_grid_cell_find(const treadle_layout *layout, const treadle_cell *cell, int64_t rank);
int64_t treadle_grid_cell_locate(const treadle_layout *layout, const treadle_cell *cell, int64_t holder,
                                 const int64_t **stride_p);
bool treadle_grid_cell_is_plain(const treadle_layout *layout, const treadle_cell *cell);

extern const treadle_layout_ops treadle_grid_ops;

#endif
