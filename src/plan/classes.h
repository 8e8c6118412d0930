/* Classes: which elements drain and fill together, and the wave of each.
 *
 * A class is a kind of tensor with its placement in both layouts, and one cell of each. Its elements are the
 * common box of the two cells in every layer (tensor) of the class, in model order; atoms are row blocks
 * of it that fit a page. In whole numbers, wave = ((2 * elements before + elements of the atom) * waves) /
 * (2 * elements of the class): it follows from the canonical position alone, the same on every rank and in
 * both directions. */
#ifndef TREADLE_PLAN_CLASSES_H
#define TREADLE_PLAN_CLASSES_H

#include "layout/layout.h"

typedef struct treadle_position { /* of a tensor among those of its class */
  int32_t before, count;
} treadle_position;

typedef struct treadle_classes {
  const treadle_layout *from, *to;
  int64_t page_bytes;
  int32_t waves;
  treadle_position *positions; /* by tensor */
} treadle_classes;

treadle_status treadle_classes_create(const treadle_layout *from, const treadle_layout *to,
                                      int64_t page_bytes, treadle_classes *classes);
void treadle_classes_release(treadle_classes *classes);

/* One common box of two cells. */
typedef struct treadle_common {
  treadle_box box;
  int last_row_axis; /* axes 0..last_row_axis are rows */
  int64_t rows, row_elems, atom_rows;
  int64_t before; /* elements of the class before this tensor's */
  int64_t total;  /* elements of the class */
} treadle_common;

treadle_common treadle_classes_common(const treadle_classes *classes, int32_t tensor,
                                      const treadle_box *box);

/* The wave of the atom that holds `row`; *end_p is the row after the last one of the same wave. */
int32_t treadle_common_wave(const treadle_common *common, int32_t waves, int64_t row, int64_t *end_p);

/* The row of an element of the box. */
int64_t treadle_common_row(const treadle_common *common, const int64_t *coordinate);

#endif
