/* Waiting for a socket, not beyond a deadline. */
#ifndef TREADLE_WIRE_WAIT_H
#define TREADLE_WIRE_WAIT_H

#include "base/status.h"

/* What to give to poll() when `left` seconds are left: rounded up, and none when the time is over. */
int treadle_wire_poll_ms(double left);

/* Waits until poll() says one of the events, or that the socket is over; a socket of -1 is a pause. `deadline` is of
 * treadle_clock_seconds(); when it is over already, there is one look. TREADLE_TIMEOUT, without a message: the time is over. TREADLE_CANCELLED: the
 * thread's watcher says so; `doing` is as in treadle_thread_ask. */
treadle_status treadle_wire_wait(int socket, short events, double deadline, const char *doing);

#endif
