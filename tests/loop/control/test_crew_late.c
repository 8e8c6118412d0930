/* Calls that are given what has not been made yet: by each way of dispatch, on 1, 2, 4 and 8 workers that are processes, with and without the controller among
 * them; what is refused, what fails, who dies. A gate, which the controller opens, holds the first call back: nothing here depends on time. */
#include "group/ranks.h"
#include "test.h"
#include "treadle_control.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* ---- The class ---- */

typedef struct worker {
  int64_t rank;
  _Atomic int *gate; /* all processes see it */
} worker;

static _Atomic int *gate; /* made before processes are */
static bool apart;        /* no worker is on the controller's rank */

static treadle_status create(const treadle_worker_place *place, const treadle_batch *options,
                             void **worker_p) {
  worker *w = calloc(1, sizeof *w);
  (void)options;
  *w = (worker){place->rank, gate};
  *worker_p = w;
  if (place->size != 8) return TREADLE_OK;
  return treadle_meshes_register(place->meshes, "train", place->rank, (int32_t)(w->rank / 2 % 2),
                                 w->rank % 2 == 0 && w->rank >= 4);
}

static int64_t value(const treadle_batch *batch, const char *name, int64_t row) {
  treadle_column c = TREADLE_INIT(treadle_column);
  if (!treadle_batch_has(batch, name) || treadle_batch_column(batch, name, &c)) return 0;
  return ((const int64_t *)c.data)[row];
}

/* A row for each of those of `in`: a + b + more, under that name. */
static treadle_status answer(const treadle_batch *in, const char *name, int64_t more,
                             treadle_batch **out_p) {
  const int64_t rows = treadle_batch_rows(in);
  treadle_column c = {.struct_size = sizeof c, .name = name, .type = TREADLE_COLUMN_INT64};
  treadle_status status = treadle_batch_create(rows, out_p);
  if (!status) status = treadle_batch_add(*out_p, &c);
  if (!status) status = treadle_batch_column(*out_p, name, &c);
  for (int64_t r = 0; !status && r < rows; r++)
    ((int64_t *)c.data)[r] = value(in, "a", r) + value(in, "b", r) + more;
  return status;
}

static treadle_status wait_for_gate(const worker *w) {
  for (int i = 0; i < 30000 && !*w->gate; i++) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  return *w->gate ? TREADLE_OK : treadle_error_set(TREADLE_TIMEOUT, "the gate stays shut");
}

static treadle_status held(void *of, const treadle_batch *in, treadle_batch **out_p) {
  const treadle_status status = wait_for_gate(of);
  return status ? status : answer(in, "a", 1, out_p);
}
static treadle_status held_b(void *of, const treadle_batch *in, treadle_batch **out_p) {
  const treadle_status status = wait_for_gate(of);
  return status ? status : answer(in, "b", 7, out_p);
}
/* The last worker fails, or dies. */
static treadle_status held_fails(void *of, const treadle_batch *in, treadle_batch **out_p) {
  const worker *w = of;
  const treadle_status status = wait_for_gate(w);
  if (!status && w->rank == 1) return treadle_error_set(TREADLE_SYSTEM, "the disk is full");
  return status ? status : answer(in, "a", 1, out_p);
}
static treadle_status held_dies(void *of, const treadle_batch *in, treadle_batch **out_p) {
  const worker *w = of;
  const treadle_status status = wait_for_gate(w);
  if (!status && w->rank == 1) kill(getpid(), SIGKILL);
  return status ? status : answer(in, "a", 1, out_p);
}
static treadle_status add(void *of, const treadle_batch *in, treadle_batch **out_p) {
  (void)of;
  return answer(in, "a", 10, out_p);
}
static treadle_status add_rank(void *of, const treadle_batch *in, treadle_batch **out_p) {
  return answer(in, "a", 100 * ((const worker *)of)->rank, out_p);
}
static treadle_status fewer(void *of, const treadle_batch *in, treadle_batch **out_p) {
  (void)of, (void)in;
  return treadle_batch_create(1, out_p);
}

static treadle_status in_halves(void *context, int32_t workers, const treadle_dispatch_argument *arguments,
                                size_t count, treadle_row_range *by_worker) {
  (void)context, (void)count;
  for (int32_t w = 0; w < workers; w++)
    by_worker[w] =
        (treadle_row_range){arguments[0].length * w / workers, arguments[0].length * (w + 1) / workers};
  return TREADLE_OK;
}
static treadle_status all_of(void *context, const treadle_batch *const *results, int32_t workers,
                             treadle_batch **collected, int32_t *count_p) {
  (void)context;
  *count_p = 1;
  return treadle_batch_concat(results, (size_t)workers, collected);
}
static const treadle_dispatch_functions halves = {
    .struct_size = sizeof halves, .name = "in halves", .dispatch = in_halves, .collect = all_of};

