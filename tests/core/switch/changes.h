/* Steps of training for tests of deltas: some elements of all tensors change, the same ones on all ranks and in all layouts. */
#ifndef TREADLE_TESTS_CHANGES_H
#define TREADLE_TESTS_CHANGES_H

#include "switch/switch.h"

enum { CHANGES_MANY = 1000000 };

/* A step, in a window that is not arranged: `changed` of a million elements become bits of bf16, or (in fp32) such values. fp8 stays as it is. */
treadle_status changes_make(const treadle_layout *layout, int rank, uint8_t *window, int step,
                            uint32_t changed);
/* Is the infer window, which is not arranged either, what it should be? Padding between tensors is not looked at. */
bool changes_are_there(const treadle_switch *sw, const uint8_t *wanted);

#endif
