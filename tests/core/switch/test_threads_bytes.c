/* treadle_switch_read and _write: which windows are open in which mode, and pages that both windows of parameters share.
 * ctest: label=threads */
#include "switch/scene.h"
#include "test.h"
#include "group/ranks.h"

enum { GRADS = 40000, KV_BLOCK = 3000 };

typedef enum right { NONE, READ, BOTH } right;

/* What the header says: by mode, then class. Gradients stay on the device, params leave it. */
static right right_to(treadle_mode mode, treadle_class which) {
  bool infer = which == TREADLE_INFER_PARAMS || which == TREADLE_KV;
  if (mode == TREADLE_INFER) return infer || which == TREADLE_GRADS ? BOTH : NONE;
  if (infer) return NONE;
  return mode == TREADLE_FORWARD && which == TREADLE_PARAMS ? READ : BOTH;
}

static int try_class(treadle_switch *sw, treadle_class which, right wanted) {
  char bytes[8], again[8];
  size_t size;
  treadle_switch_window(sw, which, &size);
  RANK_TRUE(size > 2 * sizeof bytes);
  size_t at = size - sizeof bytes;
  if (wanted == NONE) {
    RANK_FAILS(TREADLE_STATE, "mode", treadle_switch_read(sw, which, at, sizeof bytes, bytes));
  } else {
    RANK_OK(treadle_switch_read(sw, which, at, sizeof bytes, bytes));
  }
  if (wanted != BOTH) {
    RANK_FAILS(TREADLE_STATE, "mode", treadle_switch_write(sw, which, at, sizeof bytes, bytes));
    return 0;
  }
  RANK_OK(treadle_switch_write(sw, which, at, sizeof bytes, "a window"));
  RANK_OK(treadle_switch_read(sw, which, at, sizeof again, again));
  RANK_TRUE(memcmp(again, "a window", sizeof again) == 0);
  RANK_OK(treadle_switch_write(sw, which, at, sizeof bytes, bytes));
  RANK_FAILS(TREADLE_REFUSED, "window of", treadle_switch_write(sw, which, at + 1, sizeof bytes, bytes));
  RANK_FAILS(TREADLE_REFUSED, "window of", treadle_switch_read(sw, which, at + 1, sizeof bytes, bytes));
  return 0;
}

static int try_all(treadle_switch *sw) {
  treadle_mode mode = treadle_switch_mode(sw);
  static const treadle_class classes[] = {TREADLE_PARAMS, TREADLE_GRADS, TREADLE_INFER_PARAMS, TREADLE_KV};
  for (size_t i = 0; i < TEST_COUNT(classes); i++)
    if (try_class(sw, classes[i], right_to(mode, classes[i]))) return 1;
  return 0;
}

static int each_mode(treadle_group *group, void *context) {
  const scene *s = context;
  const treadle_switch_options options = {.struct_size = sizeof options,
                                          .page_bytes = SCENE_PAGE,
                                          .timeout_seconds = 60,
                                          .grads_bytes = GRADS,
                                          .kv_block_bytes = KV_BLOCK};
  treadle_switch *sw;
  RANK_OK(treadle_switch_create(group, s->train, s->infer, &options, &sw));
  RANK_OK(treadle_layout_load(s->train, group->rank, treadle_switch_train_window(sw)));
  if (try_all(sw)) return 1;
  RANK_OK(treadle_switch_to_infer(sw));
  if (try_all(sw)) return 1;
  RANK_OK(treadle_switch_to_forward(sw));
  if (try_all(sw)) return 1;
  RANK_OK(treadle_switch_to_train(sw));
  RANK_TRUE(scene_holds(s->train, group->rank, treadle_switch_train_window(sw))); /* all was put back */
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

/* Params stay on the device in mode INFER, and are open there. Gradients leave, and are not there in mode FORWARD. Optimizer
 * state leaves, too, but has no bytes: none are read. */
static int what_leaves(treadle_group *group, void *context) {
  const scene *s = context;
  const treadle_switch_options options = {.struct_size = sizeof options,
                                          .page_bytes = SCENE_PAGE,
                                          .timeout_seconds = 60,
                                          .grads_bytes = GRADS,
                                          .offload_train_param = TREADLE_OFF,
                                          .offload_train_grad = TREADLE_ON,
                                          .offload_train_optimizer = TREADLE_ON};
  treadle_switch *sw;
  RANK_OK(treadle_switch_create(group, s->train, s->infer, &options, &sw));
  RANK_OK(treadle_layout_load(s->train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_switch_to_infer(sw));
  if (try_class(sw, TREADLE_PARAMS, BOTH) || try_class(sw, TREADLE_GRADS, NONE)) return 1;
  RANK_OK(treadle_switch_read(sw, TREADLE_OPTIMIZER, 0, 0, NULL));
  RANK_OK(treadle_switch_to_forward(sw));
  if (try_class(sw, TREADLE_PARAMS, READ) || try_class(sw, TREADLE_GRADS, NONE)) return 1;
  RANK_OK(treadle_switch_read(sw, TREADLE_OPTIMIZER, 0, 0, NULL));
  RANK_OK(treadle_switch_to_train(sw));
  if (try_class(sw, TREADLE_PARAMS, BOTH) || try_class(sw, TREADLE_GRADS, BOTH)) return 1;
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static int shared_pages(treadle_group *group, void *context) {
  const scene *s = context;
  const treadle_switch_options options = {
      .struct_size = sizeof options, .page_bytes = SCENE_PAGE, .timeout_seconds = 60, .alias = true};
  treadle_switch *sw;
  int shared = 0, own = 0;
  char page[SCENE_PAGE];
  RANK_OK(treadle_switch_create(group, s->train, s->alike, &options, &sw));
  RANK_OK(treadle_layout_load(s->train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_switch_to_infer(sw));
  size_t bytes;
  treadle_switch_window(sw, TREADLE_INFER_PARAMS, &bytes);
  for (size_t i = 0; (i + 1) * SCENE_PAGE <= bytes; i++) {
    RANK_OK(treadle_switch_read(sw, TREADLE_INFER_PARAMS, i * SCENE_PAGE, SCENE_PAGE, page));
    if (treadle_plan_shares(treadle_switch_plan(sw), (int64_t)i)) {
      RANK_FAILS(TREADLE_REFUSED, "train window",
                 treadle_switch_write(sw, TREADLE_INFER_PARAMS, i * SCENE_PAGE, SCENE_PAGE, page));
      shared++;
    } else {
      RANK_OK(treadle_switch_write(sw, TREADLE_INFER_PARAMS, i * SCENE_PAGE, SCENE_PAGE, page));
      own++;
    }
  }
  RANK_TRUE(shared > 0 && own > 0);
  RANK_TRUE(scene_infers(sw));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void run(int (*body)(treadle_group *group, void *context)) {
  scene s;
  scene_init(&s);
  ranks_as_threads(SCENE_RANKS, 60, 0, body, &s);
  scene_release(&s);
}

static void test_each_mode(void **state) {
  (void)state;
  run(each_mode);
}

static void test_what_leaves(void **state) {
  (void)state;
  run(what_leaves);
}

static void test_shared_pages(void **state) {
  (void)state;
  run(shared_pages);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_mode), cmocka_unit_test(test_what_leaves),
                                     cmocka_unit_test(test_shared_pages)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
