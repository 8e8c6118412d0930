/* Boards among processes: parts, sets, counters, ranks that die, leave or do not come, sizes. No test may hang: each has a limit far
 * below the time limits of the group. */
#include "base/clock.h"
#include "group/board.h"
#include "group/boards.h"
#include "test.h"

#include <signal.h>

enum { MOST = 8, VICTIM = 2 };

/* ---- All well ---- */

typedef struct work {
  ranks_body body;
  void *context;
} work;

/* Lines of /proc/self/maps that are memory of pools. */
static int count_mappings(void) {
  char line[512];
  int count = 0;
  FILE *file = fopen("/proc/self/maps", "re");
  while (file && fgets(line, sizeof line, file)) count += strstr(line, "memfd:") != NULL;
  if (file) fclose(file);
  return count;
}

static int do_work(const char *name, int rank, int size, void *context) {
  treadle_group *group;
  const work *w = context;
  RANK_OK(treadle_group_open(name, rank, size, 30, &group));
  int before = count_mappings();
  if (w->body(group, w->context)) return 1;
  RANK_TRUE(count_mappings() == before);
  treadle_group_close(group);
  return 0;
}

static void run(int size, ranks_body body, void *context) {
  int results[MOST];
  ranks_as_processes(size, 60, do_work, &(work){body, context}, results);
  for (int rank = 0; rank < size; rank++) assert_int_equal(results[rank], 0);
}

static void test_work(void **state) {
  (void)state;
  for (int size = 1; size <= MOST; size += size < 4 ? 1 : 4) {
    run(size, boards_write, NULL);
    run(size, boards_count, NULL);
  }
}

static void test_sets(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= test_seeds(12); seed++) run(1 + (int)(seed % MOST), boards_meet, &seed);
}

/* A process that has no peers. */
static void test_alone(void **state) {
  treadle_group *group;
  uint64_t seed = 7;
  (void)state;
  assert_ok(treadle_group_self(&group));
  assert_int_equal(boards_write(group, NULL), 0);
  assert_int_equal(boards_count(group, NULL), 0);
  assert_int_equal(boards_meet(group, &seed), 0);
  treadle_group_close(group);
}

/* ---- Ranks that go ---- */

typedef enum going { DIES, LEAVES, FAILS } going;

/* Rank 2 goes in the middle of meetings. Ranks 2 and 3 are a set, 0 and 1 wait for a counter of the next rank. */
static int one_goes(const char *name, int rank, int size, void *context) {
  static const char *const words[] = {"has died", "rank 2 has left the group", "rank two is tired"};
  const going *how = context;
  treadle_group *group;
  treadle_board *board;
  treadle_board_set *pair;
  RANK_OK(treadle_group_open(name, rank, size, 30, &group));
  int before = count_mappings();
  RANK_OK(treadle_board_create(group, 3 << 20, &board));
  RANK_OK(treadle_board_split(board, rank / 2, &pair));
  for (int i = 0; i < 10; i++) RANK_OK(treadle_board_meet(pair, "a pair"));
  RANK_OK(treadle_group_barrier(group)); /* or the others may still be in their meetings when one goes */
  if (rank == VICTIM) {
    treadle_fail(TREADLE_NO_MEMORY, "rank two is tired");
    if (*how == DIES) raise(SIGKILL);
    if (*how == FAILS) treadle_group_fail(group);
    treadle_board_destroy(board);
    treadle_group_close(group);
    return 0;
  }
  double begin = treadle_clock_seconds();
  if (rank < VICTIM)
    RANK_FAILS(TREADLE_PEER, words[*how], treadle_board_wait(board, rank + 1, 3, 1, "a word"));
  else
    RANK_FAILS(TREADLE_PEER, words[*how], treadle_board_meet(pair, "a pair"));
  RANK_TRUE(strstr(treadle_error_message(), "rank 2"));
  RANK_TRUE(treadle_clock_seconds() - begin < 10);
  RANK_FAILS(TREADLE_PEER, words[*how], treadle_board_meet(pair, "a pair")); /* for good */
  treadle_board_destroy(board);
  RANK_TRUE(count_mappings() == before);
  treadle_group_close(group);
  return 0;
}

static void test_going(void **state) {
  int results[4];
  (void)state;
  for (going how = DIES; how <= FAILS; how++) {
    ranks_as_processes(4, 20, one_goes, &how, results);
    for (int rank = 0; rank < 4; rank++)
      assert_int_equal(results[rank], rank == VICTIM && how == DIES ? 128 + SIGKILL : 0);
  }
}

static int dies_in_create(const char *name, int rank, int size, void *context) {
  treadle_group *group;
  treadle_board *board = NULL;
  (void)context;
  RANK_OK(treadle_group_open(name, rank, size, 30, &group));
  if (rank == VICTIM) raise(SIGKILL);
  RANK_FAILS(TREADLE_PEER, "", treadle_board_create(group, 4096, &board));
  RANK_TRUE(!board);
  treadle_group_close(group);
  return 0;
}

static void test_death_in_create(void **state) {
  int results[4];
  (void)state;
  ranks_as_processes(4, 20, dies_in_create, NULL, results);
  for (int rank = 0; rank < 4; rank++) assert_int_equal(results[rank], rank == VICTIM ? 128 + SIGKILL : 0);
}

