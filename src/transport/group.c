/* What all kinds of groups have in common: waiting, and what is made of it.
 *
 *   1. A word of a line is written by its owner only (but for `waiters`, a count of others), and words that are
 *      waited for only grow.
 *   2. A wait ends: the word came, the epoch failed, the rank left or died, or the time is over.
 *   3. A rank that leaves says so in its line before it goes, and says why if it failed.
 *
 * Waiting. A group may have more ranks than the machine has processors, and then a rank that spins keeps
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
#include "transport/group.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/clock.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const double SPIN = 100e-6, LOOK_EVERY = 10e-3; /* seconds */
enum { LINKS = 6 }; /* of a chain of ranks that wait for each other, at most, in a message */
enum { OUTCOME_EPOCH = 12, OUTCOME_RANK = 2 }; /* shifts */

size_t treadle_control_bytes(int size) {
  return sizeof(treadle_control) + (size_t)size * sizeof(treadle_line);
}

treadle_status treadle_group_make(const treadle_group_ops *ops, int rank, int size, double timeout_seconds,
                                  treadle_control *control, void *kind, treadle_group **group_p) {
  *group_p = NULL;
  treadle_group *group = treadle_alloc(sizeof *group);
  if (!group) return treadle_fail(TREADLE_NO_MEMORY, "group: memory is out");
  *group = (treadle_group){.ops = ops,
                           .rank = rank,
                           .size = size,
                           .timeout_seconds = timeout_seconds,
                           .control = control,
                           .kind = kind};
  *group_p = group;
  return TREADLE_OK;
}

int treadle_group_rank(const treadle_group *group) {
  TREADLE_NEED_OR(group, -1);
  return group->rank;
}

int treadle_group_size(const treadle_group *group) {
  TREADLE_NEED_OR(group, -1);
  return group->size;
}

treadle_line *treadle_group_line(treadle_group *group) { return &group->control->lines[group->rank]; }

/* ---- Bells ---- */

