/* Groups of one process: barrier, gather, leaving. Run under TSan too.  ctest: label=threads */
#include "group/ranks.h"
#include "test.h"

#include "base/clock.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int gather_much(treadle_group *group, void *context) {
  int64_t all[16];
  (void)context;
  for (int64_t i = 0; i < 200; i++) {
    int64_t mine = i * 100 + group->rank;
    RANK_OK(treadle_group_gather(group, &mine, sizeof mine, all));
    for (int rank = 0; rank < group->size; rank++) RANK_TRUE(all[rank] == i * 100 + rank);
    if (i % 3 == 0) RANK_OK(treadle_group_barrier(group));
  }
  return 0;
}

static void test_gather(void **state) {
  (void)state;
  for (int size = 1; size <= 8; size += size < 3 ? 1 : 5) {
    ranks_as_threads(size, 30, 0, gather_much, NULL);
    ranks_as_threads(size, 30, 77, gather_much, NULL);
  }
}

/* What rank 0 has; the others have its start. */
static int say_rest(treadle_group *group, void *context) {
  char text[32];
  (void)context;
  for (int i = 0; i < 50; i++) {
    if (group->rank == 0)
      snprintf(text, sizeof text, "folder/%d.tmp", i);
    else
      text[0] = 0;
    RANK_OK(treadle_group_say_rest(group, "folder", text, sizeof text));
    RANK_TRUE(strncmp(text, "folder/", 7) == 0 && atoi(text + 7) == i && strstr(text, ".tmp"));
  }
  return 0;
}

static void test_say_rest(void **state) {
  char text[] = "alone";
  (void)state;
  assert_ok(treadle_group_say_rest(NULL, "al", text, sizeof text));
  assert_string_equal(text, "alone");
  ranks_as_threads(3, 30, 5, say_rest, NULL);
}

/* Memory that one rank writes before a barrier is seen by all after it. */
static int pass_memory(treadle_group *group, void *context) {
  int *shared = context;
  for (int i = 0; i < 300; i++) {
    if (i % group->size == group->rank) *shared = i;
    RANK_OK(treadle_group_barrier(group));
    RANK_TRUE(*shared == i);
    RANK_OK(treadle_group_barrier(group));
  }
  return 0;
}

static void test_barrier_orders_memory(void **state) {
  (void)state;
  int shared = -1;
  ranks_as_threads(5, 30, 3, pass_memory, &shared);
}

static int one_leaves(treadle_group *group, void *context) {
  (void)context;
  RANK_OK(treadle_group_barrier(group));
  if (group->rank == 2) {
    treadle_fail(TREADLE_NO_MEMORY, "rank two is tired");
    treadle_group_fail(group);
    RANK_FAILS(TREADLE_PEER, "tired", treadle_group_barrier(group));
    return 0;
  }
  RANK_FAILS(TREADLE_PEER, "rank two is tired", treadle_group_barrier(group));
  RANK_FAILS(TREADLE_PEER, "tired", treadle_group_barrier(group)); /* for good */
  return 0;
}

static void test_failure_is_told(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 20; seed++) ranks_as_threads(4, 30, seed, one_leaves, NULL);
}

/* Everybody gets the failure of the first rank that has one of its own. */
static int agree_on_failures(treadle_group *group, void *context) {
  static const treadle_status statuses[][4] = {
      {0, TREADLE_PEER, 0, TREADLE_CANCELLED},
      {0, TREADLE_PEER, 0, TREADLE_PEER},
      {TREADLE_PEER, TREADLE_REFUSED, TREADLE_CANCELLED, 0},
      {TREADLE_STATE, TREADLE_STATE, TREADLE_STATE, TREADLE_STATE}};
  static const int first[] = {3, 1, 1, -1}; /* -1: all say the same */
  (void)context;
  for (size_t i = 0; i < TEST_COUNT(statuses); i++) {
    const treadle_status mine = statuses[i][group->rank];
    char wanted[64] = "it is closed";
    if (first[i] >= 0) snprintf(wanted, sizeof wanted, "rank %d: it was %d", first[i], first[i]);
    if (mine)
      (void)(first[i] >= 0 ? treadle_fail(mine, "it was %d", group->rank)
                           : treadle_fail(mine, "it is closed"));
    RANK_FAILS(statuses[i][first[i] >= 0 ? first[i] : 0], NULL, treadle_group_agree(group, mine));
    RANK_TRUE(strcmp(treadle_error_message(), wanted) == 0);
    RANK_OK(treadle_group_agree(group, TREADLE_OK));
  }
  return 0;
}

