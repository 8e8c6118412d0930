/* Ranks that find out who is on which node: rules, nodes of network namespaces, what older jobs have left, ranks that do not come or differ, stores that
 * lose keys. */
#include "group/ranks.h"
#include "meet/folder_store.h"
#include "meet/store_place.h"
#include "test.h"
#include "treadle_tools.h"

#include "base/clock.h"
#include "group/group.h"
#include "meet/nodes_meet.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void nap(double seconds) {
  nanosleep(&(struct timespec){.tv_sec = (time_t)seconds,
                               .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)},
            NULL);
}

/* ---- Rules ---- */

static treadle_description described(int rank, int size, int machine) {
  treadle_description d = {
      .nonce = (uint64_t)rank + 1, .rank = rank, .size = size, .number = -1, .user = 7};
  d.node = (treadle_node){.network = 1, .processes = 2};
  d.node.boot[3] = (uint8_t)machine;
  snprintf(d.host, sizeof d.host, "10.0.0.%d", machine);
  return d;
}

static void test_check(void **state) {
  const treadle_description first = described(0, 4, 1);
  treadle_description d = described(2, 4, 1);
  (void)state;
  assert_ok(treadle_meeting_check(&first, &d, 2));
  assert_refused("what should be of rank 3 is of rank 2", treadle_meeting_check(&first, &d, 3));
  d.size = 8;
  assert_refused("rank 2 has a number of ranks of 8, and rank 0 has 4",
                 treadle_meeting_check(&first, &d, 2));
  d = described(2, 4, 1);
  d.number = 3;
  assert_refused("rank 2 gives its node (3), and rank 0 lets it be found",
                 treadle_meeting_check(&first, &d, 2));
  d.number = -1;
  d.nodes = 2;
  assert_refused("rank 2 gives the number of nodes (2), and rank 0 does not",
                 treadle_meeting_check(&first, &d, 2));
  treadle_description other = first;
  other.nodes = 4;
  assert_refused("rank 2 has a number of nodes of 2, and rank 0 has 4",
                 treadle_meeting_check(&other, &d, 2));
  other = first;
  other.number = 9;
  d.nodes = 0;
  assert_refused("rank 0 gives its node (9), and rank 2 lets it be found",
                 treadle_meeting_check(&other, &d, 2));
  d.status = TREADLE_SYSTEM;
  snprintf(d.text, sizeof d.text, "no luck");
  assert_fails(TREADLE_SYSTEM, "rank 2: no luck", treadle_meeting_check(&first, &d, 2));
}

static void test_divide(void **state) {
  static const int machines[] = {3, 1, 3, 2, 1, 3}, wanted[] = {0, 1, 0, 3, 1, 0};
  enum { RANKS = TEST_COUNT(machines) };
  treadle_description all[RANKS];
  int32_t of[RANKS];
  (void)state;
  for (int rank = 0; rank < RANKS; rank++) all[rank] = described(rank, RANKS, machines[rank]);
  assert_ok(treadle_meeting_divide(all, RANKS, of));
  for (int rank = 0; rank < RANKS; rank++) assert_int_equal(of[rank], wanted[rank]);
  all[5].node.processes = 8; /* another container of the machine */
  assert_ok(treadle_meeting_divide(all, RANKS, of));
  assert_int_equal(of[5], 5);
  all[5].node.processes = 2;
  all[5].node.network = 8;
  assert_ok(treadle_meeting_divide(all, RANKS, of));
  assert_int_equal(of[5], 5);
  all[5].node.network = 1;
  all[5].user = 8;
  assert_refused("ranks 0 and 5 are on one node, and belong to users 7 and 8",
                 treadle_meeting_divide(all, RANKS, of));
  all[5].user = 7;
  for (int rank = 0; rank < RANKS; rank++) all[rank].nodes = 2;
  assert_refused("ranks 0 (10.0.0.3) and 1 (10.0.0.1) should be on one node, and are on two machines",
                 treadle_meeting_divide(all, RANKS, of));
  for (int rank = 0; rank < RANKS; rank++) all[rank].nodes = RANKS;
  assert_ok(treadle_meeting_divide(all, RANKS, of));
  for (int rank = 0; rank < RANKS; rank++) assert_int_equal(of[rank], rank);
  for (int rank = 0; rank < RANKS; rank++) all[rank].nodes = 0;
  static const int numbers[] = {4, 9, 4, 0, 9, 8}, apart[] = {0, 1, 0, 3, 1, 5};
  for (int rank = 0; rank < RANKS; rank++) all[rank].number = numbers[rank];
  assert_ok(treadle_meeting_divide(all, RANKS, of));
  for (int rank = 0; rank < RANKS; rank++) assert_int_equal(of[rank], apart[rank]);
  all[5].number = 0;
  assert_refused("ranks 3 (10.0.0.2) and 5 (10.0.0.3) should be on one node",
                 treadle_meeting_divide(all, RANKS, of));
}

