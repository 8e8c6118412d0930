/* src/engine/batch/: verl's numbers for a DataProto (its tests/test_protocol_on_cpu.py), row by row, on batches; and what each operation refuses. */
#include "test.h"
#include "treadle_batch.h"

enum { WIDTH = 2 };

static void add(treadle_batch *batch, const char *name, int64_t width, const int64_t *offsets,
                const int64_t *data) {
  assert_ok(treadle_batch_add(batch, &(treadle_column){.struct_size = sizeof(treadle_column),
                                                       .name = name,
                                                       .type = TREADLE_COLUMN_INT64,
                                                       .width = width,
                                                       .offsets = offsets,
                                                       .data = (void *)(uintptr_t)data}));
}

/* Column obs of `width` numbers a row, 1 2 3 and so on, and labels a, b, c. */
static treadle_batch *sample(int64_t rows, int64_t width) {
  static const char *const labels[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
  static int64_t numbers[100];
  treadle_batch *batch;
  assert_ok(treadle_batch_create(rows, &batch));
  for (int64_t i = 0; i < rows * width; i++) numbers[i] = i + 1;
  add(batch, "obs", width, NULL, numbers);
  assert_ok(treadle_batch_add_texts(batch, "labels", labels, NULL));
  assert_ok(treadle_batch_set_meta(batch, "info", "\"test_info\""));
  return batch;
}

static const int64_t *numbers_of(const treadle_batch *batch, const char *name, int64_t width) {
  treadle_column column = TREADLE_INIT(treadle_column);
  assert_ok(treadle_batch_column(batch, name, &column));
  assert_int_equal(column.width, width);
  return column.data;
}

/* obs is `wanted`, the labels are those letters, the meta is there; ends the batch. */
static void check(treadle_batch *batch, int64_t width, const int64_t *wanted, const char *letters) {
  treadle_column column = TREADLE_INIT(treadle_column);
  const int64_t *obs = numbers_of(batch, "obs", width);
  int64_t rows = (int64_t)strlen(letters);
  assert_int_equal(treadle_batch_rows(batch), rows);
  for (int64_t i = 0; i < rows * width; i++) assert_int_equal(obs[i], wanted[i]);
  assert_ok(treadle_batch_column(batch, "labels", &column));
  for (int64_t r = 0; r < rows; r++) {
    assert_int_equal(column.offsets[r + 1] - column.offsets[r], 1);
    assert_int_equal(((char *)column.data)[column.offsets[r]], letters[r]);
  }
  assert_string_equal(treadle_batch_meta(batch, "info"), "\"test_info\"");
  treadle_batch_destroy(batch);
}

static void reorder(void **state) {
  (void)state;
  treadle_batch *batch = sample(6, 1);
  assert_ok(treadle_batch_reorder(batch, (const int64_t[]){3, 4, 2, 0, 1, 5}, 6));
  check(batch, 1, (const int64_t[]){4, 5, 3, 1, 2, 6}, "decabf");
}

static void chunk_and_concat(void **state) {
  (void)state;
  treadle_batch *batch = sample(6, 1), *parts[5], *joined;
  assert_refused("only support equal chunk: 6 rows do not divide into 5 parts",
                 treadle_batch_chunk(batch, 5, parts));
  assert_null(parts[4]);
  assert_refused("only support equal chunk", treadle_batch_chunk(batch, 0, parts));
  assert_ok(treadle_batch_chunk(batch, 2, parts));
  assert_ptr_equal(numbers_of(parts[1], "obs", 1), numbers_of(batch, "obs", 1) + 3); /* the same memory */
  assert_ok(treadle_batch_concat((const treadle_batch *const *)parts, 2, &joined));
  check(parts[0], 1, (const int64_t[]){1, 2, 3}, "abc");
  check(parts[1], 1, (const int64_t[]){4, 5, 6}, "def");
  check(joined, 1, numbers_of(batch, "obs", 1), "abcdef");
  treadle_batch_destroy(batch);
}

/* A worker without metrics is skipped; another value of any other key is refused. */
static void metrics(void **state) {
  (void)state;
  static const char *const said[] = {"[{\"loss\": 0.5, \"acc\": 0.9}]", "[{\"loss\": 0.6, \"acc\": 0.85}]",
                                     NULL, "[{\"loss\": 0.55, \"acc\": 0.88}]"};
  treadle_batch *parts[4], *joined;
  for (int i = 0; i < 4; i++) {
    parts[i] = sample(1, 1);
    assert_ok(treadle_batch_set_meta(parts[i], "metrics", said[i]));
  }
  assert_ok(treadle_batch_concat((const treadle_batch *const *)parts, 4, &joined));
  assert_string_equal(treadle_batch_meta(joined, "metrics"), /* the same doubles, with all digits */
                      "{\"loss\":[0.5,0.59999999999999998,0.55000000000000004],"
                      "\"acc\":[0.90000000000000002,0.84999999999999998,0.88]}");
  treadle_batch_destroy(joined);
  assert_ok(treadle_batch_set_meta(parts[0], "config", "\"A\""));
  assert_ok(treadle_batch_set_meta(parts[3], "config", "\"B\""));
  assert_refused("Conflicting values for meta_info key 'config'",
                 treadle_batch_concat((const treadle_batch *const *)parts, 4, &joined));
  for (int i = 0; i < 4; i++) treadle_batch_destroy(parts[i]);
}

static void repeat(void **state) {
  (void)state;
  treadle_batch *batch = sample(3, WIDTH), *made;
  assert_ok(treadle_batch_repeat(batch, 2, true, &made));
  check(made, WIDTH, (const int64_t[]){1, 2, 1, 2, 3, 4, 3, 4, 5, 6, 5, 6}, "aabbcc");
  assert_ok(treadle_batch_repeat(batch, 2, false, &made));
  check(made, WIDTH, (const int64_t[]){1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}, "abcabc");
  treadle_batch_destroy(batch);
}

static void sample_level_repeat(void **state) {
  (void)state;
  treadle_batch *batch = sample(3, WIDTH), *made;
  assert_ok(treadle_batch_sample_level_repeat(batch, (const int64_t[]){3, 1, 2}, 3, &made));
  check(made, WIDTH, (const int64_t[]){1, 2, 1, 2, 1, 2, 3, 4, 5, 6, 5, 6}, "aaabcc");
  assert_ok(treadle_batch_sample_level_repeat(batch, (const int64_t[]){0, 2, 0}, 3, &made));
  check(made, WIDTH, (const int64_t[]){3, 4, 3, 4}, "bb");
  assert_refused("2 counts; the batch has 3 rows",
                 treadle_batch_sample_level_repeat(batch, (const int64_t[]){1, 1}, 2, &made));
  assert_refused("row 1, -1 times",
                 treadle_batch_sample_level_repeat(batch, (const int64_t[]){1, -1, 1}, 3, &made));
  assert_refused("at most", treadle_batch_sample_level_repeat(
                                batch, (const int64_t[]){INT64_MAX, INT64_MAX, 1}, 3, &made));
  assert_null(made);
  treadle_batch_destroy(batch);
}

static void pad_to_divisor(void **state) {
  (void)state;
  static const struct {
    int64_t divisor, padding;
    const char *letters;
  } rows[] = {{2, 1, "abca"}, {3, 0, "abc"}, {7, 4, "abcabca"}, {1, 0, "abc"}};
  treadle_batch *batch = sample(3, WIDTH), *padded, *back, *none;
  int64_t padding;
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    assert_ok(treadle_batch_pad_to_divisor(batch, rows[i].divisor, &padded, &padding));
    assert_int_equal(padding, rows[i].padding);
    assert_ok(treadle_batch_unpad(padded, padding, &back));
    assert_ptr_equal(numbers_of(back, "obs", WIDTH), numbers_of(padded, "obs", WIDTH));
    check(back, WIDTH, (const int64_t[]){1, 2, 3, 4, 5, 6}, "abc");
    check(padded, WIDTH, (const int64_t[]){1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2}, rows[i].letters);
  }
  assert_refused("a divisor of 0", treadle_batch_pad_to_divisor(batch, 0, &padded, &padding));
  assert_refused("4 rows of padding: the batch has 3", treadle_batch_unpad(batch, 4, &back));
  assert_refused("-1 rows of padding", treadle_batch_unpad(batch, -1, &back));
  assert_ok(treadle_batch_create(0, &none));
  assert_ok(treadle_batch_pad_to_divisor(none, 4, &padded, &padding));
  assert_int_equal(treadle_batch_rows(padded) + padding, 0);
  treadle_batch_destroy(padded);
  treadle_batch_destroy(none);
  treadle_batch_destroy(batch);
}

