/* Exact mode through the worker: what was generated in one layout has the same log-probabilities, bit for bit, when the trainer computes them in
 * another one; before the weights are trained and after. One bit of one weight that the generator has and the trainer has not shows.
 * TREADLE_EXACT=N: this many tokens for each kind of model (2000). */
/* ctest: label=threads timeout=600 */
#include "control/tiny.h"
#include "group/ranks.h"
#include "test.h"

#include "treadle_loop.h"

enum { RANKS_MOST = 8, PAGE = 4096, PROMPT_MOST = 9, RESPONSE = 20, LENGTH = PROMPT_MOST + RESPONSE };
enum { SAMPLES = 2, MICRO = 4, ROUNDS = 2, TOKENS = 2000 };
static const double temperatures[ROUNDS] = {1, 0.7};

static const struct pair {
  const char *train, *infer;
  int ranks;
  bool experts; /* of a model that has some */
  int lora;     /* adapters of this rank train; 0: the weights do */
} pairs[] = {
    {"megatron:tp=2,dtype=bf16", "vllm:tp=1,dtype=bf16", 2, false, 0},
    {"megatron:tp=2,dtype=fp32", "vllm:tp=2,dtype=fp32", 2, false, 0},
    {"megatron:tp=2,dtype=bf16", "sglang:tp=4,dtype=bf16", 4, false, 0},
    {"megatron:tp=4,dtype=fp32", "vllm:tp=2,dtype=fp32", 4, false, 0},
    {"megatron:tp=4,dtype=bf16", "vllm:tp=4,dtype=bf16", 4, false, 0},
    {"megatron:pp=2,dtype=bf16", "vllm:tp=2,dtype=bf16", 2, false, 0},
    {"megatron:tp=2,pp=2,dtype=bf16", "vllm:tp=1,dtype=bf16", 4, false, 0},
    {"megatron:tp=2,pp=2,dtype=fp32", "sglang:tp=2,dtype=fp32", 4, false, 0},
    {"fsdp2:dtype=bf16", "vllm:tp=1,dtype=bf16", 2, false, 0},
    {"fsdp2:dtype=fp32", "vllm:tp=4,dtype=fp32", 4, false, 0},
    {"megatron:tp=2,ep=2,etp=1,dtype=bf16", "vllm:tp=2,dtype=bf16", 2, true, 0},
    {"megatron:pp=2,dtype=bf16", "vllm:dp=2,ep=on,dtype=bf16", 2, true, 0}, /* groups */
    {"megatron:tp=2,pp=2,ep=2,etp=1,dtype=fp32", "vllm:tp=2,dp=2,ep=on,dtype=fp32", 4, true, 0},
    {"megatron:tp=4,pp=2,ep=4,etp=1,dtype=bf16", "vllm:tp=2,dp=4,ep=on,dtype=bf16", 8, true, 0},
    {"megatron:tp=2,ep=4,etp=1,dtype=bf16", "vllm:tp=4,dtype=bf16", 4, true, 0}, /* groups that train */
    {"megatron:tp=2,pp=2,dtype=bf16", "vllm:tp=1,dtype=bf16", 4, false, 4},
    {"megatron:tp=2,dtype=fp32", "sglang:tp=4,dtype=fp32", 4, false, 3},
    {"fsdp2:dtype=bf16", "vllm:tp=2,dtype=bf16", 2, false, 8},
};

/* With latent attention, narrow queries and rotation of neighbours. */
static const char latent_model[] = TREADLE_SOURCE_DIR "/tests/data/latent/v3/config.json";
static const struct pair latent_pairs[] = {
    {"megatron:tp=2,pp=2,dtype=bf16", "vllm:tp=4,dtype=bf16", 4, false, 0},
    {"megatron:tp=4,dtype=fp32", "sglang:tp=2,dtype=fp32", 4, false, 0},
    {"fsdp2:dtype=bf16", "vllm:tp=2,dtype=bf16", 2, false, 0},
    {"megatron:tp=2,pp=2,dtype=bf16", "vllm:tp=4,dtype=bf16", 4, false, 4},
    {"megatron:tp=4,dtype=fp32", "sglang:tp=2,dtype=fp32", 4, false, 3},
    {"fsdp2:dtype=bf16", "vllm:tp=1,dtype=bf16", 2, false, 8},
};
/* And with experts, of which a shared one. */
static const char sparse_model[] = TREADLE_SOURCE_DIR "/tests/golden/models/dsv3-yarn";
static const struct pair sparse_pairs[] = {
    {"megatron:tp=2,pp=2,ep=2,etp=1,dtype=bf16", "vllm:tp=2,dp=2,ep=on,dtype=bf16", 4, true, 0},
    {"megatron:tp=2,pp=2,ep=2,etp=1,dtype=bf16", "vllm:tp=2,dp=2,ep=on,dtype=bf16", 4, true, 4},
};

