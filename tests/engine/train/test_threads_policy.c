/* Log-probabilities and gradients of policies: the bits of scoring, differences of a loss, prompts that rows share,
 * threads, other weights, rows without a token that counts. With grouped heads, and with latent attention.
 * ctest: label=threads label=kernels */
#include "test.h"
#include "train/rows.h"

#include "base/hash.h"
#include "base/random.h"
#include "layout/layout.h"
#include "treadle_builtin.h"

#include <math.h>

enum { ROWS = 5, LENGTH = 9, COUNTED_MOST = ROWS * LENGTH };

typedef struct scene {
  treadle_model *model;
  treadle_layout *layout;
  treadle_trainer *trainer;
  int32_t ids[ROWS][LENGTH];
  uint8_t mask[ROWS][LENGTH];
  rows_row rows[ROWS];
  treadle_batch *plain, *shares; /* plain: prompts are among ids; shares: rows with one prompt share it */
  size_t counted;
  float *window, *grads; /* the trainer's */
} scene;

static const treadle_forward_options whole = {.struct_size = sizeof whole, .micro_batch_size = ROWS};

/* Rows 0 to 2 share a prompt of 4 tokens; 3 has another one; 4 has nothing that counts. */
static void make_rows(scene *s) {
  static const size_t lengths[ROWS] = {9, 5, 7, 8, 4}, prompts[ROWS] = {4, 4, 4, 3, 4};
  treadle_random random = {20261124};
  for (size_t r = 0; r < ROWS; r++) {
    for (size_t i = 0; i < lengths[r]; i++) {
      s->ids[r][i] = (int32_t)treadle_random_below(&random, 16);
      if (r && r < 3 && i < 4) s->ids[r][i] = s->ids[0][i];
      s->mask[r][i] = i >= prompts[r];
      s->counted += i >= prompts[r];
    }
    s->rows[r] = (rows_row){s->ids[r], s->mask[r], lengths[r], 0};
  }
  assert_ok(rows_batch(s->rows, ROWS, &s->plain));
  for (int r = 0; r < 4; r++) s->rows[r].prompt = prompts[r];
  assert_ok(rows_batch(s->rows, ROWS, &s->shares));
}

static const char *const models[] = {"examples/sequence", "tests/data/latent/v3", "tests/data/latent/v2"};

static void open_scene_of(scene *s, const char *model, const char *layout,
                          const treadle_trainer_options *chosen) {
  char path[512];
  treadle_trainer_options options = *chosen;
  *s = (scene){0};
  make_rows(s);
  snprintf(path, sizeof path, "%s/%s/config.json", TREADLE_SOURCE_DIR, model);
  assert_ok(treadle_model_open(path, NULL, &s->model));
  assert_ok(treadle_layout_create(s->model, layout, 1, NULL, &s->layout));
  size_t bytes = (treadle_layout_window_bytes(s->layout, 0) + 63) / 64 * 64;
  char kernels[] = "plain"; /* read during the call, and free to change after it */
  options.kernels = kernels;
  options.params_window = s->window = aligned_alloc(64, bytes);
  options.grads_window = s->grads = aligned_alloc(64, 2 * bytes);
  assert_true(s->window && s->grads);
  assert_ok(treadle_trainer_create(NULL, s->layout, &options, &s->trainer));
  memset(kernels, 'x', sizeof kernels - 1);
  assert_ok(treadle_trainer_randomise(s->trainer, 5));
}

static void open_scene(scene *s, const char *model, const char *layout, bool recompute) {
  const treadle_trainer_options options = {
      .struct_size = sizeof options, .threads = 2, .most_rows = 64, .recompute = recompute};
  open_scene_of(s, model, layout, &options);
}

static void close_scene(scene *s) {
  treadle_trainer_destroy(s->trainer);
  treadle_layout_destroy(s->layout);
  treadle_model_close(s->model);
  treadle_batch_destroy(s->plain);
  treadle_batch_destroy(s->shares);
  free(s->window);
  free(s->grads);
}

/* ---- Scoring ---- */

typedef struct scored {
  const scene *s;
  float *to;
  size_t at;
} scored;

static treadle_status take_scores(void *context, size_t text, const float *logprobs) {
  scored *d = context;
  const rows_row *row = &d->s->rows[text];
  for (size_t i = 0; i < row->count; i++)
    if (row->mask[i]) d->to[d->at++] = logprobs[i];
  return TREADLE_OK;
}

