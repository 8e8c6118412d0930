/* A worker whose trainer and generator are on ranks of their own against one that has both on the trainer's ranks: the same answers,
 * log-probabilities, figures and digests, to the bit. Weights that have not changed do not move again. Each rank holds what was foreseen.
 * Layouts that are on some ranks, but not so, are refused; a rank that dies ends the calls of all.
 * ctest: label=threads */
#include "control/tiny.h"
#include "control/toy.h"
#include "group/ranks.h"
#include "test.h"
#include "train/rows.h"

#include "base/alloc.h"
#include "control/actor.h"

#include <signal.h>
#include <unistd.h>

enum {
  MOST = 8,
  DEAD = 4,
  PAGE = 4096,
  PROMPTS = 5,
  SAMPLES = 2,
  ROWS = PROMPTS * SAMPLES,
  RESPONSE = 12,
  LENGTH = 32
};
enum { ROUNDS = 3, TOKENS = ROWS * RESPONSE, KV_LEAST = 1 << 16 };

typedef struct round_of {
  int32_t ids[TOKENS];
  float rollout[TOKENS], log_probs[MOST][TOKENS]; /* of each rank those of its rows */
  bool has[MOST][ROWS];
  double norms[MOST]; /* of gradients */
  uint64_t digests[MOST];
} round_of;

typedef struct scene {
  const char *train, *infer;
  int ranks;
  bool strided; /* the rank map */
  size_t budget;
  treadle_layout *layouts[2];
  const treadle_batch *prompts;
  round_of rounds[ROUNDS];
} scene;

static bool is_apart(const scene *s) { return strstr(s->train, "on=") != NULL; }

static bool is_trainer(const scene *s, int rank) { return treadle_layout_holds(s->layouts[0], rank); }

/* ---- What a rank calls ---- */

static const treadle_forward_options forward = {.struct_size = sizeof forward, .micro_batch_size = 2};

static treadle_status make(treadle_group *group, const scene *s, treadle_actor_memory *by_rank,
                           treadle_actor **actor_p) {
  const treadle_trainer_options trainer = {
      .struct_size = sizeof trainer, .threads = 1, .most_rows = 2 * LENGTH, .optimizer = true};
  const treadle_generator_options engine = {.struct_size = sizeof engine,
                                            .threads = 1,
                                            .max_batch = 4,
                                            .block_tokens = 4,
                                            .prefill_chunk = 16,
                                            .max_len = 64};
  const treadle_actor_options options = {.struct_size = sizeof options,
                                         .trainer = &trainer,
                                         .engine = &engine,
                                         .offload_train_param =
                                             TREADLE_ON, /* means nothing on ranks of their own */
                                         .page_bytes = PAGE,
                                         .kv_bytes = KV_LEAST,
                                         .budget_bytes = s->budget};
  treadle_status status;
  TRY(treadle_actor_foresee(s->layouts[0], s->layouts[1], &options, by_rank));
  TRY(treadle_actor_create(group, s->layouts[0], s->layouts[1], &options, actor_p));
out:
  return status;
}

/* Behind their prompts, on all ranks. */
static treadle_status generate(treadle_group *group, treadle_actor *actor, const scene *s, int round,
                               treadle_batch **all_p) {
  treadle_sampling sampling = TREADLE_SAMPLING_INIT;
  treadle_batch *mine = NULL, *answers = NULL, *prompts = NULL;
  treadle_status status;
  bool leads;
  sampling.n = SAMPLES;
  sampling.max_tokens = RESPONSE;
  sampling.ignore_eos = true;
  sampling.seed = round;
  *all_p = NULL;
  TRY(treadle_actor_slice_prompts(actor, s->prompts, NULL, &leads, &mine));
  TRY(treadle_actor_generate_sequences(actor, mine, &sampling, NULL, &answers));
  if (treadle_batch_rows(answers) != treadle_batch_rows(mine) * SAMPLES)
    TRY(treadle_fail(TREADLE_DIFFERENT, "%lld answers", (long long)treadle_batch_rows(answers)));
  TRY(treadle_batch_gather(group, leads ? answers : NULL, all_p));
  TRY(treadle_batch_repeat(s->prompts, SAMPLES, true, &prompts));
  TRY(treadle_batch_remove(prompts, "seed"));
  TRY(treadle_batch_union(*all_p, prompts));
out:
  treadle_batch_destroy(mine);
  treadle_batch_destroy(answers);
  treadle_batch_destroy(prompts);
  return status;
}

