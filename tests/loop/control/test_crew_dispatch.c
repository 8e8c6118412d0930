/* Calls of workers by each way of dispatch, with the numbers of verl's own tests, on 1, 2, 4 and 8 workers that are processes. The controller is a process of
 * its own, or the first worker. */
#include "group/ranks.h"
#include "test.h"
#include "treadle_control.h"

#include <stdlib.h>

/* ---- The class: what it is given, and what it was made with ---- */

typedef struct worker {
  int64_t x, rank, tp, dp, pp; /* places in the mesh "train"; in "infer" it has others */
} worker;

static int64_t meta_int(const treadle_batch *batch, const char *key) {
  const char *json = treadle_batch_meta(batch, key);
  return json ? atoll(json) : 0;
}

static treadle_status create(const treadle_worker_place *place, const treadle_batch *options,
                             void **worker_p) {
  worker *w = calloc(1, sizeof *w);
  const int64_t rank = place->rank;
  treadle_status status = TREADLE_OK;
  *w = (worker){meta_int(options, "x"), rank, rank % 2, rank / 2 % 2, rank / 4};
  *worker_p = w;
  if (place->size != 8) return status;
  status = treadle_meshes_register(place->meshes, "infer", place->rank, (int32_t)(rank / 4), rank % 4 == 0);
  if (!status)
    status = treadle_meshes_register(place->meshes, "train", place->rank, (int32_t)w->dp,
                                     w->tp == 0 && w->pp == 1);
  if (!status && meta_int(options, "twice"))
    status = treadle_meshes_register(place->meshes, "train", place->rank, 0, false);
  if (status) free(w);
  return status;
}

static int64_t value(const treadle_batch *batch, const char *name, int64_t row) {
  treadle_column c = TREADLE_INIT(treadle_column);
  if (!treadle_batch_has(batch, name) || treadle_batch_column(batch, name, &c)) return 0;
  return ((const int64_t *)c.data)[row];
}

/* A row for each of those of `in`: a + b, times `times`, plus `more`. */
static treadle_status answer(const treadle_batch *in, int64_t times, int64_t more, treadle_batch **out_p) {
  const int64_t rows = treadle_batch_rows(in);
  treadle_column c = {.struct_size = sizeof c, .name = "a", .type = TREADLE_COLUMN_INT64};
  treadle_status status = treadle_batch_create(rows, out_p);
  if (!status) status = treadle_batch_add(*out_p, &c);
  if (!status) status = treadle_batch_column(*out_p, "a", &c);
  for (int64_t r = 0; !status && r < rows; r++)
    ((int64_t *)c.data)[r] = times * (value(in, "a", r) + value(in, "b", r)) + more;
  return status;
}

static treadle_status add(void *of, const treadle_batch *in, treadle_batch **out_p) {
  return answer(in, 1, ((const worker *)of)->x, out_p);
}
static treadle_status add_rank(void *of, const treadle_batch *in, treadle_batch **out_p) {
  return answer(in, 1, ((const worker *)of)->x + ((const worker *)of)->rank, out_p);
}
static treadle_status twice(void *of, const treadle_batch *in, treadle_batch **out_p) {
  return answer(in, 2, 5 + ((const worker *)of)->rank, out_p);
}
static treadle_status infer(void *of, const treadle_batch *in, treadle_batch **out_p) {
  const int64_t rank = ((const worker *)of)->rank;
  return answer(in, 1, (rank % 4 + 1) * (rank / 4), out_p);
}
static treadle_status train(void *of, const treadle_batch *in, treadle_batch **out_p) {
  const worker *w = of;
  return answer(in, 1, (w->tp + 1) * (w->dp + 2) * (w->pp + 3), out_p);
}
static treadle_status fewer(void *of, const treadle_batch *in, treadle_batch **out_p) {
  (void)of, (void)in;
  return treadle_batch_create(1, out_p);
}

/* Two rows for four workers: one of them each, in turn. */
static treadle_status in_turn(void *context, int32_t workers, const treadle_dispatch_argument *arguments,
                              size_t count, treadle_row_range *by_worker) {
  (void)context, (void)count;
  for (int32_t w = 0; w < workers; w++)
    by_worker[w] = (treadle_row_range){w % arguments[0].length, w % arguments[0].length + 1};
  return TREADLE_OK;
}
static treadle_status all_of(void *context, const treadle_batch *const *results, int32_t workers,
                             treadle_batch **collected, int32_t *count_p) {
  (void)context;
  *count_p = 1;
  return treadle_batch_concat(results, (size_t)workers, collected);
}
static const treadle_dispatch_functions turns = {
    .struct_size = sizeof turns, .name = "in turn", .dispatch = in_turn, .collect = all_of};