/* Rank 0 waits for rank 1, which waits for rank 2, which does nothing: the message says so. */
static int one_is_late(const char *name, int rank, int size, void *context) {
  treadle_group *group;
  treadle_board *board;
  treadle_board_set *pair;
  (void)context;
  RANK_OK(treadle_group_open(name, rank, size, 30, &group));
  RANK_OK(treadle_board_create(group, 0, &board));
  RANK_OK(treadle_board_split(board, rank < 2 ? 0 : 1, &pair));
  if (rank == 0) group->timeout_seconds = 0.5;
  if (rank == 0)
    RANK_FAILS(TREADLE_TIMEOUT, "sum of layer 3: waited 0.5 s for rank 1, which waits for rank 2",
               treadle_board_meet(pair, "sum of layer 3"));
  if (rank == 1) RANK_FAILS(TREADLE_PEER, "sum of layer 3", treadle_board_wait(board, 2, 0, 1, "rows"));
  group->timeout_seconds = 30;
  RANK_OK(treadle_group_barrier(group));
  treadle_board_destroy(board);
  treadle_group_close(group);
  return 0;
}

static void test_time_limit(void **state) {
  int results[3];
  (void)state;
  ranks_as_processes(3, 20, one_is_late, NULL, results);
  for (int rank = 0; rank < 3; rank++) assert_int_equal(results[rank], 0);
}

static bool wants_no_more(void *context, const char *doing, int64_t done, int64_t total) {
  (void)doing;
  (void)done;
  (void)total;
  return ++*(int *)context < 3;
}

/* Who watches a thread ends its waits: rank 1, which waits for rank 0, is told. */
static int is_watched(const char *name, int rank, int size, void *context) {
  treadle_group *group;
  treadle_board *board;
  treadle_board_set *all;
  int asked = 0;
  (void)context;
  RANK_OK(treadle_group_open(name, rank, size, 30, &group));
  RANK_OK(treadle_board_create(group, 0, &board));
  RANK_OK(treadle_board_split(board, 0, &all));
  if (rank == 0) {
    treadle_thread_watch(wants_no_more, &asked);
    RANK_FAILS(TREADLE_CANCELLED, "cancelled: a sum", treadle_board_meet(all, "a sum"));
    treadle_thread_watch(NULL, NULL);
    RANK_TRUE(asked == 3);
  } else
    RANK_FAILS(TREADLE_PEER, "rank 0 failed: cancelled: a sum",
               treadle_board_wait(board, 0, 0, 1, "a word"));
  RANK_OK(treadle_group_barrier(group));
  treadle_board_destroy(board);
  treadle_group_close(group);
  return 0;
}

static void test_watched(void **state) {
  int results[2];
  (void)state;
  ranks_as_processes(2, 20, is_watched, NULL, results);
  for (int rank = 0; rank < 2; rank++) assert_int_equal(results[rank], 0);
}

/* ---- Sizes ---- */

static int ask_for_much(treadle_group *group, void *context) {
  treadle_board *board = NULL;
  bool me = group->rank == group->size - 1;
  (void)context;
  RANK_FAILS(TREADLE_REFUSED, "board: ", treadle_board_create(group, me ? UINT64_MAX : 64, &board));
  RANK_FAILS(TREADLE_REFUSED, "board: ", treadle_board_create(group, me ? UINT64_C(1) << 60 : 0, &board));
  RANK_FAILS(TREADLE_NO_MEMORY, "board of all ranks",
             treadle_board_create(group, me ? UINT64_C(1) << 50 : 0, &board));
  RANK_TRUE(!board);
  return boards_write(group, NULL);
}

static void test_sizes(void **state) {
  (void)state;
  run(1, ask_for_much, NULL);
  run(3, ask_for_much, NULL);
  assert_true(treadle_board_memory(0) > 0 && treadle_board_memory(0) % 4096 == 0);
  assert_true(treadle_board_memory(100000) >= 100000 + 4096);
  assert_true(treadle_board_memory(5 << 20) > 5 << 20 && treadle_board_memory(5 << 20) <= 8 << 20);
}

static int split_often(treadle_group *group, void *context) {
  treadle_board *board;
  treadle_board_set *set;
  (void)context;
  RANK_OK(treadle_board_create(group, 0, &board));
  for (int i = 0; i < TREADLE_BOARD_SPLITS; i++) {
    RANK_OK(treadle_board_split(board, i % 2 ? 0 : group->rank, &set));
    RANK_OK(treadle_board_meet(set, "a set"));
  }
  RANK_FAILS(TREADLE_REFUSED, "32 splits are the most", treadle_board_split(board, 0, &set));
  RANK_TRUE(!set);
  treadle_board_destroy(board);
  return 0;
}

static void test_splits(void **state) {
  (void)state;
  run(2, split_often, NULL);
}

/* ---- Memory that is out ---- */

static treadle_status make_all(void) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = NULL;
  treadle_board *board = NULL;
  treadle_board_set *set;
  TRY(treadle_group_self(&group));
  TRY(treadle_board_create(group, 100, &board));
  TRY(treadle_board_split(board, 0, &set));
out:
  treadle_board_destroy(board);
  treadle_group_close(group);
  return status;
}

static void test_allocations(void **state) {
  (void)state;
  int before = count_mappings();
  TEST_EACH_ALLOCATION(make_all());
  assert_int_equal(count_mappings(), before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_work),
      cmocka_unit_test(test_sets),
      cmocka_unit_test(test_alone),
      cmocka_unit_test(test_going),
      cmocka_unit_test(test_death_in_create),
      cmocka_unit_test(test_time_limit),
      cmocka_unit_test(test_watched),
      cmocka_unit_test(test_sizes),
      cmocka_unit_test(test_splits),
      cmocka_unit_test(test_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
