/* Updates with changes alone between processes on two nodes. In one of them a rank is killed. Who lives goes to a new group with a
 * new process in that place, where nothing is known of a base: all travels, then changes again, and every bit is right: what the layout
 * says, or, of fp8 blocks, what comes when all of it travels. ctest: timeout=300 */
#include "seeds.h"
#include "switch/block_models.h"
#include "switch/changes.h"
#include "switch/scene.h"
#include "test.h"
#include "group/ranks.h"
#include "meet/store_place.h"

#include "treadle_tools.h"

#include <signal.h>
#include <sys/prctl.h>

enum { CHANGED = CHANGES_MANY / 100, PATIENCE = 20, LIMIT = 2, NEWCOMER = SCENE_RANKS };

typedef struct act {
  treadle_layout *train, *infer;
  bool makes; /* fp8 blocks */
  const char *places[2];
  int victim;
  treadle_injection injection;
} act;

typedef struct life {
  act *a;
  int rank;
  treadle_group *group;
  treadle_switch *sw;
  uint8_t *wanted; /* the infer window */
} life;

static int open_group(life *l, const char *place) {
  treadle_store store = TREADLE_INIT(treadle_store);
  treadle_store_options options = store_options(place, l->rank, SCENE_RANKS, PATIENCE);
  RANK_OK(treadle_store_open(&options, &store));
  treadle_status status = treadle_group_nodes(&store, l->rank, SCENE_RANKS, 2, PATIENCE, &l->group);
  RANK_OK(status);
  treadle_store_close(&store);
  return 0;
}

static int make(life *l) {
  const treadle_switch_options options = {.struct_size = sizeof options,
                                          .page_bytes = SCENE_PAGE,
                                          .cap_bytes = l->a->makes ? 0 : 192 << 10,
                                          .one_way = l->a->makes,
                                          .timeout_seconds = PATIENCE,
                                          .delta = true,
                                          .offload_train_param = TREADLE_OFF};
  RANK_OK(treadle_switch_create(l->group, l->a->train, l->a->infer, &options, &l->sw));
  RANK_OK(treadle_layout_load(l->a->train, l->rank, treadle_switch_train_window(l->sw)));
  l->wanted = calloc(treadle_layout_window_bytes(l->a->infer, l->rank) + 1, 1);
  RANK_TRUE(l->wanted);
  RANK_OK(treadle_layout_load(l->a->infer, l->rank, l->wanted));
  return 0;
}

/* Where one element of a block changes, its scale does, and all of its codes. */
static int train(life *l, int step) {
  uint32_t changed = l->a->makes ? CHANGED / 100 : CHANGED;
  RANK_OK(changes_make(l->a->train, l->rank, treadle_switch_train_window(l->sw), step, changed));
  RANK_OK(changes_make(l->a->infer, l->rank, l->wanted, step, changed));
  return 0;
}

/* What is there is right, and what travelled was all of it, or changes. */
static int look(const life *l, bool all) {
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  RANK_TRUE(treadle_switch_is_valid(l->sw) && (l->a->makes || changes_are_there(l->sw, l->wanted)));
  treadle_switch_get_stats(l->sw, &stats);
  RANK_TRUE(stats.dense_bytes > 0);
  RANK_TRUE(all ? stats.delta_bytes == stats.dense_bytes : 2 * stats.delta_bytes < stats.dense_bytes);
  return 0;
}

static int goes_on(life *l, int step) {
  RANK_OK(treadle_group_barrier(l->group));
  if (train(l, step)) return 1;
  RANK_OK(treadle_switch_update(l->sw));
  return look(l, false);
}

/* Of fp8 blocks: what changes have made is what is made when all of it travels. */
static int is_as_dense(life *l) {
  size_t bytes = treadle_layout_window_bytes(l->a->infer, l->rank);
  memcpy(l->wanted, treadle_switch_infer_window(l->sw), bytes);
  RANK_OK(treadle_switch_to_train(l->sw));
  RANK_OK(treadle_switch_to_infer(l->sw));
  RANK_TRUE(changes_are_there(l->sw, l->wanted));
  return look(l, true);
}

