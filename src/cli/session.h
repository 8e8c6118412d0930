/* A run of one command by many processes: they meet, agree on how it went, and end together.
 *
 * Rank 0 says what all have to say, each message once with the ranks it is from. MPI, where it runs, is used to
 * meet and to end, never after a switch has failed. */
#ifndef TREADLE_CLI_SESSION_H
#define TREADLE_CLI_SESSION_H

#include "base/status.h"
#include "cli/launch.h"

typedef struct treadle_session {
  const char *command;
  int rank, size;
  double timeout_seconds; /* of the group, once the ranks have met */
  treadle_group *group;   /* NULL before the ranks have met */
  void (*stop)(void);     /* ends MPI; NULL: it does not run */
  bool said;              /* the failure at hand is known to all ranks, and rank 0 has said it */
} treadle_session;

/* Finds the ranks that a launcher has started with this one (launch.h), and joins them; without a launcher it is a session of this process
 * alone. What goes wrong here is said by rank 0, if there is one. Collective. */
treadle_status treadle_session_start(treadle_session *session, const char *command, double timeout_seconds);

/* The same, by options that say who the others are (launch.h), for commands whose ranks may be on several nodes; NULL: for one of all others,
 * which is refused there. Ranks without a launcher each say what goes wrong here. */
treadle_status treadle_session_start_by(treadle_session *session, const char *command,
                                        const treadle_launch_options *options, double timeout_seconds);

/* Closes the group and stops MPI, where it runs. Collective. */
void treadle_session_end(treadle_session *session);

/* Each rank gives how it fared (its message is treadle_error_message()); all get TREADLE_OK when all fared
 * well, else the first failure that is not about a peer, after rank 0 has said the messages. Collective. */
treadle_status treadle_session_agree(treadle_session *session, treadle_status mine);

/* After a collective call failed with `status`: the ranks agree if they still can, else each says its own;
 * then this process ends, without MPI. */
_Noreturn void treadle_session_abandon(treadle_session *session, treadle_status status);

#endif
