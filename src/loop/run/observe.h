/* Telling an observer, and asking it: each does nothing where a function is NULL. */
#ifndef TREADLE_RUN_OBSERVE_H
#define TREADLE_RUN_OBSERVE_H

#include "treadle_engine.h"

static inline void treadle_observe_note(const treadle_observer *observer, bool warns, const char *line) {
  if (observer->note && line[0]) observer->note(observer->context, warns, line);
}

/* A warning, as who takes a function and a context gives it: the context is an observer. */
static inline void treadle_observe_warning(void *observer, const char *line) {
  treadle_observe_note(observer, true, line);
}

static inline void treadle_observe_progress(const treadle_observer *observer, const char *what,
                                            int64_t done, int64_t total) {
  if (observer->progress) observer->progress(observer->context, what, done, total);
}

static inline void treadle_observe_stage(const treadle_observer *observer, const char *stage) {
  if (observer->stage) observer->stage(observer->context, stage);
}

static inline bool treadle_observe_stop(const treadle_observer *observer) {
  return observer->stop && observer->stop(observer->context);
}

#endif
