/* Rows of batches through messages (message_rows.c): what is read are the rows and columns that were picked, and what
 * is damaged is refused. TREADLE_SEED sets the seed (1). */
#include "base/random.h"
#include "control/message.h"
#include "test.h"

enum { MOST_ROWS = 9, MOST_VALUES = 4, MOST_COLUMNS = 12, BATCHES = 400, TYPES = TREADLE_COLUMN_BYTES + 1 };

static const size_t bytes_of[TYPES] = {4, 8, 4, 8, 2, 1, 1, 1, 1};

/* ---- Random batches ---- */

/* Any bits, truth values of a bool, characters of a text. */
static void draw_values(treadle_random *random, treadle_column_type type, char *data, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    data[i] = (char)(type == TREADLE_COLUMN_BOOL   ? treadle_random_below(random, 2)
                     : type == TREADLE_COLUMN_TEXT ? treadle_random_below(random, 128)
                                                   : treadle_random_below(random, 256));
}

static void draw_column(treadle_random *random, treadle_batch *batch, int number) {
  const int64_t rows = treadle_batch_rows(batch);
  const treadle_column_type type = (treadle_column_type)treadle_random_below(random, TYPES);
  const bool ragged = type >= TREADLE_COLUMN_TEXT || treadle_random_below(random, 2);
  char name[16], data[(MOST_ROWS + 1) * MOST_VALUES * 8];
  int64_t offsets[MOST_ROWS + 1];
  treadle_column column = {.struct_size = sizeof column, .name = name, .type = type, .data = data};
  snprintf(name, sizeof name, "%s%d", number % 2 ? "\xe2\x82\xac" : "c", number);
  draw_values(random, type, data, sizeof data);
  offsets[0] = treadle_random_below(random, MOST_VALUES);
  for (int64_t r = 0; r < rows; r++)
    offsets[r + 1] = offsets[r] + treadle_random_below(random, MOST_VALUES);
  if (ragged) column.offsets = offsets;
  if (!ragged) column.width = treadle_random_between(random, 1, MOST_VALUES);
  assert_ok(treadle_batch_add(batch, &column));
}

/* Now and then it is a part of another one, in the middle of its memory. */
static treadle_batch *draw_batch(treadle_random *random) {
  treadle_batch *batch, *part;
  assert_ok(treadle_batch_create(treadle_random_below(random, MOST_ROWS + 1), &batch));
  const int columns = (int)treadle_random_below(random, MOST_COLUMNS + 1);
  for (int i = 0; i < columns; i++) draw_column(random, batch, i);
  if (treadle_random_below(random, 2)) return batch;
  const int64_t begin = treadle_random_below(random, treadle_batch_rows(batch) + 1);
  assert_ok(treadle_batch_slice(batch, begin,
                                treadle_random_between(random, begin, treadle_batch_rows(batch)), &part));
  treadle_batch_destroy(batch);
  return part;
}

/* ---- What is picked ---- */

typedef struct picked {
  treadle_message_rows rows;
  int64_t places[2 * MOST_ROWS];
  const char *names[MOST_COLUMNS + 2];
  treadle_batch *wanted;
} picked;

static treadle_column column_at(const treadle_batch *batch, int32_t number) {
  treadle_column column = TREADLE_INIT(treadle_column);
  assert_ok(treadle_batch_column_at(batch, number, &column));
  return column;
}

/* Any rows in any order, some of them twice, or all; any columns in any order, among names that no column has, or all. */
static void pick(treadle_random *random, const treadle_batch *batch, picked *p) {
  const int64_t rows = treadle_batch_rows(batch);
  const int32_t columns = treadle_batch_column_count(batch);
  const char *there[MOST_COLUMNS];
  size_t found = 0;
  treadle_batch *indexed;
  *p = (picked){.rows = {.batch = batch}};
  if (treadle_random_below(random, 3)) {
    p->rows.rows = p->places;
    p->rows.row_count = rows ? (size_t)treadle_random_below(random, TEST_COUNT(p->places) + 1) : 0;
    for (size_t i = 0; i < p->rows.row_count; i++) p->places[i] = treadle_random_below(random, rows);
  } else {
    for (int64_t r = 0; r < rows; r++) p->places[r] = r;
  }
  assert_ok(
      treadle_batch_index(batch, p->places, p->rows.rows ? p->rows.row_count : (size_t)rows, &indexed));
  if (!treadle_random_below(random, 3)) {
    p->wanted = indexed;
    return;
  }
  p->rows.names = p->names;
  const int32_t turn = columns ? (int32_t)treadle_random_below(random, columns) : 0;
  for (int32_t i = 0; i < columns; i++) {
    if (i == columns / 2) p->names[p->rows.count++] = "absent";
    if (treadle_random_below(random, 3) == 0) continue;
    there[found++] = p->names[p->rows.count++] = column_at(batch, (i + turn) % columns).name;
  }
  p->names[p->rows.count++] = "c";
  assert_ok(treadle_batch_select(indexed, there, found, &p->wanted));
  treadle_batch_destroy(indexed);
}

