/* Groups of processes: meeting, sharing memory, and every way in which a rank or a stranger can behave
 * badly. No test may hang: each has a limit far below the time limits of the group. */
#include "group/ranks.h"
#include "memory/pool.h"
#include "test.h"

#include "base/clock.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

static void pause_ms(long ms) {
  nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void assert_results(const int *results, int size, int wanted) {
  for (int rank = 0; rank < size; rank++) assert_int_equal(results[rank], wanted);
}

/* ---- All well ---- */

static int talk(const char *name, int rank, int size, void *context) {
  treadle_group *group;
  int64_t all[16];
  (void)context;
  if (rank % 2) pause_ms(20 * rank); /* the hub may come first or last */
  RANK_OK(treadle_group_open(name, rank, size, 20, &group));
  RANK_TRUE(treadle_group_rank(group) == rank && treadle_group_size(group) == size);
  for (int64_t i = 0; i < 300; i++) {
    int64_t mine = i * 1000 + rank;
    RANK_OK(treadle_group_gather(group, &mine, sizeof mine, all));
    for (int peer = 0; peer < size; peer++) RANK_TRUE(all[peer] == i * 1000 + peer);
  }
  treadle_group_close(group);
  return 0;
}

static void test_talk(void **state) {
  int results[8];
  (void)state;
  for (int size = 1; size <= 8; size = size * 2 + 1) {
    ranks_as_processes(size, 20, talk, NULL, results);
    assert_results(results, size, 0);
  }
}

/* Each rank's pool is seen by the others as its owner sees it; a rank may have none. */
static int share(const char *name, int rank, int size, void *context) {
  treadle_group *group;
  treadle_pool *pool;
  treadle_peer_memory all[8];
  (void)context;
  RANK_OK(treadle_group_open(name, rank, size, 20, &group));
  for (int round = 0; round < 3; round++) {
    int64_t pages = (rank + round) % 4;
    RANK_OK(treadle_pool_create(pages, 4096, 1 << 20, &pool));
    if (pages > 0) memset(treadle_pool_base(pool), 10 + rank, (size_t)pages * 4096);
    RANK_OK(group->link->publish(group,
                                 &(treadle_offer){treadle_device_host(), pool, treadle_pool_base(pool),
                                                  treadle_pool_bytes(pool), true},
                                 all));
    RANK_OK(treadle_group_barrier(group));
    for (int peer = 0; peer < size; peer++) {
      size_t bytes = (size_t)((peer + round) % 4) * 4096;
      RANK_TRUE(all[peer].bytes == bytes && (all[peer].base != NULL) == (bytes > 0));
      if (bytes > 0) RANK_TRUE(((const char *)all[peer].base)[bytes - 1] == 10 + peer);
    }
    RANK_TRUE(all[rank].base == treadle_pool_base(pool));
    RANK_OK(treadle_group_barrier(group));
    group->link->withdraw(group, treadle_device_host(), all);
    treadle_pool_destroy(pool);
  }
  treadle_group_close(group);
  return 0;
}

static void test_share(void **state) {
  int results[7];
  (void)state;
  ranks_as_processes(7, 20, share, NULL, results);
  assert_results(results, 7, 0);
}

/* More ranks than processors: a barrier must not cost time slices, which of eight ranks on two processors are 12 ms. */
static int many_barriers(const char *name, int rank, int size, void *context) {
  treadle_group *group;
  double *each = context;
  (void)rank;
  RANK_OK(treadle_group_open(name, rank, size, 20, &group));
  double begin = treadle_clock_seconds();
  for (int i = 0; i < 2000; i++) RANK_OK(treadle_group_barrier(group));
  *each = (treadle_clock_seconds() - begin) / 2000;
  if (rank == 0) print_message("%d ranks: a barrier takes %.1f us\n", size, *each * 1e6);
  treadle_group_close(group);
  return *each < 0.008 ? 0 : 2;
}

static void test_barrier_speed(void **state) {
  int results[8];
  double each;
  (void)state;
  ranks_as_processes(2, 20, many_barriers, &each, results);
  assert_results(results, 2, 0);
  ranks_as_processes(8, 20, many_barriers, &each, results);
  assert_results(results, 8, 0);
}

/* ---- Ranks that go ---- */

enum { VICTIM = 2 };

static int one_dies(const char *name, int rank, int size, void *context) {
  treadle_group *group;
  const int *signal_of_death = context;
  RANK_OK(treadle_group_open(name, rank, size, 30, &group));
  RANK_OK(treadle_group_barrier(group));
  if (rank == VICTIM) {
    pause_ms(30);
    if (*signal_of_death) raise(*signal_of_death);
    treadle_group_close(group);
    return 0;
  }
  double begin = treadle_clock_seconds();
  RANK_FAILS(TREADLE_PEER, "rank 2", treadle_group_barrier(group));
  RANK_TRUE(treadle_clock_seconds() - begin < 5);
  RANK_TRUE(strstr(treadle_error_message(), *signal_of_death ? "died" : "left"));
  treadle_group_close(group);
  return 0;
}

static void test_death(void **state) {
  int results[5], how = SIGKILL;
  (void)state;
  ranks_as_processes(5, 20, one_dies, &how, results);
  for (int rank = 0; rank < 5; rank++) assert_int_equal(results[rank], rank == VICTIM ? 128 + SIGKILL : 0);
  how = 0;
  ranks_as_processes(5, 20, one_dies, &how, results);
  assert_results(results, 5, 0);
}

/* A rank that arrives and then goes does not trouble those who come later. */
static int goes_in_order(const char *name, int rank, int size, void *context) {
  treadle_group *group;
  (void)context;
  RANK_OK(treadle_group_open(name, rank, size, 30, &group));
  pause_ms(rank == 0 ? 300 : 0);
  RANK_OK(treadle_group_barrier(group));
  if (rank % 2) return 0; /* no close: died, for all that the others know */
  treadle_group_close(group);
  return 0;
}

static void test_leaving_in_order(void **state) {
  int results[4];
  (void)state;
  ranks_as_processes(4, 20, goes_in_order, NULL, results);
  assert_results(results, 4, 0);
}

static int dies_in_share(const char *name, int rank, int size, void *context) {
  treadle_group *group;
  treadle_pool *pool;
  treadle_peer_memory all[4];
  const int *victim = context;
  RANK_OK(treadle_group_open(name, rank, size, 30, &group));
  RANK_OK(treadle_pool_create(1, 4096, 4096, &pool));
  if (rank == *victim) raise(SIGKILL);
  RANK_FAILS(
      TREADLE_PEER, "",
      group->link->publish(
          group, &(treadle_offer){treadle_device_host(), pool, treadle_pool_base(pool), 4096, true}, all));
  treadle_pool_destroy(pool);
  treadle_group_close(group);
  return 0;
}

static void test_death_in_share(void **state) {
  int results[4];
  (void)state;
  for (int victim = 0; victim < 4; victim += 2) {
    ranks_as_processes(4, 20, dies_in_share, &victim, results);
    for (int rank = 0; rank < 4; rank++)
      assert_int_equal(results[rank], rank == victim ? 128 + SIGKILL : 0);
  }
}

/* ---- Meetings that fail ---- */

static int one_never_comes(const char *name, int rank, int size, void *context) {
  treadle_group *group = NULL;
  const int *missing = context;
  if (rank == *missing) return 0;
  double begin = treadle_clock_seconds();
  RANK_FAILS(TREADLE_TIMEOUT, *missing == 0 ? "rank 0 did not open" : "rank 2 did not join",
             treadle_group_open(name, rank, size, 0.5, &group));
  RANK_TRUE(!group && treadle_clock_seconds() - begin < 3);
  return 0;
}

static void test_missing(void **state) {
  int results[4];
  (void)state;
  for (int missing = 0; missing <= 2; missing += 2) {
    ranks_as_processes(4, 20, one_never_comes, &missing, results);
    assert_results(results, 4, 0);
  }
}

static int one_dies_early(const char *name, int rank, int size, void *context) {
  treadle_group *group = NULL;
  (void)context;
  if (rank == 3) pause_ms(2000); /* the meeting is open for a while */
  if (rank == VICTIM) {
    alarm(1); /* dies while it waits to be welcomed */
    signal(SIGALRM, SIG_DFL);
    (void)treadle_group_open(name, rank, size, 20, &group);
    return 3;
  }
  double begin = treadle_clock_seconds();
  treadle_status status = treadle_group_open(name, rank, size, rank == 3 ? 0.3 : 20, &group);
  RANK_TRUE(rank == 3 ? status == TREADLE_TIMEOUT : status == TREADLE_PEER);
  if (rank != 3) RANK_TRUE(strstr(treadle_error_message(), "rank 2 joined, then left or died"));
  RANK_TRUE(!group && treadle_clock_seconds() - begin < 5);
  return 0;
}

static void test_death_while_meeting(void **state) {
  int results[4];
  (void)state;
  ranks_as_processes(4, 20, one_dies_early, NULL, results);
  for (int rank = 0; rank < 4; rank++) assert_int_equal(results[rank], rank == VICTIM ? 128 + SIGALRM : 0);
}

/* ---- Strangers ---- */

enum { SILENT, GARBAGE, LONG_GARBAGE, LEAVES, WRONG_SIZE, TWICE, WRONG_RANK, OTHER_USER, STRANGER_KINDS };

static int knock(const char *name) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "treadle-%u-%s",
                        (unsigned)geteuid(), name);
  int socket_of = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  for (int i = 0; i < 200; i++) {
    if (connect(socket_of, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0)
      return socket_of;
    pause_ms(5);
  }
  return -1;
}