static void fold_and_unfold(void **state) {
  (void)state;
  treadle_batch *batch = sample(3, WIDTH), *six, *folded, *made;
  assert_ok(treadle_batch_repeat(batch, 2, true, &six));
  assert_ok(treadle_batch_fold(six, 3, &folded));
  assert_int_equal(treadle_batch_rows(folded), 3);
  assert_ptr_equal(numbers_of(folded, "obs", 4), numbers_of(six, "obs", 2)); /* the same memory */
  assert_memory_equal(numbers_of(folded, "labels.counts", 2), ((const int64_t[]){1, 1, 1, 1, 1, 1}), 48);
  assert_ok(treadle_batch_reorder(folded, (const int64_t[]){1, 2, 0}, 3));
  assert_ok(treadle_batch_unfold(folded, 2, &made));
  assert_false(treadle_batch_has(made, "labels.counts"));
  check(made, WIDTH, (const int64_t[]){3, 4, 3, 4, 5, 6, 5, 6, 1, 2, 1, 2}, "bbccaa");
  assert_refused("6 rows do not fold into 4", treadle_batch_fold(six, 4, &made));
  assert_refused("do not fold into 0", treadle_batch_fold(six, 0, &made));
  assert_refused("column 'obs': 4 values a row do not divide into 3 rows",
                 treadle_batch_unfold(folded, 3, &made));
  assert_refused("at least 1", treadle_batch_unfold(folded, 0, &made));
  assert_refused("column 'labels' is ragged: 'labels.counts' of int64 and width 2",
                 treadle_batch_unfold(batch, 2, &made));
  assert_refused("the batch has 'labels.counts', where its counts would be",
                 treadle_batch_fold(folded, 1, &made));
  assert_null(made);
  treadle_batch_destroy(folded);
  treadle_batch_destroy(six);
  treadle_batch_destroy(batch);
}

