/* src/engine/batch/: batches that are made, taken apart and put together again, compared with rows that are kept one by one. TREADLE_SEED
 * sets the seed (1). */
#include "base/random.h"
#include "test.h"
#include "treadle_batch.h"

#include <math.h>
#include <sys/stat.h>

/* ---- The twin: each row has its own memory ---- */

enum { MOST_ROWS = 40, MOST_VALUES = 5, STEPS = 400, COLUMNS = 6 };

typedef struct twin_row {
  int32_t ids[MOST_VALUES];
  int count;
  double score;
  float pair[2];
  char text[16];
} twin_row;

typedef struct twin {
  twin_row rows[MOST_ROWS * 4];
  int count;
} twin;

static twin_row draw_row(treadle_random *random) {
  static const char *const texts[] = {"", "a", "\xe2\x82\xac", "two words", "{\"x\": 1}\n"};
  twin_row row = {.count = (int)treadle_random_below(random, MOST_VALUES + 1)};
  for (int i = 0; i < row.count; i++) row.ids[i] = (int32_t)treadle_random_next(random);
  row.score = treadle_random_below(random, 5) ? (double)treadle_random_below(random, 1000) / 7 : NAN;
  row.pair[0] = (float)treadle_random_below(random, 100);
  row.pair[1] = -row.pair[0];
  snprintf(row.text, sizeof row.text, "%s", texts[treadle_random_below(random, TEST_COUNT(texts))]);
  return row;
}

static treadle_batch *batch_of(const twin *t) {
  treadle_batch *batch;
  int64_t offsets[TEST_COUNT(t->rows) + 1] = {0};
  static int32_t ids[TEST_COUNT(t->rows) * MOST_VALUES];
  static double scores[TEST_COUNT(t->rows)];
  static float pairs[TEST_COUNT(t->rows) * 2];
  const char *texts[TEST_COUNT(t->rows)];
  bool odd[TEST_COUNT(t->rows)];
  uint8_t bytes[TEST_COUNT(t->rows)];
  for (int r = 0; r < t->count; r++) {
    memcpy(ids + offsets[r], t->rows[r].ids, (size_t)t->rows[r].count * sizeof *ids);
    offsets[r + 1] = offsets[r] + t->rows[r].count;
    scores[r] = t->rows[r].score;
    memcpy(pairs + 2 * (ptrdiff_t)r, t->rows[r].pair, sizeof t->rows[r].pair);
    texts[r] = t->rows[r].text;
    odd[r] = t->rows[r].count % 2 == 1;
  }
  memset(bytes, 0xff, sizeof bytes);
  assert_ok(treadle_batch_create(t->count, &batch));
  const treadle_column columns[] = {
      {.name = "ids", .type = TREADLE_COLUMN_INT32, .offsets = offsets, .data = ids},
      {.name = "score", .type = TREADLE_COLUMN_FP64, .data = scores},
      {.name = "pair", .type = TREADLE_COLUMN_FP32, .width = 2, .data = pairs},
      {.name = "odd", .type = TREADLE_COLUMN_BOOL, .data = odd},
      {.name = "blob", .type = TREADLE_COLUMN_BYTES, .offsets = offsets, .data = ids},
  };
  for (size_t i = 0; i < TEST_COUNT(columns); i++) {
    treadle_column column = columns[i];
    column.struct_size = sizeof column;
    assert_ok(treadle_batch_add(batch, &column));
  }
  assert_ok(treadle_batch_add_texts(batch, "text", texts, NULL));
  assert_int_equal(treadle_batch_column_count(batch), COLUMNS);
  return batch;
}

static treadle_column column_of(const treadle_batch *batch, const char *name) {
  treadle_column column = TREADLE_INIT(treadle_column);
  assert_ok(treadle_batch_column(batch, name, &column));
  return column;
}