static void limit(life *l, double seconds) {
  l->sw->terms.timeout_seconds = seconds;
  treadle_group_limit(l->group, seconds);
}

/* Until the rank is killed. */
static int before(life *l) {
  if (open_group(l, l->a->places[0]) || make(l)) return 1;
  RANK_OK(treadle_switch_to_infer(l->sw));
  if (look(l, true) || goes_on(l, 1) || goes_on(l, 2) || train(l, 3)) return 1;
  if (l->rank == l->a->victim) RANK_OK(treadle_switch_inject(l->sw, l->a->injection));
  RANK_OK(treadle_group_barrier(l->group));
  limit(l, LIMIT);
  RANK_TRUE(treadle_switch_update(l->sw) != TREADLE_OK);
  limit(l, PATIENCE);
  treadle_group *old = l->group;
  l->group = NULL;
  if (open_group(l, l->a->places[1])) return 1;
  RANK_OK(treadle_switch_rejoin(l->sw, l->group));
  treadle_group_close(old);
  return 0;
}

/* In the place of who was killed. */
static int come_new(life *l) {
  if (open_group(l, l->a->places[1]) || make(l)) return 1;
  return train(l, 1) || train(l, 2) || train(l, 3);
}

static int live(const char *name, int number, int size, void *context) {
  act *a = context;
  (void)name, (void)size;
  life l = {.a = a, .rank = number == NEWCOMER ? a->victim : number};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (number == NEWCOMER ? come_new(&l) : before(&l)) return 1;
  RANK_TRUE(treadle_switch_mode(l.sw) == TREADLE_TRAIN);
  RANK_OK(treadle_group_barrier(l.group));
  RANK_OK(treadle_switch_to_infer(l.sw));
  if (look(&l, true) || goes_on(&l, 4) || goes_on(&l, 5)) return 1;
  if (a->makes && (is_as_dense(&l) || goes_on(&l, 6))) return 1;
  RANK_OK(treadle_group_barrier(l.group));
  treadle_switch_destroy(l.sw);
  treadle_group_close(l.group);
  free(l.wanted);
  return 0;
}

static void play(act *a, treadle_model *model, const char *train, const char *infer) {
  int results[SCENE_RANKS + 1];
  char places[2][64];
  for (int k = 0; k < 2; k++) {
    snprintf(places[k], sizeof places[k], "%s", store_place());
    a->places[k] = places[k];
  }
  assert_ok(treadle_layout_create(model, train, SCENE_RANKS, NULL, &a->train));
  assert_ok(treadle_layout_create(model, infer, SCENE_RANKS, NULL, &a->infer));
  ranks_as_processes(SCENE_RANKS + 1, 100, live, a, results);
  for (int n = 0; n <= SCENE_RANKS; n++) assert_int_equal(results[n], n == a->victim ? 128 + SIGKILL : 0);
  treadle_layout_destroy(a->train);
  treadle_layout_destroy(a->infer);
}

static const treadle_injection injections[] = {{TREADLE_INJECT_KILL, TREADLE_AT_WAVE, 2000},
                                               {TREADLE_INJECT_KILL, TREADLE_AT_ENTRY, 0},
                                               {TREADLE_INJECT_KILL, TREADLE_AT_COMMIT, 0}};

static void test_deaths(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(injections); i += (size_t)test_step(3)) {
    act a = {.victim = i % 2 ? 0 : 3, .injection = injections[i]};
    scene s;
    scene_init(&s);
    play(&a, s.model, "megatron:tp=2,pp=2", "vllm:tp=4");
    scene_release(&s);
  }
}

static void test_blocks(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(injections); i += (size_t)test_step(3)) {
    act a = {.victim = i % 2 ? 2 : 1, .injection = injections[i], .makes = true};
    treadle_model *model = block_model_make(BLOCK_MODEL_LATENT);
    play(&a, model, "megatron:tp=2,pp=2,ep=2,etp=1", "vllm:tp=2,dp=2,ep=on");
    treadle_model_close(model);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_deaths), cmocka_unit_test(test_blocks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
