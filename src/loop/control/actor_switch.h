/* The switch that an actor's options describe, and the memory behind it. */
#ifndef TREADLE_CONTROL_ACTOR_SWITCH_H
#define TREADLE_CONTROL_ACTOR_SWITCH_H

#include "treadle_loop.h"

#include "base/status.h"
#include "layout/layout.h"

/* What the trainers of all ranks hold on windows of a switch: params, grads and optimizer are sizes of windows; work, forward and board as the
 * plan of a trainer has them. by_rank [ranks]. If on= names its ranks, the others have nothing, and what a trainer works in counts as board. */
treadle_status treadle_actor_train_memory(const treadle_layout *layout,
                                          const treadle_trainer_options *options,
                                          treadle_trainer_memory *by_rank);

/* What the engines that generate hold on all ranks: by_rank [ranks]. */
treadle_status treadle_actor_infer_memory(const treadle_layout *layout,
                                          const treadle_generator_options *options,
                                          treadle_generator_memory *by_rank);

/* The options of a rank's switch, but for its engine and who watches. `outside`: bytes of this rank that lie in no window. */
treadle_status treadle_actor_switch_options(const treadle_actor_options *options,
                                            const treadle_trainer_memory *memory, size_t outside,
                                            treadle_switch_options *to);

/* Refused: a reference whose windows are others than those of training. NULL is none. */
treadle_status treadle_actor_check_reference(const treadle_layout *train, const treadle_layout *reference);

#endif
