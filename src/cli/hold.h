/* The training state that `treadle switch` holds beside the parameters: gradients and optimizer state with values that can
 * be told again, and what --offload says of them. */
#ifndef TREADLE_CLI_HOLD_H
#define TREADLE_CLI_HOLD_H

#include "base/status.h"

/* Reads "params,grads,optimizer", "grads=keep", "none": all flags are on or off then. */
treadle_status treadle_hold_parse(const char *text, treadle_switch_options *options);

/* Bytes for gradients and optimizer state of a rank: 4 and 12 for each element of its window, as fp32 has it. */
void treadle_hold_size(const treadle_layout *train, int64_t rank, treadle_switch_options *options);

/* Fills both windows. Mode TRAIN. */
treadle_status treadle_hold_fill(treadle_switch *sw, int64_t rank);
/* In mode TRAIN, after the switch went somewhere: optimizer state as it was, gradients too where they are kept. */
treadle_status treadle_hold_check(treadle_switch *sw, const treadle_switch_options *options, int64_t rank,
                                  const char *when);

#endif
