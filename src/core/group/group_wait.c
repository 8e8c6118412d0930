/* How a rank of a group waits for a word of another.
 *
 * A group may have more ranks than the machine has processors, and then a rank that spins keeps
 * the one it waits for from running. So: sched_yield() for SPIN seconds, which is a short spin where nobody else wants
 * to run and hands over the processor where somebody does; then a sleep on the `bell` of the line, a futex
 * that its owner rings after each change when somebody sleeps. The sleeper counts itself, reads the bell,
 * looks at the word once more and sleeps only if the bell is still the same; the owner writes the word,
 * moves the bell, then looks for sleepers: whoever comes second sees the other. A sleep lasts LOOK_EVERY at
 * most, and no longer than the time that is left; then the sleeper looks at liveness and time.
 *
 * Time is looked at after each yield, not after a number of them: beside processes that spin on the same core a
 * yield comes back when each of these had its slice, some 10 ms later. So a wait is over one such turn after its limit,
 * wherever it was. A limit is of a call: a barrier that waits for one rank after the other has one deadline for all. */
#include "group/group.h"

#include "base/argument.h"
#include "base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const double SPIN = 100e-6, LOOK_EVERY = 10e-3; /* seconds */
enum { LINKS = 6 }; /* of a chain of ranks that wait for each other, at most, in a message */

/* ---- Bells ---- */

