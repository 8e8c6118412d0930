/* The switch between processes: the real transport and the fast mover, and a rank that is killed at each of
 * its waits in turn. Whoever lives returns, says the same of the weights as the others, and says the truth.
 * ctest: stage=gcc timeout=600 */
#include "switch/own_memory.h"
#include "switch/scene.h"
#include "test.h"
#include "group/ranks.h"

#include "base/clock.h"

#include <signal.h>
#include <sys/mman.h>

enum { STEPS = 5, NOT_REACHED = 99 };

typedef struct seen { /* by rank, in memory that all processes share */
  int statuses[SCENE_RANKS][STEPS];
  int modes[SCENE_RANKS];
  int intact[SCENE_RANKS];
  double seconds[SCENE_RANKS];
} seen;

typedef struct act {
  scene s;
  seen *seen;
  treadle_switch_options options;
  bool own; /* all tensors are own ones */
  int victim;
  long dies_at; /* which of its waits; 0: never */
} act;

typedef struct countdown {
  long left;
} countdown;

static void die_in_time(void *context, const char *where) {
  countdown *c = context;
  (void)where;
  if (--c->left == 0) raise(SIGKILL);
}

static int check_window(const act *a, const treadle_switch *sw, int rank) {
  bool infer = treadle_switch_mode(sw) == TREADLE_INFER;
  if (a->own) {
    const treadle_layout *layout = infer ? a->s.infer : a->s.train;
    char *wanted = calloc(treadle_layout_window_bytes(layout, rank) + 1, 1);
    bool holds = wanted && treadle_layout_load(layout, rank, wanted) == TREADLE_OK &&
                 own_holds(sw, infer ? TREADLE_INFER_PARAMS : TREADLE_PARAMS, wanted);
    free(wanted);
    return holds;
  }
  return scene_holds(infer ? a->s.infer : a->s.train, rank,
                     infer ? treadle_switch_infer_window(sw) : treadle_switch_train_window(sw));
}

static treadle_status load(const act *a, treadle_switch *sw, int rank) {
  size_t bytes = treadle_layout_window_bytes(a->s.train, rank);
  if (!a->own) return treadle_layout_load(a->s.train, rank, treadle_switch_train_window(sw));
  char *window = calloc(bytes + 1, 1);
  treadle_status status = treadle_layout_load(a->s.train, rank, window);
  if (!status) status = treadle_switch_write(sw, TREADLE_PARAMS, 0, bytes, window);
  free(window);
  return status;
}

/* Create, load, to infer, to train, barrier: as far as it goes. */
static int live(const char *name, int rank, int size, void *context) {
  act *a = context;
  treadle_group *group;
  treadle_switch *sw = NULL;
  countdown c = {a->dies_at};
  int *statuses = a->seen->statuses[rank];
  own_memory own[2];
  treadle_switch_options options = a->options;
  own_make(&own[0], a->s.train, a->s.infer, a->s.train, rank, a->own ? OWN_ALL : OWN_NO, 1);
  own_make(&own[1], a->s.train, a->s.infer, a->s.infer, rank, a->own ? OWN_ALL : OWN_NO, 2);
  options.own_train = own[0].tensors;
  options.own_train_count = own[0].count;
  options.own_infer = own[1].tensors;
  options.own_infer_count = own[1].count;
  RANK_OK(treadle_group_open(name, rank, size, 20, &group));
  if (rank == a->victim && a->dies_at) {
    group->delay = die_in_time;
    group->delay_context = &c;
  }
  double begin = treadle_clock_seconds();
  statuses[0] = treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw);
  if (statuses[0] != TREADLE_OK) goto out;
  RANK_OK(load(a, sw, rank));
  statuses[1] = treadle_switch_to_infer(sw);
  if (statuses[1] == TREADLE_OK) statuses[2] = treadle_switch_to_train(sw);
  if (statuses[2] == TREADLE_OK) statuses[3] = treadle_group_barrier(group);
  a->seen->modes[rank] = treadle_switch_mode(sw);
  if (treadle_switch_mode(sw) != TREADLE_LOST) a->seen->intact[rank] = check_window(a, sw, rank);
out:
  a->seen->seconds[rank] = treadle_clock_seconds() - begin;
  treadle_switch_destroy(sw);
  treadle_group_close(group);
  RANK_TRUE(own_surrounds(&own[0]) && own_surrounds(&own[1]));
  own_release(&own[0]);
  own_release(&own[1]);
  return 0;
}

