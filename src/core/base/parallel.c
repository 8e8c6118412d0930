/* Steps are handed out in order, so when one fails all before it have begun, and the lowest failure is known when all
 * threads have ended. A thread that cannot be made is done without. */
#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

enum { THREADS_MAX = 16, MESSAGE_BYTES = 1024 };

typedef struct loop {
  treadle_loop_step step;
  void *context;
  int32_t count;
  atomic_int next;
  atomic_bool failed;
  pthread_mutex_t lock; /* of the failure: */
  treadle_status status;
  int32_t index;
  char message[MESSAGE_BYTES];
} loop;

static void note_failure(loop *l, int32_t index, treadle_status status) {
  atomic_store(&l->failed, true);
  pthread_mutex_lock(&l->lock);
  if (l->status == TREADLE_OK || index < l->index) {
    l->status = status;
    l->index = index;
    snprintf(l->message, sizeof l->message, "%s", treadle_error_message());
  }
  pthread_mutex_unlock(&l->lock);
}

/* One step, or false when there is none left to take. */
static bool take(loop *l) {
  if (atomic_load(&l->failed)) return false;
  int32_t index = atomic_fetch_add(&l->next, 1);
  if (index >= l->count) return false;
  treadle_status status = l->step(l->context, index);
  if (status != TREADLE_OK) note_failure(l, index, status);
  return true;
}

static void *work(void *of) {
  while (take(of)) {
  }
  return NULL;
}

static int32_t processors(void) {
  cpu_set_t set;
  int32_t count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return count < THREADS_MAX ? count : THREADS_MAX;
}

treadle_status treadle_parallel(int32_t count, treadle_loop_step step, void *context,
                                treadle_status (*told)(void *context, int32_t begun)) {
  loop l = {.step = step, .context = context, .count = count, .lock = PTHREAD_MUTEX_INITIALIZER};
  pthread_t others[THREADS_MAX];
  int32_t made = 0, wanted = processors() < count ? processors() - 1 : count - 1;
  while (made < wanted && pthread_create(&others[made], NULL, work, &l) == 0) made++;
  while (take(&l)) {
    int32_t begun = atomic_load(&l.next);
    treadle_status status = told ? told(context, begun < count ? begun : count) : TREADLE_OK;
    if (status != TREADLE_OK) note_failure(&l, begun, status);
  }
  for (int32_t i = 0; i < made; i++) pthread_join(others[i], NULL);
  return l.status == TREADLE_OK ? TREADLE_OK : treadle_fail(l.status, "%s", l.message);
}
