/* Crews of processes: calls, rows that go from worker to worker, failures, ranks that die or are stopped; on one node and on two. */
#include "control/crew.h"
#include "group/ranks.h"
#include "meet/store_place.h"
#include "test.h"
#include "treadle_control.h"
#include "treadle_tools.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- A class: it adds what it was made with, and its number ---- */

typedef struct adder {
  treadle_worker_place place;
  int64_t start;
} adder;

static int64_t meta_int(const treadle_batch *batch, const char *key) {
  const char *json = treadle_batch_meta(batch, key);
  return json ? atoll(json) : 0;
}

static treadle_status create(const treadle_worker_place *place, const treadle_batch *options,
                             void **worker_p) {
  adder *a = malloc(sizeof *a);
  treadle_status status = treadle_group_barrier(place->group);
  if (status) {
    free(a);
    return status;
  }
  *a = (adder){*place, meta_int(options, "start")};
  if (place->rank == meta_int(options, "fails") - 1) {
    free(a);
    return treadle_error_set(TREADLE_REFUSED, "it does not want to");
  }
  *worker_p = a;
  return TREADLE_OK;
}

/* Column x of the rows, each increased; sum: of all workers' rows. */
static treadle_status add(void *worker, const treadle_batch *in, treadle_batch **out_p) {
  const adder *a = worker;
  const int64_t rows = treadle_batch_rows(in);
  treadle_column x = TREADLE_INIT(treadle_column);
  int64_t *to = calloc((size_t)rows + 1, sizeof *to);
  treadle_status status = treadle_batch_column(in, "x", &x);
  for (int64_t r = 0; !status && r < rows; r++)
    to[r] = ((const int64_t *)x.data)[r] + a->start + a->place.rank;
  if (!status) status = treadle_batch_create(rows, out_p);
  const treadle_column y = {.struct_size = sizeof y, .name = "y", .type = TREADLE_COLUMN_INT64, .data = to};
  if (!status) status = treadle_batch_add(*out_p, &y);
  if (!status)
    status = treadle_batch_set_meta(*out_p, "metrics", a->place.rank ? "{\"a\": 2}" : "{\"a\": 1}");
  free(to);
  return status;
}

/* x + y, which come from different ranks. */
static treadle_status both(void *worker, const treadle_batch *in, treadle_batch **out_p) {
  treadle_column x = TREADLE_INIT(treadle_column), y = x;
  const int64_t rows = treadle_batch_rows(in);
  int64_t *to = calloc((size_t)rows + 1, sizeof *to);
  (void)worker;
  treadle_status status = treadle_batch_column(in, "x", &x);
  if (!status) status = treadle_batch_column(in, "y", &y);
  for (int64_t r = 0; !status && r < rows; r++)
    to[r] = ((const int64_t *)x.data)[r] + ((const int64_t *)y.data)[r];
  if (!status) status = treadle_batch_create(rows, out_p);
  const treadle_column z = {.struct_size = sizeof z, .name = "z", .type = TREADLE_COLUMN_INT64, .data = to};
  if (!status) status = treadle_batch_add(*out_p, &z);
  free(to);
  return status;
}

static treadle_status fail_on(void *worker, const treadle_batch *in, treadle_batch **out_p) {
  const adder *a = worker;
  (void)out_p;
  if (a->place.rank == meta_int(in, "worker")) return treadle_error_set(TREADLE_SYSTEM, "the disk is full");
  return TREADLE_OK;
}

static treadle_status meet(void *worker, const treadle_batch *in, treadle_batch **out_p) {
  const adder *a = worker;
  (void)in, (void)out_p;
  return treadle_group_barrier(a->place.group);
}

static treadle_status end(void *worker, const treadle_batch *in, treadle_batch **out_p) {
  const adder *a = worker;
  (void)out_p;
  if (a->place.rank == meta_int(in, "worker")) kill(getpid(), (int)meta_int(in, "signal"));
  return treadle_group_barrier(a->place.group);
}