static const treadle_class_method methods[] = {
    {.name = "one_to_all", .function = add, .dispatch = TREADLE_DISPATCH_ONE_TO_ALL},
    {.name = "all_to_all", .function = add, .dispatch = TREADLE_DISPATCH_ALL_TO_ALL},
    {.name = "dp_compute", .function = add_rank, .dispatch = TREADLE_DISPATCH_DP_COMPUTE},
    {.name = "rank_zero",
     .function = add,
     .dispatch = TREADLE_DISPATCH_ONE_TO_ALL,
     .execute = TREADLE_EXECUTE_RANK_ZERO},
    {.name = "custom", .function = add, .dispatch = TREADLE_DISPATCH_CUSTOM, .functions = &turns},
    {.name = "proto", .function = add_rank, .dispatch = TREADLE_DISPATCH_DP_COMPUTE_PROTO},
    {.name = "async", .function = twice, .dispatch = TREADLE_DISPATCH_DP_COMPUTE_PROTO},
    {.name = "padded",
     .function = add,
     .dispatch = TREADLE_DISPATCH_DP_COMPUTE_PROTO,
     .auto_padding = true},
    {.name = "fewer",
     .function = fewer,
     .dispatch = TREADLE_DISPATCH_DP_COMPUTE_PROTO,
     .auto_padding = true},
    {.name = "metric",
     .function = add_rank,
     .dispatch = TREADLE_DISPATCH_DP_COMPUTE_METRIC,
     .blocking = true},
    {.name = "with_func", .function = add, .dispatch = TREADLE_DISPATCH_DP_COMPUTE_PROTO_WITH_FUNC},
    {.name = "direct", .function = add, .dispatch = TREADLE_DISPATCH_DIRECT_ROLLOUT_METHOD},
    {.name = "as_rank_zero", .function = add, .dispatch = TREADLE_DISPATCH_RANK_ZERO},
    {.name = "infer", .function = infer, .dispatch = TREADLE_DISPATCH_ND_MESH, .mesh = "infer"},
    {.name = "train", .function = train, .dispatch = TREADLE_DISPATCH_ND_MESH, .mesh = "train"},
    {.name = "no_mesh", .function = train, .dispatch = TREADLE_DISPATCH_ND_MESH, .mesh = "critic"}};
static const treadle_worker_class classes[] = {{.struct_size = sizeof *classes,
                                                .name = "worker",
                                                .methods = methods,
                                                .method_count = TEST_COUNT(methods),
                                                .create = create,
                                                .destroy = free}};

/* ---- The controller's side ---- */