/* The head has adapters, and more rows than a leaf of the vocabulary: each rank has some of them, or nothing but padding; or few, on one rank. */
static const char wide_model[] = TREADLE_SOURCE_DIR "/tests/golden/models/llama-gqa-llama3rope";
static const struct pair wide_pairs[] = {
    {"megatron:tp=2,pp=2,dtype=bf16", "vllm:tp=1,dtype=bf16", 4, false, 4},
    {"megatron:tp=2,dtype=fp32", "sglang:tp=2,dtype=fp32", 2, false, 3},
    {"fsdp2:dtype=bf16", "vllm:tp=2,dtype=bf16", 2, false, 8},
};
static const struct pair sparse_head_pairs[] = {
    {"megatron:tp=4,dtype=bf16", "vllm:tp=2,dtype=bf16", 4, true, 4},
};
static const struct pair few_pairs[] = {
    {"megatron:tp=2,pp=2,dtype=bf16", "vllm:tp=4,dtype=bf16", 4, false, 4},
};

/* Of a pair, or of the part of it that a rank sees. */
typedef struct scene {
  const struct pair *pair;
  const char *modules; /* that have adapters; NULL: all of layers */
  treadle_layout *train, *infer;
  treadle_batch *prompts;
  int count;  /* of them */
  bool flips; /* a bit, before the second round */
  int64_t compared[ROUNDS][RANKS_MOST], differing[ROUNDS][RANKS_MOST];
} scene;

/* Many begin like the one before. */
static treadle_batch *make_prompts(int count) {
  treadle_column ids = {.struct_size = sizeof ids, .name = "prompt_ids", .type = TREADLE_COLUMN_INT32};
  int64_t *offsets = calloc((size_t)count + 1, sizeof *offsets);
  treadle_batch *prompts;
  assert_non_null(offsets);
  for (int i = 0; i < count; i++) offsets[i + 1] = offsets[i] + 1 + (i * 5 + 3) % PROMPT_MOST;
  ids.offsets = offsets;
  assert_ok(treadle_batch_create(count, &prompts));
  assert_ok(treadle_batch_add(prompts, &ids));
  free(offsets);
  assert_ok(treadle_batch_column(prompts, "prompt_ids", &ids));
  for (int i = 0; i < count; i++)
    for (int64_t k = ids.offsets[i]; k < ids.offsets[i + 1]; k++)
      ((int32_t *)ids.data)[k] =
          k == ids.offsets[i] ? 3 : (int32_t)((k - ids.offsets[i]) * 7 + i / 3) % TINY_VOCABULARY;
  return prompts;
}

/* ---- A round of a rank ------------------------------------------------------------------------------------- */

static treadle_status slope(void *context, const treadle_loss_row *row) {
  (void)context;
  for (int64_t i = 0; i < row->count; i++) row->by_log_prob[i] = (row->row + i) % 3 ? -0.1 : 0.1;
  return TREADLE_OK;
}

/* The lowest bit of a weight of token 3, with which all prompts begin, in the infer window of rank 0. */
static treadle_status flip(const scene *s, const treadle_actor *actor) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  char *window = treadle_switch_infer_window(treadle_actor_switch(actor));
  for (int32_t i = 0; treadle_layout_storage(s->infer, 0, i, &info) == TREADLE_OK; i++) {
    if (!strstr(info.name, "embed_tokens")) continue;
    window[info.offset_bytes + 3 * info.bytes / TINY_VOCABULARY] ^= 1;
    return TREADLE_OK;
  }
  return treadle_fail(TREADLE_DIFFERENT, "there is no embedding");
}

