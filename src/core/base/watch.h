/* Telling who watches long work (treadle_watcher). */
#ifndef TREADLE_BASE_WATCH_H
#define TREADLE_BASE_WATCH_H

#include "base/status.h"

typedef struct treadle_watch {
  treadle_watcher call; /* NULL: nobody watches */
  void *context;
} treadle_watch;

/* TREADLE_CANCELLED where the watcher says so. */
static inline treadle_status treadle_tell(const treadle_watch *watch, const char *doing, int64_t done,
                                          int64_t total) {
  if (!watch->call || watch->call(watch->context, doing, done, total)) return TREADLE_OK;
  return treadle_fail(TREADLE_CANCELLED, "cancelled: %s %lld of %lld", doing, (long long)done,
                      (long long)total);
}

#endif
