/* Switches of a config that change what transformers computes, in ways that the built-in engine does not. */
#ifndef TREADLE_PASS_SWITCHES_H
#define TREADLE_PASS_SWITCHES_H

#include "pass/transformer.h"

/* Refuses a config in which one of them has a value that changes something, by its name. What the family's forward section reads is
 * left to it. Heads are known by now. */
treadle_status treadle_switches_check(const treadle_transformer *transformer);

#endif
