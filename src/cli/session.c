/* A run of one command by many processes. */
#include "cli/session.h"

#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DEFAULT_TIMEOUT = 60 };

/* What a rank says of itself. */
typedef struct verdict {
  treadle_status status;
  char message[2040];
} verdict;

treadle_status treadle_session_start(treadle_session *session, const char *command,
                                     double timeout_seconds) {
  return treadle_session_start_by(session, command, NULL, timeout_seconds);
}

treadle_status treadle_session_start_by(treadle_session *session, const char *command,
                                        const treadle_launch_options *options, double timeout_seconds) {
  treadle_status status = TREADLE_OK;
  treadle_launch launch;
  *session = (treadle_session){.command = command,
                               .size = 1,
                               .timeout_seconds =
                                   timeout_seconds > DEFAULT_TIMEOUT ? timeout_seconds : DEFAULT_TIMEOUT};
  status = treadle_launch_find(options, &launch);
  session->rank = launch.rank;
  session->size = launch.size;
  session->stop = launch.stop;
  TRY(status);
  if (launch.address[0] && !options)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "the %d ranks are on several nodes, and %s works on one: only treadle switch and "
                     "treadle train work on several",
                     launch.size, command));
  /* ranks may read files for as long as they like: a short limit is for switches */
  TRY(treadle_launch_meet(&launch, session->timeout_seconds, &session->group));
out:
  session->said = status != TREADLE_OK;
  if (status && (session->rank == 0 || launch.meet)) /* without a launcher each has a terminal of its own */
    fprintf(stderr, "treadle %s: %s\n", command, treadle_bare_message(command, treadle_error_message()));
  return status;
}

void treadle_session_end(treadle_session *session) {
  treadle_group_close(session->group);
  session->group = NULL;
  if (session->stop) session->stop();
  session->stop = NULL;
}

/* Says the message of `first` and of all ranks after it that say the same, which are then done with. */
static void say_message(const treadle_session *session, verdict *verdicts, int first) {
  const char *message = treadle_bare_message(session->command, verdicts[first].message);
  treadle_builder ranks = {0};
  int count = 0;
  for (int rank = first; rank < session->size; rank++) {
    if (!verdicts[rank].status || strcmp(verdicts[rank].message, verdicts[first].message) != 0) continue;
    treadle_builder_add(&ranks, "%s%d", count ? ", " : "", rank);
    count++;
    if (rank != first) verdicts[rank].status = TREADLE_OK;
  }
  bool names_rank = strncmp(message, "rank ", 5) == 0;
  if (count == session->size || names_rank)
    fprintf(stderr, "treadle %s: %s\n", session->command, message);
  else
    fprintf(stderr, "treadle %s: rank%s %s: %s\n", session->command, count > 1 ? "s" : "",
            ranks.text ? ranks.text : "", message);
  treadle_builder_release(&ranks);
}

treadle_status treadle_session_agree(treadle_session *session, treadle_status mine) {
  treadle_status status = TREADLE_OK;
  verdict own = {.status = mine};
  verdict *verdicts = treadle_alloc_array((size_t)session->size, sizeof *verdicts);
  if (!verdicts)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the words of %d ranks", session->size);
  if (mine) snprintf(own.message, sizeof own.message, "%s", treadle_error_message());
  status = treadle_group_gather(session->group, &own, sizeof own, verdicts);
  if (status && mine)
    status = treadle_fail(mine, "%s", own.message); /* it says more than that others are gone */
  TRY(status);

  int first = -1; /* whose failure counts: the first that is not about a peer, else the first */
  for (int rank = session->size - 1; rank >= 0; rank--)
    if (verdicts[rank].status && verdicts[rank].status != TREADLE_PEER) first = rank;
  for (int rank = session->size - 1; rank >= 0 && first < 0; rank--)
    if (verdicts[rank].status) first = rank;
  if (first < 0) goto out;
  session->said = true;
  status = treadle_fail(verdicts[first].status, "%s", verdicts[first].message);
  for (int rank = 0; rank < session->size && session->rank == 0; rank++)
    if (verdicts[rank].status) say_message(session, verdicts, rank);
  /* The launcher ends the job when the first rank leaves: not before rank 0 has spoken. */
  (void)treadle_group_barrier(session->group);
out:
  treadle_free(verdicts);
  return status;
}

_Noreturn void treadle_session_abandon(treadle_session *session, treadle_status status) {
  char message[2048];
  snprintf(message, sizeof message, "%s", treadle_error_message());
  if (session->group) {
    treadle_status agreed = treadle_session_agree(session, status);
    if (session->said) status = agreed;
  }
  if (!session->said) {
    fprintf(stderr, "treadle %s: rank %d: %s\n", session->command, session->rank, message);
    nanosleep(&(struct timespec){.tv_nsec = 300 * 1000 * 1000}, NULL); /* let the others say theirs */
  }
  fflush(NULL);
  _exit(treadle_exit_status(status));
}