/* ---- Meeting ---- */

enum { MOST = 6 };

typedef struct story {
  const char *path; /* of the folder */
  treadle_status status;
  const char *said[MOST]; /* what each rank hears; NULL: as the one before it */
  double limit;
  int missing;       /* a rank that does not come; -1: all do */
  int sizes[MOST];   /* 0: as they are */
  int numbers[MOST]; /* one more than that of its node; 0: to be found */
  int nodes[MOST];   /* as in treadle_meeting_options */
  int ranks[MOST];   /* one more than who it says that it is; 0: who it is */
  const char *hosts[MOST];
  bool apart[MOST];  /* in a network namespace of its own */
  double late[MOST]; /* seconds that it comes later */
  const char *lose;  /* of the store */
  double store_late;
  int count;    /* nodes that are found, */
  int of[MOST]; /* and which */
} story;

static treadle_status meet(const story *s, folder *f, int rank, int size, treadle_meeting *meeting) {
  const treadle_store store = folder_store(f, "job");
  snprintf(f->path, sizeof f->path, "%s", s->path);
  f->lose = s->lose;
  f->late = s->store_late;
  const treadle_meeting_options options = {.rank = s->ranks[rank] ? s->ranks[rank] - 1 : rank,
                                           .size = s->sizes[rank] ? s->sizes[rank] : size,
                                           .number = s->numbers[rank] - 1,
                                           .nodes = s->nodes[rank],
                                           .host = s->hosts[rank],
                                           .deadline = treadle_clock_seconds() + s->limit};
  return treadle_nodes_meet(&store, &options, meeting);
}

static int play(const char *name, int rank, int size, void *context) {
  const story *s = context;
  folder f = {0};
  treadle_meeting meeting;
  (void)name;
  if (rank == s->missing) return 0;
  if (s->apart[rank]) RANK_TRUE(unshare(CLONE_NEWNET) == 0);
  nap(s->late[rank]);
  double begin = treadle_clock_seconds();
  int said = rank;
  while (said > 0 && !s->said[said]) said--;
  treadle_status wanted = s->said[said] && *s->said[said] ? s->status : TREADLE_OK;
  treadle_status status = meet(s, &f, rank, size, &meeting);
  double took = treadle_clock_seconds() - begin;
  if (took > s->limit + 1) fprintf(stderr, "rank %d: %.3f s\n", rank, took);
  RANK_TRUE(took < s->limit + 1);
  if (wanted != TREADLE_OK) {
    RANK_FAILS(wanted, s->said[said], status);
    RANK_TRUE(!meeting.hosts && !meeting.nodes.of);
    return 0;
  }
  RANK_OK(status);
  if (s->sizes[rank]) size = s->sizes[rank];
  RANK_TRUE(meeting.nodes.ranks == size && meeting.nodes.count == (s->count ? s->count : 1));
  for (int peer = 0; peer < size; peer++) {
    RANK_TRUE(meeting.nodes.of[peer] == s->of[peer]);
    RANK_TRUE(*meeting.hosts[peer]);
    if (s->hosts[peer]) RANK_TRUE(strcmp(meeting.hosts[peer], s->hosts[peer]) == 0);
  }
  treadle_meeting_release(&meeting);
  return 0;
}

/* In a new folder, or one that has something from before. */
static void run(story s, int size, const char *path) {
  int results[MOST];
  s.path = path ? path : test_folder();
  ranks_as_processes(size, 20, play, &s, results);
  for (int rank = 0; rank < size; rank++) assert_int_equal(results[rank], 0);
  if (!path) test_remove(s.path);
}