/* Its rows of all answers: what its log-probabilities are, if it is given them. The ranks together see all. */
static treadle_status compare(scene *s, treadle_actor *actor, const treadle_batch *batch, int round,
                              int rank) {
  const treadle_forward_options forward = {
      .struct_size = sizeof forward, .micro_batch_size = MICRO, .temperature = temperatures[round]};
  treadle_column trained = TREADLE_INIT(treadle_column), generated = TREADLE_INIT(treadle_column);
  treadle_batch *mine = NULL, *out = NULL;
  treadle_row_range range;
  treadle_status status;
  TRY(treadle_actor_slice(actor, batch, &forward, &range, &mine));
  TRY(treadle_batch_create(range.end - range.first, &out));
  TRY(treadle_actor_compute_log_prob(actor, mine, &forward, out));
  if (!treadle_batch_has(out, "log_probs")) goto out;
  TRY(treadle_batch_column(out, "log_probs", &trained));
  TRY(treadle_batch_column(mine, "rollout_log_probs", &generated));
  for (int64_t r = 0; r < range.end - range.first; r++) {
    const float *a = (const float *)trained.data + trained.offsets[r],
                *b = (const float *)generated.data + generated.offsets[r];
    if (trained.offsets[r + 1] - trained.offsets[r] != RESPONSE ||
        generated.offsets[r + 1] - generated.offsets[r] != RESPONSE)
      TRY(treadle_fail(TREADLE_DIFFERENT, "row %lld has other tokens than it should",
                       (long long)(range.first + r)));
    for (int i = 0; i < RESPONSE; i++) s->differing[round][rank] += memcmp(&a[i], &b[i], sizeof *a) != 0;
    s->compared[round][rank] += RESPONSE;
  }
out:
  treadle_batch_destroy(mine);
  treadle_batch_destroy(out);
  return status;
}

/* A step with the first of them. */
static treadle_status train(treadle_actor *actor, const treadle_batch *batch, int round) {
  const treadle_forward_options forward = {
      .struct_size = sizeof forward, .micro_batch_size = MICRO, .temperature = temperatures[round]};
  const treadle_loss_options own = {.struct_size = sizeof own, .of_row = slope};
  const treadle_optimizer_step step = {.struct_size = sizeof step, .lr = 0.01};
  const int64_t rows = treadle_batch_rows(batch);
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_batch *some = NULL, *mine = NULL;
  treadle_status status;
  TRY(treadle_batch_slice(batch, 0, rows < 2 * MICRO ? rows : 2 * MICRO, &some));
  TRY(treadle_actor_slice(actor, some, &forward, NULL, &mine));
  TRY(treadle_actor_update(actor, mine, &forward, &own, &step, NULL, &figures));
out:
  treadle_batch_destroy(mine);
  treadle_batch_destroy(some);
  return status;
}

/* Of all ranks, behind their prompts. Each replica answers its own. */
static treadle_status generate(const scene *s, treadle_group *group, treadle_actor *actor, int round,
                               treadle_batch **all_p) {
  treadle_sampling sampling = TREADLE_SAMPLING_INIT;
  treadle_batch *mine = NULL, *answers = NULL, *prompts = NULL;
  bool leads;
  treadle_status status;
  sampling.n = SAMPLES;
  sampling.max_tokens = RESPONSE;
  sampling.ignore_eos = true;
  sampling.temperature = temperatures[round];
  sampling.seed = round;
  sampling.logprobs_of = TREADLE_LOGPROBS_SCALED;
  TRY(treadle_actor_slice_prompts(actor, s->prompts, NULL, &leads, &mine));
  TRY(treadle_actor_generate_sequences(actor, mine, &sampling, NULL, &answers));
  TRY(treadle_batch_gather(group, leads ? answers : NULL, all_p));
  TRY(treadle_batch_repeat(s->prompts, SAMPLES, true, &prompts));
  TRY(treadle_batch_union(*all_p, prompts));
out:
  treadle_batch_destroy(mine);
  treadle_batch_destroy(answers);
  treadle_batch_destroy(prompts);
  return status;
}

static treadle_status go_round(scene *s, treadle_group *group, treadle_actor *actor, int round, int rank) {
  treadle_batch *all = NULL;
  treadle_status status;
  TRY(treadle_actor_enter(actor, TREADLE_INFER));
  if (s->flips && round == 1 && rank == 0) TRY(flip(s, actor));
  TRY(generate(s, group, actor, round, &all));
  TRY(treadle_actor_exit(actor, TREADLE_INFER));
  TRY(compare(s, actor, all, round, rank));
  TRY(train(actor, all, round));
out:
  treadle_batch_destroy(all);
  return status;
}

static int run(treadle_group *group, void *context) {
  scene *s = context;
  const treadle_trainer_options trainer = {.struct_size = sizeof trainer,
                                           .threads = 1,
                                           .most_rows = MICRO * LENGTH,
                                           .optimizer = true,
                                           .lora_rank = s->pair->lora,
                                           .lora_modules = s->modules};
  const treadle_generator_options engine = {
      .struct_size = sizeof engine, .threads = 1, .max_batch = 16, .prefill_chunk = 16, .max_len = 64};
  const treadle_actor_options options = {.struct_size = sizeof options,
                                         .trainer = &trainer,
                                         .engine = &engine,
                                         .keep = s->flips || s->pair->lora ? TREADLE_KEEP_HOST
                                                                           : TREADLE_KEEP_INFER,
                                         .page_bytes = PAGE,
                                         .kv_bytes = 1 << 18};
  const int rank = treadle_group_rank(group);
  treadle_actor *actor;
  RANK_OK(treadle_actor_create(group, s->train, s->infer, &options, &actor));
  RANK_OK(treadle_actor_randomise(actor, 7));
  for (int round = 0; round < ROUNDS; round++) RANK_OK(go_round(s, group, actor, round, rank));
  treadle_actor_destroy(actor);
  return 0;
}

