/* The reward model of two ranks, at rest on the host and on the device: what it holds, which is what was foreseen, without gradients or optimizer state;
 * the scores of a trainer with both, before it rests and after. What asks a forward_only trainer for gradients is refused, and so is an engine
 * without scores.
 * ctest: label=threads */
#include "control/reward_model.h"
#include "group/ranks.h"
#include "test.h"
#include "train/rows.h"

#include "io/file.h"

#include <string.h>

enum { RANKS = 2, ROWS = 4, PAGE = 4096 };

static const char config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 64,\n"
    " \"intermediate_size\": 128, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,\n"
    " \"num_key_value_heads\": 4, \"vocab_size\": 16, \"max_position_embeddings\": 512, \"hidden_act\": "
    "\"silu\",\n"
    " \"rms_norm_eps\": 1e-06, \"rope_theta\": 10000.0, \"initializer_range\": 0.2,\n"
    " \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", \"eos_token_id\": 1}\n";

typedef struct scene {
  treadle_layout *layout;
  bool leaves;
  treadle_tenant_memory plan[RANKS];
} scene;

static const treadle_forward_options forward = {.struct_size = sizeof forward, .micro_batch_size = 1};

static treadle_trainer_options trainer_of(bool forward_only) {
  return (treadle_trainer_options){.struct_size = sizeof(treadle_trainer_options),
                                   .threads = 1,
                                   .most_tokens = 32,
                                   .most_rows = 32,
                                   .most_sequences = 1,
                                   .most_micro_batches = ROWS,
                                   .fewer_micro_batches = true,
                                   .optimizer = !forward_only,
                                   .forward_only = forward_only};
}

static treadle_tenant_options options_of(bool leaves, const treadle_trainer_options *trainer) {
  return (treadle_tenant_options){.trainer = trainer,
                                  .offload_param = leaves,
                                  .offload_grad = leaves,
                                  .offload_optimizer = leaves,
                                  .page_bytes = PAGE,
                                  .timeout_seconds = 60};
}

static size_t sum_of(const size_t *bytes) {
  size_t sum = 0;
  for (int c = 0; c < TREADLE_CLASSES; c++) sum += bytes[c];
  return sum;
}

/* The last one is a prompt without an answer. */
static treadle_status make_rows(treadle_batch **batch_p) {
  static const int32_t ids[] = {3, 7, 2, 9, 4, 11, 5};
  const rows_row rows[ROWS] = {{.ids = ids, .count = 7, .prompt = 2},
                               {.ids = ids + 1, .count = 5, .prompt = 1},
                               {.ids = ids + 2, .count = 4, .prompt = 2},
                               {.ids = ids, .count = 3, .prompt = 3}};
  return rows_batch(rows, ROWS, batch_p);
}

static treadle_status slice(const treadle_tenant *model, int rank, treadle_batch *all,
                            treadle_batch **mine_p) {
  static const int64_t lengths[ROWS] = {7, 5, 4, 3};
  treadle_row_range by_rank[RANKS];
  treadle_status status;
  TRY(treadle_tenant_divide(model, lengths, ROWS, &forward, by_rank));
  TRY(treadle_batch_slice(all, by_rank[rank].first, by_rank[rank].end, mine_p));
out:
  return status;
}

/* scores [rows]; *count_p: 0 where another rank of the coordinate has them. */
static void take_scores(const treadle_batch *out, double *scores, size_t *count_p) {
  treadle_column column = TREADLE_INIT(treadle_column);
  *count_p = 0;
  if (!treadle_batch_has(out, "score") || treadle_batch_column(out, "score", &column)) return;
  *count_p = (size_t)treadle_batch_rows(out);
  if (*count_p) memcpy(scores, column.data, *count_p * sizeof *scores);
}

static treadle_status scores_of(treadle_tenant *model, treadle_batch *mine, double *scores,
                                size_t *count_p) {
  treadle_batch *out = NULL;
  treadle_status status;
  TRY(rows_out(mine, &out));
  TRY(treadle_reward_model_compute_scores(model, mine, &forward, out));
  take_scores(out, scores, count_p);
out:
  treadle_batch_destroy(out);
  return status;
}

