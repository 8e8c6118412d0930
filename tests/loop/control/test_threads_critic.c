/* The critic of two ranks, with each choice of what leaves the device between its calls: what it holds, which is what was foreseen; at rest nothing,
 * or what stays; the same values before it rests and after, and other ones after an update. An engine without values is refused.
 * ctest: label=threads */
#include "control/critic.h"
#include "group/ranks.h"
#include "test.h"
#include "train/rows.h"

#include "io/file.h"

#include <string.h>

enum { RANKS = 2, ROWS = 4, PAGE = 4096, TOKENS = 64 };

static const char config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 64,\n"
    " \"intermediate_size\": 128, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,\n"
    " \"num_key_value_heads\": 4, \"vocab_size\": 16, \"max_position_embeddings\": 512, \"hidden_act\": "
    "\"silu\",\n"
    " \"rms_norm_eps\": 1e-06, \"rope_theta\": 10000.0, \"initializer_range\": 0.2,\n"
    " \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", \"eos_token_id\": 1}\n";

typedef struct scene {
  treadle_layout *layout;
  bool param, grad, optimizer; /* leaves */
  treadle_critic_memory plan[RANKS];
} scene;

static const treadle_forward_options forward = {.struct_size = sizeof forward, .micro_batch_size = 1};

static treadle_critic_options options_of(const scene *s, const treadle_trainer_options *trainer) {
  return (treadle_critic_options){.trainer = trainer,
                                  .offload_param = s->param,
                                  .offload_grad = s->grad,
                                  .offload_optimizer = s->optimizer,
                                  .page_bytes = PAGE,
                                  .timeout_seconds = 60};
}

static treadle_trainer_options trainer_of(void) {
  return (treadle_trainer_options){.struct_size = sizeof(treadle_trainer_options),
                                   .threads = 1,
                                   .most_tokens = 32,
                                   .most_rows = 32,
                                   .most_sequences = 1,
                                   .most_micro_batches = ROWS,
                                   .fewer_micro_batches = true,
                                   .optimizer = true};
}

static size_t sum_of(const size_t *bytes) {
  size_t sum = 0;
  for (int c = 0; c < TREADLE_CLASSES; c++) sum += bytes[c];
  return sum;
}

static treadle_status make_rows(treadle_batch **batch_p) {
  static const int32_t ids[] = {3, 7, 2, 9, 4, 11, 5};
  const rows_row rows[ROWS] = {{.ids = ids, .count = 7, .prompt = 2},
                               {.ids = ids + 1, .count = 5, .prompt = 1},
                               {.ids = ids + 2, .count = 4, .prompt = 2},
                               {.ids = ids, .count = 6, .prompt = 3}};
  return rows_batch(rows, ROWS, batch_p);
}

/* This rank's rows, with the columns of the loss. */
static treadle_status slice(const treadle_critic *critic, int rank, treadle_batch *all,
                            treadle_batch **mine_p) {
  static const int64_t lengths[ROWS] = {7, 5, 4, 6};
  treadle_row_range by_rank[RANKS];
  float returns[TOKENS];
  treadle_status status;
  for (int i = 0; i < TOKENS; i++) returns[i] = (float)(i % 5) / 4;
  TRY(treadle_tenant_divide(critic, lengths, ROWS, &forward, by_rank));
  if (!treadle_batch_has(all, "returns")) {
    TRY(rows_add(all, "values", TREADLE_COLUMN_FP32, NULL));
    TRY(rows_add(all, "returns", TREADLE_COLUMN_FP32, returns));
  }
  TRY(treadle_batch_slice(all, by_rank[rank].first, by_rank[rank].end, mine_p));
out:
  return status;
}

/* The values of this rank's rows; *count_p: 0 where another rank of the coordinate has them. */
static treadle_status values_of(treadle_critic *critic, treadle_batch *mine, float *values,
                                size_t *count_p) {
  treadle_batch *out = NULL;
  treadle_status status;
  TRY(rows_out(mine, &out));
  TRY(treadle_critic_compute_values(critic, mine, &forward, out));
  *count_p = rows_counted(mine, out, "values", values);
out:
  treadle_batch_destroy(out);
  return status;
}

static bool rests(const treadle_actor *beside, const treadle_critic_memory *plan) {
  return memcmp(beside->books.now, plan->rest, sizeof plan->rest) == 0;
}

static treadle_status update(treadle_critic *critic, treadle_batch *mine) {
  const treadle_loss_options loss = {.struct_size = sizeof loss, .name = "value", .clip_value = 0.5};
  const treadle_optimizer_step step = {.struct_size = sizeof step, .lr = 0.01, .clip_grad = 1};
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_status status = treadle_critic_update(critic, mine, &forward, &loss, &step, NULL, &figures);
  if (!status && (figures.steps != 1 || figures.skipped || !(figures.loss.vf_loss > 0)))
    return treadle_fail(TREADLE_DIFFERENT, "an update took %lld steps", (long long)figures.steps);
  return status;
}

