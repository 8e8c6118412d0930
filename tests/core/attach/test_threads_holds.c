/* The protocol of versions and holds alone: an owner and readers as threads, with plain memory as the window. The owner writes it only when
 * no hold is left, and readers read it only while they hold; so whoever breaks the protocol races for it, which TSan sees, and finds other
 * bytes than the version's. ctest: label=threads timeout=600 */
#include "attach/handle.h"
#include "test.h"

#include "base/clock.h"
#include "base/random.h"
#include "group/shm.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

enum { READERS = 4, WORDS = 64 };

typedef struct play {
  treadle_sheet *sheet;
  uint64_t window[WORDS]; /* all of them the version that is in it */
  uint64_t process;
  _Atomic bool over;
  _Atomic long held, missed, wrong;
  uint64_t seed;
} play;

typedef struct player {
  play *p;
  pthread_t id;
  treadle_random random;
} player;

static void pause_sometimes(treadle_random *random) {
  uint64_t draw = treadle_random_next(random);
  if (draw % 4 == 0) sched_yield();
  if (draw % 16 == 1) nanosleep(&(struct timespec){.tv_nsec = (long)(draw >> 40) % 50000}, NULL);
}

static void *read_versions(void *of) {
  player *me = of;
  play *p = me->p;
  while (!atomic_load(&p->over)) {
    int place = -1;
    uint32_t told = atomic_load(&p->sheet->told);
    uint64_t version = atomic_load(&p->sheet->valid);
    pause_sometimes(&me->random); /* the version may go before the hold is there */
    if (version == 0 || treadle_hold_try(p->sheet, p->process, version, &place) != TREADLE_OK ||
        place < 0) {
      atomic_fetch_add(&p->missed, 1);
      treadle_sheet_listen(p->sheet, told, 1e-3);
      continue;
    }
    for (int i = 0; i < WORDS; i++) {
      if (p->window[i] != version) atomic_fetch_add(&p->wrong, 1);
      if (i % 16 == 0) pause_sometimes(&me->random);
    }
    treadle_hold_release(p->sheet, place);
    atomic_fetch_add(&p->held, 1);
    pause_sometimes(&me->random);
  }
  return NULL;
}

/* Takes the window away; gives up now and then, and says the old version again. */
static bool take_away(play *p, treadle_random *random, uint64_t version) {
  uint64_t patience = treadle_random_next(random) % 8;
  treadle_sheet_tell(p->sheet, 0, version);
  pause_sometimes(random);
  for (int place; (place = treadle_sheet_find_hold(p->sheet)) >= 0;) {
    if (patience-- == 0) {
      treadle_sheet_tell(p->sheet, version, version);
      return false;
    }
    treadle_sheet_wait_free(p->sheet, place, 1e-3);
  }
  return true;
}

static void test_protocol(void **state) {
  play p = {.process = treadle_hold_process(getpid(), treadle_shm_start_time(getpid())), .seed = 20261};
  player readers[READERS];
  treadle_random random = {.state = p.seed};
  int taken = 0, given_up = 0, rounds = TEST_SANITIZED ? 2000 : 10000;
  (void)state;
  p.sheet = aligned_alloc(64, (sizeof *p.sheet + 63) / 64 * 64);
  assert_non_null(p.sheet);
  memset(p.sheet, 0, sizeof *p.sheet);
  for (int i = 0; i < READERS; i++) {
    readers[i] = (player){.p = &p, .random = {.state = p.seed + 1 + (uint64_t)i}};
    assert_int_equal(pthread_create(&readers[i].id, NULL, read_versions, &readers[i]), 0);
  }
  double end = treadle_clock_seconds() + 60;
  uint64_t version = 0;
  for (int round = 0; round < rounds && treadle_clock_seconds() < end; round++) {
    bool free = version == 0 || take_away(&p, &random, version);
    taken += free;
    given_up += !free;
    if (free) {
      version++;
      for (int i = 0; i < WORDS; i++) p.window[i] = version;
      treadle_sheet_tell(p.sheet, version, version);
    }
    pause_sometimes(&random);
  }
  atomic_store(&p.over, true);
  treadle_sheet_tell(p.sheet, 0, version);
  for (int i = 0; i < READERS; i++) pthread_join(readers[i].id, NULL);
  print_message("%d versions, %d refused arrows, %ld holds, %ld came at a bad time\n", taken, given_up,
                p.held, p.missed);
  assert_int_equal(p.wrong, 0);
  assert_true(taken > 50 && given_up > 0 && p.held > 50 && p.missed > 0);
  assert_int_equal(treadle_sheet_find_hold(p.sheet), -1);
  free(p.sheet);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_protocol)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
