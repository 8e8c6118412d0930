/* src/loop/control/dispatch.c, dispatch_rows.c and meshes.c: each kind of dispatch on 1, 2, 4 and 8 workers, verl's numbers
 * (tests/single_controller), and what is refused.
 *
 * Of its tables of dispatch left out here, since they are of worker groups: futures that are chained and blocking=False,
 * environment variables of workers, nested, colocated and fused workers, split and merged pools. */
#include "test.h"
#include "treadle_control.h"

enum { MOST = 8 };
static const int32_t sizes[] = {1, 2, 4, 8};

/* ---- A call ---- */

static treadle_dispatch_spec spec_of(treadle_dispatch_kind kind, int32_t workers,
                                     const treadle_dispatch_argument *arguments, size_t count) {
  return (treadle_dispatch_spec){.struct_size = sizeof(treadle_dispatch_spec),
                                 .kind = kind,
                                 .workers = workers,
                                 .arguments = arguments,
                                 .argument_count = count};
}

static treadle_dispatch *create(const treadle_dispatch_spec *spec) {
  treadle_dispatch *dispatch;
  assert_ok(treadle_dispatch_create(spec, &dispatch));
  return dispatch;
}

static treadle_dispatch_info info_of(const treadle_dispatch *dispatch) {
  treadle_dispatch_info info = TREADLE_INIT(treadle_dispatch_info);
  assert_ok(treadle_dispatch_get_info(dispatch, &info));
  return info;
}

static treadle_dispatch_share share_of(const treadle_dispatch *dispatch, int32_t worker) {
  treadle_dispatch_share share;
  assert_ok(treadle_dispatch_get_share(dispatch, worker, &share));
  return share;
}

static void check_share(const treadle_dispatch *dispatch, int32_t worker, int64_t first, int64_t end,
                        int64_t padding, bool collected) {
  const treadle_dispatch_share share = share_of(dispatch, worker);
  assert_int_equal(share.rows.first, first);
  assert_int_equal(share.rows.end, end);
  assert_int_equal(share.padding, padding);
  assert_false(share.whole);
  assert_true(share.runs);
  assert_int_equal(share.collected, collected);
}

static void check_whole(const treadle_dispatch *dispatch, int32_t worker, bool runs) {
  const treadle_dispatch_share share = share_of(dispatch, worker);
  assert_true(share.whole || !runs);
  assert_int_equal(share.rows.end - share.rows.first, 0);
  assert_int_equal(share.runs, runs);
  assert_int_equal(share.collected, runs);
}

/* ---- Batches ---- */

/* Column a: the numbers; column text: each as a text. */
static treadle_batch *batch_of(const int64_t *numbers, int64_t rows) {
  static char texts[64][24];
  const char *pointers[64];
  treadle_batch *batch;
  assert_ok(treadle_batch_create(rows, &batch));
  assert_ok(treadle_batch_add(batch, &(treadle_column){.struct_size = sizeof(treadle_column),
                                                       .name = "a",
                                                       .type = TREADLE_COLUMN_INT64,
                                                       .data = (void *)(uintptr_t)numbers}));
  for (int64_t r = 0; r < rows; r++) {
    snprintf(texts[r], sizeof texts[r], "%lld", (long long)numbers[r]);
    pointers[r] = texts[r];
  }
  assert_ok(treadle_batch_add_texts(batch, "text", pointers, NULL));
  return batch;
}

static int64_t *numbers_of(const treadle_batch *batch) {
  treadle_column column = TREADLE_INIT(treadle_column);
  assert_ok(treadle_batch_column(batch, "a", &column));
  return column.data;
}

static void check_numbers(const treadle_batch *batch, const int64_t *wanted, int64_t rows) {
  assert_int_equal(treadle_batch_rows(batch), rows);
  for (int64_t r = 0; r < rows; r++) assert_int_equal(numbers_of(batch)[r], wanted[r]);
}

typedef void run_method(treadle_batch *batch, int32_t worker);

/* Runs a method on the part of each worker, in memory of its own, and gives what comes back. */
static int32_t run(const treadle_dispatch *dispatch, const treadle_batch *batch, run_method *method,
                   treadle_batch *collected[MOST]) {
  int32_t workers = info_of(dispatch).workers, count;
  treadle_batch *parts[MOST], *results[MOST] = {NULL};
  assert_ok(treadle_dispatch_batch(dispatch, 0, batch, parts));
  for (int32_t w = 0; w < workers; w++) {
    if (!parts[w]) continue;
    assert_ok(treadle_batch_repeat(parts[w], 1, true, &results[w])); /* a copy */
    if (method) method(results[w], w);
  }
  assert_ok(treadle_dispatch_collect(dispatch, (const treadle_batch *const *)results, collected, &count));
  for (int32_t w = 0; w < workers; w++) {
    treadle_batch_destroy(parts[w]);
    treadle_batch_destroy(results[w]);
  }
  return count;
}

