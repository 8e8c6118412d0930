/* Models (expected.json beside a model): logits in fp32 and bf16 within the tolerances that the file has, and greedy tokens, of the
 * recorded text and generated, wherever the recorded gap is larger than the tolerance (SOURCE.txt of tests/golden/models).
 *
 * fp32: a case for each prompt. bf16: one for all of them, since its tolerances are a mean and a percentile: of the differences of all
 * log-probabilities of all rows. Where a model has experts, a router that tips makes the percentile mean nothing, and the file says so. */
#include "golden_support/golden_engine.h"

#include "io/safetensors.h"
#include "pass/transformer.h"
#include "treadle_builtin.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_TEXT = 1 << 20 };

typedef struct prompt_work {
  golden_recording *r;
  const char *name; /* of the model */
  json_t *item;
  size_t number, prompt_count;
  golden_tokens tokens;
  float *golden; /* [tokens, vocabulary] */
  int64_t vocabulary;
  double allowed; /* fp32: of a logit; bf16: of the gap */
  bool bf16;
  /* found */
  double largest, largest_recorded;
  size_t other_tokens;
  /* of all prompts, bf16 */
  float *differences;
  size_t difference_count;
} prompt_work;

static double number_of(const json_t *item, const char *key, size_t i) {
  return json_number_value(json_array_get(json_object_get(item, key), i));
}

static void add_differences(prompt_work *w, const float *logits, const float *golden) {
  double ours = golden_log_sum(logits, w->vocabulary), theirs = golden_log_sum(golden, w->vocabulary);
  w->differences =
      realloc(w->differences, (w->difference_count + (size_t)w->vocabulary) * sizeof *w->differences);
  if (!w->differences) abort();
  for (int64_t i = 0; i < w->vocabulary; i++) {
    double difference = fabs((logits[i] - ours) - (golden[i] - theirs));
    w->differences[w->difference_count++] = difference <= 1e30 ? (float)difference : INFINITY;
  }
}

static void add_largest(prompt_work *w, const float *logits, const float *golden) {
  for (int64_t i = 0; i < w->vocabulary; i++) {
    double difference = fabs((double)logits[i] - golden[i]);
    if (!(difference <= w->largest)) w->largest = difference <= 1e30 ? difference : INFINITY;
  }
}

static treadle_status take_row(void *context, size_t text, size_t token, const float *logits) {
  prompt_work *w = context;
  const float *golden = w->golden + (int64_t)token * w->vocabulary;
  (void)text;
  if (w->bf16)
    add_differences(w, logits, golden);
  else
    add_largest(w, logits, golden);
  if (token + 1 < w->prompt_count || token + 1 >= w->tokens.count) return TREADLE_OK;
  size_t made = token + 1 - w->prompt_count;
  int32_t wanted = w->tokens.ids[token + 1];
  double off =
      fabs(logits[wanted] - golden_log_sum(logits, w->vocabulary) - number_of(w->item, "logprobs", made));
  if (!(off <= w->largest_recorded)) w->largest_recorded = off;
  if (number_of(w->item, "gap", made) > w->allowed && golden_best(logits, w->vocabulary, NULL) != wanted)
    w->other_tokens++;
  return TREADLE_OK;
}

/* How many of the greedy tokens, generated one by one, are others: as far as the gap exceeds the tolerance. */
static treadle_status generate(prompt_work *w, machine *m) {
  golden_tokens prompt = {w->tokens.ids, w->prompt_count}, made = {0};
  const golden_greedy greedy = {.prompt = &prompt, .count = w->tokens.count - w->prompt_count};
  treadle_status status = golden_engine_generate(m, &greedy, &made);
  for (size_t i = 0; i < greedy.count && number_of(w->item, "gap", i) > w->allowed; i++)
    if (i >= made.count || made.ids[i] != w->tokens.ids[w->prompt_count + i]) {
      w->other_tokens++;
      break; /* those behind it follow another text */
    }
  free(made.ids);
  return status;
}

static treadle_checkpoint *open_logits(const golden_recording *r) {
  char path[1200];
  treadle_checkpoint *file = NULL;
  snprintf(path, sizeof path, "%s/logits.safetensors", r->folder);
  treadle_checkpoint_open(path, &file);
  return file;
}

/* NULL, or why the prompt cannot be compared. */
static const char *prepare(prompt_work *w, treadle_checkpoint *file, char reason_p[GOLDEN_REASON]) {
  char name[32];
  if (!golden_keys(w->item, "i:prompt_token_ids i:token_ids f:logprobs f:gap", reason_p)) return reason_p;
  golden_tokens_add(&w->tokens, json_object_get(w->item, "prompt_token_ids"));
  w->prompt_count = w->tokens.count;
  golden_tokens_add(&w->tokens, json_object_get(w->item, "token_ids"));
  size_t made = w->tokens.count - w->prompt_count;
  if (!w->prompt_count || !made || w->tokens.count > MOST_TEXT) return "it has no tokens";
  if (json_array_size(json_object_get(w->item, "logprobs")) != made ||
      json_array_size(json_object_get(w->item, "gap")) != made)
    return "it has not one 'logprobs' and 'gap' for each token";
  snprintf(name, sizeof name, "logits.%zu", w->number);
  const treadle_stored *tensor = treadle_checkpoint_find(file, name);
  if (!tensor || tensor->dtype != TREADLE_FP32 || tensor->ndim != 2 ||
      tensor->shape[0] != (int64_t)w->tokens.count || tensor->shape[1] != w->vocabulary)
    return "logits.safetensors does not have its logits in fp32, [tokens, vocabulary]";
  w->golden = realloc(w->golden, tensor->bytes);
  if (!w->golden) abort();
  memcpy(w->golden, tensor->data, tensor->bytes);
  return NULL;
}

