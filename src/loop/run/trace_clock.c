/* Clocks of several nodes. A trip is two meetings of all ranks: rank 0 looks at its clock after the first, to which the others have come by then, and before the second,
 * which they leave later. */
#include "run/trace.h"

#include "base/clock.h"
#include "group/group.h"

#include <math.h>
#include <string.h>

double treadle_trace_offset(const treadle_trace_trip *trips, size_t count) {
  double shortest = INFINITY, offset = 0;
  for (size_t i = 0; i < count; i++) {
    const double took = trips[i].heard - trips[i].asked;
    if (!(took >= 0 && took < shortest)) continue;
    shortest = took;
    offset = trips[i].asked + took / 2 - trips[i].told;
  }
  return offset;
}

treadle_status treadle_trace_travel(treadle_group *group, treadle_trace_trip *trips, size_t count) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < count; i++) {
    trips[i].asked = treadle_clock_seconds();
    TRY(treadle_group_say(group, NULL, 0));
    const double now = treadle_clock_seconds();
    TRY(treadle_group_say(group, &now, sizeof now));
    trips[i].heard = treadle_clock_seconds();
    memcpy(&trips[i].told, treadle_group_said(group, 0), sizeof trips[i].told);
  }
out:
  return status;
}
