/* Exchanges and rings among processes and alone; what does not fit together is refused, and all are told.
 * The same bodies run among threads in test_threads_exchange.c. */
#include "nn/exchanges.h"
#include "nn/parallel.h"
#include "test.h"

enum { MOST = 8 };

/* ---- All well ---- */

typedef struct work {
  ranks_body body;
  void *context;
} work;

static int do_work(const char *name, int rank, int size, void *context) {
  treadle_group *group;
  const work *w = context;
  RANK_OK(treadle_group_open(name, rank, size, 60, &group));
  if (w->body(group, w->context)) return 1;
  treadle_group_close(group);
  return 0;
}

static void run(int size, ranks_body body, void *context) {
  int results[MOST];
  ranks_as_processes(size, 120, do_work, &(work){body, context}, results);
  for (int rank = 0; rank < size; rank++) assert_int_equal(results[rank], 0);
}

static void test_processes(void **state) {
  static const int sizes[] = {2, 3, 4, 6, 8};
  (void)state;
  for (uint64_t seed = 1; seed <= test_seeds(15); seed++) {
    int size = sizes[seed % TEST_COUNT(sizes)];
    run(size, exchanges_sum, &seed);
    run(size, exchanges_mix, &seed);
    run(size, exchanges_pass, NULL);
  }
  run(2, exchanges_stream, NULL);
}

static void test_alone(void **state) {
  treadle_group *group;
  (void)state;
  assert_ok(treadle_group_self(&group));
  for (uint64_t seed = 1; seed <= 10; seed++) {
    assert_int_equal(exchanges_sum(group, &seed), 0);
    assert_int_equal(exchanges_mix(group, &seed), 0);
  }
  treadle_group_close(group);
}

/* ---- Ranks that do not agree ---- */

typedef struct scene {
  treadle_board *board;
  treadle_board_set *all;
  treadle_exchange *exchange;
} scene;

static treadle_status open_scene(treadle_group *group, scene *s) {
  treadle_status status = TREADLE_OK;
  *s = (scene){0};
  TRY(treadle_board_create(group, treadle_exchange_memory(1000), &s->board));
  TRY(treadle_board_split(s->board, 0, &s->all));
  TRY(treadle_exchange_create(s->all, 0, 1000, &s->exchange));
out:
  return status;
}

static void close_scene(scene *s) {
  treadle_exchange_destroy(s->exchange);
  treadle_board_destroy(s->board);
}

typedef struct mistake {
  treadle_leaf_range ranges[2]; /* of rank 0, of rank 1 */
  int64_t rows[2];
  const char *words[2]; /* what each is told */
} mistake;

static const mistake mistakes[] = {
    {{{0, 4, 8}, {4, 4, 8}},
     {3, 4},
     {"rank 1 brings 8 leaves of 4 rows", "rank 0 brings 8 leaves of 3 rows"}},
    {{{0, 4, 8}, {4, 5, 9}}, {3, 3}, {"9 leaves", "8 leaves"}},
    {{{0, 4, 8}, {5, 3, 8}}, {3, 3}, {"up to 4 are there, then rank 1 has those from 5", "rank 1"}},
    {{{0, 4, 8}, {3, 5, 8}}, {3, 3}, {"up to 4 are there, then rank 1 has those from 3", "rank 1"}},
    {{{0, 8, 8}, {0, 8, 8}}, {3, 3}, {"up to 8 are there", "up to 8 are there"}},
    {{{0, 4, 8}, {4, 3, 8}}, {3, 3}, {"no rank has the leaves from 7 to 8", "from 7 to 8"}},
    {{{0, 4, 8}, {4, 5, 8}}, {3, 3}, {"rank 1 failed: sum: leaves 4 to 9 of 8", "leaves 4 to 9 of 8"}},
    {{{0, 4, 8}, {4, 4, 8}}, {3, 999}, {"rank 1 failed: sum: 999 rows", "there is room for 1000 elements"}},
    {{{0, 4, 8}, {4, 4, 8}}, {3, INT64_MAX}, {"rank 1 failed: sum: ", "there is room for 1000 elements"}},
    {{{0, 4, 8}, {4, 4, 8}}, {3, -1}, {"rank 1 failed: sum: -1 rows", "-1 rows"}},
    {{{0, 4, 0}, {4, 4, 8}}, {3, 3}, {"leaves 0 to 4 of 0", "rank 0 failed"}},
};

