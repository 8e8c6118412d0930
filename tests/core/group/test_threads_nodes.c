/* Groups over several nodes, of threads of one process: what is said on one is heard on all. Run under TSan too.  ctest: label=threads */
#include "group/ranks.h"
#include "test.h"

#include "base/clock.h"
#include "carry/words.h"

static int uneven(int rank) { return rank == 3 || rank == 0 ? 7 : rank == 5 ? -2 : 1; }
static int alone(int rank) { return rank; }

static void over_nodes(int size, double timeout_seconds, uint64_t delays, ranks_body body, void *context) {
  int (*const maps[])(int) = {ranks_in_pairs, ranks_on_two_nodes, uneven, alone};
  for (size_t i = 0; i < TEST_COUNT(maps); i++) {
    ranks_nodes = maps[i];
    ranks_as_threads(size, timeout_seconds, delays, body, context);
  }
  ranks_nodes = NULL;
}

/* ---- Barrier and gather ---- */

static int gather_much(treadle_group *group, void *context) {
  int64_t mine[512], all[8 * 512];
  (void)context;
  for (int64_t i = 0; i < 60; i++) {
    size_t count = i % 3 == 0 ? 512 : 1;
    for (size_t k = 0; k < count; k++) mine[k] = i * 1000 + group->rank + (int64_t)k * 7;
    RANK_OK(treadle_group_gather(group, mine, count * sizeof *mine, all));
    for (int rank = 0; rank < group->size; rank++)
      for (size_t k = 0; k < count; k++)
        RANK_TRUE(all[(size_t)rank * count + k] == i * 1000 + rank + (int64_t)k * 7);
    if (i % 4 == 0) RANK_OK(treadle_group_barrier(group));
  }
  return 0;
}

static void test_gather(void **state) {
  (void)state;
  over_nodes(8, 30, 0, gather_much, NULL);
  over_nodes(6, 30, 5, gather_much, NULL);
}

static int one_leaves(treadle_group *group, void *context) {
  (void)context;
  RANK_OK(treadle_group_barrier(group));
  if (group->rank == 2) {
    treadle_fail(TREADLE_NO_MEMORY, "rank two is tired");
    treadle_group_fail(group);
    return 0;
  }
  RANK_FAILS(TREADLE_PEER, "rank two is tired", treadle_group_barrier(group));
  return 0;
}

static void test_failure_is_told(void **state) {
  (void)state;
  over_nodes(6, 30, 3, one_leaves, NULL);
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
  over_nodes(4, 0.5, 0, one_is_missing, NULL);
}

static int first_leaves(treadle_group *group, void *context) {
  treadle_group **left = context; /* [ranks] closed here already */
  RANK_OK(treadle_group_barrier(group));
  (void)left;
  if (group->rank != 0) RANK_FAILS(TREADLE_PEER, "rank 0", treadle_group_barrier(group));
  if (group->rank != 0) return 0;
  treadle_fail(TREADLE_REFUSED, "enough");
  treadle_group_fail(group);
  return 0;
}

static void test_leader_leaves(void **state) {
  (void)state;
  over_nodes(5, 20, 0, first_leaves, NULL);
}

/* ---- Outcomes ---- */

/* Each epoch: all verify, but for one rank that fails in every third. All nodes have the same outcome. */
static int settle_much(treadle_group *group, void *context) {
  (void)context;
  for (uint64_t epoch = 1; epoch <= 40; epoch++) {
    bool fails = epoch % 3 == 0 && group->rank == (int)(epoch / 3) % group->size, committed;
    uint64_t all[8];
    RANK_OK(treadle_group_barrier(group));
    treadle_outcome_open(group, epoch);
    treadle_word_say(group, TREADLE_WORD_ENTERED, epoch);
    if (fails) {
      treadle_fail(TREADLE_SYSTEM, "epoch %d of rank %d", (int)epoch, group->rank);
      RANK_TRUE(treadle_outcome_settle(group, epoch, TREADLE_FAILED));
    } else {
      const _Atomic uint64_t *word;
      double deadline = treadle_group_deadline(group);
      treadle_word_say(group, TREADLE_WORD_VERIFIED, epoch);
      for (int rank = 0; rank < group->size; rank++) {
        word = &group->control->lines[rank].words[TREADLE_WORD_VERIFIED];
        while (atomic_load(word) < epoch && treadle_outcome_now(group->control).state == TREADLE_OPEN)
          RANK_TRUE(treadle_clock_seconds() < deadline);
      }
      (void)treadle_outcome_settle(group, epoch, TREADLE_COMMITTED);
      treadle_outcome_await(group, epoch);
    }
    committed = treadle_outcome_committed(group, epoch);
    RANK_TRUE(!treadle_outcome_is_adrift(group, epoch));
    RANK_TRUE(committed == (epoch % 3 != 0));
    if (!committed) {
      char words[64];
      int rank = treadle_outcome_now(group->control).rank;
      snprintf(words, sizeof words, "epoch %d of rank %d", (int)epoch, (int)(epoch / 3) % group->size);
      RANK_TRUE(strcmp(group->control->lines[rank].text, words) == 0);
    }
    uint64_t mine = treadle_outcome_now(group->control).epoch;
    RANK_OK(treadle_group_gather(group, &mine, sizeof mine, all));
    for (int rank = 0; rank < group->size; rank++) RANK_TRUE(all[rank] == epoch);
  }
  return 0;
}

static void test_outcomes(void **state) {
  (void)state;
  over_nodes(4, 20, 0, settle_much, NULL);
  over_nodes(6, 20, 11, settle_much, NULL);
}

/* One node never votes: the others hear of it, and nobody commits. */
static int one_node_is_silent(treadle_group *group, void *context) {
  (void)context;
  RANK_OK(treadle_group_barrier(group));
  treadle_outcome_open(group, 1);
  RANK_OK(treadle_group_barrier(group));
  if (group->nodes->of[group->rank] == 1) return 0;
  double begin = treadle_clock_seconds();
  RANK_TRUE(treadle_outcome_settle(group, 1, TREADLE_COMMITTED));
  treadle_outcome_await(group, 1);
  RANK_TRUE(treadle_clock_seconds() - begin < 3);
  RANK_TRUE(!treadle_outcome_committed(group, 1));
  int rank = treadle_outcome_now(group->control).rank;
  const char *text = group->control->lines[rank].text; /* who asks node 1 may come before who decides */
  RANK_TRUE(strstr(text, "node 1 has not voted") || strstr(text, "waited in vain"));
  return 0;
}

static void test_missing_vote(void **state) {
  (void)state;
  ranks_nodes = ranks_in_pairs;
  ranks_as_threads(6, 0.5, 0, one_node_is_silent, NULL);
  ranks_nodes = NULL;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gather),   cmocka_unit_test(test_failure_is_told),
      cmocka_unit_test(test_timeout),  cmocka_unit_test(test_leader_leaves),
      cmocka_unit_test(test_outcomes), cmocka_unit_test(test_missing_vote),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
