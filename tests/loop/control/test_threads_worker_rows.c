/* Rows of a call that ranks divide (worker_rows.c): each rank gets those of its range, and a node no others; a rank without memory
 * fails the call on all ranks, and the group goes on. ctest: label=threads */
#include "base/random.h"
#include "control/worker_rows.h"
#include "group/ranks.h"
#include "test.h"

enum { RANKS = 4, MOST = 40, WIDE = 3000, CALLS = 60 };

/* ---- The method ---- */

typedef struct worker {
  treadle_group *group;
  const treadle_worker_group *workers;
  bool pairs;  /* ranks 0 and 1 are on one node, 2 and 3 on another */
  int64_t got; /* rows that messages had for this rank */
} worker;

static int64_t length_of(int64_t row) { return row * 37 % WIDE; }

/* Row r has that many values, each r. */
static bool is_row(const treadle_column *ids, int64_t at, int64_t row) {
  if (ids->offsets[at + 1] - ids->offsets[at] != length_of(row)) return false;
  for (int64_t i = ids->offsets[at]; i < ids->offsets[at + 1]; i++)
    if (((const int32_t *)ids->data)[i] != row) return false;
  return true;
}

/* Of the rows that the two ranks of a node take, and what stands beside them. */
static size_t most_bytes(const worker *w, const int64_t *numbers, const treadle_row_range *ranges) {
  const int first = treadle_group_rank(w->group) / 2 * 2;
  int64_t begin = MOST, end = 0;
  size_t bytes = 1000;
  for (int rank = first; rank < first + 2; rank++) {
    if (ranges[rank].first == ranges[rank].end) continue;
    if (ranges[rank].first < begin) begin = ranges[rank].first;
    if (ranges[rank].end > end) end = ranges[rank].end;
  }
  for (int64_t r = begin; r < end; r++) bytes += (size_t)length_of(numbers[r]) * sizeof(int32_t) + 8;
  return bytes;
}

/* What ranks are called with: the numbers of the rows, and which each rank takes. */
static treadle_status take(void *context, treadle_message *in, treadle_message *out) {
  worker *w = context;
  treadle_worker_share share;
  treadle_column ids = TREADLE_INIT(treadle_column);
  const void *numbers, *ranges;
  size_t bytes;
  treadle_status status;
  (void)out;
  TRY(treadle_message_bytes(in, "numbers", &numbers, &bytes));
  TRY(treadle_message_array(in, "ranges", sizeof(treadle_row_range), RANKS, &ranges));
  TRY(treadle_worker_take_rows(w->workers, in, &share));
  TRY(treadle_batch_column(share.mine, "ids", &ids));
  const int64_t rows = treadle_batch_rows(share.mine);
  if (rows != share.range.end - share.range.first)
    TRY(treadle_fail(TREADLE_DIFFERENT, "%lld rows", (long long)rows));
  for (int64_t r = 0; r < rows; r++)
    if (!is_row(&ids, r, ((const int64_t *)numbers)[share.range.first + r]))
      TRY(treadle_fail(TREADLE_DIFFERENT, "row %lld", (long long)r));
  if (w->pairs && in->length > most_bytes(w, numbers, ranges) + bytes)
    TRY(treadle_fail(TREADLE_DIFFERENT, "%zu bytes for %lld rows", in->length, (long long)rows));
  w->got += rows;
out:
  treadle_batch_destroy(share.mine);
  return status;
}

/* ---- Calls ---- */

typedef struct scene {
  treadle_worker_group workers;
  worker worker;
  treadle_message in, out;
  treadle_batch *batch;
} scene;

static treadle_status make_batch(treadle_batch **batch_p) {
  int64_t offsets[MOST + 1] = {0};
  treadle_column ids = {
      .struct_size = sizeof ids, .name = "ids", .type = TREADLE_COLUMN_INT32, .offsets = offsets};
  treadle_status status;
  for (int64_t r = 0; r < MOST; r++) offsets[r + 1] = offsets[r] + length_of(r);
  TRY(treadle_batch_create(MOST, batch_p));
  TRY(treadle_batch_add(*batch_p, &ids));
  TRY(treadle_batch_column(*batch_p, "ids", &ids));
  for (int64_t r = 0; r < MOST; r++)
    for (int64_t i = ids.offsets[r]; i < ids.offsets[r + 1]; i++) ((int32_t *)ids.data)[i] = (int32_t)r;
out:
  return status;
}