static treadle_status keep_answers(const treadle_batch *all, round_of *to) {
  treadle_column ids = TREADLE_INIT(treadle_column), rollout = TREADLE_INIT(treadle_column);
  treadle_status status;
  TRY(treadle_batch_column(all, "ids", &ids));
  TRY(treadle_batch_column(all, "rollout_log_probs", &rollout));
  if (ids.offsets[ROWS] != TOKENS)
    TRY(treadle_fail(TREADLE_DIFFERENT, "%lld tokens", (long long)ids.offsets[ROWS]));
  memcpy(to->ids, ids.data, sizeof to->ids);
  memcpy(to->rollout, rollout.data, sizeof to->rollout);
out:
  return status;
}

static treadle_status compute(treadle_actor *actor, const treadle_batch *all, int rank, round_of *to) {
  treadle_batch *mine = NULL, *out = NULL;
  treadle_column column = TREADLE_INIT(treadle_column);
  treadle_row_range range;
  treadle_status status;
  TRY(treadle_actor_slice(actor, all, &forward, &range, &mine));
  TRY(treadle_batch_create(range.end - range.first, &out));
  TRY(treadle_actor_compute_log_prob(actor, mine, &forward, out));
  if (!treadle_batch_has(out, "log_probs") || range.end == range.first) goto out;
  TRY(treadle_batch_column(out, "log_probs", &column));
  memcpy(to->log_probs[rank] + range.first * RESPONSE, column.data,
         (size_t)(range.end - range.first) * RESPONSE * sizeof(float));
  for (int64_t row = range.first; row < range.end; row++) to->has[rank][row] = true;
out:
  treadle_batch_destroy(mine);
  treadle_batch_destroy(out);
  return status;
}

static treadle_status slope(void *context, const treadle_loss_row *row) {
  (void)context;
  for (int64_t i = 0; i < row->count; i++) row->by_log_prob[i] = i % 3 ? -0.1 : 0.1;
  for (int64_t i = 0; i < row->count; i++) row->losses[i] = -(double)row->log_probs[i];
  return TREADLE_OK;
}

static treadle_status update(treadle_actor *actor, const treadle_batch *all,
                             treadle_optimizer_figures *figures_p) {
  const treadle_loss_options own = {.struct_size = sizeof own, .of_row = slope};
  const treadle_optimizer_step step = {.struct_size = sizeof step, .lr = 0.01};
  treadle_batch *mine = NULL;
  treadle_status status;
  TRY(treadle_actor_slice(actor, all, &forward, NULL, &mine));
  TRY(treadle_actor_update(actor, mine, &forward, &own, &step, NULL, figures_p));
out:
  treadle_batch_destroy(mine);
  return status;
}

/* ---- A rank ---- */

/* Between nodes there is staging, too, which a plan of one node does not have. */
static bool may_differ(int c) { return ranks_nodes && (c == TREADLE_KV || c == TREADLE_WORK); }

/* The cache of a rank with a budget leaves less than a block, whatever the trainer's ranks have. */
static bool is_full(const scene *s, const treadle_actor_info *info) {
  const size_t block = info->kv_blocks ? info->bytes[TREADLE_KV] / (size_t)info->kv_blocks : 0;
  return !s->budget || !block || ranks_nodes || info->peak_bytes + block + 2 * PAGE > s->budget;
}

