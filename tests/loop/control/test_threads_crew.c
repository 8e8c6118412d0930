/* Crews whose ranks are threads, on one node and on two: rows from worker to worker, futures that are destroyed early, many small calls, workers that
 * fail or leave; allocations that fail in turn; strangers and ranks that say what is none of the protocol.
 * ctest: label=threads timeout=600 */
#include "control/crew.h"
#include "group/ranks.h"
#include "test.h"

#include "base/alloc.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 4, ROWS = 60, WIDE = 512, SMALL_CALLS = 200, ATTEMPTS = 2000 };

/* ---- The class ---- */

/* Column y: x of each row, plus 1, `width` times. */
static treadle_status increase(const treadle_batch *in, int64_t width, treadle_batch **out_p) {
  const int64_t rows = treadle_batch_rows(in);
  treadle_column x = TREADLE_INIT(treadle_column);
  treadle_column y = {.struct_size = sizeof y, .name = "y", .type = TREADLE_COLUMN_INT64, .width = width};
  treadle_status status;
  TRY(treadle_batch_column(in, "x", &x));
  TRY(treadle_batch_create(rows, out_p));
  TRY(treadle_batch_add(*out_p, &y));
  TRY(treadle_batch_column(*out_p, "y", &y));
  for (int64_t i = 0; i < rows * width; i++)
    ((int64_t *)y.data)[i] = ((const int64_t *)x.data)[i / width] + 1;
out:
  return status;
}

static treadle_status few(void *worker, const treadle_batch *in, treadle_batch **out_p) {
  (void)worker;
  return increase(in, 1, out_p);
}
static treadle_status many(void *worker, const treadle_batch *in, treadle_batch **out_p) {
  (void)worker;
  return increase(in, WIDE, out_p);
}

/* z: x and the first of y, which were made elsewhere. */
static treadle_status add(void *worker, const treadle_batch *in, treadle_batch **out_p) {
  const int64_t rows = treadle_batch_rows(in);
  treadle_column x = TREADLE_INIT(treadle_column), y = x;
  treadle_column z = {.struct_size = sizeof z, .name = "z", .type = TREADLE_COLUMN_INT64, .width = 1};
  treadle_status status;
  (void)worker;
  TRY(treadle_batch_column(in, "x", &x));
  TRY(treadle_batch_column(in, "y", &y));
  TRY(treadle_batch_create(rows, out_p));
  TRY(treadle_batch_add(*out_p, &z));
  TRY(treadle_batch_column(*out_p, "z", &z));
  for (int64_t i = 0; i < rows; i++)
    ((int64_t *)z.data)[i] = ((const int64_t *)x.data)[i] + ((const int64_t *)y.data)[i * y.width];
out:
  return status;
}

static treadle_status fail_always(void *worker, const treadle_batch *in, treadle_batch **out_p) {
  (void)worker, (void)in, (void)out_p;
  return treadle_error_set(TREADLE_SYSTEM, "the disk is full");
}
static treadle_status fail_oddly(void *worker, const treadle_batch *in, treadle_batch **out_p) {
  (void)worker, (void)in, (void)out_p;
  return (treadle_status)5;
}

static const treadle_class_method methods[] = {
    {.name = "few", .function = few, .dispatch = TREADLE_DISPATCH_DP_COMPUTE_PROTO},
    {.name = "many", .function = many, .dispatch = TREADLE_DISPATCH_DP_COMPUTE_PROTO},
    {.name = "add", .function = add, .dispatch = TREADLE_DISPATCH_DP_COMPUTE_PROTO},
    {.name = "fail", .function = fail_always, .dispatch = TREADLE_DISPATCH_ONE_TO_ALL},
    {.name = "fail_oddly", .function = fail_oddly, .dispatch = TREADLE_DISPATCH_ONE_TO_ALL}};
static const treadle_worker_class classes[] = {{.struct_size = sizeof *classes,
                                                .name = "adder",
                                                .methods = methods,
                                                .method_count = TEST_COUNT(methods)}};

/* ---- A crew of threads ---- */

typedef int (*control)(treadle_crew *crew, treadle_workers *workers);

typedef struct scene {
  control control;
  int (*other)(treadle_crew *crew); /* NULL: they serve */
} scene;

static int serve(treadle_crew *crew) {
  RANK_OK(treadle_crew_serve(crew));
  return 0;
}