static void test_meet(void **state) {
  (void)state;
  run((story){.limit = 10, .missing = -1}, 1, NULL);
  run((story){.limit = 10, .missing = -1}, 2, NULL);
  run((story){.limit = 10, .missing = -1, .late = {0.3}}, 6, NULL);
  run((story){.limit = 10, .missing = -1, .hosts = {"10.0.0.1", "fe80::1%eth0", "1.2.3.4"}}, 3, NULL);
  run((story){.limit = 10, .missing = -1, .nodes = {2, 2, 2, 2}, .count = 2, .of = {0, 0, 1, 1}}, 4, NULL);
  run((story){.limit = 10, .missing = -1, .numbers = {9, 4, 9, 4}, .count = 2, .of = {0, 1, 0, 1}}, 4,
      NULL);
  run((story){.limit = 10, .missing = -1, .store_late = 0.1}, 3, NULL);
}

/* Needs the right to make network namespaces. */
static void test_apart(void **state) {
  (void)state;
  pid_t child = fork();
  if (child == 0) _exit(unshare(CLONE_NEWNET) == 0 ? 0 : 1);
  int how;
  assert_int_equal(waitpid(child, &how, 0), child);
  if (how != 0) skip();
  run((story){.limit = 10, .missing = -1, .apart = {[2] = true}, .count = 2, .of = {0, 0, 1, 0}}, 4, NULL);
  run((story){.limit = 10,
              .missing = -1,
              .apart = {[2] = true},
              .numbers = {1, 1, 2, 2},
              .status = TREADLE_REFUSED,
              .said = {"ranks 2 ("}},
      4, NULL);
}

/* Four older jobs: one that has met, one that has failed, one of which a number alone is there, one of another treadle. */
static void test_older(void **state) {
  char key[64];
  char path[64];
  folder f = {0};
  (void)state;
  snprintf(path, sizeof path, "%s", test_folder());
  snprintf(f.path, sizeof f.path, "%s", path);
  const story good = {.limit = 10, .missing = -1, .late = {0.4}};
  run(good, 3, path);
  run(good, 3, path);
  run((story){.limit = 10,
              .missing = -1,
              .late = {0.4},
              .sizes = {[1] = 4},
              .status = TREADLE_REFUSED,
              .said = {"rank 1 has a number of ranks of 4, and rank 0 has 3"}},
      3, path);
  run(good, 3, path);
  treadle_meeting_call call = {.nonce = 77};
  for (int version = 1; version < 3; version++) {
    treadle_meeting_seal(&call, TREADLE_MEETING_CALL, sizeof call);
    call.head.version = (uint32_t)version;
    assert_ok(folder_set(&f, "treadle/job/meeting", &call, sizeof call));
    run(good, 3, path);
  }
  call.nonce = 0;
  treadle_meeting_seal(&call, TREADLE_MEETING_CALL, sizeof call);
  assert_ok(folder_set(&f, "treadle/job/meeting", &call, sizeof call));
  run(good, 3, path);
  call.nonce = 78; /* with a table that is none */
  treadle_meeting_seal(&call, TREADLE_MEETING_CALL, sizeof call);
  assert_ok(folder_set(&f, "treadle/job/meeting", &call, sizeof call));
  snprintf(key, sizeof key, "treadle/job/%016x/table", 78);
  assert_ok(folder_set(&f, key, "no table", 8));
  run(good, 3, path);
  /* and nobody comes */
  run((story){.limit = 0.5,
              .missing = 0,
              .status = TREADLE_TIMEOUT,
              .said = {"what rank 0 has left is of 3 ranks"}},
      3, path);
  test_remove(path);
}

static void test_missing(void **state) {
  (void)state;
  for (int late = 0; late < 2; late++) {
    const double slow = late ? 0.05 : 0;
    run((story){.limit = 0.6,
                .missing = 2,
                .store_late = slow,
                .status = TREADLE_TIMEOUT,
                .said = {"group 'job': rank 2 did not come in time"}},
        4, NULL);
    run((story){.limit = 0.6,
                .missing = 0,
                .store_late = slow,
                .status = TREADLE_TIMEOUT,
                .said = {"group 'job': rank 0 did not come in time"}},
        3, NULL);
  }
  run((story){.limit = 1, /* who comes first has no more time when the last one comes */
              .missing = 2,
              .late = {[0] = 0.8},
              .status = TREADLE_TIMEOUT,
              .said = {"group 'job': rank 2 did not come in time"}},
      4, NULL);
}

