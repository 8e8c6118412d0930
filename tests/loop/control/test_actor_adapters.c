/* A worker whose trainer has adapters: the reference is the base, at no memory, whatever has been trained; and what merged weights could not be is
 * refused when the worker is made. */
/* ctest: label=threads */
#include "control/tiny.h"
#include "control/toy.h"
#include "test.h"
#include "train/rows.h"

#include "treadle_loop.h"

enum { PAGE = 4096 };

static const int32_t ids[] = {3, 1, 4, 1, 5, 9};
static const uint8_t mask[] = {0, 0, 1, 1, 1, 1};
static const rows_row row = {ids, mask, TEST_COUNT(ids), 2};
static const treadle_forward_options forward = {.struct_size = sizeof forward, .micro_batch_size = 1};

typedef struct scene {
  treadle_model *model;
  treadle_layout *train, *infer;
} scene;

/* path: of the model; NULL: the tiny one. */
static void open_scene(scene *s, const char *path, const char *train, const char *infer) {
  if (path)
    assert_ok(treadle_model_open(path, NULL, &s->model));
  else
    s->model = tiny_open();
  assert_ok(treadle_layout_create(s->model, train, 1, NULL, &s->train));
  assert_ok(treadle_layout_create(s->model, infer, 1, NULL, &s->infer));
}

static void close_scene(scene *s) {
  treadle_layout_destroy(s->train);
  treadle_layout_destroy(s->infer);
  treadle_model_close(s->model);
}

static const treadle_trainer_options trainer = {.struct_size = sizeof trainer,
                                                .threads = 1,
                                                .most_rows = 32,
                                                .optimizer = true,
                                                .lora_rank = 4,
                                                .lora_modules = "all-linear,lm_head"};
static const treadle_generator_options engine = {
    .struct_size = sizeof engine, .threads = 1, .max_batch = 2, .prefill_chunk = 16, .max_len = 64};

static treadle_actor_options options_of(treadle_keep keep) {
  return (treadle_actor_options){.struct_size = sizeof(treadle_actor_options),
                                 .trainer = &trainer,
                                 .engine = &engine,
                                 .keep = keep,
                                 .page_bytes = PAGE,
                                 .kv_bytes = 1 << 16};
}

static void compute(treadle_actor *actor, bool reference, float logprobs[TEST_COUNT(ids)]) {
  treadle_batch *batch, *out;
  assert_ok(rows_batch(&row, 1, &batch));
  assert_ok(rows_out(batch, &out));
  assert_ok((reference ? treadle_actor_compute_ref_log_prob
                       : treadle_actor_compute_log_prob)(actor, batch, &forward, out));
  assert_int_equal(rows_counted(batch, out, "log_probs", logprobs), TEST_COUNT(ids) - 2);
  treadle_batch_destroy(batch);
  treadle_batch_destroy(out);
}

static void update(treadle_actor *actor) {
  const treadle_loss_options nll = {.struct_size = sizeof nll, .name = "nll"};
  const treadle_optimizer_step step = {.struct_size = sizeof step, .lr = 0.1};
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_batch *batch;
  assert_ok(rows_batch(&row, 1, &batch));
  assert_ok(treadle_actor_update(actor, batch, &forward, &nll, &step, NULL, &figures));
  assert_int_equal(figures.skipped, 0);
  treadle_batch_destroy(batch);
}

static void check_reference(const char *path, const char *train) {
  enum { BYTES = (TEST_COUNT(ids) - 2) * sizeof(float) };
  const treadle_actor_options options = options_of(TREADLE_KEEP_HOST);
  treadle_actor_info info = TREADLE_INIT(treadle_actor_info);
  float first[TEST_COUNT(ids)], then[TEST_COUNT(ids)], policy[TEST_COUNT(ids)];
  treadle_actor *actor;
  scene s;
  open_scene(&s, path, train, "vllm:tp=1,dtype=bf16");
  assert_ok(treadle_actor_create(NULL, s.train, s.infer, &options, &actor));
  assert_ok(treadle_actor_randomise(actor, 5));
  compute(actor, false, policy);
  compute(actor, true, first);
  assert_memory_equal(policy, first, BYTES); /* B is 0 */
  for (int i = 0; i < 3; i++) update(actor);
  compute(actor, false, policy);
  compute(actor, true, then);
  assert_memory_equal(first, then, BYTES);
  assert_memory_not_equal(policy, then, BYTES);
  assert_ok(treadle_actor_load_reference(actor)); /* nothing to load */
  assert_ok(treadle_actor_get_info(actor, &info));
  assert_int_equal(info.peaks[TREADLE_REFERENCE], 0);
  treadle_actor_destroy(actor);
  close_scene(&s);
}

static void test_reference(void **state) {
  (void)state;
  check_reference(NULL, "hf:dtype=bf16");
}

/* Of latent attention, whose copies of a layer's weights are of the base, too. */
static void test_reference_of_latent(void **state) {
  (void)state;
  check_reference(TREADLE_SOURCE_DIR "/tests/data/latent/v3/config.json", "hf:dtype=bf16");
  check_reference(TREADLE_SOURCE_DIR "/tests/data/latent/v2/config.json", "fsdp2:dtype=bf16");
}

static void refused(const char *train, const char *infer, const treadle_actor_options *options,
                    const char *words) {
  treadle_actor_memory memory;
  treadle_actor *actor;
  scene s;
  open_scene(&s, NULL, train, infer);
  assert_refused(words, treadle_actor_create(NULL, s.train, s.infer, options, &actor));
  assert_refused(words, treadle_actor_foresee(s.train, s.infer, options, &memory));
  assert_null(actor);
  close_scene(&s);
}

static void test_refused(void **state) {
  (void)state;
  treadle_actor_options options = options_of(TREADLE_KEEP_HOST), keeps = options_of(TREADLE_KEEP_INFER);
  refused("hf:dtype=fp32", "vllm:tp=1,dtype=bf16", &options,
          "has one type in layout 'hf:dtype=fp32' and another in");
  refused("hf:dtype=bf16", "vllm:tp=1,dtype=bf16", &keeps, "keep=infer would train on merged weights");
}

/* An engine of others must gather and merge. */
static void test_table(void **state) {
  (void)state;
  toy one = {0};
  treadle_actor_options options = options_of(TREADLE_KEEP_HOST);
  treadle_actor *actor;
  scene s;
  options.open_train = toy_open_train;
  options.open_infer = toy_open_infer;
  options.train_context = options.infer_context = &one;
  open_scene(&s, NULL, "hf", "vllm:tp=1");
  assert_refused("lacks gather or merge, which lora_rank needs",
                 treadle_actor_create(NULL, s.train, s.infer, &options, &actor));
  close_scene(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference),
                                     cmocka_unit_test(test_reference_of_latent),
                                     cmocka_unit_test(test_refused), cmocka_unit_test(test_table)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
