/* Generating for batches over threads: ranks of a group give equal batches and get its answers; groups and replicas have rows of their own,
 * or none, and all wait for the last one. Answers have the bits of one rank, and the experts that it records. */
/* ctest: label=threads timeout=300 */
#include "test.h"

#include "generate/generator.h"
#include "generate/machine.h"
#include "generate/prompts.h"
#include "group/ranks.h"

static const char dense[] = TREADLE_SOURCE_DIR "/tests/golden/models/qwen2-tied",
                  experts[] = TREADLE_SOURCE_DIR "/tests/golden/models/qwen2moe",
                  latent[] = TREADLE_SOURCE_DIR "/tests/golden/models/dsv3-yarn";

enum { ROWS = 7, ANSWERS = 2 };

static const treadle_sampling sampling = {.struct_size = sizeof sampling,
                                          .temperature = 1,
                                          .top_p = 1,
                                          .top_k = 6,
                                          .repetition_penalty = 1,
                                          .n = ANSWERS,
                                          .max_tokens = 10,
                                          .ignore_eos = true,
                                          .logprobs_of = TREADLE_LOGPROBS_DRAWN};

typedef struct plan {
  const char *folder, *layout;
  int ranks;
  int64_t first_rows;          /* of the first group; the last one has the others */
  const treadle_batch *wanted; /* answers to all rows */
  int fails;                   /* the rank that stops, or has other rows */
} plan;

static treadle_batch *draw(void) {
  treadle_random random = {1};
  return prompts_draw(&random, ROWS, true);
}

static treadle_generator_options options_of(const plan *p) {
  return (treadle_generator_options){.struct_size = sizeof(treadle_generator_options),
                                     .threads = 1,
                                     .kv_bytes = 1 << 20,
                                     .max_batch = 3,
                                     .prefill_chunk = 8,
                                     .max_len = 512,
                                     .experts = p->folder != dense};
}

static treadle_status open_machine(machine *m, treadle_group *group, const plan *p) {
  const machine_spec spec = {
      .folder = p->folder, .layout = p->layout, .group = group, .options = options_of(p)};
  return machine_open(m, &spec);
}

/* The memory that was foretold. */
static int compare_memory(const plan *p, const machine *m, treadle_group *group) {
  const treadle_generator_options options = options_of(p);
  treadle_generator_memory by_rank[8] = {{0}};
  treadle_generator_info info = TREADLE_INIT(treadle_generator_info);
  RANK_OK(treadle_generator_foresee(m->layout, &options, by_rank));
  const treadle_generator_memory *mine = &by_rank[treadle_group_rank(group)];
  RANK_OK(treadle_generator_get_info(m->engine, &info));
  RANK_TRUE(mine->work == info.work_bytes + info.packed_bytes && mine->kv_block == info.kv_block_bytes);
  RANK_TRUE(mine->board == treadle_generator_outside_bytes(m->engine));
  return 0;
}

/* The rows of this rank's group. */
static treadle_status take_rows(const plan *p, const machine *m, int64_t *first_p, treadle_batch **own_p) {
  const treadle_replica_place *place = &m->engine->replica.place;
  bool is_first = place->number == 0, is_last = place->number == place->count - 1;
  treadle_batch *all = draw();
  *first_p = is_first ? 0 : p->first_rows;
  treadle_status status =
      treadle_batch_slice(all, *first_p, is_last && !is_first ? ROWS : p->first_rows, own_p);
  treadle_batch_destroy(all);
  return status;
}

/* ---- The bits of one rank ---- */

static int run_halves(treadle_group *group, void *context) {
  const plan *p = context;
  machine m;
  RANK_OK(open_machine(&m, group, p));
  if (compare_memory(p, &m, group)) return 1;
  for (int again = 0; again < 2; again++) {
    treadle_batch *own, *out;
    int64_t first;
    RANK_OK(take_rows(p, &m, &first, &own));
    RANK_OK(treadle_generator_generate(m.engine, own, &sampling, NULL, &out));
    RANK_TRUE(treadle_batch_rows(out) == treadle_batch_rows(own) * ANSWERS);
    const char *differs = prompts_differ(out, p->wanted, first * ANSWERS);
    if (differs) fprintf(stderr, "%s, rank %d: %s\n", p->layout, treadle_group_rank(group), differs);
    RANK_TRUE(!differs && m.engine->cache.used == 0);
    treadle_batch_destroy(own);
    treadle_batch_destroy(out);
  }
  machine_close(&m);
  return 0;
}

