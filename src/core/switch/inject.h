/* Faults from outside, the internal part (treadle_testing.h has the public one). */
#ifndef TREADLE_SWITCH_INJECT_H
#define TREADLE_SWITCH_INJECT_H

#include "treadle_testing.h"

/* Comes by. */
treadle_status treadle_switch_point(treadle_switch *sw, treadle_injection_point point, int32_t wave);

#endif