static void destroy(treadle_batch **batches, int32_t count) {
  for (int32_t i = 0; i < count; i++) treadle_batch_destroy(batches[i]);
}

/* ---- Kinds without rows: verl's basics, 4 workers with x = 2 that give x + y + x or the like ---- */

static void one_to_all(void **state) {
  (void)state;
  static const treadle_dispatch_argument given[] = {
      {TREADLE_ARGUMENT_VALUE, 0}, {TREADLE_ARGUMENT_LIST, 4}, {TREADLE_ARGUMENT_BATCH, 3}};
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_ONE_TO_ALL, sizes[i], given, 3);
    treadle_dispatch *dispatch = create(&spec);
    assert_true(info_of(dispatch).list);
    for (int32_t w = 0; w < sizes[i]; w++) check_whole(dispatch, w, true);
    treadle_dispatch_destroy(dispatch);
  }
}

static void all_to_all(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    int32_t workers = sizes[i];
    treadle_dispatch_argument given[] = {{TREADLE_ARGUMENT_LIST, workers},
                                         {TREADLE_ARGUMENT_LIST, workers}};
    treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_ALL_TO_ALL, workers, given, 2);
    treadle_dispatch *dispatch = create(&spec);
    assert_true(info_of(dispatch).list);
    for (int32_t w = 0; w < workers; w++) check_share(dispatch, w, w, w + 1, 0, true);
    treadle_dispatch_destroy(dispatch);
    /* x=[1..4], y=[5..8] give [8, 10, 12, 14]: worker k takes item k of both. */
    if (workers == 4) {
      static const int64_t x[] = {1, 2, 3, 4}, y[] = {5, 6, 7, 8}, wanted[] = {8, 10, 12, 14};
      dispatch = create(&spec);
      for (int32_t w = 0; w < 4; w++) {
        int64_t at = share_of(dispatch, w).rows.first;
        assert_int_equal(2 + y[at] + x[at], wanted[w]);
      }
      treadle_dispatch_destroy(dispatch);
    }
    /* If one is not such a list, all go whole. */
    given[1].length = workers + 1;
    dispatch = create(&spec);
    for (int32_t w = 0; w < workers; w++) check_whole(dispatch, w, true);
    treadle_dispatch_destroy(dispatch);
    given[1] = (treadle_dispatch_argument){TREADLE_ARGUMENT_BATCH, workers};
    dispatch = create(&spec);
    check_whole(dispatch, 0, true);
    treadle_dispatch_destroy(dispatch);
    spec.argument_count = 0;
    dispatch = create(&spec);
    check_whole(dispatch, 0, true);
    treadle_dispatch_destroy(dispatch);
  }
}

static void rank_zero(void **state) {
  (void)state;
  static const treadle_dispatch_kind whole[] = {TREADLE_DISPATCH_ALL_TO_ALL, TREADLE_DISPATCH_ONE_TO_ALL},
                                     cut[] = {TREADLE_DISPATCH_DP_COMPUTE,
                                              TREADLE_DISPATCH_DP_COMPUTE_PROTO, TREADLE_DISPATCH_ND_MESH,
                                              TREADLE_DISPATCH_CUSTOM};
  static const int64_t numbers[] = {1, 2, 3};
  const treadle_dispatch_argument given = {TREADLE_ARGUMENT_BATCH, 3};
  treadle_dispatch *dispatch;
  treadle_batch *batch = batch_of(numbers, 3), *back[MOST];
  for (size_t i = 0; i < TEST_COUNT(sizes); i++)
    for (size_t k = 0; k < TEST_COUNT(whole); k++) {
      treadle_dispatch_spec spec = spec_of(whole[k], sizes[i], &given, 1);
      spec.execute = TREADLE_EXECUTE_RANK_ZERO;
      dispatch = create(&spec);
      for (int32_t w = 0; w < sizes[i]; w++) check_whole(dispatch, w, w == 0);
      assert_false(info_of(dispatch).list); /* its result, and not a list of it */
      assert_int_equal(run(dispatch, batch, NULL, back), 1);
      check_numbers(back[0], numbers, 3);
      destroy(back, 1);
      treadle_dispatch_destroy(dispatch);
    }
  for (size_t k = 0; k < TEST_COUNT(cut); k++) {
    treadle_dispatch_spec spec = spec_of(cut[k], 4, &given, 1);
    spec.execute = TREADLE_EXECUTE_RANK_ZERO;
    assert_refused("RANK_ZERO runs worker 0 alone", treadle_dispatch_create(&spec, &dispatch));
  }
  treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_RANK_ZERO, 4, &given, 1);
  assert_refused("RANK_ZERO is a way to execute (ALL or RANK_ZERO), not to dispatch",
                 treadle_dispatch_create(&spec, &dispatch));
  assert_null(dispatch);
  treadle_batch_destroy(batch);
}

