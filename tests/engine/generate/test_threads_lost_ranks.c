/* What becomes of an engine's ranks when one of them fails: the others learn it at once, by name, and nobody waits in vain. */
/* ctest: label=threads timeout=120 */
#include "test.h"

#include "generate/machine.h"
#include "generate/prompts.h"
#include "group/group.h"
#include "group/ranks.h"
#include "treadle_builtin.h"

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#define LINE  "{\"prompt_token_ids\": [1, 5, 9], \"max_tokens\": 400, \"ignore_eos\": true}\n"
#define SHORT "{\"prompt_token_ids\": [1, 5, 9], \"max_tokens\": 4, \"ignore_eos\": true}\n"

#define DENSE   TREADLE_SOURCE_DIR "/tests/golden/models/qwen2-tied"
#define EXPERTS TREADLE_SOURCE_DIR "/tests/golden/models/qwen2moe"

typedef struct plan {
  const char *folder, *layout;
  int fails; /* the rank */
  atomic_int seen;
} plan;

static treadle_status open_machine(machine *m, treadle_group *group, const plan *p) {
  const machine_spec spec = {.folder = p->folder,
                             .layout = p->layout,
                             .group = group,
                             .options = {.threads = 1, .kv_bytes = 1 << 21, .max_len = 1024}};
  return machine_open(m, &spec);
}

static bool stop(void *context) { return --*(int *)context <= 0; }

static treadle_status digest(void *context, const char *line, size_t bytes) {
  char **text = context;
  size_t before = *text ? strlen(*text) : 0;
  *text = realloc(*text, before + bytes + 1);
  memcpy(*text + before, line, bytes);
  (*text)[before + bytes] = '\0';
  return TREADLE_OK;
}

static treadle_status generate(machine *m, char **text_p) {
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  treadle_generate_options options = TREADLE_INIT(treadle_generate_options);
  options.answer = digest;
  options.context = text_p;
  *text_p = NULL;
  return treadle_generator_generate_lines(m->engine, SHORT LINE, sizeof SHORT + sizeof LINE - 2, &options,
                                          &figures);
}

/* One rank is cancelled after a few steps, and the others' calls end with its words. The next call says what an engine says that nobody has
 * stopped; and so once more. */
static int run_cancelled(treadle_group *group, void *context) {
  const plan *p = context;
  bool cancels = treadle_group_rank(group) == p->fails;
  char *wanted, *text;
  machine m;
  RANK_OK(open_machine(&m, group, p));
  RANK_OK(generate(&m, &wanted));
  for (int times = 0; times < 2; times++) {
    treadle_generate_options options = TREADLE_INIT(treadle_generate_options);
    treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
    int steps = 5;
    const treadle_observer observer = {.struct_size = sizeof observer, .context = &steps, .stop = stop};
    if (cancels) options.observer = &observer;
    treadle_status status = treadle_generator_generate_lines(m.engine, LINE LINE LINE,
                                                             3 * (sizeof LINE - 1), &options, &figures);
    if (cancels)
      RANK_FAILS(TREADLE_CANCELLED, "cancelled", status);
    else
      RANK_FAILS(TREADLE_PEER, "generation was cancelled", status);
    RANK_TRUE(!figures.kv_blocks_leaked);
    RANK_OK(generate(&m, &text));
    RANK_TRUE(strcmp(text, wanted) == 0);
    free(text);
  }
  free(wanted);
  machine_close(&m);
  return 0;
}

static void test_cancelled(void **state) {
  (void)state;
  static plan plans[] = {{DENSE, "vllm:tp=2", 0, 0},
                         {DENSE, "vllm:tp=2", 1, 0},
                         {DENSE, "vllm:pp=2", 1, 0},
                         {DENSE, "vllm:tp=1", 1, 0},
                         {EXPERTS, "vllm:dp=2,ep=on", 1, 0}};
  for (size_t i = 0; i < TEST_COUNT(plans); i++) ranks_as_threads(2, 30, 0, run_cancelled, &plans[i]);
  static plan more = {DENSE, "vllm:tp=2,pp=2", 3, 0};
  ranks_as_threads(4, 30, 0, run_cancelled, &more);
}

/* A rank that leaves instead of making the call: the others name it. Threads read its memory where it lies, so it keeps that. */
static int run_absent(treadle_group *group, void *context) {
  plan *p = context;
  machine m;
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  RANK_OK(open_machine(&m, group, p));
  if (treadle_group_rank(group) != p->fails) {
    treadle_status status =
        treadle_generator_generate_lines(m.engine, LINE, sizeof LINE - 1, NULL, &figures);
    p->seen = 1;
    RANK_FAILS(TREADLE_PEER, "rank 1", status);
  } else {
    (void)treadle_fail(TREADLE_STATE, "it has had enough");
    treadle_group_fail(group);
    while (!p->seen) usleep(1000);
  }
  machine_close(&m);
  return 0;
}

static void test_absent(void **state) {
  (void)state;
  static plan one = {DENSE, "vllm:tp=2", 1, 0};
  ranks_as_threads(2, 30, 0, run_absent, &one);
}

/* A process that dies in the midst of it. */
static bool die(void *context) {
  if (stop(context)) raise(SIGKILL);
  return false;
}

static int run_killed(const char *name, int rank, int size, void *context) {
  const plan *p = context;
  treadle_group *group = NULL;
  int steps = 5;
  machine m;
  treadle_generate_options options = TREADLE_INIT(treadle_generate_options);
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  RANK_OK(treadle_group_open(name, rank, size, 30, &group));
  RANK_OK(open_machine(&m, group, p));
  const treadle_observer observer = {.struct_size = sizeof observer, .context = &steps, .stop = die};
  if (rank == p->fails) options.observer = &observer;
  RANK_FAILS(TREADLE_PEER, "rank 1",
             treadle_generator_generate_lines(m.engine, LINE, sizeof LINE - 1, &options, &figures));
  machine_close(&m);
  treadle_group_close(group);
  return 0;
}

