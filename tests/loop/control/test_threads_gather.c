/* treadle_batch_gather on 1, 2 and 4 ranks, of one node and of two: rows of all ranks in their order, whichever have
 * none; what is refused is refused on all; whichever allocation fails, all fail and the next call is good.
 * ctest: label=threads */
#include "group/ranks.h"
#include "test.h"

#include "treadle_loop.h"

enum { RANKS_MOST = 4, ROWS_MOST = 7, NONE = -1, ATTEMPTS = 2000 };

typedef struct scene {
  int64_t rows[RANKS_MOST]; /* of each rank; NONE: NULL */
  int64_t values;           /* of a row */
} scene;

/* ---- Rows that say whose they are ---- */

static int32_t value_of(int rank, int64_t row, int64_t i) { return (int32_t)(rank * 1000 + row * 10 + i); }

static void name_row(int rank, int64_t row, char to[32]) {
  snprintf(to, 32, "%.*srank %d, row %d", (int)(row % 3) * 4, "............", rank, (int)row);
}

static treadle_status fill(treadle_batch *batch, int rank, int64_t rows, int64_t values) {
  int64_t offsets[ROWS_MOST + 1] = {0};
  char names[ROWS_MOST + 1][32];
  const char *texts[ROWS_MOST + 1];
  treadle_column ids = {
      .struct_size = sizeof ids, .name = "ids", .type = TREADLE_COLUMN_INT32, .offsets = offsets};
  treadle_column score = {
      .struct_size = sizeof score, .name = "score", .type = TREADLE_COLUMN_FP64, .width = 1};
  treadle_status status;
  for (int64_t r = 0; r < rows; r++) {
    offsets[r + 1] = offsets[r] + (r % 2 ? 0 : values);
    name_row(rank, r, names[r]);
    texts[r] = names[r];
  }
  TRY(treadle_batch_add(batch, &ids));
  TRY(treadle_batch_add(batch, &score));
  TRY(treadle_batch_add_texts(batch, "uid", texts, NULL));
  TRY(treadle_batch_set_meta(batch, "temperature", "1"));
  TRY(treadle_batch_column(batch, "ids", &ids));
  TRY(treadle_batch_column(batch, "score", &score));
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t i = 0; i < offsets[r + 1] - offsets[r]; i++)
      ((int32_t *)ids.data)[offsets[r] + i] = value_of(rank, r, i);
    ((double *)score.data)[r] = value_of(rank, r, 0) + 0.25;
  }
out:
  return status;
}

static treadle_status make(const scene *s, int rank, treadle_batch **batch_p) {
  treadle_status status = TREADLE_OK;
  *batch_p = NULL;
  if (s->rows[rank] == NONE) return TREADLE_OK;
  TRY(treadle_batch_create(s->rows[rank], batch_p));
  TRY(fill(*batch_p, rank, s->rows[rank], s->values));
out:
  return status;
}

static int check_row(const treadle_column *c, int64_t at, int rank, int64_t row, int64_t values) {
  const treadle_column *ids = &c[0], *score = &c[1], *uid = &c[2];
  const int64_t count = row % 2 ? 0 : values;
  char name[32];
  RANK_TRUE(ids->offsets[at + 1] - ids->offsets[at] == count);
  for (int64_t i = 0; i < count; i++)
    RANK_TRUE(((const int32_t *)ids->data)[ids->offsets[at] + i] == value_of(rank, row, i));
  RANK_TRUE(((const double *)score->data)[at] == value_of(rank, row, 0) + 0.25);
  name_row(rank, row, name);
  RANK_TRUE((size_t)(uid->offsets[at + 1] - uid->offsets[at]) == strlen(name));
  RANK_TRUE(memcmp((const char *)uid->data + uid->offsets[at], name, strlen(name)) == 0);
  return 0;
}

static int check(const scene *s, int ranks, const treadle_batch *all) {
  static const char *const names[] = {"ids", "score", "uid"};
  treadle_column columns[TEST_COUNT(names)];
  int64_t at = 0;
  for (size_t i = 0; i < TEST_COUNT(names); i++) {
    columns[i] = TREADLE_INIT(treadle_column);
    RANK_OK(treadle_batch_column(all, names[i], &columns[i]));
  }
  RANK_TRUE(treadle_batch_column_count(all) == (int32_t)TEST_COUNT(names));
  RANK_TRUE(treadle_batch_meta_key(all, 0) == NULL);
  for (int rank = 0; rank < ranks; rank++)
    for (int64_t row = 0; row < s->rows[rank]; row++, at++)
      if (check_row(columns, at, rank, row, s->values)) return 1;
  RANK_TRUE(at == treadle_batch_rows(all));
  return 0;
}

static int gather(treadle_group *group, const scene *s) {
  treadle_batch *mine = NULL, *all = NULL;
  RANK_OK(make(s, treadle_group_rank(group), &mine));
  RANK_OK(treadle_batch_gather(group, mine, &all));
  treadle_batch_destroy(mine); /* the new batch has rows of its own */
  if (check(s, treadle_group_size(group), all)) return 1;
  treadle_batch_destroy(all);
  return 0;
}

/* ---- Rows of some, of all ---- */