static treadle_status who(void *worker, const treadle_batch *in, treadle_batch **out_p) {
  char text[40];
  (void)worker, (void)in;
  treadle_status status = treadle_batch_create(0, out_p);
  snprintf(text, sizeof text, "%d", (int)getpid());
  return status ? status : treadle_batch_set_meta(*out_p, "pid", text);
}

static const treadle_class_method methods[] = {
    {.name = "add", .function = add, .dispatch = TREADLE_DISPATCH_DP_COMPUTE_PROTO},
    {.name = "both", .function = both, .dispatch = TREADLE_DISPATCH_DP_COMPUTE_PROTO},
    {.name = "fail_on", .function = fail_on, .dispatch = TREADLE_DISPATCH_ONE_TO_ALL},
    {.name = "meet", .function = meet, .dispatch = TREADLE_DISPATCH_ONE_TO_ALL},
    {.name = "who", .function = who, .dispatch = TREADLE_DISPATCH_ONE_TO_ALL},
    {.name = "end", .function = end, .dispatch = TREADLE_DISPATCH_ONE_TO_ALL}};
static const treadle_worker_class classes[] = {{.struct_size = sizeof *classes,
                                                .name = "adder",
                                                .methods = methods,
                                                .method_count = TEST_COUNT(methods),
                                                .create = create,
                                                .destroy = free}};

/* ---- The controller's side ---- */

static treadle_status options_with(const char *key, const char *json, treadle_batch **batch_p) {
  treadle_status status = treadle_batch_create(0, batch_p);
  return status ? status : treadle_batch_set_meta(*batch_p, key, json);
}

static treadle_status numbers(int64_t count, treadle_batch **batch_p) {
  int64_t *x = calloc((size_t)count + 1, sizeof *x);
  for (int64_t i = 0; i < count; i++) x[i] = 100 * i;
  treadle_status status = treadle_batch_create(count, batch_p);
  const treadle_column c = {.struct_size = sizeof c, .name = "x", .type = TREADLE_COLUMN_INT64, .data = x};
  if (!status) status = treadle_batch_add(*batch_p, &c);
  free(x);
  return status;
}

static int64_t value(const treadle_batch *batch, const char *name, int64_t row) {
  treadle_column c = TREADLE_INIT(treadle_column);
  if (treadle_batch_column(batch, name, &c)) return -1;
  return ((const int64_t *)c.data)[row];
}