static int check_memory(const treadle_actor *actor, const treadle_actor_memory *plan) {
  treadle_actor_info info = TREADLE_INIT(treadle_actor_info);
  RANK_OK(treadle_actor_get_info(actor, &info));
  for (int c = 0; c < TREADLE_CLASSES; c++) {
    if (info.bytes[c] == plan->by_mode[info.mode][c] || may_differ(c)) continue;
    fprintf(stderr, "mode %s, class %d: %zu bytes, %zu were foreseen\n", treadle_mode_text(info.mode), c,
            info.bytes[c], plan->by_mode[info.mode][c]);
    return 1;
  }
  RANK_TRUE(info.peak_bytes <= plan->peak_bytes || ranks_nodes);
  RANK_TRUE(info.kv_blocks == plan->kv_blocks || ranks_nodes);
  if (actor->apart && actor->train.engine) /* all that it has beside its windows */
    RANK_TRUE(info.bytes[TREADLE_WORK] == actor->train.bytes(actor->train.engine));
  return 0;
}

/* All rows are divided among ranks that train; the others cannot say how, have none, and may not be given any. */
static int check_rows(treadle_actor *actor, const scene *s, const treadle_batch *all, int rank) {
  treadle_row_range by_rank[MOST], mine;
  treadle_batch *slice, *out;
  int64_t lengths[ROWS], end = 0;
  for (int i = 0; i < ROWS; i++) lengths[i] = 3 + i;
  RANK_OK(treadle_actor_slice(actor, all, &forward, &mine, &slice));
  treadle_batch_destroy(slice);
  if (!is_trainer(s, rank)) {
    RANK_TRUE(mine.first == 0 && mine.end == 0);
    RANK_FAILS(TREADLE_REFUSED, "has no trainer, which says what rows each rank takes: ask rank",
               treadle_actor_divide(actor, lengths, ROWS, &forward, by_rank));
  } else {
    RANK_OK(treadle_actor_divide(actor, lengths, ROWS, &forward, by_rank));
    RANK_TRUE(by_rank[rank].end > by_rank[rank].first);
    for (int r = 0; r < s->ranks; r++) {
      RANK_TRUE(is_trainer(s, r) || by_rank[r].end == 0);
      if (by_rank[r].end > end) end = by_rank[r].end;
    }
    RANK_TRUE(end == ROWS);
  }
  RANK_OK(treadle_batch_create(ROWS, &out));
  RANK_FAILS(TREADLE_REFUSED,
             "has no trainer, and was given 10 rows: treadle_actor_slice gives each rank its own",
             treadle_actor_compute_log_prob(actor, all, &forward, out));
  treadle_batch_destroy(out);
  RANK_FAILS(TREADLE_REFUSED, "has no generator, and was given 5 prompts",
             treadle_actor_generate_sequences(actor, s->prompts, NULL, NULL, &out));
  return 0;
}

/* The same prompts again: no weights move for them. */
static int check_version(treadle_group *group, treadle_actor *actor, const scene *s, int round) {
  treadle_actor_info before = TREADLE_INIT(treadle_actor_info), after = before;
  treadle_batch *again;
  RANK_OK(treadle_actor_get_info(actor, &before));
  RANK_OK(generate(group, actor, s, round, &again));
  RANK_OK(treadle_actor_get_info(actor, &after));
  treadle_batch_destroy(again);
  RANK_TRUE(before.version == (uint64_t)round + 1 && after.version == before.version);
  RANK_TRUE(before.mode == TREADLE_INFER && after.mode == TREADLE_INFER);
  return 0;
}

/* A step, and its figures: those of training, where it is. */
static int train(treadle_actor *actor, scene *s, const treadle_batch *all, int round, int rank) {
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  const bool trains = is_trainer(s, rank);
  uint64_t before = 0, after = 0;
  RANK_OK(treadle_actor_weights_digest(actor, &before));
  figures.steps = 99;
  RANK_OK(update(actor, all, &figures));
  RANK_TRUE(figures.steps == (trains ? round + 1 : 0) && (figures.grad_norm > 0) == trains);
  RANK_OK(treadle_actor_weights_digest(actor, &after));
  RANK_TRUE(after && after != before);
  s->rounds[round].digests[rank] = after;
  s->rounds[round].norms[rank] = figures.grad_norm;
  return 0;
}