static int gather_all(treadle_group *group, void *context) {
  static const int64_t counts[] = {3, NONE, 0, 1, ROWS_MOST, NONE, NONE, 2, 0, 0};
  const int ranks = treadle_group_size(group);
  (void)context;
  for (size_t i = 0; i < TEST_COUNT(counts); i++) {
    scene s = {.values = (int64_t)(i * i * 50)};
    bool any = false;
    for (int rank = 0; rank < ranks; rank++) {
      s.rows[rank] = counts[(i + (size_t)rank) % TEST_COUNT(counts)];
      any = any || s.rows[rank] != NONE;
    }
    if (any && gather(group, &s)) return 1;
  }
  return 0;
}

/* ---- What is refused ---- */

static const scene small = {{2, 1, 3, 1}, 5};

static int gather_none(treadle_group *group, void *context) {
  treadle_batch *all = context;
  RANK_FAILS(TREADLE_REFUSED,
             treadle_group_size(group) > 1 ? "ranks has rows" : "the only rank has no rows (NULL)",
             treadle_batch_gather(group, NULL, &all));
  RANK_TRUE(all == NULL);
  return gather(group, &small);
}

static treadle_status add_column(treadle_batch *batch) {
  const treadle_column column = {
      .struct_size = sizeof column, .name = "reward", .type = TREADLE_COLUMN_FP64, .width = 1};
  return treadle_batch_add(batch, &column);
}

static treadle_status lose_column(treadle_batch *batch) { return treadle_batch_remove(batch, "score"); }

static treadle_status rename_column(treadle_batch *batch) {
  return treadle_batch_rename(batch, "score", "reward");
}

static treadle_status change_type(treadle_batch *batch) {
  const treadle_column column = {
      .struct_size = sizeof column, .name = "score", .type = TREADLE_COLUMN_FP32, .width = 1};
  treadle_status status = treadle_batch_remove(batch, "score");
  return status ? status : treadle_batch_add(batch, &column);
}

/* The last rank's rows have other columns. */
static int gather_others(treadle_group *group, void *context) {
  static treadle_status (*const changes[])(treadle_batch *) = {add_column, lose_column, rename_column,
                                                               change_type};
  static const char *const words[] = {
      "has a column 'reward', and rank 0 has none", "rank 0 has a column 'score', and rank ",
      "rank 0 has a column 'score', and rank ",
      "column 'score' is fp64 of width 1 on rank 0, and fp32 of width 1 on"};
  const int rank = treadle_group_rank(group);
  for (size_t i = 0; i < TEST_COUNT(changes); i++) {
    treadle_batch *mine = NULL, *all = context;
    RANK_OK(make(&small, rank, &mine));
    if (rank == treadle_group_size(group) - 1) RANK_OK(changes[i](mine));
    RANK_FAILS(TREADLE_REFUSED, words[i], treadle_batch_gather(group, mine, &all));
    RANK_TRUE(all == NULL);
    treadle_batch_destroy(mine);
    if (gather(group, &small)) return 1;
  }
  return 0;
}

/* ---- No memory ---- */

/* Allocation `nth` of all ranks fails. *failed_p: false if there were fewer. */
static int starve(treadle_group *group, long nth, bool *failed_p) {
  const int rank = treadle_group_rank(group);
  treadle_batch *mine = NULL, *all = NULL;
  RANK_OK(make(&small, rank, &mine));
  RANK_OK(treadle_group_barrier(group));
  const long before = treadle_alloc_count();
  RANK_OK(treadle_group_barrier(group));
  if (rank == 0) treadle_alloc_fail_at(nth);
  RANK_OK(treadle_group_barrier(group));
  const treadle_status status = treadle_batch_gather(group, mine, &all);
  RANK_OK(treadle_group_barrier(group));
  *failed_p = treadle_alloc_count() - before >= nth;
  RANK_OK(treadle_group_barrier(group));
  if (rank == 0) treadle_alloc_fail_at(0);
  RANK_OK(treadle_group_barrier(group));
  RANK_TRUE(status == (*failed_p ? TREADLE_NO_MEMORY : TREADLE_OK) && !all == *failed_p);
  treadle_batch_destroy(all);
  treadle_batch_destroy(mine);
  return gather(group, &small);
}

static int starve_each(treadle_group *group, void *context) {
  bool failed = true;
  (void)context;
  for (long nth = 1; failed; nth++) {
    RANK_TRUE(nth < ATTEMPTS);
    if (starve(group, nth, &failed)) return 1;
  }
  return 0;
}

/* ---- On one node, and on two ---- */

static void run(ranks_body body, int least) {
  for (int ranks = least; ranks <= RANKS_MOST; ranks *= 2) {
    ranks_as_threads(ranks, 60, 0, body, NULL);
    if (ranks == 1) continue;
    ranks_nodes = ranks_on_two_nodes;
    ranks_as_threads(ranks, 60, 0, body, NULL);
    ranks_nodes = NULL;
  }
}

static void test_rows(void **state) {
  (void)state;
  run(gather_all, 1);
}

/* Without a group. */
static void test_alone(void **state) {
  treadle_batch *mine, *all;
  (void)state;
  assert_ok(make(&small, 0, &mine));
  assert_ok(treadle_batch_gather(NULL, mine, &all));
  treadle_batch_destroy(mine);
  assert_int_equal(check(&small, 1, all), 0);
  treadle_batch_destroy(all);
}

static void test_refused(void **state) {
  (void)state;
  run(gather_none, 1);
  run(gather_others, 2);
}

static void test_no_memory(void **state) {
  (void)state;
  run(starve_each, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_alone),
                                     cmocka_unit_test(test_refused), cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
