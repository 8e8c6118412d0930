/* What an engine that generates must give (treadle_generator_generate), looked through: it may be the caller's. */
#ifndef TREADLE_CONTROL_ANSWERS_H
#define TREADLE_CONTROL_ANSWERS_H

#include "treadle_engine.h"

/* Refused, by row and column: answers to another number of prompts, n to each; other types; another number of
 * log-probabilities than of ids; an id below 0; a log-probability that is not finite, or above 0; an unknown finish. */
treadle_status treadle_answers_check(const treadle_batch *answers, int64_t prompts, int64_t n);

#endif