static int run_rank(treadle_group *group, void *context) {
  static const int32_t ranks[] = {1, 2, 3};
  const scene *s = context;
  treadle_crew *crew;
  treadle_workers *workers;
  int result;
  RANK_OK(treadle_crew_open(group, classes, 1, NULL, &crew));
  if (treadle_group_rank(group) > 0)
    result = s->other ? s->other(crew) : serve(crew);
  else {
    RANK_OK(treadle_workers_create(crew, ranks, TEST_COUNT(ranks), "adder", NULL, &workers));
    result = s->control(crew, workers);
    treadle_workers_destroy(workers);
    treadle_crew_end(crew, TREADLE_OK);
  }
  treadle_crew_close(crew);
  return result;
}

static void run(scene s) {
  ranks_as_threads(RANKS, 60, 0, run_rank, &s);
  ranks_as_threads(RANKS, 60, 20240613, run_rank, &s);
  ranks_nodes = ranks_on_two_nodes;
  ranks_as_threads(RANKS, 60, 0, run_rank, &s);
  ranks_nodes = NULL;
}

static int make_rows(treadle_batch **batch_p) {
  treadle_column x = {.struct_size = sizeof x, .name = "x", .type = TREADLE_COLUMN_INT64, .width = 1};
  RANK_OK(treadle_batch_create(ROWS, batch_p));
  RANK_OK(treadle_batch_add(*batch_p, &x));
  RANK_OK(treadle_batch_column(*batch_p, "x", &x));
  for (int64_t i = 0; i < ROWS; i++) ((int64_t *)x.data)[i] = i * i;
  return 0;
}

/* ---- Rows from worker to worker ---- */

static int check_sums(treadle_future *f) {
  treadle_batch *sums;
  treadle_column z = TREADLE_INIT(treadle_column);
  RANK_OK(treadle_future_take(f, NULL, 0, &sums));
  RANK_OK(treadle_batch_column(sums, "z", &z));
  RANK_TRUE(treadle_batch_rows(sums) == ROWS);
  for (int64_t i = 0; i < ROWS; i++) {
    const int64_t row = ROWS - 1 - i;
    RANK_TRUE(((const int64_t *)z.data)[i] == 2 * row * row + 1);
  }
  treadle_batch_destroy(sums);
  return 0;
}

/* Backwards, so that rows change their workers. */
static int pass_on(treadle_workers *w, const treadle_batch *x, const char *method,
                   treadle_future **sums_p) {
  int64_t order[ROWS];
  treadle_future *f;
  treadle_call_input in = {.struct_size = sizeof in, .batch = x};
  for (int64_t i = 0; i < ROWS; i++) order[i] = ROWS - 1 - i;
  RANK_OK(treadle_workers_call(w, method, &in, &f));
  in.futures = &f;
  in.future_count = 1;
  in.rows = order;
  in.row_count = ROWS;
  RANK_OK(treadle_workers_call(w, "add", &in, sums_p));
  treadle_future_destroy(f); /* early: its rows stay for the call that has them */
  return 0;
}

static int pass_rows(treadle_crew *crew, treadle_workers *w) {
  static const char *const methods_of[] = {"few", "many"};
  treadle_batch *x, *none;
  treadle_future *sums, *f;
  treadle_crew_books before, after;
  if (make_rows(&x)) return 1;
  for (int i = 0; i < 6; i++) {
    treadle_crew_get_books(crew, &before);
    if (pass_on(w, x, methods_of[i % 2], &sums) || check_sums(sums)) return 1;
    treadle_future_destroy(sums);
    treadle_crew_get_books(crew, &after);
    /* x to both calls; few y come with their answers; z */
    RANK_TRUE(after.row_bytes - before.row_bytes >= (i % 2 ? 3 : 4) * ROWS * 8);
    RANK_TRUE(after.row_bytes - before.row_bytes < 5 * ROWS * 8 + 6 * 256); /* and never WIDE of them */
  }
  /* Futures that nobody waits for. */
  for (int i = 0; i < 4; i++) {
    if (pass_on(w, x, methods_of[i % 2], &sums)) return 1;
    treadle_future_destroy(sums);
  }
  /* None of the rows still has the columns; a column that is not there is refused, also where rows are far. */
  treadle_call_input in = {.struct_size = sizeof in, .batch = x};
  RANK_OK(treadle_workers_call(w, "many", &in, &f));
  RANK_FAILS(TREADLE_REFUSED, "yy", treadle_future_take(f, (const char *const[]){"yy"}, 1, &none));
  const treadle_row_range by_worker[] = {{0, ROWS}, {0, 0}, {ROWS, ROWS}};
  in.futures = &f;
  in.future_count = 1;
  in.by_worker = by_worker;
  RANK_OK(treadle_workers_call(w, "add", &in, &sums));
  RANK_OK(treadle_future_take_of(sums, 1, NULL, 0, &none));
  RANK_TRUE(treadle_batch_rows(none) == 0 && treadle_batch_has(none, "z"));
  treadle_batch_destroy(none);
  treadle_future_destroy(f);
  treadle_future_destroy(sums);
  treadle_batch_destroy(x);
  return 0;
}

