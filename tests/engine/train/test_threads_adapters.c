/* Adapters of ranks that compute together have the bits of one rank, over threads: gradients after a step, and the weights that they are merged
 * into. Ranks of another layout get the same merged weights in place as `treadle convert --lora` writes. Memory is what was predicted, and that of
 * gradients and optimizer a small part of full training's. */
/* ctest: stage=gcc label=threads timeout=300 */
#include "test.h"
#include "train/rows.h"

#include "base/alloc.h"
#include "group/group.h"
#include "treadle_builtin.h"
#include "treadle_tools.h"

#include <pthread.h>
#include <sys/stat.h>

enum { ROWS = 4, LENGTH = 40, RANKS_MOST = 8 };

static treadle_status fill(int words, treadle_batch **batch_p) {
  int32_t ids[ROWS][LENGTH];
  rows_row rows[ROWS];
  for (int r = 0; r < ROWS; r++) {
    rows[r] = (rows_row){ids[r], NULL, (size_t)(12 + 9 * r), 0};
    for (int i = 0; i < LENGTH; i++) ids[r][i] = (i * 37 + r * 11) % words;
  }
  return rows_batch(rows, ROWS, batch_p);
}

typedef struct one_rank {
  treadle_group *group; /* NULL: alone */
  const char *model, *layout, *infer;
  treadle_trainer_options options;
  int rank, ranks;
  const char *folder; /* the state goes there; NULL: nowhere */
  const char *merged; /* a model with the adapters in it, to compare with; NULL: none */
  bool random;        /* the model has no weights, and 16 tokens */
  treadle_status status;
  char message[512];
  uint64_t digest, weights;
  double norm;
  size_t bytes;
  treadle_trainer_memory plan;
} one_rank;

/* What this rank has of the infer layout: the base with adapters, as a merged model has it. */
static treadle_status compare_merged(const one_rank *r, treadle_trainer *trainer,
                                     const treadle_model *base) {
  treadle_layout *infer = NULL, *of_merged = NULL;
  treadle_model *merged = NULL;
  char *mine = NULL, *theirs = NULL;
  size_t bytes;
  treadle_status status;
  TRY(treadle_model_open(r->merged, NULL, &merged));
  TRY(treadle_layout_create(base, r->infer, r->ranks, NULL, &infer));
  TRY(treadle_layout_create(merged, r->infer, r->ranks, NULL, &of_merged));
  bytes = treadle_layout_window_bytes(infer, r->rank);
  mine = aligned_alloc(64, (bytes + 63) / 64 * 64);
  theirs = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (!mine || !theirs) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory"));
  memset(mine, 0, bytes); /* what lies between tensors, too */
  memset(theirs, 0, bytes);
  TRY(treadle_layout_load(infer, r->rank, mine));
  TRY(treadle_layout_load(of_merged, r->rank, theirs));
  if (memcmp(mine, theirs, bytes) == 0) TRY(treadle_fail(TREADLE_DIFFERENT, "the adapters change nothing"));
  TRY(treadle_trainer_gather_adapters(trainer));
  TRY(treadle_trainer_merge_adapters(trainer, infer, r->rank, mine));
  if (memcmp(mine, theirs, bytes) != 0)
    TRY(treadle_fail(TREADLE_DIFFERENT, "%s: merged weights are not those that were converted", r->infer));
out:
  free(mine);
  free(theirs);
  treadle_layout_destroy(infer);
  treadle_layout_destroy(of_merged);
  treadle_model_close(merged);
  return status;
}

