/* What ranks of any type of group do on a board in tests; 0 is good (group/ranks.h). */
#ifndef TREADLE_TESTS_BOARDS_H
#define TREADLE_TESTS_BOARDS_H

#include "group/ranks.h"

/* Each rank writes its part; all see it after they met. Ranks have parts of different sizes, rank 1 has none. */
int boards_write(treadle_group *group, void *context);

/* Random divisions of the ranks, by the seed that `context` points to; their sets meet beside each other. */
int boards_meet(treadle_group *group, void *context);

/* Each rank counts in steps and waits for the count of the one before it. */
int boards_count(treadle_group *group, void *context);

#endif
