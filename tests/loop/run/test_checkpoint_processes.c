/* A process is killed while a checkpoint is saved, at each of its waits in turn, and a rank alone at random moments: there is always a whole
 * checkpoint to go on from, and the next save leaves nothing of the killed one. ctest: timeout=600 */
#include "group/ranks.h"
#include "run/checkpoint_parts.h"
#include "test.h"

#include "base/clock.h"
#include "base/random.h"
#include "group/group.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#define MODEL TREADLE_SOURCE_DIR "/tests/golden/models/llama-gqa-llama3rope"

enum { RANKS = 2, WAITS_MOST = 200, WAITS_STEP = 5, MOMENTS = 12 };

typedef struct death {
  const char *folder;
  int rank, wait; /* who dies, and at which wait; rank -1: nobody */
  int64_t step;
} death;

static void die_at(void *context, const char *where) {
  int *left = context;
  (void)where;
  if (--*left == 0) raise(SIGKILL);
}

/* Every value is the step. */
static treadle_status save_step(treadle_group *group, int rank, int size, const char *folder,
                                int64_t step) {
  treadle_model *model;
  treadle_layout *layout;
  treadle_train_checkpoint c = {
      .run = folder, .step = step, .max_to_keep = 1, .data = "{}\n", .rng = "{}\n"};
  parts p = {.group = group};
  treadle_status status;
  float *window = NULL;
  TRY(treadle_model_open(MODEL, NULL, &model));
  TRY(treadle_layout_create(model, size == 1 ? "hf:dtype=fp32" : "megatron:tp=2,dtype=fp32", size, NULL,
                            &layout));
  size_t count = treadle_layout_window_bytes(layout, rank) / sizeof *window;
  window = malloc(count * sizeof *window);
  for (size_t i = 0; i < count; i++) window[i] = (float)step;
  for (int i = 0; i < PARTS; i++) p.layouts[i] = layout, p.windows[i] = window;
  c.save = save_parts;
  c.context = &p;
  status = treadle_train_checkpoint_save(group, &c);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
out:
  free(window);
  return status;
}

static int save_rank(const char *name, int rank, int size, void *context) {
  const death *d = context;
  treadle_group *group;
  int left = d->wait;
  RANK_OK(treadle_group_open(name, rank, size, 30, &group));
  if (rank == d->rank) {
    group->delay = die_at;
    group->delay_context = &left;
  }
  treadle_status status = save_step(group, rank, size, d->folder, d->step);
  treadle_group_close(group);
  return status == TREADLE_OK || status == TREADLE_PEER ? 0 : 1;
}

/* The step that a run goes on from, all of whose values are that step. */
static int64_t whole_step(const char *folder) {
  int64_t step;
  char path[200];
  treadle_model *model;
  treadle_layout *layout;
  assert_ok(treadle_train_checkpoint_find(folder, &step));
  assert_true(step >= 0);
  snprintf(path, sizeof path, "%s/global_step_%lld", folder, (long long)step);
  assert_ok(treadle_model_open(MODEL, NULL, &model));
  assert_ok(treadle_layout_create(model, "hf:dtype=fp32", 1, NULL, &layout));
  size_t count = treadle_layout_window_bytes(layout, 0) / sizeof(float);
  float *window = malloc(count * sizeof *window);
  for (int part = 0; part < PARTS; part++) {
    assert_ok(load_part(path, part, layout, 0, window));
    for (size_t i = 0; i < count; i++) assert_true(window[i] == (float)step);
  }
  free(window);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
  return step;
}

static int count_names(const char *folder) {
  char command[200];
  snprintf(command, sizeof command, "exit $(ls '%s' | wc -l)", folder);
  return WEXITSTATUS(system(command));
}

static void test_waits(void **state) {
  (void)state;
  for (int rank = 0; rank < RANKS; rank++) {
    death d = {test_folder(), -1, 0, 10};
    int results[RANKS], old = 0, new = 0;
    ranks_as_processes(RANKS, 60, save_rank, &d, results);
    assert_int_equal(whole_step(d.folder), 10);
    d.rank = rank;
    bool died = true;
    for (d.wait = 1; died; d.wait += WAITS_STEP) {
      int64_t last = d.step;
      assert_true(d.wait < WAITS_MOST);
      d.step += 10;
      ranks_as_processes(RANKS, 60, save_rank, &d, results);
      died = results[rank] == 128 + SIGKILL;
      assert_true((died || results[rank] == 0) && results[1 - rank] == 0);
      int64_t found = whole_step(d.folder);
      assert_true(found == last || found == d.step);
      *(found == last ? &old : &new) += 1;
      if (found == last) d.step = last;
    }
    assert_int_equal(count_names(d.folder),
                     2); /* the last save was whole: one checkpoint, and its number */
    assert_true(old > 5 && new > 0);
    test_remove(d.folder);
  }
}

static void test_moments(void **state) {
  (void)state;
  const char *folder = test_folder();
  treadle_random random = {20261123};
  double begin = treadle_clock_seconds();
  assert_ok(save_step(NULL, 0, 1, folder, 1));
  double whole = treadle_clock_seconds() - begin;
  int64_t step = 1;
  for (int i = 0; i < MOMENTS; i++) {
    long most = (long)(whole * 1.2e9), wait = (long)treadle_random_below(&random, (uint64_t)most);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(save_step(NULL, 0, 1, folder, step + 1) != TREADLE_OK);
    nanosleep(&(struct timespec){wait / 1000000000, wait % 1000000000}, NULL);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    int64_t found = whole_step(folder);
    assert_true(found == step || found == step + 1);
    step = found;
  }
  assert_ok(save_step(NULL, 0, 1, folder, step + 1));
  assert_int_equal(whole_step(folder), step + 1);
  assert_int_equal(count_names(folder), 2);
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_waits), cmocka_unit_test(test_moments)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
