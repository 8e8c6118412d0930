/* A relay: calls of a controller that is none of the ranks of a worker group. Its messages go to the group's first rank, which makes the call among
 * them (worker_group.h), and brings back what they answer. Groups of one crew work at the same time.
 *
 *   the controller                                   the first rank of the group            its other ranks
 *   treadle_worker_relay_open(crew, class, &relay)   treadle_crew_serve(crew)               treadle_worker_group_serve(group)
 *   group.relay = relay
 *   treadle_worker_group_call(group, ...)
 *   treadle_crew_end(crew, status)                   treadle_worker_group_end(group, status)
 *
 * Rows are divided by the first rank, since what divides them is there. */
#ifndef TREADLE_CONTROL_WORKER_RELAY_H
#define TREADLE_CONTROL_WORKER_RELAY_H

#include "control/worker_rows.h"
#include "treadle_control.h"

/* What the first rank of a group has; it outlives the crew. */
typedef struct treadle_worker_team {
  treadle_worker_group *group;
  /* Which rows each rank takes, by_rank [ranks], by their lengths, for calls of that method; `worker` is the group's. */
  treadle_status (*divide)(void *worker, const char *method, const int64_t *lengths, int64_t rows,
                           treadle_row_range *by_rank);
} treadle_worker_team;
/* A class of a crew; its context is a treadle_worker_team, or NULL where this rank is not the first of one. */
treadle_worker_class treadle_worker_relay_class(const char *name, treadle_worker_team *team);

/* The controller's side. */
typedef struct treadle_worker_relay {
  treadle_workers *workers; /* one: the first rank of the group */
  int ranks;                /* of the group, */
  const int32_t *rank_of;   /* [ranks] and of the crew */
  const char *roles;        /* what they do: "Critic (pool 'critic')" */
  treadle_crew *crew;
  char method[TREADLE_WORKER_NAME]; /* that was called last */
  treadle_future *future;           /* a call that is under way; NULL: none is */
  treadle_batch *answers;           /* of the last call, a row a rank */
} treadle_worker_relay;

/* For a group whose ranks and roles are there; all that it has of texts and numbers outlives it. */
treadle_status treadle_worker_relay_open(treadle_crew *crew, const char *class_name,
                                         treadle_worker_relay *relay);
void treadle_worker_relay_close(treadle_worker_relay *relay);

/* Starts a call; rows NULL: without. Afterwards `in` may change. */
treadle_status treadle_worker_relay_start(treadle_worker_relay *relay, const char *method,
                                          const treadle_message *in, const treadle_message_rows *rows);
/* Waits for it: *out is what the first rank answers, and lives until the next call. */
treadle_status treadle_worker_relay_wait(treadle_worker_relay *relay, treadle_message *out);
treadle_message treadle_worker_relay_answer(const treadle_worker_relay *relay, int rank);
#endif
