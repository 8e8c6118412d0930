/* Calls that collect (gather.c): what each rank answers reaches rank 0, however much it is and whichever way it
 * comes; and messages that lie on boards, which they outgrow.
 * ctest: label=threads */
#include "base/random.h"
#include "control/worker_group.h"
#include "group/ranks.h"
#include "test.h"

enum { RANKS = 4, NOTHING = -1, ATTEMPTS = 60 };

/* ---- Methods ---- */

typedef struct worker {
  treadle_group *group; /* NULL: one rank */
} worker;

static int rank_of(const worker *w) { return w->group ? treadle_group_rank(w->group) : 0; }

/* What rank `rank` has at a place. */
static char byte_of(int rank, size_t at) { return (char)(at * 7 % 251 + (size_t)rank); }

static void put_pattern(treadle_message *m, int rank, int64_t length) {
  treadle_message_put_int(m, length);
  char *to = treadle_message_grow(m, (size_t)length);
  for (size_t i = 0; to && i < (size_t)length; i++) to[i] = byte_of(rank, i);
}

static treadle_status take_pattern(treadle_message *m, int rank, int64_t length) {
  const void *found;
  treadle_status status;
  TRY(treadle_message_array(m, "pattern", 1, (size_t)length, &found));
  for (size_t i = 0; i < (size_t)length; i++)
    if (((const char *)found)[i] != byte_of(rank, i))
      TRY(treadle_fail(TREADLE_DIFFERENT, "byte %zu of rank %d's %lld", i, rank, (long long)length));
out:
  return status;
}

/* What a call asks for: how much each rank answers, who fails, and what fills its message. */
typedef struct request {
  int64_t lengths[RANKS]; /* NOTHING: not even a number */
  int64_t fails;          /* a rank; -1: none */
  int64_t filling;        /* bytes */
} request;

/* A rank that fails has written its answer. */
static treadle_status say(void *context, treadle_message *in, treadle_message *out) {
  const worker *w = context;
  const int rank = rank_of(w);
  const void *found;
  request r;
  treadle_status status;
  TRY(treadle_message_array(in, "request", sizeof r, 1, &found));
  memcpy(&r, found, sizeof r);
  TRY(take_pattern(in, RANKS, r.filling));
  if (r.lengths[rank] != NOTHING) {
    treadle_message_put_int(out, rank);
    put_pattern(out, rank, r.lengths[rank]);
  }
  if (r.fails == rank) TRY(treadle_fail(TREADLE_SYSTEM, "not today"));
out:
  return status;
}

static const treadle_worker_method methods[] = {{"say", say, true}, {NULL, NULL, false}};

/* ---- Calls of rank 0 ---- */

typedef struct scene {
  treadle_worker_group workers;
  worker worker;
  treadle_message in, out;
} scene;

static void open_scene(scene *s, treadle_group *group) {
  *s = (scene){.worker = {.group = group}};
  s->workers = (treadle_worker_group){.group = group, .methods = methods, .worker = &s->worker};
}

static void close_scene(scene *s) {
  treadle_message_release(&s->in);
  treadle_message_release(&s->out);
  treadle_worker_group_release(&s->workers);
}

static treadle_status check_answer(const scene *s, int rank, int64_t length) {
  treadle_message answer = treadle_worker_group_answer(&s->workers, rank, &s->out);
  int64_t said = -1;
  treadle_status status = TREADLE_OK;
  if (length != NOTHING) {
    TRY(treadle_message_int(&answer, "rank", &said));
    TRY(take_pattern(&answer, rank, length));
    if (said != rank)
      TRY(treadle_fail(TREADLE_DIFFERENT, "in place of rank %d rank %lld", rank, (long long)said));
  }
  if (answer.at != answer.length)
    status = treadle_fail(TREADLE_DIFFERENT, "rank %d answers %zu bytes", rank, answer.length);
out:
  return status;
}

static treadle_status call(scene *s, const request *r) {
  const int ranks = s->worker.group ? RANKS : 1;
  treadle_status status;
  treadle_message_clear(&s->in);
  treadle_message_put_bytes(&s->in, r, sizeof *r);
  put_pattern(&s->in, RANKS, r->filling);
  TRY(treadle_worker_group_call(&s->workers, "say", &s->in, &s->out));
  for (int rank = 0; rank < ranks; rank++) TRY(check_answer(s, rank, r->lengths[rank]));
out:
  return status;
}

