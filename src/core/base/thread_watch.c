#include "base/thread_watch.h"

#include "base/clock.h"

static _Thread_local struct {
  treadle_watcher call; /* NULL: nobody */
  void *context;
  double next; /* when it is asked again */
} watch;

void treadle_thread_watch(treadle_watcher call, void *context) {
  watch.call = call;
  watch.context = context;
  watch.next = 0;
}

bool treadle_thread_is_watched(void) { return watch.call; }

treadle_watcher treadle_thread_watcher(void **context_p) {
  *context_p = watch.context;
  return watch.call;
}

void treadle_thread_ask_soon(void) { watch.next = 0; }

treadle_status treadle_thread_ask(const char *doing) {
  if (!watch.call) return TREADLE_OK;
  double now = treadle_clock_seconds();
  if (now < watch.next) return TREADLE_OK;
  if (!watch.call(watch.context, doing, 0, 0))
    return treadle_fail(TREADLE_CANCELLED, "cancelled: %s", doing);
  watch.next = now + TREADLE_ASK_EVERY;
  return TREADLE_OK;
}