static treadle_status run(one_rank *r) {
  treadle_model *model = NULL;
  treadle_layout *layout = NULL;
  treadle_trainer *trainer = NULL;
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  treadle_trainer_memory memory[RANKS_MOST];
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  const treadle_optimizer_step step = {
      .struct_size = sizeof step, .lr = 0.01, .weight_decay = 0.1, .clip_grad = 1};
  const treadle_forward_options forward = {.struct_size = sizeof forward, .micro_batch_size = 1};
  const treadle_loss_options nll = {.struct_size = sizeof nll, .name = "nll"};
  treadle_batch *all = NULL, *mine = NULL;
  treadle_status status;
  TRY(fill(r->random ? 16 : 128, &all));
  TRY(treadle_model_open(r->model, NULL, &model));
  TRY(treadle_layout_create(model, r->layout, r->ranks, NULL, &layout));
  TRY(treadle_trainer_create(r->group, layout, &r->options, &trainer));
  TRY(r->random ? treadle_trainer_randomise(trainer, 7) : treadle_trainer_load(trainer));
  TRY(treadle_trainer_slice(trainer, all, &forward, NULL, &mine));
  for (int turn = 0; turn < 3; turn++) {
    TRY(treadle_trainer_gradients(trainer, mine, &forward, &nll, NULL, &loss));
    if (turn < 2) TRY(treadle_trainer_step(trainer, &step, &figures));
  }
  TRY(treadle_trainer_norm(trainer, &r->norm));
  TRY(treadle_trainer_digest(trainer, &r->digest));
  TRY(treadle_trainer_weights_digest(trainer, &r->weights));
  if (r->folder) TRY(treadle_trainer_save(trainer, r->folder));
  if (r->merged) TRY(compare_merged(r, trainer, model));
  r->bytes = treadle_trainer_bytes(trainer);
  TRY(treadle_trainer_foresee(layout, &r->options, memory));
  r->plan = memory[r->rank];
out:
  snprintf(r->message, sizeof r->message, "%s", status ? treadle_error_message() : "");
  treadle_trainer_destroy(trainer);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
  treadle_batch_destroy(mine);
  treadle_batch_destroy(all);
  return status;
}

static void *start(void *context) {
  one_rank *r = context;
  r->status = run(r);
  return NULL;
}