static treadle_batch *answer_alone(const char *folder) {
  const plan alone = {.folder = folder, .layout = "vllm:tp=1"};
  treadle_batch *prompts = draw(), *answers;
  machine m;
  assert_ok(open_machine(&m, NULL, &alone));
  assert_ok(treadle_generator_generate(m.engine, prompts, &sampling, NULL, &answers));
  machine_close(&m);
  treadle_batch_destroy(prompts);
  return answers;
}

static void test_bits(void **state) {
  (void)state;
  static const plan plans[] = {
      {dense, "vllm:tp=2", .ranks = 2, .first_rows = ROWS},
      {dense, "vllm:tp=1,pp=2", .ranks = 2, .first_rows = ROWS},
      {dense, "vllm:tp=1", .ranks = 2, .first_rows = 3},
      {dense, "vllm:tp=1", .ranks = 2, .first_rows = 0},
      {dense, "vllm:tp=1", .ranks = 2, .first_rows = ROWS},
      {dense, "vllm:tp=2", .ranks = 4, .first_rows = 5},
      {dense, "vllm:tp=2", .ranks = 4, .first_rows = 0},
      {dense, "megatron:tp=2", .ranks = 4, .first_rows = 1},
      {experts, "vllm:dp=2,ep=on", .ranks = 2, .first_rows = 3},
      {experts, "vllm:tp=2,dp=2,ep=on", .ranks = 4, .first_rows = ROWS},
      {experts, "vllm:dp=2,ep=on", .ranks = 4, .first_rows = 1}, /* two replicas of two groups */
      {experts, "vllm:pp=2,dp=2,ep=on", .ranks = 4, .first_rows = 2},
      {latent, "vllm:dp=4,ep=on", .ranks = 4, .first_rows = 4}, /* two groups have none */
  };
  treadle_batch *wanted = NULL;
  for (size_t i = 0; i < TEST_COUNT(plans); i++) {
    plan p = plans[i];
    if (i == 0 || p.folder != plans[i - 1].folder) {
      treadle_batch_destroy(wanted);
      wanted = answer_alone(p.folder);
    }
    p.wanted = wanted;
    for (uint64_t delays = 0; delays < 2; delays++) ranks_as_threads(p.ranks, 60, delays, run_halves, &p);
  }
  treadle_batch_destroy(wanted);
}

/* Nobody has rows. */
static int run_none(treadle_group *group, void *context) {
  const plan *p = context;
  treadle_batch *none, *out;
  machine m;
  RANK_OK(open_machine(&m, group, p));
  none = prompts_draw(&(treadle_random){1}, 0, true);
  RANK_OK(treadle_generator_generate(m.engine, none, &sampling, NULL, &out));
  RANK_TRUE(treadle_batch_rows(out) == 0 && treadle_batch_has(out, "kept"));
  treadle_batch_destroy(none);
  treadle_batch_destroy(out);
  machine_close(&m);
  return 0;
}

static void test_no_rows(void **state) {
  (void)state;
  plan plans[] = {{dense, "vllm:tp=1", .ranks = 2}, {experts, "vllm:dp=2,ep=on", .ranks = 2}};
  for (size_t i = 0; i < TEST_COUNT(plans); i++) ranks_as_threads(2, 60, 0, run_none, &plans[i]);
}

/* ---- A rank fails ---- */

/* The next call is as good as any. */
static int end_well(const plan *p, machine *m, treadle_batch *own, int64_t first) {
  treadle_batch *out;
  RANK_OK(treadle_generator_generate(m->engine, own, &sampling, NULL, &out));
  RANK_TRUE(!prompts_differ(out, p->wanted, first * ANSWERS));
  treadle_batch_destroy(out);
  treadle_batch_destroy(own);
  machine_close(m);
  return 0;
}

