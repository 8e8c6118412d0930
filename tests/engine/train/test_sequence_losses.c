/* seq_aux_loss: of each row by itself, and the mean over those of a micro batch. Held against aux_loss of rows alone, which says the same of one
 * row; rows that share a prompt against the same rows without.
 * ctest: label=threads */
#include "test.h"
#include "train/distance.h"
#include "train/rows.h"

#include "treadle_builtin.h"

#include <math.h>

enum { ROWS = 3, LENGTH = 40, PROMPT = 12 };

static const char model_path[] = TREADLE_SOURCE_DIR "/tests/golden/models/qwen2moe";

/* Tokens of row r; the first PROMPT are the same in all rows. */
static void fill(int32_t ids[ROWS][LENGTH]) {
  for (int r = 0; r < ROWS; r++)
    for (int i = 0; i < LENGTH; i++) ids[r][i] = (i < PROMPT ? i * 7 : r * 53 + i * i + i / 3) % 200;
}

/* Rows [first, first + count) with these lengths, which may share their prompts. */
static treadle_batch *batch_of(const size_t *lengths, int first, int count, bool shares) {
  static int32_t ids[ROWS][LENGTH];
  static uint8_t mask[LENGTH];
  rows_row rows[ROWS];
  treadle_batch *batch;
  fill(ids);
  for (int i = 0; i < LENGTH; i++) mask[i] = i >= PROMPT;
  for (int r = 0; r < count; r++)
    rows[r] = (rows_row){ids[first + r], mask, lengths[first + r], shares ? PROMPT : 0};
  assert_ok(rows_batch(rows, (size_t)count, &batch));
  return batch;
}

/* The loss of routers; gradients go to a file, if there is one. */
static double run(treadle_batch *batch, int64_t micro_batch_size, bool by_row, const char *out) {
  const treadle_trainer_options options = {.struct_size = sizeof options,
                                           .threads = 1,
                                           .most_rows = ROWS * LENGTH,
                                           .aux_loss_coeff = 0.5,
                                           .seq_aux_loss = by_row};
  const treadle_forward_options forward = {.struct_size = sizeof forward,
                                           .micro_batch_size = micro_batch_size};
  const treadle_loss_options nll = {.struct_size = sizeof nll, .name = "nll"};
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  treadle_model *model;
  treadle_layout *layout;
  treadle_trainer *trainer;
  assert_ok(treadle_model_open(model_path, NULL, &model));
  assert_ok(treadle_layout_create(model, "hf:dtype=fp32", 1, NULL, &layout));
  assert_ok(treadle_trainer_create(NULL, layout, &options, &trainer));
  assert_ok(treadle_trainer_load(trainer));
  assert_ok(treadle_trainer_gradients(trainer, batch, &forward, &nll, NULL, &loss));
  if (out) assert_ok(treadle_trainer_save_gradients(trainer, out));
  treadle_trainer_destroy(trainer);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
  treadle_batch_destroy(batch);
  return loss.aux_loss;
}

static bool is_near(double a, double b) { return fabs(a - b) <= 1e-6 * fabs(b); }

typedef struct files {
  char folder[32], wanted[64], got[64];
} files;

static files make_files(void) {
  files f = {.folder = "/tmp/treadle-test-XXXXXX"};
  assert_non_null(mkdtemp(f.folder));
  snprintf(f.wanted, sizeof f.wanted, "%s/wanted", f.folder);
  snprintf(f.got, sizeof f.got, "%s/got", f.folder);
  return f;
}

/* Rows of one length weigh alike, together or alone. */
static void of_one_length(void **state) {
  static const size_t lengths[] = {LENGTH, LENGTH, LENGTH};
  files f = make_files();
  (void)state;
  const double alone = run(batch_of(lengths, 0, ROWS, false), 1, false, f.wanted),
               together = run(batch_of(lengths, 0, ROWS, false), ROWS, true, f.got),
               at_once = run(batch_of(lengths, 0, ROWS, false), ROWS, false, NULL);
  assert_true(alone > 0 && is_near(together, alone) && !is_near(together, at_once));
  assert_true(distance_of_files(f.got, f.wanted) <= 1e-6);
  test_remove(f.folder);
}

/* The mean over rows. */
static void of_many_lengths(void **state) {
  static const size_t lengths[] = {LENGTH, 25, PROMPT + 3};
  double sum = 0;
  (void)state;
  for (int r = 0; r < ROWS; r++) sum += run(batch_of(lengths, r, 1, false), 1, false, NULL);
  assert_true(is_near(run(batch_of(lengths, 0, ROWS, false), ROWS, true, NULL), sum / ROWS));
}

/* A prompt that goes through the layers once counts in each of its rows; one of them has nothing else. */
static void of_shared_prompts(void **state) {
  static const size_t lengths[] = {LENGTH, PROMPT + 1, 25};
  files f = make_files();
  (void)state;
  const double apart = run(batch_of(lengths, 0, ROWS, false), ROWS, true, f.wanted),
               shared = run(batch_of(lengths, 0, ROWS, true), ROWS, true, f.got);
  assert_true(is_near(shared, apart));
  if (distance_of_files(f.got, f.wanted) > 1e-5)
    fail_msg("gradients off by %g", distance_of_files(f.got, f.wanted));
  test_remove(f.folder);
}

static void refused(void **state) {
  treadle_trainer_options options = {.struct_size = sizeof options,
                                     .most_rows = LENGTH,
                                     .ulysses_ranks = 2,
                                     .aux_loss_coeff = 0.5,
                                     .seq_aux_loss = true};
  treadle_trainer_memory memory[2];
  treadle_model *model;
  treadle_layout *layout;
  (void)state;
  assert_ok(treadle_model_open(model_path, NULL, &model));
  assert_ok(treadle_layout_create(model, "megatron:tp=1", 2, NULL, &layout));
  assert_refused("seq_aux_loss, with 2 context parallel ranks",
                 treadle_trainer_foresee(layout, &options, memory));
  options.aux_loss_coeff = 0; /* there is no such loss */
  assert_ok(treadle_trainer_foresee(layout, &options, memory));
  treadle_layout_destroy(layout);
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(of_one_length), cmocka_unit_test(of_many_lengths),
                                     cmocka_unit_test(of_shared_prompts), cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