/* rank 0 of this many, all of which fared alike. */
static one_rank run_ranks(const one_rank *like, const char *layout, int ranks) {
  treadle_group *groups[RANKS_MOST] = {NULL};
  pthread_t threads[RANKS_MOST];
  one_rank all[RANKS_MOST];
  assert_ok(treadle_group_threads(ranks, 60, groups));
  for (int i = 0; i < ranks; i++) {
    all[i] = *like;
    all[i].group = groups[i];
    all[i].layout = layout;
    all[i].rank = i;
    all[i].ranks = ranks;
    assert_int_equal(pthread_create(&threads[i], NULL, start, &all[i]), 0);
  }
  for (int i = 0; i < ranks; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (int i = 0; i < ranks; i++) treadle_group_close(groups[i]);
  for (int i = 0; i < ranks; i++) {
    if (all[i].status) fail_msg("%s, %s, rank %d: %s", like->model, layout, i, all[i].message);
    if (all[i].bytes != all[i].plan.peak)
      fail_msg("%s, %s, rank %d: holds %zu bytes, %zu were predicted", like->model, layout, i, all[i].bytes,
               all[i].plan.peak);
    assert_true(all[i].digest == all[0].digest && all[i].weights == all[0].weights &&
                all[i].norm == all[0].norm);
  }
  return all[0];
}

static one_rank like_of(char path[512], const char *model, const char *modules) {
  snprintf(path, 512, "%s/tests/golden/models/%s", TREADLE_SOURCE_DIR, model);
  return (one_rank){.model = path,
                    .ranks = 1,
                    .options = {.struct_size = sizeof(treadle_trainer_options),
                                .threads = 1,
                                .most_rows = 64,
                                .optimizer = true,
                                .lora_rank = 5,
                                .lora_alpha = 7,
                                .lora_modules = modules,
                                .lora_gather = true,
                                .lora_seed = 3}};
}

typedef struct cut {
  const char *layout;
  int ranks;
} cut;

/* Odd ranks, all matrices or some, both types. */
static void test_same_bits(void **state) {
  (void)state;
  static const cut cuts[] = {{"megatron:tp=1", 1},
                             {"megatron:tp=2", 2},
                             {"megatron:pp=2", 2},
                             {"megatron:tp=2,pp=2", 4},
                             {"megatron:tp=2,pp=2,vpp=2", 4},
                             {"fsdp2:dp=1", 1}};
  static const char *const models[] = {"llama-gqa-llama3rope", "qwen2-tied"},
                           *const modules[] = {NULL, "q_proj, down_proj"},
                           *const dtypes[] = {"fp32", "bf16"};
  for (int m = 0; m < 2; m++)
    for (int d = 0; d < 2; d++) {
      char path[512], layout[64];
      one_rank alone = like_of(path, models[m], modules[(m + d) % 2]);
      alone.layout = layout;
      snprintf(layout, sizeof layout, "hf:dtype=%s", dtypes[d]);
      if (run(&alone)) fail_msg("%s", alone.message);
      for (size_t c = 0; c < TEST_COUNT(cuts); c++) {
        one_rank like = alone;
        char text[64];
        like.options.recompute = c % 2;
        like.options.sequence_parallel = c / 2 % 2;
        snprintf(text, sizeof text, "%s,dtype=%s", cuts[c].layout, dtypes[d]);
        one_rank got = run_ranks(&like, text, cuts[c].ranks);
        if (got.digest != alone.digest || got.weights != alone.weights || got.norm != alone.norm)
          fail_msg("%s, %s: other bits", models[m], text);
      }
    }
}

/* The head: on ranks that have some of its rows, all or nothing but padding, in groups that divide experts and in others; also of a rank above
 * the hidden size. like: what has these bits. */
static void test_head(void **state) {
  (void)state;
  static const char dense[] = "llama-gqa-llama3rope", sparse[] = "dsv3-yarn", *const two = "megatron:tp=1";
  static const struct {
    const char *model, *dtype, *modules, *like, *layout;
    int ranks_like, ranks, rank;
  } cases[] = {{dense, "fp32", "lm_head", "hf", "megatron:tp=2", 1, 2, 5},
               {dense, "bf16", "all-linear,lm_head", "hf", "megatron:tp=2,pp=2", 1, 4, 5},
               {dense, "bf16", "lm_head,o_proj", "hf", "megatron:pp=2,vpp=2", 1, 2, 70},
               {dense, "bf16", "lm_head,o_proj", "hf", "megatron:tp=2", 1, 2, 70},
               {dense, "fp32", "lm_head,v_proj", "hf", "fsdp2:dp=1", 1, 1, 5},
               {sparse, "fp32", "lm_head,down_proj", "hf", "megatron:tp=4", 1, 4, 5},
               {sparse, "bf16", "lm_head,down_proj", "hf", "megatron:tp=4,pp=2", 1, 8, 5},
               {sparse, "bf16", "down_proj,lm_head", "hf", "megatron:tp=2,ep=2,etp=1", 1, 2, 3},
               {sparse, "bf16", "down_proj,lm_head", two, "megatron:ep=2", 2, 2, 3},
               {sparse, "fp32", "down_proj,lm_head", two, "megatron:tp=4,ep=4,etp=1", 2, 8, 3}};
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    char path[512], text[2][96];
    one_rank like = like_of(path, cases[i].model, cases[i].modules);
    like.options.lora_rank = cases[i].rank;
    like.options.recompute = i % 2;
    snprintf(text[0], sizeof text[0], "%s%cdtype=%s", cases[i].like, strchr(cases[i].like, ':') ? ',' : ':',
             cases[i].dtype);
    snprintf(text[1], sizeof text[1], "%s,dtype=%s", cases[i].layout, cases[i].dtype);
    const one_rank wanted = run_ranks(&like, text[0], cases[i].ranks_like),
                   got = run_ranks(&like, text[1], cases[i].ranks);
    if (got.digest != wanted.digest || got.weights != wanted.weights || got.norm != wanted.norm)
      fail_msg("%s, %s: other bits", cases[i].model, text[1]);
  }
}