/* Ranks in two calls, and ranks that were not given alike what must be. */
static int agree_on_calls(treadle_group *group, void *context) {
  const int rank = group->rank;
  treadle_group_call call = {
      .name = "sort",
      .alike = {{.what = "order", .hash = 5}, {.what = "rows", .among = rank / 2, .hash = 7}},
      .count = 2};
  (void)context;
  RANK_OK(treadle_group_agree_on(group, TREADLE_OK, &call));
  call.alike[1].hash = (uint64_t)rank / 2;
  RANK_OK(treadle_group_agree_on(group, TREADLE_OK, &call));
  call.alike[1].hash = (uint64_t)rank / 3;
  RANK_FAILS(TREADLE_REFUSED, "sort: ranks 2 and 3 must be given the same rows, and were not",
             treadle_group_agree_on(group, TREADLE_OK, &call));
  call.alike[0].hash = rank == 1;
  RANK_FAILS(TREADLE_REFUSED, "sort: ranks 0 and 1 must be given the same order, and were not",
             treadle_group_agree_on(group, TREADLE_OK, &call));
  if (rank == 2) call.name = "merge";
  RANK_FAILS(TREADLE_REFUSED, "rank 0 is in sort, and rank 2 in merge",
             treadle_group_agree_on(group, TREADLE_OK, &call));
  RANK_FAILS(TREADLE_REFUSED, "rank 0 is in sort, and rank 1 in another call",
             treadle_group_agree_on(group, TREADLE_OK, rank == 1 ? NULL : &call));
  RANK_FAILS(
      TREADLE_STATE, "rank 3: closed",
      treadle_group_agree_on(group, rank == 3 ? treadle_fail(TREADLE_STATE, "closed") : TREADLE_OK, &call));
  return 0;
}

/* A rank that meets the others in another way. */
static int agree_with_others(treadle_group *group, void *context) {
  const treadle_group_call call = {.name = "sort"};
  const int rank = group->rank;
  int mine = 5, all[4];
  (void)context;
  for (int times = 0; times < 3; times++) {
    RANK_OK(treadle_group_agree_on(group, TREADLE_OK, &call));
    if (rank == 2)
      RANK_OK(times == 1 ? treadle_group_gather(group, &mine, sizeof mine, all)
                         : treadle_group_barrier(group));
    else
      RANK_FAILS(TREADLE_REFUSED, "rank 2 has come to a barrier or a gather, where others agree on a call",
                 treadle_group_agree_on(group, TREADLE_OK, &call));
  }
  return 0;
}

static void test_agree(void **state) {
  (void)state;
  ranks_as_threads(4, 30, 0, agree_on_failures, NULL);
  ranks_as_threads(4, 30, 0, agree_on_calls, NULL);
  ranks_as_threads(4, 30, 0, agree_with_others, NULL);
}

static int one_is_missing(treadle_group *group, void *context) {
  (void)context;
  if (group->rank == 1) return 0; /* closed by the test when all have ended */
  double begin = treadle_clock_seconds();
  RANK_FAILS(TREADLE_TIMEOUT, "for rank 1", treadle_group_barrier(group));
  RANK_TRUE(treadle_clock_seconds() - begin < 5);
  return 0;
}

static void test_timeout(void **state) {
  (void)state;
  ranks_as_threads(2, 0.2, 0, one_is_missing, NULL);
}

/* Ranks that come one after the other, each soon after the one before: the limit is of the barrier, not of each wait in it. */
static int one_after_the_other(treadle_group *group, void *context) {
  (void)context;
  double seconds = 0.4 * group->rank;
  nanosleep(&(struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)(seconds * 1e9) % 1000000000},
            NULL);
  treadle_status status = treadle_group_barrier(group);
  if (group->rank == 0) RANK_FAILS(TREADLE_TIMEOUT, "barrier: waited 0.", status);
  return 0;
}

static void test_one_limit(void **state) {
  (void)state;
  ranks_as_threads(4, 0.6, 0, one_after_the_other, NULL);
}

