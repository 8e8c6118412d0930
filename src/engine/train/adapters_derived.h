/* Values that a layout derives of a matrix, made anew where the matrix has been merged with its adapter. */
#ifndef TREADLE_TRAIN_ADAPTERS_DERIVED_H
#define TREADLE_TRAIN_ADAPTERS_DERIVED_H

#include "layout/layout.h"
#include "base/team.h"
#include "pass/weights.h"

/* Of a rank's window, where the matrix lies as w has it. Refused: rows of it that are not there. */
treadle_status treadle_train_take_derived(treadle_team *team, const treadle_layout *layout, int64_t rank,
                                          const treadle_weight *w, int32_t tensor, char *window);

#endif
