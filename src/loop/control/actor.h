/* The hybrid actor worker: what its files share.
 *
 *   actor.c          making it, and what a loop calls
 *   actor_modes.c    the sharding manager: which mode it is in, which one it stays in, and the arrows between them
 *   actor_books.c    device bytes by class, now and at most
 *   actor_plan.c     the same beforehand
 *
 *             generate                compute_log_prob, compute_ref_log_prob
 *      TRAIN ----------> INFER -----------> FORWARD
 *        ^                 |                   |
 *        +-----------------+-------------------+   update, load, save */
#ifndef TREADLE_CONTROL_ACTOR_H
#define TREADLE_CONTROL_ACTOR_H

#include "treadle_loop.h"

#include "base/status.h"
#include "pass/replica.h"

/* Roles on the ranks of the actor whose bytes it counts. */
typedef enum treadle_tenant_type {
  TREADLE_TENANT_CRITIC,
  TREADLE_TENANT_REWARD_MODEL,
  TREADLE_TENANT_REFERENCE,
  TREADLE_TENANTS
} treadle_tenant_type;

/* Device bytes by class. What lies in no window is of TREADLE_WORK. */
typedef struct treadle_actor_books {
  size_t now[TREADLE_CLASSES], peaks[TREADLE_CLASSES];
  size_t own[TREADLE_CLASSES]; /* of now: of this actor; of each role beside it */
  size_t beside[TREADLE_TENANTS][TREADLE_CLASSES];
  size_t peak, outside;
  treadle_observer observer;
} treadle_actor_books;

struct treadle_actor {
  treadle_group *group; /* NULL: one rank */
  uint64_t number;      /* of the group's objects */
  treadle_group *own;   /* then: its own group */
  const treadle_layout *train_layout, *infer_layout, *reference_layout;
  treadle_train_engine train;
  treadle_infer_engine infer;
  treadle_replica_place replica; /* of the infer layout */
  treadle_switch *sw;
  treadle_actor_books books;
  bool stays, has_weights, has_reference; /* stays: between enter and exit */
  treadle_mode entered;
  bool moved; /* windows of the trainer were, since it last bound them */
  double to_infer, to_train;
  size_t kv_block;
};

/* All ranks fared well, or all fail. */
treadle_status treadle_actor_agree(const treadle_actor *actor, treadle_status status);

/* Which rows each rank of the train engine takes, by their lengths: by_rank [ranks]. Local. */
treadle_status treadle_actor_divide(const treadle_actor *actor, const int64_t *lengths, int64_t rows,
                                    const treadle_forward_options *forward, treadle_row_range *by_rank);

/* ---- actor_modes.c ---- */

/* How a call begins, which `what` names: all ranks make it, and `before`, what this rank has looked at so far, lets them, or all learn why
 * not. Then the worker is in that mode, or goes there. Collective. */
treadle_status treadle_actor_need(treadle_actor *actor, treadle_mode mode, const char *what,
                                  treadle_status before);
/* The same with a mode that has params where they are: TRAIN or FORWARD. */
treadle_status treadle_actor_need_params(treadle_actor *actor, const char *what, treadle_status before);

/* ---- actor_books.c ---- */

/* What a switch tells; context is the actor's books. */
void treadle_actor_book(void *context, const size_t *bytes, int classes);
/* What the switch holds now. */
void treadle_actor_count(treadle_actor *actor);
/* What another role holds on the device of this rank now, and `outside` of any window. */
void treadle_actor_count_beside(treadle_actor *actor, treadle_tenant_type role, const size_t *bytes,
                                int classes, size_t outside);

#endif