static void compare(const treadle_batch *batch, const twin *t) {
  const treadle_column ids = column_of(batch, "ids"), score = column_of(batch, "score"),
                       pair = column_of(batch, "pair"), odd = column_of(batch, "odd"),
                       text = column_of(batch, "text");
  assert_int_equal(treadle_batch_rows(batch), t->count);
  assert_int_equal(pair.width, 2);
  for (int r = 0; r < t->count; r++) {
    const twin_row *row = &t->rows[r];
    assert_int_equal(ids.offsets[r + 1] - ids.offsets[r], row->count);
    assert_memory_equal((const int32_t *)ids.data + ids.offsets[r], row->ids,
                        (size_t)row->count * sizeof *row->ids);
    assert_memory_equal((const double *)score.data + r, &row->score, sizeof row->score);
    assert_memory_equal((const float *)pair.data + 2 * (ptrdiff_t)r, row->pair, sizeof row->pair);
    assert_int_equal(((const bool *)odd.data)[r], row->count % 2);
    assert_int_equal(text.offsets[r + 1] - text.offsets[r], strlen(row->text));
    assert_memory_equal((const char *)text.data + text.offsets[r], row->text, strlen(row->text));
  }
}

/* ---- Random operations ---- */

static void replace(treadle_batch **batch, treadle_batch *by) {
  treadle_batch_destroy(*batch);
  *batch = by;
}

static void take_slice(treadle_random *random, treadle_batch **batch, twin *t) {
  treadle_batch *made;
  int64_t begin = treadle_random_below(random, t->count + 1),
          end = treadle_random_between(random, begin, t->count);
  assert_ok(treadle_batch_slice(*batch, begin, end, &made));
  memmove(t->rows, t->rows + begin, (size_t)(end - begin) * sizeof *t->rows);
  t->count = (int)(end - begin);
  replace(batch, made);
}

static void take_rows(treadle_random *random, treadle_batch **batch, twin *t) {
  treadle_batch *made;
  int64_t rows[MOST_ROWS];
  const twin old = *t;
  t->count = old.count ? (int)treadle_random_below(random, MOST_ROWS + 1) : 0;
  for (int r = 0; r < t->count; r++) {
    rows[r] = treadle_random_below(random, old.count);
    t->rows[r] = old.rows[rows[r]];
  }
  assert_ok(treadle_batch_index(*batch, rows, (size_t)t->count, &made));
  replace(batch, made);
}

static void take_mask(treadle_random *random, treadle_batch **batch, twin *t) {
  treadle_batch *made;
  bool mask[TEST_COUNT(t->rows)];
  int kept = 0;
  for (int r = 0; r < t->count; r++) {
    mask[r] = treadle_random_below(random, 4) > 0;
    if (mask[r]) t->rows[kept++] = t->rows[r];
  }
  assert_ok(treadle_batch_index_mask(*batch, mask, (size_t)t->count, &made));
  t->count = kept;
  replace(batch, made);
}

static void put_in_order(treadle_random *random, treadle_batch **batch, twin *t) {
  int64_t order[TEST_COUNT(t->rows)];
  const twin old = *t;
  for (int r = 0; r < t->count; r++) order[r] = r;
  for (int r = t->count - 1; r > 0; r--) {
    int64_t with = treadle_random_below(random, r + 1), swapped = order[r];
    order[r] = order[with];
    order[with] = swapped;
  }
  for (int r = 0; r < t->count; r++) t->rows[r] = old.rows[order[r]];
  assert_ok(treadle_batch_reorder(*batch, order, (size_t)t->count));
}

static void repeat(treadle_random *random, treadle_batch **batch, twin *t) {
  treadle_batch *made;
  const twin old = *t;
  int64_t times = treadle_random_between(random, 1, 3);
  bool interleaved = treadle_random_below(random, 2) == 0;
  if (t->count > MOST_ROWS) return;
  assert_ok(treadle_batch_repeat(*batch, times, interleaved, &made));
  t->count *= (int)times;
  for (int r = 0; r < t->count; r++) t->rows[r] = old.rows[interleaved ? r / times : r % old.count];
  replace(batch, made);
}

