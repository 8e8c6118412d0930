/* Groups that are divided: on one node and over two, in any order, again and again; and what is refused. */
#include "group/ranks.h"
#include "meet/store_place.h"
#include "test.h"
#include "treadle_tools.h"

#include <stdlib.h>
#include <unistd.h>

typedef struct place {
  int nodes; /* 1: by name */
  const char *address;
} place;

static treadle_status open_group(const char *name, int rank, int size, const place *at,
                                 treadle_group **group_p) {
  treadle_store store = TREADLE_INIT(treadle_store);
  const treadle_store_options options = store_options(at->address, rank, size, 20);
  treadle_status status;
  if (at->nodes == 1) return treadle_group_open(name, rank, size, 20, group_p);
  TRY(treadle_store_open(&options, &store));
  TRY(treadle_group_nodes(&store, rank, size, at->nodes, 20, group_p));
out:
  treadle_store_close(&store);
  return status;
}

/* The part has these ranks of the whole, in this order; its ranks see each other, and nobody else. */
static int check_part(treadle_group *whole, treadle_group *part, const int *members, int count) {
  int mine = treadle_group_rank(whole), all[8];
  RANK_TRUE(part && treadle_group_size(part) == count);
  RANK_OK(treadle_group_gather(part, &mine, sizeof mine, all));
  for (int i = 0; i < count; i++) {
    RANK_TRUE(all[i] == members[i]);
    if (members[i] == mine) RANK_TRUE(treadle_group_rank(part) == i);
    for (int j = 0; j < count; j++)
      RANK_TRUE((treadle_group_node(part, i) == treadle_group_node(part, j)) ==
                (treadle_group_node(whole, members[i]) == treadle_group_node(whole, members[j])));
  }
  RANK_OK(treadle_group_barrier(part));
  return 0;
}

static int divide(const char *name, int rank, int size, void *context) {
  treadle_group *group, *part = NULL, *half = NULL;
  RANK_OK(open_group(name, rank, size, context, &group));
  /* Rank 0 apart, the others in two parts: one of them backwards. */
  RANK_OK(treadle_group_split(group, rank == 0 ? -1 : rank % 2, rank % 2 ? -rank : 0, &part));
  if (rank == 0) RANK_TRUE(!part);
  if (rank % 2) RANK_TRUE(check_part(group, part, (const int[]){5, 3, 1}, 3) == 0);
  if (rank && rank % 2 == 0) RANK_TRUE(check_part(group, part, (const int[]){2, 4}, 2) == 0);
  /* Parts are divided; and both at the same time as others of the whole. */
  if (rank % 2) RANK_OK(treadle_group_split(part, treadle_group_rank(part) > 0, 0, &half));
  if (rank == 5) RANK_TRUE(check_part(group, half, (const int[]){5}, 1) == 0);
  if (rank == 1 || rank == 3) RANK_TRUE(check_part(group, half, (const int[]){3, 1}, 2) == 0);
  treadle_group_close(half);
  /* The whole goes on without its parts, and again with others. */
  treadle_group_close(part);
  RANK_OK(treadle_group_barrier(group));
  for (int round = 0; round < 3; round++) {
    RANK_OK(treadle_group_split(group, rank / 3, 0, &part));
    RANK_TRUE(check_part(group, part, rank < 3 ? (const int[]){0, 1, 2} : (const int[]){3, 4, 5}, 3) == 0);
    if (round < 2) treadle_group_close(part);
  }
  /* One part goes on without the whole. */
  treadle_group_close(group);
  RANK_OK(treadle_group_barrier(part));
  treadle_group_close(part);
  return 0;
}