static int64_t begin_of(const treadle_column *column, int64_t row) {
  return column->offsets ? column->offsets[row] : row * column->width;
}

static void expect_equal(const treadle_batch *got, const treadle_batch *wanted) {
  const int64_t rows = treadle_batch_rows(wanted);
  assert_int_equal(treadle_batch_rows(got), rows);
  assert_int_equal(treadle_batch_column_count(got), treadle_batch_column_count(wanted));
  for (int32_t i = 0; i < treadle_batch_column_count(wanted); i++) {
    const treadle_column a = column_at(got, i), b = column_at(wanted, i);
    const size_t each = bytes_of[b.type];
    assert_string_equal(a.name, b.name);
    assert_int_equal(a.type, b.type);
    assert_int_equal(a.width, b.width);
    assert_true(!a.offsets == !b.offsets);
    for (int64_t r = 0; r < rows; r++) {
      const int64_t values = begin_of(&b, r + 1) - begin_of(&b, r);
      assert_int_equal(begin_of(&a, r + 1) - begin_of(&a, r), values);
      assert_memory_equal((const char *)a.data + (size_t)begin_of(&a, r) * each,
                          (const char *)b.data + (size_t)begin_of(&b, r) * each, (size_t)values * each);
    }
  }
}

/* Between two numbers, which are where they were. */
static void pass(const picked *p, treadle_message *m) {
  treadle_batch *got;
  int64_t number;
  treadle_message_clear(m);
  treadle_message_put_int(m, 7);
  treadle_message_put_rows(m, &p->rows);
  treadle_message_put_int(m, 8);
  assert_false(m->failed);
  assert_ok(treadle_message_int(m, "first", &number));
  assert_int_equal(number, 7);
  assert_ok(treadle_message_batch(m, &got));
  expect_equal(got, p->wanted);
  assert_ok(treadle_message_int(m, "last", &number));
  assert_int_equal(number, 8);
  treadle_batch_destroy(got);
}

static treadle_random seeded(void) {
  const char *text = getenv("TREADLE_SEED");
  const uint64_t seed = text ? strtoull(text, NULL, 10) : 1;
  printf("TREADLE_SEED=%llu\n", (unsigned long long)seed);
  return (treadle_random){seed};
}

static void test_pass(void **state) {
  treadle_random random = seeded();
  treadle_message m = {0};
  (void)state;
  for (uint64_t i = 0; i < test_seeds(BATCHES); i++) {
    treadle_batch *batch = draw_batch(&random);
    picked p;
    pick(&random, batch, &p);
    pass(&p, &m);
    treadle_batch_destroy(p.wanted);
    treadle_batch_destroy(batch);
  }
  treadle_message_release(&m);
}

/* ---- Damage ---- */

/* Reads every value. */
static uint64_t sum_of(const treadle_batch *batch) {
  uint64_t sum = 0;
  for (int32_t i = 0; i < treadle_batch_column_count(batch); i++) {
    const treadle_column column = column_at(batch, i);
    const int64_t rows = treadle_batch_rows(batch);
    for (size_t at = (size_t)begin_of(&column, 0) * bytes_of[column.type];
         at < (size_t)begin_of(&column, rows) * bytes_of[column.type]; at++)
      sum += ((const unsigned char *)column.data)[at];
  }
  return sum;
}