/* Split, and put together again in another order; with new rows at the end. */
static void split_and_join(treadle_random *random, treadle_batch **batch, twin *t) {
  treadle_batch *parts[3], *made;
  const twin old = *t;
  twin more = {.count = t->count > MOST_ROWS ? 0 : (int)treadle_random_below(random, 8)};
  int64_t a = treadle_random_below(random, t->count + 1), counts[] = {a, t->count - a};
  for (int r = 0; r < more.count; r++) more.rows[r] = draw_row(random);
  assert_ok(treadle_batch_split(*batch, counts, 2, parts));
  parts[2] = batch_of(&more);
  const treadle_batch *const joined[] = {parts[1], parts[0], parts[2]};
  assert_ok(treadle_batch_concat(joined, 3, &made));
  memcpy(t->rows, old.rows + a, (size_t)counts[1] * sizeof *t->rows);
  memcpy(t->rows + counts[1], old.rows, (size_t)a * sizeof *t->rows);
  memcpy(t->rows + old.count, more.rows, (size_t)more.count * sizeof *t->rows);
  t->count += more.count;
  for (int i = 0; i < 3; i++) treadle_batch_destroy(parts[i]);
  replace(batch, made);
}

/* Columns apart, and side by side again; one that both have is equal, NaN too. */
static void part_and_unite(treadle_random *random, treadle_batch **batch, twin *t) {
  static const char *const first[] = {"ids", "score"}, *const second[] = {"text", "score", "pair", "odd",
                                                                          "blob"};
  treadle_batch *a, *b;
  (void)random, (void)t;
  assert_ok(treadle_batch_select(*batch, first, TEST_COUNT(first), &a));
  assert_ok(treadle_batch_select(*batch, second, TEST_COUNT(second), &b));
  assert_ok(treadle_batch_union(a, b));
  treadle_batch_destroy(b);
  replace(batch, a);
}

/* Each row as often as is drawn, which may be never. */
static void repeat_each(treadle_random *random, treadle_batch **batch, twin *t) {
  treadle_batch *made;
  const twin old = *t;
  int64_t counts[TEST_COUNT(t->rows)];
  if (old.count > MOST_ROWS) return;
  t->count = 0;
  for (int r = 0; r < old.count; r++) {
    counts[r] = treadle_random_below(random, 4);
    for (int i = 0; i < counts[r]; i++) t->rows[t->count++] = old.rows[r];
  }
  assert_ok(treadle_batch_sample_level_repeat(*batch, counts, (size_t)old.count, &made));
  replace(batch, made);
}

/* Padded, chunked, joined; and sometimes without the padding again. */
static void pad_and_chunk(treadle_random *random, treadle_batch **batch, twin *t) {
  treadle_batch *made, *parts[8];
  const twin old = *t;
  int64_t divisor = treadle_random_between(random, 1, 8), padding;
  if (t->count > MOST_ROWS) return;
  assert_ok(treadle_batch_pad_to_divisor(*batch, divisor, &made, &padding));
  replace(batch, made);
  assert_int_equal(padding, (divisor - old.count % divisor) % divisor * (old.count > 0));
  for (; t->count < old.count + padding; t->count++) t->rows[t->count] = old.rows[t->count % old.count];
  compare(*batch, t);
  assert_ok(treadle_batch_chunk(*batch, (size_t)divisor, parts));
  assert_ok(treadle_batch_concat((const treadle_batch *const *)parts, (size_t)divisor, &made));
  for (int i = 0; i < divisor; i++) treadle_batch_destroy(parts[i]);
  replace(batch, made);
  if (treadle_random_below(random, 2)) return;
  assert_ok(treadle_batch_unpad(*batch, padding, &made));
  replace(batch, made);
  t->count = old.count;
}

