/* Ranks of one node that meet by a store, here a folder with a file for each key; and waits that the thread's watcher ends. */
#include "group/ranks.h"
#include "meet/folder_store.h"
#include "test.h"

#include "base/clock.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* ---- Meeting ---- */

static int meet(const char *name, int rank, int size, void *context) {
  folder f = {0};
  treadle_store store = folder_store(&f, name);
  treadle_group *group;
  int all[8];
  snprintf(f.path, sizeof f.path, "%s", (const char *)context);
  for (int round = 0; round < 3; round++) { /* under one key, where the last round has left a name */
    if (rank == 0) nanosleep(&(struct timespec){.tv_nsec = 60000000}, NULL);
    RANK_OK(treadle_group_store(&store, rank, size, -1, 20, &group));
    RANK_OK(treadle_group_gather(group, &rank, sizeof rank, all));
    for (int peer = 0; peer < size; peer++) RANK_TRUE(all[peer] == peer);
    RANK_OK(treadle_group_barrier(group));
    treadle_group_close(group);
  }
  RANK_TRUE(rank == 0 ? f.gets == 3 * (size - 1) : f.gets >= 6);
  return 0;
}

static void test_meet(void **state) {
  int results[4];
  char path[] = "/tmp/treadle-test-XXXXXX", key[400];
  (void)state;
  assert_non_null(mkdtemp(path));
  ranks_as_processes(4, 30, meet, path, results);
  for (int rank = 0; rank < 4; rank++) assert_int_equal(results[rank], 0);
  snprintf(key, sizeof key, "rm -r %s", path);
  assert_int_equal(system(key), 0);
}

static void test_refused(void **state) {
  char path[] = "/tmp/treadle-test-XXXXXX", long_job[300], long_value[200];
  folder f = {0};
  treadle_group *group;
  (void)state;
  assert_non_null(mkdtemp(path));
  snprintf(f.path, sizeof f.path, "%s", path);
  memset(long_job, 'j', sizeof long_job);
  long_job[sizeof long_job - 1] = 0;
  memset(long_value, 'a', sizeof long_value);
  treadle_store store = folder_store(&f, "job");
  assert_fails(TREADLE_TIMEOUT,
               "group 'job': rank 0 did not come in time: the store's get of 'treadle/job/meeting': nobody "
               "has set it",
               treadle_group_store(&store, 1, 2, -1, 0.2, &group));
  assert_null(group);
  assert_int_equal(folder_set(&f, "treadle/job/meeting", "no call!", 8),
                   TREADLE_OK); /* of who knows whom */
  assert_fails(TREADLE_REFUSED, "group 'job': rank 0 has left 8 bytes that are nothing of treadle",
               treadle_group_store(&store, 1, 2, -1, 0.2, &group));
  assert_int_equal(folder_set(&f, "treadle/job/meeting", long_value, sizeof long_value), TREADLE_OK);
  assert_fails(TREADLE_REFUSED, "200 bytes under", treadle_group_store(&store, 1, 2, -1, 0.2, &group));
  assert_fails(TREADLE_REFUSED, "rank 2 of 2", treadle_group_store(&store, 2, 2, -1, 1, &group));
  store.job = long_job;
  assert_fails(TREADLE_REFUSED, "a job's name has 1 to 200 bytes; this one has 299",
               treadle_group_store(&store, 0, 1, -1, 1, &group));
  store = folder_store(&f, NULL);
  assert_int_equal(treadle_group_store(&store, 0, 1, -1, 5, &group), TREADLE_OK);
  treadle_group_close(group);
  store.get = NULL;
  assert_fails(TREADLE_REFUSED, "no store->get (NULL)", treadle_group_store(&store, 0, 1, -1, 1, &group));
  snprintf(f.path, sizeof f.path, "/nowhere");
  store = folder_store(&f, "job");
  assert_fails(TREADLE_SYSTEM, "the store's set of 'treadle/job/meeting': the folder is gone",
               treadle_group_store(&store, 0, 1, -1, 1, &group));
  snprintf(long_value, sizeof long_value, "rm -r %s", path);
  assert_int_equal(system(long_value), 0);
}

/* ---- Watchers ---- */

typedef struct patience {
  int most; /* how often it may be asked */
  int asked;
} patience;

static bool wait_on(void *context, const char *doing, int64_t done, int64_t total) {
  patience *p = context;
  p->asked++;
  return *doing && done == 0 && total == 0 && p->asked <= p->most;
}

/* Rank 1 gives up, where it waits; rank 0 comes late, and hears of it. */
static int give_up(const char *name, int rank, int size, void *context) {
  treadle_group *group;
  patience p = {0};
  (void)context;
  RANK_OK(treadle_group_open(name, rank, size, 20, &group));
  if (rank == 1) {
    p.most = 4;
    treadle_thread_watch(wait_on, &p);
    RANK_FAILS(TREADLE_CANCELLED, "cancelled: barrier", treadle_group_barrier(group));
    RANK_TRUE(p.asked == 5);
    treadle_thread_watch(NULL, NULL);
  } else {
    nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
    RANK_OK(treadle_group_barrier(group)); /* rank 1 was there */
    RANK_FAILS(TREADLE_PEER, "rank 1 failed: cancelled: barrier", treadle_group_barrier(group));
  }
  treadle_group_close(group);
  return 0;
}

static void test_watch(void **state) {
  int results[2];
  (void)state;
  ranks_as_processes(2, 20, give_up, NULL, results);
  assert_int_equal(results[0], 0);
  assert_int_equal(results[1], 0);
}

/* Nobody else comes: rank 0 that waits for others, and another that waits for rank 0. */
static void test_watch_meeting(void **state) {
  (void)state;
  for (int rank = 0; rank < 2; rank++) {
    treadle_group *group;
    patience p = {.most = 4};
    char name[32];
    snprintf(name, sizeof name, "alone%d", (int)getpid());
    treadle_thread_watch(wait_on, &p);
    assert_fails(TREADLE_CANCELLED, "cancelled: ", treadle_group_open(name, rank, 2, 20, &group));
    assert_int_equal(p.asked, 5);
    treadle_thread_watch(NULL, NULL);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_meet), cmocka_unit_test(test_refused),
                                     cmocka_unit_test(test_watch), cmocka_unit_test(test_watch_meeting)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