static void direct_rollout_method(void **state) {
  (void)state;
  treadle_dispatch *dispatch;
  treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_DIRECT_ROLLOUT_METHOD, 4, NULL, 0);
  assert_refused("Direct rollout call is forbidden.", treadle_dispatch_create(&spec, &dispatch));
}

static void dp_compute(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    int32_t workers = sizes[i];
    treadle_dispatch_argument given[] = {{TREADLE_ARGUMENT_LIST, workers},
                                         {TREADLE_ARGUMENT_LIST, workers}};
    treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_DP_COMPUTE, workers, given, 2);
    treadle_dispatch *dispatch = create(&spec);
    assert_true(info_of(dispatch).list);
    for (int32_t w = 0; w < workers; w++) check_share(dispatch, w, w, w + 1, 0, true);
    treadle_dispatch_destroy(dispatch);
    given[1].length = workers + 1;
    assert_refused("argument 1 has", treadle_dispatch_create(&spec, &dispatch));
    given[1] = (treadle_dispatch_argument){TREADLE_ARGUMENT_BATCH, workers};
    assert_refused("argument 1 is a batch; it must be a list", treadle_dispatch_create(&spec, &dispatch));
  }
}

/* ---- Chunks ---- */

static void keep_worker(treadle_batch *batch, int32_t worker) {
  for (int64_t r = 0; r < treadle_batch_rows(batch); r++) numbers_of(batch)[r] += 100 * (worker + 1);
}

/* Equal rows on each number of workers: ranges, memory, and what comes back in order. */
static void dp_compute_proto(void **state) {
  (void)state;
  static const int64_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const treadle_dispatch_argument given[] = {{TREADLE_ARGUMENT_BATCH, 16}, {TREADLE_ARGUMENT_BATCH, 16}};
  treadle_batch *batch = batch_of(numbers, 16), *parts[MOST], *back[MOST];
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    int32_t workers = sizes[i];
    int64_t each = 16 / workers;
    treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_DP_COMPUTE_PROTO, workers, given, 2);
    treadle_dispatch *dispatch = create(&spec);
    assert_int_equal(info_of(dispatch).chunks, workers);
    assert_false(info_of(dispatch).list);
    for (int32_t w = 0; w < workers; w++) check_share(dispatch, w, each * w, each * w + each, 0, true);
    assert_ok(treadle_dispatch_batch(dispatch, 1, batch, parts));
    for (int32_t w = 0; w < workers; w++) {
      assert_ptr_equal(numbers_of(parts[w]), numbers_of(batch) + each * w); /* the same memory */
      assert_int_equal(treadle_batch_rows(parts[w]), each);
    }
    destroy(parts, workers);
    assert_int_equal(run(dispatch, batch, keep_worker, back), 1);
    for (int64_t r = 0; r < 16; r++)
      assert_int_equal(numbers_of(back[0])[r], r + 100 * (r / each + 1)); /* and the batch is as it was */
    check_numbers(batch, numbers, 16);
    destroy(back, 1);
    treadle_dispatch_destroy(dispatch);
  }
  treadle_batch_destroy(batch);
}

/* 2 workers that add 10 and their rank. */
static void add_rank(treadle_batch *batch, int32_t worker) {
  for (int64_t r = 0; r < treadle_batch_rows(batch); r++) numbers_of(batch)[r] += 10 + worker;
}

static void twice_and_five(treadle_batch *batch, int32_t worker) {
  for (int64_t r = 0; r < treadle_batch_rows(batch); r++)
    numbers_of(batch)[r] = 2 * numbers_of(batch)[r] + 5 + worker;
}

static void dp_dispatch(void **state) {
  (void)state;
  static const int64_t numbers[] = {0, 1, 2, 3};
  const treadle_dispatch_argument given = {TREADLE_ARGUMENT_BATCH, 4};
  treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_DP_COMPUTE_PROTO, 2, &given, 1);
  treadle_dispatch *dispatch = create(&spec);
  treadle_batch *batch = batch_of(numbers, 4), *back[MOST];
  assert_int_equal(run(dispatch, batch, add_rank, back), 1);
  check_numbers(back[0], (const int64_t[]){10, 11, 13, 14}, 4);
  destroy(back, 1);
  assert_int_equal(run(dispatch, batch, twice_and_five, back), 1);
  check_numbers(back[0], (const int64_t[]){5, 7, 10, 12}, 4);
  destroy(back, 1);
  treadle_dispatch_destroy(dispatch);
  treadle_batch_destroy(batch);
}

