/* A switch on the stand-in of the driver whose device fails once, or whose caller captures a graph: the weights stay.
 * ctest: stage=gcc */
#include "cuda/card.h"
#include "group/ranks.h"
#include "switch/scene.h"
#include "test.h"

typedef struct plan {
  const scene *s;
  bool stays;      /* params stay on the device in mode INFER */
  CUstream stream; /* of rank 1 */
} plan;

static int make(treadle_group *group, const plan *p, treadle_switch **switch_p) {
  const treadle_memory memory = {.kind = TREADLE_MEMORY_CUDA,
                                 .stream = group->rank == 1 ? p->stream : NULL};
  const treadle_switch_options options = {.struct_size = sizeof options,
                                          .memory = memory,
                                          .page_bytes = SCENE_PAGE,
                                          .grads_bytes = SCENE_PAGE,
                                          .offload_train_grad = TREADLE_ON,
                                          .keep_grads = true,
                                          .offload_train_param = p->stays ? TREADLE_OFF : TREADLE_ON,
                                          .timeout_seconds = 60};
  RANK_OK(treadle_switch_create(group, p->s->train, p->s->infer, &options, switch_p));
  RANK_OK(treadle_layout_load(p->s->train, group->rank, treadle_switch_train_window(*switch_p)));
  return 0;
}

/* One call of the driver fails in a read: that read fails, and nothing else. */
static int reading_rank(treadle_group *group, void *context) {
  const plan *p = context;
  treadle_switch *sw;
  char byte;
  if (make(group, p, &sw)) return 1;
  char *train = scene_expected(p->s->train, NULL, group->rank);
  RANK_OK(treadle_group_barrier(group));
  if (group->rank == 1) {
    fake_cuda_fail("cuMemcpyAsync:1:2");
    RANK_FAILS(TREADLE_SYSTEM, "cuMemcpyAsync: CUDA_ERROR_OUT_OF_MEMORY",
               treadle_switch_read(sw, TREADLE_PARAMS, 0, 1, &byte));
    fake_cuda_fail(NULL);
    RANK_OK(treadle_switch_read(sw, TREADLE_PARAMS, 0, 1, &byte));
    fake_cuda_fail("cuMemcpyAsync:1:2");
    RANK_FAILS(TREADLE_SYSTEM, "cuMemcpyAsync", treadle_switch_read(sw, TREADLE_PARAMS, 0, 1, &byte));
    fake_cuda_fail(NULL);
  }
  RANK_OK(treadle_group_barrier(group));
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_OK(treadle_switch_to_train(sw));
  if (!scene_reads(sw, TREADLE_PARAMS, p->s->train, train)) return 1;
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  free(train);
  return 0;
}

static void test_read(void **state) {
  (void)state;
  scene s;
  scene_init(&s);
  ranks_as_threads(SCENE_RANKS, 60, 0, reading_rank, &(plan){.s = &s});
  scene_release(&s);
}

static treadle_status capture(const plan *p, bool begins) {
  void *graph;
  card_enter();
  const CUresult result = begins ? cuStreamBeginCapture_v2(p->stream, CU_STREAM_CAPTURE_MODE_GLOBAL)
                                 : cuStreamEndCapture(p->stream, &graph);
  card_leave();
  return result == CUDA_SUCCESS ? TREADLE_OK : treadle_fail(TREADLE_SYSTEM, "capture: %d", (int)result);
}

/* While a rank's stream captures, each arrow is refused, and each read of that rank; then all goes on. */
static int capturing_rank(treadle_group *group, void *context) {
  const plan *p = context;
  treadle_switch *sw;
  uint64_t digest;
  char byte;
  if (make(group, p, &sw)) return 1;
  char *train = scene_expected(p->s->train, NULL, group->rank),
       *infer = scene_expected(p->s->infer, NULL, group->rank);
  for (int mode = 0; mode < 2; mode++) {
    const bool captures = group->rank == 1;
    const treadle_status wanted = captures ? TREADLE_REFUSED : TREADLE_PEER;
    const char *part = captures ? "the stream of the caller is capturing a graph"
                                : "rank 1 failed: cuda: device 0: the stream of the caller is capturing";
    RANK_OK(treadle_group_barrier(group));
    if (captures) RANK_OK(capture(p, true));
    RANK_OK(treadle_group_barrier(group));
    if (captures)
      RANK_FAILS(TREADLE_REFUSED, "read: cuda: device 0: the stream of the caller is capturing a graph",
                 treadle_switch_read(sw, mode ? TREADLE_INFER_PARAMS : TREADLE_PARAMS, 0, 1, &byte));
    RANK_FAILS(TREADLE_REFUSED, "is capturing a graph", treadle_switch_digest(sw, &digest));
    RANK_FAILS(wanted, part, mode ? treadle_switch_to_train(sw) : treadle_switch_to_infer(sw));
    if (mode && p->stays) RANK_FAILS(wanted, part, treadle_switch_update(sw));
    RANK_TRUE(!mode || treadle_switch_is_valid(sw));
    RANK_TRUE(treadle_switch_mode(sw) == (mode ? TREADLE_INFER : TREADLE_TRAIN));
    RANK_OK(treadle_group_barrier(group));
    if (captures) RANK_OK(capture(p, false));
    RANK_OK(treadle_group_barrier(group));
    if (!mode && !scene_reads(sw, TREADLE_PARAMS, p->s->train, train)) return 1;
    if (!mode) RANK_OK(treadle_switch_to_infer(sw));
    if (!scene_reads(sw, TREADLE_INFER_PARAMS, p->s->infer, infer)) return 1;
  }
  RANK_OK(treadle_switch_to_train(sw));
  if (!scene_reads(sw, TREADLE_PARAMS, p->s->train, train)) return 1;
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  free(train);
  free(infer);
  return 0;
}

static void test_capture(void **state) {
  (void)state;
  scene s;
  plan p = {.s = &s};
  scene_init(&s);
  card_enter();
  assert_int_equal(cuStreamCreate(&p.stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  card_leave();
  for (int stays = 0; stays < 2; stays++) {
    p.stays = stays;
    ranks_as_threads(SCENE_RANKS, 60, 0, capturing_rank, &p);
  }
  card_enter();
  assert_int_equal(cuStreamDestroy_v2(p.stream), CUDA_SUCCESS);
  card_leave();
  scene_release(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_read), cmocka_unit_test(test_capture)};
  card_make(1, 256 << 20);
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  card_remove();
  return failed;
}
