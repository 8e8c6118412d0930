/* Boards among threads: parts, sets that meet side by side, counters, ranks that fail or do not come.
 * Run under TSan too.  ctest: label=threads */
#include "test.h"
#include "transport/board.h"
#include "transport/ranks.h"

#include "base/clock.h"
#include "base/random.h"

enum { MOST = 8 };

/* ---- Parts ---- */

/* Each rank writes its part; all see it after they met. Ranks have parts of different sizes, one has none. */
static int write_parts(treadle_group *group, void *context) {
  treadle_board *board;
  treadle_board_set *all;
  (void)context;
  uint64_t bytes = group->rank == 1 ? 0 : 100 + 5000 * (uint64_t)group->rank;
  RANK_OK(treadle_board_create(group, bytes, &board));
  RANK_OK(treadle_board_split(board, 0, &all));
  RANK_TRUE(all->count == group->size && all->index == group->rank);
  RANK_TRUE(treadle_board_group(board) == group);
  unsigned char *own = treadle_board_own(board);
  RANK_TRUE((own == NULL) == (bytes == 0) && (uintptr_t)own % 64 == 0);
  for (uint64_t i = 0; i < bytes; i++) RANK_TRUE(own[i] == 0);
  for (int turn = 1; turn < 4; turn++) {
    for (uint64_t i = 0; i < bytes; i++) own[i] = (unsigned char)(group->rank * 50 + turn + (int)i % 7);
    RANK_OK(treadle_board_meet(all, "writing"));
    for (int rank = 0; rank < group->size; rank++) {
      const unsigned char *part = treadle_board_part(board, rank);
      RANK_TRUE(treadle_board_bytes(board, rank) == (rank == 1 ? 0 : 100 + 5000 * (uint64_t)rank));
      RANK_TRUE((part == NULL) == (rank == 1));
      for (uint64_t i = 0; i < treadle_board_bytes(board, rank); i++)
        RANK_TRUE(part[i] == (unsigned char)(rank * 50 + turn + (int)i % 7));
    }
    RANK_OK(treadle_board_meet(all, "reading"));
  }
  treadle_board_destroy(board);
  return 0;
}

static void test_parts(void **state) {
  (void)state;
  for (int size = 1; size <= MOST; size += size < 4 ? 1 : 4)
    ranks_as_threads(size, 30, 5, write_parts, NULL);
}

/* What a rank asks for is whole pages that hold its part and its head. */
static void test_memory(void **state) {
  (void)state;
  assert_true(treadle_board_memory(0) > 0 && treadle_board_memory(0) % 4096 == 0);
  assert_true(treadle_board_memory(100000) >= 100000 + 4096);
  assert_true(treadle_board_memory(5 << 20) > 5 << 20 && treadle_board_memory(5 << 20) <= 8 << 20);
}

/* ---- Sets ---- */

enum { SPLITS = 5, MEETINGS = 300 };

static int colour_of(uint64_t seed, int split, int rank) {
  treadle_random random = {seed * 1000 + (uint64_t)(split * 64 + rank)};
  return (int)(treadle_random_next(&random) % 4) - 1;
}

/* Random divisions of the ranks; each set meets in turn, a different number of times in each. A rank counts its meetings in its part;
 * after a meeting nobody of the set is behind, and nobody is more than one ahead. */
static int meet_in_sets(treadle_group *group, void *context) {
  const uint64_t *seed = context;
  treadle_board *board;
  treadle_board_set *sets[SPLITS];
  RANK_OK(treadle_board_create(group, SPLITS * sizeof(_Atomic uint64_t), &board));
  for (int split = 0; split < SPLITS; split++) {
    int colour = colour_of(*seed, split, group->rank), count = 0;
    RANK_OK(treadle_board_split(board, colour, &sets[split]));
    RANK_TRUE((sets[split] == NULL) == (colour < 0));
    for (int rank = 0; rank < group->size && sets[split]; rank++)
      if (colour_of(*seed, split, rank) == colour) RANK_TRUE(sets[split]->ranks[count++] == rank);
    if (sets[split])
      RANK_TRUE(sets[split]->count == count && sets[split]->ranks[sets[split]->index] == group->rank);
  }
  _Atomic uint64_t *own = treadle_board_own(board);
  treadle_random order = {*seed}; /* the same on all ranks: sets that share ranks meet in one order */
  for (int i = 0; i < MEETINGS; i++) {
    int split = (int)(treadle_random_next(&order) % SPLITS);
    if (!sets[split]) continue;
    uint64_t turn = atomic_fetch_add(&own[split], 1) + 1;
    RANK_OK(treadle_board_meet(sets[split], "a set"));
    for (int member = 0; member < sets[split]->count; member++) {
      const _Atomic uint64_t *part = treadle_board_part(board, sets[split]->ranks[member]);
      uint64_t theirs = atomic_load(&part[split]);
      RANK_TRUE(theirs == turn || theirs == turn + 1);
    }
  }
  treadle_board_destroy(board);
  return 0;
}

static void test_sets(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= test_seeds(40); seed++)
    ranks_as_threads(1 + (int)(seed % MOST), 30, seed % 3 ? seed : 0, meet_in_sets, &seed);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_parts),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_sets),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