/* Rank `size` of the test is the stranger; the others are the group. */
static int with_stranger(const char *name, int rank, int size, void *context) {
  const int *type = context;
  treadle_group *group = NULL;
  int members = size - 1;
  if (rank < members) {
    if (rank == 1) pause_ms(400); /* the meeting stays open until the stranger was there */
    RANK_OK(treadle_group_open(name, rank, members, 20, &group));
    RANK_OK(treadle_group_barrier(group));
    treadle_group_close(group);
    return 0;
  }
  pause_ms(100);
  char junk[8192];
  memset(junk, 'x', sizeof junk);
  int stranger;
  switch (*type) {
  case WRONG_SIZE:
    RANK_FAILS(TREADLE_REFUSED, "wants a group of 7 ranks, rank 0 one of 3",
               treadle_group_open(name, 2, 7, 5, &group));
    return 0;
  case TWICE:
    RANK_FAILS(TREADLE_REFUSED, "wants to be rank 2, which process",
               treadle_group_open(name, 2, members, 5, &group));
    return 0;
  case WRONG_RANK:
    RANK_FAILS(TREADLE_REFUSED, "rank 9 of 3", treadle_group_open(name, 9, 3, 5, &group));
    return 0;
  case OTHER_USER: {
    char uid[64];
    snprintf(uid, sizeof uid, "%s", name);
    if (geteuid() != 0) return 0;
    struct sockaddr_un address = {.sun_family = AF_UNIX}; /* root's name, as another user */
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "treadle-0-%s", name);
    if (setuid(65534) != 0) return 0;
    stranger = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    RANK_TRUE(connect(stranger, (struct sockaddr *)&address,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0);
    RANK_TRUE(recv(stranger, junk, sizeof junk, 0) <= 0); /* dropped without a word */
    return 0;
  }
  default: break;
  }
  stranger = knock(name);
  RANK_TRUE(stranger >= 0);
  if (*type == GARBAGE) RANK_TRUE(send(stranger, junk, 10, MSG_NOSIGNAL) == 10);
  if (*type == LONG_GARBAGE) RANK_TRUE(send(stranger, junk, sizeof junk, MSG_NOSIGNAL) == sizeof junk);
  if (*type == LEAVES) return 0;
  if (*type == SILENT)
    pause_ms(1000);
  else
    RANK_TRUE(recv(stranger, junk, sizeof junk, 0) >= 0);
  return 0;
}

