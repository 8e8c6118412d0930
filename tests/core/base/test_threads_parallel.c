/* Loops of src/core/base/parallel.c: each step once, and always the same failure.
 * ctest: label=threads */
#include "test.h"

#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

enum { STEPS = 1000 };

typedef struct seen {
  atomic_int taken[STEPS];
  int32_t refuses_from; /* steps from here on are refused, all of them */
  int32_t told;         /* the last time; the caller's thread alone writes it */
} seen;

static treadle_status step(void *context, int32_t index) {
  seen *s = context;
  atomic_fetch_add(&s->taken[index], 1);
  if (index >= s->refuses_from) return treadle_fail(TREADLE_REFUSED, "step %d is refused", (int)index);
  return TREADLE_OK;
}

static treadle_status told(void *context, int32_t begun) {
  seen *s = context;
  assert_true(begun > s->told && begun <= STEPS);
  s->told = begun;
  return TREADLE_OK;
}

/* Who is told ends the loop: no step begins afterwards. The other threads wait in their steps till then, and are slow
 * from then on, so that they cannot end the loop before the caller's thread has had its turn. */
typedef struct ending {
  seen seen;
  pthread_t caller;
  atomic_bool told_all;
} ending;

static treadle_status wait_in_step(void *context, int32_t index) {
  ending *e = context;
  bool other = !pthread_equal(pthread_self(), e->caller);
  while (other && !atomic_load(&e->told_all)) sched_yield();
  if (other) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  return step(&e->seen, index);
}

static treadle_status told_enough(void *context, int32_t begun) {
  ending *e = context;
  e->seen.told = begun;
  if (begun < 5) return TREADLE_OK;
  atomic_store(&e->told_all, true);
  return treadle_fail(TREADLE_CANCELLED, "enough");
}

static void who_is_told_ends_it(void **state) {
  (void)state;
  ending e = {.seen = {.refuses_from = STEPS}, .caller = pthread_self()};
  assert_int_equal(treadle_parallel(STEPS, wait_in_step, &e, told_enough), TREADLE_CANCELLED);
  assert_string_equal(treadle_error_message(), "enough");
  for (int i = e.seen.told + 100; i < STEPS; i++) assert_int_equal(e.seen.taken[i], 0);
}

static void each_step_once(void **state) {
  (void)state;
  static const int32_t counts[] = {0, 1, 2, 17, STEPS};
  for (size_t c = 0; c < TEST_COUNT(counts); c++) {
    seen s = {.refuses_from = STEPS};
    assert_ok(treadle_parallel(counts[c], step, &s, told));
    for (int i = 0; i < STEPS; i++) assert_int_equal(s.taken[i], i < counts[c]);
    assert_true(s.told <= counts[c]);
  }
}

static void lowest_failure_is_told(void **state) {
  (void)state;
  for (int32_t from = 0; from < 200; from++) {
    char words[64];
    seen s = {.refuses_from = from};
    assert_int_equal(treadle_parallel(STEPS, step, &s, NULL), TREADLE_REFUSED);
    snprintf(words, sizeof words, "step %d is refused", (int)from);
    assert_string_equal(treadle_error_message(), words);
    for (int i = 0; i <= from; i++) assert_int_equal(s.taken[i], 1);
    for (int i = from + 100; i < STEPS; i++) assert_int_equal(s.taken[i], 0); /* it ends soon */
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_step_once),
                                     cmocka_unit_test(lowest_failure_is_told),
                                     cmocka_unit_test(who_is_told_ends_it)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
