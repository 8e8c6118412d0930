/* Boards among threads: parts, sets that meet side by side, counters, ranks that fail or do not come. Run under TSan too.
 * ctest: label=threads */
#include "base/clock.h"
#include "test.h"
#include "group/board.h"
#include "group/boards.h"

enum { MOST = 8 };

/* ---- All well ---- */

static void test_parts(void **state) {
  (void)state;
  for (int size = 1; size <= MOST; size += size < 4 ? 1 : 4)
    ranks_as_threads(size, 30, 5, boards_write, NULL);
}

static void test_sets(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= test_seeds(40); seed++)
    ranks_as_threads(1 + (int)(seed % MOST), 30, seed % 3 ? seed : 0, boards_meet, &seed);
}

static void test_counters(void **state) {
  (void)state;
  for (int size = 1; size <= MOST; size += size < 4 ? 1 : 4) {
    ranks_as_threads(size, 30, 0, boards_count, NULL);
    ranks_as_threads(size, 30, 9, boards_count, NULL);
  }
}

/* ---- Ranks that fail or do not come ---- */

/* Rank 2 gives up. Those that meet with it are told, and so are those that only wait for one of them; the group goes on, and can
 * have another board. */
static int one_gives_up(treadle_group *group, void *context) {
  treadle_board *board;
  treadle_board_set *pair, *all;
  (void)context;
  RANK_OK(treadle_board_create(group, 64, &board));
  RANK_OK(treadle_board_split(board, group->rank / 2, &pair));
  RANK_OK(treadle_board_split(board, 0, &all));
  RANK_OK(treadle_board_meet(all, "all"));
  if (group->rank == 2) {
    treadle_fail(TREADLE_NO_MEMORY, "rank two is tired");
    treadle_board_fail(board);
    treadle_fail(TREADLE_NO_MEMORY, "of no interest");
    treadle_board_fail(board);
  } else if (group->rank == 0) {
    RANK_FAILS(TREADLE_PEER, "rank two is tired", treadle_board_wait(board, 1, 5, 1, "a word of rank 1"));
  } else {
    RANK_FAILS(TREADLE_PEER, "rank two is tired",
               group->rank == 3 ? treadle_board_meet(pair, "pair") : treadle_board_meet(all, "all again"));
  }
  RANK_FAILS(TREADLE_PEER, "tired", treadle_board_meet(pair, "pair")); /* for good */
  RANK_FAILS(TREADLE_PEER, "tired", treadle_board_wait(board, group->rank, 5, 0, "nothing"));
  RANK_OK(treadle_group_barrier(group));
  treadle_board_destroy(board);
  return boards_write(group, NULL);
}

static void test_failure_is_told(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 20; seed++) ranks_as_threads(4, 30, seed, one_gives_up, NULL);
}

static int one_is_missing(treadle_group *group, void *context) {
  treadle_board *board;
  treadle_board_set *all;
  (void)context;
  RANK_OK(treadle_board_create(group, 64, &board));
  RANK_OK(treadle_board_split(board, 0, &all));
  double begin = treadle_clock_seconds();
  if (group->rank == 0) group->timeout_seconds = 0.2;
  if (group->rank == 0)
    RANK_FAILS(TREADLE_TIMEOUT, "logits: waited ", treadle_board_meet(all, "logits"));
  RANK_TRUE(treadle_clock_seconds() - begin < 5);
  group->timeout_seconds = 30;
  RANK_OK(treadle_group_barrier(group));
  RANK_FAILS(TREADLE_PEER, "rank 0 failed: logits: waited ",
             treadle_board_meet(all, "late"));
  treadle_board_destroy(board);
  return 0;
}

static void test_time_limit(void **state) {
  (void)state;
  ranks_as_threads(2, 30, 0, one_is_missing, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_parts),      cmocka_unit_test(test_sets),
      cmocka_unit_test(test_counters),   cmocka_unit_test(test_failure_is_told),
      cmocka_unit_test(test_time_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
