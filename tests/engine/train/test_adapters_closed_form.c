/* Gradients of adapters in fp32 are what follows from the gradient dW of the merged matrix, which full training finds: dB = s dW A^T and dA = s B^T dW,
 * each tensor's relative distance at most 1e-4. With latent attention, whose kv_b_proj is multiplied in two halves by heads, and with grouped heads. */
#include "test.h"
#include "train/rows.h"

#include "io/safetensors.h"

#include <math.h>
#include <sys/stat.h>

enum { ROWS = 3, LENGTH = 40, RANK = 3, ALPHA = 6, WORDS = 16 };

static treadle_batch *make_rows(void) {
  int32_t ids[ROWS][LENGTH];
  rows_row rows[ROWS];
  treadle_batch *batch;
  for (int r = 0; r < ROWS; r++) {
    rows[r] = (rows_row){ids[r], NULL, (size_t)(12 + 13 * r), 0};
    for (int i = 0; i < LENGTH; i++) ids[r][i] = (i * i + i / 3 + r * 5) % WORDS;
  }
  assert_ok(rows_batch(rows, ROWS, &batch));
  return batch;
}

/* Gradients of a model as a file; of adapters, after a step, so that B is not 0, which are saved with the merged weights. Without a folder to save in
 * the weights train. */
static void write_gradients(const char *path, const char *folder, const char *out) {
  const treadle_trainer_options options = {.struct_size = sizeof options,
                                           .threads = 1,
                                           .most_rows = ROWS * LENGTH,
                                           .optimizer = true,
                                           .lora_rank = folder ? RANK : 0,
                                           .lora_alpha = folder ? ALPHA : 0,
                                           .lora_seed = 5,
                                           .lora_save_merged = folder != NULL};
  const treadle_forward_options forward = {.struct_size = sizeof forward, .micro_batch_size = ROWS};
  const treadle_loss_options nll = {.struct_size = sizeof nll, .name = "nll"};
  const treadle_optimizer_step step = {.struct_size = sizeof step, .lr = 0.05};
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  treadle_batch *batch = make_rows();
  treadle_model *model;
  treadle_layout *layout;
  treadle_trainer *trainer;
  assert_ok(treadle_model_open(path, NULL, &model));
  assert_ok(treadle_layout_create(model, "hf:dtype=fp32", 1, NULL, &layout));
  assert_ok(treadle_trainer_create(NULL, layout, &options, &trainer));
  assert_ok(folder ? treadle_trainer_randomise(trainer, 3) : treadle_trainer_load(trainer));
  for (int turn = 0; turn < 2; turn++) {
    assert_ok(treadle_trainer_gradients(trainer, batch, &forward, &nll, NULL, &loss));
    if (folder && !turn) assert_ok(treadle_trainer_step(trainer, &step, &figures));
    if (!folder) break;
  }
  assert_ok(treadle_trainer_save_gradients(trainer, out));
  if (folder) assert_ok(treadle_trainer_save(trainer, folder));
  treadle_trainer_destroy(trainer);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
  treadle_batch_destroy(batch);
}

/* got [rows, columns] beside s * left^T right, where left is [inner, rows] or, if it is turned, [rows, inner]. */
typedef struct product {
  const float *got, *left, *right;
  int64_t rows, inner, columns;
  bool left_turned, right_turned;
} product;

static double distance(const product *p) {
  double off = 0, sum = 0;
  for (int64_t r = 0; r < p->rows; r++)
    for (int64_t c = 0; c < p->columns; c++) {
      double wanted = 0;
      for (int64_t k = 0; k < p->inner; k++)
        wanted += (double)p->left[p->left_turned ? r * p->inner + k : k * p->rows + r] *
                  p->right[p->right_turned ? c * p->inner + k : k * p->columns + c];
      wanted *= (double)ALPHA / RANK;
      off += (p->got[r * p->columns + c] - wanted) * (p->got[r * p->columns + c] - wanted);
      sum += wanted * wanted;
    }
  assert_true(sum > 0);
  return sqrt(off / sum);
}