/* Neighbours as one row, these in another order, and rows again. */
static void fold_and_unfold(treadle_random *random, treadle_batch **batch, twin *t) {
  treadle_batch *folded, *made;
  const twin old = *t;
  int64_t each = treadle_random_between(random, 1, 3), rows = t->count / each, order[TEST_COUNT(t->rows)];
  if (t->count == 0 || t->count % each) return;
  assert_ok(treadle_batch_fold(*batch, rows, &folded));
  int64_t first = treadle_random_below(random, rows);
  for (int64_t r = 0; r < rows; r++) order[r] = (r + first) % rows;
  assert_ok(treadle_batch_reorder(folded, order, (size_t)rows));
  assert_ok(treadle_batch_unfold(folded, each, &made));
  treadle_batch_destroy(folded);
  for (int r = 0; r < t->count; r++) t->rows[r] = old.rows[order[r / each] * each + r % each];
  replace(batch, made);
}

static void pop_and_unite(treadle_random *random, treadle_batch **batch, twin *t) {
  static const char *const names[] = {"text", "ids", "odd"};
  treadle_batch *popped;
  size_t count = (size_t)treadle_random_below(random, 4);
  (void)t;
  assert_ok(treadle_batch_pop(*batch, names, count, NULL, 0, &popped));
  assert_int_equal(treadle_batch_column_count(popped), count);
  assert_int_equal(treadle_batch_column_count(*batch), COLUMNS - count);
  assert_ok(treadle_batch_union(*batch, popped));
  treadle_batch_destroy(popped);
}

static char *saved; /* a path */

static void save_and_load(treadle_random *random, treadle_batch **batch, twin *t) {
  treadle_batch *made;
  (void)random, (void)t;
  assert_ok(treadle_batch_save(*batch, saved));
  assert_ok(treadle_batch_load(saved, &made));
  replace(batch, made);
}

static void as_its_twin(void **state) {
  (void)state;
  static void (*const steps[])(treadle_random *, treadle_batch **, twin *) = {
      take_slice,     take_rows,      take_mask,     put_in_order,  repeat,          repeat_each,
      split_and_join, part_and_unite, save_and_load, pad_and_chunk, fold_and_unfold, pop_and_unite};
  const char *seed_text = getenv("TREADLE_SEED");
  uint64_t seed = seed_text ? strtoull(seed_text, NULL, 10) : 1;
  treadle_random random = {seed};
  static twin t;
  printf("TREADLE_SEED=%llu\n", (unsigned long long)seed);
  t.count = 20;
  for (int r = 0; r < t.count; r++) t.rows[r] = draw_row(&random);
  treadle_batch *batch = batch_of(&t);
  for (int step = 0; step < STEPS; step++) {
    steps[treadle_random_below(&random, TEST_COUNT(steps))](&random, &batch, &t);
    compare(batch, &t);
  }
  treadle_batch_destroy(batch);
}

/* ---- Columns ----------------------------------------------------------------------------------- */

static treadle_batch *batch_of_rows(int64_t rows) {
  treadle_batch *batch;
  assert_ok(treadle_batch_create(rows, &batch));
  return batch;
}

static treadle_status add(treadle_batch *batch, const char *name, treadle_column_type type, int64_t width,
                          const int64_t *offsets, void *data) {
  return treadle_batch_add(batch, &(treadle_column){.struct_size = sizeof(treadle_column),
                                                    .name = name,
                                                    .type = type,
                                                    .width = width,
                                                    .offsets = offsets,
                                                    .data = data});
}

