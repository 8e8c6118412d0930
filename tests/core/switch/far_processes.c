#include "switch/far_processes.h"

#include "group/ranks.h"
#include "switch/scene.h"
#include "test.h"

enum { VICTIM = 1 };

static const far_processes_device *the;

typedef struct act {
  scene s;
  bool alias, doubled;
  int64_t fails_export, fails_import; /* of rank VICTIM */
} act;

static treadle_switch_options options_of(const act *a, int rank) {
  return (treadle_switch_options){.struct_size = sizeof(treadle_switch_options),
                                  .memory = {.kind = TREADLE_MEMORY_CUDA, .device = the->is_one ? 0 : rank},
                                  .page_bytes = SCENE_PAGE,
                                  .cap_bytes = a->doubled ? 0 : (size_t)a->s.cap_min,
                                  .timeout_seconds = 60,
                                  .alias = a->alias,
                                  .offload_train_param = a->doubled ? TREADLE_OFF : TREADLE_ON,
                                  .double_infer = a->doubled};
}

static int live(const char *name, int rank, int size, void *context) {
  const act *a = context;
  treadle_group *group;
  treadle_switch *sw;
  uint64_t digest, now;
  const treadle_switch_options options = options_of(a, rank);
  const treadle_layout *to = a->alias ? a->s.alike : a->s.infer;
  char *train = scene_expected(a->s.train, NULL, rank), *infer = scene_expected(to, a->s.train, rank);
  RANK_OK(treadle_group_open(name, rank, size, 60, &group));
  if (the->start) the->start();
  const int files = test_open_files();
  RANK_OK(treadle_switch_create(group, a->s.train, to, &options, &sw));
  RANK_OK(treadle_layout_load(a->s.train, rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_switch_digest(sw, &digest));
  for (int i = 0; i < 3; i++) {
    if (!a->doubled) treadle_switch_noise(sw, (uint64_t)(i + 1));
    RANK_OK(a->doubled && i > 0 ? treadle_switch_update(sw) : treadle_switch_to_infer(sw));
    RANK_TRUE(scene_reads(sw, TREADLE_INFER_PARAMS, to, infer));
    RANK_OK(treadle_switch_digest(sw, &now));
    RANK_TRUE(now == digest);
    if (a->doubled) continue;
    treadle_switch_noise(sw, (uint64_t)(i + 10));
    RANK_OK(treadle_switch_to_train(sw));
    RANK_TRUE(scene_reads(sw, TREADLE_PARAMS, a->s.train, train));
  }
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  RANK_TRUE(test_open_files() == files);
  treadle_group_close(group);
  free(train);
  free(infer);
  return 0;
}

static void play(ranks_process body, act *a) {
  int results[SCENE_RANKS];
  ranks_as_processes(SCENE_RANKS, 100, body, a, results);
  for (int rank = 0; rank < SCENE_RANKS; rank++) assert_int_equal(results[rank], 0);
}

static void test_cycles(void **state) {
  act a = {0};
  (void)state;
  scene_init(&a.s);
  play(live, &a);
  a.alias = true;
  play(live, &a);
  a.alias = false;
  a.doubled = true;
  if (the->two) play(live, &a);
  scene_release(&a.s);
}

/* The others hear from rank VICTIM; and all can make a switch then. */
static int fail_once(const char *name, int rank, int size, void *context) {
  const act *a = context;
  treadle_group *group;
  treadle_switch *sw;
  const treadle_switch_options options = options_of(a, rank);
  RANK_OK(treadle_group_open(name, rank, size, 60, &group));
  if (the->start) the->start();
  const int files = test_open_files();
  if (rank == VICTIM && a->fails_export) the->fail_export(a->fails_export);
  if (rank == VICTIM && a->fails_import) the->fail_import(a->fails_import);
  const treadle_status status = treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw);
  RANK_FAILS(TREADLE_SYSTEM, a->fails_export ? the->no_export : the->no_import, status);
  RANK_TRUE(test_open_files() == files);
  RANK_OK(treadle_switch_create(group, a->s.train, a->s.infer, &options, &sw));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  RANK_TRUE(test_open_files() == files);
  treadle_group_close(group);
  return 0;
}

static void test_failures(void **state) {
  act a = {0};
  (void)state;
  scene_init(&a.s);
  a.fails_export = 7;
  play(fail_once, &a);
  a.fails_export = 0;
  a.fails_import = 7;
  play(fail_once, &a);
  scene_release(&a.s);
}

int far_processes(const far_processes_device *device) {
  the = device;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_cycles), cmocka_unit_test(test_failures)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
