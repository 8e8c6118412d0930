/* Stopping a run so that its last step is kept: Ctrl-C, SIGTERM, and SIGUSR1, which is what can be sent to a run under
 * a launcher.
 *
 * Once: the run finishes the step that is under way, saves, and ends. The second time the signal does what it always
 * does; a second one within a second is the same one, since a scheduler tells the ranks as well as their launcher,
 * which passes it on. */
#ifndef TREADLE_CLI_STOPPING_H
#define TREADLE_CLI_STOPPING_H

#include "cli/session.h"

#include <stdbool.h>
#include <stdio.h>

enum { TREADLE_EXIT_STOPPED = 130 };

/* From now on. Of several ranks, rank 0 says to `file` what to send to whom: launchers end the ranks a few seconds
 * after Ctrl-C. */
void treadle_stopping_begin(const treadle_session *session, FILE *file);
/* For options of runs. */
bool treadle_stopping_asked(void *context);

#endif
