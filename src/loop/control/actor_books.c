/* Device bytes by class, now and at most. */
#include "control/actor.h"

static void add_up(treadle_actor_books *b) {
  size_t all = 0;
  for (int c = 0; c < TREADLE_CLASSES; c++) {
    b->now[c] = b->own[c];
    for (int role = 0; role < TREADLE_TENANTS; role++) b->now[c] += b->beside[role][c];
    if (b->now[c] > b->peaks[c]) b->peaks[c] = b->now[c];
    all += b->now[c];
  }
  if (all > b->peak) b->peak = all;
  if (b->observer.memory) b->observer.memory(b->observer.context, b->now, TREADLE_CLASSES);
}

static void take(size_t *to, const size_t *bytes, int classes, size_t outside) {
  for (int c = 0; c < TREADLE_CLASSES; c++)
    to[c] = (c < classes ? bytes[c] : 0) + (c == TREADLE_WORK ? outside : 0);
}

void treadle_actor_book(void *context, const size_t *bytes, int classes) {
  treadle_actor_books *b = context;
  take(b->own, bytes, classes, b->outside);
  add_up(b);
}

void treadle_actor_count(treadle_actor *actor) {
  size_t bytes[TREADLE_CLASSES];
  for (int c = 0; c < TREADLE_CLASSES; c++) bytes[c] = treadle_switch_resident(actor->sw, (treadle_class)c);
  treadle_actor_book(&actor->books, bytes, TREADLE_CLASSES);
}

void treadle_actor_book_beside(treadle_actor_books *books, treadle_tenant_type role, const size_t *bytes,
                               int classes, size_t outside) {
  take(books->beside[role], bytes, classes, outside);
  add_up(books);
}