#define METHOD(n, f, ...)                                                                                  \
  { .name = n, .function = f, .rows_stay = true, __VA_ARGS__ }
#define BY(kind) .dispatch = TREADLE_DISPATCH_##kind
#define FIRST    .execute = TREADLE_EXECUTE_RANK_ZERO
static const treadle_class_method methods[] = {
    METHOD("held", held, BY(DP_COMPUTE_PROTO), .auto_padding = true),
    METHOD("held_b", held_b, BY(ONE_TO_ALL), FIRST),
    METHOD("held_fails", held_fails, BY(ONE_TO_ALL)),
    METHOD("held_dies", held_dies, BY(ONE_TO_ALL)),
    METHOD("one_to_all", add, BY(ONE_TO_ALL)),
    METHOD("all_to_all", add, BY(ALL_TO_ALL)),
    METHOD("rank_zero", add, BY(ONE_TO_ALL), FIRST),
    METHOD("dp_compute", add, BY(DP_COMPUTE)),
    METHOD("proto", add_rank, BY(DP_COMPUTE_PROTO)),
    METHOD("padded", add, BY(DP_COMPUTE_PROTO), .auto_padding = true),
    METHOD("fewer", fewer, BY(DP_COMPUTE_PROTO), .auto_padding = true),
    METHOD("metric", add_rank, BY(DP_COMPUTE_METRIC)),
    METHOD("with_func", add, BY(DP_COMPUTE_PROTO_WITH_FUNC)),
    METHOD("direct", add, BY(DIRECT_ROLLOUT_METHOD)),
    METHOD("train", add_rank, BY(ND_MESH), .mesh = "train"),
    METHOD("no_mesh", add, BY(ND_MESH), .mesh = "critic"),
    METHOD("custom", add, BY(CUSTOM), .functions = &halves)};
static const treadle_worker_class classes[] = {{.struct_size = sizeof *classes,
                                                .name = "worker",
                                                .methods = methods,
                                                .method_count = TEST_COUNT(methods),
                                                .create = create,
                                                .destroy = free}};

/* ---- The controller's side ---- */

/* A call of `method` that holds; rows with a = 0, 1000, 2000, ... */
static treadle_status hold(treadle_workers *w, const char *method, int64_t rows, treadle_future **f_p) {
  treadle_batch *batch = NULL;
  int64_t a[64];
  for (int64_t r = 0; r < rows; r++) a[r] = 1000 * r;
  const treadle_column c = {.struct_size = sizeof c, .name = "a", .type = TREADLE_COLUMN_INT64, .data = a};
  treadle_status status = treadle_batch_create(rows, &batch);
  if (!status) status = treadle_batch_add(batch, &c);
  const treadle_call_input in = {.struct_size = sizeof in, .batch = batch};
  *gate = 0;
  if (!status) status = treadle_workers_call(w, method, &in, f_p);
  treadle_batch_destroy(batch);
  return status;
}

static treadle_status call(treadle_workers *w, const char *method, treadle_future *of,
                           treadle_future **f_p) {
  const treadle_call_input in = {.struct_size = sizeof in, .futures = &of, .future_count = 1};
  return treadle_workers_call(w, method, &in, f_p);
}

/* Column a of all that comes back. -1: the call has failed. */
static int64_t take(treadle_future *f, int64_t *values) {
  treadle_batch *parts[8] = {0};
  size_t count = 0;
  int64_t rows = 0;
  treadle_status status = treadle_future_take(f, NULL, 0, &parts[0]);
  count = !status;
  if (status == TREADLE_REFUSED && strstr(treadle_error_message(), "are a list"))
    status = treadle_future_take_list(f, parts, &count);
  for (size_t i = 0; i < count; i++) {
    for (int64_t r = 0; r < treadle_batch_rows(parts[i]); r++) values[rows++] = value(parts[i], "a", r);
    treadle_batch_destroy(parts[i]);
  }
  return status ? -1 : rows;
}

