/* src/loop/control/balance_rows.c: verl's vectors, rows that do not divide, none, fewer than coordinates; micro batches that no limit lets pass;
 * random rows beside all divisions that there are, and the bounds of the method. TREADLE_SEED sets the seed (1). */
#include "base/random.h"
#include "control/balance_rows.h"
#include "seeds.h"
#include "test.h"
#include "treadle_control.h"

enum { MOST = 48, ROUNDS = 2000, SMALL = 7 };

typedef struct outcome {
  int64_t order[MOST], micro_batches[MOST];
  int64_t work[MOST], tokens[MOST]; /* of each coordinate */
} outcome;

static int64_t work_of(int64_t length) { return length * (24576 + length); }

/* Divides, and checks that each row has a place. */
static void balance(const treadle_balance_call *call, outcome *o) {
  bool has[MOST] = {false};
  size_t at = 0;
  *o = (outcome){0};
  assert_ok(treadle_balance_call_rows(call, o->order, o->micro_batches));
  for (size_t c = 0; c < call->coordinates; c++)
    for (int64_t i = 0; i < call->counts[c]; i++, at++) {
      const int64_t row = o->order[at];
      assert_true(row >= 0 && row < (int64_t)call->rows && !has[row]);
      has[row] = true;
      o->work[c] += work_of(call->lengths[row]);
      o->tokens[c] += call->lengths[row];
    }
  assert_int_equal(at, call->rows);
}

static void check_order(const treadle_balance_call *call, const int64_t *wanted) {
  outcome o;
  balance(call, &o);
  for (size_t i = 0; i < call->rows; i++) assert_int_equal(o.order[i], wanted[i]);
}

/* ---- Equal numbers of rows: verl's ---- */

static const int64_t sixteen[16] = {100, 100, 100, 100, 200, 200, 200, 200,
                                    150, 150, 150, 150, 50,  50,  50,  50};
static const int64_t eight[8] = {7, 3, 9, 1, 5, 5, 2, 8};

/* As treadle_balance_divide orders them, which has verl's vectors (test_balance.c). */
static void as_verl(const int64_t *lengths, size_t rows, size_t coordinates) {
  int64_t loads[MOST], order[MOST], counts[MOST];
  const treadle_balance_spec spec = {.struct_size = sizeof spec,
                                     .loads = loads,
                                     .count = rows,
                                     .parts = coordinates,
                                     .equal = true,
                                     .ends_small = true};
  const treadle_balance_call call = {
      .lengths = lengths, .rows = rows, .coordinates = coordinates, .counts = counts};
  assert_ok(treadle_balance_workload(lengths, rows, loads));
  assert_ok(treadle_balance_divide(&spec, order, counts));
  check_order(&call, order);
}

static void equal_numbers(void **state) {
  (void)state;
  /* {0,7,8,12} {1,6,9,13} {2,5,10,14} {3,4,11,15}, each from 50 by 100 and 150 to 200. */
  static const int64_t four[4] = {4, 4, 4, 4},
                       sets[16] = {12, 8, 7, 0, 13, 9, 6, 1, 14, 10, 5, 2, 15, 11, 4, 3};
  treadle_balance_call call = {.lengths = sixteen, .rows = 16, .coordinates = 4, .counts = four};
  outcome o;
  check_order(&call, sets);
  for (size_t coordinates = 1; coordinates <= 16; coordinates *= 2) as_verl(sixteen, 16, coordinates);
  for (size_t coordinates = 1; coordinates <= 8; coordinates *= 2) as_verl(eight, 8, coordinates);
  call = (treadle_balance_call){.lengths = eight, .rows = 8, .coordinates = 2, .counts = four};
  balance(&call, &o);
  assert_int_equal(o.tokens[0], 20);
  assert_int_equal(o.tokens[1], 20);
}

/* ---- Others ---- */