static treadle_batch *rows_of(const char *name, const int64_t *values, int64_t count) {
  treadle_batch *batch = NULL;
  int64_t copy[64];
  memcpy(copy, values, (size_t)count * sizeof *values);
  const treadle_column c = {
      .struct_size = sizeof c, .name = name, .type = TREADLE_COLUMN_INT64, .data = copy};
  if (!treadle_batch_create(count, &batch)) (void)treadle_batch_add(batch, &c);
  return batch;
}
#define ROWS(name, ...)                                                                                    \
  rows_of(name, (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* What comes back: column a of all. -1: the call fails. */
static int64_t take(treadle_workers *w, const char *method, const treadle_call_input *in, int64_t *values) {
  treadle_future *f;
  treadle_batch *parts[8] = {0};
  size_t count = 0;
  int64_t rows = 0;
  if (treadle_workers_call(w, method, in, &f)) return -1;
  treadle_status status = treadle_future_take(f, NULL, 0, &parts[0]);
  count = !status;
  if (status == TREADLE_REFUSED && strstr(treadle_error_message(), "are a list"))
    status = treadle_future_take_list(f, parts, &count);
  for (size_t i = 0; i < count; i++) {
    for (int64_t r = 0; r < treadle_batch_rows(parts[i]); r++) values[rows++] = value(parts[i], "a", r);
    treadle_batch_destroy(parts[i]);
  }
  treadle_future_destroy(f);
  return status ? -1 : rows;
}

static bool gives(treadle_workers *w, const char *method, treadle_batch *batch, const int64_t *wanted,
                  int64_t count) {
  const treadle_call_input in = {.struct_size = sizeof in, .batch = batch};
  int64_t values[64];
  const bool right =
      take(w, method, &in, values) == count && memcmp(values, wanted, (size_t)count * sizeof *values) == 0;
  treadle_batch_destroy(batch);
  return right;
}
#define GIVES(method, batch, ...)                                                                          \
  RANK_TRUE(gives(w, method, batch, (const int64_t[]){__VA_ARGS__},                                        \
                  sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

/* Fails with the field's sentence. */
static treadle_status of(treadle_workers *w, const char *method, treadle_batch *batch) {
  const treadle_call_input in = {.struct_size = sizeof in, .batch = batch};
  int64_t values[64];
  const int64_t rows = take(w, method, &in, values);
  treadle_batch_destroy(batch);
  return rows < 0 ? TREADLE_REFUSED : TREADLE_OK;
}

static treadle_status make(treadle_crew *crew, int count, int first, const char *x, treadle_workers **w_p) {
  int32_t ranks[8];
  treadle_batch *options;
  for (int i = 0; i < count; i++) ranks[i] = first + i;
  treadle_status status = treadle_batch_create(0, &options);
  if (!status) status = treadle_batch_set_meta(options, x[0] == 't' ? "twice" : "x", x[0] == 't' ? "1" : x);
  if (!status) status = treadle_workers_create(crew, ranks, (size_t)count, "worker", options, w_p);
  treadle_batch_destroy(options);
  return status;
}

static treadle_batch *both(int64_t a, int64_t b) {
  treadle_batch *batch = rows_of("a", &a, 1), *other = rows_of("b", &b, 1);
  (void)treadle_batch_union(batch, other);
  treadle_batch_destroy(other);
  return batch;
}

/* Any number of workers. */
static int control_any(treadle_crew *crew, int count, int first) {
  treadle_workers *w;
  int64_t wanted[64], values[64];
  RANK_OK(make(crew, count, first, "2", &w));
  for (int i = 0; i < count; i++) wanted[i] = 5;
  RANK_TRUE(gives(w, "one_to_all", ROWS("a", 3), wanted, count)); /* foo(3) */
  RANK_TRUE(gives(w, "one_to_all", both(1, 2), wanted, count));
  RANK_TRUE(gives(w, "all_to_all", both(1, 2), wanted, count)); /* no list: whole */
  GIVES("rank_zero", ROWS("a", 3), 5);
  /* A list: each its own. */
  treadle_batch *list[8];
  for (int i = 0; i < count; i++) {
    list[i] = both(1 + i, 5 + i);
    wanted[i] = 8 + 2 * i;
  }
  treadle_call_input in = {.struct_size = sizeof in, .list_count = (size_t)count};
  const treadle_batch *const *as_list = (const treadle_batch *const *)list;
  in.list = as_list;
  RANK_TRUE(take(w, "all_to_all", &in, values) == count &&
            memcmp(values, wanted, (size_t)count * sizeof *values) == 0);
  RANK_TRUE(take(w, "dp_compute", &in, values) == count &&
            values[count - 1] == wanted[count - 1] + count - 1);
  in.list_count++;
  RANK_TRUE(take(w, "dp_compute", &in, values) == -1);
  RANK_TRUE(strstr(treadle_error_message(), "a list of"));
  for (int i = 0; i < count; i++) treadle_batch_destroy(list[i]);
  RANK_FAILS(TREADLE_REFUSED, "DP_COMPUTE: argument 0 is a batch", of(w, "dp_compute", ROWS("a", 1)));
  RANK_FAILS(TREADLE_REFUSED, "Direct rollout call is forbidden.", of(w, "direct", ROWS("a", 1)));
  RANK_FAILS(TREADLE_REFUSED, "RANK_ZERO", of(w, "as_rank_zero", ROWS("a", 1)));
  RANK_FAILS(TREADLE_REFUSED, "function", of(w, "with_func", ROWS("a", 1)));
  RANK_FAILS(TREADLE_REFUSED, "critic", of(w, "no_mesh", ROWS("a", 1, 2, 3, 4, 5, 6, 7, 8)));
  /* Rows in equal parts; a list of them; padding that is not seen; and all of them again from worker to worker. */
  for (int64_t rows = 1; rows <= 19; rows++) {
    int64_t given[19];
    for (int64_t r = 0; r < rows; r++) given[r] = 10 * r, wanted[r] = 10 * r + 2;
    RANK_TRUE(gives(w, "padded", rows_of("a", given, rows), wanted, rows));
    if (rows % count == 0) {
      for (int64_t r = 0; r < rows; r++) wanted[r] = 10 * r + 2 + r / (rows / count);
      RANK_TRUE(gives(w, "proto", rows_of("a", given, rows), wanted, rows));
      RANK_TRUE(gives(w, "metric", rows_of("a", given, rows), wanted, rows));
    } else
      RANK_FAILS(TREADLE_REFUSED, "only support equal chunk", of(w, "proto", rows_of("a", given, rows)));
    treadle_batch *batch = rows_of("a", given, rows);
    treadle_future *f;
    const treadle_call_input first_in = {.struct_size = sizeof in, .batch = batch};
    RANK_OK(treadle_workers_call(w, "padded", &first_in, &f));
    const treadle_call_input then = {.struct_size = sizeof in, .futures = &f, .future_count = 1};
    RANK_TRUE(take(w, "padded", &then, values) == rows);
    for (int64_t r = 0; r < rows; r++) RANK_TRUE(values[r] == 10 * r + 4);
    treadle_future_destroy(f);
    treadle_batch_destroy(batch);
  }
  if (count > 1)
    RANK_FAILS(TREADLE_REFUSED, "of which are padding",
               of(w, "fewer", rows_of("a", wanted, 2 * count - 1)));
  treadle_workers_destroy(w);
  return 0;
}

static int control_two(treadle_crew *crew, int first) {
  treadle_workers *w;
  RANK_OK(make(crew, 2, first, "10", &w));
  GIVES("proto", ROWS("a", 0, 1, 2, 3), 10, 11, 13, 14);
  GIVES("async", ROWS("a", 0, 1, 2, 3), 5, 7, 10, 12);
  treadle_workers_destroy(w);
  return 0;
}

static int control_four(treadle_crew *crew, int first) {
  treadle_workers *w;
  RANK_OK(make(crew, 4, first, "2", &w));
  treadle_batch *a = ROWS("a", 1, 2), *b = ROWS("b", 5, 6);
  RANK_OK(treadle_batch_union(a, b));
  treadle_batch_destroy(b);
  GIVES("custom", a, 8, 10, 8, 10);
  treadle_workers_destroy(w);
  return 0;
}

static int control_eight(treadle_crew *crew, int first) {
  treadle_workers *w;
  RANK_OK(make(crew, 8, first, "0", &w));
  GIVES("infer", ROWS("a", 1, 2), 1, 3);
  GIVES("train", ROWS("a", 3, 4), 11, 16);
  RANK_FAILS(TREADLE_REFUSED, "only support equal chunk", of(w, "train", ROWS("a", 3)));
  treadle_workers_destroy(w);
  RANK_FAILS(TREADLE_REFUSED, "train", make(crew, 8, first, "twice", &w)); /* a mesh registered twice */
  return 0;
}

typedef struct place {
  int workers, first; /* first 0: the controller is the first worker */
} place;

static int control(treadle_crew *crew, const place *at) {
  int result = control_any(crew, at->workers, at->first);
  if (!result && at->workers == 2) result = control_two(crew, at->first);
  if (!result && at->workers == 4) result = control_four(crew, at->first);
  if (!result && at->workers == 8) result = control_eight(crew, at->first);
  return result;
}

static int run(const char *name, int rank, int size, void *context) {
  treadle_group *group;
  treadle_crew *crew;
  int result = 0;
  RANK_OK(treadle_group_open(name, rank, size, 20, &group));
  RANK_OK(treadle_crew_open(group, classes, TEST_COUNT(classes), NULL, &crew));
  if (rank == 0)
    result = control(crew, context);
  else
    RANK_OK(treadle_crew_serve(crew));
  treadle_crew_close(crew);
  treadle_group_close(group);
  return result;
}

static void check(int workers, int first) {
  int results[9];
  place at = {workers, first};
  ranks_as_processes(workers + first, 60, run, &at, results);
  for (int rank = 0; rank < workers + first; rank++) assert_int_equal(results[rank], 0);
}

static void test_apart(void **state) {
  (void)state;
  for (int workers = 1; workers <= 8; workers *= 2) check(workers, 1);
}
static void test_together(void **state) {
  (void)state;
  for (int workers = 1; workers <= 8; workers *= 2) check(workers, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_apart), cmocka_unit_test(test_together)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
