/* One side of a pair as random placements on random device meshes, with the truth beside it: the oracle's whole storage tensors of
 * one rank, of which each rank has the elements that lists of indices say (flat/shapes.h). */
#ifndef TREADLE_TESTS_PLACE_H
#define TREADLE_TESTS_PLACE_H

#include "plan/pairs.h"

/* The side has neither layout nor oracle. */
void place_side(const pair *p, treadle_random *random, pair_side *side);

#endif