/* What rank 0 does, in each round with a new worker group. */
typedef struct leader {
  int (*lead)(scene *s, int round);
  int rounds;
} leader;

/* A rank whose checks fail leaves, so that the others do not wait for it. */
static int run_rank(treadle_group *group, void *context) {
  const leader *l = context;
  int bad = 0;
  for (int round = 0; round < l->rounds && !bad; round++) {
    scene s;
    open_scene(&s, group);
    if (treadle_group_rank(group) == 0)
      bad = l->lead(&s, round) || ranks_said(TREADLE_OK, treadle_worker_group_end(&s.workers, TREADLE_OK),
                                             NULL, "end", __FILE__, __LINE__);
    else
      bad =
          ranks_said(TREADLE_OK, treadle_worker_group_serve(&s.workers), NULL, "serve", __FILE__, __LINE__);
    if (bad) treadle_group_fail(group);
    close_scene(&s);
  }
  return bad;
}

/* On one node, and on two. */
static void run(int (*lead)(scene *s, int round), int rounds) {
  leader l = {lead, rounds};
  ranks_as_threads(RANKS, 30, 0, run_rank, &l);
  ranks_as_threads(RANKS, 30, 3, run_rank, &l);
  ranks_nodes = ranks_in_pairs;
  ranks_as_threads(RANKS, 30, 0, run_rank, &l);
  ranks_nodes = NULL;
}

/* ---- Answers ---- */

/* Small and large, growing and shrinking; each rank is ahead of the one before it. */
static int collect_all(scene *s, int round) {
  static const int64_t lengths[] = {0,     5,       NOTHING, 4096, 100, 30000, 45000,
                                    45001, NOTHING, 200000,  1,    8,   9000};
  (void)round;
  for (size_t i = 0; i < 2 * TEST_COUNT(lengths); i++) {
    request r = {.fails = -1};
    for (size_t rank = 0; rank < RANKS; rank++) r.lengths[rank] = lengths[(i + rank) % TEST_COUNT(lengths)];
    RANK_OK(call(s, &r));
  }
  return 0;
}

/* From nothing on: the first answers are all empty, then those of all but one rank. */
static int collect_of_one(scene *s, int round) {
  request r = {.lengths = {NOTHING, NOTHING, NOTHING, NOTHING}, .fails = -1};
  (void)round;
  RANK_OK(call(s, &r));
  for (int64_t length = 0; length < 100000; length = 3 * length + 1000)
    for (int rank = 0; rank < RANKS; rank++) {
      r.lengths[rank] = length;
      RANK_OK(call(s, &r));
      r.lengths[rank] = NOTHING;
    }
  RANK_OK(call(s, &r));
  return 0;
}

static int collect_random(scene *s, int round) {
  treadle_random random = {(uint64_t)round + 1};
  for (int i = 0; i < 30; i++) {
    request r = {.fails = -1,
                 .filling = treadle_random_below(&random, 1LL << treadle_random_below(&random, 17))};
    for (int rank = 0; rank < RANKS; rank++)
      r.lengths[rank] = treadle_random_below(&random, 1LL << treadle_random_below(&random, 17)) - 1;
    RANK_OK(call(s, &r));
  }
  return 0;
}

static void test_answers(void **state) {
  (void)state;
  run(collect_all, 1);
  run(collect_of_one, 1);
  run(collect_random, (int)test_seeds(5));
}

/* One rank without a group. */
static void test_alone(void **state) {
  scene s;
  (void)state;
  open_scene(&s, NULL);
  for (int64_t length = NOTHING; length < 10000; length = 2 * length + 3)
    assert_ok(call(&s, &(request){.lengths = {length}, .fails = -1, .filling = length + 1}));
  assert_fails(TREADLE_SYSTEM, "not today", call(&s, &(request){.lengths = {7}}));
  close_scene(&s);
}

/* ---- Failures ---- */

