/* Divisors for messages. */
#include "base/divisor.h"

#include <inttypes.h>
#include <stdio.h>

static void take(int64_t divisor, int64_t at, int64_t with, int64_t *below_p, int64_t *above_p) {
  if (divisor % with != 0 && with % divisor != 0) return;
  if (divisor <= at && divisor > *below_p) *below_p = divisor;
  if (divisor > at && (*above_p == 0 || divisor < *above_p)) *above_p = divisor;
}

/* Divisors come in pairs: of 12 at 8, 1 and 12, 2 and 6, 3 and 4. */
const char *treadle_divisors_near(const char *name, int64_t number, int64_t at, int64_t with, char *text) {
  int64_t below = 0, above = 0;
  for (int64_t d = 1; d <= number / d; d++)
    if (number % d == 0) {
      take(d, at, with, &below, &above);
      take(number / d, at, with, &below, &above);
    }
  const char *format = below && above ? "%s=%" PRId64 " and %s=%" PRId64 " do" : "%s=%" PRId64 " does";
  snprintf(text, TREADLE_DIVISORS_ROOM, format, name, below ? below : above, name, above);
  return text;
}
