/* A team: threads that stay, so that handing them work costs a wake-up and not a thread. */
#ifndef TREADLE_BASE_TEAM_H
#define TREADLE_BASE_TEAM_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { TREADLE_TEAM_MAX = 256 };

typedef struct treadle_team treadle_team;

/* The part of member `index` of `count`. It cannot fail: what may fail is done before or after. */
typedef void (*treadle_team_part)(void *context, int32_t index, int32_t count);

/* `count` members, from 1 to TREADLE_TEAM_MAX; one of them is the thread that calls treadle_team_run, so that a team of one has no
 * thread. spin: idle members, and a caller who waits, look for 50 microseconds before they sleep; only where every member of every
 * team of the machine has a processor of its own. */
treadle_status treadle_team_create(int32_t count, bool spin, treadle_team **team_p);
void treadle_team_destroy(treadle_team *team); /* NULL does nothing; not within a part */

/* Each part is done once: by the member of that index, or by the caller, who does that of index 0 and then those that no member has
 * begun. Returns when all are done, and the caller then sees what they wrote. One thread at a time may call it, and no
 * part may. */
void treadle_team_run(treadle_team *team, treadle_team_part part, void *context);

/* Members for a team of one of `ranks` ranks, which share the processors that this process may use. */
int32_t treadle_team_share(int64_t ranks);

int32_t treadle_team_count(const treadle_team *team);

#endif