/* One rank fails: nothing is collected, what was collected before stands where it stood, and the group goes on. */
static int fail_on_one(scene *s, int round) {
  (void)round;
  for (int64_t length = 10; length < 100000; length *= 20)
    for (int rank = 0; rank < RANKS; rank++) {
      request r = {.lengths = {length, length + 1, length + 2, length + 3}, .fails = -1};
      RANK_OK(call(s, &r));
      const request failing = {.lengths = {100 * length, length, NOTHING, 1}, .fails = rank};
      RANK_FAILS(TREADLE_SYSTEM, "not today", call(s, &failing));
      for (int other = 1; other < RANKS; other++) /* by their lengths, which are those of before */
        RANK_TRUE(treadle_worker_group_answer(&s->workers, other, &s->out).length ==
                  (size_t)(16 + (r.lengths[other] + 7) / 8 * 8));
      RANK_OK(call(s, &r));
    }
  return 0;
}

static void test_one_fails(void **state) {
  (void)state;
  run(fail_on_one, 1);
}

/* A call in which the allocation fails whose number the round is; then the same calls are as good as any. */
static int starve(scene *s, int round) {
  static const request small = {.lengths = {1, 2, NOTHING, 3}, .fails = -1},
                       large = {.lengths = {5000, 1, 9000, NOTHING}, .fails = -1, .filling = 20000},
                       larger = {.lengths = {20000, 1, 90000, 5}, .fails = -1, .filling = 70000};
  static const request *const requests[] = {&small, &large, &larger};
  const request *failing = requests[round % TEST_COUNT(requests)];
  if (failing == &larger) RANK_OK(call(s, &large)); /* so there are boards already, which are outgrown */
  const long before = treadle_alloc_count(), nth = round / (long)TEST_COUNT(requests) + 1;
  treadle_alloc_fail_at(nth);
  const treadle_status status = call(s, failing);
  const bool failed = treadle_alloc_count() - before >= nth;
  treadle_alloc_fail_at(0);
  RANK_TRUE(status == (failed ? TREADLE_NO_MEMORY : TREADLE_OK));
  for (size_t i = 0; i < TEST_COUNT(requests); i++) RANK_OK(call(s, requests[i]));
  RANK_TRUE(!failed || nth < ATTEMPTS);
  return 0;
}

static void test_no_memory(void **state) {
  (void)state;
  run(starve, 3 * ATTEMPTS);
}

/* ---- Messages on boards ---- */

/* A call is written on the board of the call before as far as that goes, and else goes to one that is larger. */
static int outgrow(scene *s, int round) {
  static const int64_t fillings[] = {5000, 7000,  7400,  100,    9000, 0,
                                     7000, 40000, 41000, 300000, 20,   300000};
  const bool shared = treadle_group_node_count(s->worker.group) == 1;
  (void)round;
  for (size_t i = 0; i < TEST_COUNT(fillings); i++) {
    const size_t room = s->in.lent_room;
    request r = {.fails = -1, .filling = fillings[i]};
    RANK_OK(call(s, &r));
    RANK_TRUE(shared == (s->in.lent != NULL));
    if (!shared) continue;
    RANK_TRUE((s->in.bytes == s->in.own) ==
              (s->in.length > room)); /* it was written where there was room */
    RANK_TRUE(s->in.lent_room >= s->in.length && s->in.lent_room >= room);
  }
  return 0;
}

/* The same of answers, with rank 0's own among them. */
static int outgrow_answers(scene *s, int round) {
  (void)round;
  for (int64_t length = 10; length < 1000000; length = 2 * length + 1) {
    request r = {.lengths = {length, NOTHING, length / 3, 3 * length}, .fails = -1, .filling = length};
    RANK_OK(call(s, &r));
    RANK_OK(call(s, &r)); /* they fit, and are written where they are read */
    if (s->out.lent) RANK_TRUE(s->out.bytes == s->out.lent);
  }
  return 0;
}

static void test_outgrown(void **state) {
  (void)state;
  run(outgrow, 1);
  run(outgrow_answers, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers), cmocka_unit_test(test_alone),
                                     cmocka_unit_test(test_one_fails), cmocka_unit_test(test_no_memory),
                                     cmocka_unit_test(test_outgrown)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
