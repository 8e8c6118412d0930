/* Time limits where the processor is taken: four processes spin on one core, and on the same core others wait for what does not
 * come. Each wait is over a tenth of a second after its limit at the latest, 100 of 100: barriers, rank 0 of a meeting, and one
 * who looks for rank 0.
 *
 * The machine may be loaded beside, or be held up as a whole: of three turns one has to be without a miss. A wait that does not look
 * at the clock misses in all of them. One more process on that core does nothing but sleep: a turn in which it wakes up late, too, says
 * nothing.  ctest: alone */
#include "group/ranks.h"
#include "test.h"

#include "base/clock.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { SPINNERS = 4, WAITERS = 5, WAITS = 20, TURNS = 3, SLEEPER = WAITERS /* its number */ };
static const double LIMIT = 0.1, MORE = 0.1; /* seconds */

/* ---- Processes on one core ---- */

static bool pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

/* A core that this process may use; -1: the system does not say. */
static int find_core(void) {
  cpu_set_t set;
  int core = CPU_SETSIZE - 1;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return -1;
  while (core >= 0 && !CPU_ISSET(core, &set)) core--;
  return core;
}

typedef void (*part)(int core, int number, double *seconds);

static pid_t start(part body, int core, int number, double *seconds) {
  fflush(NULL);
  pid_t id = fork();
  assert_true(id >= 0);
  if (id > 0) return id;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!pin(core)) _exit(77);
  body(core, number, seconds);
  _exit(0);
}

static void spin(int core, int number, double *seconds) {
  (void)core, (void)number, (void)seconds;
  for (volatile unsigned turn = 0;; turn++) {
  }
}

/* ---- Waits that end by their limit ---- */

static treadle_status barrier(void) {
  treadle_group *groups[2];
  treadle_status status = treadle_group_threads(2, LIMIT, groups);
  if (status != TREADLE_OK) return status;
  status = treadle_group_barrier(groups[0]);
  for (int rank = 0; rank < 2; rank++) treadle_group_close(groups[rank]);
  return status;
}

/* The seconds of each wait, negative where it did not end as it should. */
static void wait_often(int core, int number, double *seconds) {
  treadle_group *group;
  (void)core;
  for (int i = 0; i < WAITS; i++) {
    double begin = treadle_clock_seconds();
    treadle_status status =
        i % 4 == 3 ? treadle_group_open(ranks_name(), i % 8 == 3, 2, LIMIT, &group) : barrier();
    double taken = treadle_clock_seconds() - begin;
    seconds[number * WAITS + i] = status == TREADLE_TIMEOUT ? taken : -1;
  }
}

static void sleep_often(int core, int number, double *seconds) {
  (void)core;
  for (int i = 0; i < WAITS; i++) {
    double begin = treadle_clock_seconds();
    nanosleep(&(struct timespec){.tv_nsec = (long)(LIMIT * 1e9)}, NULL);
    seconds[number * WAITS + i] = treadle_clock_seconds() - begin;
  }
}

static bool is_late(double seconds) { return seconds > LIMIT + MORE || seconds < LIMIT * 0.9; }

/* How many of the waits came back too late; -1: the sleeper did, too. */
static int play(int core, double *seconds) {
  pid_t spinners[SPINNERS], waiters[WAITERS + 1];
  int late = 0, slept_long = 0, how;
  double longest = 0;
  for (int i = 0; i < (WAITERS + 1) * WAITS; i++) seconds[i] = -2;
  for (int i = 0; i < SPINNERS; i++) spinners[i] = start(spin, core, i, seconds);
  for (int i = 0; i < WAITERS; i++) waiters[i] = start(wait_often, core, i, seconds);
  waiters[SLEEPER] = start(sleep_often, core, SLEEPER, seconds);
  for (int i = 0; i <= WAITERS; i++) assert_int_equal(waitpid(waiters[i], &how, 0), waiters[i]);
  for (int i = 0; i < SPINNERS; i++) {
    assert_int_equal(waitpid(spinners[i], &how, WNOHANG), 0); /* it was there all the time */
    kill(spinners[i], SIGKILL);
    waitpid(spinners[i], &how, 0);
  }
  for (int i = 0; i < WAITERS * WAITS; i++) {
    assert_true(seconds[i] >= 0);
    late += is_late(seconds[i]);
    if (seconds[i] > longest) longest = seconds[i];
  }
  for (int i = SLEEPER * WAITS; i < (SLEEPER + 1) * WAITS; i++) slept_long += is_late(seconds[i]);
  print_message(
      "core %d: %d of %d waits of %.1f s in time, the longest %.3f s; %d of %d sleeps were long\n", core,
      WAITERS * WAITS - late, WAITERS * WAITS, LIMIT, longest, slept_long, WAITS);
  return late > 0 && slept_long > 0 ? -1 : late;
}

static void test_loaded_core(void **state) {
  (void)state;
  int core = find_core(), late = 1, said = 0;
  double *seconds = mmap(NULL, (WAITERS + 1) * WAITS * sizeof *seconds, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(seconds != MAP_FAILED);
  for (int turn = 0; turn < TURNS && late != 0; turn++) {
    late = play(core, seconds);
    said += late >= 0;
  }
  munmap(seconds, (WAITERS + 1) * WAITS * sizeof *seconds);
  if (said == 0) {
    print_message("this machine wakes nobody up in time: skipped\n");
    skip();
  }
  assert_true(late <= 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_loaded_core)};
  cpu_set_t before;
  if (sched_getaffinity(0, sizeof before, &before) != 0 || !pin(find_core()) ||
      sched_setaffinity(0, sizeof before, &before) != 0) {
    printf("processes cannot be put on one core here: skipped\n");
    return 77;
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
