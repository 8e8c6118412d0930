/* src/loop/control/balance*.c and karmarkar_karp.c: verl's vectors (utils/seqlen_balancing.py, run), and random rows against a plain twin that keeps
 * every set as a list and looks through all states for the next one. TREADLE_SEED sets the seed (1). */
#include "base/random.h"
#include "test.h"
#include "treadle_control.h"

enum { MOST = 48, ROUNDS = 600 };

/* ---- Parts as text: "0,2|1,3" ---- */

static void show(const int64_t *order, const int64_t *counts, size_t parts, char text[1000]) {
  size_t at = 0;
  text[0] = 0;
  for (size_t p = 0; p < parts; p++)
    for (int64_t i = 0; i < counts[p]; i++)
      at += (size_t)snprintf(text + at, 1000 - at, "%s%lld", i ? "," : p ? "|" : "", (long long)*order++);
}

static treadle_balance_spec spec_of(const int64_t *loads, size_t count, size_t parts, bool equal) {
  return (treadle_balance_spec){.struct_size = sizeof(treadle_balance_spec),
                                .loads = loads,
                                .count = count,
                                .parts = parts,
                                .equal = equal};
}

static void check(const treadle_balance_spec *spec, const char *wanted) {
  int64_t order[MOST], counts[MOST];
  char text[1000];
  assert_ok(treadle_balance_divide(spec, order, counts));
  show(order, counts, spec->parts, text);
  assert_string_equal(text, wanted);
}

/* ---- verl's vectors ---- */

static void sixteen_rows(void **state) {
  (void)state;
  static const int64_t lengths[16] = {100, 100, 100, 100, 200, 200, 200, 200,
                                      150, 150, 150, 150, 50,  50,  50,  50};
  int64_t work[16];
  treadle_balance_spec spec = spec_of(lengths, 16, 2, true);
  check(&spec, "0,2,4,7,8,10,12,14|1,3,5,6,9,11,13,15");
  spec.parts = 4;
  check(&spec, "0,7,8,12|1,6,9,13|2,5,10,14|3,4,11,15");
  /* By work the parts of 2 and 4 are these, too. */
  assert_ok(treadle_balance_workload(lengths, 16, work));
  assert_int_equal(work[0], 24576 * 100 + 100 * 100);
  spec.loads = work;
  check(&spec, "0,7,8,12|1,6,9,13|2,5,10,14|3,4,11,15");
}

static const int64_t eight[8] = {7, 3, 9, 1, 5, 5, 2, 8};

static void eight_rows(void **state) {
  (void)state;
  treadle_balance_spec spec = spec_of(eight, 8, 2, true);
  check(&spec, "0,1,6,7|2,3,4,5"); /* sums 20, 20 */
  spec.parts = 4;
  check(&spec, "6,7|4,5|2,3|0,1");
  spec = spec_of(eight, 8, 3, false);
  check(&spec, "0,5,6|1,2,3|4,7"); /* sums 14, 13, 13 */
  spec = spec_of(eight, 8, 2, false);
  spec.kind = TREADLE_BALANCE_GREEDY;
  check(&spec, "0,3,4,6,7|1,2,5");
  spec.equal = true;
  check(&spec, "0,3,4,6|1,2,5,7");
}

/* By load 3: 1,  6: 2,  1: 3,  4 and 5: 5,  0: 7,  7: 8,  2: 9. */
static void small_at_both_ends(void **state) {
  (void)state;
  treadle_balance_spec spec = spec_of(eight, 8, 1, true);
  spec.ends_small = true;
  check(&spec, "3,1,5,7,2,0,4,6");
  spec.parts = 2;
  check(&spec, "6,0,7,1|3,5,2,4");
  spec.count = 7;
  spec.parts = 1;
  check(&spec, "3,1,5,2,0,4,6");
}

static void inverse(void **state) {
  (void)state;
  int64_t out[4], same[4] = {0, 1, 2, 3};
  assert_ok(treadle_balance_invert((const int64_t[]){3, 1, 0, 2}, 4, out));
  assert_memory_equal(out, ((const int64_t[]){2, 1, 3, 0}), sizeof out);
  assert_ok(treadle_balance_invert(NULL, 0, NULL));
  assert_refused("place 1 of the order has row 4; there are 4",
                 treadle_balance_invert((const int64_t[]){3, 4, 0, 2}, 4, out));
  assert_refused("row -1", treadle_balance_invert((const int64_t[]){3, -1, 0, 2}, 4, out));
  assert_refused("places 0 and 2 of the order both have row 3",
                 treadle_balance_invert((const int64_t[]){3, 1, 3, 2}, 4, out));
  assert_refused("in its own memory", treadle_balance_invert(same, 4, same));
}