/* Rank 0 waits for rank 1, and that one for rank 2: it is rank 2 that is late. */
static int wait_in_a_chain(treadle_group *group, void *context) {
  treadle_rank_line *lines = group->control->lines;
  (void)context;
  group->timeout_seconds = group->rank == 0 ? 0.2 : 30;
  double deadline = treadle_group_deadline(group);
  if (group->rank == 1)
    RANK_OK(treadle_group_wait(group, 2, &lines[2].words[0], 1, NULL, deadline, "a word"));
  if (group->rank == 2)
    RANK_OK(treadle_group_wait(group, 0, &lines[0].words[0], 1, NULL, deadline, "a word"));
  if (group->rank == 2) treadle_group_publish(group, &lines[2].words[0], 1);
  if (group->rank > 0) return 0;
  while (atomic_load(&lines[1].waits_for) == 0) sched_yield();
  RANK_FAILS(
      TREADLE_TIMEOUT, "for rank 1, which waits for rank 2",
      treadle_group_wait(group, 1, &lines[1].words[0], 1, NULL, treadle_group_deadline(group), "a word"));
  RANK_TRUE(atomic_load(&lines[0].waits_for) == 0);
  treadle_group_publish(group, &lines[0].words[0], 1);
  return 0;
}

static void test_chain(void **state) {
  (void)state;
  ranks_as_threads(3, 30, 0, wait_in_a_chain, NULL);
}

static int share_words(treadle_group *group, void *context) {
  int64_t *words = context;
  treadle_peer_memory all[8];
  for (int i = 0; i < 20; i++) {
    int64_t *mine = &words[group->rank];
    *mine = i * 10 + group->rank;
    const treadle_offer offer = {.device = treadle_device_host(),
                                 .base = group->rank == 3 ? NULL : mine,
                                 .bytes = group->rank == 3 ? 0 : sizeof *mine};
    RANK_OK(group->link->publish(group, &offer, all));
    for (int rank = 0; rank < group->size; rank++) {
      RANK_TRUE(all[rank].bytes == (rank == 3 ? 0 : sizeof *mine));
      if (rank != 3) RANK_TRUE(*(const int64_t *)all[rank].base == i * 10 + rank);
    }
    group->link->withdraw(group, treadle_device_host(), all);
    RANK_OK(treadle_group_barrier(group));
  }
  return 0;
}

static void test_share(void **state) {
  (void)state;
  int64_t words[8];
  ranks_as_threads(5, 30, 1, share_words, words);
}

static treadle_status make_groups(void) {
  treadle_group *groups[3];
  treadle_status status = treadle_group_threads(3, 1, groups);
  for (int rank = 0; rank < 3; rank++) treadle_group_close(groups[rank]);
  return status;
}

static treadle_status make_self(void) {
  treadle_group *group;
  treadle_status status = treadle_group_self(&group);
  treadle_group_close(group);
  return status;
}

static void test_allocations(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(make_groups());
  TEST_EACH_ALLOCATION(make_self());
}

static void test_self(void **state) {
  (void)state;
  treadle_group *group;
  int mine = 5, all = 0;
  treadle_peer_memory shared;
  assert_ok(treadle_group_self(&group));
  assert_int_equal(treadle_group_rank(group), 0);
  assert_int_equal(treadle_group_size(group), 1);
  assert_ok(treadle_group_barrier(group));
  assert_ok(treadle_group_gather(group, &mine, sizeof mine, &all));
  assert_int_equal(all, 5);
  assert_refused("at most 4096", treadle_group_gather(group, &mine, 4097, &all));
  treadle_group_close(group);
  assert_ok(treadle_group_self(&group));
  const treadle_offer offer = {.device = treadle_device_host(), .base = &mine, .bytes = sizeof mine};
  assert_ok(group->link->publish(group, &offer, &shared));
  assert_ptr_equal(shared.base, &mine);
  treadle_group_close(group);
  treadle_group_close(NULL);
}

/* A rank that has left says nothing more: others may still read what it said before the barrier that failed. */
static void test_silent_when_gone(void **state) {
  treadle_group *group;
  (void)state;
  assert_ok(treadle_group_self(&group));
  for (int i = 1; i <= 2; i++) assert_ok(treadle_group_say(group, &i, sizeof i));
  treadle_fail(TREADLE_SYSTEM, "weary");
  treadle_group_fail(group);
  assert_fails(TREADLE_PEER, "weary", treadle_group_say(group, &(int){3}, sizeof(int)));
  assert_int_equal(*(const int *)treadle_group_words(group), 1);
  assert_int_equal(*(const int *)treadle_group_said(group, 0), 2);
  treadle_group_close(group);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gather),
      cmocka_unit_test(test_say_rest),
      cmocka_unit_test(test_barrier_orders_memory),
      cmocka_unit_test(test_failure_is_told),
      cmocka_unit_test(test_agree),
      cmocka_unit_test(test_timeout),
      cmocka_unit_test(test_one_limit),
      cmocka_unit_test(test_chain),
      cmocka_unit_test(test_share),
      cmocka_unit_test(test_allocations),
      cmocka_unit_test(test_self),
      cmocka_unit_test(test_silent_when_gone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