static int work(treadle_group *group, void *context) {
  const scene *s = context;
  const int rank = treadle_group_rank(group);
  const treadle_critic_memory *plan = &s->plan[rank];
  const treadle_trainer_options trainer = trainer_of();
  const treadle_critic_options options = options_of(s, &trainer);
  float first[TOKENS], again[TOKENS], after[TOKENS], rested[TOKENS];
  size_t count, others;
  treadle_actor beside = {0};
  treadle_critic *critic;
  treadle_batch *all, *mine;
  RANK_OK(treadle_critic_create(group, s->layout, &options, &critic));
  RANK_OK(treadle_critic_randomise(critic, 7));
  RANK_OK(treadle_critic_rest(critic));
  treadle_critic_count_in(critic, &beside.books);
  RANK_TRUE(rests(&beside, plan) && beside.books.peak == sum_of(plan->rest));
  RANK_TRUE(!s->param || sum_of(plan->rest) == plan->rest[TREADLE_WORK]); /* what ranks exchange */
  RANK_OK(make_rows(&all));
  RANK_OK(slice(critic, rank, all, &mine));

  RANK_OK(values_of(critic, mine, first, &count));
  RANK_TRUE(beside.books.now[TREADLE_PARAMS] == plan->train[TREADLE_PARAMS]);
  RANK_TRUE((beside.books.now[TREADLE_GRADS] == 0) == (s->grad || !plan->train[TREADLE_GRADS]));
  RANK_TRUE((beside.books.now[TREADLE_OPTIMIZER] == 0) == s->optimizer);
  RANK_OK(treadle_critic_rest(critic));
  RANK_TRUE(rests(&beside, plan));
  RANK_OK(values_of(critic, mine, again, &others));
  RANK_TRUE(others == count && memcmp(first, again, count * sizeof *first) == 0);

  RANK_OK(update(critic, mine));
  RANK_TRUE(memcmp(beside.books.now, plan->train, sizeof plan->train) == 0);
  RANK_OK(values_of(critic, mine, after, &others));
  RANK_TRUE(others == count && (!count || memcmp(first, after, count * sizeof *first) != 0));
  RANK_OK(treadle_critic_rest(critic));
  RANK_TRUE(rests(&beside, plan) && beside.books.peak == sum_of(plan->train));
  RANK_OK(values_of(critic, mine, rested, &others));
  RANK_TRUE(memcmp(after, rested, count * sizeof *after) == 0);
  treadle_batch_destroy(mine);
  treadle_batch_destroy(all);
  treadle_critic_destroy(critic);
  return 0;
}

static treadle_model *open_model(void) {
  const treadle_model_options options = {
      .struct_size = sizeof options, .head = TREADLE_HEAD_SCORE, .score_zeros = true};
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
  const treadle_trainer_options trainer = trainer_of();
  for (size_t l = 0; l < TEST_COUNT(layouts); l++)
    for (int leaves = 0; leaves < 8; leaves++) {
      scene s = {.param = leaves & 1, .grad = leaves >> 1 & 1, .optimizer = leaves >> 2 & 1};
      if (s.param && !(s.grad && s.optimizer)) continue; /* the configuration refuses it */
      assert_ok(treadle_layout_create(model, layouts[l], RANKS, NULL, &s.layout));
      const treadle_critic_options options = options_of(&s, &trainer);
      assert_ok(treadle_critic_foresee(s.layout, &options, s.plan));
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
  engine_p->values = NULL;
  return status;
}

static treadle_status create(const treadle_layout *layout, const treadle_critic_options *options) {
  treadle_critic *critic;
  treadle_status status = treadle_critic_create(NULL, layout, options, &critic);
  assert_true(!critic == (status != TREADLE_OK));
  treadle_critic_destroy(critic);
  return status;
}

static void test_refused(void **state) {
  (void)state;
  treadle_model *model = open_model();
  const treadle_trainer_options trainer = trainer_of();
  scene s = {.param = true, .grad = true, .optimizer = true};
  treadle_critic_options options = options_of(&s, &trainer);
  assert_ok(treadle_layout_create(model, "megatron:tp=2", 2, NULL, &s.layout));
  assert_refused("layout 'megatron:tp=2' is for 2 ranks, the group has 1", create(s.layout, &options));
  treadle_layout_destroy(s.layout);
  assert_ok(treadle_layout_create(model, "hf:dtype=bf16", 1, NULL, &s.layout));
  assert_ok(create(s.layout, &options));
  options.open = open_without;
  assert_refused("the train engine's table lacks values, which a critic needs", create(s.layout, &options));
  treadle_layout_destroy(s.layout);
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rests), cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
