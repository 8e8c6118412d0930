/* Ranks of a run of reinforcement learning are killed at random moments, one at a time, and the run goes on: no rank stays, all say which one it was, and in
 * the end losses and weights are those of a run that nobody touched; with a critic, too, and with pools and the controller apart. TREADLE_KILLS=N: how often
 * (10, and fewer with TREADLE_PERCENT; half of it with a critic, and with pools).
 * ctest: stage=gcc timeout=600 */
#include "group/ranks.h"
#include "test.h"

#include "base/clock.h"
#include "base/random.h"
#include "group/group.h"
#include "run/checkpoint.h"
#include "treadle_loop.h"

#include <signal.h>
#include <sys/time.h>

enum { RANKS_MOST = 5, LIMIT = 60 };

/* A kind of run. */
typedef struct kind {
  const char *estimator, *pools, *mapping, *pipeline;
  int ranks;
} kind;

typedef struct killing {
  const char *folder;
  const kind *kind;
  int victim; /* -1: nobody */
  long after; /* microseconds, from its group on */
} killing;

static void die(int number) {
  (void)number;
  raise(SIGKILL);
}

static treadle_status train(const killing *k, treadle_group *group, treadle_rl_figures *figures_p) {
  char save[300], data[300], dump[300], estimator[64];
  const char *const overrides[] = {estimator,
                                   k->kind->pools,
                                   k->kind->mapping,
                                   k->kind->pipeline,
                                   save,
                                   data,
                                   dump,
                                   "actor_config.model=" TREADLE_SOURCE_DIR "/examples/sequence/policy",
                                   "megatron_training.tokenizer_name_or_path=" TREADLE_SOURCE_DIR
                                   "/examples/sequence",
                                   "megatron_training.val_path=null",
                                   "megatron_training.test_interval=0",
                                   "megatron_training.train_iters=8",
                                   "megatron_training.global_batch_size=4",
                                   "megatron_training.save_interval=2",
                                   "rl_config.n_samples_per_prompt=4",
                                   "actor_config.micro_batch_size=4",
                                   "rl_config.use_kl_loss=true"};
  const treadle_rl_options options = {
      .struct_size = sizeof options, .threads = 1, .resume = TREADLE_RESUME_AUTO};
  treadle_train_config *config = NULL;
  treadle_status status;
  snprintf(estimator, sizeof estimator, "rl_config.adv_estimator=%s", k->kind->estimator);
  snprintf(save, sizeof save, "actor_config.save=%s/run", k->folder);
  snprintf(data, sizeof data, "megatron_training.data_path=%s/data/train.jsonl", k->folder);
  snprintf(dump, sizeof dump, "rl_config.dump_rollouts=%s/run/dump", k->folder);
  TRY(treadle_rl_config_read(TREADLE_SOURCE_DIR "/examples/grpo-demo.yaml", overrides,
                             TEST_COUNT(overrides), &config));
  TRY(treadle_rl_run(group, config, &options, figures_p));
out:
  treadle_train_config_destroy(config);
  return status;
}

/* The message is of the rank that was killed, and not of one that left because of it. */
static int names(int victim) {
  const char *message = treadle_error_message();
  char name[20];
  snprintf(name, sizeof name, "rank %d (", victim);
  const char *found = strstr(message, name);
  if (found && (found == message || !strstr(message, "is lost"))) return 2;
  fprintf(stderr, "rank %d was killed, and the others say: %s\n", victim, message);
  return 1;
}

static int train_rank(const char *name, int rank, int size, void *context) {
  const killing *k = context;
  treadle_rl_figures figures = TREADLE_INIT(treadle_rl_figures);
  treadle_group *group;
  char path[300];
  RANK_OK(treadle_group_open(name, rank, size, 30, &group));
  if (rank == k->victim) {
    const struct itimerval timer = {.it_value = {k->after / 1000000, k->after % 1000000}};
    signal(SIGALRM, die);
    setitimer(ITIMER_REAL, &timer, NULL);
  }
  treadle_status status = train(k, group, &figures);
  const int said = k->victim >= 0 && status == TREADLE_PEER ? names(k->victim) : 0;
  treadle_group_close(group);
  if (said) return said;
  RANK_OK(status);
  if (rank > 0) return 0;
  snprintf(path, sizeof path, "%s/figures", k->folder);
  FILE *file = fopen(path, "w");
  RANK_TRUE(file && fwrite(&figures, sizeof figures, 1, file) == 1 && fclose(file) == 0);
  return 0;
}

