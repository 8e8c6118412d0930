/* Stop texts. Texts are UTF-8, in which no character begins inside of another: comparing bytes is comparing characters. */
#include "generate/stops.h"

#include <string.h>

int32_t treadle_stops_find(const treadle_sampling_values *sampling, const char *text, size_t count,
                           size_t added, size_t *at_p) {
  int32_t found = -1;
  size_t best = 0; /* where it ends */
  for (int32_t i = 0; i < sampling->stop_count; i++) {
    const treadle_text *stop = &sampling->stop[i];
    size_t reach = added + stop->count - 1, from = count > reach ? count - reach : 0;
    const char *at = added > 0 ? memmem(text + from, count - from, stop->bytes, stop->count) : NULL;
    if (!at) continue;
    size_t end = (size_t)(at - text) + stop->count;
    if (found >= 0 && end >= best) continue;
    found = i;
    best = end;
    *at_p = (size_t)(at - text);
  }
  return found;
}

size_t treadle_stops_held(const treadle_sampling_values *sampling, const char *text, size_t count) {
  size_t held = 0;
  for (int32_t i = 0; i < sampling->stop_count; i++) {
    const treadle_text *stop = &sampling->stop[i];
    size_t most = stop->count - 1 < count ? stop->count - 1 : count;
    for (size_t length = most; length > held; length--)
      if (memcmp(text + count - length, stop->bytes, length) == 0) held = length;
  }
  return held;
}
