/* Who watches the waits of this thread (treadle_thread_watch). */
#ifndef TREADLE_BASE_THREAD_WATCH_H
#define TREADLE_BASE_THREAD_WATCH_H

#include "base/status.h"

/* How often a wait that sleeps wakes up to ask. */
#define TREADLE_ASK_EVERY 20e-3 /* seconds */

bool treadle_thread_is_watched(void);
/* Who watches now, and with what: for who watches beside it. NULL: nobody. */
treadle_watcher treadle_thread_watcher(void **context_p);
/* TREADLE_CANCELLED where this thread's watcher says so; `doing` lives as long as the program. It is asked every TREADLE_ASK_EVERY seconds at
 * most, however often this is called; after it has said so, at every call. */
treadle_status treadle_thread_ask(const char *doing);
/* The next treadle_thread_ask asks in any case: before a function of the caller's is called. Python handles a signal that is pending as soon as one of
 * its functions is entered, and what the handler raises there, outside of any try, is lost. */
void treadle_thread_ask_soon(void);

#endif
