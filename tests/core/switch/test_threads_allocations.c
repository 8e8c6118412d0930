/* Memory that is out while a switch with all that it can have is made or taken to another group: every allocation fails in
 * turn, and then all ranks fail. Arrows allocate nothing, whether they succeed or fail.
 * ctest: label=threads timeout=900 */
#include "group/ranks.h"
#include "switch/scene.h"
#include "test.h"

#include <string.h>

enum { GRADS = 40000, OPTIMIZER = 30000, KV_BLOCK = 3000, HOWS = 4 };

typedef struct act {
  scene s;
  treadle_layout *infer;
  treadle_switch_options options;
  treadle_engine_hooks hooks;
  treadle_status statuses[SCENE_RANKS];
  treadle_group *others[SCENE_RANKS]; /* the group that they go to */
} act;

static treadle_status bind(void *context, void *window, size_t bytes) {
  (void)context;
  return window && bytes ? TREADLE_OK : TREADLE_REFUSED;
}

static treadle_status unbind(void *context) {
  (void)context;
  return TREADLE_OK;
}

static void watch(void *context, const size_t *bytes, int classes) {
  assert_int_equal(classes, TREADLE_CLASSES);
  (void)context;
  (void)bytes;
}

/* All of it with alias and without; params that stay; what is the default. */
static void act_init(act *a, int how) {
  memset(a, 0, sizeof *a);
  scene_init(&a->s);
  bool alias = how != 1, all = how < 2;
  a->infer = alias ? a->s.alike : a->s.infer;
  a->hooks =
      (treadle_engine_hooks){.struct_size = sizeof(treadle_engine_hooks), .bind = bind, .unbind = unbind};
  a->options = (treadle_switch_options){.struct_size = sizeof(treadle_switch_options),
                                        .page_bytes = SCENE_PAGE,
                                        .timeout_seconds = 60,
                                        .alias = alias};
  if (how == 3) return;
  a->options.grads_bytes = GRADS;
  a->options.optimizer_bytes = OPTIMIZER;
  a->options.kv_block_bytes = KV_BLOCK;
  a->options.host = true;
  a->options.offload_train_param = all ? TREADLE_ON : TREADLE_OFF;
  a->options.keep = all ? TREADLE_KEEP_HOST : TREADLE_KEEP_INFER;
  a->options.offload_train_grad = all ? TREADLE_ON : TREADLE_OFF;
  a->options.keep_grads = all;
  a->options.offload_train_optimizer = TREADLE_ON;
  a->options.guard_pages = true;
  a->options.engine = &a->hooks;
  a->options.watch = watch;
}

static bool lives(treadle_switch *sw, const act *a) {
  return treadle_switch_to_infer(sw) == TREADLE_OK && scene_infers(sw) &&
         treadle_switch_to_train(sw) == TREADLE_OK &&
         scene_holds(a->s.train, sw->group->rank, treadle_switch_train_window(sw));
}

/* ---- The n-th allocation of all threads fails ---- */

/* Says n to all, and whether it was reached; the call between is what may fail. */
static int begin_attempt(treadle_group *group, long n, long *before_p) {
  RANK_OK(treadle_group_barrier(group));
  *before_p = treadle_alloc_count();
  RANK_OK(treadle_group_barrier(group));
  if (group->rank == 0) treadle_alloc_fail_at(n);
  RANK_OK(treadle_group_barrier(group));
  return 0;
}

static int end_attempt(treadle_group *group, act *a, long n, long before, bool *last_p) {
  RANK_OK(treadle_group_barrier(group));
  RANK_TRUE(a->statuses[group->rank] == a->statuses[0]);
  long used = treadle_alloc_count() - before;
  RANK_OK(treadle_group_barrier(group));
  if (group->rank == 0) treadle_alloc_fail_at(0);
  RANK_OK(treadle_group_barrier(group));
  RANK_TRUE(a->statuses[0] == TREADLE_NO_MEMORY || used < n);
  *last_p = a->statuses[0] == TREADLE_OK && used < n;
  return 0;
}

/* Each of the first ones, the rest by leaps. */
static long next_of(long n) { return n < 60 ? n + 1 : n + n / 12; }

static int starve_create(treadle_group *group, void *context) {
  act *a = context;
  bool last = false;
  for (long n = 1, before; !last; n = next_of(n)) {
    treadle_switch *sw = NULL;
    if (begin_attempt(group, n, &before)) return 1;
    a->statuses[group->rank] = treadle_switch_create(group, a->s.train, a->infer, &a->options, &sw);
    RANK_TRUE((sw != NULL) == (a->statuses[group->rank] == TREADLE_OK));
    if (end_attempt(group, a, n, before, &last)) return 1;
    if (last) RANK_OK(treadle_layout_load(a->s.train, group->rank, treadle_switch_train_window(sw)));
    if (last) RANK_TRUE(lives(sw, a));
    RANK_OK(treadle_group_barrier(group));
    treadle_switch_destroy(sw);
  }
  return 0;
}

