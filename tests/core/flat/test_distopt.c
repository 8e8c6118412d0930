/* Buffers of the distributed optimizer: the vector of docs/rules.md 10.5, rules that hold of any, and refusals. */
#include "test.h"

#include "base/random.h"
#include "flat/shards.h"

#include <inttypes.h>

static void by_hand(void **state) {
  (void)state;
  treadle_distopt_options options = {.dp = 8, .bucket_size = 300};
  treadle_distopt_param params[] = {{.numel = 100, .shared_embedding = true},
                                    {.numel = 70},
                                    {.numel = 64},
                                    {.numel = 33},
                                    {.numel = 500},
                                    {.numel = 10}};
  static const int64_t wanted[][3] = {{896, 996, 2}, {768, 838, 1}, {704, 768, 1},
                                      {640, 673, 1}, {64, 564, 0},  {0, 10, 0}};
  static const int64_t bucket[][3] = {{0, 640, 564}, {640, 896, 256}, {896, 1024, 100}};
  treadle_distopt_buckets buckets = {0};
  assert_ok(treadle_distopt_layout(&options, params, TEST_COUNT(params), &buckets));
  for (size_t i = 0; i < TEST_COUNT(params); i++) {
    assert_int_equal(params[i].start, wanted[i][0]);
    assert_int_equal(params[i].end, wanted[i][1]);
    assert_int_equal(params[i].bucket, wanted[i][2]);
  }
  assert_int_equal(buckets.count, 3);
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(buckets.items[i].start, bucket[i][0]);
    assert_int_equal(buckets.items[i].end, bucket[i][1]);
    assert_int_equal(buckets.items[i].unpadded, bucket[i][2]);
  }
  treadle_span own = flat_owned_of(&buckets.items[1], 8, 3); /* 32 of each rank */
  assert_int_equal(own.low, 640 + 96);
  assert_int_equal(own.high, 640 + 128);

  buckets.count = 0;
  assert_ok(treadle_distopt_layout(&options, params, 0, &buckets)); /* no parameters, no buckets */
  assert_int_equal(buckets.count, 0);
  treadle_array_release(&buckets);
}

static void rules_hold(void **state) {
  (void)state;
  treadle_distopt_buckets buckets = {0};
  for (uint64_t seed = 1; seed <= 500; seed++) {
    treadle_random random = {seed};
    treadle_distopt_param params[12] = {{0}};
    int count = (int)treadle_random_between(&random, 1, 12);
    treadle_distopt_options options = {
        .dp = treadle_random_between(&random, 1, 12),
        .bucket_size = treadle_random_below(&random, 2) ? treadle_random_between(&random, 1, 900) : 0,
        .pad_for_high_nccl = treadle_random_below(&random, 4) == 0};
    for (int i = 0; i < count; i++) {
      params[i].numel = treadle_random_between(&random, 1, 300);
      params[i].shared_embedding = treadle_random_below(&random, 8) == 0;
    }
    buckets.count = 0;
    assert_ok(treadle_distopt_layout(&options, params, count, &buckets));
    bool good = params[count - 1].start == 0;
    for (int i = 0; i < count; i++) {
      const treadle_distopt_bucket *bucket = &buckets.items[params[i].bucket];
      good &= params[i].start % 64 == 0 && params[i].end - params[i].start == params[i].numel;
      good &= params[i].start >= bucket->start && params[i].end <= bucket->start + bucket->unpadded;
      if (i == 0) continue; /* the one before lies behind this one */
      good &= params[i - 1].start >= params[i].end && params[i - 1].bucket >= params[i].bucket;
      if (params[i].shared_embedding) good &= params[i - 1].bucket > params[i].bucket;
      if (params[i - 1].shared_embedding) good &= params[i - 1].bucket > params[i].bucket;
    }
    int64_t next = 0;
    for (size_t k = 0; k < buckets.count; k++) {
      const treadle_distopt_bucket *bucket = &buckets.items[k];
      good &= bucket->start == next && (bucket->end - bucket->start) % options.dp == 0;
      good &= (bucket->end - bucket->start) % (options.pad_for_high_nccl ? 65536 : 128) == 0;
      for (int64_t r = 0; r < options.dp; r++) { /* owned ranges follow one another */
        treadle_span own = flat_owned_of(bucket, options.dp, r);
        good &= own.low == next;
        next = own.high;
      }
      good &= bucket->end == next;
    }
    if (!good) fail_msg("seed %" PRIu64, seed);
  }
  treadle_array_release(&buckets);
}

static void refused(void **state) {
  (void)state;
  treadle_distopt_buckets buckets = {0};
  treadle_distopt_param param = {.numel = INT64_MAX}, negative = {.numel = -1};
  treadle_distopt_param two[] = {{.numel = INT64_MAX - 100, .shared_embedding = true}, {.numel = 200}};
  treadle_distopt_options options = {.dp = 0};
  assert_refused("over 0 ranks", treadle_distopt_layout(&options, &param, 1, &buckets));
  options.dp = INT64_MAX;
  assert_refused("ranks", treadle_distopt_layout(&options, &param, 1, &buckets));
  options = (treadle_distopt_options){.dp = 2, .bucket_size = -5};
  assert_refused("buckets of -5", treadle_distopt_layout(&options, &param, 1, &buckets));
  options.bucket_size = 0;
  assert_refused("a bucket that ends at", treadle_distopt_layout(&options, &param, 1, &buckets));
  assert_refused("parameter 0 has -1", treadle_distopt_layout(&options, &negative, 1, &buckets));
  assert_refused("parameter 0 has", treadle_distopt_layout(&options, two, 2, &buckets));
  treadle_array_release(&buckets);
}

static treadle_status layout_once(void) {
  treadle_distopt_options options = {.dp = 2, .bucket_size = 1};
  treadle_distopt_param params[40] = {{0}};
  treadle_distopt_buckets buckets = {0};
  for (int i = 0; i < 40; i++) params[i].numel = 1;
  treadle_status status = treadle_distopt_layout(&options, params, 40, &buckets);
  treadle_array_release(&buckets);
  return status;
}

static void failing_allocations(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(layout_once());
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(by_hand), cmocka_unit_test(rules_hold),
                                     cmocka_unit_test(refused), cmocka_unit_test(failing_allocations)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