static void test_strangers(void **state) {
  int results[4];
  (void)state;
  for (int type = 0; type < STRANGER_KINDS; type++) {
    ranks_as_processes(4, 20, with_stranger, &type, results);
    for (int rank = 0; rank < 4; rank++)
      if (results[rank] != 0) fail_msg("stranger of kind %d, rank %d: %d", type, rank, results[rank]);
  }
}

/* The size is wrong on one rank: it is refused at once, the others hear why when the time is over. */
static int wrong_size(const char *name, int rank, int size, void *context) {
  treadle_group *group = NULL;
  (void)context;
  if (rank == 2)
    RANK_FAILS(TREADLE_REFUSED, "wants a group of 5 ranks", treadle_group_open(name, rank, 5, 5, &group));
  else
    RANK_FAILS(TREADLE_TIMEOUT, "wants a group of 5 ranks",
               treadle_group_open(name, rank, size, 0.5, &group));
  return 0;
}

static void test_wrong_size(void **state) {
  int results[3];
  (void)state;
  ranks_as_processes(3, 20, wrong_size, NULL, results);
  assert_results(results, 3, 0);
}

/* ---- One process ---- */

static void test_names(void **state) {
  treadle_group *group, *second;
  (void)state;
  assert_refused("letters and digits", treadle_group_open("", 0, 1, 1, &group));
  assert_refused("letters and digits", treadle_group_open("a/b", 0, 1, 1, &group));
  assert_refused("letters and digits",
                 treadle_group_open("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                    0, 1, 1, &group));
  assert_refused("rank 1 of 1", treadle_group_open("x", 1, 1, 1, &group));
  assert_refused("rank 0 of 0", treadle_group_open("x", 0, 0, 1, &group));
  assert_refused("1 to 1024", treadle_group_open("x", 0, 5000, 1, &group));
  int before = test_open_files();
  const char *name = ranks_name();
  assert_ok(treadle_group_open(name, 0, 1, 1, &group));
  assert_ok(treadle_group_open(name, 0, 1, 1, &second)); /* a name is free again once all have met */
  treadle_group_close(group);
  treadle_group_close(second);
  assert_int_equal(test_open_files(), before);
}

static int hold_name(const char *name, int rank, int size, void *context) {
  treadle_group *group;
  (void)context, (void)size;
  if (rank == 0)
    RANK_FAILS(TREADLE_TIMEOUT, "rank 1 did not join", treadle_group_open(name, 0, 2, 1, &group));
  else if (rank == 1) {
    pause_ms(300);
    RANK_FAILS(TREADLE_REFUSED, "in use", treadle_group_open(name, 0, 2, 5, &group));
  }
  return 0;
}

static void test_name_in_use(void **state) {
  int results[2];
  (void)state;
  ranks_as_processes(2, 20, hold_name, NULL, results);
  assert_results(results, 2, 0);
}

static treadle_status open_alone(void) {
  treadle_group *group = NULL;
  treadle_status status = treadle_group_open(ranks_name(), 0, 1, 5, &group);
  if (status == TREADLE_OK) treadle_group_close(group);
  return status;
}

static void test_allocations(void **state) {
  (void)state;
  int before = test_open_files();
  TEST_EACH_ALLOCATION(open_alone());
  assert_int_equal(test_open_files(), before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_talk),
      cmocka_unit_test(test_share),
      cmocka_unit_test(test_barrier_speed),
      cmocka_unit_test(test_death),
      cmocka_unit_test(test_leaving_in_order),
      cmocka_unit_test(test_death_in_share),
      cmocka_unit_test(test_missing),
      cmocka_unit_test(test_death_while_meeting),
      cmocka_unit_test(test_strangers),
      cmocka_unit_test(test_wrong_size),
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_name_in_use),
      cmocka_unit_test(test_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
