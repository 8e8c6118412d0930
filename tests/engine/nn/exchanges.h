/* What ranks of any type of group do with exchanges and rings in tests; 0 is good (group/ranks.h). */
#ifndef TREADLE_TESTS_EXCHANGES_H
#define TREADLE_TESTS_EXCHANGES_H

#include "group/ranks.h"

/* Sums of random leaves and sizes, by the seed that `context` points to: the bits of the tree. At most 16 ranks. */
int exchanges_sum(treadle_group *group, void *context);

/* Columns and slots by turns, by the seed that `context` points to. */
int exchanges_mix(treadle_group *group, void *context);

/* Rows go round all ranks, at least 2, several under way. */
int exchanges_pass(treadle_group *group, void *context);

/* Rank 0 sends to rank 1 as fast as it can; rank 1 is slow. */
int exchanges_stream(treadle_group *group, void *context);

#endif