static int go_round(treadle_group *group, treadle_actor *actor, scene *s, int round) {
  const int rank = treadle_group_rank(group);
  treadle_batch *all;
  RANK_OK(generate(group, actor, s, round, &all));
  if (rank == 0) RANK_OK(keep_answers(all, &s->rounds[round]));
  if (is_apart(s) && check_version(group, actor, s, round)) return 1;
  RANK_OK(compute(actor, all, rank, &s->rounds[round]));
  if (train(actor, s, all, round, rank)) return 1;
  if (is_apart(s) && round == 0 && check_rows(actor, s, all, rank)) return 1;
  treadle_batch_destroy(all);
  return 0;
}

static int run(treadle_group *group, void *context) {
  scene *s = context;
  const int rank = treadle_group_rank(group);
  treadle_actor_memory by_rank[MOST];
  treadle_actor_info info = TREADLE_INIT(treadle_actor_info);
  treadle_actor *actor;
  RANK_OK(make(group, s, by_rank, &actor));
  RANK_OK(treadle_actor_randomise(actor, 7));
  if (check_memory(actor, &by_rank[rank])) return 1;
  for (int round = 0; round < ROUNDS; round++)
    if (go_round(group, actor, s, round) || check_memory(actor, &by_rank[rank])) return 1;
  RANK_OK(treadle_actor_get_info(actor, &info));
  RANK_TRUE(info.peak_bytes == by_rank[rank].peak_bytes || ranks_nodes); /* foreseen is one node */
  RANK_TRUE((!s->budget || info.peak_bytes <= s->budget) && is_full(s, &info));
  RANK_TRUE((info.kv_blocks > 0) == treadle_layout_holds(s->layouts[1], rank));
  RANK_TRUE(is_apart(s) || info.peak_bytes > 0);
  treadle_actor_destroy(actor);
  return 0;
}

/* ---- Pairs of layouts -------------------------------------------------------------------------------------- */

static treadle_batch *make_prompts(void) {
  static const int32_t ids[] = {3, 1, 4, 1, 5, 9, 2, 6};
  static int64_t seeds[PROMPTS] = {5, 4, 3, 2, 1};
  rows_row rows[PROMPTS];
  treadle_batch *prompts;
  treadle_column seed = {
      .struct_size = sizeof seed, .name = "seed", .type = TREADLE_COLUMN_INT64, .width = 1, .data = seeds};
  for (size_t i = 0; i < PROMPTS; i++) rows[i] = (rows_row){ids + i % 3, NULL, 2 + i % 4, 2 + i % 4};
  assert_ok(rows_batch(rows, PROMPTS, &prompts));
  assert_ok(treadle_batch_remove(prompts, "ids"));
  assert_ok(treadle_batch_add(prompts, &seed));
  return prompts;
}

static void open_layouts(scene *s, const treadle_model *model) {
  assert_ok(treadle_layout_create(model, s->train, s->ranks, NULL, &s->layouts[0]));
  const treadle_layout_options map = {.struct_size = sizeof map,
                                      .rank_map = s->strided ? TREADLE_STRIDED : TREADLE_CONTIGUOUS,
                                      .train = s->layouts[0]};
  assert_ok(treadle_layout_create(model, s->infer, s->ranks, &map, &s->layouts[1]));
}

static void run_scene(scene *s) {
  treadle_model *model = tiny_open();
  treadle_batch *prompts = make_prompts();
  s->prompts = prompts;
  open_layouts(s, model);
  ranks_as_threads(s->ranks, 60, 0, run, s);
  treadle_batch_destroy(prompts);
  treadle_layout_destroy(s->layouts[0]);
  treadle_layout_destroy(s->layouts[1]);
  treadle_model_close(model);
}

/* Of some rank that has the row. */
static const float *log_probs_of(const scene *s, const round_of *r, int row) {
  for (int rank = 0; rank < s->ranks; rank++)
    if (r->has[rank][row]) return r->log_probs[rank] + (size_t)row * RESPONSE;
  fail_msg("%s, %s: no rank has the log-probabilities of row %d", s->train, s->infer, row);
  return NULL;
}

