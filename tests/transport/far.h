/* Links for tests, over groups of threads: memory of other ranks is not read in place, but copied through a small buffer, part by
 * part, while its reader waits. */
#ifndef TREADLE_TESTS_FAR_H
#define TREADLE_TESTS_FAR_H

#include "transport/link.h"

extern const treadle_link far_link;  /* from everybody else */
extern const treadle_link pair_link; /* from all but the rank beside this one: two ranks a node */

/* The n-th fetch from now on that any rank starts in a switch fails, once; 0: none. */
void far_fail(int64_t n);
/* Fetches that were started and have not ended. */
int64_t far_open(void);
/* Fetches that were ever started. */
int64_t far_started(void);

#endif
