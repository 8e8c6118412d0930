/* Waiting for what is fetched. */
#include "transport/link.h"

#include "base/clock.h"

static const double LOOK_EVERY = 10e-3; /* seconds */

static treadle_status wait_for(treadle_group *group, treadle_fetch *fetch, const treadle_watch *watch,
                               double deadline, const char *what) {
  treadle_status status = TREADLE_OK;
  const treadle_link *link = group->link;
  double begin = treadle_clock_seconds(), next_look = begin + LOOK_EVERY;
  for (bool done = false;;) {
    TRY(link->test(group, fetch, &done));
    if (done) break;
    if (watch) TRY(watch->look(watch->context));
    double now = treadle_clock_seconds();
    if (now >= next_look) {
      TRY(treadle_group_look(group, fetch->rank, what));
      next_look = now + LOOK_EVERY;
    }
    if (now >= deadline) {
      status = treadle_fail(TREADLE_TIMEOUT, "%s: waited %.1f s for memory of rank %d", what, now - begin,
                            fetch->rank);
      goto out;
    }
    link->wait(group, fetch, deadline - now < LOOK_EVERY ? deadline - now : LOOK_EVERY);
  }
out:
  return status;
}

treadle_status treadle_link_fetch(treadle_group *group, treadle_fetch *fetch, const treadle_watch *watch,
                                  double deadline, const char *what) {
  treadle_status status = TREADLE_OK;
  if (group->delay) group->delay(group->delay_context, what);
  TRY(group->link->start(group, fetch));
  status = wait_for(group, fetch, watch, deadline, what);
  if (status != TREADLE_OK) group->link->cancel(group, fetch);
out:
  return status;
}
