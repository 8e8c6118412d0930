/* Processes on one card of the stand-in of the driver: the scenes of switch/far_processes.h; a rank that is killed in a wave; a rank whose device is
 * lost in a wave. The process of the test has no driver: it starts the others by fork. ctest: stage=gcc timeout=300 */
#include "cuda/card.h"
#include "group/ranks.h"
#include "switch/far_processes.h"
#include "switch/scene.h"
#include "test.h"

#include <signal.h>

static void start(void) {
  card_enter();
  card_leave();
}

static void plant(const char *call, int64_t n) {
  char text[80];
  snprintf(text, sizeof text, "%s:%lld:999", call, (long long)n);
  fake_cuda_fail(text);
}

static void fail_export(int64_t n) { plant("cuMemExportToShareableHandle", n); }

static void fail_import(int64_t n) { plant("cuMemImportFromShareableHandle", n); }

/* ---- A rank that ends, or whose device does ---- */

enum { VICTIM = 1 };

typedef struct victim {
  const scene *s;
  bool dies;
  int launches; /* of kernels by rank VICTIM, in the switch */
} victim;

static void die(void *context, const char *where) {
  const int *launches = context;
  (void)where;
  if (fake_cuda_calls("cuLaunchKernel") >= (uint64_t)*launches) kill(getpid(), SIGKILL);
}

static int fall(const char *name, int rank, int size, void *context) {
  const victim *v = context;
  treadle_group *group;
  treadle_switch *sw;
  const treadle_switch_options options = {.struct_size = sizeof(treadle_switch_options),
                                          .memory = {.kind = TREADLE_MEMORY_CUDA},
                                          .page_bytes = SCENE_PAGE,
                                          .cap_bytes = (size_t)v->s->cap_min,
                                          .timeout_seconds = 30,
                                          .keep = TREADLE_KEEP_HOST};
  char *train = scene_expected(v->s->train, NULL, rank), text[40];
  RANK_OK(treadle_group_open(name, rank, size, 30, &group));
  RANK_OK(treadle_switch_create(group, v->s->train, v->s->infer, &options, &sw));
  RANK_OK(treadle_layout_load(v->s->train, rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_switch_filled(sw));
  RANK_OK(treadle_group_barrier(group));
  int launches = (int)fake_cuda_calls("cuLaunchKernel") + v->launches;
  if (rank == VICTIM && v->dies) {
    group->delay = die;
    group->delay_context = &launches;
  } else if (rank == VICTIM) {
    snprintf(text, sizeof text, "launch:%d", v->launches);
    fake_cuda_fail(text);
  }
  const treadle_status status = treadle_switch_to_infer(sw);
  if (rank == VICTIM) {
    RANK_FAILS(TREADLE_SYSTEM, "CUDA_ERROR_LAUNCH_FAILED", status);
    treadle_switch_destroy(sw);
    return 0;
  }
  RANK_FAILS(TREADLE_PEER, "rank 1", status);
  if (treadle_switch_mode(sw) == TREADLE_TRAIN)
    RANK_TRUE(scene_reads(sw, TREADLE_PARAMS, v->s->train, train));
  treadle_switch_destroy(sw);
  treadle_group_close(group);
  fake_cuda_ledger now;
  fake_cuda_ledger_read(&now);
  RANK_TRUE(now.handles.now == 0 && now.mappings.now == 0 && now.pinned_bytes.now == 0 &&
            now.objects.now == 0);
  free(train);
  return 0;
}

static void test_victims(void **state) {
  (void)state;
  scene s;
  scene_init(&s);
  for (int how = 0; how < 4; how++) {
    victim v = {.s = &s, .dies = how % 2, .launches = how < 2 ? 2 : 5};
    int results[SCENE_RANKS];
    ranks_as_processes(SCENE_RANKS, 100, fall, &v, results);
    for (int rank = 0; rank < SCENE_RANKS; rank++)
      assert_int_equal(results[rank], rank == VICTIM && v.dies ? 128 + SIGKILL : 0);
  }
  scene_release(&s);
}

int main(void) {
  const far_processes_device device = {.is_one = true,
                                       .start = start,
                                       .fail_export = fail_export,
                                       .fail_import = fail_import,
                                       .no_export = "rank 1: cuda: device 0: cuMemExportToShareableHandle",
                                       .no_import =
                                           "rank 0: cuda: device 0: cuMemImportFromShareableHandle"};
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_victims)};
  card_make(1, 256 << 20);
  const int failed = far_processes(&device) + cmocka_run_group_tests(tests, NULL, NULL);
  card_remove();
  return failed;
}
