/* Teams of src/core/base/team.c: each part once a turn, and the caller sees all that was written; members that sleep and members that
 * spin; threads that cannot be made.
 * ctest: label=threads */
#include "test.h"

#include "base/team.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

enum { MEMBERS = 5, TURNS = 2000 };

typedef struct turns {
  pthread_t caller;
  int64_t done[MEMBERS]; /* not atomic: the team orders them */
  int64_t turn;
  bool slow; /* the member of this turn's number comes late */
} turns;

static void part(void *context, int32_t index, int32_t count) {
  turns *t = context;
  assert_true(index >= 0 && index < count && count <= MEMBERS);
  bool by_caller = pthread_equal(pthread_self(), t->caller);
  assert_true(index != 0 || by_caller);
  if (t->slow && t->turn % count == index) nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
  assert_int_equal(t->done[index]++, t->turn);
}

static void run_turns(int32_t count, bool spin, bool slow, int64_t number) {
  treadle_team *team;
  turns t = {.caller = pthread_self(), .slow = slow};
  assert_ok(treadle_team_create(count, spin, &team));
  assert_int_equal(treadle_team_count(team), count);
  for (; t.turn < number; t.turn++) {
    treadle_team_run(team, part, &t);
    for (int32_t i = 0; i < count; i++) assert_int_equal(t.done[i], t.turn + 1);
  }
  treadle_team_destroy(team);
}

static void does_each_part_once(void **state) {
  (void)state;
  for (int32_t count = 1; count <= MEMBERS; count++)
    for (int spin = 0; spin < 2; spin++) {
      run_turns(count, spin, false, (int64_t)test_seeds(TURNS));
      run_turns(count, spin, true, (int64_t)test_seeds(TURNS) / 20);
    }
}

/* The caller's part ends when all others have: the members did those, at the same time. */
static void wait_for_others(void *context, int32_t index, int32_t count) {
  atomic_int *done = context;
  while (index == 0 && atomic_load(done) < count - 1)
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
  atomic_fetch_add(done, 1);
}

static void members_do_theirs(void **state) {
  (void)state;
  treadle_team *team;
  assert_ok(treadle_team_create(MEMBERS, false, &team));
  for (int turn = 0; turn < 20; turn++) {
    atomic_int done = 0;
    treadle_team_run(team, wait_for_others, &done);
    assert_int_equal(done, MEMBERS);
  }
  treadle_team_destroy(team);
}

static void ends_unused(void **state) {
  (void)state;
  treadle_team *team;
  for (int i = 0; i < 20; i++) {
    assert_ok(treadle_team_create(MEMBERS, i % 2, &team));
    treadle_team_destroy(team);
  }
  treadle_team_destroy(NULL);
}

static void refuses_sizes(void **state) {
  (void)state;
  treadle_team *team;
  assert_refused("0 threads", treadle_team_create(0, false, &team));
  assert_refused("257 threads", treadle_team_create(TREADLE_TEAM_MAX + 1, false, &team));
}

static treadle_status make_one(void) {
  treadle_team *team = NULL;
  treadle_status status = treadle_team_create(2, false, &team);
  treadle_team_destroy(team);
  return status;
}

static void reports_memory(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(make_one());
}

/* The system makes no thread for want of address space; those that were made end. */
static void reports_threads(void **state) {
  (void)state;
  if (TEST_SANITIZED) skip();
  treadle_team *team;
  struct rlimit was, low;
  assert_int_equal(getrlimit(RLIMIT_AS, &was), 0);
  low = was;
  low.rlim_cur = 1 << 28;
  assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
  treadle_status status = treadle_team_create(TREADLE_TEAM_MAX, false, &team);
  assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
  assert_fails(TREADLE_SYSTEM, "of 256", status);
  assert_null(team);
}

static void shares_processors(void **state) {
  (void)state;
  int32_t all = treadle_team_share(1);
  assert_in_range(all, 1, TREADLE_TEAM_MAX);
  assert_in_range(treadle_team_share(2), 1, all);
  assert_int_equal(treadle_team_share(1 << 20), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(does_each_part_once), cmocka_unit_test(members_do_theirs),
      cmocka_unit_test(ends_unused),         cmocka_unit_test(refuses_sizes),
      cmocka_unit_test(reports_memory),      cmocka_unit_test(reports_threads),
      cmocka_unit_test(shares_processors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
