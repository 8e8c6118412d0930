/* A thread begins with the part of its own number, so that it has the same data in its caches each time; when the caller has done its
 * own, it takes the parts that nobody has begun: on a busy machine a member may be late. `taken` of a part is the last turn
 * in which somebody took it.
 *
 * Two futexes. `turn` counts the work that was handed out; a member sleeps until it changes. `left` counts the members that have not
 * done their part of this turn; the caller sleeps until it is 0. Who changes a word wakes its sleepers only where there are some:
 * a sleeper adds itself to their number before it looks at the word for the last time, and the other one changes the word
 * before it looks at the number, all in one order (seq_cst), so that one of the two sees the other. */
#include "base/team.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct member {
  treadle_team *team;
  pthread_t thread;
  int32_t index;
  char apart[64];
  _Atomic uint32_t taken; /* the part of this number, in which turn */
} member;

struct treadle_team {
  treadle_team_part part;
  void *context;
  member *members; /* [count]; the first has no thread */
  int32_t count, made;
  bool spin;
  atomic_bool ends;
  char apart[64]; /* each word in a cache line of its own */
  _Atomic uint32_t turn, turn_sleepers;
  char apart_too[64];
  _Atomic uint32_t left, left_sleepers;
};

static void pause_a_moment(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/* Until the word is something else, for a short while. */
static void spin_while(_Atomic uint32_t *word, uint32_t value) {
  enum { LOOKS = 16 };
  double end = treadle_clock_seconds() + 50e-6;
  do {
    for (int i = 0; i < LOOKS; i++) {
      if (atomic_load_explicit(word, memory_order_relaxed) != value) return;
      pause_a_moment();
    }
  } while (treadle_clock_seconds() < end);
}

/* Until the word is something else. */
static void wait_while(const treadle_team *team, _Atomic uint32_t *word, uint32_t value,
                       _Atomic uint32_t *sleepers) {
  if (team->spin && atomic_load(word) == value) spin_while(word, value);
  if (atomic_load(word) != value) return;
  atomic_fetch_add(sleepers, 1);
  while (atomic_load(word) == value) syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
  atomic_fetch_sub(sleepers, 1);
}

static void wake(_Atomic uint32_t *word, _Atomic uint32_t *sleepers) {
  if (atomic_load(sleepers) > 0) syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* False: somebody else has it. */
static bool take(member *m, uint32_t turn) {
  uint32_t before = turn - 1;
  return atomic_compare_exchange_strong(&m->taken, &before, turn);
}

static void *serve(void *of) {
  member *m = of;
  treadle_team *team = m->team;
  for (uint32_t turn = 0;;) {
    wait_while(team, &team->turn, turn, &team->turn_sleepers);
    turn = atomic_load(&team->turn);
    if (team->ends) return NULL;
    if (!take(m, turn)) continue;
    team->part(team->context, m->index, team->count);
    if (atomic_fetch_sub(&team->left, 1) == 1) wake(&team->left, &team->left_sleepers);
  }
}

static void hand_out(treadle_team *team) {
  atomic_fetch_add(&team->turn, 1);
  wake(&team->turn, &team->turn_sleepers);
}

void treadle_team_run(treadle_team *team, treadle_team_part part, void *context) {
  if (team->count == 1) {
    part(context, 0, 1);
    return;
  }
  team->part = part;
  team->context = context;
  atomic_store(&team->left, (uint32_t)team->count - 1);
  hand_out(team);
  part(context, 0, team->count);
  for (int32_t i = 1; i < team->count; i++) {
    if (!take(&team->members[i], atomic_load(&team->turn))) continue;
    part(context, i, team->count);
    atomic_fetch_sub(&team->left, 1);
  }
  uint32_t left;
  while ((left = atomic_load(&team->left)) > 0) wait_while(team, &team->left, left, &team->left_sleepers);
}

int32_t treadle_team_count(const treadle_team *team) { return team->count; }

treadle_status treadle_team_create(int32_t count, bool spin, treadle_team **team_p) {
  treadle_status status = TREADLE_OK;
  *team_p = NULL;
  if (count < 1 || count > TREADLE_TEAM_MAX)
    REFUSE("a team of %d threads: 1 to %d are possible", (int)count, (int)TREADLE_TEAM_MAX);
  treadle_team *team = treadle_alloc(sizeof *team);
  if (!team) return treadle_fail(TREADLE_NO_MEMORY, "memory is out: a team of threads");
  team->count = count;
  team->made = 1;
  team->spin = spin;
  team->members = treadle_alloc_array((size_t)count, sizeof *team->members);
  if (!team->members) TRY(treadle_fail(TREADLE_NO_MEMORY, "memory is out: a team of threads"));
  for (; team->made < count; team->made++) {
    member *m = &team->members[team->made];
    *m = (member){.team = team, .index = team->made};
    int error = pthread_create(&m->thread, NULL, serve, m);
    if (error)
      TRY(treadle_fail(TREADLE_SYSTEM, "thread %d of %d: %s", (int)team->made, (int)count,
                       strerror(error)));
  }
  *team_p = team;
  team = NULL;
out:
  treadle_team_destroy(team);
  return status;
}

void treadle_team_destroy(treadle_team *team) {
  if (!team) return;
  team->ends = true;
  hand_out(team);
  for (int32_t i = 1; i < team->made; i++) pthread_join(team->members[i].thread, NULL);
  treadle_free(team->members);
  treadle_free(team);
}

int32_t treadle_team_share(int64_t ranks) {
  cpu_set_t set;
  int64_t count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  int64_t mine = count / ranks;
  return mine < 1 ? 1 : mine > TREADLE_TEAM_MAX ? TREADLE_TEAM_MAX : (int32_t)mine;
}
