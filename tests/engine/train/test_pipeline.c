/* The order of a pipeline: each chunk of each stage takes all micro batches forward and backward, in ascending order, and as many stages as there
 * are come to their ends with the memory that was said. 1F1B keeps no more micro batches than stages are behind it. */
#include "test.h"

#include "train/pipeline.h"

static void check_order(const treadle_pipeline *p, int32_t stage) {
  int32_t forward[64] = {0}, backward[64] = {0};
  for (int64_t i = 0; i < treadle_pipeline_length(p); i++) {
    treadle_pipeline_item item = treadle_pipeline_at(p, stage, i);
    assert_int_equal(item.chunk % p->stages, stage);
    assert_in_range(item.chunk, 0, p->chunks - 1);
    assert_int_equal(item.micro_batch, item.backward ? backward[item.chunk]++ : forward[item.chunk]++);
    assert_true(backward[item.chunk] <= forward[item.chunk]);
    if (i < treadle_pipeline_length(p) / 2) assert_false(treadle_pipeline_forward_at(p, stage, i).backward);
  }
  for (int32_t c = stage; c < p->chunks; c += p->stages) {
    assert_int_equal(forward[c], p->micro_batches);
    assert_int_equal(backward[c], p->micro_batches);
  }
}

static void test_orders(void **state) {
  (void)state;
  for (int32_t stages = 1; stages <= 8; stages++)
    for (int32_t each = 1; each <= 4; each++)
      for (int32_t micro = 1; micro <= 17; micro++)
        for (int32_t stage = 0; stage < stages; stage++) {
          const treadle_pipeline p = {stages, stages * each, micro};
          treadle_pipeline_memory memory;
          check_order(&p, stage);
          assert_ok(treadle_pipeline_play(&p, stage, &memory));
          assert_in_range(memory.kept, 1, micro);
          assert_in_range(memory.slots, 1, micro);
          if (each == 1) assert_int_equal(memory.kept, micro < stages - stage ? micro : stages - stage);
        }
}

/* Memory for every number of micro batches up to the most: an interleaved order keeps more of 7 than of 8. */
static void test_fewer(void **state) {
  (void)state;
  for (int32_t stages = 1; stages <= 5; stages++)
    for (int32_t each = 1; each <= 3; each++)
      for (int32_t micro = 1; micro <= 14; micro++)
        for (int32_t stage = 0; stage < stages; stage++) {
          const treadle_pipeline most = {stages, stages * each, micro};
          treadle_pipeline_memory memory, exact;
          assert_ok(treadle_pipeline_play_most(&most, stage, true, &memory));
          for (int32_t fewer = 1; fewer <= micro; fewer++) {
            const treadle_pipeline p = {stages, stages * each, fewer};
            treadle_pipeline_memory one;
            assert_ok(treadle_pipeline_play(&p, stage, &one));
            assert_true(one.kept <= memory.kept && one.slots <= memory.slots);
          }
          assert_ok(treadle_pipeline_play(&most, stage, &exact));
          assert_ok(treadle_pipeline_play_most(&most, stage, false, &memory));
          assert_true(memory.kept == exact.kept && memory.slots == exact.slots);
        }
}

static void test_refused(void **state) {
  (void)state;
  const treadle_pipeline p = {3, 4, 2};
  treadle_pipeline_memory memory;
  assert_refused("4 chunks of layers on 3 stages", treadle_pipeline_play(&p, 0, &memory));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_orders), cmocka_unit_test(test_fewer),
                                     cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