static void refused_columns(void **state) {
  (void)state;
  static const int64_t down[] = {0, 3, 2}, below[] = {-1, 0, 2}, good[] = {0, 1, 2};
  int32_t numbers[] = {1, 2, 3};
  unsigned char truth[] = {1, 2},
                broken[] = {'a', 0xe2, 0x82, 0xac}; /* row 1 would be whole with what follows it */
  const char *const texts[] = {"a", NULL}, *const bad[] = {"a", "\xff"};
  char name[300];
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = 0;
  treadle_batch *batch = batch_of_rows(2);
  assert_refused("1 to 255 bytes", add(batch, name, TREADLE_COLUMN_INT32, 1, NULL, numbers));
  assert_refused("1 to 255 bytes", add(batch, "", TREADLE_COLUMN_INT32, 1, NULL, numbers));
  assert_refused("not UTF-8", add(batch, "\xff", TREADLE_COLUMN_INT32, 1, NULL, numbers));
  assert_refused("control character", add(batch, "a\nb", TREADLE_COLUMN_INT32, 1, NULL, numbers));
  assert_refused("files of batches", add(batch, "ids.offsets", TREADLE_COLUMN_INT32, 1, NULL, numbers));
  assert_refused("a width of -1", add(batch, "n", TREADLE_COLUMN_INT32, -1, NULL, numbers));
  assert_refused("with offsets", add(batch, "n", TREADLE_COLUMN_INT32, 1, good, numbers));
  assert_refused("are more than", add(batch, "n", TREADLE_COLUMN_INT32, INT64_MAX, NULL, NULL));
  assert_refused("row 1 are 3 and 2", add(batch, "n", TREADLE_COLUMN_INT32, 0, down, numbers));
  assert_refused("the first offset is -1", add(batch, "n", TREADLE_COLUMN_INT32, 0, below, numbers));
  assert_refused("texts need offsets", add(batch, "n", TREADLE_COLUMN_TEXT, 1, NULL, numbers));
  assert_refused("row 1 is 2, which is not a bool", add(batch, "n", TREADLE_COLUMN_BOOL, 1, NULL, truth));
  assert_refused("the text of row 1 is not UTF-8", add(batch, "n", TREADLE_COLUMN_TEXT, 0, good, broken));
  assert_refused("the text of row 1 is NULL", treadle_batch_add_texts(batch, "n", texts, NULL));
  assert_refused("the text of row 1 is not UTF-8", treadle_batch_add_texts(batch, "n", bad, NULL));
  assert_int_equal(treadle_batch_column_count(batch), 0);
  assert_ok(add(batch, "numbers", TREADLE_COLUMN_INT32, 1, NULL, numbers));
  assert_refused("has one with this name", add(batch, "numbers", TREADLE_COLUMN_INT32, 1, NULL, numbers));
  assert_refused("no column 'number'; it has 'numbers'", treadle_batch_remove(batch, "number"));
  assert_refused("has one with this name", treadle_batch_rename(batch, "numbers", "numbers"));
  assert_ok(treadle_batch_rename(batch, "numbers", "n"));
  assert_true(treadle_batch_has(batch, "n") && !treadle_batch_has(batch, "numbers"));
  assert_ok(treadle_batch_remove(batch, "n"));
  assert_int_equal(treadle_batch_column_count(batch), 0);
  treadle_batch_destroy(batch);
}

static void refused_rows(void **state) {
  (void)state;
  static const int64_t far[] = {0, 2}, twice[] = {1, 1}, counts[] = {1, 2}, few[] = {1, 0};
  const bool mask[] = {true};
  treadle_batch *batch = batch_of_rows(2), *made, *parts[3];
  assert_refused("number 1: row 2; the batch has 2", treadle_batch_index(batch, far, 2, &made));
  assert_refused("a mask of 1 rows", treadle_batch_index_mask(batch, mask, 1, &made));
  assert_refused("rows 1 up to 3", treadle_batch_slice(batch, 1, 3, &made));
  assert_refused("only support equal chunk", treadle_batch_chunk(batch, 3, parts));
  assert_refused("part 1 of 2 rows", treadle_batch_split(batch, counts, 2, parts));
  assert_refused("have 1 rows together", treadle_batch_split(batch, few, 2, parts));
  assert_null(parts[0]);
  assert_refused("row 1 comes a second time", treadle_batch_reorder(batch, twice, 2));
  assert_refused("row 2 does not exist", treadle_batch_reorder(batch, far, 2));
  assert_refused("0 times", treadle_batch_repeat(batch, 0, true, &made));
  assert_refused("at most", treadle_batch_repeat(batch, INT64_MAX, true, &made));
  assert_refused("no batches", treadle_batch_concat((const treadle_batch *const[]){batch}, 0, &made));
  treadle_batch_destroy(batch);
}