/* Of 9 8 7 5 5 3 2 1 the longest rows go equally, the others to who has room; then rows are swapped. */
static void other_numbers(void **state) {
  (void)state;
  const struct {
    size_t rows, coordinates;
    int64_t counts[5], tokens[5];
  } cases[] = {
      {8, 3, {3, 2, 3}, {13, 13, 14}},                           /* 9 3 1, 8 5, 7 5 2 */
      {8, 3, {2, 2, 4}, {13, 14, 13}},                           /* 8 5, 7 5 and 9 3 2 1; swapped 9 and 7 */
      {8, 2, {4, 4}, {20, 20}},        {8, 2, {2, 6}, {17, 23}}, /* 8 7 and the others; swapped 9 and 7 */
      {8, 3, {0, 4, 4}, {0, 20, 20}},  {3, 5, {0, 1, 0, 1, 1}, {0, 9, 0, 7, 3}},
      {1, 3, {0, 0, 1}, {0, 0, 7}},    {0, 3, {0, 0, 0}, {0, 0, 0}},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    const treadle_balance_call call = {.lengths = eight,
                                       .rows = cases[i].rows,
                                       .coordinates = cases[i].coordinates,
                                       .counts = cases[i].counts};
    outcome o;
    balance(&call, &o);
    for (size_t c = 0; c < call.coordinates; c++) {
      if (o.tokens[c] != cases[i].tokens[c])
        fail_msg("case %zu, coordinate %zu: %lld tokens, not %lld", i, c, (long long)o.tokens[c],
                 (long long)cases[i].tokens[c]);
    }
  }
}

static void even_counts(void **state) {
  (void)state;
  int64_t counts[4];
  treadle_balance_even_counts(10, 4, counts);
  assert_memory_equal(counts, ((const int64_t[]){3, 3, 2, 2}), sizeof counts);
  treadle_balance_even_counts(2, 4, counts);
  assert_memory_equal(counts, ((const int64_t[]){1, 1, 0, 0}), sizeof counts);
}

/* ---- Micro batches ---- */

/* How many a coordinate has; each is within the limit, and numbers go up by one. */
static int64_t check_micro_batches(const treadle_balance_call *call, const outcome *o, size_t first,
                                   int64_t count) {
  int64_t tokens = 0, number = 0;
  for (size_t i = first; i < first + (size_t)count; i++) {
    if (i > first && o->micro_batches[i] != number) tokens = 0;
    assert_true(o->micro_batches[i] == number + (i > first && tokens == 0));
    number = o->micro_batches[i];
    tokens += call->lengths[o->order[i]];
    assert_true(tokens <= call->max_tokens);
  }
  return count ? number + 1 : 0;
}

/* Coordinate 0: three rows of 4, which two micro batches of 6 tokens would have room for by their sum. So the other one has three, too. */
static void raised(void **state) {
  (void)state;
  static const int64_t lengths[] = {4, 4, 4, 4, 4, 4}, counts[] = {3, 3};
  const int64_t mixed[] = {6, 1, 6, 1, 6, 1};
  treadle_balance_call call = {
      .lengths = lengths, .rows = 6, .coordinates = 2, .counts = counts, .max_tokens = 6};
  outcome o;
  balance(&call, &o);
  assert_int_equal(check_micro_batches(&call, &o, 0, 3), 3);
  assert_int_equal(check_micro_batches(&call, &o, 3, 3), 3);
  call.max_tokens = 8;
  balance(&call, &o);
  assert_int_equal(check_micro_batches(&call, &o, 0, 3), 2);
  call.lengths = mixed; /* 6 6 1 and 6 1 1: as many of both */
  call.max_tokens = 7;
  balance(&call, &o);
  assert_int_equal(o.tokens[0], 13);
  assert_int_equal(check_micro_batches(&call, &o, 0, 3), 2);
  assert_int_equal(check_micro_batches(&call, &o, 3, 3), 2);
  call.max_tokens = 5;
  assert_refused("has 6 tokens, and a micro batch at most 5",
                 treadle_balance_call_rows(&call, o.order, o.micro_batches));
}