/* Replicas and shards add up micro batches in one tree: they agree with each other, whoever has the optimizer's state. */
static void test_replicas(void **state) {
  (void)state;
  static const cut cuts[] = {
      {"fsdp2:dtype=bf16", 2}, {"megatron:tp=2,dtype=bf16", 4}, {"megatron:pp=2,dtype=bf16", 4}};
  static const char *const models[] = {"qwen2-tied", "llama-gqa-llama3rope", "dsv3-yarn"},
                           *const modules[] = {NULL, "lm_head,up_proj", NULL};
  for (int m = 0; m < 3; m++) {
    char path[512];
    one_rank like = like_of(path, models[m], modules[m]);
    const one_rank first = run_ranks(&like, "megatron:tp=1,dtype=bf16", 2);
    for (size_t c = 0; c < TEST_COUNT(cuts); c++)
      for (int divided = 0; divided < 2; divided++) {
        like.options.distributed_optimizer = divided;
        const one_rank got = run_ranks(&like, cuts[c].layout, cuts[c].ranks);
        if (got.digest != first.digest || got.weights != first.weights)
          fail_msg("%s, %s: other bits", models[m], cuts[c].layout);
        if (divided) assert_true(got.plan.optimizer < first.plan.optimizer);
      }
  }
}

static void convert(const char *model, const char *adapters, const char *out) {
  const treadle_convert_options options = {.struct_size = sizeof options,
                                           .in = model,
                                           .out = out,
                                           .from = "hf",
                                           .to = "hf:dtype=bf16",
                                           .lora = adapters};
  treadle_convert *c;
  assert_ok(treadle_convert_open(&options, &c));
  assert_ok(treadle_convert_compare(c));
  assert_ok(treadle_convert_begin(c));
  assert_ok(treadle_convert_write(c));
  assert_ok(treadle_convert_finish(c));
  treadle_convert_close(c);
}

static void test_merged(void **state) {
  (void)state;
  static const struct {
    const char *model, *modules, *train, *infer;
    int ranks;
  } pairs[] = {
      {"qwen2-tied", NULL, "megatron:tp=2,dtype=bf16", "vllm:tp=1,dtype=bf16", 2},
      {"qwen2-tied", NULL, "megatron:tp=2,pp=2,dtype=bf16", "vllm:tp=4,dtype=bf16", 4},
      {"qwen2-tied", NULL, "megatron:tp=2,pp=2,dtype=bf16", "sglang:tp=2,dtype=bf16", 4},
      {"qwen2-tied", NULL, "fsdp2:dtype=bf16", "vllm:tp=2,dtype=bf16", 2},
      {"llama-gqa-llama3rope", "lm_head", "megatron:tp=2,dtype=bf16", "vllm:tp=1,dtype=bf16", 2},
      {"llama-gqa-llama3rope", "lm_head,q_proj", "megatron:pp=2,dtype=bf16", "sglang:tp=2,dtype=bf16", 2},
      {"dsv3-yarn", "lm_head,down_proj", "megatron:tp=4,dtype=bf16", "vllm:tp=4,dtype=bf16", 4},
      {"dsv3-yarn", NULL, "megatron:tp=2,dtype=bf16", "vllm:tp=2,dtype=bf16", 2},
      {"dsv3-yarn", NULL, "megatron:tp=2,pp=2,dtype=bf16", "sglang:tp=4,dtype=bf16", 4},
      {"dsv3-yarn", "kv_b_proj", "fsdp2:dtype=bf16", "vllm:tp=1,dtype=bf16", 2}};
  char path[512], folder[] = "/tmp/treadle-test-XXXXXX", merged[64], adapters[80], saved[64];
  assert_non_null(mkdtemp(folder));
  for (size_t i = 0; i < TEST_COUNT(pairs); i++) {
    one_rank like = like_of(path, pairs[i].model, pairs[i].modules);
    snprintf(saved, sizeof saved, "%s/%zu", folder, i);
    snprintf(adapters, sizeof adapters, "%s/lora_adapter", saved);
    snprintf(merged, sizeof merged, "%s/merged-%zu", folder, i);
    assert_int_equal(mkdir(saved, 0777), 0);
    like.folder = saved;
    (void)run_ranks(&like, pairs[i].train, pairs[i].ranks);
    convert(path, adapters, merged);
    like.folder = NULL;
    like.merged = merged;
    like.infer = pairs[i].infer;
    (void)run_ranks(&like, pairs[i].train, pairs[i].ranks);
  }
  test_remove(folder);
}