/* Slices and selections show the memory of the first; and it lives as long as one of them. */
static void shared_memory(void **state) {
  (void)state;
  int64_t numbers[] = {10, 11, 12, 13};
  treadle_batch *batch = batch_of_rows(4), *slice, *column;
  assert_ok(add(batch, "n", TREADLE_COLUMN_INT64, 1, NULL, numbers));
  assert_ok(treadle_batch_slice(batch, 1, 3, &slice));
  assert_ok(treadle_batch_select(slice, (const char *const[]){"n"}, 1, &column));
  ((int64_t *)column_of(batch, "n").data)[2] = 99;
  treadle_batch_destroy(batch);
  treadle_batch_destroy(slice);
  assert_int_equal(((int64_t *)column_of(column, "n").data)[0], 11);
  assert_int_equal(((int64_t *)column_of(column, "n").data)[1], 99);
  treadle_batch_destroy(column);
}

static void count_release(void *context) { ++*(int *)context; }

/* Memory of the caller's is used where it lies, and let go once, with the last batch that has it. */
static void borrowed_memory(void **state) {
  (void)state;
  float values[] = {1, 2, 3, 4};
  int released = 0;
  treadle_column column = {.struct_size = sizeof column,
                           .name = "x",
                           .type = TREADLE_COLUMN_FP32,
                           .width = 2,
                           .data = values,
                           .release = count_release,
                           .context = &released};
  treadle_batch *batch = batch_of_rows(2), *slice;
  column.data = (char *)values + 2;
  assert_refused("not a multiple of 4 bytes", treadle_batch_add(batch, &column));
  column.data = NULL;
  assert_refused("no data", treadle_batch_add(batch, &column));
  assert_int_equal(released, 0);
  column.data = values;
  assert_ok(treadle_batch_add(batch, &column));
  assert_ptr_equal(column_of(batch, "x").data, values);
  assert_ok(treadle_batch_slice(batch, 1, 2, &slice));
  assert_ptr_equal(column_of(slice, "x").data, values + 2);
  treadle_batch_destroy(batch);
  assert_int_equal(released, 0);
  treadle_batch_destroy(slice);
  assert_int_equal(released, 1);
}

/* ---- Joining ----------------------------------------------------------------------------------- */

static void unequal_columns(void **state) {
  (void)state;
  const float a[] = {1, NAN, -0.0f}, b[] = {1, NAN, 0.0f}, c[] = {1, NAN, 2};
  const int32_t whole[] = {1, 2, 3};
  treadle_batch *batch = batch_of_rows(3), *other = batch_of_rows(3), *made;
  assert_ok(add(batch, "x", TREADLE_COLUMN_FP32, 1, NULL, (void *)(uintptr_t)a));
  assert_ok(add(other, "x", TREADLE_COLUMN_FP32, 1, NULL, (void *)(uintptr_t)b));
  assert_ok(treadle_batch_union(batch, other)); /* NaN is NaN, and -0 is 0 */
  assert_ok(treadle_batch_remove(other, "x"));
  assert_ok(add(other, "x", TREADLE_COLUMN_FP32, 1, NULL, (void *)(uintptr_t)c));
  assert_refused("'x' in tensor_dict1 and tensor_dict2 are not the same object: the values of row 2 differ",
                 treadle_batch_union(batch, other));
  assert_ok(treadle_batch_remove(other, "x"));
  assert_refused("batch 1 has 0 columns",
                 treadle_batch_concat((const treadle_batch *const[]){batch, other}, 2, &made));
  assert_ok(add(other, "x", TREADLE_COLUMN_INT32, 1, NULL, (void *)(uintptr_t)whole));
  assert_refused("fp32 of width 1, int32", treadle_batch_union(batch, other));
  assert_refused("fp32 of width 1 in batch 0, int32",
                 treadle_batch_concat((const treadle_batch *const[]){batch, other}, 2, &made));
  treadle_batch_destroy(other);
  other = batch_of_rows(2);
  assert_refused("3 and 2 rows", treadle_batch_union(batch, other));
  treadle_batch_destroy(other);
  treadle_batch_destroy(batch);
}