static treadle_status call(scene *s, const int64_t *rows, size_t count, const treadle_row_range *by_rank) {
  const treadle_worker_rows divided = {.rows = {.batch = s->batch, .rows = rows, .row_count = count},
                                       .by_rank = by_rank};
  treadle_message_clear(&s->in);
  treadle_message_put_bytes(&s->in, rows, count * sizeof *rows);
  treadle_message_put_bytes(&s->in, by_rank, RANKS * sizeof *by_rank);
  return treadle_worker_group_call_rows(&s->workers, "take", &s->in, &divided, &s->out);
}

/* Any rows in any order; ranges that follow each other, of all, of none, or one for two ranks. */
static size_t draw(treadle_random *random, int64_t *rows, treadle_row_range *by_rank) {
  const int64_t count = treadle_random_below(random, MOST + 1);
  const bool in_order = treadle_random_below(random, 2);
  for (int64_t i = 0; i < count; i++) rows[i] = in_order ? i : treadle_random_below(random, MOST);
  for (int rank = 0; rank < RANKS; rank++) {
    const int64_t first = treadle_random_below(random, count + 1);
    by_rank[rank] = (treadle_row_range){first, treadle_random_between(random, first, count)};
    if (rank && treadle_random_below(random, 3) == 0) by_rank[rank] = by_rank[rank - 1];
  }
  return (size_t)count;
}

static int lead(scene *s) {
  treadle_random random = {3};
  treadle_row_range by_rank[RANKS];
  int64_t rows[MOST];
  RANK_OK(make_batch(&s->batch));
  for (int i = 0; i < CALLS; i++) {
    const size_t count = draw(&random, rows, by_rank);
    RANK_OK(call(s, rows, count, by_rank));
    by_rank[RANKS - 1] = (treadle_row_range){0, (int64_t)count + 1};
    if (!ranks_nodes)
      RANK_FAILS(TREADLE_PEER, "and rank 3 is to take rows 0 to ", call(s, rows, count, by_rank));
  }
  return 0;
}

/* Whichever allocation fails, here or on another rank. */
static int starve(scene *s) {
  treadle_random random = {4};
  treadle_row_range by_rank[RANKS];
  int64_t rows[MOST];
  const size_t count = draw(&random, rows, by_rank);
  RANK_OK(make_batch(&s->batch));
  RANK_OK(call(s, rows, count, by_rank));
  for (long n = 1;; n++) {
    RANK_TRUE(n < 300);
    treadle_message_release(&s->in);
    const long before = treadle_alloc_count();
    treadle_alloc_fail_at(n);
    const treadle_status status = call(s, rows, count, by_rank);
    const bool failed = treadle_alloc_count() - before >= n;
    treadle_alloc_fail_at(0);
    RANK_TRUE(status == (failed ? TREADLE_NO_MEMORY : TREADLE_OK));
    if (!failed) return 0;
  }
}

static int run_rank(treadle_group *group, void *context) {
  static const treadle_worker_method methods[] = {{"take", take, false}, {NULL, NULL, false}};
  int (*const *lead_p)(scene * s) = context;
  scene s = {.worker = {.group = group, .pairs = ranks_nodes == ranks_in_pairs}};
  int bad;
  s.workers = (treadle_worker_group){.group = group, .methods = methods, .worker = &s.worker};
  s.worker.workers = &s.workers;
  if (treadle_group_rank(group) == 0)
    bad = (*lead_p)(&s) || ranks_said(TREADLE_OK, treadle_worker_group_end(&s.workers, TREADLE_OK), NULL,
                                      "end", __FILE__, __LINE__);
  else
    bad = ranks_said(TREADLE_OK, treadle_worker_group_serve(&s.workers), NULL, "serve", __FILE__, __LINE__);
  if (bad) treadle_group_fail(group);
  treadle_batch_destroy(s.batch);
  treadle_message_release(&s.in);
  treadle_message_release(&s.out);
  treadle_worker_group_release(&s.workers);
  return bad || (*lead_p == lead && !s.worker.got);
}

/* On one node, and on two. */
static void run(int (*lead_rank)(scene *s)) {
  ranks_as_threads(RANKS, 30, 0, run_rank, &lead_rank);
  ranks_nodes = ranks_in_pairs;
  ranks_as_threads(RANKS, 30, 0, run_rank, &lead_rank);
  ranks_as_threads(RANKS, 30, 5, run_rank, &lead_rank);
  ranks_nodes = ranks_on_two_nodes;
  ranks_as_threads(RANKS, 30, 0, run_rank, &lead_rank);
  ranks_nodes = NULL;
}

static void test_rows(void **state) {
  (void)state;
  run(lead);
}

static void test_no_memory(void **state) {
  (void)state;
  run(starve);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