static void behind_a_function(void **state) {
  (void)state;
  treadle_dispatch_argument given[] = {{TREADLE_ARGUMENT_FUNCTION, 0}, {TREADLE_ARGUMENT_BATCH, 8}};
  treadle_dispatch *dispatch;
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_DP_COMPUTE_PROTO_WITH_FUNC, sizes[i], given, 2);
    dispatch = create(&spec);
    for (int32_t w = 0; w < sizes[i]; w++)
      check_share(dispatch, w, 8 / sizes[i] * w, 8 / sizes[i] * (w + 1), 0, true);
    assert_false(info_of(dispatch).list);
    treadle_dispatch_destroy(dispatch);
    spec.arguments = given + 1;
    spec.argument_count = 1;
    assert_refused("the first argument must be a function, not a batch",
                   treadle_dispatch_create(&spec, &dispatch));
    spec.argument_count = 0;
    assert_refused("the first argument must be a function, not nothing",
                   treadle_dispatch_create(&spec, &dispatch));
    spec.kind = TREADLE_DISPATCH_DP_COMPUTE_PROTO;
    spec.arguments = given;
    spec.argument_count = 2;
    assert_refused("argument 0 is a function; it must be a batch",
                   treadle_dispatch_create(&spec, &dispatch));
  }
}

static void metric(void **state) {
  (void)state;
  static const int64_t numbers[] = {1, 2, 3, 4, 5, 6, 7, 8};
  treadle_dispatch_argument given = {TREADLE_ARGUMENT_BATCH, 8};
  treadle_batch *batch = batch_of(numbers, 8), *back[MOST];
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    int64_t each = 8 / sizes[i];
    treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_DP_COMPUTE_METRIC, sizes[i], &given, 1);
    treadle_dispatch *dispatch = create(&spec);
    assert_true(info_of(dispatch).list);
    assert_int_equal(run(dispatch, batch, NULL, back), sizes[i]); /* a plain list */
    for (int32_t w = 0; w < sizes[i]; w++) check_numbers(back[w], numbers + each * w, each);
    destroy(back, sizes[i]);
    treadle_dispatch_destroy(dispatch);
  }
  /* A worker is told which of its rows are padding: 8 rows and 3 workers. */
  treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_DP_COMPUTE_METRIC, 3, &given, 1);
  spec.auto_padding = true;
  treadle_dispatch *dispatch = create(&spec);
  check_share(dispatch, 2, 6, 9, 1, true);
  assert_int_equal(run(dispatch, batch, NULL, back), 3);
  check_numbers(back[2], (const int64_t[]){7, 8, 8}, 3);
  destroy(back, 3);
  treadle_dispatch_destroy(dispatch);
  treadle_batch_destroy(batch);
}

static void lengths(void **state) {
  (void)state;
  treadle_dispatch_argument given[] = {{TREADLE_ARGUMENT_BATCH, 8}, {TREADLE_ARGUMENT_BATCH, 6}};
  treadle_dispatch *dispatch;
  treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_DP_COMPUTE_PROTO, 2, given, 2);
  assert_refused("expecting all arg share same length of 8, but got 6 for argument 1",
                 treadle_dispatch_create(&spec, &dispatch));
  spec.auto_padding = true;
  assert_refused("expecting all arg share same length", treadle_dispatch_create(&spec, &dispatch));
  spec.auto_padding = false;
  spec.argument_count = 1;
  spec.workers = 3;
  assert_refused("only support equal chunk: 8 rows do not divide into 3 parts",
                 treadle_dispatch_create(&spec, &dispatch));
  given[0].length = -1;
  assert_refused("argument 0 has -1 rows", treadle_dispatch_create(&spec, &dispatch));
}

/* ---- Padding ---- */