/* What a method gives that is called before its rows are there. -1: it is refused, or fails. */
static int64_t late(treadle_crew *crew, treadle_workers *w, const char *method, int64_t rows,
                    int64_t *values) {
  treadle_crew_books before, after;
  treadle_future *first, *second;
  int64_t found = -1;
  if (hold(w, "held", rows, &first)) return -2;
  treadle_crew_get_books(crew, &before);
  if (!call(w, method, first, &second)) {
    found = treadle_future_done(first) || treadle_future_done(second) ? -3 : 0;
    *gate = 1;
    if (treadle_future_wait(second)) found = found ? found : -1;
    treadle_crew_get_books(crew, &after);
    if (apart && after.row_bytes != before.row_bytes) found = -4; /* no row came here */
    if (!found) found = take(second, values);
    treadle_future_destroy(second);
  }
  *gate = 1;
  treadle_future_destroy(first);
  return found;
}

static bool gives(treadle_crew *crew, treadle_workers *w, const char *method, int64_t rows,
                  const int64_t *wanted, int64_t count) {
  int64_t values[600];
  return late(crew, w, method, rows, values) == count &&
         memcmp(values, wanted, (size_t)count * sizeof *values) == 0;
}

static treadle_status refused(treadle_crew *crew, treadle_workers *w, const char *method, int64_t rows) {
  int64_t values[600];
  return late(crew, w, method, rows, values) == -1 ? TREADLE_REFUSED : TREADLE_OK;
}

/* `times` times 1 + 1000 r + 10. */
static int64_t expect(int64_t rows, int64_t times, int64_t *wanted) {
  for (int64_t i = 0; i < rows * times; i++) wanted[i] = i % rows * 1000 + 11;
  return rows * times;
}

static int control_kinds(treadle_crew *crew, treadle_workers *w, int64_t count) {
  int64_t wanted[600], rows;
  for (rows = 0; rows <= 19; rows += rows < 2 ? 1 : 5) {
    RANK_TRUE(gives(crew, w, "one_to_all", rows, wanted, expect(rows, count, wanted)));
    RANK_TRUE(gives(crew, w, "all_to_all", rows, wanted, expect(rows, count, wanted)));
    RANK_TRUE(gives(crew, w, "rank_zero", rows, wanted, expect(rows, 1, wanted)));
    RANK_TRUE(gives(crew, w, "padded", rows, wanted, expect(rows, 1, wanted)));
  }
  rows = 3 * count;
  for (int64_t r = 0; r < rows; r++) wanted[r] = 1000 * r + 1 + 100 * (r / 3);
  RANK_TRUE(gives(crew, w, "proto", rows, wanted, rows));
  RANK_TRUE(gives(crew, w, "metric", rows, wanted, rows));
  RANK_FAILS(TREADLE_REFUSED, "DP_COMPUTE: argument 0 is a batch", refused(crew, w, "dp_compute", 1));
  RANK_FAILS(TREADLE_REFUSED, "Direct rollout call is forbidden.", refused(crew, w, "direct", 1));
  RANK_FAILS(TREADLE_REFUSED, "function", refused(crew, w, "with_func", 1));
  RANK_FAILS(TREADLE_REFUSED, "critic", refused(crew, w, "no_mesh", 8));
  if (count > 1) {
    RANK_FAILS(TREADLE_REFUSED, "only support equal chunk: ", refused(crew, w, "proto", 2 * count - 1));
    RANK_FAILS(TREADLE_REFUSED, "of which are padding", refused(crew, w, "fewer", 2 * count - 1));
  }
  if (count == 8) {
    for (int64_t r = 0; r < 4; r++) wanted[r] = 1000 * r + 1 + (r < 2 ? 400 : 600);
    RANK_TRUE(gives(crew, w, "train", 4, wanted, 4));
    RANK_FAILS(TREADLE_REFUSED, "only support equal chunk: ", refused(crew, w, "train", 3));
  }
  return 0;
}

/* Each is given the one before, which is destroyed at once; rows have padding in all of them. */
static int control_chain(treadle_workers *w) {
  enum { LONG = 20, ROWS = 9 };
  treadle_future *f, *next;
  int64_t values[600];
  RANK_OK(hold(w, "held", ROWS, &f));
  for (int i = 0; i < LONG; i++) {
    RANK_OK(call(w, "padded", f, &next));
    RANK_TRUE(!treadle_future_done(next));
    if (!i) *gate = 0;
    if (i + 1 == LONG) *gate = 1; /* before a future goes whose call waits: that waits, too */
    if (i + 1 == LONG) treadle_future_destroy(f);
    f = next;
  }
  RANK_OK(call(w, "custom", f, &next)); /* it waits for what it is given */
  RANK_TRUE(treadle_future_done(f) && take(next, values) == ROWS);
  for (int64_t r = 0; r < ROWS; r++) RANK_TRUE(values[r] == 1000 * r + 1 + 10 * LONG + 10);
  treadle_future_destroy(next);
  treadle_future_destroy(f);
  return 0;
}