/* Of the bytes that full training has in gradients and optimizer. */
static void test_memory(void **state) {
  (void)state;
  char path[512];
  one_rank like = like_of(path, "qwen2-tied", "q_proj,v_proj");
  like.layout = "hf:dtype=bf16";
  like.options.lora_rank = 1;
  if (run(&like)) fail_msg("%s", like.message);
  const treadle_trainer_memory adapters = like.plan;
  like.options.lora_rank = 0;
  like.options.lora_gather = false;
  if (run(&like)) fail_msg("%s", like.message);
  assert_true(adapters.params == like.plan.params);
  assert_true(adapters.optimizer == 2 * adapters.grads);
  assert_true(10 * (adapters.grads + adapters.optimizer) < like.plan.grads + like.plan.optimizer);
}

/* Adapters beside experts, and beside latent attention, which has none. Where data parallel ranks have different experts, adapters have the
 * bits of data parallel ranks with all of them. */
static void test_experts(void **state) {
  static const struct {
    const char *model, *modules, *layout, *like;
    int ranks, ranks_like;
  } cases[] = {{"qwen2moe", NULL, "megatron:ep=2", "megatron:tp=1", 2, 2},
               {"qwen2moe", NULL, "megatron:tp=2,ep=4,etp=1", "megatron:tp=1", 4, 2},
               {"qwen2moe", "q_proj,down_proj", "megatron:tp=2,ep=2,etp=1", "hf", 2, 1},
               {"dsv3-yarn", "gate_proj,up_proj,down_proj", "megatron:tp=2,pp=2,ep=2,etp=1", "hf", 4, 1},
               {"dsv3-yarn", "gate_proj", "megatron:ep=2", "megatron:tp=1", 2, 2}};
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    char path[512];
    one_rank like = like_of(path, cases[i].model, cases[i].modules);
    const one_rank wanted = run_ranks(&like, cases[i].like, cases[i].ranks_like),
                   got = run_ranks(&like, cases[i].layout, cases[i].ranks);
    if (got.digest != wanted.digest || got.weights != wanted.weights)
      fail_msg("%s, %s: other bits", cases[i].model, cases[i].layout);
  }
}

/* Of latent attention: with narrow queries and without; one matrix after the other, and all of them. */
static void test_latent(void **state) {
  static const cut cuts[] = {{"megatron:tp=2", 2},
                             {"megatron:tp=4", 4},
                             {"megatron:pp=2", 2},
                             {"megatron:tp=2,pp=2", 4},
                             {"fsdp2:dp=1", 1}};
  static const struct {
    const char *model, *modules;
  } cases[] = {{"v3", NULL},
               {"v2", NULL},
               {"v3", "kv_b_proj"},
               {"v2", "kv_b_proj, o_proj"},
               {"v3", "q_a_proj, q_b_proj"},
               {"v2", "q_proj, kv_a_proj_with_mqa"},
               {"v3-experts", NULL}};
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(cases) * 2; i++) {
    const char *model = cases[i / 2].model, *dtype = i % 2 ? "bf16" : "fp32";
    char path[512], layout[64];
    one_rank alone = like_of(path, model, cases[i / 2].modules);
    snprintf(path, sizeof path, "%s/tests/data/latent/%s", TREADLE_SOURCE_DIR, model);
    snprintf(layout, sizeof layout, "hf:dtype=%s", dtype);
    alone.layout = layout;
    alone.random = true;
    if (run(&alone)) fail_msg("%s", alone.message);
    for (size_t c = i % 2; c < TEST_COUNT(cuts); c += cases[i / 2].modules ? 2 : 1) {
      one_rank like = alone;
      char text[64];
      like.options.recompute = (c + i) % 2;
      like.options.sequence_parallel = c / 2 % 2;
      like.options.threads = 1 + (int)(c / 2 % 2);
      snprintf(text, sizeof text, "%s,dtype=%s", cuts[c].layout, dtype);
      const one_rank got = run_ranks(&like, text, cuts[c].ranks);
      if (got.digest != alone.digest || got.weights != alone.weights || got.norm != alone.norm)
        fail_msg("%s, %s, %s: other bits", model, cases[i / 2].modules ? cases[i / 2].modules : "all",
                 text);
    }
  }
}