/* Groups of 2 rows whose work is 7+3, 9+1, 5+5, 2+8: all 10, so that ties decide; and of other sizes. */
static void groups(void **state) {
  (void)state;
  static const int64_t pairs[] = {5, 5, 2, 2, -7, -7, 9, 9}, uneven[] = {1, 1, 1, 2, 3, 3, 4, 4},
                       torn[] = {1, 1, 2, 2, 1, 3, 3, 3};
  int64_t order[8], counts[8];
  treadle_balance_spec spec = spec_of(eight, 8, 2, true);
  spec.groups = pairs;
  check(&spec, "0,1,6,7|2,3,4,5");
  spec.groups = uneven;            /* 19, 1, 10, 10 */
  check(&spec, "4,5,6,7|0,1,2,3"); /* 20, 20 */
  spec.parts = 3;
  spec.equal = false;
  check(&spec, "0,1,2|3,4,5|6,7"); /* 19, 11, 10 */
  spec.equal = true;
  assert_refused("4 groups do not divide into 3 parts", treadle_balance_divide(&spec, order, counts));
  spec.parts = 5;
  assert_refused("number of items:[4] < k_partitions:[5]: fewer groups",
                 treadle_balance_divide(&spec, order, counts));
  spec.groups = torn;
  assert_refused("group 1 stands at row 0 and again at row 4",
                 treadle_balance_divide(&spec, order, counts));
  spec.ends_small = true;
  assert_refused("ends_small does not go with groups", treadle_balance_divide(&spec, order, counts));
}

static void refused(void **state) {
  (void)state;
  static const int64_t huge[] = {INT64_MAX, 1}, below[] = {1, -1}, long_rows[] = {1, INT64_C(3037000500)};
  int64_t order[8], counts[8];
  treadle_balance_spec spec = spec_of(eight, 8, 3, true);
  assert_refused("8 rows do not divide into 3 parts", treadle_balance_divide(&spec, order, counts));
  spec.parts = 9;
  assert_refused("number of items:[8] < k_partitions:[9]", treadle_balance_divide(&spec, order, counts));
  spec.parts = 0;
  assert_refused("0 parts", treadle_balance_divide(&spec, order, counts));
  spec = spec_of(huge, 2, 1, true);
  assert_refused("their sum does not fit into 64 bits, from row 1",
                 treadle_balance_divide(&spec, order, counts));
  spec.loads = below;
  assert_refused("loads of row 1: -1, below 0", treadle_balance_divide(&spec, order, counts));
  assert_refused("row 1 has -1 tokens", treadle_balance_workload(below, 2, order));
  assert_refused("row 1 has 3037000500 tokens", treadle_balance_workload(long_rows, 2, order));
}

/* ---- Figures: lengths 1 to 8 on 2 ranks are 10 and 26, and balanced 18 and 18 ---- */

static void figures(void **state) {
  (void)state;
  static const int64_t lengths[] = {1, 2, 3, 4, 5, 6, 7, 8};
  static const int64_t odd_counts[] = {3, 5}, more[] = {4, 5}, fewer[] = {4, 3};
  int64_t order[8], counts[2];
  treadle_balance_figures f = TREADLE_INIT(treadle_balance_figures);
  treadle_balance_spec spec = spec_of(lengths, 8, 2, true);
  assert_ok(treadle_balance_divide(&spec, order, counts));
  assert_ok(treadle_balance_get_figures(lengths, 8, order, counts, 2, &f));
  assert_int_equal(f.min, 10);
  assert_int_equal(f.max, 26);
  assert_int_equal(f.minmax_diff, 16);
  assert_int_equal(f.balanced_min, 18);
  assert_int_equal(f.balanced_max, 18);
  assert_true(f.mean == 18);
  /* Other orders, and parts of other sizes: rows 0 to 2 and 3 to 7. */
  for (int64_t i = 0; i < 8; i++) order[i] = i;
  assert_ok(treadle_balance_get_figures(lengths, 8, order, odd_counts, 2, &f));
  assert_int_equal(f.balanced_min, 6);
  assert_int_equal(f.balanced_max, 30);
  assert_int_equal(f.min, 10);
  assert_ok(treadle_balance_get_figures(lengths, 8, order, (const int64_t[]){2, 2, 2, 2}, 4, &f));
  assert_int_equal(f.balanced_min, f.min); /* as they came */
  assert_int_equal(f.balanced_max, f.max);
  assert_true(f.mean == 9);
  assert_refused("part 1 has 5 rows; 4 of 8 are left",
                 treadle_balance_get_figures(lengths, 8, order, more, 2, &f));
  assert_refused("the parts lack 1 of 8 rows",
                 treadle_balance_get_figures(lengths, 8, order, fewer, 2, &f));
  assert_refused("only support equal chunk: 8 rows",
                 treadle_balance_get_figures(lengths, 8, order, counts, 3, &f));
  order[7] = 0;
  assert_refused("both have row 0", treadle_balance_get_figures(lengths, 8, order, counts, 2, &f));
}