/* Two groups of workers; rows from the controller to the first, from there to the second, and back. */
static int control_rows(treadle_crew *crew, int64_t count) {
  const int32_t first[] = {1, 2}, second[] = {4, 3, 2, 1};
  treadle_workers *a, *b;
  treadle_future *f, *g, *h;
  treadle_batch *options, *x, *out, *again;
  RANK_OK(options_with("start", "10", &options));
  RANK_OK(treadle_workers_create(crew, first, 2, "adder", options, &a));
  treadle_batch_destroy(options);
  RANK_OK(options_with("start", "1000", &options));
  RANK_OK(treadle_workers_create(crew, second, 4, "adder", options, &b));
  treadle_batch_destroy(options);
  RANK_TRUE(treadle_workers_size(b) == 4);
  RANK_OK(numbers(count, &x));
  treadle_call_input in = {.struct_size = sizeof in, .batch = x};
  RANK_OK(treadle_workers_call(a, "add", &in, &f));
  /* x goes from here, y from the two. Rows backwards, so that each worker of the second has some of both of the first. */
  int64_t *order = calloc((size_t)count + 1, sizeof *order), rows;
  for (int64_t i = 0; i < count; i++) order[i] = (i * 7) % count;
  treadle_call_input both_in = {.struct_size = sizeof in,
                                .batch = x,
                                .futures = &f,
                                .future_count = 1,
                                .rows = order,
                                .row_count = (size_t)count};
  RANK_OK(treadle_workers_call(b, "both", &both_in, &g));
  RANK_OK(treadle_workers_call(b, "meet", NULL, &h));
  treadle_future_destroy(h);
  RANK_OK(treadle_future_rows(g, &rows));
  RANK_TRUE(rows == count);
  RANK_OK(treadle_future_take(g, NULL, 0, &out));
  for (int64_t i = 0; i < count; i++) {
    const int64_t row = order[i], worker = row / (count / 2);
    RANK_TRUE(value(out, "z", i) == 100 * row + (100 * row + 10 + worker));
  }
  /* Some of the rows, by column; of one worker; with the meta of all. */
  RANK_OK(treadle_future_take(f, (const char *const[]){"y"}, 1, &again));
  RANK_TRUE(treadle_batch_rows(again) == count && value(again, "y", count - 1) == 100 * (count - 1) + 11);
  RANK_TRUE(strcmp(treadle_batch_meta(again, "metrics"), "{\"a\":[1,2]}") == 0);
  treadle_batch_destroy(again);
  RANK_OK(treadle_future_take_of(g, 3, NULL, 0, &again));
  RANK_TRUE(treadle_batch_rows(again) == count / 4 &&
            value(again, "z", 0) == value(out, "z", count / 4 * 3));
  treadle_batch_destroy(again);
  /* A future is destroyed while a call that has it is under way. */
  treadle_call_input last = {.struct_size = sizeof in, .batch = x, .futures = &f, .future_count = 1};
  RANK_OK(treadle_workers_call(b, "both", &last, &h));
  treadle_future_destroy(f);
  treadle_future_destroy(g);
  treadle_batch_destroy(out);
  RANK_OK(treadle_future_take(h, NULL, 0, &out));
  RANK_TRUE(value(out, "z", 1) == 100 + 110);
  treadle_batch_destroy(out);
  treadle_future_destroy(h);
  treadle_batch_destroy(x);
  free(order);
  treadle_workers_destroy(b);
  treadle_workers_destroy(a);
  return 0;
}

static int control_calls(treadle_crew *crew, int64_t unused) {
  const int32_t some[] = {2, 0, 3}, twice[] = {1, 1}, far[] = {9};
  treadle_workers *w;
  treadle_future *f, *g;
  treadle_batch *options, *x;
  (void)unused;
  RANK_FAILS(TREADLE_REFUSED, "the crew has no class 'adders'",
             treadle_workers_create(crew, some, 3, "adders", NULL, &w));
  RANK_FAILS(TREADLE_REFUSED, "workers 0 and 1 are both to be on rank 1",
             treadle_workers_create(crew, twice, 2, "adder", NULL, &w));
  RANK_FAILS(TREADLE_REFUSED, "worker 0 is to be on rank 9; the crew has 5",
             treadle_workers_create(crew, far, 1, "adder", NULL, &w));
  RANK_OK(options_with("fails", "3", &options));
  RANK_FAILS(TREADLE_REFUSED, "worker 2 of 3 of 'adder', create: it does not want to",
             treadle_workers_create(crew, some, 3, "adder", options, &w));
  treadle_batch_destroy(options);
  RANK_OK(treadle_workers_create(crew, some, 3, "adder", NULL, &w)); /* rank 0 is one of them */
  RANK_OK(treadle_workers_alive(w));
  RANK_FAILS(TREADLE_REFUSED, "class 'adder' has no method 'subtract'",
             treadle_workers_call(w, "subtract", NULL, &f));
  RANK_OK(options_with("worker", "1", &options));
  treadle_call_input in = {.struct_size = sizeof in, .batch = options};
  RANK_OK(treadle_workers_call(w, "fail_on", &in, &f));
  RANK_OK(treadle_workers_call(w, "meet", NULL, &g)); /* nobody is left waiting */
  RANK_OK(treadle_future_wait(g));
  RANK_FAILS(TREADLE_SYSTEM, "rank 0 (node 0), worker 1 of 3 of 'adder', fail_on: the disk is full",
             treadle_future_wait(f));
  RANK_TRUE(treadle_future_done(f));
  treadle_future_destroy(g);
  /* A call that is given what failed fails itself. */
  RANK_OK(numbers(4, &x));
  treadle_call_input of_failed = {.struct_size = sizeof in, .batch = x, .futures = &f, .future_count = 1};
  RANK_FAILS(TREADLE_SYSTEM, "the disk is full", treadle_workers_call(w, "both", &of_failed, &g));
  treadle_future_destroy(f);
  in.batch = x;
  RANK_FAILS(TREADLE_REFUSED, "only support equal chunk: 4 rows do not divide into 3 parts",
             treadle_workers_call(w, "add", &in, &f));
  treadle_batch_destroy(x);
  RANK_OK(numbers(3, &x));
  in.batch = x;
  RANK_OK(treadle_workers_call(w, "add", &in, &f));
  RANK_OK(treadle_future_wait(f));
  treadle_call_input unequal = {
      .struct_size = sizeof in, .batch = options, .futures = &f, .future_count = 1};
  RANK_FAILS(TREADLE_REFUSED, "expecting all arg share same length: 'adder', add has 3 rows",
             treadle_workers_call(w, "add", &unequal, &g));
  RANK_FAILS(
      TREADLE_REFUSED, "'adder', both: the batch has no column 'y'", /* the worker's own words */
      (in.futures = NULL, treadle_workers_call(w, "both", &in, &g) ? TREADLE_OK : treadle_future_wait(g)));
  treadle_future_destroy(g);
  RANK_FAILS(TREADLE_REFUSED, "zz", treadle_future_take(f, (const char *const[]){"zz"}, 1, &options));
  treadle_future_destroy(f);
  treadle_batch_destroy(x);
  treadle_workers_destroy(w);
  return 0;
}

