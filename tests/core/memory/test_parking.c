/* Parking: a closed window can be read and not written, an open one is what it was, and its pages are mapped. */
#include "memory/parking.h"
#include "memory/pool.h"
#include "test.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { PAGES = 5, PAGE = 1 << 20, BYTES = PAGES * PAGE };

typedef struct scene {
  treadle_pool *pool;
  char *base, *window;
  treadle_parking parking;
} scene;

static scene make(void) {
  scene s = {0};
  int32_t table[PAGES] = {0, 1, 2, 3, 4};
  void *window;
  assert_ok(treadle_pool_create(PAGES, PAGE, BYTES, &s.pool));
  assert_ok(treadle_pool_map(s.pool, table, PAGES, &window));
  s.window = window;
  s.base = treadle_pool_base(s.pool);
  assert_ok(treadle_parking_init(&s.parking, window, BYTES));
  return s;
}

static void end(scene *s) {
  treadle_parking_release(&s->parking);
  treadle_pool_destroy(s->pool);
}

static bool can_write(char *at) {
  int how;
  pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    *(volatile char *)at = *(volatile char *)at;
    _exit(0);
  }
  assert_int_equal(waitpid(child, &how, 0), child);
  return WIFEXITED(how) && WEXITSTATUS(how) == 0;
}

static long faults(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

static void test_cycles(void **state) {
  (void)state;
  scene s = make();
  for (int turn = 0; turn < 3; turn++) {
    memset(s.window, turn + 1, BYTES);
    treadle_parking_close(&s.parking);
    treadle_parking_close(&s.parking); /* does nothing */
    for (int i = 0; i < BYTES; i += PAGE / 2) assert_false(can_write(s.window + i));
    memset(s.base, turn + 10, PAGE); /* the pool stays writable, and is seen through the window */
    assert_int_equal(s.window[PAGE - 1], turn + 10);
    assert_int_equal(s.window[BYTES - 1], turn + 1);
    treadle_parking_open(&s.parking);
    treadle_parking_open(&s.parking);
    assert_int_equal(s.window[0], turn + 10);
    assert_true(can_write(s.window));
    s.window[BYTES - 1] = 99;
    assert_int_equal(s.base[BYTES - 1], 99);
  }
  end(&s);
}

/* Where the system moves tables, nothing faults afterwards. */
static void test_mapped(void **state) {
  (void)state;
  scene s = make();
  memset(s.window, 1, BYTES);
  treadle_parking_close(&s.parking);
  bool moved = s.parking.parked;
  treadle_parking_open(&s.parking);
  long before = faults();
  memset(s.window, 2, BYTES);
  if (moved) assert_true(faults() - before < BYTES / 4096 / 4);
  end(&s);
}

/* A window that is closed may go, and so may one of no bytes. */
static void test_release(void **state) {
  (void)state;
  treadle_parking empty;
  assert_ok(treadle_parking_init(&empty, NULL, 0));
  treadle_parking_close(&empty);
  treadle_parking_open(&empty);
  treadle_parking_release(&empty);
  scene s = make();
  treadle_parking_close(&s.parking);
  end(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cycles),
      cmocka_unit_test(test_mapped),
      cmocka_unit_test(test_release),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