static void meta(void **state) {
  (void)state;
  treadle_batch *batch = batch_of_rows(1), *other = batch_of_rows(1), *made;
  const treadle_batch *const both[] = {batch, other};
  assert_refused("not one JSON value", treadle_batch_set_meta(batch, "k", "1, 2"));
  assert_refused("meta 'k'", treadle_batch_set_meta(batch, "k", "{"));
  assert_refused("not one JSON value", treadle_batch_set_meta(batch, "k", ""));
  assert_ok(treadle_batch_set_meta(batch, "k", " {\"a\": 1, \"b\": NaN} "));
  assert_string_equal(treadle_batch_meta(batch, "k"), "{\"a\":1,\"b\":NaN}");
  assert_ok(treadle_batch_set_meta(other, "k", "{\"b\": NaN, \"a\": 1}"));
  assert_ok(treadle_batch_union(batch, other));
  assert_ok(treadle_batch_set_meta(other, "k", "2"));
  assert_refused("Conflicting values for meta_info key 'k'", treadle_batch_union(batch, other));
  assert_refused("Conflicting values for meta_info key 'k'", treadle_batch_concat(both, 2, &made));
  assert_ok(treadle_batch_set_meta(other, "k", NULL));
  assert_null(treadle_batch_meta(other, "k"));
  assert_ok(treadle_batch_set_meta(batch, "metrics", "{\"loss\": 1}"));
  assert_ok(treadle_batch_set_meta(other, "metrics", "[{\"loss\": 2}, {\"loss\": 3}]"));
  assert_ok(treadle_batch_concat(both, 2, &made));
  assert_string_equal(treadle_batch_meta(made, "metrics"), "{\"loss\":[1,2,3]}");
  assert_string_equal(treadle_batch_meta_key(made, 0), "k");
  assert_null(treadle_batch_meta_key(made, 2));
  treadle_batch_destroy(made);
  assert_ok(treadle_batch_set_meta(other, "metrics", "{\"los\": 2}"));
  assert_refused("has key 'los'", treadle_batch_concat(both, 2, &made));
  assert_ok(treadle_batch_set_meta(other, "metrics", "3"));
  assert_refused("neither an object nor a list", treadle_batch_concat(both, 2, &made));
  treadle_batch_destroy(batch);
  treadle_batch_destroy(other);
}

/* ---- Files ------------------------------------------------------------------------------------- */

static void refused_file(const char *file, const char *text, const char *part) {
  treadle_batch *batch;
  test_write(saved, file, text);
  assert_refused(part, treadle_batch_load(saved, &batch));
  assert_null(batch);
}

static void damaged_files(void **state) {
  (void)state;
  const char *const texts[] = {"a\0b", "c"};
  const size_t bytes[] = {3, 1};
  int64_t offsets[] = {0, 2, 3};
  int32_t ids[] = {7, 8, 9};
  treadle_batch *batch = batch_of_rows(2), *made;
  assert_ok(treadle_batch_add_texts(batch, "text", texts, bytes));
  assert_ok(add(batch, "ids", TREADLE_COLUMN_INT32, 0, offsets, ids));
  assert_ok(treadle_batch_save(batch, saved));
  assert_ok(treadle_batch_load(saved, &made));
  assert_memory_equal(column_of(made, "text").data, "a\0bc", 4);
  treadle_batch_destroy(made);
  refused_file("texts.jsonl", "{\"text\": \"a\"}\n", "has 1 lines; the batch has 2 rows");
  refused_file("texts.jsonl", "{\"text\": \"a\"}\n{\"text\": 3}\n", "line 2: has no text 'text'");
  refused_file("texts.jsonl", "{\"text\": \"a\"}\n{}\n", "line 2: is not an object of 1 texts");
  refused_file("texts.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"c\"}\n",
               "more than 2 lines");
  refused_file("batch.json", "{}", "is not a batch");
  refused_file("batch.json", "{\"treadle_batch\": 2}", "format 2");
  refused_file("batch.json",
               "{\"treadle_batch\": 1, \"rows\": 2, \"columns\": [{\"name\": \"ids\", \"type\": \"int\"}]}",
               "needs a name and a type");
  refused_file(
      "batch.json",
      "{\"treadle_batch\": 1, \"rows\": 2, \"columns\": [{\"name\": \"ids\", \"type\": \"int32\"}]}",
      "either a width");
  refused_file("batch.json",
               "{\"treadle_batch\": 1, \"rows\": 2, \"columns\": [{\"name\": \"ids\", \"type\": \"int32\", "
               "\"width\": 1}]}",
               "'ids' is I32 of 1 dimensions, 3 rows");
  refused_file("batch.json",
               "{\"treadle_batch\": 1, \"rows\": 2, \"columns\": [{\"name\": \"id\", \"type\": \"int32\", "
               "\"width\": 1}]}",
               "has no 'id'");
  refused_file("batch.json",
               "{\"treadle_batch\": 1, \"rows\": 4294967296, \"columns\": [{\"name\": \"text\", \"type\": "
               "\"text\"}]}",
               "the batch has 4294967296 rows");
  refused_file("batch.json", "{\"treadle_batch\": 1, \"rows\": -1, \"columns\": []}", "not -1");
  assert_ok(treadle_batch_save(batch, saved)); /* replaces it */
  assert_ok(treadle_batch_load(saved, &made));
  treadle_batch_destroy(made);
  treadle_batch_destroy(batch);
}

