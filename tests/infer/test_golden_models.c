/* Tiny models of each family, in fp32 and bf16: the logits are those of transformers within each model's tolerances, and greedy tokens
 * the same wherever the recorded gap is larger (tests/golden/models/SOURCE.txt). More models lie in ../shared, where that is. */
/* ctest: timeout=300 */
#include "test.h"

#include "golden_support/golden.h"
#include "io/safetensors.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct subject {
  const char *folder;
  json_t *expected;
  float *golden; /* [tokens, vocabulary], of one prompt */
  int64_t vocabulary;
  int32_t *tokens;
  size_t count;
  double largest, sum; /* differences of logits; of log-probabilities */
  size_t compared, other_tokens;
  bool bf16;
  double allowed;
} subject;

static double log_sum(const float *logits, int64_t count) {
  double largest = logits[0], sum = 0;
  for (int64_t i = 1; i < count; i++) largest = logits[i] > largest ? logits[i] : largest;
  for (int64_t i = 0; i < count; i++) sum += exp(logits[i] - largest);
  return largest + log(sum);
}

static treadle_status compare(void *context, size_t text, size_t token, const float *logits) {
  subject *s = context;
  (void)text;
  const float *golden = s->golden + (int64_t)token * s->vocabulary;
  double ours = log_sum(logits, s->vocabulary), theirs = log_sum(golden, s->vocabulary);
  int64_t best = 0, second = -1;
  for (int64_t i = 0; i < s->vocabulary; i++) {
    double difference = fabs((double)logits[i] - golden[i]);
    s->largest = difference > s->largest ? difference : s->largest;
    if (!(difference <= 1e30)) s->largest = INFINITY;
    if (token + 1 < s->count && i == s->tokens[token + 1])
      s->sum += fabs((logits[i] - ours) - (golden[i] - theirs));
    if (golden[i] > golden[best]) best = i;
  }
  for (int64_t i = 0; i < s->vocabulary; i++)
    if (i != best && (second < 0 || golden[i] > golden[second])) second = i;
  s->compared += token + 1 < s->count;
  if (golden[best] - golden[second] > 2 * s->allowed)
    for (int64_t i = 0; i < s->vocabulary; i++)
      if (i != best && logits[i] >= logits[best]) {
        s->other_tokens++;
        break;
      }
  return TREADLE_OK;
}

static void read_logits(subject *s, size_t prompt) {
  char path[1024], name[32];
  snprintf(path, sizeof path, "%s/logits.safetensors", s->folder);
  snprintf(name, sizeof name, "logits.%zu", prompt);
  treadle_checkpoint *file = NULL;
  assert_int_equal(treadle_checkpoint_open(path, &file), TREADLE_OK);
  const treadle_stored *tensor = treadle_checkpoint_find(file, name);
  assert_non_null(tensor);
  s->vocabulary = tensor->shape[1];
  s->golden = malloc(tensor->bytes);
  memcpy(s->golden, tensor->data, tensor->bytes);
  treadle_checkpoint_close(file);
}

static void read_tokens(subject *s, const json_t *prompt) {
  static const char *const keys[] = {"prompt_token_ids", "token_ids"};
  s->tokens = malloc(4096 * sizeof *s->tokens);
  s->count = 0;
  for (int k = 0; k < 2; k++) {
    const json_t *list = json_object_get(prompt, keys[k]);
    for (size_t i = 0; i < json_array_size(list) && s->count < 4096; i++)
      s->tokens[s->count++] = (int32_t)json_integer_value(json_array_get(list, i));
  }
}

static void run(subject *s, const char *text) {
  treadle_model *model = NULL;
  treadle_layout *layout = NULL;
  treadle_engine *engine = NULL;
  treadle_engine_options options = {
      .struct_size = sizeof options, .prefill_chunk = 48, .threads = 2, .kv_bytes = 1 << 22};
  if (treadle_model_open(s->folder, NULL, &model)) fail_msg("%s", treadle_error_message());
  if (treadle_layout_create(model, text, 1, NULL, &layout)) fail_msg("%s", treadle_error_message());
  size_t bytes = treadle_layout_window_bytes(layout, 0);
  void *window = aligned_alloc(64, (bytes + 63) / 64 * 64);
  assert_int_equal(treadle_layout_load(layout, 0, window), TREADLE_OK);
  if (treadle_engine_create(NULL, layout, &options, &engine)) fail_msg("%s", treadle_error_message());
  assert_int_equal(treadle_engine_bind(engine, window, bytes), TREADLE_OK);
  const json_t *prompts = json_object_get(s->expected, "prompts");
  for (size_t p = 0; p < json_array_size(prompts); p++) {
    treadle_score_options score = {.struct_size = sizeof score, .logits = compare, .context = s};
    read_tokens(s, json_array_get(prompts, p));
    read_logits(s, p);
    treadle_score_text tokens = {s->tokens, s->count};
    if (treadle_engine_score(engine, &tokens, 1, &score)) fail_msg("%s", treadle_error_message());
    free(s->tokens);
    free(s->golden);
  }
  treadle_engine_destroy(engine);
  free(window);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
}

static double tolerance(const subject *s, const char *key) {
  return json_number_value(json_object_get(json_object_get(s->expected, "tolerance"), key));
}

static int check_folder(const char *folder) {
  char path[1024];
  int different = 0;
  snprintf(path, sizeof path, "%s/expected.json", folder);
  json_t *expected = golden_load(path);
  assert_non_null(expected);
  for (int bf16 = 0; bf16 < 2; bf16++) {
    subject s = {.folder = folder, .expected = expected, .bf16 = bf16};
    double most = tolerance(&s, "fp32_max"), mean = tolerance(&s, "bf16_mean");
    s.allowed = bf16 ? INFINITY : most;
    run(&s, bf16 ? "hf:dtype=bf16" : "hf:dtype=fp32");
    bool good =
        s.compared && (bf16 ? s.sum / (double)s.compared <= mean : s.largest <= most && !s.other_tokens);
    printf("%s %s: largest difference %.3g (fp32: %.3g), mean %.3g (bf16: %.3g), %zu other tokens%s\n",
           folder, bf16 ? "bf16" : "fp32", s.largest, most, s.sum / (double)s.compared, mean,
           s.other_tokens, good ? "" : "  DIFFERENT");
    different += !good;
  }
  json_decref(expected);
  return different;
}

static void test_models(void **state) {
  (void)state;
  static const char *const roots[] = {TREADLE_SOURCE_DIR "/tests/golden/models",
                                      TREADLE_SOURCE_DIR "/../shared/data/golden/models"};
  int folders = 0, different = 0;
  for (int r = 0; r < 2; r++) {
    DIR *root = opendir(roots[r]);
    if (!root) {
      printf("%s is not there: skipped\n", roots[r]);
      continue;
    }
    for (struct dirent *entry; (entry = readdir(root));) {
      char path[900];
      if (entry->d_name[0] == '.' || strcmp(entry->d_name, "SOURCE.txt") == 0 ||
          strncmp(entry->d_name, "later-", 6) == 0)
        continue;
      snprintf(path, sizeof path, "%s/%s", roots[r], entry->d_name);
      different += check_folder(path);
      folders++;
    }
    closedir(root);
  }
  assert_true(folders > 0);
  assert_int_equal(different, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_models)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