static void refused(void **state) {
  (void)state;
  const int64_t more[] = {5, 4}, fewer[] = {3, 4}, below[] = {-1, 9}, huge[] = {1, INT64_MAX};
  int64_t order[8];
  treadle_balance_call call = {.lengths = eight, .rows = 8, .coordinates = 2, .counts = more};
  assert_refused("coordinate 1 takes 4 rows; 3 of 8 are left",
                 treadle_balance_call_rows(&call, order, NULL));
  call.counts = fewer;
  assert_refused("nobody takes 1 of 8 rows", treadle_balance_call_rows(&call, order, NULL));
  call.counts = below;
  assert_refused("coordinate 0 takes -1 rows", treadle_balance_call_rows(&call, order, NULL));
  call = (treadle_balance_call){
      .lengths = huge, .rows = 2, .coordinates = 2, .counts = (const int64_t[]){1, 1}};
  assert_refused("row 1 has 9223372036854775807 tokens", treadle_balance_call_rows(&call, order, NULL));
}

/* ---- Random rows ---- */

/* The smallest largest work of a coordinate, of all divisions with these counts. */
static int64_t best(const int64_t *lengths, size_t row, size_t rows, size_t coordinates, int64_t *room,
                    int64_t *work) {
  int64_t least = INT64_MAX;
  if (row == rows) {
    for (size_t c = 0, first = 0; c < coordinates; c++)
      if (first++ == 0 || work[c] > least) least = work[c];
    return least;
  }
  for (size_t c = 0; c < coordinates; c++) {
    if (!room[c]) continue;
    room[c]--;
    work[c] += work_of(lengths[row]);
    const int64_t found = best(lengths, row + 1, rows, coordinates, room, work);
    if (found < least) least = found;
    work[c] -= work_of(lengths[row]);
    room[c]++;
  }
  return least;
}

