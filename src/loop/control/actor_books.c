/* Device bytes by class, now and at most. */
#include "control/actor.h"

void treadle_actor_book(void *context, const size_t *bytes, int classes) {
  treadle_actor_books *b = context;
  size_t all = 0;
  for (int c = 0; c < TREADLE_CLASSES; c++) {
    b->now[c] = (c < classes ? bytes[c] : 0) + (c == TREADLE_WORK ? b->outside : 0);
    if (b->now[c] > b->peaks[c]) b->peaks[c] = b->now[c];
    all += b->now[c];
  }
  if (all > b->peak) b->peak = all;
  if (b->observer.memory) b->observer.memory(b->observer.context, b->now, TREADLE_CLASSES);
}

void treadle_actor_count(treadle_actor *actor) {
  size_t bytes[TREADLE_CLASSES];
  for (int c = 0; c < TREADLE_CLASSES; c++) bytes[c] = treadle_switch_resident(actor->sw, (treadle_class)c);
  treadle_actor_book(&actor->books, bytes, TREADLE_CLASSES);
}
