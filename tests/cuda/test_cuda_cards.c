/* Ranks on two cards of the stand-in of the driver, as processes and as threads of one: with peer access each reads the others' pools where they
 * are, and without it no switch is made. The process of the test has no driver: it starts the others by fork. ctest: stage=gcc timeout=300 */
#include "cuda/card.h"
#include "group/ranks.h"
#include "switch/scene.h"
#include "test.h"

#include <pthread.h>

enum { CARDS = 2 };

typedef struct subject {
  const scene *s;
  const char *peers; /* FAKE_CUDA_PEERS */
  treadle_status wanted;
  const char *words; /* where no switch is made: of the message */
  bool by_name;      /* threads meet as processes do */
} subject;

static int cycle(treadle_switch *sw, const scene *s, int rank) {
  char *train = scene_expected(s->train, NULL, rank), *infer = scene_expected(s->infer, s->train, rank);
  RANK_OK(treadle_layout_load(s->train, rank, treadle_switch_train_window(sw)));
  for (int i = 0; i < 2; i++) {
    RANK_OK(treadle_switch_to_infer(sw));
    RANK_TRUE(scene_reads(sw, TREADLE_INFER_PARAMS, s->infer, infer));
    RANK_OK(treadle_switch_to_train(sw));
    RANK_TRUE(scene_reads(sw, TREADLE_PARAMS, s->train, train));
  }
  free(train);
  free(infer);
  return 0;
}

static int run_rank(treadle_group *group, const subject *of) {
  treadle_switch *sw;
  const int rank = treadle_group_rank(group);
  const treadle_switch_options options = {.struct_size = sizeof(treadle_switch_options),
                                          .memory = {.kind = TREADLE_MEMORY_CUDA, .device = rank % CARDS},
                                          .page_bytes = SCENE_PAGE,
                                          .cap_bytes = (size_t)of->s->cap_min,
                                          .timeout_seconds = 60};
  const treadle_status made = treadle_switch_create(group, of->s->train, of->s->infer, &options, &sw);
  int result = 0;
  if (made != of->wanted || of->words)
    result = ranks_said(of->wanted, made, of->words, "create", __FILE__, __LINE__);
  else
    result = cycle(sw, of->s, rank);
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return result;
}

/* ---- Ranks as threads of a process ---- */

typedef struct thread {
  pthread_t id;
  const subject *of;
  const char *name;
  int rank, result;
  treadle_group *group;
} thread;

static void *run_thread(void *context) {
  thread *t = context;
  if (t->of->by_name && treadle_group_open(t->name, t->rank, SCENE_RANKS, 60, &t->group)) return NULL;
  t->result = run_rank(t->group, t->of);
  return NULL;
}

static int run_threads(const char *name, int rank, int size, void *context) {
  const subject *of = context;
  thread threads[SCENE_RANKS];
  treadle_group *groups[SCENE_RANKS] = {NULL};
  int bad = 0;
  (void)rank, (void)size;
  setenv("FAKE_CUDA_PEERS", of->peers, 1);
  if (!of->by_name) RANK_OK(treadle_group_threads(SCENE_RANKS, 60, groups));
  for (int i = 0; i < SCENE_RANKS; i++) {
    threads[i] = (thread){.of = of, .name = name, .rank = i, .result = 1, .group = groups[i]};
    RANK_TRUE(pthread_create(&threads[i].id, NULL, run_thread, &threads[i]) == 0);
  }
  for (int i = 0; i < SCENE_RANKS; i++) {
    pthread_join(threads[i].id, NULL);
    bad += threads[i].result;
  }
  for (int i = 0; i < SCENE_RANKS; i++) treadle_group_close(threads[i].group);
  return bad;
}

/* ---- Ranks as processes ---- */

static int run_process(const char *name, int rank, int size, void *context) {
  const subject *of = context;
  treadle_group *group;
  setenv("FAKE_CUDA_PEERS", of->peers, 1);
  RANK_OK(treadle_group_open(name, rank, size, 60, &group));
  const int result = run_rank(group, of);
  treadle_group_close(group);
  return result;
}

/* ---- Tests ---- */

static void expect(int size, ranks_process body, subject of) {
  scene s;
  int results[SCENE_RANKS];
  scene_init(&s);
  of.s = &s;
  ranks_as_processes(size, 100, body, &of, results);
  for (int i = 0; i < size; i++) assert_int_equal(results[i], 0);
  scene_release(&s);
}

static const char by_address[] = "cannot read memory of device";
static const char by_handle[] = "memory of another device can be read where there is peer access";

static void test_threads(void **state) {
  (void)state;
  expect(1, run_threads, (subject){.peers = "1"});
  expect(1, run_threads, (subject){.peers = "0", .wanted = TREADLE_REFUSED, .words = by_address});
}

static void test_threads_by_name(void **state) {
  (void)state;
  expect(1, run_threads, (subject){.peers = "1", .by_name = true});
  expect(1, run_threads,
         (subject){.peers = "0", .by_name = true, .wanted = TREADLE_REFUSED, .words = by_handle});
}

static void test_processes(void **state) {
  (void)state;
  expect(SCENE_RANKS, run_process, (subject){.peers = "1"});
  expect(SCENE_RANKS, run_process, (subject){.peers = "0", .wanted = TREADLE_REFUSED, .words = by_handle});
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads), cmocka_unit_test(test_threads_by_name),
                                     cmocka_unit_test(test_processes)};
  card_make(CARDS, 256 << 20);
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  card_remove();
  return failed;
}
