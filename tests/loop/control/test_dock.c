/* src/loop/control/dock.c: MindSpeed-RL's transfer dock, whose rules these are, row by row; and random asks against a plain twin. TREADLE_SEED sets the
 * seed (1). */
#include "base/random.h"
#include "test.h"
#include "treadle_control.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 8, ROUNDS = 4000 };

static const char *const columns[] = {"responses", "ref_log_prob"}, *const consumers[] = {"ref", "rewards"};

static treadle_dock *make(int64_t group) {
  const treadle_dock_spec spec = {.struct_size = sizeof spec,
                                  .rows = ROWS,
                                  .group = group,
                                  .columns = columns,
                                  .column_count = 2,
                                  .consumers = consumers,
                                  .consumer_count = 2};
  treadle_dock *dock;
  assert_ok(treadle_dock_create(&spec, &dock));
  return dock;
}

static void put(treadle_dock *dock, const char *column, int64_t first, int64_t count) {
  int64_t rows[ROWS];
  for (int64_t i = 0; i < count; i++) rows[i] = first + i;
  assert_ok(treadle_dock_put(dock, &column, 1, rows, (size_t)count));
}

static treadle_dock_request ask_of(const char *consumer, int64_t count) {
  return (treadle_dock_request){.struct_size = sizeof(treadle_dock_request),
                                .consumer = consumer,
                                .columns = columns,
                                .column_count = 1,
                                .count = count};
}