/* A future and a batch beside another one, by row numbers and ranges of the caller's. */
static int control_inputs(treadle_workers *w, int64_t count) {
  const int64_t rows[] = {5, 0, 3, 1};
  treadle_row_range ranges[8] = {{0, 0}};
  treadle_future *a, *f;
  treadle_batch *b = NULL;
  int64_t values[600], numbers[6];
  for (int64_t r = 0; r < 6; r++) numbers[r] = 10 * r;
  const treadle_column c = {
      .struct_size = sizeof c, .name = "b", .type = TREADLE_COLUMN_INT64, .data = numbers};
  RANK_OK(treadle_batch_create(6, &b));
  RANK_OK(treadle_batch_add(b, &c));
  RANK_OK(hold(w, "held", 6, &a));
  treadle_call_input in = {.struct_size = sizeof in, .batch = b, .futures = &a, .future_count = 1};
  in.rows = rows;
  in.row_count = 4;
  RANK_OK(treadle_workers_call(w, "padded", &in, &f));
  *gate = 1;
  RANK_TRUE(take(f, values) == 4);
  for (int i = 0; i < 4; i++) RANK_TRUE(values[i] == 1010 * rows[i] + 11);
  treadle_future_destroy(f);
  treadle_future_destroy(a);
  /* The first two rows of those to each, and then a row that is not there; the same without a batch. */
  for (int32_t i = 0; i < count; i++) ranges[i] = (treadle_row_range){0, 2};
  in.by_worker = ranges;
  for (int with = 0; with < 2; with++) {
    in.batch = with ? b : NULL;
    in.rows = NULL;
    in.row_count = 0;
    RANK_OK(hold(w, "held", 6, &a));
    RANK_OK(treadle_workers_call(w, "padded", &in, &f));
    *gate = 1;
    RANK_TRUE(take(f, values) == 2 * count);
    for (int i = 0; i < 2 * count; i++) RANK_TRUE(values[i] == (with ? 1010 : 1000) * (i % 2) + 11);
    treadle_future_destroy(f);
    treadle_future_destroy(a);
  }
  in.batch = NULL;
  ranges[count - 1] = (treadle_row_range){9, 9}; /* none, but of rows that are not there */
  RANK_OK(hold(w, "held", 6, &a));
  RANK_OK(treadle_workers_call(w, "padded", &in, &f));
  *gate = 1;
  RANK_FAILS(TREADLE_REFUSED, "row 8 of 6 is asked for", treadle_future_wait(f));
  treadle_future_destroy(f);
  treadle_future_destroy(a);
  ranges[count - 1] = (treadle_row_range){0, 7};
  RANK_OK(hold(w, "held", 6, &a));
  RANK_OK(treadle_workers_call(w, "padded", &in, &f));
  *gate = 1;
  RANK_FAILS(TREADLE_REFUSED, "row 6 of 6 is asked for", treadle_future_wait(f));
  treadle_future_destroy(f);
  treadle_future_destroy(a);
  treadle_batch_destroy(b);
  return 0;
}

/* Two futures of which neither has ended: their columns are united, if they have as many rows. */
static int control_two(treadle_workers *w) {
  treadle_future *both[2], *f;
  int64_t values[600];
  for (int64_t more = 0; more < 2; more++) {
    RANK_OK(hold(w, "held", 4, &both[0]));
    RANK_OK(hold(w, "held_b", 4 + more, &both[1]));
    const treadle_call_input in = {.struct_size = sizeof in, .futures = both, .future_count = 2};
    RANK_OK(treadle_workers_call(w, "rank_zero", &in, &f));
    *gate = 1;
    if (more)
      RANK_FAILS(TREADLE_REFUSED, "expecting all arg share same length: 'worker', held_b has 5 rows",
                 treadle_future_wait(f));
    else
      RANK_TRUE(take(f, values) == 4);
    for (int64_t r = 0; r < 4 && !more; r++) RANK_TRUE(values[r] == 2000 * r + 18);
    treadle_future_destroy(f);
    treadle_future_destroy(both[0]);
    treadle_future_destroy(both[1]);
  }
  return 0;
}