/* Chunks have ceil(n / workers) rows; padding is the last row, or the first; as many rows come back as went. */
static void auto_padding(void **state) {
  (void)state;
  int64_t numbers[20];
  treadle_batch *parts[MOST], *back[MOST];
  for (int64_t r = 0; r < 20; r++) numbers[r] = 1000 + r;
  for (size_t i = 0; i < TEST_COUNT(sizes); i++)
    for (int64_t rows = 0; rows < 20; rows++)
      for (int first = 0; first < 2; first++) {
        int32_t workers = sizes[i];
        int64_t each = (rows + workers - 1) / workers, padding = each * workers - rows, seen = 0;
        const treadle_dispatch_argument given = {TREADLE_ARGUMENT_BATCH, rows};
        treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_DP_COMPUTE_PROTO, workers, &given, 1);
        spec.auto_padding = true;
        spec.pad_with_first = first;
        treadle_dispatch *dispatch = create(&spec);
        treadle_batch *batch = batch_of(numbers, rows);
        assert_int_equal(info_of(dispatch).padding, padding);
        assert_ok(treadle_dispatch_batch(dispatch, 0, batch, parts));
        for (int32_t w = 0; w < workers; w++) {
          const treadle_dispatch_share share = share_of(dispatch, w);
          assert_int_equal(treadle_batch_rows(parts[w]), each);
          assert_int_equal(share.rows.first, each * w);
          for (int64_t r = 0; r < each; r++) {
            int64_t row = each * w + r, wanted = row < rows ? row : first ? 0 : rows - 1;
            assert_int_equal(numbers_of(parts[w])[r], numbers[wanted]);
            assert_int_equal(row >= rows, r >= each - share.padding);
          }
          seen += share.padding;
          if (share.padding == 0) assert_ptr_equal(numbers_of(parts[w]), numbers_of(batch) + each * w);
        }
        assert_int_equal(seen, padding);
        assert_int_equal(treadle_batch_rows(batch), rows); /* the caller's batch is as it was */
        destroy(parts, workers);
        assert_int_equal(run(dispatch, batch, NULL, back), 1);
        check_numbers(back[0], numbers, rows);
        destroy(back, 1);
        treadle_batch_destroy(batch);
        treadle_dispatch_destroy(dispatch);
      }
}

/* ---- Meshes ---- */

static treadle_meshes *meshes_of(const char *name, int32_t workers, const int32_t *dp_ranks,
                                 const bool *collects) {
  treadle_meshes *meshes;
  assert_ok(treadle_meshes_create(workers, &meshes));
  for (int32_t w = 0; w < workers; w++)
    assert_ok(treadle_meshes_register(meshes, name, w, dp_ranks[w], collects[w]));
  return meshes;
}

/* dp 2 x tp 4, and pp 2 x dp 2 x tp 2, of 8 workers. */
static const int32_t infer_dp[] = {0, 0, 0, 0, 1, 1, 1, 1}, train_dp[] = {0, 0, 1, 1, 0, 0, 1, 1};
static const bool infer_collects[] = {1, 0, 0, 0, 1, 0, 0, 0}, train_collects[] = {0, 0, 0, 0, 1, 0, 1, 0};

static void infer(treadle_batch *batch, int32_t worker) {
  for (int64_t r = 0; r < treadle_batch_rows(batch); r++)
    numbers_of(batch)[r] += (worker % 4 + 1) * infer_dp[worker];
}

static void train(treadle_batch *batch, int32_t worker) {
  for (int64_t r = 0; r < treadle_batch_rows(batch); r++)
    numbers_of(batch)[r] += (worker % 2 + 1) * (train_dp[worker] + 2) * (worker / 4 + 3);
}

static void nd_mesh(void **state) {
  (void)state;
  static const int64_t asked[] = {1, 2}, trained[] = {3, 4};
  const treadle_dispatch_argument given = {TREADLE_ARGUMENT_BATCH, 2};
  int32_t dp_size;
  treadle_meshes *meshes = meshes_of("infer", 8, infer_dp, infer_collects);
  for (int32_t w = 0; w < 8; w++)
    assert_ok(treadle_meshes_register(meshes, "train", w, train_dp[w], train_collects[w]));
  assert_ok(treadle_meshes_dp_size(meshes, "train", &dp_size));
  assert_int_equal(dp_size, 2);
  treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_ND_MESH, 8, &given, 1);
  spec.meshes = meshes;
  spec.mesh = "infer";
  treadle_dispatch *dispatch = create(&spec);
  treadle_batch *batch = batch_of(asked, 2), *back[MOST];
  assert_int_equal(info_of(dispatch).chunks, 2);
  for (int32_t w = 0; w < 8; w++) check_share(dispatch, w, infer_dp[w], infer_dp[w] + 1, 0, w % 4 == 0);
  assert_int_equal(run(dispatch, batch, infer, back), 1);
  check_numbers(back[0], (const int64_t[]){1, 3}, 2);
  destroy(back, 1);
  treadle_batch_destroy(batch);
  treadle_dispatch_destroy(dispatch);
  spec.mesh = "train";
  dispatch = create(&spec);
  batch = batch_of(trained, 2);
  for (int32_t w = 0; w < 8; w++)
    check_share(dispatch, w, train_dp[w], train_dp[w] + 1, 0, w == 4 || w == 6);
  assert_int_equal(run(dispatch, batch, train, back), 1);
  check_numbers(back[0], (const int64_t[]){11, 16}, 2);
  destroy(back, 1);
  treadle_batch_destroy(batch);
  treadle_dispatch_destroy(dispatch);
  treadle_meshes_destroy(meshes);
}

