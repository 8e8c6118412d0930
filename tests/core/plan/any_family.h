/* Played plans of any family and any type of layout: the truth of a side is what its runs say, so the layouts have to
 * be tested on their own; what is tested here are plans. Families whose layouts add to values are not played. */
#ifndef TREADLE_TESTS_ANY_FAMILY_H
#define TREADLE_TESTS_ANY_FAMILY_H

#include "plan/pairs.h"

/* Plays both directions, with the smallest cap and with another (play.c). */
pair_result any_family_play(const char *config, int64_t ranks, const char *from, const char *to);

#endif