static double norm_of(const scene *s, const round_of *r) {
  double most = 0;
  for (int rank = 0; rank < s->ranks; rank++)
    if (r->norms[rank] > most) most = r->norms[rank];
  return most;
}

static void compare(const scene *a, const scene *b) {
  for (int round = 0; round < ROUNDS; round++) {
    const round_of *x = &a->rounds[round], *y = &b->rounds[round];
    assert_memory_equal(x->ids, y->ids, sizeof x->ids);
    assert_memory_equal(x->rollout, y->rollout, sizeof x->rollout);
    for (int row = 0; row < ROWS; row++) {
      assert_memory_equal(log_probs_of(a, x, row), log_probs_of(b, y, row), RESPONSE * sizeof(float));
      assert_memory_equal(log_probs_of(a, x, row), x->rollout + (size_t)row * RESPONSE,
                          RESPONSE * sizeof(float));
    }
    assert_true(norm_of(a, x) == norm_of(b, y));
    for (int rank = 0; rank < b->ranks; rank++) assert_true(x->digests[0] == y->digests[rank]);
  }
  assert_memory_not_equal(a->rounds[0].rollout, a->rounds[1].rollout, sizeof a->rounds[0].rollout);
}

static const struct pair {
  const char *together, *train, *infer;
  int trainers, ranks;
  bool strided;
} pairs[] = {
    {"megatron:tp=2,dtype=fp32", "megatron:tp=2,dtype=fp32,on=0-1", "vllm:tp=1,dtype=fp32,on=2-3", 2, 4,
     false},
    {"megatron:tp=2,dtype=fp32", "megatron:tp=2,dtype=fp32,on=2-3", "vllm:tp=2,dtype=fp32,on=0-1", 2, 4,
     false},
    {"megatron:dtype=bf16", "megatron:dtype=bf16,on=\"0,3\"", "vllm:tp=2,dtype=bf16,on=1-2", 2, 4, false},
    {"megatron:dtype=bf16", "megatron:on=0,dtype=bf16", "vllm:dtype=bf16,on=1", 1, 2, false},
    {"megatron:pp=2,dtype=fp32", "megatron:pp=2,dtype=fp32,on=\"0,2\"", "vllm:dtype=fp32,on=1", 2, 3,
     false},
    {"fsdp2:dtype=fp32", "fsdp2:dtype=fp32,on=1-2", "vllm:dtype=fp32,on=0", 2, 3, false},
    {"megatron:tp=4,dtype=fp32", "megatron:tp=4,dtype=fp32,on=4-7", "vllm:tp=2,dtype=fp32,on=0-3", 4, 8,
     true},
};

static void test_pairs(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(pairs); i++) {
    const struct pair *p = &pairs[i];
    const bool bf16 = strstr(p->train, "bf16") != NULL;
    scene *s = calloc(2, sizeof *s);
    assert_non_null(s);
    s[0] = (scene){.train = p->together,
                   .infer = bf16 ? "vllm:tp=1,dtype=bf16" : "vllm:tp=1,dtype=fp32",
                   .ranks = p->trainers};
    s[1] = (scene){.train = p->train, .infer = p->infer, .ranks = p->ranks, .strided = p->strided};
    run_scene(&s[0]);
    run_scene(&s[1]);
    compare(&s[0], &s[1]);
    free(s);
  }
}

/* The trainer on one node, the generator on the other. */
static void test_nodes(void **state) {
  scene *s = calloc(2, sizeof *s);
  (void)state;
  assert_non_null(s);
  s[0] = (scene){.train = pairs[0].together, .infer = "vllm:dtype=fp32", .ranks = 2};
  s[1] = (scene){.train = pairs[0].train, .infer = pairs[0].infer, .ranks = 4};
  run_scene(&s[0]);
  ranks_nodes = ranks_in_pairs;
  run_scene(&s[1]);
  ranks_nodes = NULL;
  compare(&s[0], &s[1]);
  free(s);
}

