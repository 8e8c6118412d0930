/* Is there room for a checkpoint? */
#ifndef TREADLE_RUN_CHECKPOINT_ROOM_H
#define TREADLE_RUN_CHECKPOINT_ROOM_H

#include "model/model.h"
#include "run/config.h"

/* On the disk of `save`, for one checkpoint of this model and of the critic's (NULL: there is none), with their optimizers' state: else
 * TREADLE_REFUSED, with the numbers. */
treadle_status treadle_train_check_room(const treadle_train_config *config, const treadle_model *model,
                                        const treadle_model *critic);

#endif
