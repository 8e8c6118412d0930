/* A store's rank 0: the life of its thread, and its own calls. */
#include "meet/store_server.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/signals.h"
#include "base/thread_watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ---- Waiting ---- */

static void wake(treadle_store_server *s) {
  ssize_t written = write(s->wake, &(uint64_t){1}, sizeof(uint64_t));
  (void)written; /* a counter that is full wakes, too */
}

/* With the lock: sleeps until something has changed, or a while. TREADLE_CANCELLED where the thread's watcher says so. */
static treadle_status sleep_until(treadle_store_server *s, double deadline, const char *doing) {
  double now = treadle_clock_seconds(), slice = treadle_thread_is_watched() ? TREADLE_ASK_EVERY : 1;
  double end = deadline < now + slice ? deadline : now + slice;
  const struct timespec at = treadle_clock_timespec(end);
  pthread_mutex_unlock(&s->lock); /* a watcher may do anything */
  treadle_status status = treadle_thread_ask(doing);
  pthread_mutex_lock(&s->lock);
  if (status == TREADLE_OK) pthread_cond_timedwait(&s->changed, &s->lock, &at);
  return status;
}

treadle_status treadle_store_server_meet(treadle_store_server *s) {
  treadle_status status = TREADLE_OK;
  pthread_mutex_lock(&s->lock);
  while (s->state == TREADLE_STORE_MEETING) {
    status = sleep_until(s, s->deadline + 1, "ranks that come to the store");
    if (status != TREADLE_OK && s->state == TREADLE_STORE_MEETING)
      treadle_store_server_fail(s, status, treadle_error_message());
  }
  if (s->state == TREADLE_STORE_FAILED) status = treadle_fail(s->status, "%s", s->why);
  pthread_mutex_unlock(&s->lock);
  return status;
}

/* ---- Keys ---- */

treadle_status treadle_store_server_set(treadle_store_server *s, const char *key, const void *value,
                                        size_t bytes) {
  pthread_mutex_lock(&s->lock);
  treadle_status status = treadle_store_map_set(&s->map, key, value, bytes);
  if (status == TREADLE_OK) {
    treadle_store_server_answer(s);
    wake(s); /* what has not passed at once is the thread's */
  }
  pthread_mutex_unlock(&s->lock);
  return status;
}

treadle_status treadle_store_server_get(treadle_store_server *s, const char *key, double seconds,
                                        void *value, size_t capacity, size_t *bytes_p) {
  treadle_status status = TREADLE_OK;
  double deadline = treadle_clock_seconds() + seconds;
  const treadle_wire_bytes *found;
  pthread_mutex_lock(&s->lock);
  while (!(found = treadle_store_map_get(&s->map, key))) {
    if (treadle_clock_seconds() >= deadline)
      TRY(treadle_fail(TREADLE_TIMEOUT, "nobody has set it in time"));
    TRY(sleep_until(s, deadline, "a key of the store"));
  }
  if (capacity) memcpy(value, found->data, found->bytes < capacity ? found->bytes : capacity);
  *bytes_p = found->bytes;
out:
  pthread_mutex_unlock(&s->lock);
  return status;
}

/* ---- Its life ---- */

static treadle_status make_room(treadle_store_server *s) {
  pthread_condattr_t attributes;
  s->members = treadle_alloc_array((size_t)s->ranks, sizeof *s->members);
  s->polls = treadle_alloc_array((size_t)(2 + TREADLE_STORE_GUESTS + s->ranks), sizeof *s->polls);
  for (int rank = 0; s->members && rank < s->ranks; rank++) s->members[rank].stream.wire.socket = -1;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&s->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  pthread_mutex_init(&s->lock, NULL);
  if (!s->members || !s->polls) return treadle_fail(TREADLE_NO_MEMORY, "%s: memory is out", s->what);
  s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (s->wake < 0) return treadle_fail(TREADLE_SYSTEM, "%s: no event: %s", s->what, strerror(errno));
  return TREADLE_OK;
}

static treadle_status launch(treadle_store_server *s) {
  sigset_t before;
  treadle_signals_block(&before);
  int error = pthread_create(&s->thread, NULL, treadle_store_serve, s);
  treadle_signals_restore(&before);
  if (error != 0) return treadle_fail(TREADLE_SYSTEM, "%s: no thread: %s", s->what, strerror(error));
  s->runs = true;
  return TREADLE_OK;
}

treadle_status treadle_store_server_start(const char *what, uint64_t job, int ranks, int listener,
                                          double deadline, treadle_store_server **server_p) {
  treadle_status status = TREADLE_OK;
  treadle_store_server *s = treadle_alloc(sizeof *s);
  *server_p = NULL;
  if (!s) {
    close(listener);
    return treadle_fail(TREADLE_NO_MEMORY, "%s: memory is out", what);
  }
  snprintf(s->what, sizeof s->what, "%s", what);
  s->job = job;
  s->ranks = ranks;
  s->deadline = deadline;
  s->listener = listener;
  s->wake = -1;
  s->process = getpid();
  s->state = ranks > 1 ? TREADLE_STORE_MEETING : TREADLE_STORE_OPEN;
  TRY(make_room(s));
  TRY(launch(s));
  *server_p = s;
out:
  if (status != TREADLE_OK) treadle_store_server_stop(s, 0);
  return status;
}

static void end_thread(treadle_store_server *s, double deadline) {
  pthread_mutex_lock(&s->lock);
  while (s->state == TREADLE_STORE_OPEN && s->gone < s->came && treadle_clock_seconds() < deadline)
    if (sleep_until(s, deadline, "ranks that still use the store") != TREADLE_OK) break;
  s->ends = true;
  wake(s);
  pthread_mutex_unlock(&s->lock);
  pthread_join(s->thread, NULL);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->lock);
}

void treadle_store_server_stop(treadle_store_server *s, double deadline) {
  if (!s) return;
  bool ours = s->process == getpid();
  if (s->runs && ours) end_thread(s, deadline);
  for (int rank = 1; s->members && rank < s->ranks; rank++)
    treadle_wire_close(&s->members[rank].stream.wire, ours);
  for (int i = 0; i < s->guest_count; i++) treadle_wire_close(&s->guests[i].stream.wire, ours);
  if (ours) shutdown(s->listener, SHUT_RDWR);
  close(s->listener);
  if (s->wake >= 0) close(s->wake);
  treadle_store_map_release(&s->map);
  treadle_free(s->members);
  treadle_free(s->polls);
  treadle_free(s);
}
