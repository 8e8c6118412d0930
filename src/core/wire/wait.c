/* Who is watched wakes up now and then, and asks. */
#include "wire/wait.h"

#include "base/clock.h"
#include "base/thread_watch.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

enum { LONGEST_POLL = 3600 * 1000 /* ms; a limit may be longer than poll() can say */ };

int treadle_wire_poll_ms(double left) {
  if (!(left > 0)) return 0;
  return left * 1000 < LONGEST_POLL ? (int)(left * 1000) + 1 : LONGEST_POLL;
}

treadle_status treadle_wire_wait(int socket, short events, double deadline, const char *doing) {
  for (;;) {
    double left = deadline - treadle_clock_seconds();
    treadle_status asked = treadle_thread_ask(doing);
    if (asked != TREADLE_OK) return asked;
    bool over = left <= 0;
    if (treadle_thread_is_watched() && left > TREADLE_ASK_EVERY) left = TREADLE_ASK_EVERY;
    struct pollfd one = {.fd = socket, .events = events};
    int ready = poll(&one, 1, treadle_wire_poll_ms(left));
    if (ready > 0) return TREADLE_OK;
    if (ready == 0 && over) return TREADLE_TIMEOUT;
    if (ready < 0 && errno != EINTR) return treadle_fail(TREADLE_SYSTEM, "poll: %s", strerror(errno));
  }
}