static void test_refused(void **state) {
  char long_host[70] = "";
  (void)state;
  memset(long_host, '1', sizeof long_host - 1);
  const story all = {.limit = 3, .missing = -1, .status = TREADLE_REFUSED};
  story s = all;
  s.sizes[1] = 2;
  s.said[0] = "rank 1 has a number of ranks of 2, and rank 0 has 3";
  run(s, 3, NULL);
  s = all;
  s.nodes[2] = 3;
  s.said[0] = "rank 2 gives the number of nodes (3), and rank 0 does not";
  run(s, 3, NULL);
  s = all;
  s.numbers[0] = 5;
  s.said[0] = "rank 0 gives its node (4), and rank 1 lets it be found";
  run(s, 3, NULL);
  s = all;
  s.nodes[0] = s.nodes[1] = s.nodes[2] = 2;
  s.said[0] = "rank 0: nodes: 3 ranks cannot be divided evenly among 2 nodes";
  run(s, 3, NULL);
  s = all;
  s.numbers[1] = -4;
  s.said[0] = "rank 1: group: node -5 of 0; a node has a number from 0";
  run(s, 3, NULL);
  s = all;
  s.hosts[2] = long_host;
  s.said[0] = "rank 2: '1111";
  run(s, 3, NULL);
  s = all;
  s.hosts[2] = "an address";
  s.said[0] = "rank 2: 'an address' is not an address of a machine as numbers";
  run(s, 3, NULL);
}

/* Two processes are rank 1: the first goes on. */
static void test_twice(void **state) {
  (void)state;
  run((story){.limit = 1,
              .missing = -1,
              .sizes = {2, 2, 2},
              .ranks = {[2] = 2},
              .late = {[2] = 0.4},
              .status = TREADLE_TIMEOUT,
              .said = {"", "",
                       "what rank 0 has left is of 2 ranks, not of this process: of an older job, or "
                       "another process is rank 1, too"}},
      3, NULL);
}

static void test_lost(void **state) {
  (void)state;
  run((story){.limit = 0.6,
              .missing = -1,
              .lose = "/meeting",
              .status = TREADLE_TIMEOUT,
              .said = {"rank 1, 2 did not come in time", "rank 0 did not come in time"}},
      3, NULL);
  run((story){.limit = 0.6,
              .missing = -1,
              .lose = "/2",
              .status = TREADLE_TIMEOUT,
              .said = {"rank 2 did not come in time"}},
      4, NULL);
  run((story){.limit = 0.6,
              .missing = -1,
              .lose = "/table",
              .status = TREADLE_TIMEOUT,
              .said = {"", "rank 0 left no table in time"}},
      4, NULL);
}

/* Rank 1 has another treadle: of both sides. */
static int other_treadle(const char *name, int rank, int size, void *context) {
  const story *s = context;
  folder f = {0};
  treadle_meeting meeting;
  char key[64];
  (void)name;
  if (rank == 0) {
    RANK_FAILS(TREADLE_REFUSED, "rank 1 has treadle 99999 (meetings of version 1); this process has",
               meet(s, &f, 0, size, &meeting));
    return 0;
  }
  treadle_meeting_call call;
  treadle_description d = described(1, 2, 1);
  size_t bytes;
  snprintf(f.path, sizeof f.path, "%s", s->path);
  RANK_OK(folder_get(&f, "treadle/job/meeting", 5, &call, sizeof call, &bytes));
  treadle_meeting_seal(&d, TREADLE_MEETING_RANK, sizeof d);
  d.head.library = 99999;
  snprintf(key, sizeof key, "treadle/job/%016llx/1", (unsigned long long)call.nonce);
  RANK_OK(folder_set(&f, key, &d, sizeof d));
  return 0;
}