/* ---- Micro batches ---- */

static treadle_balance_micro_spec micro_of(const int64_t *lengths, size_t count, int64_t max_tokens) {
  return (treadle_balance_micro_spec){.struct_size = sizeof(treadle_balance_micro_spec),
                                      .lengths = lengths,
                                      .count = count,
                                      .max_tokens = max_tokens};
}

static void check_count(const treadle_balance_micro_spec *spec, int64_t wanted) {
  int64_t count;
  assert_ok(treadle_balance_micro_count(spec, &count));
  assert_int_equal(count, wanted);
}

static void counts_of_micro_batches(void **state) {
  (void)state;
  static const int64_t none[4] = {0};
  int64_t count;
  treadle_balance_micro_spec spec = micro_of(eight, 8, 10); /* 40 tokens */
  check_count(&spec, 4);
  spec.max_tokens = 9;
  check_count(&spec, 5); /* rounded up */
  spec.max_tokens = 40;
  check_count(&spec, 1);
  spec.max_tokens = 10;
  spec.least = 6;
  check_count(&spec, 6);
  spec.multiple = 4;
  check_count(&spec, 8);
  spec.least = 0;
  spec.multiple = 3;
  check_count(&spec, 6);
  spec.dp_most = 7; /* of another rank */
  assert_refused("more micro batches than 8 rows", treadle_balance_micro_count(&spec, &count));
  assert_int_equal(count, 0);
  spec.multiple = 0;
  check_count(&spec, 7);
  spec.dp_most = 0;
  spec.least = 9;
  assert_refused("more micro batches than 8 rows: at least 9", treadle_balance_micro_count(&spec, &count));
  spec = micro_of(eight, 8, 8);
  assert_refused("max_token_len must be greater than the sequence length: row 2 has 9 tokens",
                 treadle_balance_micro_count(&spec, &count));
  spec.max_tokens = 0;
  assert_refused("micro batches of 0 tokens", treadle_balance_micro_count(&spec, &count));
  spec = micro_of(none, 4, 8);
  check_count(&spec, 1); /* rows without tokens are rows */
  spec.count = 0;
  check_count(&spec, 0);
  spec.least = INT64_MAX;
  spec.multiple = INT64_MAX - 1;
  assert_refused("more micro batches than 0 rows", treadle_balance_micro_count(&spec, &count));
  spec.least = -1;
  assert_refused("below 0: least -1", treadle_balance_micro_count(&spec, &count));
}

/* The most work stands in the middle: 14 tokens, then 3 + 9 + 1 with the larger squares, then 5 + 8. */
static void micro_batches(void **state) {
  (void)state;
  int64_t order[8], counts[8], back[8], moved[8];
  char text[1000];
  treadle_balance_micro_spec spec = micro_of(eight, 8, 14);
  assert_ok(treadle_balance_micro_divide(&spec, order, counts)); /* 3: sums 14, 13, 13 */
  show(order, counts, 3, text);
  assert_string_equal(text, "4,7|0,5,6|1,2,3");
  spec.max_tokens = 40;
  assert_ok(treadle_balance_micro_divide(&spec, order, counts));
  show(order, counts, 1, text);
  assert_string_equal(text, "0,1,2,3,4,5,6,7");
  spec.max_tokens = 9;
  spec.least = 8; /* a row each: the smallest at both ends */
  assert_ok(treadle_balance_micro_divide(&spec, order, counts));
  show(order, counts, 8, text);
  assert_string_equal(text, "6|4|0|2|7|5|1|3");
  assert_ok(treadle_balance_invert(order, 8, back));
  for (int i = 0; i < 8; i++) moved[i] = eight[order[i]];
  for (int i = 0; i < 8; i++) assert_int_equal(moved[back[i]], eight[i]);
  spec.count = 0;
  spec.least = 0;
  assert_ok(treadle_balance_micro_divide(&spec, NULL, NULL));
}