/* What a call needs fails: so do all that need it, with its words, and the next call is good. */
static int control_failure(treadle_workers *w) {
  static const char *const said = "worker 1 of 2 of 'worker', held_fails: the disk is full";
  treadle_future *a, *f, *g;
  int64_t values[600];
  RANK_OK(hold(w, "held_fails", 4, &a));
  RANK_OK(call(w, "proto", a, &f));
  RANK_OK(call(w, "padded", f, &g));
  *gate = 1;
  RANK_FAILS(TREADLE_SYSTEM, said, treadle_future_wait(g));
  RANK_FAILS(TREADLE_SYSTEM, said, treadle_future_wait(f));
  RANK_FAILS(TREADLE_SYSTEM, said, treadle_future_wait(a));
  RANK_FAILS(TREADLE_SYSTEM, said, call(w, "proto", f, &(treadle_future *){NULL}));
  treadle_future_destroy(a);
  treadle_future_destroy(g);
  treadle_future_destroy(f);
  RANK_OK(hold(w, "held", 4, &a));
  *gate = 1;
  RANK_OK(call(w, "padded", a, &f));
  RANK_TRUE(take(f, values) == 4);
  treadle_future_destroy(f);
  treadle_future_destroy(a);
  return 0;
}

/* Worker 1, on the last rank, dies: the call of others that waits for its rows fails with its name. */
static int control_death(treadle_crew *crew) {
  const int32_t first[] = {1, 3}, second[] = {2};
  treadle_workers *w, *other;
  treadle_future *a, *f, *g;
  RANK_OK(treadle_workers_create(crew, first, 2, "worker", NULL, &w));
  RANK_OK(treadle_workers_create(crew, second, 1, "worker", NULL, &other));
  RANK_OK(hold(w, "held_dies", 4, &a));
  RANK_OK(call(other, "one_to_all", a, &f));
  RANK_OK(call(other, "one_to_all", f, &g));
  *gate = 1;
  RANK_FAILS(TREADLE_PEER,
             "rank 3 (node 0), worker 1 of 2 of 'worker', held_dies: ", treadle_future_wait(g));
  RANK_FAILS(TREADLE_PEER,
             "rank 3 (node 0), worker 1 of 2 of 'worker', held_dies: ", treadle_future_wait(f));
  treadle_future_destroy(g);
  treadle_future_destroy(f);
  treadle_future_destroy(a);
  treadle_workers_destroy(other);
  treadle_workers_destroy(w);
  return 0;
}

/* ---- Processes ---- */

typedef struct place {
  int workers, first; /* first 0: the controller is the first worker */
  bool dies;
} place;

static int control(treadle_crew *crew, const place *at) {
  int32_t ranks[8];
  treadle_workers *w;
  int result = 0;
  apart = at->first > 0;
  if (at->dies) return control_death(crew);
  for (int i = 0; i < at->workers; i++) ranks[i] = at->first + i;
  RANK_OK(treadle_workers_create(crew, ranks, (size_t)at->workers, "worker", NULL, &w));
  result = control_kinds(crew, w, at->workers);
  if (!result) result = control_chain(w);
  if (!result) result = control_inputs(w, at->workers);
  if (!result) result = control_two(w);
  if (!result && at->workers == 2) result = control_failure(w);
  treadle_workers_destroy(w);
  return result;
}

static int run(const char *name, int rank, int size, void *context) {
  const place *at = context;
  treadle_group *group;
  treadle_crew *crew;
  int result = 0;
  RANK_OK(treadle_group_open(name, rank, size, 20, &group));
  RANK_OK(treadle_crew_open(group, classes, TEST_COUNT(classes), NULL, &crew));
  if (rank == 0)
    result = control(crew, at);
  else
    RANK_OK(treadle_crew_serve(crew));
  treadle_crew_close(crew);
  treadle_group_close(group);
  return result;
}

static void check(place at, int killed) {
  int results[9];
  ranks_as_processes(at.workers + at.first, 120, run, &at, results);
  for (int rank = 0; rank < at.workers + at.first; rank++)
    assert_int_equal(results[rank], rank == killed ? 128 + SIGKILL : 0);
}

static void test_apart(void **state) {
  (void)state;
  for (int workers = 1; workers <= 8; workers *= 2) check((place){.workers = workers, .first = 1}, -1);
}
static void test_together(void **state) {
  (void)state;
  for (int workers = 1; workers <= 8; workers *= 2) check((place){.workers = workers}, -1);
}
static void test_death(void **state) {
  (void)state;
  check((place){.workers = 3, .first = 1, .dies = true}, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_apart), cmocka_unit_test(test_together),
                                     cmocka_unit_test(test_death)};
  void *shared = mmap(NULL, sizeof *gate, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  gate = shared;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
