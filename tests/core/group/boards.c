/* Parts, sets and counters of boards. */
#include "group/boards.h"

#include "base/random.h"
#include "group/board.h"

int boards_write(treadle_group *group, void *context) {
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

enum { SPLITS = 5, MEETINGS = 300 };

static int colour_of(uint64_t seed, int split, int rank) {
  treadle_random random = {seed * 1000 + (uint64_t)(split * 64 + rank)};
  return (int)(treadle_random_next(&random) % 4) - 1;
}

/* Each set meets a different number of times. A rank counts its meetings in its part; after a meeting nobody of the set is behind, and
 * nobody is more than one ahead. */
int boards_meet(treadle_group *group, void *context) {
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

int boards_count(treadle_group *group, void *context) {
  treadle_board *board;
  int before = (group->rank + group->size - 1) % group->size;
  (void)context;
  RANK_OK(treadle_board_create(group, 8, &board));
  uint64_t *own = treadle_board_own(board);
  const uint64_t *theirs = treadle_board_part(board, before);
  for (uint64_t turn = 1; turn <= 200; turn++) { /* once round: rank 0 begins */
    if (group->rank > 0 || turn > 1)
      RANK_OK(treadle_board_wait(board, before, 63, group->rank > 0 ? turn : turn - 1, "a turn"));
    if (group->rank > 0) RANK_TRUE(*theirs == turn * 10);
    *own = turn * 10;
    treadle_board_signal(board, 63, turn);
  }
  if (group->rank == 0) RANK_OK(treadle_board_wait(board, before, 63, 200, "the end"));
  RANK_OK(treadle_board_wait(board, before, 0, 0, "nothing"));
  treadle_board_destroy(board);
  return 0;
}
