/* A relay: calls of a controller that is none of the ranks of a worker group. Its messages go to the group's first rank, which makes the call among
 * them (worker_group.h), and brings back what they answer. Groups of one crew work at the same time.
 *
 *   the controller                                   the first rank of the group            its other ranks
 *   treadle_worker_relay_open(crew, class, &relay)   treadle_crew_serve(crew)               treadle_worker_group_serve(group)
 *   group.relay = relay
 *   treadle_worker_group_call(group, ...)
 *   treadle_crew_end(crew, status)                   treadle_worker_group_end(group, status)
 *
 * Messages alone go this way: rows stay on the ranks that have them. */
#ifndef TREADLE_CONTROL_WORKER_RELAY_H
#define TREADLE_CONTROL_WORKER_RELAY_H

#include "control/worker_group.h"
#include "treadle_control.h"

/* What the first rank of a group has; it outlives the crew. */
typedef struct treadle_worker_team {
  treadle_worker_group *group;
  void *work; /* of methods beside "call" */
  /* What all calls that this rank makes in the group get: it may lie on their board. */
  treadle_message *out;
} treadle_worker_team;
/* For a class of a crew, whose context is a treadle_worker_team, or NULL where this rank is not the first of one: how it is made, and its method "call". */
treadle_status treadle_worker_relay_create(const treadle_worker_place *place, const treadle_batch *options,
                                           void **worker_p);
treadle_status treadle_worker_relay_call(void *team, const treadle_batch *in, treadle_batch **made_p);

/* A message as a batch of one row, and back: it lies in the batch. */
treadle_status treadle_worker_relay_pack(const treadle_message *message, treadle_batch **batch_p);
treadle_message treadle_worker_relay_unpack(const treadle_batch *batch, int64_t row);

/* The controller's side. */
typedef struct treadle_worker_relay treadle_worker_relay;
struct treadle_worker_relay {
  treadle_workers *workers; /* one: the first rank of the group */
  int ranks;                /* of the group, */
  const int32_t *rank_of;   /* [ranks] and of the crew */
  treadle_crew *crew;
  /* Words why a call has failed, whose message is the first rank's own; NULL: it stays. */
  treadle_status (*explain)(void *context, const treadle_worker_relay *relay, const char *method,
                            treadle_status status);
  void *context;
  treadle_batch *answers; /* of the last call, a row a rank */
  int64_t carried; /* bytes that the crew counts as rows, and that are messages (treadle_crew_books) */
};

/* For a group whose ranks are there, and what explains; these outlive it. */
treadle_status treadle_worker_relay_open(treadle_crew *crew, const char *class_name,
                                         treadle_worker_relay *relay);
void treadle_worker_relay_close(treadle_worker_relay *relay);

/* Calls a method, and waits for it: *out is what the first rank answers, and lives until the next call. */
treadle_status treadle_worker_relay_ask(treadle_worker_relay *relay, const char *method,
                                        const treadle_message *in, treadle_message *out);
treadle_message treadle_worker_relay_answer(const treadle_worker_relay *relay, int rank);
#endif