static treadle_rl_figures go_on(const char *folder, const kind *of) {
  killing k = {.folder = folder, .kind = of, .victim = -1};
  treadle_rl_figures figures;
  int results[RANKS_MOST];
  char path[300];
  ranks_as_processes(of->ranks, LIMIT, train_rank, &k, results);
  for (int rank = 0; rank < of->ranks; rank++) assert_int_equal(results[rank], 0);
  snprintf(path, sizeof path, "%s/figures", folder);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  assert_int_equal(fread(&figures, sizeof figures, 1, file), 1);
  fclose(file);
  return figures;
}

static bool kill_one(const char *folder, const kind *of, treadle_random *random, long most) {
  killing k = {.folder = folder,
               .kind = of,
               .victim = (int)treadle_random_below(random, (uint64_t)of->ranks),
               .after = 1 + (long)treadle_random_below(random, most)};
  int results[RANKS_MOST];
  ranks_as_processes(of->ranks, LIMIT, train_rank, &k, results);
  for (int rank = 0; rank < of->ranks; rank++)
    if (rank != k.victim) assert_true(results[rank] == 0 || results[rank] == 2);
  return results[k.victim] == 128 + SIGKILL;
}

static void prepare(char *folder) {
  char data[300];
  const treadle_sequence_options task = {.struct_size = sizeof task, .seed = 1};
  treadle_sequence_figures figures = TREADLE_INIT(treadle_sequence_figures);
  snprintf(data, sizeof data, "%s/data", folder);
  assert_ok(treadle_data_sequence(data, &task, &figures));
}

/* Whatever was killed, each step has a line of figures, and only one, and its samples and the last checkpoint are those of the run that nobody
 * touched. */
static void check_files(const char *folder, const char *whole) {
  char command[1200];
  snprintf(command, sizeof command,
           "test \"$(sed 's/.*\"step\":\\([0-9]*\\).*/\\1/' '%s/run/metrics.jsonl' | tr '\\n' ' ')\" = '1 "
           "2 3 4 5 6 7 8 ' && "
           "diff -r '%s/run/dump' '%s/run/dump' && "
           "cmp '%s/run/global_step_8/digests.json' '%s/run/global_step_8/digests.json'",
           folder, folder, whole, folder, whole);
  assert_int_equal(system(command), 0);
}

static int64_t newest_of(const char *folder) {
  char run[300];
  int64_t step = -1;
  snprintf(run, sizeof run, "%s/run", folder);
  assert_ok(treadle_train_checkpoint_find(run, &step));
  return step;
}

static void kill_often(const kind *of, int kills) {
  char *folder = strdup(test_folder()), *whole = strdup(test_folder()), command[300];
  int died = 0;
  treadle_random random = {20261124};
  double begin = treadle_clock_seconds();
  prepare(folder);
  prepare(whole);
  const treadle_rl_figures wanted = go_on(whole, of);
  long most = (long)((treadle_clock_seconds() - begin) * 1e6);
  for (int i = 0; i < kills; i++) {
    if (kill_one(folder, of, &random, most))
      died++;
    else
      most = most * 3 / 4;
    if (newest_of(folder) < wanted.last_step && i + 1 < kills) continue;
    const treadle_rl_figures got = go_on(folder, of);
    assert_true(got.losses_digest == wanted.losses_digest);
    assert_true(got.weights_digest == wanted.weights_digest);
    check_files(folder, whole);
    snprintf(command, sizeof command, "rm -r '%s/run'", folder);
    assert_int_equal(system(command), 0);
  }
  printf("%d of %d times a rank died\n", died, kills);
  assert_true(died > 0);
  test_remove(folder);
  test_remove(whole);
  free(folder);
  free(whole);
}

static int how_often(void) {
  const char *text = getenv("TREADLE_KILLS");
  return text ? atoi(text) : 4 + (int)test_seeds(6);
}

#define PIPELINE "actor_config.pipeline_model_parallel_size="

/* Without pools the keys say what holds without them. */
static void test_kills(void **state) {
  (void)state;
  kill_often(&(kind){"group_norm", "resource_pools=null", "mapping=null", PIPELINE "2", 4}, how_often());
}

static void test_kills_of_critic(void **state) {
  (void)state;
  kill_often(&(kind){"gae", "resource_pools=null", "mapping=null", PIPELINE "2", 4}, (how_often() + 1) / 2);
}

/* The controller, too. */
static void test_kills_of_pools(void **state) {
  (void)state;
  kill_often(&(kind){"gae", "resource_pools={policy: [2], critic: [2]}",
                     "mapping={ActorRollout: policy, RefPolicy: policy, Critic: critic}", PIPELINE "1", 5},
             (how_often() + 1) / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_kills), cmocka_unit_test(test_kills_of_critic),
                                     cmocka_unit_test(test_kills_of_pools)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
