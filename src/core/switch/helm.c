/* The helm: which thread may change a switch now, what other threads may read meanwhile, and arrows that run beside their caller.
 *
 *      nobody --treadle_helm_take--> a call that is not an arrow --treadle_helm_leave--> nobody
 *      nobody --treadle_helm_go----> an arrow, in the caller's thread --> nobody
 *      nobody --treadle_switch_start--> an arrow, in a thread of its own --> ended --treadle_switch_wait--> nobody
 *
 *   1. One thread at a time has the helm, and only it changes the switch; other threads are refused meanwhile.
 *   2. A started arrow has the helm until a thread has waited for it; until then its status and message are kept.
 *   3. Any thread may cancel an arrow that has not ended, and read mode, version and stats. Stats are a copy, which the
 *      thread with the helm updates after each wave and at the end.
 *
 * An arrow needs no MPI: ranks communicate through memory that all of them map (group/group.h). So it does not matter which
 * level of threads MPI was started with, and a started arrow goes on while its caller is inside of MPI. */
#include "switch/switch.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/signals.h"
#include "base/sized.h"
#include "base/thread_watch.h"

#include <stdio.h>
#include <string.h>

treadle_helm *treadle_helm_create(int rank, const treadle_switch_stats *stats) {
  treadle_helm *helm = treadle_alloc(sizeof *helm);
  if (helm) *helm = (treadle_helm){.lock = PTHREAD_MUTEX_INITIALIZER, .rank = rank, .now = stats};
  return helm;
}

void treadle_helm_destroy(treadle_helm *helm) {
  if (helm) pthread_mutex_destroy(&helm->lock);
  treadle_free(helm);
}

/* ---- Taking it and leaving it ---- */

/* Under the lock, as all that follows up to the next heading but one. */
static treadle_status check_free(const treadle_helm *helm, const char *what) {
  if (!helm->taken) return TREADLE_OK;
  if (helm->started && !helm->arrow)
    return treadle_fail(TREADLE_STATE, "%s: a switch to %s was started, and has ended: wait for it first",
                        what, treadle_aim_text(helm->aim));
  if (helm->started)
    return treadle_fail(TREADLE_STATE, "%s: a switch is running: that to %s was started; wait for it first",
                        what, treadle_aim_text(helm->aim));
  return treadle_fail(TREADLE_STATE, "%s: a switch is running, in another thread or around this callback",
                      what);
}

static treadle_status check_arrow(const treadle_switch *sw, int aim) {
  treadle_status status = TREADLE_OK;
  char what[40];
  snprintf(what, sizeof what, "switch to %s", treadle_aim_text(aim));
  TRY(check_free(sw->helm, what));
  TRY(treadle_arrow_check(sw, aim));
out:
  return status;
}

static void take(treadle_helm *helm, bool arrow) {
  helm->taken = true;
  helm->arrow = arrow;
  helm->who = pthread_self();
  atomic_store(&helm->cancelled, false);
}

treadle_status treadle_helm_take(treadle_helm *helm, const char *what) {
  pthread_mutex_lock(&helm->lock);
  treadle_status status = check_free(helm, what);
  if (status == TREADLE_OK) take(helm, false);
  pthread_mutex_unlock(&helm->lock);
  return status;
}

void treadle_helm_leave(treadle_helm *helm) {
  pthread_mutex_lock(&helm->lock);
  helm->stats = *helm->now;
  helm->taken = helm->arrow = false;
  pthread_mutex_unlock(&helm->lock);
}

treadle_status treadle_helm_take_device(treadle_helm *helm, const treadle_device *device,
                                        const char *what) {
  treadle_status status = treadle_helm_take(helm, what);
  if (status != TREADLE_OK) return status;
  status = device->ops->renew(device);
  if (status == TREADLE_OK) return TREADLE_OK;
  treadle_helm_leave(helm);
  return treadle_fail_in(status, "%s: ", what);
}

void treadle_helm_tell(treadle_helm *helm) {
  pthread_mutex_lock(&helm->lock);
  helm->stats = *helm->now;
  pthread_mutex_unlock(&helm->lock);
}

/* ---- Arrows, here or beside ---- */

treadle_status treadle_helm_go(treadle_switch *sw, int aim) {
  treadle_helm *helm = sw->helm;
  pthread_mutex_lock(&helm->lock);
  treadle_status status = check_arrow(sw, aim);
  if (status == TREADLE_OK) take(helm, true);
  pthread_mutex_unlock(&helm->lock);
  if (status != TREADLE_OK) return status;
  status = treadle_arrow_take(sw, aim);
  treadle_helm_leave(sw->helm);
  return status;
}

/* The thread of a started arrow. */
static void *run(void *of) {
  treadle_switch *sw = of;
  treadle_helm *helm = sw->helm;
  pthread_mutex_lock(&helm->lock); /* which the thread that makes this one has until all is said */
  int aim = helm->aim;
  pthread_mutex_unlock(&helm->lock);
  treadle_status status = treadle_arrow_take(sw, aim);
  pthread_mutex_lock(&helm->lock);
  helm->stats = *helm->now;
  helm->result = status;
  snprintf(helm->message, sizeof helm->message, "%s", status == TREADLE_OK ? "" : treadle_error_message());
  helm->arrow = false;
  pthread_mutex_unlock(&helm->lock);
  return NULL;
}

static treadle_status launch(treadle_switch *sw, int aim) {
  treadle_helm *helm = sw->helm;
  pthread_t thread;
  sigset_t old;
  helm->aim = aim;
  treadle_signals_block(&old);
  int error = pthread_create(&thread, NULL, run, sw);
  treadle_signals_restore(&old);
  if (error != 0)
    return treadle_fail(TREADLE_SYSTEM, "switch to %s: no thread for it: %s", treadle_aim_text(aim),
                        strerror(error));
  take(helm, true);
  helm->started = true;
  helm->who = thread;
  return TREADLE_OK;
}

