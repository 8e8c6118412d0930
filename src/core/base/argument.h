/* The arguments of public functions: each is checked at the head of the function, in one line, before anything is done.
 *
 *   TREADLE_NEED(model);            a pointer that may not be NULL; the function returns TREADLE_REFUSED
 *   TREADLE_NEED_OR(model, -1);     the same, of a function without a status: returns the value that the header documents
 *   TREADLE_NEED_ONLY(plan);        the same, of a function without a result
 *   TRY(TREADLE_CHECK_..(name));    numbers; the refusal names function, argument, number and limit
 *
 * A message begins with the function as the caller knows it: "treadle_layout_create: no text (NULL)". */
#ifndef TREADLE_BASE_ARGUMENT_H
#define TREADLE_BASE_ARGUMENT_H

#include "base/status.h"

enum { TREADLE_MOST_SECONDS = 1 << 30 }; /* of a time limit: 34 years */

treadle_status treadle_refuse_null(const char *function, const char *name);
/* A time limit: finite, above 0, at most TREADLE_MOST_SECONDS. */
treadle_status treadle_check_seconds(const char *function, const char *name, double seconds);
/* One of `count` values of an enum that begins at 0. */
treadle_status treadle_check_enum(const char *function, const char *name, long long value, int count);

#define TREADLE_NEED(pointer)                                                                              \
  do {                                                                                                     \
    if (!(pointer)) return treadle_refuse_null(__func__, #pointer);                                        \
  } while (0)
#define TREADLE_NEED_OR(pointer, value)                                                                    \
  do {                                                                                                     \
    if (!(pointer)) return treadle_refuse_null(__func__, #pointer), (value);                               \
  } while (0)
#define TREADLE_NEED_ONLY(pointer)                                                                         \
  do {                                                                                                     \
    if (!(pointer)) {                                                                                      \
      treadle_refuse_null(__func__, #pointer);                                                             \
      return;                                                                                              \
    }                                                                                                      \
  } while (0)

#define TREADLE_CHECK_SECONDS(seconds)   treadle_check_seconds(__func__, #seconds, seconds)
#define TREADLE_CHECK_ENUM(value, count) treadle_check_enum(__func__, #value, (long long)(value), count)

#endif