/* Of bytes behind which there is nothing. *batch_p goes before *memory_p. */
static treadle_status read_bytes(const char *bytes, size_t length, treadle_batch **batch_p,
                                 char **memory_p) {
  treadle_message m = {.length = length};
  *memory_p = malloc(length + !length);
  assert_non_null(*memory_p);
  memcpy(*memory_p, bytes, length);
  m.given = *memory_p;
  treadle_status status = treadle_message_batch(&m, batch_p);
  assert_true(status == TREADLE_OK ? *batch_p != NULL : !*batch_p && *treadle_error_message());
  return status;
}

/* Only the last bytes, which fill up a word, may be missing. */
static void cut(const char *bytes, size_t length, const treadle_batch *wanted) {
  for (size_t less = 0; less <= length; less++) {
    treadle_batch *got;
    char *memory;
    if (read_bytes(bytes, less, &got, &memory) == TREADLE_OK) {
      assert_true(length - less < 8);
      expect_equal(got, wanted);
    }
    treadle_batch_destroy(got);
    free(memory);
  }
}

static volatile uint64_t read_sum; /* of what was taken even so: all of it is read */

/* Each word in turn is another one: what is taken even so can be read. */
static void damage(char *bytes, size_t length) {
  static const int64_t others[] = {0,         -1,        1,         9,        INT64_MAX, INT64_MIN,
                                   1LL << 62, 1LL << 61, 1LL << 32, 0x800000, 0xff,      ~0xffLL};
  uint64_t sum = 0;
  for (size_t at = 0; at < length; at += 8)
    for (size_t i = 0; i < 2 * TEST_COUNT(others); i++) {
      treadle_batch *got;
      char *memory;
      int64_t word, other;
      memcpy(&word, bytes + at, sizeof word);
      other = (int64_t)((uint64_t)others[i / 2] + (i % 2 ? (uint64_t)word : 0));
      memcpy(bytes + at, &other, sizeof other);
      if (read_bytes(bytes, length, &got, &memory) == TREADLE_OK) sum += sum_of(got);
      treadle_batch_destroy(got);
      free(memory);
      memcpy(bytes + at, &word, sizeof word);
    }
  read_sum = sum;
}

static void test_damage(void **state) {
  treadle_random random = seeded();
  treadle_message m = {0};
  (void)state;
  for (uint64_t i = 0; i < test_seeds(20); i++) {
    treadle_batch *batch = draw_batch(&random);
    picked p;
    pick(&random, batch, &p);
    treadle_message_clear(&m);
    treadle_message_put_rows(&m, &p.rows);
    cut(m.bytes, m.length, p.wanted);
    damage(m.bytes, m.length);
    treadle_batch_destroy(p.wanted);
    treadle_batch_destroy(batch);
  }
  treadle_message_release(&m);
}

/* A message of one column, as it should be and as it should not. */
typedef struct form {
  const char *part; /* of what it is refused with; NULL: it is not */
  int64_t rows, columns;
  const char *name;
  size_t name_bytes;
  int64_t type, width, offsets[3]; /* offsets: if width is 0 */
  const char *data;
  size_t data_bytes;
} form;

