/* The model of tests of a worker: 84 thousand weights, two layers, four heads; no checkpoint. */
#ifndef TREADLE_TESTS_TINY_H
#define TREADLE_TESTS_TINY_H

#include "treadle.h"

enum { TINY_VOCABULARY = 16 };

/* In a cmocka test. The caller closes it. */
treadle_model *tiny_open(void);

#endif
