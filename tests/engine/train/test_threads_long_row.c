/* One row of 8 times the length that fits into one rank's budget trains with Ulysses 8 in that budget on each rank: with
 * fsdp2, and with replicas that divide the optimizer's state. */
/* ctest: stage=gcc label=threads timeout=300 */
#include "test.h"
#include "train/rows.h"

#include "group/group.h"
#include "treadle_builtin.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

enum { RANKS = 8, LENGTH = 1024 };

static const char config_text[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 128,"
    " \"intermediate_size\": 344, \"num_hidden_layers\": 6, \"num_attention_heads\": 8, "
    "\"num_key_value_heads\": 8,"
    " \"head_dim\": 16, \"vocab_size\": 1024, \"max_position_embeddings\": 16384, \"rms_norm_eps\": 1e-6,"
    " \"rope_theta\": 10000.0, \"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\"}";

typedef struct one_rank {
  treadle_group *group; /* NULL: alone */
  const treadle_model *model;
  const char *layout;
  int64_t length;
  int rank, ranks, ulysses;
  bool plans; /* only what it would hold */
  size_t bytes;
  double norm, nll;
  treadle_status status;
  char message[512];
} one_rank;

static treadle_status train(one_rank *r, const treadle_layout *layout,
                            const treadle_trainer_options *options) {
  const treadle_forward_options forward = {.struct_size = sizeof forward, .micro_batch_size = 1};
  const treadle_loss_options nll = {.struct_size = sizeof nll, .name = "nll"};
  const treadle_optimizer_step step = {.struct_size = sizeof step, .lr = 1e-3, .clip_grad = 1};
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  treadle_trainer *trainer = NULL;
  treadle_batch *batch = NULL;
  int32_t *ids = malloc((size_t)r->length * sizeof *ids);
  const rows_row row = {ids, NULL, (size_t)r->length, 0};
  treadle_status status;
  if (!ids) TRY(TREADLE_NO_MEMORY);
  for (int64_t i = 0; i < r->length; i++) ids[i] = (int32_t)(i * i % 1021);
  TRY(rows_batch(&row, 1, &batch));
  TRY(treadle_trainer_create(r->group, layout, options, &trainer));
  TRY(treadle_trainer_randomise(trainer, 7));
  TRY(treadle_trainer_gradients(trainer, batch, &forward, &nll, NULL, &loss));
  TRY(treadle_trainer_step(trainer, &step, &figures));
  r->norm = figures.grad_norm;
  r->nll = loss.nll;
  r->bytes = treadle_trainer_bytes(trainer);
out:
  treadle_trainer_destroy(trainer);
  treadle_batch_destroy(batch);
  free(ids);
  return status;
}

static treadle_status run(one_rank *r) {
  const treadle_trainer_options options = {.struct_size = sizeof options,
                                           .threads = 1,
                                           .most_rows = r->length,
                                           .most_sequences = 1,
                                           .optimizer = true,
                                           .distributed_optimizer = !strncmp(r->layout, "megatron", 8),
                                           .ulysses_ranks = r->ulysses};
  treadle_trainer_memory memory[RANKS];
  treadle_layout *layout = NULL;
  treadle_status status;
  TRY(treadle_layout_create(r->model, r->layout, r->ranks, NULL, &layout));
  TRY(treadle_trainer_foresee(layout, &options, memory));
  r->bytes = memory[r->rank].peak;
  if (!r->plans) TRY(train(r, layout, &options));
  if (r->bytes != memory[r->rank].peak)
    TRY(treadle_fail(TREADLE_DIFFERENT, "it holds %zu bytes", r->bytes));
out:
  snprintf(r->message, sizeof r->message, "%s", status ? treadle_error_message() : "");
  treadle_layout_destroy(layout);
  return status;
}

static void *start(void *context) {
  one_rank *r = context;
  r->status = run(r);
  return NULL;
}

/* The rank that holds the most. */
static one_rank run_all(const one_rank *like) {
  treadle_group *groups[RANKS] = {NULL};
  pthread_t threads[RANKS];
  one_rank all[RANKS], most;
  assert_ok(treadle_group_threads(like->ranks, 200, groups));
  for (int i = 0; i < like->ranks; i++) {
    all[i] = *like;
    all[i].group = like->ranks > 1 ? groups[i] : NULL;
    all[i].rank = i;
    assert_int_equal(pthread_create(&threads[i], NULL, start, &all[i]), 0);
  }
  for (int i = 0; i < like->ranks; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (int i = 0; i < like->ranks; i++) treadle_group_close(groups[i]);
  most = all[0];
  for (int i = 0; i < like->ranks; i++) {
    if (all[i].status) fail_msg("%s, rank %d: %s", like->layout, i, all[i].message);
    if (all[i].bytes > most.bytes) most = all[i];
  }
  return most;
}

static void test_long_row(void **state) {
  (void)state;
  static const struct {
    const char *layout;
    int ulysses;
  } ways[] = {{"fsdp2:dtype=bf16", RANKS}, {"megatron:dtype=bf16", RANKS}};
  char folder[] = "/tmp/treadle-test-XXXXXX";
  treadle_model *model;
  assert_non_null(mkdtemp(folder));
  assert_ok(treadle_model_open(test_write(folder, "config.json", config_text), NULL, &model));
  one_rank alone = {.model = model, .layout = "hf:dtype=bf16", .length = LENGTH, .ranks = 1};
  const size_t budget = run_all(&alone).bytes;
  alone.plans = true;
  alone.length = LENGTH + 64;
  assert_true(run_all(&alone).bytes > budget); /* so no longer row fits */
  for (size_t i = 0; i < 2; i++) {
    one_rank eight = {.model = model,
                      .layout = ways[i].layout,
                      .length = RANKS * LENGTH,
                      .ranks = RANKS,
                      .ulysses = ways[i].ulysses};
    const one_rank got = run_all(&eight);
    printf("%s: %d tokens in %zu bytes a rank; %d tokens on one rank: %zu\n", eight.layout, RANKS * LENGTH,
           got.bytes, LENGTH, budget);
    assert_true(got.bytes <= budget);
    assert_true(isfinite(got.norm) && got.norm > 0 && isfinite(got.nll));
  }
  treadle_model_close(model);
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_row)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