static void act_init(act *a) {
  memset(a, 0, sizeof *a);
  scene_init(&a->s);
  a->options = (treadle_switch_options){.struct_size = sizeof(treadle_switch_options),
                                        .page_bytes = SCENE_PAGE,
                                        .cap_bytes = (size_t)a->s.cap_min,
                                        .timeout_seconds = 60};
  a->seen = mmap(NULL, sizeof *a->seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(a->seen != MAP_FAILED);
}

static void act_release(act *a) {
  munmap(a->seen, sizeof *a->seen);
  scene_release(&a->s);
}

static void play(act *a, int *results) {
  memset(a->seen, 0, sizeof *a->seen);
  for (int rank = 0; rank < SCENE_RANKS; rank++)
    for (int step = 0; step < STEPS; step++) a->seen->statuses[rank][step] = NOT_REACHED;
  ranks_as_processes(SCENE_RANKS, 100, live, a, results);
}

static void test_well(void **state) {
  act a;
  int results[SCENE_RANKS];
  (void)state;
  act_init(&a);
  for (int i = 0; i < 5; i++) {
    a.own = i > 2;
    a.options.cap_bytes = i == 1 ? 0 : i == 3 ? 16 * SCENE_PAGE : (size_t)a.s.cap_min;
    play(&a, results);
    for (int rank = 0; rank < SCENE_RANKS; rank++) {
      assert_int_equal(results[rank], 0);
      for (int step = 0; step < 4; step++) assert_int_equal(a.seen->statuses[rank][step], TREADLE_OK);
      assert_int_equal(a.seen->modes[rank], TREADLE_TRAIN);
      assert_true(a.seen->intact[rank]);
    }
  }
  act_release(&a);
}

/* One life with a death in it; false when the victim outlived its countdown. */
static bool check_death(act *a, int counts[3]) {
  int results[SCENE_RANKS], first = a->victim == 0;
  play(a, results);
  if (results[a->victim] == 0) return false;
  assert_int_equal(results[a->victim], 128 + SIGKILL);
  const int *wanted = a->seen->statuses[first];
  for (int rank = 0; rank < SCENE_RANKS; rank++) {
    if (rank == a->victim) continue;
    assert_int_equal(results[rank], 0);
    const int *got = a->seen->statuses[rank];
    bool good = a->seen->seconds[rank] < 30; /* by liveness, not by the time limit */
    for (int step = 0; step < STEPS; step++)
      good = good && (got[step] == TREADLE_OK) == (wanted[step] == TREADLE_OK);
    good = good && a->seen->modes[rank] == a->seen->modes[first];
    if (got[0] == TREADLE_OK && a->seen->modes[rank] != TREADLE_LOST) good = good && a->seen->intact[rank];
    if (!good)
      fail_msg("rank %d died at wait %ld: rank %d: %.1f s, mode %d, statuses %d %d %d %d", a->victim,
               a->dies_at, rank, a->seen->seconds[rank], a->seen->modes[rank], got[0], got[1], got[2],
               got[3]);
  }
  if (wanted[0] == TREADLE_OK) counts[a->seen->modes[first]]++;
  return true;
}

static void test_death_at_each_wait(void **state) {
  act a;
  int counts[3] = {0};
  (void)state;
  act_init(&a);
  for (a.victim = 0; a.victim < SCENE_RANKS; a.victim += 3)
    for (a.dies_at = 1;; a.dies_at += 1 + a.dies_at / 30)
      if (!check_death(&a, counts)) break;
  print_message("deaths that left: train %d, infer %d, nothing %d\n", counts[0], counts[1], counts[2]);
  assert_true(counts[0] > 0 && counts[2] > 0);
  act_release(&a);
}

/* Own train tensors are as they were whoever died when. */
static void test_death_with_own_tensors(void **state) {
  act a;
  int counts[3] = {0};
  (void)state;
  act_init(&a);
  a.own = true;
  a.options.cap_bytes = 16 * SCENE_PAGE;
  for (a.victim = 1; a.victim < SCENE_RANKS; a.victim += 2)
    for (a.dies_at = 1;; a.dies_at += 1 + a.dies_at / 30)
      if (!check_death(&a, counts)) break;
  print_message("deaths that left: train %d, infer %d, nothing %d\n", counts[0], counts[1], counts[2]);
  assert_true(counts[0] > 0 && counts[2] == 0);
  act_release(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_well), cmocka_unit_test(test_death_at_each_wait),
                                     cmocka_unit_test(test_death_with_own_tensors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