/* Ranks with a budget: the cache takes what is left, on ranks that have one. */
static void test_budget(void **state) {
  (void)state;
  for (size_t i = 0; i < 3; i++) {
    scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    *s = (scene){
        .train = pairs[i % 2].train, .infer = pairs[i % 2].infer, .ranks = 4, .budget = (6 << 20) + 1234};
    ranks_nodes = i == 2 ? ranks_in_pairs : NULL;
    run_scene(s);
    free(s);
  }
  ranks_nodes = NULL;
}

/* ---- Engines that fail, or take their time ------------------------------------------------------------------ */

static const int32_t toy_ids[] = {3, 1, 4};
static const rows_row toy_row = {toy_ids, NULL, 3, 3};

static treadle_status toy_generate(treadle_actor *actor, float *generated_p) {
  treadle_batch *prompts = NULL, *mine = NULL, *answers = NULL;
  treadle_column column = TREADLE_INIT(treadle_column);
  treadle_status status;
  *generated_p = 0;
  TRY(rows_batch(&toy_row, 1, &prompts));
  TRY(treadle_actor_slice_prompts(actor, prompts, NULL, NULL, &mine));
  TRY(treadle_actor_generate_sequences(actor, mine, NULL, NULL, &answers));
  TRY(treadle_batch_column(answers, "rollout_log_probs", &column));
  if (treadle_batch_rows(answers)) *generated_p = *(const float *)column.data;
out:
  treadle_batch_destroy(prompts);
  treadle_batch_destroy(mine);
  treadle_batch_destroy(answers);
  return status;
}

static treadle_status toy_update(treadle_actor *actor) {
  const treadle_loss_options loss = {.struct_size = sizeof loss, .name = "nll"};
  const treadle_optimizer_step step = {.struct_size = sizeof step, .lr = 0.1};
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_batch *batch = NULL, *mine = NULL;
  treadle_status status;
  TRY(rows_batch(&toy_row, 1, &batch));
  TRY(treadle_actor_slice(actor, batch, &forward, NULL, &mine));
  TRY(treadle_actor_update(actor, mine, &forward, &loss, &step, NULL, &figures));
out:
  treadle_batch_destroy(batch);
  treadle_batch_destroy(mine);
  return status;
}

/* The generator has the weights that the trainer has now. */
static int check_generated(treadle_actor *actor, int rank) {
  float generated;
  uint64_t digest;
  RANK_OK(toy_generate(actor, &generated));
  RANK_OK(treadle_actor_weights_digest(actor, &digest));
  RANK_TRUE(rank == 0 || generated == toy_logprob(digest));
  return 0;
}

static treadle_status toy_make(treadle_group *group, const scene *s, toy *engines,
                               treadle_actor **actor_p) {
  const treadle_trainer_options trainer = {.struct_size = sizeof trainer, .threads = 1, .most_rows = 32};
  const treadle_actor_options options = {.struct_size = sizeof options,
                                         .trainer = &trainer,
                                         .page_bytes = PAGE,
                                         .kv_bytes = 10 * TOY_BLOCK,
                                         .open_train = toy_open_train,
                                         .train_context = engines,
                                         .open_infer = toy_open_infer,
                                         .infer_context = engines};
  return treadle_actor_create(group, s->layouts[0], s->layouts[1], &options, actor_p);
}

static treadle_status take_long(treadle_batch **answers_p) {
  (void)answers_p;
  sleep(7);
  return TREADLE_OK;
}