/* The same weights in an engine that generates. */
static void score(const scene *s, double temperature, float *to) {
  treadle_generator *engine;
  treadle_score_text texts[ROWS];
  scored d = {s, to, 0};
  const treadle_score_options options = {
      .struct_size = sizeof options, .temperature = (float)temperature, .done = take_scores, .context = &d};
  char kernels[] = "plain";
  const treadle_generator_options made = {.struct_size = sizeof made, .kernels = kernels};
  assert_ok(treadle_generator_create(NULL, s->layout, &made, &engine));
  memset(kernels, 'x', sizeof kernels - 1);
  assert_ok(treadle_generator_bind(engine, s->window, treadle_layout_window_bytes(s->layout, 0)));
  for (int r = 0; r < ROWS; r++) texts[r] = (treadle_score_text){s->ids[r], s->rows[r].count};
  assert_ok(treadle_generator_score(engine, texts, ROWS, &options));
  treadle_generator_destroy(engine);
}

static void bits_of_scoring(void **state) {
  (void)state;
  static const char *const layouts[] = {"hf:dtype=fp32", "hf:dtype=bf16"};
  for (size_t l = 0; l < 2 * TEST_COUNT(models); l++) {
    scene s;
    float wanted[COUNTED_MOST], got[COUNTED_MOST], shared[COUNTED_MOST], entropies[COUNTED_MOST];
    open_scene(&s, models[l / 2], layouts[l % 2], false);
    for (double temperature = 0.7; temperature < 1.2; temperature += 0.3) {
      treadle_forward_options forward = whole;
      forward.temperature = temperature;
      score(&s, temperature, wanted);
      assert_ok(rows_logprobs(s.trainer, s.shares, &forward, NULL, shared, NULL, NULL));
      forward.entropies = true;
      assert_ok(rows_logprobs(s.trainer, s.plain, &forward, NULL, got, entropies, NULL));
      assert_memory_equal(got, wanted, s.counted * sizeof *got);
      assert_memory_equal(shared, wanted, s.counted * sizeof *got);
      for (size_t i = 0; i < s.counted; i++)
        assert_true(entropies[i] > 0 && entropies[i] < 2.7726f); /* ln 16 */
    }
    close_scene(&s);
  }
}

/* ---- Gradients ---- */

/* A loss of log-probabilities and entropies that is nobody's: the sum of weights of each. */
static double weight_of(size_t row, size_t token, bool entropy) {
  return sin((double)(row * 31 + token * 7 + (entropy ? 3 : 0)));
}

/* Its derivatives. context: a scene, NULL: all of a row's last tokens count. */
static treadle_status differentiate(void *context, const treadle_loss_row *row) {
  const scene *s = context;
  const size_t first = s ? s->rows[row->row].count - (size_t)row->count : 0;
  for (int64_t i = 0; i < row->count; i++) {
    row->by_log_prob[i] = weight_of((size_t)row->row, first + (size_t)i, false);
    row->by_entropy[i] = weight_of((size_t)row->row, first + (size_t)i, true);
  }
  return TREADLE_OK;
}

static double loss(const scene *s, const treadle_batch *batch, const treadle_forward_options *forward) {
  float logprobs[COUNTED_MOST], entropies[COUNTED_MOST];
  double sum = 0;
  size_t at = 0;
  assert_ok(rows_logprobs(s->trainer, batch, forward, NULL, logprobs, entropies, NULL));
  for (size_t r = 0; r < ROWS; r++)
    for (size_t i = 0; i < s->rows[r].count; i++)
      if (s->mask[r][i]) {
        sum +=
            weight_of(r, i, false) * (double)logprobs[at] + weight_of(r, i, true) * (double)entropies[at];
        at++;
      }
  return sum;
}