/* One dp rank a worker, on any number of them: as DP_COMPUTE_PROTO. And 5 rows for dp ranks that are not in the order of
 * workers, where each worker's padding is cut off what that worker gave. */
static void meshes_of_other_sizes(void **state) {
  (void)state;
  static const int32_t ranks[] = {0, 1, 2, 3, 4, 5, 6, 7}, turned[] = {1, 0};
  static const bool all[] = {1, 1, 1, 1, 1, 1, 1, 1};
  static const int64_t numbers[] = {1, 2, 3, 4, 5, 6, 7, 8};
  treadle_dispatch_argument given = {TREADLE_ARGUMENT_BATCH, 8};
  treadle_batch *batch = batch_of(numbers, 8), *back[MOST];
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_ND_MESH, sizes[i], &given, 1);
    treadle_meshes *meshes = meshes_of("actor", sizes[i], ranks, all);
    spec.meshes = meshes;
    spec.mesh = "actor";
    treadle_dispatch *dispatch = create(&spec);
    treadle_meshes_destroy(meshes);
    assert_int_equal(run(dispatch, batch, NULL, back), 1);
    check_numbers(back[0], numbers, 8);
    destroy(back, 1);
    treadle_dispatch_destroy(dispatch);
  }
  treadle_batch_destroy(batch);
  given.length = 5;
  batch = batch_of(numbers, 5);
  treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_ND_MESH, 2, &given, 1);
  treadle_meshes *meshes = meshes_of("turned", 2, turned, all);
  spec.meshes = meshes;
  spec.mesh = "turned";
  spec.auto_padding = true;
  treadle_dispatch *dispatch = create(&spec);
  assert_int_equal(run(dispatch, batch, NULL, back), 1);
  check_numbers(back[0], (const int64_t[]){4, 5, 1, 2, 3}, 5);
  destroy(back, 1);
  treadle_dispatch_destroy(dispatch);
  treadle_meshes_destroy(meshes);
  treadle_batch_destroy(batch);
}

static void refused_mesh(const char *words, int32_t workers, const int32_t *dp_ranks,
                         const bool *collects) {
  int32_t dp_size;
  treadle_meshes *meshes = meshes_of("actor", workers, dp_ranks, collects);
  assert_refused(words, treadle_meshes_dp_size(meshes, "actor", &dp_size));
  assert_int_equal(dp_size, 0);
  treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_ND_MESH, workers, NULL, 0);
  treadle_dispatch *dispatch;
  spec.meshes = meshes;
  spec.mesh = "actor";
  assert_refused(words, treadle_dispatch_create(&spec, &dispatch));
  treadle_meshes_destroy(meshes);
}

static void refused_meshes(void **state) {
  (void)state;
  treadle_meshes *meshes;
  treadle_dispatch *dispatch;
  int32_t dp_size;
  assert_refused("0 workers", treadle_meshes_create(0, &meshes));
  assert_ok(treadle_meshes_create(2, &meshes));
  assert_refused("mesh 'actor' is not registered; there is none",
                 treadle_meshes_dp_size(meshes, "actor", &dp_size));
  assert_refused("worker 2; there are 2", treadle_meshes_register(meshes, "actor", 2, 0, true));
  assert_refused("dp rank 2 of worker 0", treadle_meshes_register(meshes, "actor", 0, 2, true));
  assert_refused("dp rank -1", treadle_meshes_register(meshes, "actor", 0, -1, true));
  assert_refused("at least one character", treadle_meshes_register(meshes, "", 0, 0, true));
  assert_ok(treadle_meshes_register(meshes, "actor", 1, 1, true));
  assert_refused("mesh_name actor has been registered: worker 1 has dp rank 1 in it",
                 treadle_meshes_register(meshes, "actor", 1, 0, true));
  assert_refused("mesh 'actor' is not registered by worker 0 of 2",
                 treadle_meshes_dp_size(meshes, "actor", &dp_size));
  assert_ok(treadle_meshes_register(meshes, "actor", 0, 0, true));
  assert_refused("mesh 'critic' is not registered; there is 'actor'",
                 treadle_meshes_dp_size(meshes, "critic", &dp_size));
  treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_ND_MESH, 4, NULL, 0);
  assert_refused("needs meshes", treadle_dispatch_create(&spec, &dispatch));
  spec.meshes = meshes;
  spec.mesh = "actor";
  assert_refused("meshes of 2 workers; the call has 4", treadle_dispatch_create(&spec, &dispatch));
  treadle_meshes_destroy(meshes);
  refused_mesh("no worker has dp rank 1, and one has 2", 3, (const int32_t[]){0, 2, 0},
               (const bool[]){1, 1, 0});
  refused_mesh("dp rank 1 is collected from no worker", 2, (const int32_t[]){0, 1}, (const bool[]){1, 0});
  refused_mesh("dp rank 0 is collected from workers 0 and 2", 3, (const int32_t[]){0, 1, 0},
               (const bool[]){1, 1, 1});
}

