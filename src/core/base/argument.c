/* What is said of arguments that are refused. */
#include "base/argument.h"

treadle_status treadle_refuse_null(const char *function, const char *name) {
  return treadle_fail(TREADLE_REFUSED, "%s: no %s (NULL)", function, name);
}

treadle_status treadle_check_seconds(const char *function, const char *name, double seconds) {
  if (seconds > 0 && seconds <= TREADLE_MOST_SECONDS) return TREADLE_OK; /* NaN is neither */
  return treadle_fail(TREADLE_REFUSED,
                      "%s: %s of %g is not allowed; it must be above 0 and at most %d seconds", function,
                      name, seconds, TREADLE_MOST_SECONDS);
}

treadle_status treadle_check_enum(const char *function, const char *name, long long value, int count) {
  if (value >= 0 && value < count) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s: %s is %lld, and must be from 0 to %d", function, name, value,
                      count - 1);
}