/* ---- Pairs ------------------------------------------------------------------------------------------------- */

/* What all ranks have compared, into what rank 0 has: each answer once. */
static void add_ranks(scene *s) {
  for (int round = 0; round < ROUNDS; round++) {
    for (int rank = 1; rank < s->pair->ranks; rank++) {
      s->compared[round][0] += s->compared[round][rank];
      s->differing[round][0] += s->differing[round][rank];
    }
    assert_int_equal(s->compared[round][0], s->count * SAMPLES * RESPONSE);
  }
}

/* path: of the model; NULL: the tiny one. */
static void run_pair(scene *s, const char *path, const struct pair *pair, int64_t tokens) {
  const int64_t each = SAMPLES * RESPONSE;
  treadle_model *model = NULL;
  if (path)
    assert_ok(treadle_model_open(path, NULL, &model));
  else
    model = pair->experts ? tiny_open_experts() : tiny_open();
  s->pair = pair;
  s->count = (int)((tokens + each - 1) / each);
  s->prompts = make_prompts(s->count);
  assert_ok(treadle_layout_create(model, pair->train, pair->ranks, NULL, &s->train));
  assert_ok(treadle_layout_create(model, pair->infer, pair->ranks, NULL, &s->infer));
  ranks_as_threads(pair->ranks, 120, 0, run, s);
  add_ranks(s);
  treadle_layout_destroy(s->train);
  treadle_layout_destroy(s->infer);
  treadle_model_close(model);
  treadle_batch_destroy(s->prompts);
}

static void check_modules(const char *path, const char *modules, const struct pair *list, size_t count) {
  const char *asked = getenv("TREADLE_EXACT");
  const int64_t tokens = asked ? strtoll(asked, NULL, 10) : TOKENS;
  const int64_t each = (tokens + (int64_t)count * ROUNDS - 1) / ((int64_t)count * ROUNDS);
  int64_t compared = 0;
  assert_true(tokens > 0);
  for (size_t i = 0; i < count; i++) {
    scene s = {.modules = modules};
    run_pair(&s, path, &list[i], each);
    for (int round = 0; round < ROUNDS; round++) {
      compared += s.compared[round][0];
      if (s.differing[round][0] || s.compared[round][0] < each)
        fail_msg(
            "%s, %s, round %d: %lld of %lld log-probabilities differ, of %lld that were to be compared",
            list[i].train, list[i].infer, round, (long long)s.differing[round][0],
            (long long)s.compared[round][0], (long long)each);
    }
  }
  printf("%lld tokens of %d pairs: none differs\n", (long long)compared, (int)count);
  assert_true(compared >= tokens);
}

static void check_pairs(const char *path, const struct pair *list, size_t count) {
  check_modules(path, NULL, list, count);
}

static void test_pairs(void **state) {
  (void)state;
  check_pairs(NULL, pairs, TEST_COUNT(pairs));
}

static void test_latent_pairs(void **state) {
  (void)state;
  check_pairs(latent_model, latent_pairs, TEST_COUNT(latent_pairs));
  check_pairs(sparse_model, sparse_pairs, TEST_COUNT(sparse_pairs));
}

static void test_heads(void **state) {
  (void)state;
  check_modules(wide_model, "all-linear,lm_head", wide_pairs, TEST_COUNT(wide_pairs));
  check_modules(wide_model, "lm_head,down_proj", wide_pairs, TEST_COUNT(wide_pairs));
  check_modules(sparse_model, "down_proj,lm_head", sparse_head_pairs, TEST_COUNT(sparse_head_pairs));
  check_modules(NULL, "all-linear,lm_head", few_pairs, TEST_COUNT(few_pairs));
}

/* The check above can fail: of two replicas the first has a weight of its own. */
static void test_flipped_bit(void **state) {
  (void)state;
  scene s = {.flips = true};
  run_pair(&s, NULL, &pairs[0], 8 * SAMPLES * RESPONSE);
  assert_int_equal(s.differing[0][0], 0);
  assert_true(s.differing[1][0] > 0 && s.differing[1][0] < s.compared[1][0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs), cmocka_unit_test(test_latent_pairs),
                                     cmocka_unit_test(test_heads), cmocka_unit_test(test_flipped_bit)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