/* Those of a trainer that could train, too. */
static treadle_status expect(treadle_group *group, const treadle_layout *layout, treadle_batch *mine,
                             double *scores, size_t *count_p) {
  const treadle_trainer_options options = trainer_of(false);
  treadle_trainer *trainer = NULL;
  treadle_batch *out = NULL;
  treadle_status status;
  TRY(treadle_trainer_create(group, layout, &options, &trainer));
  TRY(treadle_trainer_randomise(trainer, 7));
  TRY(rows_out(mine, &out));
  TRY(treadle_trainer_scores(trainer, mine, &forward, out));
  take_scores(out, scores, count_p);
out:
  treadle_batch_destroy(out);
  treadle_trainer_destroy(trainer);
  return status;
}

static bool holds(const treadle_actor *beside, const size_t *bytes) {
  return memcmp(beside->books.now, bytes, TREADLE_CLASSES * sizeof *bytes) == 0 &&
         !beside->books.peaks[TREADLE_GRADS] && !beside->books.peaks[TREADLE_OPTIMIZER];
}

static int work(treadle_group *group, void *context) {
  const scene *s = context;
  const int rank = treadle_group_rank(group);
  const treadle_tenant_memory *plan = &s->plan[rank];
  const treadle_trainer_options trainer = trainer_of(true);
  const treadle_tenant_options options = options_of(s->leaves, &trainer);
  double first[ROWS], again[ROWS], expected[ROWS];
  size_t count, others;
  treadle_actor beside = {0};
  treadle_tenant *model;
  treadle_batch *all, *mine;
  RANK_OK(treadle_reward_model_create(group, s->layout, &options, &model));
  RANK_OK(treadle_tenant_need(model, TREADLE_TRAIN));
  RANK_OK(treadle_tenant_filled(model, model->train.randomise(model->train.engine, 7)));
  RANK_OK(treadle_tenant_rest(model));
  treadle_tenant_count_in(model, &beside.books);
  RANK_TRUE(holds(&beside, plan->rest));
  RANK_TRUE(!s->leaves || sum_of(plan->rest) == plan->rest[TREADLE_WORK]); /* what ranks exchange */
  RANK_OK(make_rows(&all));
  RANK_OK(slice(model, rank, all, &mine));

  RANK_OK(scores_of(model, mine, first, &count));
  RANK_TRUE(holds(&beside, plan->train) && plan->train[TREADLE_PARAMS] > 0);
  RANK_OK(treadle_tenant_rest(model));
  RANK_TRUE(holds(&beside, plan->rest));
  RANK_OK(scores_of(model, mine, again, &others));
  RANK_TRUE(others == count && memcmp(first, again, count * sizeof *first) == 0);
  RANK_TRUE(beside.books.peak == sum_of(plan->train));
  RANK_OK(expect(group, s->layout, mine, expected, &others));
  RANK_TRUE(others == count && memcmp(first, expected, count * sizeof *first) == 0);
  RANK_TRUE(count < 2 || first[0] != first[1]);
  treadle_batch_destroy(mine);
  treadle_batch_destroy(all);
  treadle_tenant_destroy(model);
  return 0;
}

static treadle_model *open_model(void) {
  const treadle_model_options options = {.struct_size = sizeof options, .head = TREADLE_HEAD_SCORE};
  const char *folder = test_folder();
  char path[128];
  treadle_model *model;
  snprintf(path, sizeof path, "%s/config.json", folder);
  assert_ok(treadle_file_write(path, config, sizeof config - 1));
  assert_ok(treadle_model_open(path, &options, &model));
  test_remove(folder);
  return model;
}

static const char *const layouts[] = {"megatron:tp=2,dtype=bf16", "megatron:dtype=fp32", "megatron:pp=2",
                                      "fsdp2:dp=2,dtype=bf16"};