/* ---- Kinds of the caller's ---- */

/* A list of 2, and workers take its items in turn. */
static treadle_status in_turn(void *context, int32_t workers, const treadle_dispatch_argument *arguments,
                              size_t count, treadle_row_range *by_worker) {
  (void)arguments, (void)count;
  for (int32_t w = 0; w < workers; w++) by_worker[w] = (treadle_row_range){w % 2, w % 2 + 1};
  return context ? *(treadle_status *)context : TREADLE_OK;
}

/* The last first. */
static treadle_status turned_round(void *context, const treadle_batch *const *results, int32_t workers,
                                   treadle_batch **collected, int32_t *count_p) {
  (void)context;
  for (int32_t w = 0; w < workers; w++)
    assert_ok(treadle_batch_slice(results[workers - 1 - w], 0, treadle_batch_rows(results[workers - 1 - w]),
                                  &collected[w]));
  *count_p = workers;
  return TREADLE_OK;
}

static void of_the_caller(void **state) {
  (void)state;
  static const int64_t x[] = {1, 2}, y[] = {5, 6}, wanted[] = {8, 10, 8, 10};
  treadle_dispatch_argument given[] = {{TREADLE_ARGUMENT_LIST, 2}, {TREADLE_ARGUMENT_LIST, 2}};
  treadle_dispatch_functions functions = {
      .struct_size = sizeof functions, .name = "two_to_all", .dispatch = in_turn, .collect = turned_round};
  treadle_dispatch *dispatch;
  treadle_batch *batch = batch_of(x, 2), *back[MOST];
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_CUSTOM, sizes[i], given, 2);
    spec.functions = &functions;
    dispatch = create(&spec);
    assert_true(info_of(dispatch).custom);
    for (int32_t w = 0; w < sizes[i]; w++) {
      int64_t at = share_of(dispatch, w).rows.first;
      check_share(dispatch, w, w % 2, w % 2 + 1, 0, true);
      assert_int_equal(2 + y[at] + x[at], wanted[w % 4]);
    }
    treadle_dispatch_destroy(dispatch);
    treadle_dispatch_argument rows = {TREADLE_ARGUMENT_BATCH, 2};
    spec.arguments = &rows;
    spec.argument_count = 1;
    dispatch = create(&spec);
    assert_int_equal(run(dispatch, batch, NULL, back), sizes[i]);
    for (int32_t w = 0; w < sizes[i]; w++) check_numbers(back[w], &x[(sizes[i] - 1 - w) % 2], 1);
    destroy(back, sizes[i]);
    treadle_dispatch_destroy(dispatch);
  }
  treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_CUSTOM, 4, given, 2);
  assert_refused("no functions", treadle_dispatch_create(&spec, &dispatch));
  spec.functions = &functions;
  functions.collect = NULL;
  assert_refused("two_to_all: both dispatch and collect are needed, and collect is NULL",
                 treadle_dispatch_create(&spec, &dispatch));
  functions.collect = turned_round;
  functions.dispatch = NULL;
  assert_refused("and dispatch is NULL", treadle_dispatch_create(&spec, &dispatch));
  functions.dispatch = in_turn;
  given[1].length = 1;
  assert_refused("two_to_all: rows 1 up to 2 for worker 1; argument 1 has 1",
                 treadle_dispatch_create(&spec, &dispatch));
  treadle_status peer = TREADLE_PEER;
  functions.context = &peer; /* a failure of its own goes on as it is */
  assert_int_equal(treadle_dispatch_create(&spec, &dispatch), TREADLE_PEER);
  treadle_batch_destroy(batch);
}

/* ---- What batches are refused ---- */

