/* The hybrid actor worker: what its files share.
 *
 *   actor.c          making it, and what a loop calls
 *   actor_modes.c    the sharding manager: which mode it is in, which one it stays in, and the arrows between them
 *   actor_sides.c    which ranks train and which generate: all do both, or each does one
 *   actor_adapters.c  adapters on their way into the infer weights
 *   actor_books.c    device bytes by class, now and at most
 *   actor_plan.c     the same beforehand
 *
 *             generate                compute_log_prob, compute_ref_log_prob
 *      TRAIN ----------> INFER -----------> FORWARD
 *        ^                 |                   |
 *        +-----------------+-------------------+   update, load, save
 *
 * Where trainer and generator are on ranks of their own, the worker stays in INFER from the first generate on: training goes on there. */
#ifndef TREADLE_CONTROL_ACTOR_H
#define TREADLE_CONTROL_ACTOR_H

#include "treadle_loop.h"

#include "base/status.h"
#include "pass/replica.h"

/* Roles with an engine of their own, whose bytes are counted beside those of the actor on their ranks, or alone. */
typedef enum treadle_tenant_type {
  TREADLE_TENANT_CRITIC,
  TREADLE_TENANT_REWARD_MODEL,
  TREADLE_TENANT_REFERENCE,
  TREADLE_TENANTS
} treadle_tenant_type;

/* Device bytes by class. What lies in no window is of TREADLE_WORK. */
typedef struct treadle_actor_books {
  size_t now[TREADLE_CLASSES], peaks[TREADLE_CLASSES];
  size_t own[TREADLE_CLASSES]; /* of now: of the actor; of each role beside it */
  size_t beside[TREADLE_TENANTS][TREADLE_CLASSES];
  size_t peak, outside;
  treadle_observer observer;
} treadle_actor_books;

typedef enum treadle_actor_job {
  TREADLE_ACTOR_TRAINS,
  TREADLE_ACTOR_GENERATES,
  TREADLE_ACTOR_JOBS
} treadle_actor_job;

/* The ranks that do a job: all of the group, or those of on= in the layout. */
typedef struct treadle_actor_side {
  bool here;                    /* this rank is one of them */
  int first;                    /* of them, in the group */
  int64_t rank, ranks;          /* this rank's place among them, -1: none; how many they are */
  const treadle_layout *layout; /* of these ranks alone */
  treadle_layout *made;         /* that layout, if it is another one than the group's; else NULL */
} treadle_actor_side;

struct treadle_actor {
  treadle_group *group;                                                 /* NULL: one rank */
  uint64_t number;                                                      /* of the group's objects */
  treadle_group *own;                                                   /* then: its own group */
  const treadle_layout *train_layout, *infer_layout, *reference_layout; /* of the whole group */
  bool apart;                                                           /* each rank has one job alone */
  treadle_actor_side sides[TREADLE_ACTOR_JOBS];
  treadle_group *part,
      *side_group; /* part: of this rank's side, if apart; side_group: of its engines, NULL: one rank */
  treadle_train_engine train;
  treadle_infer_engine infer;
  treadle_replica_place replica; /* of the infer layout */
  treadle_switch *sw;
  treadle_actor_books books;
  bool stays, has_weights, has_reference; /* stays: between enter and exit */
  treadle_mode entered;
  treadle_engine_hooks hooks; /* of the infer engine */
  bool adapts;                /* the trainer has adapters, which bind adds to the infer weights */
  uint64_t merged;            /* the version that has them */
  bool moved;                 /* windows of the trainer were, since it last bound them */
  bool changed;               /* weights, since they last went to INFER */
  double to_infer, to_train;
  size_t kv_block;
};

/* All ranks fared well, or all fail. */
treadle_status treadle_actor_agree(const treadle_actor *actor, treadle_status status);

/* Which rows each rank of the group takes in training, by their lengths: by_rank [ranks]; none where there is no trainer. Refused: on a rank
 * without a trainer. Local. */
treadle_status treadle_actor_divide(const treadle_actor *actor, const int64_t *lengths, int64_t rows,
                                    const treadle_forward_options *forward, treadle_row_range *by_rank);

/* ---- actor_modes.c ---- */

/* How a call begins, which `what` names: all ranks make it, and `before`, what this rank has looked at so far, lets them, or all learn why
 * not. Then the worker is in that mode, or goes there. Collective. */
treadle_status treadle_actor_need(treadle_actor *actor, treadle_mode mode, const char *what,
                                  treadle_status before);
/* The same with a mode that has params where they are: TRAIN or FORWARD. */
treadle_status treadle_actor_need_params(treadle_actor *actor, const char *what, treadle_status before);

/* ---- actor_adapters.c ---- */

/* Refused: adapters, where merged weights would not be what the switch takes them for. Local. */
treadle_status treadle_actor_check_adapters(const treadle_layout *train, const treadle_layout *infer,
                                            const treadle_actor_options *options,
                                            const treadle_trainer_options *trainer);
/* The hooks of the infer engine, for the switch: bind adds the adapters first. */
treadle_engine_hooks treadle_actor_hooks(treadle_actor *actor);
/* Before the arrow to INFER: all ranks have the adapters of now. Collective. */
treadle_status treadle_actor_gather(treadle_actor *actor);

/* ---- actor_sides.c ---- */

/* Refused: layouts of which one alone has on=, or whose ranks overlap or are not all; a reference beside them. Local. */
treadle_status treadle_actor_check_sides(const treadle_layout *train, const treadle_layout *infer,
                                         const treadle_layout *reference);
/* What the options come to: if trainer and generator are on ranks of their own, all that is trained stays on the device. */
void treadle_actor_settle_options(const treadle_layout *train, treadle_actor_options *options);
/* The same layout for its ranks alone, without on=. The caller destroys it. */
treadle_status treadle_actor_layout_alone(const treadle_layout *layout, treadle_layout **alone_p);
/* From the ranks of a layout, of_side [ranks of on=], to those of the group, by_rank [ranks]; zeros elsewhere. */
void treadle_actor_spread(const treadle_layout *layout, const void *of_side, size_t bytes, void *by_rank);

/* Sets actor->sides by the layouts. Local. */
treadle_status treadle_actor_take_sides(treadle_actor *actor);
/* The group of this rank's engines. Collective. */
treadle_status treadle_actor_open_side(treadle_actor *actor);
void treadle_actor_close_sides(treadle_actor *actor);

/* As treadle_actor_agree, after a job that may take long: ranks that do not have it wait for its ranks as long as these live. */
treadle_status treadle_actor_agree_after(const treadle_actor *actor, treadle_actor_job job,
                                         treadle_status status);
/* All ranks get what the ranks of a job found. Collective. */
treadle_status treadle_actor_share(const treadle_actor *actor, treadle_actor_job job, uint64_t *found);
/* Refused: rows for a rank that does not have this job. Local. */
treadle_status treadle_actor_check_rows(const treadle_actor *actor, treadle_actor_job job,
                                        const treadle_batch *batch);
/* Answers to no prompts. */
treadle_status treadle_actor_no_answers(treadle_batch **out_p);

/* ---- actor_books.c ---- */

/* What a switch tells; context is the actor's books. */
void treadle_actor_book(void *context, const size_t *bytes, int classes);
/* What the switch holds now. */
void treadle_actor_count(treadle_actor *actor);
/* What another role holds on the device of this rank now, and `outside` of any window. */
void treadle_actor_book_beside(treadle_actor_books *books, treadle_tenant_type role, const size_t *bytes,
                               int classes, size_t outside);

#endif
