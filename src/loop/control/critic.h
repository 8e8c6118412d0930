/* The critic of a rank: a role beside the actor (control/tenant.h) that trains a model with a score head.
 *
 *             compute_values            update, load, randomise, resume, save
 *      rest ----------------> FORWARD ------------------------------------------------------> TRAIN
 *        ^                       |                                                               |
 *        +-----------------------+--------------------------- rest ------------------------------+ */
#ifndef TREADLE_CONTROL_CRITIC_H
#define TREADLE_CONTROL_CRITIC_H

#include "control/tenant.h"

typedef treadle_tenant treadle_critic;
typedef treadle_tenant_options treadle_critic_options; /* name, type and check are the critic's */
typedef treadle_tenant_memory treadle_critic_memory;

/* As treadle_tenant_create. Refused: an engine without values. */
treadle_status treadle_critic_create(treadle_group *group, const treadle_layout *layout,
                                     const treadle_critic_options *options, treadle_critic **critic_p);

treadle_status treadle_critic_resume(treadle_critic *critic, const char *folder);
treadle_status treadle_critic_save(treadle_critic *critic, const char *folder);

/* out gets the column values. */
treadle_status treadle_critic_compute_values(treadle_critic *critic, const treadle_batch *batch,
                                             const treadle_forward_options *forward, treadle_batch *out);
treadle_status treadle_critic_update(treadle_critic *critic, const treadle_batch *batch,
                                     const treadle_forward_options *forward,
                                     const treadle_loss_options *loss, const treadle_optimizer_step *step,
                                     treadle_batch *out, treadle_optimizer_figures *figures_p);

static inline void treadle_critic_destroy(treadle_critic *critic) { treadle_tenant_destroy(critic); }
static inline void treadle_critic_count_in(treadle_critic *critic, treadle_actor_books *books) {
  treadle_tenant_count_in(critic, books);
}
static inline treadle_status treadle_critic_load(treadle_critic *critic) {
  return treadle_tenant_load(critic);
}
static inline treadle_status treadle_critic_randomise(treadle_critic *critic, uint64_t seed) {
  return treadle_tenant_randomise(critic, seed);
}
static inline treadle_status treadle_critic_rest(treadle_critic *critic) {
  return treadle_tenant_rest(critic);
}
static inline treadle_status treadle_critic_foresee(const treadle_layout *layout,
                                                    const treadle_critic_options *options,
                                                    treadle_critic_memory *by_rank) {
  return treadle_tenant_foresee(layout, options, by_rank);
}

#endif