static const float *find(const treadle_checkpoint *file, const char *name, const char *end, int64_t *rows_p,
                         int64_t *columns_p) {
  char text[256];
  snprintf(text, sizeof text, "%s%s", name, end);
  const treadle_stored *stored = treadle_checkpoint_find(file, text);
  if (!stored) fail_msg("no %s", text);
  assert_int_equal(stored->dtype, TREADLE_FP32);
  assert_int_equal(stored->ndim, 2);
  *rows_p = stored->shape[0];
  *columns_p = stored->shape[1];
  return stored->data;
}

static void check_matrix(const char *adapter, const treadle_checkpoint *values,
                         const treadle_checkpoint *grads, const treadle_checkpoint *full) {
  int64_t rank, rows, columns;
  const float *dw = find(full, adapter + strlen("base_model.model."), ".weight", &rows, &columns);
  const float *a = find(values, adapter, ".lora_A.weight", &rank, &columns),
              *da = find(grads, adapter, ".lora_A.weight", &rank, &columns);
  const float *b = find(values, adapter, ".lora_B.weight", &rows, &rank),
              *db = find(grads, adapter, ".lora_B.weight", &rows, &rank);
  const product of_a = {da, b, dw, rank, rows, columns, false, false},
                of_b = {db, dw, a, rows, columns, rank, true, true};
  if (!(distance(&of_a) < 1e-4 && distance(&of_b) < 1e-4))
    fail_msg("%s: dA is off by %g, dB by %g", adapter, distance(&of_a), distance(&of_b));
}

static void check_model(const char *path) {
  static const char end[] = ".lora_A.weight";
  char folder[] = "/tmp/treadle-test-XXXXXX", grads[64], full[64], merged[64], adapters[128], name[256];
  treadle_checkpoint *of_values, *of_grads, *of_full;
  int32_t checked = 0;
  assert_non_null(mkdtemp(folder));
  snprintf(grads, sizeof grads, "%s/grads.safetensors", folder);
  snprintf(full, sizeof full, "%s/full.safetensors", folder);
  snprintf(merged, sizeof merged, "%s/huggingface", folder);
  snprintf(adapters, sizeof adapters, "%s/lora_adapter/adapter_model.safetensors", folder);
  write_gradients(path, folder, grads);
  write_gradients(merged, NULL, full);
  assert_ok(treadle_checkpoint_open(adapters, &of_values));
  assert_ok(treadle_checkpoint_open(grads, &of_grads));
  assert_ok(treadle_checkpoint_open(full, &of_full));
  assert_int_equal(of_values->count, of_grads->count);
  for (int32_t i = 0; i < of_values->count; i++) {
    const char *tensor = of_values->tensors[i].name, *at = strstr(tensor, end);
    if (!at) continue;
    snprintf(name, sizeof name, "%.*s", (int)(at - tensor), tensor);
    check_matrix(name, of_values, of_grads, of_full);
    checked++;
  }
  assert_int_equal(2 * checked, of_values->count);
  treadle_checkpoint_close(of_values);
  treadle_checkpoint_close(of_grads);
  treadle_checkpoint_close(of_full);
  test_remove(folder);
}

static void test_latent(void **state) {
  (void)state;
  check_model(TREADLE_SOURCE_DIR "/tests/data/latent/v3/config.json");
  check_model(TREADLE_SOURCE_DIR "/tests/data/latent/v2/config.json");
  check_model(TREADLE_SOURCE_DIR "/tests/data/latent/v3-experts/config.json");
}

static void test_grouped(void **state) {
  (void)state;
  check_model(TREADLE_SOURCE_DIR "/tests/golden/models/llama-gqa-llama3rope/config.json");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_latent), cmocka_unit_test(test_grouped)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