/* What one rank gives is refused: by all ranks, before the first step. Then all go on. */
static int run_refused(treadle_group *group, void *context) {
  const plan *p = context;
  treadle_batch *own, *out = NULL;
  int64_t first;
  machine m;
  RANK_OK(open_machine(&m, group, p));
  RANK_OK(take_rows(p, &m, &first, &own));
  treadle_sampling other = sampling;
  if (treadle_group_rank(group) == p->fails) other.top_p = 2;
  RANK_FAILS(TREADLE_REFUSED, "top_p must be in (0, 1], got 2",
             treadle_generator_generate(m.engine, own, &other, NULL, &out));
  RANK_TRUE(!out);
  return end_well(p, &m, own, first);
}

/* One rank of a replica is given other values, or makes another call. */
static int run_different(treadle_group *group, void *context) {
  const plan *p = context;
  const bool differs = treadle_group_rank(group) == p->fails;
  const int32_t ids[] = {1, 2};
  const treadle_score_text text = {ids, 2};
  treadle_batch *own, *out = NULL;
  treadle_sampling other = sampling;
  int64_t first;
  machine m;
  other.seed += differs;
  RANK_OK(open_machine(&m, group, p));
  RANK_OK(take_rows(p, &m, &first, &own));
  RANK_FAILS(TREADLE_REFUSED,
             "must be given the same prompts and sampling values, as ranks of one replica, and were not",
             treadle_generator_generate(m.engine, own, &other, NULL, &out));
  RANK_FAILS(TREADLE_REFUSED, "is in treadle_generator_generate",
             differs ? treadle_generator_score(m.engine, &text, 1, NULL)
                     : treadle_generator_generate(m.engine, own, &sampling, NULL, &out));
  RANK_FAILS(TREADLE_REFUSED, "must be given the same texts and temperature",
             treadle_generator_score(m.engine, &text, differs ? 0 : 1, NULL));
  return end_well(p, &m, own, first);
}

static bool stop_at_10(void *context) { return ++*(int *)context == 10; }

/* A rank stops after a few steps, while another replica has rows, or none. The next call is as good as any. */
static int run_stopped(treadle_group *group, void *context) {
  const plan *p = context;
  bool stops = treadle_group_rank(group) == p->fails;
  int asked = 0;
  const treadle_observer observer = {.struct_size = sizeof observer, .context = &asked, .stop = stop_at_10};
  treadle_sampling longer = sampling;
  treadle_batch *own, *out = NULL;
  int64_t first;
  machine m;
  longer.max_tokens = 300;
  RANK_OK(open_machine(&m, group, p));
  RANK_OK(take_rows(p, &m, &first, &own));
  RANK_FAILS(stops ? TREADLE_CANCELLED : TREADLE_PEER, "generation was cancelled",
             treadle_generator_generate(m.engine, own, &longer, stops ? &observer : NULL, &out));
  RANK_TRUE(!out && m.engine->cache.used == 0);
  return end_well(p, &m, own, first);
}

static void test_failures(void **state) {
  (void)state;
  static const plan plans[] = {
      {dense, "vllm:tp=2", .ranks = 2, .first_rows = ROWS, .fails = 1},
      {dense, "vllm:tp=1", .ranks = 2, .first_rows = ROWS, .fails = 0},
      {dense, "vllm:tp=1", .ranks = 2, .first_rows = 2, .fails = 1},
      {dense, "vllm:tp=2", .ranks = 4, .first_rows = 0, .fails = 3},
      {experts, "vllm:dp=2,ep=on", .ranks = 2, .first_rows = ROWS, .fails = 1},
      {experts, "vllm:tp=2,dp=2,ep=on", .ranks = 4, .first_rows = 3, .fails = 2},
  };
  for (size_t i = 0; i < TEST_COUNT(plans); i++) {
    plan p = plans[i];
    treadle_batch *wanted = answer_alone(p.folder);
    p.wanted = wanted;
    ranks_as_threads(p.ranks, 60, 0, run_refused, &p);
    ranks_as_threads(p.ranks, 60, 0, run_stopped, &p);
    if (strstr(p.layout, "tp=2")) ranks_as_threads(p.ranks, 60, 0, run_different, &p);
    treadle_batch_destroy(wanted);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_no_rows),
                                     cmocka_unit_test(test_failures)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