static void check(treadle_dock *dock, const treadle_dock_request *ask, const char *wanted) {
  int64_t rows[2 * ROWS];
  char text[200] = "";
  size_t count;
  assert_ok(treadle_dock_take(dock, ask, rows, &count));
  for (size_t i = 0; i < count; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", i ? "," : "", (long long)rows[i]);
  assert_string_equal(text, wanted);
}

static void each_consumer_once(void **state) {
  (void)state;
  treadle_dock *dock = make(1);
  treadle_dock_request ref = ask_of("ref", 2), all = ask_of("rewards", 0);
  check(dock, &ref, "");
  put(dock, "responses", 4, 3);
  assert_int_equal(treadle_dock_ready(dock, "responses"), 3);
  check(dock, &ref, "4,5");
  check(dock, &ref, ""); /* of two, one is ready */
  check(dock, &all, "4,5,6");
  check(dock, &all, "");
  put(dock, "responses", 0, 8); /* what was ready stays so, and was taken */
  check(dock, &all, "0,1,2,3,7");
  assert_true(treadle_dock_all_consumed(dock, "rewards"));
  assert_false(treadle_dock_all_consumed(dock, "ref"));
  treadle_dock_clear(dock);
  assert_false(treadle_dock_all_consumed(dock, "rewards"));
  check(dock, &all, "");
  treadle_dock_destroy(dock);
}

static void all_columns(void **state) {
  (void)state;
  treadle_dock *dock = make(1);
  treadle_dock_request both = ask_of("rewards", 0);
  both.column_count = 2;
  put(dock, "responses", 0, 4);
  put(dock, "ref_log_prob", 2, 4);
  check(dock, &both, "2,3");
  treadle_dock_destroy(dock);
}

static void whole_groups(void **state) {
  (void)state;
  treadle_dock *dock = make(4);
  treadle_dock_request groups = ask_of("rewards", 0);
  groups.groups = true;
  put(dock, "responses", 0, 3);
  check(dock, &groups, "");
  put(dock, "responses", 4, 4);
  check(dock, &groups, "4,5,6,7");
  put(dock, "responses", 3, 1);
  groups.dp_size = 3; /* four rows are no multiple, three no group */
  check(dock, &groups, "");
  groups.dp_size = 2;
  check(dock, &groups, "0,1,2,3");
  treadle_dock_destroy(dock);
}

static void padded(void **state) {
  (void)state;
  treadle_dock *dock = make(1);
  treadle_dock_request two = ask_of("ref", 2);
  two.dp_size = 2;
  put(dock, "responses", 3, 1);
  check(dock, &two, "");
  two.pads = true;
  check(dock, &two, "3,-2");
  check(dock, &two, ""); /* nothing is not padded */
  put(dock, "responses", 0, 3);
  check(dock, &two, "0,1");
  two.count = 0;
  two.dp_size = 4;
  put(dock, "responses", 4, 4);
  check(dock, &two, "2,4,5,6,7,-2,-2,-2");
  assert_true(treadle_dock_all_consumed(dock, "ref")); /* padding is none of the rows */
  treadle_dock_destroy(dock);
}

static void in_order(void **state) {
  (void)state;
  treadle_dock *dock = make(1);
  treadle_dock_request ask = ask_of("ref", 0);
  ask.in_order = true;
  put(dock, "responses", 1, 2);
  check(dock, &ask, "");
  put(dock, "responses", 0, 1);
  put(dock, "responses", 4, 4);
  check(dock, &ask, "0,1,2");
  put(dock, "responses", 3, 1);
  check(dock, &ask, "3,4,5,6,7");
  treadle_dock_destroy(dock);
}

static void refused(void **state) {
  (void)state;
  static const char *const twice[] = {"a", "a"}, *const other[] = {"responses", "logits"};
  static const int64_t row = ROWS;
  int64_t rows[ROWS];
  size_t count;
  treadle_dock_spec spec = {.struct_size = sizeof spec,
                            .rows = ROWS,
                            .group = 3,
                            .columns = columns,
                            .column_count = 2,
                            .consumers = consumers,
                            .consumer_count = 2};
  treadle_dock *dock;
  assert_refused("groups of 3 rows do not divide the 8 rows", treadle_dock_create(&spec, &dock));
  spec.group = 2;
  spec.columns = twice;
  assert_refused("column 'a' twice", treadle_dock_create(&spec, &dock));
  dock = make(2);
  assert_refused("no column 'logits'; it has 'responses', 'ref_log_prob'",
                 treadle_dock_put(dock, other, 2, (const int64_t[]){0}, 1));
  assert_int_equal(treadle_dock_ready(dock, "responses"), 0);
  assert_refused("row 8 is not of the dock, which has rows 0 to 7",
                 treadle_dock_put(dock, columns, 1, &row, 1));
  assert_refused("treadle_dock_put: no rows", treadle_dock_put(dock, columns, 1, NULL, 1));
  treadle_dock_request ask = ask_of("critic", 2);
  assert_refused("no consumer 'critic'; it has 'ref', 'rewards'",
                 treadle_dock_take(dock, &ask, rows, &count));
  ask = ask_of("ref", 3);
  assert_refused("3 rows at a time do not divide the 8 rows", treadle_dock_take(dock, &ask, rows, &count));
  ask = ask_of("ref", 1);
  ask.groups = true;
  assert_refused("1 rows at a time are not of whole groups", treadle_dock_take(dock, &ask, rows, &count));
  ask = ask_of("ref", 4);
  ask.dp_size = 3;
  assert_refused("do not divide by dp_size 3", treadle_dock_take(dock, &ask, rows, &count));
  treadle_dock_destroy(dock);
}

/* ---- A plain twin ------------------------------------------------------------------------------------------------- */

/* Rows one by one, as a person would pick them. */
static size_t pick(const treadle_dock_request *ask, int64_t group, bool ready[2][ROWS], bool taken[ROWS],
                   int64_t rows[2 * ROWS]) {
  int64_t may[ROWS];
  size_t there = 0, count;
  for (int64_t r = 0; r < ROWS; r++) {
    bool one = !taken[r];
    const int64_t first = ask->groups ? r / group * group : r, end = ask->groups ? first + group : r + 1;
    for (int64_t i = first; i < end; i++)
      one = one && !taken[i] && ready[0][i] && (ask->column_count < 2 || ready[1][i]);
    if (!one && !taken[r] && ask->in_order) break;
    if (one) may[there++] = r;
  }
  count = ask->count ? (size_t)ask->count : there;
  if (count > there) count = ask->pads ? there : 0;
  if (!ask->pads)
    while ((ask->dp_size && count % (size_t)ask->dp_size) || (ask->groups && count % (size_t)group))
      count--;
  for (size_t i = 0; i < count; i++) {
    rows[i] = may[i];
    taken[may[i]] = true;
  }
  while (ask->pads && ask->dp_size && count % (size_t)ask->dp_size) rows[count++] = TREADLE_DOCK_PADDING;
  return count;
}

static void random_asks(void **state) {
  (void)state;
  static const int64_t groups[] = {1, 2, 4}, counts[] = {0, 2, 4, 8};
  const char *seed_text = getenv("TREADLE_SEED");
  treadle_random random = {seed_text ? strtoull(seed_text, NULL, 10) : 1};
  treadle_dock *dock = NULL;
  bool ready[2][ROWS] = {{0}}, taken[2][ROWS] = {{0}};
  int64_t group = 1;
  printf("TREADLE_SEED=%llu\n", (unsigned long long)random.state);
  for (int round = 0; round < ROUNDS; round++) {
    if (round % 40 == 0) {
      treadle_dock_destroy(dock);
      group = groups[treadle_random_below(&random, 3)];
      dock = make(group);
      memset(ready, 0, sizeof ready);
      memset(taken, 0, sizeof taken);
    }
    const size_t c = (size_t)treadle_random_below(&random, 2);
    const int64_t row = treadle_random_below(&random, ROWS);
    put(dock, columns[c], row, 1);
    ready[c][row] = true;
    const size_t who = (size_t)treadle_random_below(&random, 2);
    treadle_dock_request ask = ask_of(consumers[who], counts[treadle_random_below(&random, 4)]);
    ask.column_count = 1 + (size_t)treadle_random_below(&random, 2);
    ask.groups = treadle_random_below(&random, 2);
    ask.in_order = treadle_random_below(&random, 2);
    ask.pads = treadle_random_below(&random, 2);
    ask.dp_size = treadle_random_below(&random, 5);
    int64_t rows[2 * ROWS], wanted[2 * ROWS];
    size_t count;
    if (!ask.pads && ask.dp_size && ask.count % ask.dp_size) continue;
    if (ask.groups && ask.count % group) continue;
    const size_t wanted_count = pick(&ask, group, ready, taken[who], wanted);
    assert_ok(treadle_dock_take(dock, &ask, rows, &count));
    assert_int_equal(count, wanted_count);
    assert_memory_equal(rows, wanted, count * sizeof *rows);
  }
  treadle_dock_destroy(dock);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_consumer_once), cmocka_unit_test(all_columns),
                                     cmocka_unit_test(whole_groups),       cmocka_unit_test(padded),
                                     cmocka_unit_test(in_order),           cmocka_unit_test(refused),
                                     cmocka_unit_test(random_asks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