static int refuse(const char *name, int rank, int size, void *context) {
  treadle_group *group, *part;
  RANK_OK(open_group(name, rank, size, context, &group));
  RANK_FAILS(TREADLE_REFUSED,
             "treadle_group_split: colour -2; it is from 0, or -1: this rank is in no part",
             treadle_group_split(group, rank == 4 ? -2 : 0, 0, &part));
  RANK_TRUE(!part);
  RANK_FAILS(TREADLE_REFUSED, "treadle_group_split", treadle_group_split(NULL, 0, 0, &part));
  RANK_OK(treadle_group_split(group, -1, 0, &part)); /* nobody is in any */
  RANK_TRUE(!part);
  /* One rank tells the others that it cannot come. */
  RANK_FAILS(TREADLE_REFUSED, "rank 2 has no number",
             rank == 2 ? treadle_group_refuse(group, TREADLE_REFUSED, "rank 2 has no number")
                       : treadle_group_split(group, 0, 0, &part));
  treadle_group_close(group);
  return 0;
}

/* Messages of a part, and of its parts, name ranks by the numbers that it was given for them: here those in the whole. */
static int call_ranks(const char *name, int rank, int size, void *context) {
  const int32_t numbers[] = {rank / 3 * 3, rank / 3 * 3 + 1, rank / 3 * 3 + 2};
  treadle_group *group, *part, *turned;
  char says[40];
  RANK_OK(open_group(name, rank, size, context, &group));
  RANK_OK(treadle_group_split(group, rank / 3, 0, &part));
  RANK_OK(treadle_group_call_ranks(part, numbers));
  snprintf(says, sizeof says, "rank %d: no luck", numbers[1]);
  RANK_FAILS(
      TREADLE_STATE, says,
      treadle_group_agree(part, rank % 3 == 1 ? treadle_fail(TREADLE_STATE, "no luck") : TREADLE_OK));
  RANK_OK(treadle_group_split(part, 0, -rank, &turned));
  snprintf(says, sizeof says, "rank %d: no luck", numbers[2]);
  RANK_FAILS(
      TREADLE_STATE, says,
      treadle_group_agree(turned, rank % 3 == 2 ? treadle_fail(TREADLE_STATE, "no luck") : TREADLE_OK));
  if (rank % 3 == 2) {
    (void)treadle_fail(TREADLE_STATE, "no more");
    treadle_group_fail(turned);
  } else {
    snprintf(says, sizeof says, "rank %d failed: no more", numbers[2]);
    RANK_FAILS(TREADLE_PEER, says,
               treadle_group_wait(turned, 0, &turned->control->lines[0].words[0], 1, NULL,
                                  treadle_group_deadline(turned), "a word"));
  }
  RANK_OK(treadle_group_barrier(group));
  treadle_group_close(turned);
  treadle_group_close(part);
  treadle_group_close(group);
  return 0;
}

/* One that dies does not let the others wait: neither those of its part, nor those that wait for its part to be made. */
static int lose(const char *name, int rank, int size, void *context) {
  treadle_group *group, *part = NULL;
  RANK_OK(open_group(name, rank, size, context, &group));
  /* When it comes out of the barrier, all have come so far. */
  treadle_status status = treadle_group_barrier(group);
  if (rank == 3) _exit(0);
  if (!status) status = treadle_group_split(group, rank % 2, 0, &part);
  RANK_TRUE(status == TREADLE_PEER && !part);
  return 0;
}

static void check(ranks_process body, int nodes) {
  int results[6];
  place at = {nodes, nodes > 1 ? store_place() : NULL};
  ranks_as_processes(6, 60, body, &at, results);
  for (int rank = 0; rank < 6; rank++) assert_int_equal(results[rank], 0);
}

static void test_one_node(void **state) {
  (void)state;
  check(divide, 1);
}
static void test_two_nodes(void **state) {
  (void)state;
  check(divide, 2);
}
static void test_refused(void **state) {
  (void)state;
  check(refuse, 1);
}
static void test_called(void **state) {
  (void)state;
  check(call_ranks, 1);
  check(call_ranks, 2);
}
static void test_lost(void **state) {
  (void)state;
  check(lose, 1);
  check(lose, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_node), cmocka_unit_test(test_two_nodes),
                                     cmocka_unit_test(test_refused), cmocka_unit_test(test_called),
                                     cmocka_unit_test(test_lost)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