/* A rank that dies or stops in the middle of a call: the call fails, and the run with it, on all. */
static int control_death(treadle_crew *crew, int64_t sign) {
  const int32_t ranks[] = {1, 2, 3, 4};
  treadle_workers *w;
  treadle_future *f, *g;
  treadle_batch *options, *pid;
  char text[16];
  RANK_OK(treadle_workers_create(crew, ranks, 4, "adder", NULL, &w));
  RANK_OK(treadle_workers_call(w, "who", NULL, &g));
  RANK_OK(treadle_future_take_of(g, 2, NULL, 0, &pid));
  treadle_future_destroy(g);
  RANK_OK(options_with("worker", "2", &options));
  snprintf(text, sizeof text, "%d", (int)sign);
  RANK_OK(treadle_batch_set_meta(options, "signal", text));
  const treadle_call_input in = {.struct_size = sizeof in, .batch = options};
  RANK_OK(treadle_workers_call(w, "end", &in, &f));
  RANK_FAILS(TREADLE_PEER, "rank 3 (node 0), worker 2 of 4 of 'adder', end: ", treadle_future_wait(f));
  if (sign == SIGSTOP) RANK_TRUE(strstr(treadle_error_message(), "it was silent for 2 seconds"));
  RANK_FAILS(TREADLE_PEER, "worker 2 of 4 of 'adder': rank 3 (node 0) is lost", treadle_workers_alive(w));
  RANK_FAILS(TREADLE_PEER, "rank 3",
             treadle_workers_call(w, "meet", NULL, &g) ? TREADLE_OK : treadle_future_wait(g));
  treadle_future_destroy(g);
  treadle_future_destroy(f);
  treadle_workers_destroy(w);
  treadle_crew_end(crew, treadle_error_set(TREADLE_PEER, "rank 3 is lost"));
  kill((pid_t)meta_int(pid, "pid"), SIGKILL);
  treadle_batch_destroy(pid);
  treadle_batch_destroy(options);
  return 0;
}

/* ---- Processes ---- */

