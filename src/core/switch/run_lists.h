/* The ops of both directions, made ready for the device. */
#ifndef TREADLE_SWITCH_RUN_LISTS_H
#define TREADLE_SWITCH_RUN_LISTS_H

#include "switch/switch.h"

/* As windows are shared now; those of a direction that never runs are left out. */
treadle_status treadle_switch_lists_make(treadle_switch *sw);
void treadle_switch_lists_release(treadle_switch *sw);
const treadle_work *treadle_switch_list_of(const treadle_switch *sw, treadle_mode to);
/* What op `position` of a direction reads; it is changed where it reads staging. A fill, and what comes in a message: nothing. */
treadle_paged treadle_switch_source_of(const treadle_switch *sw, treadle_mode to, size_t position,
                                       treadle_op *op);

#endif
