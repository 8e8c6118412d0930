/* What a worker with the built-in engines holds, on two ranks, with each choice of what leaves the device in mode INFER: each class in each mode, by
 * sizes that the switch did not reckon; at most what the plan said (the figures of treadle train --plan); as many KV blocks as the rest of its
 * share has room for, and more with each class that leaves. The reference is there while its log-probabilities are computed, and never else.
 * ctest: label=threads */
#include "control/tiny.h"
#include "group/ranks.h"
#include "test.h"
#include "train/rows.h"

#include "control/actor_switch.h"
#include "switch/switch.h"

enum {
  PAGE = 4096,
  RANKS = 2,
  SHARE = (5 << 20) + 1234,
  KV_LEAST = 1 << 16,
  FLAGS = 3,
  COMBINATIONS = 1 << FLAGS
};
static const treadle_class flagged[FLAGS] = {TREADLE_PARAMS, TREADLE_GRADS, TREADLE_OPTIMIZER};

typedef struct scene {
  treadle_layout *train, *infer; /* train: of the reference, too */
  unsigned leaves;               /* bit i: flagged[i] leaves the device in mode INFER */
  bool optimizer;
  size_t share;          /* of a rank; 0: what it needs, with a cache of KV_LEAST at least */
  int64_t blocks[RANKS]; /* of the KV cache: a result */
  size_t bytes[FLAGS], block_bytes;
} scene;

/* What a rank has, and should hold. */
typedef struct worker {
  const scene *s;
  treadle_actor *actor;
  treadle_trainer_options trainer;
  treadle_generator_options engine;
  size_t train
      [TREADLE_CLASSES]; /* of classes of training, in whole pages; of the reference, when it is there */
  size_t forward, infer; /* work memory of mode FORWARD, infer params: in whole pages */
  size_t work, block, outside; /* of the engine that generates; outside: in no window */
  treadle_actor_memory plan;

  treadle_status (*logprobs)(void *engine, const treadle_batch *batch, const treadle_forward_options *with,
                             const void *weights, treadle_batch *out);
  size_t peak;               /* as the worker told */
  bool in_reference, strays; /* strays: the reference was there at another time */
  int shown;                 /* how often the trainer had its weights */
  treadle_observer books;
} worker;

static _Thread_local worker *here; /* of this rank */