/* ---- The twin ---- */

typedef struct twin_set {
  int64_t sum;
  int count, rows[MOST];
} twin_set;

typedef struct twin_state {
  twin_set sets[MOST]; /* [parts], the largest first */
  bool gone;
} twin_state;

/* As Python compares (sum, then length, then lists). */
static int compare_sets(const twin_set *a, const twin_set *b) {
  if (a->sum != b->sum) return a->sum < b->sum ? -1 : 1;
  if (a->count != b->count) return a->count < b->count ? -1 : 1;
  for (int i = 0; i < a->count; i++)
    if (a->rows[i] != b->rows[i]) return a->rows[i] < b->rows[i] ? -1 : 1;
  return 0;
}

static void sort_sets(twin_state *s, int parts) {
  for (int i = 1; i < parts; i++)
    for (int j = i; j > 0 && compare_sets(&s->sets[j], &s->sets[j - 1]) > 0; j--) {
      twin_set kept = s->sets[j];
      s->sets[j] = s->sets[j - 1];
      s->sets[j - 1] = kept;
    }
}

static int take_widest(twin_state *all, int count, int parts) {
  int best = -1;
  for (int i = 0; i < count; i++) {
    if (all[i].gone) continue;
    if (best < 0) {
      best = i;
      continue;
    }
    int64_t x = all[i].sets[0].sum - all[i].sets[parts - 1].sum,
            y = all[best].sets[0].sum - all[best].sets[parts - 1].sum;
    if (x > y || (x == y && compare_sets(&all[i].sets[0], &all[best].sets[0]) > 0)) best = i;
  }
  all[best].gone = true;
  return best;
}

static void divide_plainly(const int64_t *loads, int count, int parts, bool equal, int64_t *owner) {
  static twin_state all[MOST];
  int rows[MOST], each = equal ? parts : 1, states = count / each;
  for (int i = 0; i < count; i++) rows[i] = i;
  for (int i = 1; i < count; i++)
    for (int j = i; j > 0 && loads[rows[j]] < loads[rows[j - 1]]; j--) {
      int kept = rows[j];
      rows[j] = rows[j - 1];
      rows[j - 1] = kept;
    }
  memset(all, 0, sizeof all);
  for (int s = 0; s < states; s++) {
    for (int i = 0; i < each; i++)
      all[s].sets[i] =
          (twin_set){.sum = loads[rows[s * each + i]], .count = 1, .rows = {rows[s * each + i]}};
    sort_sets(&all[s], parts);
  }
  int last = 0;
  for (int left = states; left > 1; left--) {
    int a = take_widest(all, states, parts), b = take_widest(all, states, parts);
    for (int i = 0; i < parts; i++) {
      twin_set *to = &all[a].sets[i];
      const twin_set *from = &all[b].sets[parts - 1 - i];
      for (int j = 0; j < from->count; j++) to->rows[to->count++] = from->rows[j];
      to->sum += from->sum;
    }
    sort_sets(&all[a], parts);
    all[a].gone = false;
    last = a;
  }
  for (int p = 0; p < parts; p++)
    for (int i = 0; i < all[last].sets[p].count; i++) owner[all[last].sets[p].rows[i]] = p;
}