/* Counts that somebody has changed: too many, too few, below 0, and inside of a character. */
static void counts_that_lie(void **state) {
  (void)state;
  static const int64_t lies[][2] = {{1, 3}, {2, 0}, {-1, 4}, {1, 2}};
  static const char *const says[] = {"row 0 has 3 values", "row 0 has 3 values", "row 0 has 3 values",
                                     "the text of row 0 is not UTF-8"};
  for (size_t i = 0; i < TEST_COUNT(lies); i++) {
    treadle_batch *batch, *made;
    assert_ok(treadle_batch_create(1, &batch));
    assert_ok(treadle_batch_add_texts(batch, "t", (const char *const[]){"\xe2\x82\xac"}, NULL));
    add(batch, "t.counts", 2, NULL, lies[i]);
    assert_refused(says[i], treadle_batch_unfold(batch, 2, &made));
    assert_null(made);
    treadle_batch_destroy(batch);
  }
}

static void unfold_column_chunks(void **state) {
  (void)state;
  static const int64_t obs2[] = {1, 2, 5, 6, 9, 10}, ragged[] = {1, 2, 3, 4, 5, 6},
                       offsets[] = {0, 2, 2, 6};
  static const char *const both[] = {"obs", "ragged"}, *const text[] = {"labels"}, *const none[] = {"x"},
                           *const twice[] = {"obs", "obs"};
  treadle_batch *batch = sample(3, 4), *made;
  treadle_column column = TREADLE_INIT(treadle_column);
  add(batch, "obs2", 2, NULL, obs2);
  add(batch, "ragged", 0, offsets, ragged);
  assert_ok(treadle_batch_unfold_columns(batch, 2, both, 2, &made));
  assert_ptr_equal(numbers_of(made, "obs", 2), numbers_of(batch, "obs", 4)); /* [1 2] [3 4] [5 6] ... */
  assert_memory_equal(numbers_of(made, "obs2", 2),
                      ((const int64_t[]){1, 2, 1, 2, 5, 6, 5, 6, 9, 10, 9, 10}), 96);
  assert_ok(treadle_batch_column(made, "ragged", &column));
  assert_memory_equal(column.offsets, ((const int64_t[]){0, 1, 2, 2, 2, 4, 6}), 56);
  check(made, 2, (const int64_t[]){1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, "aabbcc");
  /* All listed that divide: "labels" of numbers, too. Three dimensions: [2, 2] a row lie as 4 values. */
  assert_ok(treadle_batch_unfold_columns(batch, 2, (const char *const[]){"obs2"}, 1, &made));
  assert_ptr_equal(numbers_of(made, "obs2", 1), numbers_of(batch, "obs2", 2));
  check(made, 4,
        (const int64_t[]){1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8, 9, 10, 11, 12, 9, 10, 11, 12},
        "aabbcc");
  assert_refused("column 'obs': 4 values a row do not divide into 3",
                 treadle_batch_unfold_columns(batch, 3, both, 1, &made));
  assert_refused("column 'ragged': the 2 values of row 0 do not divide into 4",
                 treadle_batch_unfold_columns(batch, 4, both, 2, &made));
  assert_refused("column 'labels': a value of text does not divide",
                 treadle_batch_unfold_columns(batch, 2, text, 1, &made));
  assert_refused("no column 'x'", treadle_batch_unfold_columns(batch, 2, none, 1, &made));
  assert_refused("selected twice", treadle_batch_unfold_columns(batch, 2, twice, 2, &made));
  assert_refused("at least 1", treadle_batch_unfold_columns(batch, -1, both, 1, &made));
  assert_null(made);
  treadle_batch_destroy(batch);
}

/* Chunks for 4 workers, after padding. */
static void auto_padding(void **state) {
  (void)state;
  for (int64_t rows = 4; rows < 20; rows++) {
    treadle_batch *batch, *padded, *parts[4], *joined, *back;
    int64_t padding, numbers[20];
    for (int64_t i = 0; i < rows; i++) numbers[i] = i;
    assert_ok(treadle_batch_create(rows, &batch));
    add(batch, "a", 1, NULL, numbers);
    assert_ok(treadle_batch_pad_to_divisor(batch, 4, &padded, &padding));
    assert_int_equal(padding, (4 - rows % 4) % 4);
    assert_ok(treadle_batch_chunk(padded, 4, parts));
    for (int i = 0; i < 4; i++) assert_int_equal(treadle_batch_rows(parts[i]), (rows + 3) / 4);
    assert_ok(treadle_batch_concat((const treadle_batch *const *)parts, 4, &joined));
    assert_ok(treadle_batch_unpad(joined, padding, &back));
    assert_int_equal(treadle_batch_rows(back), rows);
    assert_memory_equal(numbers_of(back, "a", 1), numbers, (size_t)rows * sizeof *numbers);
    treadle_batch *const made[] = {batch, padded, parts[0], parts[1], parts[2], parts[3], joined, back};
    for (size_t i = 0; i < TEST_COUNT(made); i++) treadle_batch_destroy(made[i]);
  }
}

static void split_uneven(void **state) {
  (void)state;
  treadle_batch *batch = sample(10, 1), *parts[4];
  assert_ok(treadle_batch_split(batch, (const int64_t[]){3, 3, 3, 1}, 4, parts));
  check(parts[0], 1, (const int64_t[]){1, 2, 3}, "abc");
  check(parts[1], 1, (const int64_t[]){4, 5, 6}, "def");
  check(parts[2], 1, (const int64_t[]){7, 8, 9}, "ghi");
  check(parts[3], 1, (const int64_t[]){10}, "j");
  assert_ok(treadle_batch_split(batch, (const int64_t[]){10}, 1, parts));
  check(parts[0], 1, numbers_of(batch, "obs", 1), "abcdefghij");
  treadle_batch_destroy(batch);
}

static void pop(void **state) {
  (void)state;
  static const char *const names[] = {"labels"}, *const missing[] = {"labels", "label"},
                           *const keys[] = {"info"}, *const no_key[] = {"information"};
  treadle_batch *batch = sample(3, 1), *popped;
  assert_refused("no column 'label'", treadle_batch_pop(batch, missing, 2, keys, 1, &popped));
  assert_refused("no meta 'information'", treadle_batch_pop(batch, names, 1, no_key, 1, &popped));
  assert_null(popped);
  assert_int_equal(treadle_batch_column_count(batch), 2); /* it is as it was */
  assert_ok(treadle_batch_set_meta(batch, "kept", "1"));
  assert_ok(treadle_batch_pop(batch, names, 1, keys, 1, &popped));
  assert_int_equal(treadle_batch_column_count(batch), 1);
  assert_false(treadle_batch_has(batch, "labels"));
  assert_null(treadle_batch_meta(batch, "info"));
  assert_string_equal(treadle_batch_meta(batch, "kept"), "1");
  assert_true(treadle_batch_has(popped, "labels"));
  assert_string_equal(treadle_batch_meta(popped, "info"), "\"test_info\"");
  assert_null(treadle_batch_meta(popped, "kept"));
  treadle_batch_destroy(popped);
  treadle_batch_destroy(batch);
}

/* ---- Mini batches ---- */

/* Numbers of all mini batches, one after the other; ends nothing. */
static int64_t read_all(const treadle_batch *batch, int64_t rows, int64_t epochs, bool shuffled,
                        uint64_t seed, int64_t numbers[64]) {
  treadle_batch_iterator *iterator;
  treadle_batch *mini;
  int64_t count = 0;
  assert_ok(treadle_batch_iterate_open(batch, rows, epochs, shuffled, seed, &iterator));
  for (;;) {
    assert_ok(treadle_batch_iterate_next(iterator, &mini));
    if (!mini) break;
    assert_int_equal(treadle_batch_rows(mini), rows);
    memcpy(numbers + count, numbers_of(mini, "obs", 1), (size_t)rows * sizeof *numbers);
    count += rows;
    treadle_batch_destroy(mini);
  }
  assert_ok(treadle_batch_iterate_next(iterator, &mini)); /* and it stays at its end */
  assert_null(mini);
  treadle_batch_iterate_close(iterator);
  return count;
}

static void iterate(void **state) {
  (void)state;
  int64_t first[64], again[64], other[64];
  treadle_batch *batch = sample(10, 1), *none, *made;
  treadle_batch_iterator *iterator;
  assert_int_equal(read_all(batch, 5, 3, true, 7, first), 30);
  assert_int_equal(read_all(batch, 2, 3, true, 7, again), 30); /* the order knows no size of mini batches */
  assert_memory_equal(first, again, 30 * sizeof *first);
  assert_int_equal(read_all(batch, 5, 3, true, 8, other), 30);
  assert_memory_not_equal(first, other, 30 * sizeof *first);
  assert_memory_not_equal(first, first + 10, 10 * sizeof *first); /* each epoch has its own */
  for (int epoch = 0; epoch < 3; epoch++) {                       /* and each row once */
    int64_t sum = 0, squares = 0;
    for (int i = 0; i < 10; i++) {
      sum += first[epoch * 10 + i];
      squares += first[epoch * 10 + i] * first[epoch * 10 + i];
    }
    assert_int_equal(sum, 55);
    assert_int_equal(squares, 385);
  }
  assert_int_equal(read_all(batch, 5, 2, false, 7, first), 20);
  for (int i = 0; i < 20; i++) assert_int_equal(first[i], i % 10 + 1);
  assert_int_equal(read_all(batch, 5, 0, true, 7, first), 0);
  assert_refused("mini batches of 3 rows: the batch has 10",
                 treadle_batch_iterate_open(batch, 3, 1, true, 0, &iterator));
  assert_refused("mini batches of 0 rows", treadle_batch_iterate_open(batch, 0, 1, true, 0, &iterator));
  assert_refused("-1 epochs", treadle_batch_iterate_open(batch, 5, -1, true, 0, &iterator));
  assert_null(iterator);
  assert_ok(treadle_batch_iterate_open(batch, 5, 1, true, 0, &iterator));
  treadle_batch_destroy(batch); /* the iterator keeps its rows */
  assert_ok(treadle_batch_iterate_next(iterator, &made));
  treadle_batch_destroy(made);
  treadle_batch_iterate_close(iterator);
  assert_ok(treadle_batch_create(0, &none));
  assert_ok(treadle_batch_iterate_open(none, 5, 4, true, 0, &iterator));
  assert_ok(treadle_batch_iterate_next(iterator, &made));
  assert_null(made);
  treadle_batch_iterate_close(iterator);
  treadle_batch_destroy(none);
}

/* ---- Memory that is out ---- */

static treadle_status everything(treadle_batch *batch) {
  static const char *const obs[] = {"obs"}, *const keys[] = {"info"};
  treadle_status status;
  treadle_batch *made[8] = {0};
  treadle_batch_iterator *iterator = NULL;
  int64_t padding;
  if ((status = treadle_batch_fold(batch, 2, &made[0]))) goto out;
  if ((status = treadle_batch_unfold(made[0], 2, &made[1]))) goto out;
  if ((status = treadle_batch_unfold_columns(batch, 2, obs, 1, &made[2]))) goto out;
  if ((status = treadle_batch_pad_to_divisor(batch, 3, &made[3], &padding))) goto out;
  if ((status = treadle_batch_sample_level_repeat(batch, (const int64_t[]){1, 2, 0, 1}, 4, &made[4])))
    goto out;
  if ((status = treadle_batch_pop(made[1], obs, 1, keys, 1, &made[5]))) goto out;
  if ((status = treadle_batch_iterate_open(batch, 2, 2, true, 1, &iterator))) goto out;
  if ((status = treadle_batch_iterate_next(iterator, &made[6]))) goto out;
out:
  treadle_batch_iterate_close(iterator);
  for (size_t i = 0; i < TEST_COUNT(made); i++) treadle_batch_destroy(made[i]);
  return status;
}

static void memory_is_out(void **state) {
  (void)state;
  treadle_batch *batch = sample(4, 2);
  TEST_EACH_ALLOCATION(everything(batch));
  treadle_batch_destroy(batch);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reorder),
      cmocka_unit_test(chunk_and_concat),
      cmocka_unit_test(metrics),
      cmocka_unit_test(repeat),
      cmocka_unit_test(sample_level_repeat),
      cmocka_unit_test(pad_to_divisor),
      cmocka_unit_test(fold_and_unfold),
      cmocka_unit_test(counts_that_lie),
      cmocka_unit_test(unfold_column_chunks),
      cmocka_unit_test(auto_padding),
      cmocka_unit_test(split_uneven),
      cmocka_unit_test(pop),
      cmocka_unit_test(iterate),
      cmocka_unit_test(memory_is_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
