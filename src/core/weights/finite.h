/* Are all values in a window numbers? NaN and infinity in weights end every computation with them, so they are refused where weights begin. */
#ifndef TREADLE_WEIGHTS_FINITE_H
#define TREADLE_WEIGHTS_FINITE_H

#include "layout/layout.h"

/* Refused: an element of a rank's window that is infinite or no number, by its storage tensor. what: whose window it is, "weights". Looks at
 * fp32, bf16 and fp16. */
treadle_status treadle_window_check_finite(const treadle_layout *layout, int64_t rank, const char *what,
                                           const char *window);

#endif