static void as_its_twin(void **state) {
  (void)state;
  const char *seed_text = getenv("TREADLE_SEED");
  treadle_random random = {seed_text ? strtoull(seed_text, NULL, 10) : 1};
  printf("TREADLE_SEED=%llu\n", (unsigned long long)random.state);
  for (int round = 0; round < ROUNDS; round++) {
    int64_t loads[MOST], owner[MOST], order[MOST], counts[MOST];
    int64_t most = treadle_random_below(&random, 2) ? 4 : 100000; /* few loads: many ties */
    int parts = (int)treadle_random_between(&random, 1, 9),
        count = (int)treadle_random_between(&random, parts, MOST);
    bool equal = treadle_random_below(&random, 2);
    if (equal) count -= count % parts;
    for (int i = 0; i < count; i++) loads[i] = treadle_random_below(&random, most);
    divide_plainly(loads, count, parts, equal, owner);
    treadle_balance_spec spec = spec_of(loads, (size_t)count, (size_t)parts, equal);
    assert_ok(treadle_balance_divide(&spec, order, counts));
    for (int64_t p = 0, at = 0; p < parts; p++) {
      assert_true(counts[p] > 0 && (!equal || counts[p] == count / parts));
      for (int64_t i = 0; i < counts[p]; i++, at++) {
        assert_int_equal(owner[order[at]], p);
        if (i > 0) assert_true(order[at] > order[at - 1]);
      }
    }
    spec.ends_small = true; /* the same parts, and small rows at both ends */
    int64_t arranged[MOST];
    assert_ok(treadle_balance_divide(&spec, arranged, counts));
    for (int64_t p = 0, at = 0; p < parts; at += counts[p], p++) {
      int64_t largest = at;
      for (int64_t i = at; i < at + counts[p]; i++) {
        assert_int_equal(owner[arranged[i]], p);
        if (loads[arranged[i]] > loads[arranged[largest]]) largest = i;
      }
      for (int64_t i = at + 1; i < at + counts[p]; i++)
        assert_true(i <= largest ? loads[arranged[i]] >= loads[arranged[i - 1]]
                                 : loads[arranged[i]] <= loads[arranged[i - 1]]);
    }
  }
}

/* A step of a large run: 4096 rows on 64 ranks and into 500 micro batches. */
static void many_rows(void **state) {
  (void)state;
  enum { ROWS = 4096, RANKS = 64 };
  static int64_t lengths[ROWS], work[ROWS], order[ROWS], counts[ROWS], back[ROWS];
  treadle_random random = {7};
  int64_t tokens = 0, parts;
  for (int i = 0; i < ROWS; i++) tokens += lengths[i] = treadle_random_between(&random, 1, 8192);
  assert_ok(treadle_balance_workload(lengths, ROWS, work));
  treadle_balance_spec spec = spec_of(work, ROWS, RANKS, true);
  assert_ok(treadle_balance_divide(&spec, order, counts));
  treadle_balance_figures f = TREADLE_INIT(treadle_balance_figures);
  assert_ok(treadle_balance_get_figures(lengths, ROWS, order, counts, RANKS, &f));
  assert_true(f.balanced_max - f.balanced_min < f.minmax_diff / 20);
  assert_true(f.mean == (double)tokens / RANKS);
  treadle_balance_micro_spec micro = micro_of(lengths, ROWS, tokens / 499);
  assert_ok(treadle_balance_micro_count(&micro, &parts));
  assert_in_range(parts, 499, 501);
  assert_ok(treadle_balance_micro_divide(&micro, order, counts));
  assert_ok(treadle_balance_invert(order, ROWS, back)); /* each row once */
}

/* ---- Memory that is out ---- */

static treadle_status everything(void) {
  static const int64_t pairs[] = {5, 5, 2, 2, 7, 7, 9, 9};
  treadle_status status;
  int64_t order[8], counts[8];
  treadle_balance_figures f = TREADLE_INIT(treadle_balance_figures);
  treadle_balance_spec spec = spec_of(eight, 8, 2, true);
  treadle_balance_micro_spec micro = micro_of(eight, 8, 10);
  if ((status = treadle_balance_micro_divide(&micro, order, counts))) return status;
  spec.groups = pairs;
  if ((status = treadle_balance_divide(&spec, order, counts))) return status;
  spec.groups = NULL;
  spec.kind = TREADLE_BALANCE_GREEDY;
  spec.ends_small = true;
  if ((status = treadle_balance_divide(&spec, order, counts))) return status;
  return treadle_balance_get_figures(eight, 8, order, counts, 2, &f);
}

static void memory_is_out(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(everything());
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sixteen_rows),
      cmocka_unit_test(eight_rows),
      cmocka_unit_test(small_at_both_ends),
      cmocka_unit_test(inverse),
      cmocka_unit_test(groups),
      cmocka_unit_test(refused),
      cmocka_unit_test(figures),
      cmocka_unit_test(counts_of_micro_batches),
      cmocka_unit_test(micro_batches),
      cmocka_unit_test(as_its_twin),
      cmocka_unit_test(many_rows),
      cmocka_unit_test(memory_is_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
