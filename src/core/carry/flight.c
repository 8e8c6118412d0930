/* Waves that the device was asked for and has not done yet. The host goes on with the next wave as far as the plan allows; a wave is finished, and
 * others hear of it, when its ticket has passed. Whoever waits for another rank meanwhile looks after its own waves: that rank may be waiting for
 * them. On the host all is done at once, and no wave is ever under way. */
#include "carry/carry_parts.h"
#include "carry/net.h"

#include "base/clock.h"

#include <sched.h>

/* Finishes what is done: others hear of it. */
treadle_status treadle_flight_look(treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  treadle_flight *flight = &c->run.flight;
  for (bool passed; flight->staged < flight->filled; flight->staged++) {
    TRY(c->device->ops->passed(c->device, flight->staging[flight->staged % TREADLE_FLIGHT], &passed));
    if (!passed) break;
    treadle_word_say(c->group, TREADLE_WORD_STAGED, treadle_done_of(c->epoch, flight->staged));
  }
  if (flight->finishes) return TREADLE_OK;
  for (bool passed; flight->landed < flight->begun; flight->landed++) {
    TRY(c->device->ops->passed(c->device, flight->tickets[flight->landed % TREADLE_FLIGHT], &passed));
    if (!passed) break;
    flight->finishes = true;
    status = treadle_carry_finish(c, flight->landed);
    flight->finishes = false;
    TRY(status);
  }
out:
  return status;
}

/* Between two looks: others are heard, messages move, and nobody waits for ever. */
static treadle_status turn(treadle_carry *c, double *deadline, const char *what) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_net_move(c));
  TRY(treadle_carry_check(c, c->epoch));
  const double now = treadle_clock_seconds();
  if (*deadline == 0) *deadline = now + c->group->timeout_seconds;
  if (now > *deadline)
    TRY(treadle_fail(TREADLE_TIMEOUT, "rank %d: its device has not done %s in %.1f s",
                     treadle_group_called(c->group, c->group->rank), what, c->group->timeout_seconds));
  sched_yield();
out:
  return status;
}

treadle_status treadle_flight_land(treadle_carry *c, int32_t wave) {
  treadle_status status;
  const treadle_flight *flight = &c->run.flight;
  double deadline = 0;
  TRY(treadle_flight_look(c));
  while ((flight->landed <= wave && flight->landed < flight->begun) ||
         (flight->staged <= wave && flight->staged < flight->filled)) {
    TRY(turn(c, &deadline, "its copies"));
    TRY(treadle_flight_look(c));
  }
out:
  return status;
}

treadle_status treadle_flight_start(treadle_carry *c, int32_t wave) {
  treadle_status status = TREADLE_OK;
  treadle_flight *flight = &c->run.flight;
  TRY(treadle_flight_land(c, wave - TREADLE_FLIGHT)); /* its place is free */
  flight->tickets[wave % TREADLE_FLIGHT] = c->device->ops->mark(c->device);
  flight->begun = wave + 1;
  if (flight->begun - flight->landed > flight->most && !treadle_device_is_host(c->device))
    flight->most = flight->begun - flight->landed;
out:
  return status;
}

treadle_status treadle_flight_stage(treadle_carry *c, int32_t wave) {
  treadle_status status = TREADLE_OK;
  treadle_flight *flight = &c->run.flight;
  TRY(treadle_flight_land(c, wave - TREADLE_FLIGHT)); /* and what was staged for it is staged */
  flight->staging[wave % TREADLE_FLIGHT] = c->device->ops->mark(c->device);
  flight->filled = wave + 1;
  TRY(treadle_flight_look(c));
out:
  return status;
}

treadle_status treadle_carry_settle(treadle_carry *c, const char *what) {
  treadle_status status = TREADLE_OK;
  const treadle_ticket ticket = c->device->ops->mark(c->device);
  double deadline = 0;
  for (bool passed = false;;) {
    TRY(c->device->ops->passed(c->device, ticket, &passed));
    if (passed) break;
    TRY(turn(c, &deadline, what));
    TRY(treadle_flight_look(c));
  }
out:
  return status;
}
