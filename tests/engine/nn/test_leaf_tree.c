/* Trees of leaves (src/engine/nn/leaf_tree.c) against the definition, written as a recursion: any cut among ranks gives the same bits, and each
 * rank's nodes are the largest. */
#include "test.h"

#include "base/random.h"
#include "nn/leaf_tree.h"

static float sum_of(const float *leaves, int32_t lo, int32_t hi) {
  if (hi - lo == 1) return leaves[lo];
  int32_t m = lo + (hi - lo) / 2;
  return sum_of(leaves, lo, m) + sum_of(leaves, m, hi);
}

/* The largest nodes of [lo, hi) inside of [first, end), by the definition. */
static int32_t nodes_of(int32_t lo, int32_t hi, int32_t first, int32_t end, treadle_leaf_node *nodes) {
  if (lo >= end || hi <= first) return 0;
  if (lo >= first && hi <= end) {
    *nodes = (treadle_leaf_node){.first = lo, .leaves = hi - lo};
    return 1;
  }
  int32_t m = lo + (hi - lo) / 2, count = nodes_of(lo, m, first, end, nodes);
  return count + nodes_of(m, hi, first, end, nodes + count);
}

/* The sums of a range's nodes, by the steps that a kernel takes. */
static int32_t add_up(treadle_leaf_range range, const float *leaves, float *sums) {
  float stack[TREADLE_LEAF_HEIGHT_MAX];
  int32_t height = 0, count = 0;
  for (int32_t leaf = range.first; leaf < range.first + range.leaves; leaf++) {
    treadle_leaf_step step = treadle_leaf_step_of(range, leaf);
    float value = leaves[leaf];
    for (; step.merges > 0; step.merges--) {
      assert_true(height > 0);
      value = stack[--height] + value;
    }
    if (step.ends) {
      assert_int_equal(height, 0);
      sums[count++] = value;
    } else {
      assert_true(height < TREADLE_LEAF_HEIGHT_MAX);
      stack[height++] = value;
    }
  }
  assert_int_equal(height, 0);
  return count;
}

/* A range's nodes are right; they and their sums go behind those of the ranks before. */
static int32_t add_rank(treadle_leaf_range range, const float *leaves, treadle_leaf_node *nodes,
                        float *sums) {
  treadle_leaf_node wanted[TREADLE_LEAF_NODES_MAX];
  int32_t count = treadle_leaf_nodes(range, nodes);
  assert_int_equal(count, nodes_of(0, range.all, range.first, range.first + range.leaves, wanted));
  assert_memory_equal(nodes, wanted, (size_t)count * sizeof *nodes);
  assert_int_equal(treadle_leaf_nodes(range, NULL), count);
  assert_int_equal(add_up(range, leaves, sums), count);
  for (int32_t i = 0; i < count; i++) {
    float sum = sum_of(leaves, nodes[i].first, nodes[i].first + nodes[i].leaves);
    assert_memory_equal(&sums[i], &sum, sizeof sum);
  }
  return count;
}

enum { LEAVES = 300, ELEMS = 700 };

static void every_cut_gives_one_sum(void **state) {
  (void)state;
  static const int32_t ranks[] = {1, 2, 3, 4, 6, 8, 13};
  for (uint64_t seed = 0; seed < test_seeds(2000); seed++) {
    treadle_random random = (treadle_random){.state = seed};
    int32_t all = 1 + (int32_t)treadle_random_below(&random, LEAVES), count = 0;
    int32_t parts = ranks[treadle_random_below(&random, TEST_COUNT(ranks))];
    float leaves[LEAVES], sums[LEAVES], sum;
    treadle_leaf_node nodes[LEAVES];
    const float *values[LEAVES];
    for (int32_t i = 0; i < all; i++)
      leaves[i] = (float)treadle_random_below(&random, 1 << 20) * 0x1p-19f - 1;
    for (int32_t rank = 0; rank < parts; rank++) {
      int32_t first = all * rank / parts, end = all * (rank + 1) / parts;
      if (end > first)
        count +=
            add_rank((treadle_leaf_range){first, end - first, all}, leaves, nodes + count, sums + count);
    }
    for (int32_t i = 0; i < count; i++) values[i] = &sums[i];
    treadle_leaf_combine(all, nodes, values, count, &sum, 1);
    float wanted = sum_of(leaves, 0, all);
    if (memcmp(&sum, &wanted, sizeof sum) != 0)
      fail_msg("seed %d: %d leaves on %d ranks", (int)seed, (int)all, (int)parts);
  }
}

/* Many elements at once, into memory of one of the nodes. */
static void combines_runs(void **state) {
  (void)state;
  enum { ALL = 7 };
  static float sums[ALL][ELEMS];
  float wanted[ELEMS], leaves[ALL];
  treadle_leaf_node nodes[ALL];
  const float *values[ALL];
  treadle_random random = (treadle_random){.state = 1};
  for (int32_t n = 0; n < ALL; n++) {
    nodes[n] = (treadle_leaf_node){n, 1};
    values[n] = sums[n];
    for (int i = 0; i < ELEMS; i++)
      sums[n][i] = (float)treadle_random_below(&random, 1 << 20) * 0x1p-19f - 1;
  }
  for (int i = 0; i < ELEMS; i++) {
    for (int32_t n = 0; n < ALL; n++) leaves[n] = sums[n][i];
    wanted[i] = sum_of(leaves, 0, ALL);
  }
  treadle_leaf_combine(ALL, nodes, values, ALL, sums[3], ELEMS);
  assert_memory_equal(sums[3], wanted, sizeof wanted);
}

static void takes_the_largest_trees(void **state) {
  (void)state;
  static float leaves[TREADLE_LEAVES_MAX], sums[TREADLE_LEAVES_MAX];
  static treadle_leaf_node nodes[TREADLE_LEAVES_MAX];
  for (int32_t i = 0; i < TREADLE_LEAVES_MAX; i++) leaves[i] = 1.0f / (float)(i + 1);
  for (int32_t less = 0; less < 2; less++) {
    treadle_leaf_range range = {
        .first = 1, .leaves = TREADLE_LEAVES_MAX - 2 - less, .all = TREADLE_LEAVES_MAX - less};
    assert_in_range(add_rank(range, leaves, nodes, sums), 12, TREADLE_LEAF_NODES_MAX);
    range = (treadle_leaf_range){.leaves = range.all, .all = range.all};
    assert_int_equal(add_rank(range, leaves, nodes, sums), 1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_cut_gives_one_sum),
      cmocka_unit_test(combines_runs),
      cmocka_unit_test(takes_the_largest_trees),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