static void check_differences(const char *model, uint64_t directions) {
  for (int way = 0; way < 4; way++) {
    scene s;
    open_scene(&s, model, "hf:dtype=fp32", way & 2);
    const treadle_batch *batch = way & 1 ? s.shares : s.plain;
    treadle_forward_options forward = whole;
    forward.temperature = 1.3;
    forward.entropies = true;
    const treadle_loss_options own = {.struct_size = sizeof own, .of_row = differentiate, .context = &s};
    treadle_loss found = TREADLE_INIT(treadle_loss);
    size_t bytes, params = treadle_layout_window_bytes(s.layout, 0);
    const float *grads = treadle_trainer_grad_window(s.trainer, &bytes);
    assert_ok(treadle_trainer_gradients(s.trainer, batch, &forward, &own, NULL, &found));
    assert_int_equal(bytes, params);
    float *kept = malloc(bytes);
    assert_non_null(kept);
    memcpy(kept, grads, bytes);
    treadle_random random = {3};
    for (uint64_t i = 0; i < directions; i++) { /* along random directions of a tensor */
      treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
      int32_t which = (int32_t)treadle_random_below(&random, treadle_layout_storage_count(s.layout, 0));
      assert_ok(treadle_layout_storage(s.layout, 0, which, &info));
      size_t first = info.offset_bytes / sizeof(float), count = info.bytes / sizeof(float);
      double along = 0;
      const float step = 2e-3f;
      uint64_t seed = random.state;
      treadle_random signs = {seed};
      for (size_t k = 0; k < count; k++)
        along += (treadle_random_next(&signs) & 1 ? 1 : -1) * (double)kept[first + k];
      double value[2];
      for (int side = 0; side < 2; side++) {
        signs = (treadle_random){seed};
        for (size_t k = 0; k < count; k++)
          s.window[first + k] +=
              (treadle_random_next(&signs) & 1 ? 1 : -1) * (side ? -2 : 1) * step / sqrtf((float)count);
        assert_ok(treadle_trainer_rebind(s.trainer));
        value[side] = loss(&s, batch, &forward);
      }
      signs = (treadle_random){seed};
      for (size_t k = 0; k < count; k++)
        s.window[first + k] += (treadle_random_next(&signs) & 1 ? 1 : -1) * step / sqrtf((float)count);
      assert_ok(treadle_trainer_rebind(s.trainer));
      double by = (value[0] - value[1]) / (2 * (double)step), wanted = along / sqrt((double)count);
      if (fabs(by - wanted) > 2e-2 * (fabs(wanted) + 0.2))
        fail_msg("%s, way %d, tensor %s: %g by differences, %g by gradients", model, way, info.name, by,
                 wanted);
    }
    free(kept);
    close_scene(&s);
  }
}

static void differences(void **state) {
  (void)state;
  check_differences(models[0], test_seeds(40));
  for (size_t m = 1; m < TEST_COUNT(models); m++) check_differences(models[m], test_seeds(16));
}

/* The mean of -log p is a policy's loss, too. */
static treadle_status mean_slope(void *context, const treadle_loss_row *row) {
  for (int64_t i = 0; i < row->count; i++) row->by_log_prob[i] = -1 / *(const double *)context;
  return TREADLE_OK;
}

static void check_supervised(const char *model) {
  scene s;
  open_scene(&s, model, "hf:dtype=fp32", false);
  double counted = (double)s.counted, most = 0, norm = 0;
  const treadle_loss_options own = {.struct_size = sizeof own, .of_row = mean_slope, .context = &counted},
                             mean = {.struct_size = sizeof mean, .name = "nll"};
  treadle_loss found = TREADLE_INIT(treadle_loss), found_own = TREADLE_INIT(treadle_loss);
  treadle_batch *out;
  float logprobs[COUNTED_MOST];
  size_t bytes;
  float *grads = treadle_trainer_grad_window(s.trainer, &bytes), *wanted = malloc(bytes);
  assert_non_null(wanted);
  assert_ok(treadle_trainer_gradients(s.trainer, s.plain, &whole, &mean, NULL, &found));
  memcpy(wanted, grads, bytes);
  assert_ok(rows_out(s.plain, &out));
  assert_ok(treadle_trainer_gradients(s.trainer, s.plain, &whole, &own, out, &found_own));
  assert_int_equal(rows_counted(s.plain, out, "log_probs", logprobs), s.counted);
  double nll = 0;
  for (size_t i = 0; i < s.counted; i++) nll -= (double)logprobs[i];
  assert_true(fabs(nll - found.nll) < 1e-4 && found_own.nll == nll);
  for (int way = 0; way < 2; way++) {
    if (way) assert_ok(treadle_trainer_gradients(s.trainer, s.shares, &whole, &own, NULL, &found_own));
    most = norm = 0;
    for (size_t i = 0; i < bytes / sizeof *wanted; i++) {
      most += ((double)grads[i] - (double)wanted[i]) * ((double)grads[i] - (double)wanted[i]);
      norm += (double)wanted[i] * (double)wanted[i];
    }
    assert_true(norm > 0 && sqrt(most / norm) < 1e-5);
  }
  treadle_batch_destroy(out);
  free(wanted);
  close_scene(&s);
}

