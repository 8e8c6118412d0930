/* The models of tests of a worker: two layers, four heads; no checkpoint. One is dense, 84 thousand weights; one has eight experts a layer, of
 * which a token goes to two. */
#ifndef TREADLE_TESTS_TINY_H
#define TREADLE_TESTS_TINY_H

#include "treadle.h"

enum { TINY_VOCABULARY = 16 };

/* In a cmocka test. The caller closes it. */
treadle_model *tiny_open(void);
treadle_model *tiny_open_experts(void);

#endif