static void test_rows(void **state) {
  (void)state;
  run((scene){.control = pass_rows});
}

/* ---- Many calls; failures ---- */

static int call_often(treadle_crew *crew, treadle_workers *w) {
  treadle_future *waiting[8] = {NULL};
  treadle_batch *x;
  (void)crew;
  if (make_rows(&x)) return 1;
  const treadle_call_input in = {.struct_size = sizeof in, .batch = x};
  for (int i = 0; i < SMALL_CALLS; i++) {
    treadle_future **at = &waiting[i % (int)TEST_COUNT(waiting)];
    if (*at && i % 3) RANK_OK(treadle_future_wait(*at));
    treadle_future_destroy(*at);
    RANK_OK(treadle_workers_call(w, "few", &in, at));
  }
  for (size_t i = 0; i < TEST_COUNT(waiting); i++) treadle_future_destroy(waiting[i]);
  treadle_batch_destroy(x);
  return 0;
}

static int call_failing(treadle_crew *crew, treadle_workers *w) {
  treadle_future *f, *odd;
  (void)crew;
  RANK_OK(treadle_workers_call(w, "fail", NULL, &f));
  RANK_OK(treadle_workers_call(w, "fail_oddly", NULL, &odd));
  RANK_FAILS(TREADLE_SYSTEM, "rank 1 (node ", treadle_future_wait(f)); /* of all that fail, the first */
  RANK_TRUE(strstr(treadle_error_message(), "worker 0 of 3 of 'adder', fail: the disk is full"));
  RANK_FAILS(TREADLE_STATE, "fail_oddly: it gives 5, which is not a status", treadle_future_wait(odd));
  treadle_future_destroy(f);
  treadle_future_destroy(odd);
  return call_often(crew, w);
}

static void test_calls(void **state) {
  (void)state;
  run((scene){.control = call_often});
  run((scene){.control = call_failing});
}

/* ---- A rank that leaves, or says what is none of the protocol ---- */

/* Serves its calls one by one, and closes the crew after the first that is a method. */
static int leave_early(treadle_crew *crew) {
  if (crew->group->rank != 2) return serve(crew);
  for (bool left = false; !left;) {
    pthread_mutex_lock(&crew->lock);
    treadle_endpoint_letter *call = treadle_crew_next(crew);
    if (!call) (void)treadle_crew_nap(crew, "a call");
    pthread_mutex_unlock(&crew->lock);
    if (!call) continue;
    left = crew->members.count > 0; /* it was created, and is now called: without an answer */
    if (!left) treadle_crew_run(crew, call);
    treadle_endpoint_drop(call);
  }
  return 0;
}

static int call_who_leaves(treadle_crew *crew, treadle_workers *w) {
  treadle_batch *x;
  treadle_future *f;
  (void)crew;
  if (make_rows(&x)) return 1;
  const treadle_call_input in = {.struct_size = sizeof in, .batch = x};
  RANK_OK(treadle_workers_call(w, "few", &in, &f));
  RANK_FAILS(TREADLE_PEER, "worker 1 of 3 of 'adder', few: it has left", treadle_future_wait(f));
  RANK_FAILS(TREADLE_PEER, "worker 1 of 3 of 'adder': rank 2 ", treadle_workers_alive(w));
  treadle_future_destroy(f);
  treadle_batch_destroy(x);
  return 0;
}

static void test_leaving(void **state) {
  (void)state;
  run((scene){.control = call_who_leaves, .other = leave_early});
}

static treadle_status say(treadle_crew *crew, treadle_endpoint_word word, int32_t status) {
  const treadle_endpoint_head head = {.frame.type = word, .status = status, .number = 7};
  return treadle_endpoint_send_text(crew->endpoint, 0, head, "rubbish");
}