static void refused_batches(void **state) {
  (void)state;
  static const int64_t numbers[] = {1, 2, 3, 4, 5};
  const treadle_dispatch_argument given[] = {{TREADLE_ARGUMENT_BATCH, 5}, {TREADLE_ARGUMENT_BATCH, 5}};
  treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_DP_COMPUTE_PROTO, 2, given, 2);
  treadle_batch *batch = batch_of(numbers, 5), *short_one = batch_of(numbers, 3), *parts[2], *back[2];
  int32_t count;
  spec.auto_padding = true;
  treadle_dispatch *dispatch = create(&spec);
  assert_refused("argument 0 of the call has 5 rows, this batch 3",
                 treadle_dispatch_batch(dispatch, 0, short_one, parts));
  assert_null(parts[0]);
  assert_refused("argument 2; the call has 2", treadle_dispatch_batch(dispatch, 2, batch, parts));
  assert_refused(
      "worker 1 gave nothing back",
      treadle_dispatch_collect(dispatch, (const treadle_batch *const[]){short_one, NULL}, back, &count));
  assert_int_equal(count, 0);
  assert_null(back[0]);
  assert_refused(
      "worker 1 gave 5 rows back for 3: among them are rows of padding",
      treadle_dispatch_collect(dispatch, (const treadle_batch *const[]){short_one, batch}, back, &count));
  treadle_dispatch_destroy(dispatch);
  /* Without padding a method may give any number of rows back, such as several answers to a prompt. */
  spec.auto_padding = false;
  spec.arguments = &(const treadle_dispatch_argument){TREADLE_ARGUMENT_BATCH, 4};
  spec.argument_count = 1;
  dispatch = create(&spec);
  assert_ok(
      treadle_dispatch_collect(dispatch, (const treadle_batch *const[]){short_one, batch}, back, &count));
  check_numbers(back[0], (const int64_t[]){1, 2, 3, 1, 2, 3, 4, 5}, 8);
  destroy(back, count);
  treadle_dispatch_destroy(dispatch);
  treadle_batch_destroy(batch);
  treadle_batch_destroy(short_one);
}

/* Metrics of workers become lists, of one worker too. */
static void metrics_of_workers(void **state) {
  (void)state;
  static const int64_t numbers[] = {1, 2, 3, 4, 5, 6, 7, 8};
  const treadle_dispatch_argument given = {TREADLE_ARGUMENT_BATCH, 8};
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_DP_COMPUTE_PROTO, sizes[i], &given, 1);
    treadle_dispatch *dispatch = create(&spec);
    treadle_batch *batch = batch_of(numbers, 8), *back[MOST];
    assert_ok(treadle_batch_set_meta(batch, "metrics", "{\"loss\": 1}"));
    assert_int_equal(run(dispatch, batch, NULL, back), 1);
    char wanted[64] = "{\"loss\":[1";
    for (int32_t w = 1; w < sizes[i]; w++) strcat(wanted, ",1");
    assert_string_equal(treadle_batch_meta(back[0], "metrics"), strcat(wanted, "]}"));
    destroy(back, 1);
    treadle_batch_destroy(batch);
    treadle_dispatch_destroy(dispatch);
  }
}

/* ---- Memory that is out ---- */

static treadle_status everything(const treadle_batch *batch) {
  static const treadle_dispatch_argument given = {TREADLE_ARGUMENT_BATCH, 5};
  treadle_status status;
  treadle_meshes *meshes = NULL;
  treadle_dispatch *dispatch = NULL;
  treadle_batch *parts[4] = {0}, *back[4] = {0};
  int32_t count = 0;
  treadle_dispatch_spec spec = spec_of(TREADLE_DISPATCH_ND_MESH, 4, &given, 1);
  spec.auto_padding = true;
  spec.mesh = "m";
  if ((status = treadle_meshes_create(4, &meshes))) goto out;
  for (int32_t w = 0; w < 4; w++)
    if ((status = treadle_meshes_register(meshes, "m", w, w / 2, w % 2))) goto out;
  spec.meshes = meshes;
  if ((status = treadle_dispatch_create(&spec, &dispatch))) goto out;
  if ((status = treadle_dispatch_batch(dispatch, 0, batch, parts))) goto out;
  status = treadle_dispatch_collect(dispatch, (const treadle_batch *const *)parts, back, &count);
out:
  destroy(parts, 4);
  destroy(back, count);
  treadle_dispatch_destroy(dispatch);
  treadle_meshes_destroy(meshes);
  return status;
}

static void memory_is_out(void **state) {
  (void)state;
  static const int64_t numbers[] = {1, 2, 3, 4, 5};
  treadle_batch *batch = batch_of(numbers, 5);
  TEST_EACH_ALLOCATION(everything(batch));
  treadle_batch_destroy(batch);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_to_all),
      cmocka_unit_test(all_to_all),
      cmocka_unit_test(rank_zero),
      cmocka_unit_test(direct_rollout_method),
      cmocka_unit_test(dp_compute),
      cmocka_unit_test(dp_compute_proto),
      cmocka_unit_test(dp_dispatch),
      cmocka_unit_test(behind_a_function),
      cmocka_unit_test(metric),
      cmocka_unit_test(lengths),
      cmocka_unit_test(auto_padding),
      cmocka_unit_test(nd_mesh),
      cmocka_unit_test(meshes_of_other_sizes),
      cmocka_unit_test(refused_meshes),
      cmocka_unit_test(of_the_caller),
      cmocka_unit_test(refused_batches),
      cmocka_unit_test(metrics_of_workers),
      cmocka_unit_test(memory_is_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