static treadle_status start(treadle_switch *sw, int aim) {
  treadle_status status;
  pthread_mutex_lock(&sw->helm->lock);
  status = check_arrow(sw, aim);
  if (status == TREADLE_OK) status = launch(sw, aim);
  pthread_mutex_unlock(&sw->helm->lock);
  return status;
}

treadle_status treadle_switch_start(treadle_switch *sw, treadle_mode mode) {
  treadle_status status = TREADLE_OK;
  TREADLE_NEED(sw);
  TRY(TREADLE_CHECK_ENUM(mode, TREADLE_HOST + 1));
  if (mode == TREADLE_LOST)
    return treadle_fail(TREADLE_REFUSED, "treadle_switch_start: mode %s is none to go to",
                        treadle_mode_text(mode));
  TRY(start(sw, (int)mode));
out:
  return status;
}

treadle_status treadle_switch_start_update(treadle_switch *sw) {
  TREADLE_NEED(sw);
  return start(sw, TREADLE_AIM_UPDATE);
}

/* ---- What was started ---- */

/* Under the lock, too. */
static treadle_status check_started(const treadle_helm *helm, const char *what) {
  if (helm->started) return TREADLE_OK;
  return treadle_fail(TREADLE_STATE, "%s: no switch was started, or it was waited for already", what);
}

treadle_status treadle_switch_test(treadle_switch *sw, bool *done_p) {
  TREADLE_NEED(sw);
  TREADLE_NEED(done_p);
  pthread_mutex_lock(&sw->helm->lock);
  treadle_status status = check_started(sw->helm, "test");
  *done_p = status == TREADLE_OK && !sw->helm->arrow;
  pthread_mutex_unlock(&sw->helm->lock);
  return status;
}

/* May this thread wait? Then it is the one that does. */
static treadle_status begin_wait(treadle_helm *helm) {
  treadle_status status = TREADLE_OK;
  TRY(check_started(helm, "wait"));
  if (pthread_equal(helm->who, pthread_self()))
    return treadle_fail(TREADLE_STATE, "wait: a callback of the switch to %s would wait for itself",
                        treadle_aim_text(helm->aim));
  if (helm->waited)
    return treadle_fail(TREADLE_STATE, "wait: another thread waits for the switch to %s",
                        treadle_aim_text(helm->aim));
  helm->waited = true;
out:
  return status;
}

treadle_status treadle_switch_wait(treadle_switch *sw) {
  TREADLE_NEED(sw);
  treadle_helm *helm = sw->helm;
  pthread_mutex_lock(&helm->lock);
  treadle_status status = begin_wait(helm);
  pthread_t thread = helm->who;
  pthread_mutex_unlock(&helm->lock);
  if (status != TREADLE_OK) return status;
  pthread_join(thread, NULL);
  pthread_mutex_lock(&helm->lock);
  status = helm->result == TREADLE_OK ? TREADLE_OK : treadle_fail(helm->result, "%s", helm->message);
  helm->taken = helm->started = helm->waited = false; /* others may start one from here on */
  pthread_mutex_unlock(&helm->lock);
  return status;
}

treadle_status treadle_switch_cancel(treadle_switch *sw) {
  TREADLE_NEED(sw);
  treadle_helm *helm = sw->helm;
  pthread_mutex_lock(&helm->lock);
  treadle_status status = helm->arrow ? TREADLE_OK
                                      : treadle_fail(TREADLE_STATE, "cancel: no switch is under way%s",
                                                     helm->started ? ": it has ended; wait for it" : "");
  if (helm->arrow) atomic_store(&helm->cancelled, true);
  pthread_mutex_unlock(&helm->lock);
  return status;
}

treadle_status treadle_helm_check(treadle_helm *helm) {
  if (treadle_thread_ask("a switch") != TREADLE_OK) atomic_store(&helm->cancelled, true);
  if (!atomic_load_explicit(&helm->cancelled, memory_order_relaxed)) return TREADLE_OK;
  return treadle_fail(TREADLE_CANCELLED, "the switch was cancelled on rank %d", helm->rank);
}

/* ---- What others may ask, and the end ---- */

void treadle_switch_get_stats(const treadle_switch *sw, treadle_switch_stats *stats_p) {
  treadle_switch_stats stats = {0};
  TREADLE_NEED_SIZED_ONLY(stats_p);
  TREADLE_GIVE(stats_p, &stats);
  TREADLE_NEED_ONLY(sw);
  pthread_mutex_lock(&sw->helm->lock);
  stats = sw->helm->stats;
  pthread_mutex_unlock(&sw->helm->lock);
  stats.pool_bytes = sw->device.ops->held_bytes(sw->space.pool);
  TREADLE_GIVE(stats_p, &stats);
}

void treadle_switch_destroy(treadle_switch *sw) {
  if (!sw) return;
  treadle_helm *helm = sw->helm;
  pthread_mutex_lock(&helm->lock);
  bool started = helm->started, own = helm->taken && pthread_equal(helm->who, pthread_self());
  bool refused = helm->taken && (!started || own || helm->waited);
  pthread_mutex_unlock(&helm->lock);
  if (refused) {
    treadle_fail(TREADLE_STATE, "destroy: a switch is running, in another thread or around this callback");
    return;
  }
  if (started) {
    atomic_store(&helm->cancelled, true);
    pthread_join(helm->who, NULL);
  }
  treadle_switch_release(sw);
}
