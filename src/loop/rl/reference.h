/* The reference of a run whose RefPolicy is not where the policy trains and generates: its model, and its role on each of its ranks. Else the actor has it
 * (models.h). */
#ifndef TREADLE_RL_REFERENCE_H
#define TREADLE_RL_REFERENCE_H

#include "control/message.h"
#include "control/reference.h"
#include "rl/models.h"
#include "rl/role.h"

/* Of a run without one, all NULL. */
typedef struct treadle_rl_reference {
  const treadle_model *model; /* one of the run's models */
  treadle_layout *layout;
  treadle_tenant *role;
} treadle_rl_reference;

/* ---- loop_reference_open.c ---- */

/* Its model, which is that of ref_config or else the policy's, and its layout on crew->reference_ranks; anew, where the policy's model has other values now.
 * Refused: another vocabulary than the policy's. Local. */
treadle_status treadle_rl_reference_open(treadle_rl_reference *reference, const treadle_rl_task *task,
                                         const treadle_rl_crew *crew, const treadle_rl_models *models);
/* Refused: its model has no weights. Local. */
treadle_status treadle_rl_reference_check(const treadle_rl_reference *reference,
                                          const treadle_rl_task *task);
/* Its role, at rest, with its weights: those of its model's files, or those that are made up for the policy, which the seed gives. A run that
 * continues has the same. Nothing is done without one. Collective. */
treadle_status treadle_rl_reference_create(treadle_rl_reference *reference, const treadle_rl_task *task,
                                           const treadle_rl_bounds *bounds, const treadle_run_text *text,
                                           const treadle_rl_crew *crew);
void treadle_rl_reference_close(treadle_rl_reference *reference);

/* What it adds to what its ranks hold, by_rank [reference_ranks]. */
treadle_status treadle_rl_reference_foresee(const treadle_rl_reference *reference,
                                            const treadle_rl_task *task, const treadle_rl_bounds *bounds,
                                            const treadle_run_text *text, treadle_actor_memory *by_rank);

/* ---- loop_worker_reference.c; worker is the run, whose reference has a role ---- */

treadle_status treadle_rl_compute_ref_log_prob(void *worker, treadle_message *in, treadle_message *out);

#endif