/* What rank 2 says in place of an answer: a question that cannot be read, a call, a status that is none, a second hello. */
static const struct rubbish {
  treadle_endpoint_word word;
  int32_t status;
} rubbish[] = {{TREADLE_ENDPOINT_FETCH, 0},   {TREADLE_ENDPOINT_CALL, 0},    {TREADLE_ENDPOINT_END, 0},
               {TREADLE_ENDPOINT_RELEASE, 0}, {TREADLE_ENDPOINT_ANSWER, 99}, {TREADLE_ENDPOINT_HELLO, 0}};
static size_t chosen;

static int talk_rubbish(treadle_crew *crew) {
  if (crew->group->rank != 2) {
    RANK_OK(treadle_crew_serve(crew));
    return 0;
  }
  for (bool said = false; !said;) {
    pthread_mutex_lock(&crew->lock);
    treadle_endpoint_letter *call = treadle_crew_next(crew);
    if (!call) (void)treadle_crew_nap(crew, "a call");
    pthread_mutex_unlock(&crew->lock);
    if (!call) continue;
    said = crew->members.count > 0;
    if (said)
      RANK_OK(say(crew, rubbish[chosen].word, rubbish[chosen].status));
    else
      treadle_crew_run(crew, call);
    treadle_endpoint_drop(call);
  }
  RANK_FAILS(TREADLE_PEER, "rank 0", treadle_crew_serve(crew)); /* which speaks to it no more */
  return 0;
}

static int hear_rubbish(treadle_crew *crew, treadle_workers *w) {
  treadle_batch *x;
  treadle_future *f;
  (void)crew;
  if (make_rows(&x)) return 1;
  const treadle_call_input in = {.struct_size = sizeof in, .batch = x};
  RANK_OK(treadle_workers_call(w, "few", &in, &f));
  RANK_FAILS(TREADLE_PEER,
             "worker 1 of 3 of 'adder', few: it has said something that is not of this version",
             treadle_future_wait(f));
  treadle_future_destroy(f);
  treadle_batch_destroy(x);
  return 0;
}

static void test_rubbish(void **state) {
  (void)state;
  for (chosen = 0; chosen < TEST_COUNT(rubbish); chosen++) {
    scene s = {.control = hear_rubbish, .other = talk_rubbish};
    ranks_as_threads(RANKS, 60, 0, run_rank, &s);
  }
}

/* ---- Strangers ---- */

/* What they say: nothing, no frame at all, a frame of another job, a hello of a rank that there is not, and of one that is connected. */
static int be_stranger(treadle_crew *crew, int rank, int kind) {
  treadle_endpoint *e = crew->endpoint;
  treadle_frame_rule rule = e->rule;
  treadle_endpoint_head head = {.frame.type = TREADLE_ENDPOINT_HELLO, .rank = kind == 3 ? 99 : 1};
  char noise[sizeof head];
  memset(noise, 0x5a, sizeof noise);
  const int socket = treadle_wire_connect(&e->peers[rank].at);
  RANK_TRUE(socket >= 0);
  for (int error; (error = treadle_wire_connected(socket)) != 0;) RANK_TRUE(error == EINPROGRESS);
  if (kind == 2) rule.key++;
  treadle_frame_seal(&rule, &head, NULL, 0);
  if (kind) (void)send(socket, kind == 1 ? noise : (char *)&head, sizeof head, MSG_NOSIGNAL);
  return socket;
}

static int have_strangers(treadle_crew *crew, treadle_workers *w) {
  enum { KINDS = 5, SILENT = 2 * TREADLE_ENDPOINT_GUESTS };
  int sockets[SILENT];
  for (int rank = 0; rank < RANKS; rank++) {
    for (int kind = 1; kind < KINDS - (rank != 0); kind++) { /* rank 1 is connected to rank 0 */
      char end;
      const int socket = be_stranger(crew, rank, kind);
      while (recv(socket, &end, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR)) usleep(1000);
      close(socket); /* the rank has closed it first */
    }
    for (int i = 0; i < SILENT; i++) sockets[i] = be_stranger(crew, rank, 0);
    if (call_often(crew, w)) return 1;
    for (int i = 0; i < SILENT; i++) close(sockets[i]);
  }
  return 0;
}

static void test_strangers(void **state) {
  (void)state;
  run((scene){.control = have_strangers});
}

/* ---- No memory ---- */

