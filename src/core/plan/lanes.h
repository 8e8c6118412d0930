/* Lanes: which elements drain and fill together, and the wave of each.
 *
 * A lane is a pattern with its placement in both layouts, and one cell of each. Its elements are the
 * common box of the two cells in every layer (tensor) of the lane, in model order; atoms are row blocks
 * of it that fit a page. In whole numbers, wave = ((2 * elements before + elements of the atom) * waves) /
 * (2 * elements of the lane): it follows from the canonical position alone, the same on every rank and in
 * both directions.
 *
 * A layout whose ranks have other parts of one layer than of another (flat buffers over all layers) says of each
 * cell where it comes among all of its pattern on its rank (treadle_cell.before, weight, total). Then that is the lane,
 * and the elements of the common box stand evenly for the cell's weight. */
#ifndef TREADLE_PLAN_LANES_H
#define TREADLE_PLAN_LANES_H

#include "layout/layout.h"

typedef struct treadle_position { /* of a tensor among those of its lane */
  int32_t before, count;
} treadle_position;

/* What the wave of an atom follows from, whichever tensor of its lane it is of, and however many waves there are. */
typedef struct treadle_atom {
  int64_t rows, middle; /* of its common box; its first row and that after its last one, added */
  bool by_cell;         /* the cell says where it comes; else the tensor's position does */
  int64_t before, weight, total;
} treadle_atom;

typedef struct treadle_atoms {
  TREADLE_ARRAY(treadle_atom) list;
  treadle_status status; /* of memory */
} treadle_atoms;

typedef struct treadle_lanes {
  const treadle_layout *from, *to;
  int64_t page_bytes;
  int32_t waves;
  treadle_position *positions; /* by tensor */
  treadle_atoms *
      atoms; /* waves are numbers of atoms, which are listed here, and -1 the last wave; NULL: they are waves */
} treadle_lanes;

treadle_status treadle_lanes_create(const treadle_layout *from, const treadle_layout *to,
                                    int64_t page_bytes, treadle_lanes *lanes);
void treadle_lanes_release(treadle_lanes *lanes);

/* Rows are all dimensions but the last; of a tensor of one dimension, its elements. The last axis of rows. */
static inline int treadle_last_row_axis(const treadle_tensor *tensor) {
  int last = 0;
  for (int a = 0; a < tensor->naxes; a++)
    if (tensor->axis_dim[a] < tensor->ndim - 1 || tensor->ndim == 1) last = a;
  return last;
}

/* One common box of two cells. */
typedef struct treadle_common {
  treadle_box box;
  int last_row_axis; /* axes 0..last_row_axis are rows */
  int64_t rows, row_elems, atom_rows;
  int64_t before, weight, total; /* of the lane: before the box, of the box, in all; in units of any size */
  bool by_cell;
  treadle_atoms *atoms; /* of the lanes */
} treadle_common;

/* of_from, of_to: cells of the tensor in lanes->from and lanes->to, which meet. */
treadle_common treadle_lanes_common(const treadle_lanes *lanes, int32_t tensor, const treadle_cell *of_from,
                                    const treadle_cell *of_to);

/* The wave of the atom that holds `row`; *end_p is the row after the last one of the same wave. */
int32_t treadle_common_wave(const treadle_common *common, int32_t waves, int64_t row, int64_t *end_p);

/* The wave of an atom in a tensor of its lane. */
int32_t treadle_atom_wave(const treadle_atom *atom, const treadle_position *position, int32_t waves);

/* The row of an element of the box. */
int64_t treadle_common_row(const treadle_common *common, const int64_t *coordinate);

#endif
