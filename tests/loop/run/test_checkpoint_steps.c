/* Which checkpoints a run has, which go by verl's vectors (tests/utils/ckpt/test_checkpoint_cleanup_on_cpu.py), and where it goes on. */
#include "test.h"

#include "run/checkpoint.h"

#include <sys/stat.h>

/* ---- Retention ---- */

/* Steps of a run, oldest first; saving is what the trainer does. */
typedef struct kept {
  int64_t steps[8];
  size_t count;
} kept;

static void expire(kept *k, size_t gone) {
  assert_true(gone <= k->count);
  memmove(k->steps, k->steps + gone, (k->count - gone) * sizeof *k->steps);
  k->count -= gone;
}

static void save(kept *k, int64_t step, int64_t max) {
  expire(k, treadle_train_checkpoint_expired_before(k->count, max));
  k->steps[k->count++] = step;
  expire(k, treadle_train_checkpoint_expired_after(k->count, max));
}

static void test_retention(void **state) {
  (void)state;
  kept one = {{100}, 1}; /* max 1: 100 stays until 200 is there */
  assert_int_equal(treadle_train_checkpoint_expired_before(1, 1), 0);
  save(&one, 200, 1);
  assert_true(one.count == 1 && one.steps[0] == 200);
  kept two = {{100, 200}, 2}; /* max 2: only 200 before the save */
  expire(&two, treadle_train_checkpoint_expired_before(two.count, 2));
  assert_true(two.count == 1 && two.steps[0] == 200);
  for (size_t count = 0; count < 50; count++) /* max 0: everything stays */
    assert_true(treadle_train_checkpoint_expired_before(count, 0) == 0 &&
                treadle_train_checkpoint_expired_after(count, 0) == 0);
  kept cycle = {{0}, 0}; /* 100, 200, 300 with max 1 */
  for (int64_t step = 100; step <= 300; step += 100) save(&cycle, step, 1);
  assert_true(cycle.count == 1 && cycle.steps[0] == 300);
  kept three = {{0}, 0};
  for (int64_t step = 1; step <= 9; step++) save(&three, step, 3);
  assert_true(three.count == 3 && three.steps[0] == 7 && three.steps[2] == 9);
}

/* ---- Names ---- */

static void test_names(void **state) {
  (void)state;
  static const struct {
    const char *path;
    int64_t step;
  } names[] = {{"global_step_0", 0},
               {"run/global_step_120", 120},
               {"/a/b/global_step_7", 7},
               {"global_step_", -1},
               {"global_step_007", -1},
               {"global_step_-1", -1},
               {"global_step_1x", -1},
               {"xglobal_step_1", -1},
               {"global_step_1.12-3.tmp", -1},
               {"global_step_1/x", -1},
               {"global_step_9223372036854775808", -1}};
  for (size_t i = 0; i < TEST_COUNT(names); i++)
    assert_int_equal(treadle_train_checkpoint_step_of(names[i].path), names[i].step);
}

/* ---- Finding ---- */

static void shell(const char *folder, const char *command) {
  char text[1000];
  snprintf(text, sizeof text, "cd '%s' && %s", folder, command);
  assert_int_equal(system(text), 0);
}

/* Files that make a folder look whole; what is in them is for those who load it. */
#define WHOLE(step)                                                                                        \
  "mkdir -p global_step_" step "/actor/huggingface global_step_" step                                      \
  "/actor/optimizer/master global_step_" step "/actor/optimizer/exp_avg global_step_" step                 \
  "/actor/optimizer/exp_avg_sq && cd global_step_" step                                                    \
  " && touch data.json rng.json && for d in actor/huggingface actor/optimizer/*; do touch $d/config.json " \
  "$d/model.safetensors; done && cd .."

static void test_find(void **state) {
  (void)state;
  const char *folder = test_folder();
  char path[200];
  int64_t step;
  treadle_steps steps = {0};
  assert_ok(treadle_train_checkpoint_find("/nonexistent/run", &step));
  assert_int_equal(step, -1);
  assert_ok(treadle_train_checkpoint_find(folder, &step));
  assert_int_equal(step, -1);
  shell(folder, "mkdir global_step_30 && touch global_step_40 && mkdir global_step_5.1-2.tmp");
  assert_refused("global_step_30: is not a whole checkpoint: it has no actor/huggingface/config.json",
                 treadle_train_checkpoint_find(folder, &step));
  shell(folder, WHOLE("9") " && " WHOLE("10") " && " WHOLE("20"));
  assert_ok(treadle_train_checkpoint_find(folder, &step)); /* no file says which: the newest whole one */
  assert_int_equal(step, 20);
  shell(folder, "printf 10 > latest_checkpointed_iteration.txt");
  assert_ok(treadle_train_checkpoint_find(folder, &step));
  assert_int_equal(step, 10);
  shell(folder, "rm global_step_10/rng.json");
  assert_ok(treadle_train_checkpoint_find(folder, &step)); /* what is named is broken */
  assert_int_equal(step, 20);
  snprintf(path, sizeof path, "%s/global_step_10", folder);
  assert_refused("it has no rng.json", treadle_train_checkpoint_check(path));
  shell(folder, "rm global_step_20/actor/optimizer/exp_avg_sq/model.safetensors");
  snprintf(path, sizeof path, "%s/global_step_20", folder);
  assert_refused("it has no actor/optimizer/exp_avg_sq/model.safetensors",
                 treadle_train_checkpoint_check(path));
  shell(folder, "touch global_step_20/actor/optimizer/exp_avg_sq/model.safetensors.index.json");
  assert_ok(treadle_train_checkpoint_check(path));
  assert_refused("a checkpoint is a folder", treadle_train_checkpoint_check(folder));
  shell(folder, "printf '9\\n' > latest_checkpointed_iteration.txt");
  assert_ok(treadle_train_checkpoint_find(folder, &step));
  assert_int_equal(step, 9);
  shell(folder, "printf 'x' > latest_checkpointed_iteration.txt");
  assert_ok(treadle_train_checkpoint_find(folder, &step));
  assert_int_equal(step, 20);
  assert_ok(treadle_train_checkpoint_list(folder, &steps));
  assert_int_equal(steps.count, 4); /* by number: 9, 10, 20, 30 */
  assert_true(steps.items[0] == 9 && steps.items[1] == 10 && steps.items[2] == 20 && steps.items[3] == 30);
  treadle_array_release(&steps);
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_retention), cmocka_unit_test(test_names),
                                     cmocka_unit_test(test_find)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
