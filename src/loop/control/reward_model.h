/* The reward model of a rank: a role beside the actor (control/tenant.h) that goes forward only. It has neither gradients nor an optimizer, and
 * is never saved. */
#ifndef TREADLE_CONTROL_REWARD_MODEL_H
#define TREADLE_CONTROL_REWARD_MODEL_H

#include "control/tenant.h"

/* As treadle_tenant_create, with a trainer that is forward_only; name, type and check are the reward model's. Refused: an engine without
 * scores. */
treadle_status treadle_reward_model_create(treadle_group *group, const treadle_layout *layout,
                                           const treadle_tenant_options *options,
                                           treadle_tenant **tenant_p);
/* out gets the column score (fp64), one for each row: the head at its last token. */
treadle_status treadle_reward_model_compute_scores(treadle_tenant *tenant, const treadle_batch *batch,
                                                   const treadle_forward_options *forward,
                                                   treadle_batch *out);

#endif