static void ring(treadle_line *line) {
  atomic_fetch_add(&line->bell, 1);
  if (atomic_load(&line->waiters) > 0) syscall(SYS_futex, &line->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Wakes everybody, wherever they sleep: something about all has changed. */
static void ring_all(treadle_group *group) {
  for (int rank = 0; rank < group->size; rank++) ring(&group->control->lines[rank]);
}

/* At most `seconds`, which may be none. */
static void sleep_on(treadle_line *line, const _Atomic uint64_t *word, uint64_t value, double seconds) {
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
  ring(treadle_group_line(group));
}

/* ---- Waiting ---- */

static treadle_status check_rank(treadle_group *group, int rank, const char *what) {
  const treadle_line *line = &group->control->lines[rank];
  uint32_t left = atomic_load(&line->left);
  if (left == TREADLE_LEFT_FAILED)
    return treadle_fail(TREADLE_PEER, "%s: rank %d failed: %s", what, rank, line->left_message);
  if (left == TREADLE_LEFT_CLOSED)
    return treadle_fail(TREADLE_PEER, "%s: rank %d has left the group", what, rank);
  return TREADLE_OK;
}

static treadle_status check_alive(treadle_group *group, int rank, const char *what) {
  if (group->ops->alive(group, rank)) return TREADLE_OK;
  return treadle_fail(TREADLE_PEER, "%s: rank %d (process %d) has died", what, rank,
                      (int)atomic_load(&group->control->lines[rank].pid));
}

/* Names the rank that was waited for; as long as that one waits for another itself, that one too. */
static treadle_status time_is_over(const treadle_group *group, int rank, double waited, const char *what) {
  char chain[LINKS * 40] = "";
  size_t used = 0;
  int last = rank;
  for (int i = 0; i < LINKS; i++) {
    int next = atomic_load(&group->control->lines[last].waits_for) - 1;
    if (next < 0 || next >= group->size || next == group->rank) break;
    used += (size_t)snprintf(chain + used, sizeof chain - used, ", which waits for rank %d", next);
    last = next;
  }
  return treadle_fail(TREADLE_TIMEOUT, "%s: waited %.1f s for rank %d%s", what, waited, rank, chain);
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
                                  uint64_t value, uint64_t epoch, double deadline, const char *what) {
  treadle_status status = TREADLE_OK;
  treadle_line *line = &group->control->lines[rank];
  if (group->delay) group->delay(group->delay_context, what);
  if (atomic_load(word) >= value) return TREADLE_OK;
  double now = spin(word, value, deadline), next_look = now;
  if (atomic_load(word) >= value) return TREADLE_OK;
  atomic_store(&treadle_group_line(group)->waits_for, rank + 1);
  while (atomic_load(word) < value) {
    if (epoch) TRY(treadle_outcome_check(group, epoch));
    if (now >= next_look || now >= deadline) {
      treadle_status gone = check_rank(group, rank, what);
      if (gone == TREADLE_OK) gone = check_alive(group, rank, what);
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

/* ---- Leaving ---- */

static void leave(treadle_group *group, uint32_t how) {
  treadle_line *line = treadle_group_line(group);
  if (atomic_load(&line->left) == TREADLE_LEFT_NOT) {
    if (how == TREADLE_LEFT_FAILED)
      snprintf(line->left_message, sizeof line->left_message, "%s", treadle_error_message());
    atomic_store(&line->left, how);
  }
  ring_all(group);
}

void treadle_group_fail(treadle_group *group) { leave(group, TREADLE_LEFT_FAILED); }

void treadle_group_close(treadle_group *group) {
  if (!group) return;
  leave(group, TREADLE_LEFT_CLOSED);
  group->ops->destroy(group);
  treadle_free(group);
}

/* ---- Barrier and gather ---- */

treadle_status treadle_group_meet(treadle_group *group, uint64_t epoch, const char *what) {
  treadle_status status = TREADLE_OK;
  TRY(check_rank(group, group->rank, what)); /* who left does not come back */
  uint64_t barrier = ++group->barriers;
  double deadline = treadle_group_deadline(group);
  treadle_group_publish(group, &treadle_group_line(group)->arrived, barrier);
  for (int rank = 0; rank < group->size; rank++)
    TRY(treadle_group_wait(group, rank, &group->control->lines[rank].arrived, barrier, epoch, deadline,
                           what));
out:
  return status;
}

treadle_status treadle_group_barrier(treadle_group *group) {
  TREADLE_NEED(group);
  treadle_status status = treadle_group_meet(group, 0, "barrier");
  if (status != TREADLE_OK) treadle_group_fail(group);
  return status;
}

/* A payload is overwritten two generations later: by then every rank has arrived at the barrier between,
 * and so is done with it. */
treadle_status treadle_group_say(treadle_group *group, const void *mine, size_t bytes) {
  treadle_status status = TREADLE_OK;
  if (bytes > TREADLE_GROUP_PAYLOAD)
    return treadle_fail(TREADLE_REFUSED, "gather: %zu bytes a rank, at most %d will do", bytes,
                        TREADLE_GROUP_PAYLOAD);
  if (bytes > 0) memcpy(treadle_group_line(group)->payload[(group->barriers + 1) & 1], mine, bytes);
  TRY(treadle_group_meet(group, 0, "gather"));
out:
  if (status != TREADLE_OK) treadle_group_fail(group);
  return status;
}

const void *treadle_group_said(const treadle_group *group, int rank) {
  return group->control->lines[rank].payload[group->barriers & 1];
}

treadle_status treadle_group_gather(treadle_group *group, const void *mine, size_t bytes, void *all) {
  treadle_status status = TREADLE_OK;
  TREADLE_NEED(group);
  if (bytes > 0) {
    TREADLE_NEED(mine);
    TREADLE_NEED(all);
  }
  TRY(treadle_group_say(group, mine, bytes));
  for (int rank = 0; rank < group->size && bytes > 0; rank++)
    memcpy((char *)all + (size_t)rank * bytes, treadle_group_said(group, rank), bytes);
out:
  return status;
}

/* ---- The outcome ---- */

static uint64_t outcome_of(uint64_t epoch, int rank, int state) {
  return epoch << OUTCOME_EPOCH | (uint64_t)rank << OUTCOME_RANK | (uint64_t)state;
}

void treadle_outcome_open(treadle_group *group, uint64_t epoch) {
  uint64_t open = outcome_of(epoch, 0, TREADLE_OPEN), word = atomic_load(&group->control->outcome);
  while (word < open && !atomic_compare_exchange_weak(&group->control->outcome, &word, open)) {
  }
}

bool treadle_outcome_settle(treadle_group *group, uint64_t epoch, int state) {
  uint64_t wanted = outcome_of(epoch, group->rank, state), word = atomic_load(&group->control->outcome);
  treadle_line *line = treadle_group_line(group);
  if (atomic_load(&line->left) != TREADLE_LEFT_NOT) return false; /* who left decides nothing */
  assert(state == TREADLE_FAILED || word >= outcome_of(epoch, 0, TREADLE_OPEN));
  if (state == TREADLE_FAILED)
    snprintf(line->failed_message, sizeof line->failed_message, "%s", treadle_error_message());
  while (word <= outcome_of(epoch, 0, TREADLE_OPEN)) /* older, or open */
    if (atomic_compare_exchange_weak(&group->control->outcome, &word, wanted)) {
      ring_all(group);
      return true;
    }
  return (word & 3) == (uint64_t)state && word >> OUTCOME_EPOCH == epoch;
}

treadle_status treadle_outcome_check(treadle_group *group, uint64_t epoch) {
  uint64_t word = atomic_load(&group->control->outcome);
  const treadle_line *line = treadle_group_line(group);
  if (word >> OUTCOME_EPOCH > epoch && atomic_load(&line->verified) < epoch)
    return treadle_fail(TREADLE_PEER, "the other ranks have given up waiting for rank %d and tried again",
                        group->rank);
  if (atomic_load(&line->left) != TREADLE_LEFT_NOT)
    return treadle_fail(TREADLE_PEER, "rank %d has left the group: %s", group->rank, line->left_message);
  if (word >> OUTCOME_EPOCH != epoch || (word & 3) != TREADLE_FAILED) return TREADLE_OK;
  int rank = (int)(word >> OUTCOME_RANK & (TREADLE_GROUP_MAX - 1));
  if (rank == group->rank)
    return treadle_fail(TREADLE_PEER, "%s", treadle_group_line(group)->failed_message);
  return treadle_fail(TREADLE_PEER, "rank %d failed: %s", rank, group->control->lines[rank].failed_message);
}

bool treadle_outcome_committed(const treadle_group *group, uint64_t epoch) {
  uint64_t word = atomic_load(&group->control->outcome);
  return word >> OUTCOME_EPOCH > epoch ||
         (word >> OUTCOME_EPOCH == epoch && (word & 3) == TREADLE_COMMITTED);
}

/* ---- Last words ---- */

void treadle_group_last_words(treadle_group *group, const void *words, size_t bytes) {
  treadle_line *line = treadle_group_line(group);
  memcpy(line->payload[0], words, bytes < TREADLE_GROUP_PAYLOAD ? bytes : TREADLE_GROUP_PAYLOAD);
  treadle_group_publish(group, &line->last_words, 1);
}

const void *treadle_group_hear(treadle_group *group, int rank, double seconds) {
  treadle_line *line = &group->control->lines[rank];
  double now = treadle_clock_seconds(), end = now + seconds;
  while (atomic_load(&line->last_words) == 0) {
    bool alive = group->ops->alive(group, rank);
    if (atomic_load(&line->last_words)) break; /* before it went */
    if (!alive || !(now < end)) return NULL;
    sleep_on(line, &line->last_words, 1, end - now);
    now = treadle_clock_seconds();
  }
  return line->payload[0];
}