static void judge_fp32(prompt_work *w, treadle_status status) {
  bool equal = status == TREADLE_OK && w->largest <= w->allowed && w->largest_recorded <= 2 * w->allowed &&
               w->other_tokens == 0;
  golden_count(w->r, (golden_counts){.equal = equal, .different = !equal});
  if (equal) return;
  if (status)
    golden_say(w->r, "%s fp32 prompt %zu: %s", w->name, w->number, treadle_error_message());
  else
    golden_say(w->r,
               "%s fp32 prompt %zu: logits differ by %.3g (allowed: %.3g), recorded log-probabilities by "
               "%.3g, %zu greedy tokens are others",
               w->name, w->number, w->largest, w->allowed, w->largest_recorded, w->other_tokens);
}

static int compare_floats(const void *left, const void *right) {
  float a = *(const float *)left, b = *(const float *)right;
  return a < b ? -1 : a > b;
}

static void judge_bf16(prompt_work *w, treadle_status status, const json_t *tolerance, bool has_experts) {
  double sum = 0, mean = json_number_value(json_object_get(tolerance, "bf16_mean")),
         p999 = json_number_value(json_object_get(tolerance, "bf16_p999"));
  size_t count = w->difference_count;
  qsort(w->differences, count, sizeof *w->differences, compare_floats);
  for (size_t i = 0; i < count; i++) sum += w->differences[i];
  double our_mean = count ? sum / (double)count : INFINITY,
         our_p999 = count ? w->differences[(count - 1) * 999 / 1000] : INFINITY;
  bool equal =
      status == TREADLE_OK && our_mean <= mean && (has_experts || our_p999 <= p999) && w->other_tokens == 0;
  golden_count(w->r, (golden_counts){.equal = equal, .different = !equal});
  if (equal) return;
  if (status)
    golden_say(w->r, "%s bf16: %s", w->name, treadle_error_message());
  else
    golden_say(
        w->r,
        "%s bf16: log-probabilities differ by %.3g in the mean (allowed: %.3g), 99.9 %% of them by at "
        "most %.3g (allowed: %.3g), %zu greedy tokens are others",
        w->name, our_mean, mean, our_p999, p999, w->other_tokens);
}

static treadle_status run_prompt(prompt_work *w, machine *m) {
  treadle_status status = golden_engine_score(m, &w->tokens, take_row, w);
  return status ? status : generate(w, m);
}

static void check_dtype(golden_recording *r, machine *m, bool bf16) {
  json_t *prompts = json_object_get(r->root, "prompts"), *tolerance = json_object_get(r->root, "tolerance");
  const char *slash = strrchr(r->folder, '/');
  treadle_generator_info info = TREADLE_INIT(treadle_generator_info);
  treadle_transformer *transformer = NULL;
  treadle_checkpoint *file = open_logits(r);
  prompt_work w = {.r = r, .name = slash ? slash + 1 : r->folder, .bf16 = bf16};
  treadle_status status = treadle_generator_get_info(m->engine, &info);
  w.vocabulary = info.vocabulary;
  w.allowed = json_number_value(json_object_get(tolerance, bf16 ? "bf16_p999" : "fp32_max"));
  if (!status) status = treadle_transformer_create(m->model, &transformer);
  for (size_t p = 0; p < json_array_size(prompts); p++) {
    char reason[GOLDEN_REASON];
    w.number = p;
    w.item = json_array_get(prompts, p);
    w.largest = w.largest_recorded = 0;
    w.tokens.count = 0;
    if (!bf16) w.other_tokens = 0;
    const char *missing = file ? prepare(&w, file, reason) : "logits.safetensors is not there";
    if (missing)
      golden_skip(r, 1, "%s %s prompt %zu: %s", w.name, bf16 ? "bf16" : "fp32", p, missing);
    else if (!status)
      status = run_prompt(&w, m);
    if (!missing && !bf16) judge_fp32(&w, status);
  }
  if (bf16 && w.difference_count)
    judge_bf16(&w, status, tolerance, transformer && transformer->routing.experts > 0);
  treadle_transformer_destroy(transformer);
  treadle_checkpoint_close(file);
  free(w.tokens.ids);
  free(w.differences);
  free(w.golden);
}

void golden_check_logits(golden_recording *r) {
  static const char *const dtypes[] = {"fp32", "bf16"};
  json_t *tolerance = json_object_get(r->root, "tolerance");
  const char *slash = strrchr(r->folder, '/'), *name = slash ? slash + 1 : r->folder;
  char reason[GOLDEN_REASON], config[1200];
  snprintf(config, sizeof config, "%s/config.json", r->folder);
  if (access(config, R_OK) != 0) {
    golden_skip(r, 1, "%s: its model is not beside it", name);
    return;
  }
  if (!golden_keys(tolerance, "n:fp32_max n:bf16_mean n:bf16_p999", reason)) {
    golden_refuse(r, "'tolerance': %s", reason);
    return;
  }
  for (int d = 0; d < 2; d++) {
    machine m;
    golden_opened opened = golden_engine_open(&m, r->folder, dtypes[d]);
    if (opened == GOLDEN_OPENED) {
      check_dtype(r, &m, d == 1);
    } else if (opened == GOLDEN_NOT_COMPUTED) {
      golden_skip(r, 1, "%s %s: %s", name, dtypes[d], treadle_error_message());
    } else {
      golden_say(r, "%s %s: %s", name, dtypes[d], treadle_error_message());
      golden_count(r, (golden_counts){.different = 1});
    }
    machine_close(&m);
  }
}