/* Rank 0 trains, rank 1 generates. A function that fails once fails the call on both, and the next call makes up for it. */
static int fail_once(treadle_group *group, void *context) {
  static const struct {
    int rank;
    const char *function;
  } cases[] = {{1, "bind"}, {1, "unbind"}, {1, "generate"}};
  const int rank = treadle_group_rank(group);
  toy engines = {0};
  treadle_actor *actor;
  float generated;
  engines.fails = rank == 0 ? "open_train" : NULL;
  RANK_FAILS(TREADLE_SYSTEM, "open_train does not want to", toy_make(group, context, &engines, &actor));
  RANK_TRUE(engines.open == 0);
  RANK_OK(toy_make(group, context, &engines, &actor));
  RANK_TRUE(engines.open == 1); /* the rank's own */
  RANK_FAILS(TREADLE_STATE, "the worker has no weights", toy_generate(actor, &generated));
  RANK_OK(treadle_actor_randomise(actor, 1));
  if (check_generated(actor, rank)) return 1;
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    RANK_OK(toy_update(actor));
    if (rank == cases[i].rank) engines.fails = cases[i].function;
    RANK_FAILS(TREADLE_SYSTEM, "does not want to", toy_generate(actor, &generated));
    if (check_generated(actor, rank)) return 1;
  }
  if (rank == 0) engines.fails = "update";
  RANK_FAILS(TREADLE_SYSTEM, "update does not want to", toy_update(actor));
  if (check_generated(actor, rank)) return 1;
  RANK_OK(treadle_actor_enter(actor, TREADLE_INFER));
  RANK_FAILS(TREADLE_STATE, "update needs train mode, and the worker stays in infer mode",
             toy_update(actor));
  RANK_OK(treadle_actor_exit(actor, TREADLE_INFER));
  RANK_OK(toy_update(actor));
  if (check_generated(actor, rank)) return 1;
  treadle_actor_destroy(actor);
  RANK_TRUE(engines.open == 0);
  return 0;
}

/* The n-th allocation of both ranks fails while they make their workers, for each n: none is made on either, and the group goes on. */
static int starve(treadle_group *group, void *context) {
  bool last = false;
  for (long n = 1; !last; n += n < 40 ? 1 : n / 8) {
    toy engines = {0};
    treadle_actor *actor = NULL;
    int made[2] = {0}, mine;
    RANK_OK(treadle_group_barrier(group));
    const long before = treadle_alloc_count();
    RANK_OK(treadle_group_barrier(group));
    if (treadle_group_rank(group) == 0) treadle_alloc_fail_at(n);
    RANK_OK(treadle_group_barrier(group));
    (void)toy_make(group, context, &engines, &actor);
    RANK_OK(treadle_group_barrier(group));
    last = treadle_alloc_count() - before < n;
    RANK_OK(treadle_group_barrier(group));
    if (treadle_group_rank(group) == 0) treadle_alloc_fail_at(0);
    mine = actor != NULL;
    RANK_OK(treadle_group_gather(group, &mine, sizeof mine, made));
    RANK_TRUE(made[0] == made[1] && (mine || !last));
    treadle_actor_destroy(actor);
    RANK_TRUE(engines.open == 0);
  }
  return 0;
}

/* Longer than ranks wait for each other elsewhere. */
static int be_patient(treadle_group *group, void *context) {
  toy engines = {.spoil = take_long};
  treadle_actor *actor;
  RANK_OK(toy_make(group, context, &engines, &actor));
  RANK_OK(treadle_actor_randomise(actor, 1));
  if (check_generated(actor, treadle_group_rank(group))) return 1;
  treadle_actor_destroy(actor);
  return 0;
}

static void test_engines(void **state) {
  scene s = {.train = "megatron:vocab_divisible_by=1,on=0", .infer = "vllm:on=1", .ranks = 2};
  treadle_model *model = tiny_open();
  (void)state;
  open_layouts(&s, model);
  ranks_as_threads(2, 60, 0, fail_once, &s);
  ranks_as_threads(2, 6, 0, be_patient, &s);
  ranks_as_threads(2, 60, 0, starve, &s);
  treadle_layout_destroy(s.layouts[0]);
  treadle_layout_destroy(s.layouts[1]);
  treadle_model_close(model);
}

/* ---- Refusals ------------------------------------------------------------------------------------------------ */

