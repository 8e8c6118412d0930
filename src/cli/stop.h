/* How a run of training is stopped from outside, so that its last step is kept: one in each process. */
#ifndef TREADLE_CLI_STOP_H
#define TREADLE_CLI_STOP_H

#include "cli/session.h"

enum { TREADLE_EXIT_STOPPED = 130 };

/* From now on SIGINT, SIGTERM, SIGUSR1 and SIGHUP ask for an end after the step at hand. A second one within a second is the same one: a scheduler
 * tells the ranks and their launcher, which passes it on. Later the signal does what it always does. SIGHUP that is ignored (nohup) stays so. Whoever
 * reads the output may go away: what is printed then is lost, and the run goes on. */
void treadle_stop_listen(void);
/* A callback of treadle_sft_options and treadle_rl_options. */
bool treadle_stop_asked(void *context);
/* Of several ranks, rank 0 says on standard error what to send to whom: launchers end the ranks a few seconds after Ctrl-C. Nothing where TREADLE_LAUNCHER is
 * ray: treadle.ray passes Ctrl-C on, and says so. */
void treadle_stop_say(const treadle_session *session);

#endif
