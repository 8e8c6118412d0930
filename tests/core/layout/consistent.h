/* Does a layout agree with itself? A brute force that needs no other truth: every rank's window is written out
 * element by element from its pieces, and every other answer of the layout is compared with that. */
#ifndef TREADLE_TESTS_CONSISTENT_H
#define TREADLE_TESTS_CONSISTENT_H

#include "layout/layout.h"

/* Fails the test at the first contradiction:
 *   pieces tile each storage tensor, fills included, and nothing lies outside; types are the storage's;
 *   pieces_of is the filter of pieces; ranks of one place have the same pieces; window_max is the largest window;
 *   the cells of a tensor are disjoint and cover it; those of a box are the filter of those;
 *   every holder of a cell has just its elements where locate says, and find gives holders back;
 *   tensors of one type and placement have the same cells and holders;
 *   runs tell users the same as pieces. */
void consistent_layout(const treadle_layout *layout);

#endif