enum { UINT8 = TREADLE_COLUMN_UINT8, BOOL, TEXT, BYTES };
static const form forms[] = {
    {NULL, 2, 1, "x", 2, BYTES, 0, {0, 1, 3}, "abc", 3},
    {NULL, 2, 1, "x", 2, BYTES, 0, {1, 1, 3}, "abc", 3}, /* its first byte is nobody's */
    {NULL, 2, 1, "x", 2, BOOL, 1, {0}, "\0\1", 2},
    {"has -1 rows and 1 columns", -1, 1, "x", 2, BYTES, 0, {0, 1, 3}, "abc", 3},
    {"has 2 rows and -1 columns", 2, -1, "x", 2, BYTES, 0, {0, 1, 3}, "abc", 3},
    {"ends at its name of a column", 2, 2, "x", 2, BYTES, 0, {0, 1, 3}, "abc", 3},
    {"has a column of type 9 and width 0", 2, 1, "x", 2, BYTES + 1, 0, {0, 1, 3}, "abc", 3},
    {"has a column of type -1 and width 0", 2, 1, "x", 2, -1, 0, {0, 1, 3}, "abc", 3},
    {"has a column of type 5 and width -1", 2, 1, "x", 2, UINT8, -1, {0, 1, 3}, "abc", 3},
    {"has a column of type 8", 2, 1, "xy", 2, BYTES, 0, {0, 1, 3}, "abc", 3}, /* no 0 ends its name */
    {"has a column of type 8", 2, 1, "x", 0, BYTES, 0, {0, 1, 3}, "abc", 3},
    {"1 to 255 bytes, not 0", 2, 1, "", 1, BYTES, 0, {0, 1, 3}, "abc", 3},
    {"the name is not UTF-8", 2, 1, "\xff", 2, BYTES, 0, {0, 1, 3}, "abc", 3},
    {"24 bytes for its offsets, and 2 items", 1, 1, "x", 2, BYTES, 0, {0, 1, 3}, "abc", 3},
    {"24 bytes for its offsets, and 4 items", 3, 1, "x", 2, BYTES, 0, {0, 1, 3}, "abc", 3},
    {"a batch has 0 to", INT64_MAX, 1, "x", 2, BYTES, 0, {0, 1, 3}, "abc", 3},
    {"column 'x' of a message has -3 values", 2, 1, "x", 2, BYTES, 0, {0, 1, -3}, "abc", 3},
    {"3 bytes for its x, and 4 items", 2, 1, "x", 2, BYTES, 0, {0, 1, 4}, "abc", 3},
    {"the offsets of row 1 are 4 and 3", 2, 1, "x", 2, BYTES, 0, {0, 4, 3}, "abc", 3},
    {"the first offset is -1", 2, 1, "x", 2, BYTES, 0, {-1, 1, 3}, "abc", 3},
    {"bytes need offsets", 2, 1, "x", 2, BYTES, 1, {0}, "ab", 2},
    {"has 2 rows of 4611686018427387904 values", 2, 1, "x", 2, UINT8, 1LL << 62, {0}, "ab", 2},
    {"1 bytes for its x, and 2 items", 2, 1, "x", 2, UINT8, 1, {0}, "a", 1},
    {"a value of row 1 is 2, which is not a bool", 2, 1, "x", 2, BOOL, 1, {0}, "\1\2", 2},
    {"the text of row 1 is not UTF-8", 2, 1, "x", 2, TEXT, 0, {0, 1, 3}, "a\xe2\x82", 3},
};

static void put_form(treadle_message *m, const form *f) {
  treadle_message_put_int(m, f->rows);
  treadle_message_put_int(m, f->columns);
  treadle_message_put_bytes(m, f->name, f->name_bytes);
  treadle_message_put_int(m, f->type);
  treadle_message_put_int(m, f->width);
  if (!f->width) treadle_message_put_bytes(m, f->offsets, sizeof f->offsets);
  treadle_message_put_bytes(m, f->data, f->data_bytes);
}

static void test_forms(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(forms); i++) {
    treadle_message m = {0};
    treadle_batch *got;
    put_form(&m, &forms[i]);
    treadle_status status = treadle_message_batch(&m, &got);
    assert_true(!got == (status != TREADLE_OK));
    if (!status != !forms[i].part || (status && !strstr(treadle_error_message(), forms[i].part)))
      fail_msg("form %zu: wanted %s, got %s: %s", i, forms[i].part ? forms[i].part : "ok",
               treadle_status_text(status), status ? treadle_error_message() : "");
    treadle_batch_destroy(got);
    treadle_message_release(&m);
  }
}

/* ---- Memory ---- */

static treadle_status put_and_read(const picked *p) {
  treadle_message m = {0};
  treadle_batch *got = NULL;
  treadle_message_put_rows(&m, &p->rows);
  treadle_status status = m.failed ? treadle_fail(TREADLE_NO_MEMORY, "no memory for a message")
                                   : treadle_message_batch(&m, &got);
  assert_true(!got == (status != TREADLE_OK));
  if (!status) expect_equal(got, p->wanted);
  treadle_batch_destroy(got);
  treadle_message_release(&m);
  return status;
}

static void test_no_memory(void **state) {
  treadle_random random = seeded();
  (void)state;
  for (uint64_t i = 0; i < test_seeds(10); i++) {
    treadle_batch *batch = draw_batch(&random);
    picked p;
    pick(&random, batch, &p);
    TEST_EACH_ALLOCATION(put_and_read(&p));
    treadle_batch_destroy(p.wanted);
    treadle_batch_destroy(batch);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pass), cmocka_unit_test(test_damage),
                                     cmocka_unit_test(test_forms), cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