static int falls(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

/* With equal counts, the method's bound: coordinates differ no more than the rows of a group of neighbours do, in the order of lengths. A row beside
 * these adds its own work at most. */
static int64_t bound(const treadle_balance_call *call, size_t parts, size_t each) {
  int64_t sorted[MOST], most = 0;
  for (size_t i = 0; i < call->rows; i++) sorted[i] = work_of(call->lengths[i]);
  qsort(sorted, call->rows, sizeof *sorted, falls);
  for (size_t i = 0; i < each; i++)
    if (sorted[i * parts] - sorted[i * parts + parts - 1] > most)
      most = sorted[i * parts] - sorted[i * parts + parts - 1];
  return most + (parts * each < call->rows ? sorted[parts * each] : 0);
}

/* No two rows of the coordinates with the most and the least work bring these closer if they are swapped. */
static void check_swaps(const treadle_balance_call *call, const outcome *o) {
  size_t most = 0, least = 0, first_of[MOST], at = 0;
  bool some = false;
  for (size_t c = 0; c < call->coordinates; at += (size_t)call->counts[c], c++) {
    first_of[c] = at;
    if (!call->counts[c]) continue;
    if (!some || o->work[c] > o->work[most]) most = c;
    if (!some || o->work[c] < o->work[least]) least = c;
    some = true;
  }
  const int64_t gap = o->work[most] - o->work[least];
  for (size_t i = first_of[most]; i < first_of[most] + (size_t)call->counts[most]; i++)
    for (size_t j = first_of[least]; j < first_of[least] + (size_t)call->counts[least]; j++) {
      const int64_t moved = work_of(call->lengths[o->order[i]]) - work_of(call->lengths[o->order[j]]);
      assert_false(moved > 0 && moved < gap);
    }
}

static bool is_even(const treadle_balance_call *call) {
  int64_t each = 0;
  for (size_t c = 0; c < call->coordinates; c++) {
    if (each && call->counts[c] && call->counts[c] != each) return false;
    if (call->counts[c]) each = call->counts[c];
  }
  return true;
}

static void check_ends(const treadle_balance_call *call, const outcome *o) {
  const size_t each = call->rows / call->coordinates,
               parts = each ? call->coordinates : call->rows; /* with rows */
  int64_t least = INT64_MAX, most = 0, room[MOST], work[MOST] = {0};
  for (size_t c = 0; c < parts; c++) {
    if (o->work[c] < least) least = o->work[c];
    if (o->work[c] > most) most = o->work[c];
    room[c] = call->counts[c];
  }
  assert_true(most - least <= bound(call, parts, each ? each : 1));
  if (call->rows > SMALL || call->coordinates > 3) return;
  const int64_t optimum = best(call->lengths, 0, call->rows, parts, room, work);
  assert_true(most >= optimum && most <= optimum + bound(call, parts, each ? each : 1));
}

static void check_all_micro_batches(treadle_balance_call *call, treadle_random *random) {
  int64_t longest = 1, most = 0, least = INT64_MAX;
  outcome o, again;
  size_t at = 0;
  for (size_t i = 0; i < call->rows; i++)
    if (call->lengths[i] > longest) longest = call->lengths[i];
  call->max_tokens = longest + treadle_random_below(random, 3 * longest);
  balance(call, &o);
  balance(call, &again);
  assert_memory_equal(&o, &again, sizeof o);
  for (size_t c = 0; c < call->coordinates; at += (size_t)call->counts[c], c++) {
    const int64_t count = check_micro_batches(call, &o, at, call->counts[c]);
    assert_true(count * call->max_tokens >= o.tokens[c]);
    if (count > most) most = count;
    if (count < call->counts[c] && count < least) least = count;
  }
  assert_true(least == INT64_MAX || least == most); /* equal, but where each row is one */
}

static void random_rows(void **state) {
  (void)state;
  const char *seed = getenv("TREADLE_SEED");
  treadle_random random = {seed ? strtoull(seed, NULL, 10) : 1};
  const int rounds = (int)test_seeds(ROUNDS);
  printf("seed %s\n", seed ? seed : "1");
  for (int round = 0; round < rounds; round++) {
    const size_t most = round % 2 ? SMALL : MOST;
    int64_t lengths[MOST], counts[MOST];
    treadle_balance_call call = {.lengths = lengths,
                                 .rows = (size_t)treadle_random_between(&random, 1, (int64_t)most),
                                 .coordinates =
                                     (size_t)treadle_random_between(&random, 1, round % 2 ? 3 : 9),
                                 .counts = counts};
    const int64_t longest = treadle_random_between(&random, 1, 5000);
    outcome o;
    for (size_t i = 0; i < call.rows; i++) lengths[i] = treadle_random_between(&random, 1, longest);
    treadle_balance_even_counts(call.rows, call.coordinates, counts);
    balance(&call, &o);
    check_ends(&call, &o);
    if (!is_even(&call)) check_swaps(&call, &o);
    if (call.rows % call.coordinates == 0) as_verl(lengths, call.rows, call.coordinates);
    check_all_micro_batches(&call, &random);
    /* Any numbers of rows. */
    call.max_tokens = 0;
    int64_t left = (int64_t)call.rows;
    for (size_t c = 0; c + 1 < call.coordinates; left -= counts[c], c++)
      counts[c] = treadle_random_between(&random, 0, left);
    counts[call.coordinates - 1] = left;
    balance(&call, &o);
    if (!is_even(&call)) check_swaps(&call, &o);
    check_all_micro_batches(&call, &random);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(equal_numbers), cmocka_unit_test(other_numbers),
                                     cmocka_unit_test(even_counts),   cmocka_unit_test(raised),
                                     cmocka_unit_test(refused),       cmocka_unit_test(random_rows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