static const struct {
  const char *train, *infer, *words;
  bool reference;
} refused[] = {
    {"megatron:tp=2,on=0-1", "vllm:tp=1",
     "layout 'megatron:tp=2,on=0-1' is on 2 of 4 ranks, layout 'vllm' on all", false},
    {"megatron:tp=2", "vllm:tp=1,on=3",
     "layout 'vllm:on=3' is on 1 of 4 ranks, layout 'megatron:tp=2' on all", false},
    {"megatron:tp=2,on=0-1", "vllm:tp=1,on=1-3",
     "rank 1 is in on= of layout 'megatron:tp=2,on=0-1' and of layout 'vllm:on=1-3'", false},
    {"megatron:tp=2,on=0-1", "vllm:tp=1,on=0-1", "rank 0 is in on= of layout", false},
    {"megatron:tp=2,on=0-1", "vllm:tp=1,on=3",
     "rank 2 is in on= of neither layout 'megatron:tp=2,on=0-1' nor", false},
    {"megatron:tp=2,on=0-1", "vllm:tp=1,on=2-3", "such a worker has no reference: leave it out", true},
};

static int refuse(treadle_group *group, void *context) {
  const treadle_model *model = context;
  for (size_t i = 0; i < TEST_COUNT(refused); i++) {
    treadle_layout *train, *infer;
    treadle_actor_options options = TREADLE_INIT(treadle_actor_options);
    treadle_actor_memory by_rank[MOST];
    treadle_actor *actor;
    RANK_OK(treadle_layout_create(model, refused[i].train, 4, NULL, &train));
    RANK_OK(treadle_layout_create(model, refused[i].infer, 4, NULL, &infer));
    if (refused[i].reference) options.reference = train;
    RANK_FAILS(TREADLE_REFUSED, refused[i].words,
               treadle_actor_create(group, train, infer, &options, &actor));
    RANK_TRUE(actor == NULL);
    RANK_FAILS(TREADLE_REFUSED, refused[i].words, treadle_actor_foresee(train, infer, &options, by_rank));
    treadle_layout_destroy(train);
    treadle_layout_destroy(infer);
  }
  return 0;
}

static void test_refusals(void **state) {
  treadle_model *model = tiny_open();
  (void)state;
  ranks_as_threads(4, 60, 0, refuse, model);
  treadle_model_close(model);
}

/* ---- A rank that dies ---------------------------------------------------------------------------------------- */

typedef struct death {
  const scene *s;
  int victim;
} death;

/* Before the second answers: the others, of its side and of the other one, are told. */
static int lose_one(const char *name, int rank, int size, void *context) {
  const death *d = context;
  treadle_actor_memory by_rank[MOST];
  treadle_group *group;
  treadle_actor *actor;
  treadle_batch *all;
  RANK_OK(treadle_group_open(name, rank, size, 60, &group));
  RANK_OK(make(group, d->s, by_rank, &actor));
  RANK_OK(treadle_actor_randomise(actor, 7));
  RANK_OK(generate(group, actor, d->s, 0, &all));
  if (rank == d->victim) raise(SIGKILL);
  RANK_FAILS(TREADLE_PEER, "rank", generate(group, actor, d->s, 1, &all));
  treadle_actor_destroy(actor);
  treadle_group_close(group);
  return 0;
}

static void test_death(void **state) {
  scene s = {.train = pairs[0].train, .infer = pairs[0].infer, .ranks = DEAD};
  treadle_model *model = tiny_open();
  treadle_batch *prompts = make_prompts();
  (void)state;
  s.prompts = prompts;
  open_layouts(&s, model);
  for (int victim = 1; victim < DEAD; victim++) {
    int results[DEAD];
    ranks_as_processes(DEAD, 120, lose_one, &(death){&s, victim}, results);
    for (int rank = 0; rank < DEAD; rank++)
      assert_int_equal(results[rank], rank == victim ? 128 + SIGKILL : 0);
  }
  treadle_batch_destroy(prompts);
  treadle_layout_destroy(s.layouts[0]);
  treadle_layout_destroy(s.layouts[1]);
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_death),   cmocka_unit_test(test_pairs),
                                     cmocka_unit_test(test_nodes),   cmocka_unit_test(test_budget),
                                     cmocka_unit_test(test_engines), cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
