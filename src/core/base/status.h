/* Statuses and messages.
 *
 * Every function that can fail returns treadle_status (include/treadle.h). Whoever detects an error
 * words it, once, with treadle_fail(); callers hand the status on with TRY. The message belongs to
 * the calling thread and stays until the next treadle_fail() of that thread. */
#ifndef TREADLE_BASE_STATUS_H
#define TREADLE_BASE_STATUS_H

#include "treadle.h"

/* Keeps the message for treadle_error_message() and returns `status`. */
treadle_status treadle_fail(treadle_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Is it one of treadle.h's, other than TREADLE_OK? */
bool treadle_status_is_failure(treadle_status status);

/* Puts words in front of the message that stands ("config.json: " ...); returns `status`. */
treadle_status treadle_fail_in(treadle_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Before the work begins, a file that cannot be opened, or an output that cannot be made, is refused input. */
static inline treadle_status treadle_as_refusal(treadle_status status) {
  return status == TREADLE_SYSTEM ? TREADLE_REFUSED : status;
}

/* The same of what a setting names: the message that stands begins with `place`, the key and where it is given. */
treadle_status treadle_refused_at(const char *place, treadle_status status);

/* Inputs are refused before a run begins. What fails then, be it a reward, a loss or a filter, is a failure while running. */
static inline treadle_status treadle_as_failure(treadle_status status) {
  return status == TREADLE_REFUSED ? TREADLE_SYSTEM : status;
}

/* Ends a function that has nothing to end: the input breaks a rule, in these words. */
#define REFUSE(...) return treadle_fail(TREADLE_REFUSED, __VA_ARGS__)

/* Each function has one label `out:` which ends everything, and one variable `status`. */
#define TRY(call)                                                                                          \
  do {                                                                                                     \
    status = (call);                                                                                       \
    if (status != TREADLE_OK) goto out;                                                                    \
  } while (0)

#endif
