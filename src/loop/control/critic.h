/* The critic of a rank: a trainer of a model with a score head, on the ranks of the actor and beside it. It has no generator. A switch of its own
 * keeps its windows: between calls it is at rest, and what its offload flags send away is in host memory.
 *
 *             compute_values            update, load, randomise, resume, save
 *      rest ----------------> FORWARD ------------------------------------------------------> TRAIN
 *        ^                       |                                                               |
 *        +-----------------------+--------------------------- rest ------------------------------+
 *
 *   rest    HOST, with offload_param; else FORWARD, and what stays beside the parameters
 *
 * Its device bytes are counted by the actor, class by class (control/actor.h). All functions but divide, rest, foresee and destroy are
 * collective: a call that fails on one rank fails on all. */
#ifndef TREADLE_CONTROL_CRITIC_H
#define TREADLE_CONTROL_CRITIC_H

#include "control/actor.h"
#include "switch/foresee.h"

typedef struct treadle_critic treadle_critic;

typedef struct treadle_critic_options {
  const treadle_trainer_options *trainer; /* without windows, which are the critic's */
  bool offload_param, offload_grad, offload_optimizer;
  size_t page_bytes; /* as in treadle_switch_options */
  double timeout_seconds;
  treadle_train_engine_open open; /* NULL: treadle_trainer_open_engine */
  void *context;
} treadle_critic_options;

/* group: NULL is this process alone; it and the layout outlive the critic. Refused: an engine without values. On failure *critic_p is NULL. */
treadle_status treadle_critic_create(treadle_group *group, const treadle_layout *layout,
                                     const treadle_critic_options *options, treadle_critic **critic_p);
void treadle_critic_destroy(treadle_critic *critic); /* local; NULL: nothing */
/* From now on the actor counts its bytes, and outlives it. NULL: nobody, as at first. Local. */
void treadle_critic_count_by(treadle_critic *critic, treadle_actor *actor);

treadle_status treadle_critic_load(treadle_critic *critic);
treadle_status treadle_critic_randomise(treadle_critic *critic, uint64_t seed);
treadle_status treadle_critic_resume(treadle_critic *critic, const char *folder);
treadle_status treadle_critic_save(treadle_critic *critic, const char *folder);

/* Which rows each rank takes, by their lengths: by_rank [ranks]. Local. */
treadle_status treadle_critic_divide(const treadle_critic *critic, const int64_t *lengths, int64_t rows,
                                     const treadle_forward_options *forward, treadle_row_range *by_rank);
/* out gets the column values. */
treadle_status treadle_critic_compute_values(treadle_critic *critic, const treadle_batch *batch,
                                             const treadle_forward_options *forward, treadle_batch *out);
treadle_status treadle_critic_update(treadle_critic *critic, const treadle_batch *batch,
                                     const treadle_forward_options *forward,
                                     const treadle_loss_options *loss, const treadle_optimizer_step *step,
                                     treadle_batch *out, treadle_optimizer_figures *figures_p);
/* Its calls are over for now. Local. */
treadle_status treadle_critic_rest(treadle_critic *critic);

/* Bytes of a rank by class: at rest, and at most. */
typedef struct treadle_critic_memory {
  size_t rest[TREADLE_CLASSES], train[TREADLE_CLASSES];
} treadle_critic_memory;
/* What it would take, by shapes alone: by_rank [ranks of the layout]. Local. */
treadle_status treadle_critic_foresee(const treadle_layout *layout, const treadle_critic_options *options,
                                      treadle_critic_memory *by_rank);

#endif
