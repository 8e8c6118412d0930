/* A role beside the actor, on the same ranks or on others: a trainer of a model of its own, without a generator. A switch of its own keeps its windows:
 * between calls it is at rest, and what its offload flags send away is in host memory. The critic (control/critic.h), the reward model
 * (control/reward_model.h) and a reference with a pool of its own (control/reference.h) are such roles.
 *
 *   rest    HOST, with offload_param; else FORWARD, and what stays beside the parameters
 *
 * Its device bytes are counted, class by class, in the books of the actor on its ranks, or in those of a rank without one (control/actor.h). All functions but divide, rest, foresee and destroy are
 * collective: a call that fails on one rank fails on all. */
#ifndef TREADLE_CONTROL_TENANT_H
#define TREADLE_CONTROL_TENANT_H

#include "control/actor.h"
#include "switch/foresee.h"

typedef struct treadle_tenant_options {
  const char *name;                       /* what messages call it */
  treadle_tenant_type type;               /* where the actor counts it */
  const treadle_trainer_options *trainer; /* without windows, which are the role's */
  bool offload_param, offload_grad, offload_optimizer;
  size_t page_bytes; /* as in treadle_switch_options */
  double timeout_seconds;
  treadle_train_engine_open open; /* NULL: treadle_trainer_open_engine */
  void *context;
  treadle_status (*check)(
      const treadle_train_engine *engine); /* refuses one that lacks what the role needs */
} treadle_tenant_options;

typedef struct treadle_tenant {
  const char *name;
  treadle_group *group; /* NULL: one rank */
  treadle_group *own;   /* then: its own group */
  const treadle_layout *layout;
  treadle_train_engine train;
  treadle_switch *sw;
  treadle_actor_books *books; /* NULL: nobody counts */
  treadle_tenant_type type;
  size_t outside; /* bytes that lie in no window */
  treadle_mode rests;
  bool has_weights, moved; /* moved: windows were, since the engine last bound them */
} treadle_tenant;

/* group: NULL is this process alone; it, the layout and the name outlive the role. On failure *tenant_p is NULL. */
treadle_status treadle_tenant_create(treadle_group *group, const treadle_layout *layout,
                                     const treadle_tenant_options *options, treadle_tenant **tenant_p);
void treadle_tenant_destroy(treadle_tenant *tenant); /* local; NULL: nothing */
/* From now on its bytes are counted in these books, which outlive it. NULL: nowhere, as at first. Local. */
void treadle_tenant_count_in(treadle_tenant *tenant, treadle_actor_books *books);

/* The weights of its model; those that a seed makes up, which are the same in every layout. */
treadle_status treadle_tenant_load(treadle_tenant *tenant);
treadle_status treadle_tenant_randomise(treadle_tenant *tenant, uint64_t seed);
/* Which rows each rank takes, by their lengths: by_rank [ranks]. Local. */
treadle_status treadle_tenant_divide(const treadle_tenant *tenant, const int64_t *lengths, int64_t rows,
                                     const treadle_forward_options *forward, treadle_row_range *by_rank);
/* Its calls are over for now. Local. */
treadle_status treadle_tenant_rest(treadle_tenant *tenant);

/* ---- For the roles ---- */

/* All ranks fared well, or all fail. */
treadle_status treadle_tenant_agree(const treadle_tenant *tenant, treadle_status status);
/* All ranks are in the mode, and their engines know where the windows are. */
treadle_status treadle_tenant_need(treadle_tenant *tenant, treadle_mode mode);
/* The engine has written its windows, and fared like this. */
treadle_status treadle_tenant_filled(treadle_tenant *tenant, treadle_status status);

/* ---- Beforehand ---- */

/* Bytes of a rank by class: at rest, and at most, in a call. */
typedef struct treadle_tenant_memory {
  size_t rest[TREADLE_CLASSES], train[TREADLE_CLASSES];
} treadle_tenant_memory;
/* What it would take, by shapes alone: by_rank [ranks of the layout]. Local. */
treadle_status treadle_tenant_foresee(const treadle_layout *layout, const treadle_tenant_options *options,
                                      treadle_tenant_memory *by_rank);

#endif