static void test_killed(void **state) {
  (void)state;
  static plan plans[] = {{DENSE, "vllm:tp=4", 1, 0},
                         {DENSE, "sglang:tp=2,pp=2", 1, 0},
                         {DENSE, "vllm:tp=1,pp=4", 1, 0},
                         {EXPERTS, "vllm:tp=2,dp=2,ep=on", 1, 0}};
  for (size_t i = 0; i < TEST_COUNT(plans); i++) {
    int results[4];
    ranks_as_processes(4, 60, run_killed, &plans[i], results);
    for (int rank = 0; rank < 4; rank++) assert_int_equal(results[rank], rank == 1 ? 128 + SIGKILL : 0);
  }
}

/* ---- Memory ---- */

static int begin_attempt(treadle_group *group, long n, long *before_p) {
  RANK_OK(treadle_group_barrier(group));
  *before_p = treadle_alloc_count();
  RANK_OK(treadle_group_barrier(group));
  if (treadle_group_rank(group) == 0) treadle_alloc_fail_at(n);
  RANK_OK(treadle_group_barrier(group));
  return 0;
}

/* All ranks fared alike, and the group goes on. */
static int end_attempt(treadle_group *group, long n, long before, treadle_status status, bool *last_p) {
  int good[2], mine = status == TREADLE_OK;
  RANK_OK(treadle_group_barrier(group));
  *last_p = treadle_alloc_count() - before < n;
  RANK_OK(treadle_group_barrier(group));
  if (treadle_group_rank(group) == 0) treadle_alloc_fail_at(0);
  RANK_OK(treadle_group_gather(group, &mine, sizeof mine, good));
  RANK_TRUE(good[0] == good[1] && (mine || !*last_p));
  return 0;
}

static long next_of(long n) { return n < 40 ? n + 1 : n + n / 8; }

/* The n-th allocation of both ranks fails while they make their engines, for each n. */
static int starve_create(treadle_group *group, void *context) {
  const plan *p = context;
  const treadle_generator_options options = {
      .struct_size = sizeof options, .threads = 1, .kv_bytes = 1 << 21, .max_len = 1024};
  machine m;
  bool last = false;
  RANK_OK(open_machine(&m, group, p));
  for (long n = 1, before; !last; n = next_of(n)) {
    treadle_generator *engine = NULL;
    if (begin_attempt(group, n, &before)) return 1;
    treadle_status status = treadle_generator_create(group, m.layout, &options, &engine);
    if (end_attempt(group, n, before, status, &last)) return 1;
    treadle_generator_destroy(engine);
  }
  machine_close(&m);
  return 0;
}

/* The same while they generate: whoever has no memory, all calls end, and none too late. */
static int starve_generate(treadle_group *group, void *context) {
  const plan *p = context;
  bool last = false;
  for (long n = 1, before; !last; n = next_of(n)) {
    const treadle_generate_options options = TREADLE_INIT(treadle_generate_options);
    treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
    machine m;
    RANK_OK(open_machine(&m, group, p));
    if (begin_attempt(group, n, &before)) return 1;
    treadle_status status = treadle_generator_generate_lines(m.engine, SHORT SHORT SHORT,
                                                             3 * (sizeof SHORT - 1), &options, &figures);
    if (end_attempt(group, n, before, status, &last)) return 1;
    RANK_TRUE(figures.seconds < 5);
    machine_close(&m);
  }
  return 0;
}

/* The same for batches, of which each replica has its own. */
static int starve_batch(treadle_group *group, void *context) {
  const plan *p = context;
  treadle_random random = {1};
  treadle_batch *prompts = prompts_draw(&random, 2, true);
  treadle_sampling sampling = TREADLE_SAMPLING_INIT;
  bool last = false;
  sampling.max_tokens = 3;
  sampling.top_k = 4;
  sampling.logprobs_of = TREADLE_LOGPROBS_DRAWN;
  for (long n = 1, before; !last; n = next_of(n)) {
    treadle_batch *out = NULL;
    machine m;
    RANK_OK(open_machine(&m, group, p));
    if (begin_attempt(group, n, &before)) return 1;
    treadle_status status = treadle_generator_generate(m.engine, prompts, &sampling, NULL, &out);
    if (end_attempt(group, n, before, status, &last)) return 1;
    RANK_TRUE((out != NULL) == (status == TREADLE_OK));
    treadle_batch_destroy(out);
    machine_close(&m);
  }
  treadle_batch_destroy(prompts);
  return 0;
}

static void test_no_memory(void **state) {
  (void)state;
  static plan plans[] = {{DENSE, "vllm:tp=2", 0, 0}, {DENSE, "vllm:tp=1", 0, 0}},
              groups = {EXPERTS, "vllm:dp=2,ep=on", 0, 0};
  for (size_t i = 0; i < TEST_COUNT(plans); i++) {
    ranks_as_threads(2, 20, 0, starve_create, &plans[i]);
    ranks_as_threads(2, 20, 0, starve_generate, &plans[i]);
    ranks_as_threads(2, 20, 0, starve_batch, &plans[i]);
  }
  ranks_as_threads(2, 20, 0, starve_batch, &groups);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_cancelled), cmocka_unit_test(test_absent),
                                     cmocka_unit_test(test_killed), cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