static size_t whole(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

/* ---- What is seen of a worker ---- */

static void see(void *context, const size_t *bytes, int classes) {
  worker *w = context;
  size_t sum = 0;
  for (int c = 0; c < classes; c++) sum += bytes[c];
  if (sum > w->peak) w->peak = sum;
  if (bytes[TREADLE_REFERENCE] && !w->in_reference) w->strays = true;
}

/* The built-in trainer's, with a look at what is on the device. */
static treadle_status see_logprobs(void *engine, const treadle_batch *batch,
                                   const treadle_forward_options *with, const void *weights,
                                   treadle_batch *out) {
  const treadle_switch *sw = treadle_actor_switch(here->actor);
  const size_t there = treadle_switch_resident(sw, TREADLE_REFERENCE);
  if (there != (weights ? here->train[TREADLE_REFERENCE] : 0))
    return treadle_fail(TREADLE_DIFFERENT, "%zu bytes of the reference are there", there);
  if (weights &&
      (treadle_switch_resident(sw, TREADLE_GRADS) || treadle_switch_resident(sw, TREADLE_OPTIMIZER)))
    return treadle_fail(TREADLE_DIFFERENT, "state of training is beside the reference");
  here->shown += weights != NULL;
  return here->logprobs(engine, batch, with, weights, out);
}

static treadle_status open_train(void *context, treadle_group *group, const treadle_layout *layout,
                                 const treadle_trainer_options *options, treadle_train_engine *engine_p) {
  treadle_status status = treadle_trainer_open_engine(NULL, group, layout, options, engine_p);
  (void)context;
  here->logprobs = engine_p->logprobs;
  engine_p->logprobs = see_logprobs;
  return status;
}

static treadle_actor_options options_of(worker *w) {
  const scene *s = w->s;
  const treadle_choice choices[] = {TREADLE_OFF, TREADLE_ON};
  w->trainer = (treadle_trainer_options){
      .struct_size = sizeof w->trainer, .threads = 1, .most_rows = 64, .optimizer = s->optimizer};
  w->engine = (treadle_generator_options){.struct_size = sizeof w->engine,
                                          .threads = 1,
                                          .max_batch = 4,
                                          .block_tokens = 5,
                                          .prefill_chunk = 16,
                                          .max_len = 64};
  w->books = (treadle_observer){.struct_size = sizeof w->books, .context = w, .memory = see};
  return (treadle_actor_options){.struct_size = sizeof(treadle_actor_options),
                                 .trainer = &w->trainer,
                                 .engine = &w->engine,
                                 .reference = s->train,
                                 .offload_train_param = choices[s->leaves & 1],
                                 .offload_train_grad = choices[s->leaves >> 1 & 1],
                                 .offload_train_optimizer = choices[s->leaves >> 2 & 1],
                                 .keep = s->share ? TREADLE_KEEP_HOST : TREADLE_KEEP_INFER,
                                 .page_bytes = PAGE,
                                 .kv_bytes = KV_LEAST,
                                 .budget_bytes = s->share,
                                 .open_train = open_train,
                                 .observer = &w->books};
}

/* Sizes by the engines' own plans, and the worker's plan. */
static int measure(worker *w, int rank, const treadle_actor_options *options) {
  const scene *s = w->s;
  treadle_trainer_memory of_train[RANKS];
  treadle_generator_memory of_infer[RANKS];
  treadle_actor_memory plans[RANKS];
  RANK_OK(treadle_actor_train_memory(s->train, &w->trainer, of_train));
  RANK_OK(treadle_generator_foresee(s->infer, &w->engine, of_infer));
  RANK_OK(treadle_actor_foresee(s->train, s->infer, options, plans));
  w->train[TREADLE_PARAMS] = w->train[TREADLE_REFERENCE] =
      whole(treadle_layout_window_bytes(s->train, rank));
  w->train[TREADLE_GRADS] = whole(of_train[rank].grads);
  w->train[TREADLE_OPTIMIZER] = whole(of_train[rank].optimizer);
  w->train[TREADLE_TRAIN_WORK] = whole(of_train[rank].work);
  w->forward = whole(of_train[rank].forward);
  w->infer = whole(treadle_layout_window_bytes(s->infer, rank));
  w->work = of_infer[rank].work;
  w->block = of_infer[rank].kv_block;
  w->outside = of_infer[rank].board + of_train[rank].board;
  w->plan = plans[rank];
  return 0;
}

static int make(treadle_group *group, scene *s, worker *w) {
  const int rank = treadle_group_rank(group);
  *w = (worker){.s = s};
  here = w;
  const treadle_actor_options options = options_of(w);
  treadle_actor_info info = TREADLE_INIT(treadle_actor_info);
  if (measure(w, rank, &options)) return 1;
  RANK_OK(treadle_actor_create(group, s->train, s->infer, &options, &w->actor));
  RANK_OK(treadle_actor_get_info(w->actor, &info));
  s->blocks[rank] = info.kv_blocks;
  if (rank) return 0;
  for (int f = 0; f < FLAGS; f++) s->bytes[f] = w->train[flagged[f]];
  s->block_bytes = w->block;
  return 0;
}

/* ---- Residency ---- */

static bool stays(const scene *s, treadle_class which) {
  for (int f = 0; f < FLAGS; f++)
    if (flagged[f] == which) return !(s->leaves >> f & 1);
  return false;
}

/* How many blocks of the KV cache there are beside the others. */
static int64_t blocks_of(const worker *w, const size_t others[TREADLE_CLASSES]) {
  if (!w->s->share) return w->plan.kv_blocks;
  size_t room = (w->s->share - w->outside) / PAGE * PAGE + w->outside;
  for (int c = 0; c < TREADLE_CLASSES; c++) room -= others[c];
  return (int64_t)(room / w->block);
}

/* What each class has in a mode. away: gradients and optimizer state have left for the reference. */
static void expect(const worker *w, treadle_mode mode, bool away, size_t bytes[TREADLE_CLASSES]) {
  memset(bytes, 0, TREADLE_CLASSES * sizeof *bytes);
  bytes[TREADLE_WORK] = w->outside;
  for (int f = 0; f < FLAGS; f++)
    if (mode == TREADLE_TRAIN || (stays(w->s, flagged[f]) && !(away && f > 0)))
      bytes[flagged[f]] = w->train[flagged[f]];
  if (mode == TREADLE_INFER) {
    bytes[TREADLE_INFER_PARAMS] = w->infer;
    bytes[TREADLE_WORK] += whole(w->work);
    bytes[TREADLE_KV] = whole((size_t)blocks_of(w, bytes) * w->block);
  } else {
    bytes[TREADLE_PARAMS] = w->train[TREADLE_PARAMS];
    bytes[TREADLE_TRAIN_WORK] = mode == TREADLE_TRAIN ? w->train[TREADLE_TRAIN_WORK] : w->forward;
  }
}

static int check(const worker *w, treadle_mode mode, bool away) {
  treadle_actor_info info = TREADLE_INIT(treadle_actor_info);
  size_t wanted[TREADLE_CLASSES];
  expect(w, mode, away, wanted);
  RANK_OK(treadle_actor_get_info(w->actor, &info));
  RANK_TRUE(info.mode == mode);
  for (int c = 0; c < TREADLE_CLASSES; c++) {
    if (info.bytes[c] == wanted[c] && (away || w->plan.by_mode[mode][c] == wanted[c])) continue;
    fprintf(stderr, "mode %s, class %s: %zu bytes, %zu are wanted, %zu were planned\n",
            treadle_mode_text(mode), treadle_class_text((treadle_class)c), info.bytes[c], wanted[c],
            w->plan.by_mode[mode][c]);
    return 1;
  }
  RANK_TRUE(w->peak == info.peak_bytes && info.peak_bytes <= w->plan.peak_bytes);
  RANK_TRUE(!w->s->share || info.peak_bytes <= w->s->share);
  return 0;
}

/* ---- A round ---- */

static const int32_t ids[] = {3, 1, 4, 1, 5, 9, 2, 6};
static const uint8_t mask[] = {0, 0, 1, 1, 1, 1, 1, 1};
static const rows_row row = {ids, mask, TEST_COUNT(ids), 2};
static const treadle_forward_options forward = {.struct_size = sizeof forward, .micro_batch_size = 1};
static const rows_row asked[RANKS] = {{ids, NULL, 3, 3}, {ids, NULL, 3, 3}};

static treadle_status slope(void *context, const treadle_loss_row *r) {
  (void)context;
  for (int64_t i = 0; i < r->count; i++) r->by_log_prob[i] = -1;
  return TREADLE_OK;
}

/* Its log-probabilities, of the policy or of the reference. */
static treadle_status compute(treadle_actor *actor, const treadle_batch *batch, bool reference) {
  treadle_batch *out;
  treadle_status status = rows_out(batch, &out);
  if (!status)
    status = reference ? treadle_actor_compute_ref_log_prob(actor, batch, &forward, out)
                       : treadle_actor_compute_log_prob(actor, batch, &forward, out);
  treadle_batch_destroy(out);
  return status;
}

/* Each replica has one of the prompts. */
static treadle_status generate(treadle_actor *actor) {
  treadle_sampling sampling = TREADLE_SAMPLING_INIT;
  treadle_batch *prompts = NULL, *mine = NULL, *answers = NULL;
  treadle_status status;
  sampling.max_tokens = 5;
  sampling.ignore_eos = true;
  TRY(rows_batch(asked, RANKS, &prompts));
  TRY(treadle_actor_slice_prompts(actor, prompts, NULL, NULL, &mine));
  TRY(treadle_actor_generate_sequences(actor, mine, &sampling, NULL, &answers));
  if (treadle_batch_rows(answers) != 1)
    status = treadle_fail(TREADLE_DIFFERENT, "%lld answers", (long long)treadle_batch_rows(answers));
out:
  treadle_batch_destroy(prompts);
  treadle_batch_destroy(mine);
  treadle_batch_destroy(answers);
  return status;
}

static int go_round(treadle_actor *actor, worker *w) {
  const treadle_loss_options own = {.struct_size = sizeof own, .of_row = slope};
  const treadle_optimizer_step step = {.struct_size = sizeof step, .lr = 0.01};
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_batch *batch;
  RANK_OK(rows_batch(&row, 1, &batch));
  RANK_OK(generate(actor));
  if (check(w, TREADLE_INFER, false)) return 1;
  RANK_OK(compute(actor, batch, false));
  if (check(w, TREADLE_FORWARD, false)) return 1;
  w->in_reference = true;
  RANK_OK(compute(actor, batch, true));
  w->in_reference = false;
  if (check(w, TREADLE_FORWARD, true)) return 1;
  RANK_OK(compute(actor, batch, false));
  RANK_OK(treadle_actor_update(actor, batch, &forward, &own, &step, NULL, &figures));
  treadle_batch_destroy(batch);
  return check(w, TREADLE_TRAIN, false);
}

static int run(treadle_group *group, void *context) {
  scene *s = context;
  worker w;
  if (make(group, s, &w)) return 1;
  RANK_TRUE(s->blocks[treadle_group_rank(group)] == w.plan.kv_blocks);
  RANK_TRUE(w.plan.kv_blocks >= (int64_t)(KV_LEAST / w.block));
  RANK_OK(treadle_actor_randomise(w.actor, 1));
  RANK_OK(treadle_actor_load_reference(w.actor));
  if (check(&w, TREADLE_TRAIN, false)) return 1;
  for (int round = 1; round <= 2; round++) {
    if (go_round(w.actor, &w)) return 1;
    RANK_TRUE(w.shown == round && !w.strays);
  }
  RANK_TRUE(w.peak == w.plan.peak_bytes);
  treadle_actor_destroy(w.actor);
  return 0;
}

/* Made, and looked at no further. */
static int count(treadle_group *group, void *context) {
  worker w;
  if (make(group, context, &w)) return 1;
  treadle_actor_destroy(w.actor);
  return 0;
}

/* ---- All choices ---- */

/* More blocks by one class that leaves: its bytes, up to a block that is not whole. */
static void compare(const scene *less, const scene *more, int flag) {
  for (int rank = 0; rank < RANKS; rank++) {
    const int64_t gain = more->blocks[rank] - less->blocks[rank];
    const int64_t bytes = (int64_t)less->bytes[flag], block = (int64_t)less->block_bytes;
    if (gain < bytes / block || gain > bytes / block + 1 || (bytes && !gain))
      fail_msg("rank %d, leaving %x and %x: %lld and %lld blocks of %lld bytes; the class has %lld", rank,
               less->leaves, more->leaves, (long long)less->blocks[rank], (long long)more->blocks[rank],
               (long long)block, (long long)bytes);
  }
}

static void try_all(size_t share, bool optimizer, ranks_body body) {
  treadle_model *model = tiny_open();
  treadle_layout *train, *infer;
  scene all[COMBINATIONS];
  assert_ok(treadle_layout_create(model, "megatron:tp=2", RANKS, NULL, &train));
  assert_ok(treadle_layout_create(model, "vllm:tp=1", RANKS, NULL, &infer));
  for (unsigned leaves = 0; leaves < COMBINATIONS; leaves++) {
    all[leaves] =
        (scene){.train = train, .infer = infer, .leaves = leaves, .optimizer = optimizer, .share = share};
    ranks_as_threads(RANKS, 60, 0, body, &all[leaves]);
  }
  for (unsigned leaves = 0; share && leaves < COMBINATIONS; leaves++)
    for (int flag = 0; flag < FLAGS; flag++)
      if (!(leaves >> flag & 1)) compare(&all[leaves], &all[leaves | 1U << flag], flag);
  assert_true(all[0].bytes[0] && all[0].bytes[1] && !all[0].bytes[2] == !optimizer);
  treadle_layout_destroy(train);
  treadle_layout_destroy(infer);
  treadle_model_close(model);
}

static void test_share(void **state) {
  (void)state;
  try_all(SHARE, true, run);
}

static void test_no_share(void **state) {
  (void)state;
  try_all(0, true, run);
}

/* A class without bytes makes no room. */
static void test_no_optimizer(void **state) {
  (void)state;
  try_all(SHARE, false, count);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_share), cmocka_unit_test(test_no_share),
                                     cmocka_unit_test(test_no_optimizer)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
