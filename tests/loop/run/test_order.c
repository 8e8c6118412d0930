/* The order of rows: each epoch has each row once, in an order of its own; a batch may lie across two epochs; what a step takes depends on
 * seed and number alone. */
#include "test.h"

#include "base/random.h"
#include "run/order.h"

enum { MOST = 1000 };

/* Rows [from, from + count). */
static void take(treadle_train_order *order, int64_t from, int64_t count, size_t *rows) {
  for (int64_t i = 0; i < count; i++) rows[i] = treadle_train_order_at(order, from + i);
}

static void expect_all(const size_t *rows, size_t count) {
  bool seen[MOST] = {false};
  for (size_t i = 0; i < count; i++) {
    assert_true(rows[i] < count);
    assert_false(seen[rows[i]]);
    seen[rows[i]] = true;
  }
}

static void epochs(void **state) {
  (void)state;
  static const size_t sizes[] = {1, 2, 3, 7, 100, MOST};
  size_t rows[2][MOST];
  for (size_t s = 0; s < TEST_COUNT(sizes); s++) {
    treadle_train_order order;
    assert_ok(treadle_train_order_init(&order, 5, sizes[s]));
    for (int64_t epoch = 0; epoch < 4; epoch++) {
      take(&order, epoch * (int64_t)sizes[s], (int64_t)sizes[s], rows[epoch % 2]);
      expect_all(rows[epoch % 2], sizes[s]);
      if (epoch && sizes[s] >= 100) assert_memory_not_equal(rows[0], rows[1], sizes[s] * sizeof **rows);
    }
    treadle_train_order_release(&order);
  }
}

/* Going on from any number is as having come there. */
static void numbers(void **state) {
  (void)state;
  enum { ROWS = 100, TAKEN = 730 };
  treadle_train_order order, other;
  size_t all[TAKEN];
  treadle_random random = {3};
  assert_ok(treadle_train_order_init(&order, 11, ROWS));
  take(&order, 0, TAKEN, all);
  for (int i = 0; i < 300; i++) { /* back and forth */
    int64_t number = treadle_random_below(&random, TAKEN);
    assert_int_equal(treadle_train_order_at(&order, number), all[number]);
  }
  assert_ok(treadle_train_order_init(&other, 11, ROWS));
  assert_int_equal(treadle_train_order_at(&other, TAKEN - 1), all[TAKEN - 1]);
  treadle_train_order_release(&other);
  assert_ok(treadle_train_order_init(&other, 12, ROWS));
  size_t rows[ROWS];
  take(&other, 0, ROWS, rows);
  assert_memory_not_equal(rows, all, sizeof rows);
  treadle_train_order_release(&other);
  treadle_train_order_release(&order);
}

/* Each row comes to each place about as often: 3,000 epochs of 5 rows, so 600 times, with a deviation of 22. */
static void fairness(void **state) {
  (void)state;
  enum { ROWS = 5, EPOCHS = 3000 };
  int count[ROWS][ROWS] = {{0}};
  treadle_train_order order;
  assert_ok(treadle_train_order_init(&order, 1, ROWS));
  for (int64_t i = 0; i < ROWS * EPOCHS; i++) count[i % ROWS][treadle_train_order_at(&order, i)]++;
  for (int place = 0; place < ROWS; place++)
    for (int row = 0; row < ROWS; row++)
      if (abs(count[place][row] - EPOCHS / ROWS) > 5 * 22)
        fail_msg("row %d is %d times at place %d", row, count[place][row], place);
  treadle_train_order_release(&order);
}

/* Rows in their own order, epoch by epoch. */
static void kept(void **state) {
  (void)state;
  treadle_train_order order;
  assert_ok(treadle_train_order_init(&order, 1, 7));
  treadle_train_order_keep(&order);
  for (int64_t i = 0; i < 30; i++) assert_int_equal(treadle_train_order_at(&order, i), i % 7);
  treadle_train_order_release(&order);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(epochs), cmocka_unit_test(numbers),
                                     cmocka_unit_test(kept), cmocka_unit_test(fairness)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
