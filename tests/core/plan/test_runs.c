/* Runs of random ops, against their elements one by one: each in its place of the window, in the order of the message. */
#include "plan/runs.h"

#include "base/random.h"
#include "test.h"

enum { CASES = 3000, ROOM = 1 << 12 };

/* A window of rows in which a box is cut, and that box dense in a message, in another order of dimensions now and then. */
static treadle_op draw(treadle_random *random, bool writes) {
  treadle_op op = {.from_dtype = TREADLE_BF16, .to_dtype = TREADLE_BF16, .elems = 1};
  int64_t window[TREADLE_MAX_AXES], message[TREADLE_MAX_AXES], stride = 2, dense = 2;
  int order[TREADLE_MAX_AXES];
  op.ndim = (uint8_t)treadle_random_between(random, 1, TREADLE_MAX_AXES < 4 ? TREADLE_MAX_AXES : 4);
  for (int d = op.ndim - 1; d >= 0; d--) {
    op.size[d] = (int64_t)treadle_random_between(random, 1, 5);
    window[d] = stride;
    stride *= op.size[d] + (int64_t)treadle_random_below(random, 2);
    op.elems *= op.size[d];
    order[d] = d;
  }
  for (int d = op.ndim - 1; d > 0 && treadle_random_below(random, 4) == 0; d--) {
    int other = (int)treadle_random_below(random, (uint64_t)d + 1), kept = order[d];
    order[d] = order[other];
    order[other] = kept;
  }
  for (int k = op.ndim - 1; k >= 0; k--) {
    message[order[k]] = dense;
    dense *= op.size[order[k]];
  }
  for (int d = 0; d < op.ndim; d++) {
    op.to_stride[d] = writes ? window[d] : message[d];
    op.from_stride[d] = writes ? message[d] : window[d];
  }
  op.from = 2 * (int64_t)treadle_random_below(random, 10);
  op.to = 2 * (int64_t)treadle_random_below(random, 10);
  return op;
}

/* Where element number `i` of the message lies in the window; -1: there is none. */
static int64_t place_of(const treadle_op *op, bool writes, int64_t wanted) {
  for (int64_t n = 0; n < op->elems; n++) {
    int64_t window = writes ? op->to : op->from, message = 0, rest = n;
    for (int d = 0; d < op->ndim; d++) {
      int64_t i = rest % op->size[d];
      rest /= op->size[d];
      window += i * (writes ? op->to_stride[d] : op->from_stride[d]);
      message += i * (writes ? op->from_stride[d] : op->to_stride[d]);
    }
    if (message == 2 * wanted) return window;
  }
  return -1;
}

static void test_places(void **state) {
  (void)state;
  treadle_random random = {77};
  int64_t several = 0, longest = 0;
  for (int i = 0; i < CASES; i++) {
    bool writes = i % 2;
    const treadle_op op = draw(&random, writes);
    treadle_runs runs;
    assert_true(treadle_runs_of(&op, writes, &runs));
    assert_int_equal(runs.bytes * runs.count, 2 * op.elems);
    for (int64_t e = 0; e < op.elems; e++)
      assert_int_equal(treadle_runs_at(&runs, 2 * e / runs.bytes) + 2 * e % runs.bytes,
                       place_of(&op, writes, e));
    several += runs.count > 1;
    if (runs.count > 1 && runs.bytes > longest) longest = runs.bytes;
  }
  assert_in_range(several, CASES / 4, CASES);
  assert_in_range(longest, 20, ROOM);
}

static void test_values_that_change(void **state) {
  (void)state;
  treadle_op op = {.from_dtype = TREADLE_FP32,
                   .to_dtype = TREADLE_BF16,
                   .elems = 4,
                   .ndim = 1,
                   .size = {4},
                   .from_stride = {4},
                   .to_stride = {2}};
  treadle_runs runs;
  assert_false(treadle_runs_of(&op, true, &runs));
  op.from_dtype = TREADLE_BF16, op.from_stride[0] = 2;
  assert_true(treadle_runs_of(&op, true, &runs));
  assert_int_equal(runs.bytes, 8);
  op.add = 1;
  assert_false(treadle_runs_of(&op, true, &runs));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_places),
                                     cmocka_unit_test(test_values_that_change)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
