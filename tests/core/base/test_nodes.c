/* Tables of nodes. */
#include "base/nodes.h"

#include "base/limits.h"
#include "test.h"

static void ranks_need_not_be_neighbours(void **state) {
  (void)state;
  static const int32_t of[] = {7, -1, 7, 0, -1, 7};
  static const int32_t node[] = {0, 1, 0, 2, 1, 0}, place[] = {0, 0, 1, 0, 1, 2},
                       list[] = {0, 2, 5, 1, 4, 3};
  treadle_nodes nodes;
  assert_int_equal(treadle_nodes_make(of, 6, &nodes), TREADLE_OK);
  assert_int_equal(nodes.count, 3);
  for (int rank = 0; rank < 6; rank++) {
    assert_int_equal(nodes.of[rank], node[rank]);
    assert_int_equal(nodes.index[rank], place[rank]);
    assert_int_equal(nodes.list[rank], list[rank]);
  }
  assert_int_equal(treadle_nodes_size(&nodes, 0), 3);
  assert_int_equal(treadle_nodes_size(&nodes, 2), 1);
  assert_int_equal(treadle_nodes_leader(&nodes, 1), 1);
  assert_int_equal(treadle_nodes_leader(&nodes, 2), 3);
  treadle_nodes_release(&nodes);
}

static void one_node_is_what_is_not_said(void **state) {
  (void)state;
  treadle_nodes nodes;
  assert_int_equal(treadle_nodes_make(NULL, 5, &nodes), TREADLE_OK);
  assert_int_equal(nodes.count, 1);
  assert_int_equal(treadle_nodes_size(&nodes, 0), 5);
  assert_int_equal(nodes.index[4], 4);
  treadle_nodes_release(&nodes);
}

static void neighbours_are_divided_evenly(void **state) {
  (void)state;
  treadle_nodes nodes;
  assert_int_equal(treadle_nodes_split(6, 3, &nodes), TREADLE_OK);
  for (int rank = 0; rank < 6; rank++) assert_int_equal(nodes.of[rank], rank / 2);
  assert_int_equal(treadle_nodes_leader(&nodes, 2), 4);
  treadle_nodes_release(&nodes);
  assert_fails(TREADLE_REFUSED, "6 ranks cannot be divided evenly among 4 nodes",
               treadle_nodes_split(6, 4, &nodes));
  assert_fails(TREADLE_REFUSED, "among 0 nodes", treadle_nodes_split(6, 0, &nodes));
  assert_fails(TREADLE_REFUSED, "among 7 nodes", treadle_nodes_split(6, 7, &nodes));
  assert_fails(TREADLE_REFUSED, "0 ranks", treadle_nodes_make(NULL, 0, &nodes));
  assert_fails(TREADLE_REFUSED, "a table of nodes has",
               treadle_nodes_split(TREADLE_MAX_TABLE_RANKS + 1LL, 1, &nodes));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_need_not_be_neighbours),
      cmocka_unit_test(one_node_is_what_is_not_said),
      cmocka_unit_test(neighbours_are_divided_evenly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