static void test_create(void **state) {
  (void)state;
  for (int how = 0; how < HOWS; how++) {
    act a;
    act_init(&a, how);
    ranks_as_threads(SCENE_RANKS, 60, 0, starve_create, &a);
    scene_release(&a.s);
  }
}

static int starve_rejoin(treadle_group *group, void *context) {
  act *a = context;
  bool last = false;
  treadle_switch *sw;
  RANK_OK(treadle_switch_create(group, a->s.train, a->infer, &a->options, &sw));
  RANK_OK(treadle_layout_load(a->s.train, group->rank, treadle_switch_train_window(sw)));
  RANK_TRUE(lives(sw, a));
  for (long n = 1, before; !last; n = next_of(n)) {
    if (begin_attempt(group, n, &before)) return 1;
    a->statuses[group->rank] = treadle_switch_rejoin(sw, a->others[group->rank]);
    if (end_attempt(group, a, n, before, &last)) return 1;
    if (a->statuses[group->rank] != TREADLE_OK)
      RANK_FAILS(TREADLE_STATE, "rejoin one", treadle_switch_to_infer(sw));
    RANK_TRUE(treadle_switch_mode(sw) == TREADLE_TRAIN && treadle_switch_version(sw) == 1 &&
              sw->carry.plan);
    RANK_TRUE(scene_holds(a->s.train, group->rank, treadle_switch_train_window(sw)));
  }
  RANK_TRUE(lives(sw, a) && treadle_switch_version(sw) == 2);
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_rejoin(void **state) {
  (void)state;
  for (int how = 0; how < HOWS; how++) {
    act a;
    act_init(&a, how);
    assert_ok(treadle_group_threads(SCENE_RANKS, 60, a.others));
    ranks_as_threads(SCENE_RANKS, 60, 0, starve_rejoin, &a);
    for (int rank = 0; rank < SCENE_RANKS; rank++) treadle_group_close(a.others[rank]);
    scene_release(&a.s);
  }
}

/* ---- Arrows ---- */

/* All arrows there are, and one that fails at its first wave. */
static int take_arrows(treadle_switch *sw, const act *a) {
  bool host = a->options.host;
  if (host) RANK_OK(treadle_switch_to_host(sw));
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_OK(treadle_switch_to_forward(sw));
  if (host) RANK_OK(treadle_switch_to_host(sw));
  if (host) RANK_OK(treadle_switch_to_forward(sw));
  RANK_OK(treadle_switch_to_train(sw));
  treadle_switch_accumulate(sw, true);
  RANK_FAILS(TREADLE_STATE, "accumulated", treadle_switch_to_infer(sw));
  treadle_switch_accumulate(sw, false);
  if (sw->group->rank == 1)
    treadle_switch_inject(sw, (treadle_injection){TREADLE_INJECT_ENOMEM, TREADLE_AT_WAVE, 0});
  RANK_TRUE(treadle_switch_to_infer(sw) != TREADLE_OK);
  RANK_TRUE(treadle_switch_mode(sw) == TREADLE_TRAIN);
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_OK(treadle_switch_trim(sw));
  RANK_OK(treadle_switch_to_train(sw));
  return 0;
}

static int be_frugal(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  static _Alignas(64) char own[SCENE_RANKS][8192];
  RANK_OK(treadle_switch_create(group, a->s.train, a->infer, &a->options, &sw));
  sw->device = *treadle_device_plain();
  RANK_OK(treadle_layout_load(a->s.train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_switch_register(sw, TREADLE_OPTIMIZER, 0, own[group->rank], sizeof own[0]));
  RANK_OK(treadle_group_barrier(group));
  long before = treadle_alloc_count();
  RANK_OK(treadle_group_barrier(group));
  for (int cycle = 0; cycle < 2; cycle++)
    if (take_arrows(sw, a)) return 1;
  RANK_OK(treadle_group_barrier(group));
  RANK_TRUE(treadle_alloc_count() == before);
  RANK_OK(treadle_group_barrier(group));
  RANK_TRUE(scene_holds(a->s.train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_arrows(void **state) {
  (void)state;
  for (int how = 0; how < HOWS; how++) {
    act a;
    act_init(&a, how);
    ranks_as_threads(SCENE_RANKS, 60, 0, be_frugal, &a);
    scene_release(&a.s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_create), cmocka_unit_test(test_rejoin),
                                     cmocka_unit_test(test_arrows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