/* Both fail: by what they see themselves, or because the other one did first. */
static int make_mistake(treadle_group *group, void *context) {
  const mistake *m = context;
  int me = group->rank;
  scene s;
  float sum[1000];
  RANK_OK(open_scene(group, &s));
  treadle_status status = treadle_parallel_sum(s.exchange, m->ranges[me], m->rows[me], 2, sum, "sum");
  RANK_TRUE(status == TREADLE_REFUSED || status == TREADLE_PEER);
  if (!strstr(treadle_error_message(), m->words[me]) && !strstr(treadle_error_message(), m->words[!me]))
    RANK_FAILS(TREADLE_REFUSED, m->words[me], status);
  RANK_FAILS(TREADLE_PEER, "sum", treadle_board_meet(s.all, "after it"));
  RANK_OK(treadle_group_barrier(group));
  close_scene(&s);
  return 0;
}

static void test_mistakes(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(mistakes); i++) {
    mistake m = mistakes[i];
    run(2, make_mistake, &m);
  }
}

/* One wants a sum, the other columns. */
static int differ_in_kind(treadle_group *group, void *context) {
  scene s;
  float all[1000];
  (void)context;
  RANK_OK(open_scene(group, &s));
  const treadle_exchange_part part = {8, 4, 8, 3, 4};
  treadle_status status =
      group->rank == 0 ? treadle_parallel_sum(s.exchange, (treadle_leaf_range){0, 4, 8}, 3, 4, all, "sum")
                       : treadle_parallel_gather(s.exchange, &part, all, "logits");
  RANK_TRUE(status == TREADLE_REFUSED || status == TREADLE_PEER);
  RANK_TRUE(strstr(treadle_error_message(), "columns") && strstr(treadle_error_message(), "leaves"));
  close_scene(&s);
  return 0;
}

static void test_kinds(void **state) {
  (void)state;
  run(2, differ_in_kind, NULL);
}

/* ---- Places ---- */

static int misplace(treadle_group *group, void *context) {
  treadle_board *board;
  treadle_board_set *all;
  treadle_exchange *x;
  treadle_ring *ring;
  float *room;
  (void)context;
  uint64_t bytes = treadle_exchange_memory(100), small = group->rank == 1 ? bytes - 1 : bytes;
  RANK_OK(treadle_board_create(group, small, &board));
  RANK_OK(treadle_board_split(board, 0, &all));
  RANK_FAILS(TREADLE_REFUSED, "part of rank 1", treadle_exchange_create(all, 0, 100, &x));
  RANK_FAILS(TREADLE_REFUSED, "are beyond", treadle_exchange_create(all, 1 << 20, 1, &x));
  RANK_FAILS(TREADLE_REFUSED, "multiple of 64", treadle_exchange_create(all, 4, 1, &x));
  RANK_FAILS(TREADLE_REFUSED, "elements", treadle_exchange_create(all, 0, UINT64_MAX, &x));
  RANK_TRUE(!x);
  const treadle_ring_spec good = {0, 1, 5, 2, 64, 10};
  treadle_ring_spec bad[] = {good, good, good, good, good, good};
  bad[0].to = 2, bad[1].from = 1, bad[2].number = 64, bad[3].slots = 0, bad[4].at = 8, bad[5].elems = 1000;
  for (size_t i = 0; i < TEST_COUNT(bad); i++)
    RANK_FAILS(TREADLE_REFUSED, "ring: ", treadle_ring_create(board, &bad[i], &ring));
  RANK_OK(treadle_ring_create(board, &good, &ring));
  if (group->rank == 0) {
    RANK_OK(treadle_ring_room(ring, &room, "room"));
    RANK_OK(treadle_ring_send(ring, 2, 5));
    RANK_OK(treadle_ring_room(ring, &room, "room"));
    RANK_FAILS(TREADLE_REFUSED, "3 rows of 4 columns; a slot has 10", treadle_ring_send(ring, 3, 4));
  } else {
    const float *rows;
    RANK_TRUE(treadle_ring_take(ring, 5, 2, &rows, "rows") != TREADLE_OK && !rows);
    RANK_TRUE(strstr(treadle_error_message(), "rank 0 sent 2 rows of 5 columns, not 5 of 2") ||
              strstr(treadle_error_message(), "3 rows of 4"));
  }
  treadle_ring_destroy(ring);
  treadle_board_destroy(board);
  return 0;
}

static void test_places(void **state) {
  (void)state;
  run(2, misplace, NULL);
}

/* ---- Memory that is out ---- */

static treadle_status make_all(void) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = NULL;
  scene s = {0};
  TRY(treadle_group_self(&group));
  TRY(open_scene(group, &s));
out:
  close_scene(&s);
  treadle_group_close(group);
  return status;
}

static void test_allocations(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(make_all());
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_processes), cmocka_unit_test(test_alone),  cmocka_unit_test(test_mistakes),
      cmocka_unit_test(test_kinds),     cmocka_unit_test(test_places), cmocka_unit_test(test_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
