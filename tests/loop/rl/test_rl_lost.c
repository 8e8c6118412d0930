/* Ranks that stop or die while a run starts, right after its ranks have met and some meetings later: all others end, within rl_config.timeout, and say the
 * same: which rank it was, with its role, its pool and its node, and that the run was starting. Where ranks are together, with one pool, and with several.
 * ctest: stage=gcc timeout=300 */
#include "group/ranks.h"
#include "test.h"

#include "base/clock.h"
#include "base/thread_watch.h"
#include "group/group.h"
#include "treadle_loop.h"

#include <signal.h>
#include <stdlib.h>

enum { RANKS_MOST = 4, LIMIT = 60 };
static const double TIMEOUT = 6; /* rl_config.timeout */

/* A kind of run. */
typedef struct kind {
  const char *pools, *mapping;
  int ranks;
} kind;
static const kind together = {"resource_pools=null", "mapping=null", 2},
                  one_pool = {"resource_pools={all: [2]}", "mapping={ActorRollout: all, Critic: all}", 3},
                  pools = {"resource_pools={policy: [2], critic: [1]}",
                           "mapping={ActorRollout: policy, Critic: critic}", 4};

typedef struct loss {
  const kind *kind;
  int victim, signal;
  int after; /* waits of its, from the meeting on */
  const char *says;
  const char *folder;
} loss;

/* In the victim, at each of its waits: the thread is watched from the meeting on. */
static void fall(void *context, const char *where) {
  loss *l = context;
  (void)where;
  if (treadle_thread_is_watched() && --l->after == 0) raise(l->signal);
}

static treadle_status train(const loss *l, treadle_group *group) {
  char save[300], data[300];
  const char *const overrides[] = {l->kind->pools,
                                   l->kind->mapping,
                                   save,
                                   data,
                                   "rl_config.use_kl_loss=false",
                                   "rl_config.timeout=6",
                                   "actor_config.model=" TREADLE_SOURCE_DIR "/examples/sequence/policy",
                                   "critic_config.model=" TREADLE_SOURCE_DIR "/examples/sequence/policy",
                                   "megatron_training.tokenizer_name_or_path=" TREADLE_SOURCE_DIR
                                   "/examples/sequence",
                                   "megatron_training.val_path=null",
                                   "megatron_training.test_interval=0",
                                   "megatron_training.train_iters=100000"};
  const treadle_rl_options options = {.struct_size = sizeof options, .threads = 1};
  treadle_rl_figures figures = TREADLE_INIT(treadle_rl_figures);
  treadle_train_config *config = NULL;
  treadle_status status;
  snprintf(save, sizeof save, "actor_config.save=%s/run", l->folder);
  snprintf(data, sizeof data, "megatron_training.data_path=%s/data/train.jsonl", l->folder);
  TRY(treadle_rl_config_read(TREADLE_SOURCE_DIR "/examples/ppo-demo.yaml", overrides, TEST_COUNT(overrides),
                             &config));
  TRY(treadle_rl_run(group, config, &options, &figures));
out:
  treadle_train_config_destroy(config);
  return status;
}

/* A group waits for much longer than the run does. */
static int train_rank(const char *name, int rank, int size, void *context) {
  loss l = *(const loss *)context;
  treadle_group *group;
  RANK_OK(treadle_group_open(name, rank, size, 10 * LIMIT, &group));
  if (rank == l.victim) {
    group->delay = fall;
    group->delay_context = &l;
  }
  const double begin = treadle_clock_seconds();
  RANK_FAILS(TREADLE_PEER, l.says, train(&l, group));
  const double seconds = treadle_clock_seconds() - begin;
  if (l.signal == SIGSTOP && seconds < TIMEOUT / 2) return 1; /* it was found, and not for its silence */
  if (l.signal == SIGSTOP) kill(treadle_group_process(group, l.victim), SIGKILL);
  treadle_group_close(group);
  return 0;
}

static void lose(loss l) {
  char folder[] = "/tmp/treadle-test-XXXXXX", data[300], command[100];
  const treadle_sequence_options task = {.struct_size = sizeof task, .seed = 1};
  treadle_sequence_figures figures = TREADLE_INIT(treadle_sequence_figures);
  int results[RANKS_MOST];
  assert_non_null(mkdtemp(folder));
  snprintf(data, sizeof data, "%s/data", folder);
  assert_ok(treadle_data_sequence(data, &task, &figures));
  l.folder = folder;
  ranks_as_processes(l.kind->ranks, LIMIT, train_rank, &l, results);
  for (int rank = 0; rank < l.kind->ranks; rank++)
    assert_int_equal(results[rank], rank == l.victim ? 128 + SIGKILL : 0);
  snprintf(command, sizeof command, "rm -r %s", folder);
  assert_int_equal(system(command), 0);
}

#define STARTS " is lost while the run starts: "
#define SILENT STARTS "it was silent for 3 seconds"
#define CLOSED STARTS "it has closed the connection"
enum { FIRST = 1, LATER = 25 };

static void together_one_stops(void **state) {
  (void)state;
  lose((loss){&together, 1, SIGSTOP, FIRST, "rank 1 (ActorRollout, Critic, node 0)" SILENT, NULL});
  lose((loss){&together, 0, SIGSTOP, LATER, "rank 0 (ActorRollout, Critic, node 0)" SILENT, NULL});
}

static void together_one_dies(void **state) {
  (void)state;
  lose((loss){&together, 1, SIGKILL, LATER, "rank 1 (ActorRollout, Critic, node 0)" CLOSED, NULL});
  lose((loss){&together, 0, SIGKILL, FIRST, "rank 0 (ActorRollout, Critic, node 0)" CLOSED, NULL});
}

static void one_pool_one_stops(void **state) {
  (void)state;
  lose((loss){&one_pool, 2, SIGSTOP, LATER, "rank 2 (ActorRollout, Critic, pool 'all', node 0)" SILENT,
              NULL});
  lose((loss){&one_pool, 0, SIGSTOP, LATER, "rank 0 (controller, node 0)" SILENT, NULL});
}

static void of_pools_one_stops(void **state) {
  (void)state;
  lose((loss){&pools, 2, SIGSTOP, LATER, "rank 2 (ActorRollout, pool 'policy', node 0)" SILENT, NULL});
  lose((loss){&pools, 3, SIGSTOP, LATER, "rank 3 (Critic, pool 'critic', node 0)" SILENT, NULL});
  lose((loss){&pools, 3, SIGSTOP, FIRST, "rank 3 (node 0)" SILENT, NULL}); /* pools are not placed yet */
}

static void of_pools_one_dies(void **state) {
  (void)state;
  lose((loss){&pools, 3, SIGKILL, LATER, "rank 3 (Critic, pool 'critic', node 0)" CLOSED, NULL});
  lose((loss){&pools, 0, SIGKILL, LATER, "rank 0 (controller, node 0)" CLOSED, NULL});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(together_one_stops), cmocka_unit_test(together_one_dies),
      cmocka_unit_test(one_pool_one_stops), cmocka_unit_test(of_pools_one_stops),
      cmocka_unit_test(of_pools_one_dies)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