/* A call, rows from worker to worker, taking them, without the n-th allocation of all threads: it fails or not, and the next one is good. */
static treadle_status call_and_take(treadle_workers *w, const treadle_batch *x) {
  treadle_call_input in = {.struct_size = sizeof in, .batch = x};
  treadle_future *f = NULL, *sums = NULL;
  treadle_batch *taken = NULL;
  treadle_status status;
  TRY(treadle_workers_call(w, "many", &in, &f));
  in.futures = &f;
  in.future_count = 1;
  TRY(treadle_workers_call(w, "add", &in, &sums));
  TRY(treadle_future_take(sums, NULL, 0, &taken));
out:
  treadle_batch_destroy(taken);
  treadle_future_destroy(sums);
  treadle_future_destroy(f);
  return status;
}

enum { OPEN, CREATE, CALL, STAGES };

typedef struct hunger {
  int stage;
  long nth;
  bool failed; /* there were this many; of rank 0, once all have opened their crews */
} hunger;

/* From here to there the n-th allocation fails, whichever rank's it is. */
static long start_hunger(const hunger *h, int stage) {
  if (h->stage == stage) treadle_alloc_fail_at(h->nth);
  return treadle_alloc_count();
}
static void end_hunger(hunger *h, int stage, long before) {
  if (h->stage != stage) return;
  h->failed = treadle_alloc_count() - before >= h->nth;
  treadle_alloc_fail_at(0);
}

/* A rank whose thread has no memory for what comes takes it that who says it is lost: then the run is over. Workers whose group one of them does not
 * come to wait for it as long as groups do. */
static bool is_fair(const hunger *h, treadle_status status) {
  return h->failed && (status == TREADLE_NO_MEMORY || status == TREADLE_PEER || status == TREADLE_TIMEOUT);
}

static int starve_controller(treadle_crew *crew, hunger *h) {
  static const int32_t ranks[] = {1, 2, 3};
  treadle_workers *w = NULL;
  treadle_batch *x;
  if (make_rows(&x)) return 1;
  long before = start_hunger(h, CREATE);
  treadle_status status = treadle_workers_create(crew, ranks, TEST_COUNT(ranks), "adder", NULL, &w);
  end_hunger(h, CREATE, before);
  RANK_TRUE(status ? is_fair(h, status) && !w : w != NULL);
  before = start_hunger(h, CALL);
  if (w) status = call_and_take(w, x);
  end_hunger(h, CALL, before);
  RANK_TRUE(!status || is_fair(h, status));
  if (w && status != TREADLE_PEER)
    status = call_and_take(w, x); /* the next one is good, or somebody is lost */
  RANK_TRUE(!status || is_fair(h, status));
  treadle_workers_destroy(w);
  treadle_crew_end(crew, TREADLE_OK);
  treadle_batch_destroy(x);
  return 0;
}

static int starve(treadle_group *group, void *context) {
  const int rank = treadle_group_rank(group);
  const treadle_crew_options options = {.struct_size = sizeof options, .timeout_seconds = 10};
  hunger *h = context;
  treadle_crew *crew;
  long before = 0;
  RANK_OK(treadle_group_barrier(group));
  if (rank == 0) before = start_hunger(h, OPEN);
  RANK_OK(treadle_group_barrier(group));
  treadle_status status = treadle_crew_open(group, classes, 1, &options, &crew);
  RANK_OK(treadle_group_barrier(group));
  if (rank == 0) end_hunger(h, OPEN, before);
  RANK_OK(treadle_group_barrier(group));
  if (status) {
    RANK_TRUE(h->failed && is_fair(h, status) && !crew);
    return 0;
  }
  if (rank == 0 && starve_controller(crew, h)) return 1;
  if (rank > 0) status = treadle_crew_serve(crew);
  RANK_TRUE(!status || status == TREADLE_PEER);
  treadle_crew_close(crew);
  return 0;
}

static void test_no_memory(void **state) {
  static const long step[STAGES] = {5, 13,
                                    1}; /* who opens and creates waits for others as long as groups do */
  (void)state;
  for (int stage = 0; stage < STAGES; stage++) {
    hunger h = {.stage = stage, .failed = true};
    for (h.nth = 1; h.failed; h.nth += step[stage]) {
      assert_true(h.nth < ATTEMPTS);
      h.failed = false;
      ranks_as_threads(RANKS, 2, 0, starve, &h);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows),      cmocka_unit_test(test_calls),
                                     cmocka_unit_test(test_leaving),   cmocka_unit_test(test_rubbish),
                                     cmocka_unit_test(test_strangers), cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
