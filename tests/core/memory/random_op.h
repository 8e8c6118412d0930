/* Random ops and page tables, for the tests of those who copy. */
#ifndef TREADLE_TESTS_RANDOM_OP_H
#define TREADLE_TESTS_RANDOM_OP_H

#include "base/random.h"
#include "treadle_device.h"

#include <stdint.h>

/* A strided box that lies in [0, room) on both sides, at any byte, its axes in any order; or a fill. */
treadle_op random_op(treadle_random *random, int64_t room, bool fill, bool convert);
/* The pages of a window, each once. */
void random_table(treadle_random *random, int32_t *table, int pages);

#endif
