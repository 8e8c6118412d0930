/* An update between processes, in which a rank is killed at each of its waits in turn: whoever lives returns, has all of its params, and
 * says the same of the infer window as the others. ctest: timeout=600 */
#include "switch/scene.h"
#include "test.h"
#include "group/ranks.h"

#include <signal.h>
#include <sys/mman.h>

typedef struct sight { /* of a rank, in memory that all processes share */
  int reached, status, valid;
  uint64_t version;
} sight;

typedef struct act {
  scene s;
  treadle_layout *train, *infer;
  sight *sights;
  int victim;
  long dies_at; /* which of its waits in the update; 0: before it enters */
} act;

static void die_in_time(void *context, const char *where) {
  long *left = context;
  (void)where;
  if (--*left == 0) raise(SIGKILL);
}

static int live(const char *name, int rank, int size, void *context) {
  act *a = context;
  treadle_group *group;
  treadle_switch *sw;
  long left = a->dies_at;
  const treadle_switch_options options = {.struct_size = sizeof options,
                                          .page_bytes = SCENE_PAGE,
                                          .cap_bytes = 32 << 10,
                                          .timeout_seconds = 60,
                                          .offload_train_param = TREADLE_OFF};
  RANK_OK(treadle_group_open(name, rank, size, 20, &group));
  RANK_OK(treadle_switch_create(group, a->train, a->infer, &options, &sw));
  uint8_t *params = treadle_switch_train_window(sw);
  if (params) RANK_OK(treadle_layout_load(a->train, rank, params));
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_OK(treadle_group_barrier(group));
  RANK_OK(scene_turn(a->train, rank, params, 1));
  if (rank == a->victim) {
    if (left == 0) raise(SIGKILL);
    group->delay = die_in_time;
    group->delay_context = &left;
  }
  sight *own = &a->sights[rank];
  own->status = treadle_switch_update(sw);
  own->valid = treadle_switch_is_valid(sw);
  own->version = treadle_switch_version(sw);
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_INFER && scene_holds_version(a->train, rank, params, 1));
  RANK_TRUE(own->status != TREADLE_OK || own->valid);
  if (own->valid)
    RANK_TRUE(scene_holds_version(a->infer, rank, treadle_switch_infer_window(sw), own->version == 2));
  RANK_OK(treadle_switch_return(sw));
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_TRAIN && treadle_switch_is_valid(sw) &&
            scene_holds_version(a->train, rank, params, 1));
  own->reached = 1;
  treadle_switch_destroy(sw);
  treadle_group_close(group);
  return 0;
}

/* False when the victim outlived its countdown. */
static bool play(act *a, int counts[2]) {
  int results[SCENE_RANKS], first = a->victim == 0;
  memset(a->sights, 0, SCENE_RANKS * sizeof *a->sights);
  ranks_as_processes(SCENE_RANKS, 100, live, a, results);
  if (results[a->victim] == 0) return false;
  assert_int_equal(results[a->victim], 128 + SIGKILL);
  for (int rank = 0; rank < SCENE_RANKS; rank++) {
    const sight *own = &a->sights[rank], *other = &a->sights[first];
    if (rank == a->victim) continue;
    assert_int_equal(results[rank], 0);
    assert_true(own->reached);
    assert_int_equal(own->status == TREADLE_OK, other->status == TREADLE_OK);
    assert_int_equal(own->valid, other->valid);
    assert_int_equal(own->version, other->version);
  }
  counts[0] += a->sights[first].valid && a->sights[first].status != TREADLE_OK;
  counts[1] += !a->sights[first].valid;
  return true;
}

static void test_deaths(void **state) {
  (void)state;
  static const char *const pairs[][2] = {{"megatron:tp=2,on=0-1", "vllm:tp=2,on=2-3"},
                                         {"megatron:tp=2,pp=2", "vllm:tp=4"}};
  for (size_t pair = 0; pair < TEST_COUNT(pairs); pair++) {
    act a = {0};
    int counts[2] = {0};
    scene_init(&a.s);
    assert_ok(treadle_layout_create(a.s.model, pairs[pair][0], SCENE_RANKS, NULL, &a.train));
    assert_ok(treadle_layout_create(a.s.model, pairs[pair][1], SCENE_RANKS, NULL, &a.infer));
    a.sights = mmap(NULL, SCENE_RANKS * sizeof *a.sights, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(a.sights != MAP_FAILED);
    for (a.victim = 1; a.victim < SCENE_RANKS; a.victim += 2) {
      a.dies_at = 0;
      while (play(&a, counts)) a.dies_at++;
      assert_true(a.dies_at > 2);
    }
    printf("  %s: the old version stood %d times, and none %d times\n", pairs[pair][0], counts[0],
           counts[1]);
    assert_true(counts[0] > 0 && counts[1] > 0);
    munmap(a.sights, SCENE_RANKS * sizeof *a.sights);
    treadle_layout_destroy(a.train);
    treadle_layout_destroy(a.infer);
    scene_release(&a.s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_deaths)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
