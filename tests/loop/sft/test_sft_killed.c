/* Ranks of a run are killed at random moments, one at a time, and the run goes on: no rank stays, what was saved can be read, and in the end
 * losses and weights are those of a run that nobody touched, whatever the layout of the last part. TREADLE_KILLS=N: how often (10, and fewer
 * with TREADLE_PERCENT).
 * ctest: stage=gcc timeout=600 */
#include "group/ranks.h"
#include "seeds.h"
#include "sft/sft_scene.h"
#include "test.h"

#include "base/clock.h"
#include "base/random.h"
#include "group/group.h"

#include <signal.h>
#include <sys/time.h>

enum { RANKS = 4, LIMIT = 60 };

static const char *const tp2pp2[] = {"actor_config.tensor_model_parallel_size=2",
                                     "actor_config.pipeline_model_parallel_size=2", NULL};
static const char *const tp4[] = {"actor_config.tensor_model_parallel_size=4", NULL};
static const char *const pp4[] = {"actor_config.pipeline_model_parallel_size=4", NULL};

typedef struct killing {
  const char *folder;
  const char *const *overrides;
  int victim;        /* -1: nobody */
  long after;        /* microseconds, from its group on */
  int64_t last_step; /* a rank asks to stop behind it; 0: none does */
} killing;

static void die(int number) {
  (void)number;
  raise(SIGKILL);
}

static int64_t last_step, step;

static bool stops(void *context) {
  (void)context;
  return ++step == last_step;
}

static const treadle_observer observer = {.struct_size = sizeof observer, .stop = stops};

static int train_rank(const char *name, int rank, int size, void *context) {
  const killing *k = context;
  sft_scene_run with = {.folder = k->folder,
                        .overrides = k->overrides,
                        .options = {.resume = TREADLE_RESUME_AUTO, .observer = &observer}};
  treadle_sft_figures figures = {.struct_size = sizeof figures};
  char path[300];
  RANK_OK(treadle_group_open(name, rank, size, 30, &with.group));
  if (rank == RANKS - 1) last_step = k->last_step;
  if (rank == k->victim) {
    const struct itimerval timer = {.it_value = {k->after / 1000000, k->after % 1000000}};
    signal(SIGALRM, die);
    setitimer(ITIMER_REAL, &timer, NULL);
  }
  treadle_status status = sft_scene_train(&with, &figures);
  treadle_group_close(with.group);
  if (k->victim >= 0 && status == TREADLE_PEER) return 2;
  RANK_OK(status);
  if (rank > 0) return 0;
  snprintf(path, sizeof path, "%s/figures", k->folder);
  FILE *file = fopen(path, "w");
  RANK_TRUE(file && fwrite(&figures, sizeof figures, 1, file) == 1 && fclose(file) == 0);
  return 0;
}

static treadle_sft_figures figures_of(const char *folder) {
  treadle_sft_figures figures;
  char path[300];
  snprintf(path, sizeof path, "%s/figures", folder);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  assert_int_equal(fread(&figures, sizeof figures, 1, file), 1);
  fclose(file);
  return figures;
}

/* All ranks go on to the end, or until one asks to stop, having seen this many steps. */
static treadle_sft_figures go_on(const char *folder, const char *const *overrides, int64_t steps) {
  killing k = {.folder = folder, .overrides = overrides, .victim = -1, .last_step = steps};
  int results[RANKS];
  ranks_as_processes(RANKS, LIMIT, train_rank, &k, results);
  for (int rank = 0; rank < RANKS; rank++) assert_int_equal(results[rank], 0);
  return figures_of(folder);
}

static void same(const treadle_sft_figures *a, const treadle_sft_figures *b) {
  assert_true(a->losses_digest == b->losses_digest);
  assert_true(a->weights_digest == b->weights_digest);
  assert_int_equal(a->last_step, b->last_step);
}

static void in_folder(const char *folder, const char *command) {
  char text[700];
  snprintf(text, sizeof text, "cd '%s' && %s", folder, command);
  assert_int_equal(system(text), 0);
}

/* The same run in a folder of its own. */
static char *copy(const char *folder) {
  char *other = sft_scene_make(), command[300];
  snprintf(command, sizeof command, "cp -r run '%s'", other);
  in_folder(folder, command);
  return other;
}

static bool kill_one(const char *folder, treadle_random *random, long most) {
  killing k = {.folder = folder,
               .overrides = tp2pp2,
               .victim = (int)treadle_random_below(random, RANKS),
               .after = 1 + (long)treadle_random_below(random, most)};
  int results[RANKS];
  ranks_as_processes(RANKS, LIMIT, train_rank, &k, results);
  for (int rank = 0; rank < RANKS; rank++)
    if (rank != k.victim) assert_true(results[rank] == 0 || results[rank] == 2);
  return results[k.victim] == 128 + SIGKILL;
}

static void check_end(char *folder, const char *const *overrides, const treadle_sft_figures *wanted) {
  treadle_sft_figures got = go_on(folder, overrides, 0);
  int64_t newest;
  same(&got, wanted);
  sft_scene_checkpoints(folder, &newest);
  assert_int_equal(newest, wanted->last_step);
}

static void test_kills(void **state) {
  (void)state;
  char *folder = sft_scene_make(), *whole = sft_scene_make();
  const char *text = getenv("TREADLE_KILLS");
  int kills = text ? atoi(text) : 4 + (int)test_seeds(6), died = 0;
  int64_t newest = -1;
  treadle_random random = {20261124};
  double begin = treadle_clock_seconds();
  const treadle_sft_figures wanted = go_on(whole, tp2pp2, 0);
  long most = (long)((treadle_clock_seconds() - begin) * 1e6);
  for (int i = 0; i < kills; i++) {
    int64_t before = newest;
    if (kill_one(folder, &random, most))
      died++;
    else
      most = most * 3 / 4; /* the run is quicker than the first one was */
    sft_scene_checkpoints(folder, &newest);
    assert_true(newest >= before);
    if (newest < wanted.last_step) continue;
    check_end(folder, tp2pp2, &wanted); /* it has come to its end, and begins again */
    in_folder(folder, "rm -r run");
    newest = -1;
  }
  printf("%d of %d times a rank died\n", died, kills);
  assert_true(died > kills / 5);
  if (newest < 4) go_on(folder, tp2pp2, 5);
  char *by_tp = copy(folder), *by_pp = copy(folder);
  check_end(folder, tp2pp2, &wanted);
  check_end(by_tp, tp4, &wanted);
  check_end(by_pp, pp4, &wanted);
  sft_scene_remove(folder);
  sft_scene_remove(whole);
  sft_scene_remove(by_tp);
  sft_scene_remove(by_pp);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_kills)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