static void post(treadle_control *control) {
  if (atomic_load(&control->courier) == 0) return;
  atomic_fetch_add(&control->posted, 1);
  syscall(SYS_futex, &control->posted, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void wake(treadle_rank_line *line) {
  atomic_fetch_add(&line->bell, 1);
  if (atomic_load(&line->waiters) > 0) syscall(SYS_futex, &line->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void treadle_group_ring(treadle_control *control, treadle_rank_line *line, bool near) {
  wake(line);
  if (near) post(control);
}

void treadle_group_ring_all(treadle_group *group) {
  for (int rank = 0; rank < group->size; rank++) wake(&group->control->lines[rank]);
  post(group->control);
}

/* At most `seconds`, which may be none. */
static void sleep_on(treadle_rank_line *line, const _Atomic uint64_t *word, uint64_t value,
                     double seconds) {
  if (seconds > LOOK_EVERY) seconds = LOOK_EVERY;
  if (!(seconds > 0)) return;
  const struct timespec limit = {.tv_nsec = (long)(seconds * 1e9)};
  atomic_fetch_add(&line->waiters, 1);
  uint32_t heard = atomic_load(&line->bell);
  if (atomic_load(word) < value) syscall(SYS_futex, &line->bell, FUTEX_WAIT, heard, &limit, NULL, 0);
  atomic_fetch_sub(&line->waiters, 1);
}

void treadle_group_publish(treadle_group *group, _Atomic uint64_t *word, uint64_t value) {
  atomic_store(word, value);
  treadle_group_ring(group->control, treadle_group_line(group), true);
}

/* ---- Waiting ---- */

treadle_status treadle_group_check_rank(const treadle_group *group, int rank, const char *what) {
  const treadle_rank_line *line = &group->control->lines[rank];
  uint32_t left = atomic_load(&line->left);
  if (left == TREADLE_LEFT_FAILED)
    return treadle_fail(TREADLE_PEER, "%s: rank %d failed: %s", what, treadle_group_called(group, rank),
                        line->left_message);
  if (left == TREADLE_LEFT_CLOSED)
    return treadle_fail(TREADLE_PEER, "%s: rank %d has left the group", what,
                        treadle_group_called(group, rank));
  return TREADLE_OK;
}

static treadle_status check_alive(treadle_group *group, int rank, const char *what) {
  if (group->ops->alive(group, rank)) return TREADLE_OK;
  if (!treadle_group_is_near(group, rank))
    return treadle_fail(TREADLE_PEER, "%s: rank %d on node %d has died, or cannot be reached", what,
                        treadle_group_called(group, rank), (int)group->nodes->of[rank]);
  return treadle_fail(TREADLE_PEER, "%s: rank %d (process %d) has died", what,
                      treadle_group_called(group, rank),
                      (int)atomic_load(&group->control->lines[rank].pid));
}

treadle_status treadle_group_look(treadle_group *group, int rank, const char *what) {
  treadle_status gone = treadle_group_check_rank(group, rank, what);
  return gone == TREADLE_OK ? check_alive(group, rank, what) : gone;
}

/* Names the rank that was waited for; as long as that one waits for another itself, that one too. */
static treadle_status time_is_over(const treadle_group *group, int rank, double waited, const char *what) {
  char chain[LINKS * 40] = "";
  size_t used = 0;
  int last = rank;
  for (int i = 0; i < LINKS; i++) {
    int next = atomic_load(&group->control->lines[last].waits_for) - 1;
    if (next < 0 || next >= group->size || next == group->rank) break;
    used += (size_t)snprintf(chain + used, sizeof chain - used, ", which waits for rank %d",
                             treadle_group_called(group, next));
    last = next;
  }
  return treadle_fail(TREADLE_TIMEOUT, "%s: waited %.1f s for rank %d%s", what, waited,
                      treadle_group_called(group, rank), chain);
}

double treadle_group_deadline(const treadle_group *group) {
  return treadle_clock_seconds() + group->timeout_seconds;
}

/* Yields until the word is there, or SPIN or the deadline is over; the time of the last look. */
static double spin(const _Atomic uint64_t *word, uint64_t value, double deadline) {
  double now, end = deadline;
  do {
    sched_yield();
    now = treadle_clock_seconds();
    if (end > now + SPIN) end = now + SPIN;
  } while (atomic_load(word) < value && now < end);
  return now;
}

treadle_status treadle_group_wait(treadle_group *group, int rank, const _Atomic uint64_t *word,
                                  uint64_t value, const treadle_watch *watch, double deadline,
                                  const char *what) {
  treadle_status status = TREADLE_OK;
  treadle_rank_line *line = &group->control->lines[rank];
  if (group->delay) group->delay(group->delay_context, what);
  if (atomic_load(word) >= value) return TREADLE_OK;
  double now = spin(word, value, deadline), next_look = now;
  if (atomic_load(word) >= value) return TREADLE_OK;
  atomic_store(&treadle_group_line(group)->waits_for, rank + 1);
  while (atomic_load(word) < value) {
    if (watch) TRY(watch->look(watch->context));
    if (now >= next_look || now >= deadline) {
      treadle_status gone = treadle_group_look(group, rank, what);
      if (atomic_load(word) >= value) break; /* its last word before it went */
      TRY(gone);
      if (now >= deadline) {
        status = time_is_over(group, rank, now - (deadline - group->timeout_seconds), what);
        goto out;
      }
      next_look = now + LOOK_EVERY;
    }
    sleep_on(line, word, value, deadline - now);
    now = treadle_clock_seconds();
  }
out:
  atomic_store(&treadle_group_line(group)->waits_for, 0);
  return status;
}

const void *treadle_group_hear(treadle_group *group, int rank, double seconds) {
  TREADLE_NEED_OR(group, NULL);
  if (TREADLE_CHECK_SECONDS(seconds)) return NULL;
  if (rank < 0 || rank >= group->size) {
    treadle_fail(TREADLE_REFUSED, "treadle_group_hear: rank %d is none of the %d", rank, group->size);
    return NULL;
  }
  treadle_rank_line *line = &group->control->lines[rank];
  double now = treadle_clock_seconds(), end = now + seconds;
  while (atomic_load(&line->last_words) == 0) {
    bool alive = group->ops->alive(group, rank);
    if (atomic_load(&line->last_words)) break; /* before it went */
    if (!alive || !(now < end)) {
      treadle_fail(alive ? TREADLE_TIMEOUT : TREADLE_PEER, "rank %d has said no last words%s", rank,
                   alive ? " in time" : ", and is gone");
      return NULL;
    }
    sleep_on(line, &line->last_words, 1, end - now);
    now = treadle_clock_seconds();
  }
  return line->payload[0];
}