static int newer_treadle(const char *name, int rank, int size, void *context) {
  const story *s = context;
  folder f = {0};
  treadle_meeting meeting;
  treadle_description d;
  size_t bytes;
  char key[64];
  (void)name;
  if (rank == 1) {
    char words[80];
    snprintf(words, sizeof words, "group 'job': rank 0 has treadle %d (meetings of version 9)",
             TREADLE_VERSION_NUMBER);
    RANK_FAILS(TREADLE_REFUSED, words, meet(s, &f, 1, size, &meeting));
    return 0;
  }
  treadle_meeting_call call = {.nonce = 5};
  treadle_meeting_seal(&call, TREADLE_MEETING_CALL, sizeof call);
  call.head.version = 9;
  snprintf(f.path, sizeof f.path, "%s", s->path);
  RANK_OK(folder_set(&f, "treadle/job/meeting", &call, sizeof call));
  snprintf(key, sizeof key, "treadle/job/%016x/1", 5);
  RANK_OK(folder_get(&f, key, 5, &d, sizeof d, &bytes)); /* so it can say so, too */
  return 0;
}

static void test_treadles(void **state) {
  int results[2];
  char path[64];
  (void)state;
  snprintf(path, sizeof path, "%s", test_folder());
  story s = {.path = path, .limit = 3, .missing = -1};
  ranks_as_processes(2, 10, other_treadle, &s, results);
  assert_int_equal(results[0], 0);
  assert_int_equal(results[1], 0);
  s.limit = 0.5;
  ranks_as_processes(2, 10, newer_treadle, &s, results);
  assert_int_equal(results[0], 0);
  assert_int_equal(results[1], 0);
  test_remove(path);
}

/* ---- One rank, and a group by an address ---- */

static treadle_status alone(folder *f) {
  treadle_meeting meeting;
  story s = {.path = f->path, .limit = 1};
  char path[64];
  snprintf(path, sizeof path, "%s", f->path);
  s.path = path;
  treadle_status status = meet(&s, f, 0, 1, &meeting);
  treadle_meeting_release(&meeting);
  return status;
}

static void test_memory(void **state) {
  folder f = {0};
  (void)state;
  snprintf(f.path, sizeof f.path, "%s", test_folder());
  TEST_EACH_ALLOCATION(alone(&f));
  test_remove(f.path);
}

static int by_address(const char *name, int rank, int size, void *context) {
  const treadle_store_options options = store_options(context, rank, size, 10);
  treadle_store store = TREADLE_INIT(treadle_store);
  treadle_group *group = NULL;
  int all[4];
  (void)name;
  int files = test_open_files();
  RANK_OK(treadle_store_open(&options, &store));
  for (int way = 0; way < 2; way++) { /* neighbours, then by turns */
    RANK_OK(way == 0 ? treadle_group_nodes(&store, rank, size, 2, 10, &group)
                     : treadle_group_store(&store, rank, size, rank % 2, 10, &group));
    for (int peer = 0; peer < size; peer++)
      RANK_TRUE(treadle_group_node(group, peer) == (way == 0 ? peer / 2 : peer % 2));
    RANK_OK(treadle_group_gather(group, &rank, sizeof rank, all));
    for (int peer = 0; peer < size; peer++) RANK_TRUE(all[peer] == peer);
    RANK_OK(treadle_group_barrier(group));
    treadle_group_close(group);
    group = NULL;
  }
  RANK_OK(treadle_group_store(&store, rank, size, -1, 10, &group));
  treadle_store_close(&store); /* the group does not need it any more */
  RANK_OK(treadle_group_gather(group, &rank, sizeof rank, all));
  for (int peer = 0; peer < size; peer++) RANK_TRUE(all[peer] == peer);
  treadle_group_close(group);
  RANK_TRUE(test_open_files() == files);
  return 0;
}

static void test_group(void **state) {
  int results[4];
  (void)state;
  ranks_as_processes(4, 20, by_address, (void *)(uintptr_t)store_place(), results);
  for (int rank = 0; rank < 4; rank++) assert_int_equal(results[rank], 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_check),    cmocka_unit_test(test_divide), cmocka_unit_test(test_meet),
      cmocka_unit_test(test_apart),    cmocka_unit_test(test_older),  cmocka_unit_test(test_missing),
      cmocka_unit_test(test_refused),  cmocka_unit_test(test_twice),  cmocka_unit_test(test_lost),
      cmocka_unit_test(test_treadles), cmocka_unit_test(test_memory), cmocka_unit_test(test_group)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