typedef struct place {
  int nodes;
  const char *address;
  int (*control)(treadle_crew *crew, int64_t number);
  int64_t number;
  double limit;
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

static int run(const char *name, int rank, int size, void *context) {
  const place *at = context;
  const treadle_crew_options options = {.struct_size = sizeof options, .timeout_seconds = at->limit};
  treadle_group *group;
  treadle_crew *crew;
  int result = 0;
  RANK_OK(open_group(name, rank, size, at, &group));
  RANK_OK(treadle_crew_open(group, classes, TEST_COUNT(classes), &options, &crew));
  if (rank == 0) {
    RANK_FAILS(TREADLE_STATE, "rank 0 is the controller", treadle_crew_serve(crew));
    result = at->control(crew, at->number);
  } else if (at->control == control_death)
    RANK_FAILS(TREADLE_PEER, "rank 3 is lost", treadle_crew_serve(crew));
  else
    RANK_OK(treadle_crew_serve(crew));
  treadle_crew_close(crew);
  treadle_group_close(group);
  return result;
}

/* Of those that are lost the controller finds who died, whenever that was, before who left because of something; and of these the words. */
static int leave(const char *name, int rank, int size, void *context) {
  treadle_crew_loss loss = {0};
  treadle_group *group;
  treadle_crew *crew;
  RANK_OK(open_group(name, rank, size, context, &group));
  RANK_OK(treadle_crew_open(group, classes, TEST_COUNT(classes), NULL, &crew));
  if (rank == 1) { /* it dies when the run has ended, without a word */
    RANK_OK(treadle_crew_serve(crew));
    _exit(0);
  }
  if (rank == 2) treadle_crew_end(crew, treadle_error_set(TREADLE_SYSTEM, "the disk is full"));
  if (rank == 0) {
    while (!treadle_crew_find_lost(crew, &loss)) {
    }
    RANK_TRUE(loss.rank == 2 && loss.left && loss.status == TREADLE_SYSTEM);
    RANK_TRUE(strcmp(loss.why, "the disk is full") == 0);
    treadle_crew_end(crew, TREADLE_OK);
    while (loss.left) RANK_TRUE(treadle_crew_find_lost(crew, &loss));
    RANK_TRUE(loss.rank == 1 && strcmp(loss.why, "it has closed the connection") == 0);
  }
  treadle_crew_close(crew);
  treadle_group_close(group);
  return 0;
}

static void check(place at, int size, int killed) {
  int results[8];
  if (at.nodes > 1) at.address = store_place();
  ranks_as_processes(size, 60, run, &at, results);
  for (int rank = 0; rank < size; rank++)
    assert_int_equal(results[rank], rank == killed ? 128 + SIGKILL : 0);
}

static void test_rows(void **state) {
  (void)state;
  check((place){.nodes = 1, .control = control_rows, .number = 8}, 5, -1);
  check((place){.nodes = 1, .control = control_rows, .number = 40000}, 5, -1); /* too many for an answer */
}
static void test_rows_over_nodes(void **state) {
  (void)state;
  check((place){.nodes = 2, .control = control_rows, .number = 8}, 6, -1);
  check((place){.nodes = 2, .control = control_rows, .number = 40000}, 6, -1);
}
static void test_calls(void **state) {
  (void)state;
  check((place){.nodes = 1, .control = control_calls}, 5, -1);
}
static void test_deaths(void **state) {
  (void)state;
  check((place){.nodes = 1, .control = control_death, .number = SIGKILL}, 5, 3);
  check((place){.nodes = 1, .control = control_death, .number = SIGSTOP, .limit = 2}, 5, 3);
}

static void test_leaving(void **state) {
  (void)state;
  place at = {.nodes = 1};
  int results[3];
  ranks_as_processes(3, 60, leave, &at, results);
  for (int rank = 0; rank < 3; rank++) assert_int_equal(results[rank], 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_rows_over_nodes),
                                     cmocka_unit_test(test_calls), cmocka_unit_test(test_deaths),
                                     cmocka_unit_test(test_leaving)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