/* Of the demo's policy, whose 4 layers have q_proj and v_proj of [128, 128], and whose head is [16, 128]: fp32 gradients of A [16, 128] and B [128, 16], and two moments.
 * Tensor parallel ranks divide the rows of B, stages the layers; with fsdp2 each rank has all adapters. Full training has fp32 masters, too. */
static void test_memory_of_policy(void **state) {
  (void)state;
  enum { LAYERS = 4, RANK = 16, WIDTH = 128, ADAPTERS = LAYERS * 2 * RANK };
  static const char both[] = "q_proj,v_proj", head[] = "lm_head";
  static const struct {
    const char *modules, *layout;
    int ranks;
    size_t elems;
  } cuts[] = {{both, "hf:dtype=bf16", 1, ADAPTERS * 2 * WIDTH},
              {both, "megatron:tp=2,dtype=bf16", 2, ADAPTERS * (WIDTH + WIDTH / 2)},
              {both, "megatron:tp=2,pp=2,dtype=bf16", 8, ADAPTERS / 2 * (WIDTH + WIDTH / 2)},
              {both, "fsdp2:dtype=bf16", 2, ADAPTERS * 2 * WIDTH},
              {head, "hf:dtype=bf16", 1, RANK * (WIDTH + 16)},
              {head, "fsdp2:dtype=bf16", 2, RANK * (WIDTH + 16)}};
  treadle_trainer_options options = {
      .struct_size = sizeof options, .threads = 1, .most_rows = 64, .optimizer = true};
  treadle_model *model;
  assert_ok(treadle_model_open(TREADLE_SOURCE_DIR "/examples/sequence/policy", NULL, &model));
  for (size_t c = 0; c < TEST_COUNT(cuts); c++) {
    treadle_trainer_memory adapters[RANKS_MOST], full[RANKS_MOST];
    treadle_layout *layout;
    assert_ok(treadle_layout_create(model, cuts[c].layout, cuts[c].ranks, NULL, &layout));
    options.lora_rank = 0;
    options.lora_modules = NULL;
    assert_ok(treadle_trainer_foresee(layout, &options, full));
    options.lora_rank = RANK;
    options.lora_modules = cuts[c].modules;
    assert_ok(treadle_trainer_foresee(layout, &options, adapters));
    for (int r = 0; r < cuts[c].ranks; r++) {
      assert_int_equal(adapters[r].params, full[r].params);
      assert_int_equal(adapters[r].grads, cuts[c].elems * sizeof(float));
      assert_int_equal(adapters[r].optimizer, 2 * cuts[c].elems * sizeof(float));
      assert_true(10 * (adapters[r].grads + adapters[r].optimizer) < full[r].grads + full[r].optimizer);
    }
    treadle_layout_destroy(layout);
  }
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_same_bits), cmocka_unit_test(test_head),
      cmocka_unit_test(test_replicas),  cmocka_unit_test(test_merged),
      cmocka_unit_test(test_memory),    cmocka_unit_test(test_experts),
      cmocka_unit_test(test_latent),    cmocka_unit_test(test_memory_of_policy)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