static void supervised(void **state) {
  (void)state;
  for (size_t m = 0; m < TEST_COUNT(models); m++) check_supervised(models[m]);
}

/* ---- Threads ---- */

enum { GROUP = 34, GROUPS = 2, PROMPT = 70, ANSWER = 2, SAMPLES = GROUP * GROUPS };

/* Samples of many groups in one micro batch: the last token of a prompt has the gradient of each sample's first token, from leaves of other
 * threads, too. */
static uint64_t shared_gradients(const char *model, int32_t threads) {
  enum { LONG = PROMPT + ANSWER };
  static int32_t ids[SAMPLES][LONG];
  static uint8_t mask[SAMPLES][LONG];
  rows_row rows[SAMPLES];
  treadle_random random = {17};
  scene s;
  for (int r = 0; r < SAMPLES; r++) {
    for (int i = 0; i < LONG; i++) {
      ids[r][i] = (int32_t)treadle_random_below(&random, 16);
      if (r % GROUP && i < PROMPT) ids[r][i] = ids[r - 1][i];
      mask[r][i] = i >= PROMPT;
    }
    rows[r] = (rows_row){ids[r], mask[r], LONG, PROMPT};
  }
  open_scene_of(&s, model, "hf:dtype=fp32",
                &(treadle_trainer_options){.struct_size = sizeof(treadle_trainer_options),
                                           .threads = threads,
                                           .most_rows = SAMPLES * LONG});
  const treadle_forward_options forward = {
      .struct_size = sizeof forward, .micro_batch_size = SAMPLES, .temperature = 1, .entropies = true};
  const treadle_loss_options own = {.struct_size = sizeof own, .of_row = differentiate};
  treadle_loss found = TREADLE_INIT(treadle_loss);
  treadle_batch *batch;
  size_t bytes;
  const void *grads = treadle_trainer_grad_window(s.trainer, &bytes);
  assert_ok(rows_batch(rows, SAMPLES, &batch));
  assert_ok(treadle_trainer_gradients(s.trainer, batch, &forward, &own, NULL, &found));
  treadle_batch_destroy(batch);
  const uint64_t digest = treadle_hash_bytes(grads, bytes, 0);
  close_scene(&s);
  return digest;
}

static void threads_alike(void **state) {
  (void)state;
  for (size_t m = 0; m < 2; m++)
    assert_true(shared_gradients(models[m], 3) == shared_gradients(models[m], 1));
}

/* ---- Other weights ---- */

static void check_other_weights(const char *model) {
  scene s, other;
  float own[COUNTED_MOST], again[COUNTED_MOST], reference[COUNTED_MOST], wanted[COUNTED_MOST];
  open_scene(&s, model, "hf:dtype=fp32", false);
  open_scene(&other, model, "hf:dtype=fp32", false);
  assert_ok(treadle_trainer_randomise(other.trainer, 6));
  assert_ok(rows_logprobs(s.trainer, s.shares, &whole, NULL, own, NULL, NULL));
  assert_ok(rows_logprobs(other.trainer, s.shares, &whole, NULL, wanted, NULL, NULL));
  assert_ok(rows_logprobs(s.trainer, s.shares, &whole, other.window, reference, NULL, NULL));
  assert_ok(rows_logprobs(s.trainer, s.shares, &whole, NULL, again, NULL, NULL));
  assert_memory_equal(reference, wanted, s.counted * sizeof *own);
  assert_memory_equal(again, own, s.counted * sizeof *own);
  assert_memory_not_equal(own, wanted, s.counted * sizeof *own);
  close_scene(&s);
  close_scene(&other);
}

static void other_weights(void **state) {
  (void)state;
  for (size_t m = 0; m < 2; m++) check_other_weights(models[m]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bits_of_scoring), cmocka_unit_test(differences),   cmocka_unit_test(supervised),
      cmocka_unit_test(threads_alike),   cmocka_unit_test(other_weights),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
