/* A crew of 57 processes, the controller and 56 workers, in the pools of examples/pools-s4.yaml: each worker says where it is, and what it says is what
 * the placing of pools says. */
#include "group/ranks.h"
#include "test.h"
#include "treadle_control.h"

#include <string.h>

enum { NODES = 7, SLOTS = 56, LIMIT = 120 };

/* ---- A class: where its workers are ---- */

static treadle_status create(const treadle_worker_place *place, const treadle_batch *options,
                             void **worker_p) {
  (void)options;
  *worker_p = (void *)place;
  return treadle_group_barrier(place->group);
}

static treadle_status where(void *worker, const treadle_batch *in, treadle_batch **out_p) {
  const treadle_worker_place *place = worker;
  int32_t *rank = place->context, said[] = {*rank, place->rank, place->size};
  treadle_status status = treadle_batch_create(1, out_p);
  (void)in;
  const treadle_column column = {.struct_size = sizeof column,
                                 .name = "where",
                                 .type = TREADLE_COLUMN_INT32,
                                 .width = 3,
                                 .data = said};
  if (!status) status = treadle_batch_add(*out_p, &column);
  return status;
}

static const treadle_class_method methods[] = {
    {.name = "where", .function = where, .dispatch = TREADLE_DISPATCH_DP_COMPUTE_PROTO}};

/* ---- The controller ---- */

static int look_at(const treadle_resource_pool *pool, const treadle_batch *said, int32_t first_rank) {
  treadle_resource_pool_info info = TREADLE_INIT(treadle_resource_pool_info);
  treadle_column column = TREADLE_INIT(treadle_column);
  treadle_resource_pool_get_info(pool, &info);
  RANK_OK(treadle_batch_column(said, "where", &column));
  RANK_TRUE(treadle_batch_rows(said) == info.slots);
  for (int32_t w = 0; w < info.slots; w++) {
    const int32_t *at = (const int32_t *)column.data + 3 * w;
    treadle_slot slot;
    RANK_OK(treadle_resource_pool_get_slot(pool, w, &slot));
    RANK_TRUE(at[0] == first_rank + slot.number && at[1] == w && at[2] == info.slots);
    RANK_TRUE(slot.node == slot.number / 8); /* the file's pools fill one node after the other */
  }
  return 0;
}

static int control(treadle_crew *crew) {
  static const int32_t by_node[NODES] = {8, 8, 8, 8, 8, 8, 8};
  treadle_rl_pools_info info = TREADLE_INIT(treadle_rl_pools_info);
  treadle_rl_pool_info one = TREADLE_INIT(treadle_rl_pool_info);
  treadle_train_config *config;
  treadle_rl_pools *pools;
  treadle_workers *workers[3], *none;
  treadle_future *calls[3];
  treadle_batch *rows, *said;
  RANK_OK(treadle_rl_pools_config_read(TREADLE_SOURCE_DIR "/examples/pools-s4.yaml", NULL, 0, &config));
  RANK_OK(treadle_rl_pools_create(config, by_node, NODES, &pools));
  treadle_rl_pools_get_info(pools, &info);
  RANK_TRUE(info.count == 3 && info.slots == SLOTS && info.first_rank == 1);
  RANK_OK(treadle_batch_create(SLOTS * 4, &rows)); /* which every pool's slots divide */
  const treadle_call_input input = {.struct_size = sizeof input, .batch = rows};
  for (int p = 0; p < 3; p++) {
    RANK_OK(treadle_rl_pools_get_pool(pools, p, &one));
    RANK_OK(treadle_workers_create_in_pool(crew, one.pool, info.first_rank, "where", NULL, &workers[p]));
    RANK_OK(treadle_workers_call(workers[p], "where", &input, &calls[p]));
  }
  RANK_FAILS(TREADLE_REFUSED, "first_rank is 2: 0 or 1",
             treadle_workers_create_in_pool(crew, one.pool, 2, "where", NULL, &none));
  RANK_TRUE(!none);
  for (int p = 0; p < 3; p++) {
    RANK_OK(treadle_rl_pools_get_pool(pools, p, &one));
    RANK_OK(treadle_future_take(calls[p], NULL, 0, &said));
    if (look_at(one.pool, said, info.first_rank)) return 1;
    treadle_batch_destroy(said);
    treadle_future_destroy(calls[p]);
  }
  for (int p = 0; p < 3; p++) treadle_workers_destroy(workers[p]);
  treadle_batch_destroy(rows);
  treadle_rl_pools_destroy(pools);
  treadle_train_config_destroy(config);
  return 0;
}

static int process(const char *name, int rank, int size, void *context) {
  int32_t here = rank;
  treadle_worker_class class = {.struct_size = sizeof class,
                                .name = "where",
                                .methods = methods,
                                .method_count = TEST_COUNT(methods),
                                .create = create,
                                .context = &here};
  treadle_group *group;
  treadle_crew *crew;
  int result = 0;
  (void)context;
  RANK_OK(treadle_group_open(name, rank, size, LIMIT, &group));
  RANK_OK(treadle_crew_open(group, &class, 1, NULL, &crew));
  if (rank == 0)
    result = control(crew);
  else
    RANK_OK(treadle_crew_serve(crew));
  treadle_crew_close(crew);
  treadle_group_close(group);
  return result;
}

static void test_seven_nodes_of_eight(void **state) {
  int results[SLOTS + 1];
  (void)state;
  ranks_as_processes(SLOTS + 1, LIMIT, process, NULL, results);
  for (int rank = 0; rank <= SLOTS; rank++) assert_int_equal(results[rank], 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_seven_nodes_of_eight)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