static void not_a_batch(void **state) {
  (void)state;
  char path[700], file[720];
  treadle_batch *batch = batch_of_rows(0), *none;
  snprintf(path, sizeof path, "%s.other", saved);
  assert_int_equal(mkdir(path, 0777), 0);
  test_write(path, "notes.txt", "mine");
  assert_refused("not a batch that could be replaced", treadle_batch_save(batch, path));
  snprintf(file, sizeof file, "%s/notes.txt", path);
  assert_refused("not a folder", treadle_batch_save(batch, file));
  assert_refused("", treadle_batch_load("/nothing/nothing", &none));
  assert_null(none);
  treadle_batch_destroy(batch);
}

/* ---- Memory that is out ------------------------------------------------------------------------ */

static treadle_status everything(const twin *t) {
  static const int64_t order[] = {2, 0, 1};
  treadle_status status;
  treadle_batch *batch = NULL, *slice = NULL, *joined = NULL;
  const char *texts[] = {t->rows[0].text, t->rows[1].text, t->rows[2].text};
  int64_t offsets[] = {0, 1, 1, 3};
  if ((status = treadle_batch_create(3, &batch))) goto out;
  if ((status = treadle_batch_add_texts(batch, "text", texts, NULL))) goto out;
  if ((status = add(batch, "ids", TREADLE_COLUMN_INT32, 0, offsets, (void *)(uintptr_t)t->rows[0].ids)))
    goto out;
  if ((status = treadle_batch_slice(batch, 1, 3, &slice))) goto out;
  if ((status = treadle_batch_concat((const treadle_batch *const[]){batch, slice}, 2, &joined))) goto out;
  if ((status = treadle_batch_union(batch, batch))) goto out;
  if ((status = treadle_batch_reorder(batch, order, 3))) goto out;
out:
  treadle_batch_destroy(batch);
  treadle_batch_destroy(slice);
  treadle_batch_destroy(joined);
  return status;
}

static void memory_is_out(void **state) {
  (void)state;
  static twin t;
  TEST_EACH_ALLOCATION(everything(&t));
}

int main(void) {
  const char *folder = test_folder();
  char path[600];
  snprintf(path, sizeof path, "%s/batch", folder);
  saved = path;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_its_twin),   cmocka_unit_test(refused_columns), cmocka_unit_test(refused_rows),
      cmocka_unit_test(shared_memory), cmocka_unit_test(borrowed_memory), cmocka_unit_test(unequal_columns),
      cmocka_unit_test(meta),          cmocka_unit_test(damaged_files),   cmocka_unit_test(not_a_batch),
      cmocka_unit_test(memory_is_out),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  test_remove(folder);
  return failed;
}