static void test_rests(void **state) {
  (void)state;
  treadle_model *model = open_model();
  const treadle_trainer_options trainer = trainer_of(true);
  for (size_t l = 0; l < TEST_COUNT(layouts); l++)
    for (int leaves = 0; leaves < 2; leaves++) {
      scene s = {.leaves = leaves};
      assert_ok(treadle_layout_create(model, layouts[l], RANKS, NULL, &s.layout));
      const treadle_tenant_options options = options_of(s.leaves, &trainer);
      assert_ok(treadle_tenant_foresee(s.layout, &options, s.plan));
      ranks_as_threads(RANKS, 60, 0, work, &s);
      treadle_layout_destroy(s.layout);
    }
  treadle_model_close(model);
}

/* ---- Refused ---- */

static treadle_status open_without(void *context, treadle_group *group, const treadle_layout *layout,
                                   const treadle_trainer_options *options, treadle_train_engine *engine_p) {
  treadle_status status = treadle_trainer_open_engine(NULL, group, layout, options, engine_p);
  (void)context;
  engine_p->scores = NULL;
  return status;
}

static void test_engine(void **state) {
  (void)state;
  treadle_model *model = open_model();
  const treadle_trainer_options trainer = trainer_of(true);
  treadle_tenant_options options = options_of(true, &trainer);
  treadle_layout *layout;
  treadle_tenant *tenant;
  options.open = open_without;
  assert_ok(treadle_layout_create(model, "hf:dtype=bf16", 1, NULL, &layout));
  assert_refused("the train engine's table lacks scores, which a reward model needs",
                 treadle_reward_model_create(NULL, layout, &options, &tenant));
  assert_null(tenant);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
}

/* A trainer that makes no gradients has no memory for them, and says so. */
static void test_forward_only(void **state) {
  (void)state;
  static const char says[] = "the trainer is forward_only, and has no gradients";
  const treadle_loss_options loss = {.struct_size = sizeof loss, .name = "value", .clip_value = 0.5};
  treadle_trainer_options options = trainer_of(true);
  treadle_trainer_memory with, without;
  treadle_loss found = TREADLE_INIT(treadle_loss);
  treadle_model *model = open_model();
  treadle_layout *layout;
  treadle_trainer *trainer;
  treadle_batch *rows;
  uint64_t digest;
  double norm;
  size_t bytes;
  float zeros[ROWS * 8] = {0};
  assert_ok(treadle_layout_create(model, "hf:dtype=bf16", 1, NULL, &layout));
  assert_ok(treadle_trainer_foresee(layout, &options, &without));
  assert_ok(treadle_trainer_create(NULL, layout, &options, &trainer));
  assert_int_equal(treadle_trainer_bytes(trainer), without.peak);
  assert_ok(treadle_trainer_randomise(trainer, 7));
  assert_ok(make_rows(&rows));
  assert_ok(rows_add(rows, "values", TREADLE_COLUMN_FP32, zeros));
  assert_ok(rows_add(rows, "returns", TREADLE_COLUMN_FP32, zeros));
  assert_fails(TREADLE_STATE, says,
               treadle_trainer_gradients(trainer, rows, &forward, &loss, NULL, &found));
  assert_ok(treadle_trainer_loss(trainer, rows, &forward, &loss, &found));
  assert_fails(TREADLE_STATE, says, treadle_trainer_norm(trainer, &norm));
  assert_fails(TREADLE_STATE, says, treadle_trainer_digest(trainer, &digest));
  assert_fails(TREADLE_STATE, says, treadle_trainer_save_gradients(trainer, "/nowhere/x.safetensors"));
  assert_null(treadle_trainer_grad_window(trainer, &bytes));
  assert_int_equal(bytes, 0);
  treadle_trainer_destroy(trainer);
  treadle_batch_destroy(rows);
  options.optimizer = true;
  assert_refused("forward_only, with optimizer", treadle_trainer_create(NULL, layout, &options, &trainer));
  options.forward_only = false;
  assert_ok(treadle_trainer_foresee(layout, &options, &with));
  assert_true(!without.grads && !without.optimizer && with.grads > 0 && without.work < with.work);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rests), cmocka_unit_test(test_engine),
                                     cmocka_unit_test(test_forward_only)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
