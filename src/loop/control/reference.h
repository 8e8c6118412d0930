/* The reference of a rank that has an engine of its own for it: a tenant (control/tenant.h) that goes forward only. Its weights never change: it has
 * neither gradients nor an optimizer, and is never saved. Where the reference is on the ranks of the policy, the actor has it instead
 * (treadle_actor_compute_ref_log_prob). */
#ifndef TREADLE_CONTROL_REFERENCE_H
#define TREADLE_CONTROL_REFERENCE_H

#include "control/tenant.h"

/* As treadle_tenant_create, with a trainer that is forward_only; name, type and check are the reference's. */
treadle_status treadle_reference_create(treadle_group *group, const treadle_layout *layout,
                                        const treadle_tenant_options *options, treadle_tenant **tenant_p);
/* out gets the column log_probs, as treadle_actor_compute_ref_log_prob fills it: in exact mode the same bits for the same rows and weights. */
treadle_status treadle_reference_compute_log_prob(treadle_tenant *tenant, const treadle_batch *batch,
                                                  const treadle_forward_options *forward,
                                                  treadle_batch *out);

#endif
