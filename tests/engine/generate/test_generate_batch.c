/* Generating for batches on one rank: the bits of lines of JSON and of scoring, versions, cancels, memory that is out.
 * TREADLE_SEED sets the seed (1). */
#include "base/status.h"
#include "base/text.h"
#include "generate/machine.h"
#include "generate/prompts.h"
#include "test.h"

#include <jansson.h>

#define MODELS TREADLE_SOURCE_DIR "/tests/golden/models/"

enum { MAX_LEN = 64 };

static uint64_t seed(void) {
  const char *given = getenv("TREADLE_SEED");
  return given ? strtoull(given, NULL, 10) : 1;
}

static machine open_machine(const char *folder) {
  machine m;
  const machine_spec spec = {
      .folder = folder,
      .layout = "vllm:tp=1",
      .options = {
          .threads = 1, .kv_bytes = 1 << 20, .max_len = MAX_LEN, .max_batch = 5, .prefill_chunk = 7}};
  assert_ok(machine_open(&m, &spec));
  return m;
}

static int64_t blocks_used(const machine *m) {
  treadle_generator_info info = TREADLE_INIT(treadle_generator_info);
  assert_ok(treadle_generator_get_info(m->engine, &info));
  return info.kv_blocks_used;
}

/* ---- Lines ---- */

static void add_ids(treadle_builder *text, const int32_t *ids, int64_t count) {
  treadle_builder_add(text, "[");
  for (int64_t i = 0; i < count; i++) treadle_builder_add(text, "%s%d", i ? ", " : "", ids[i]);
  treadle_builder_add(text, "]");
}

/* A batch of prompts, and sampling values, as generate_lines takes them. */
static void say_prompts(const treadle_batch *prompts, treadle_builder *lines) {
  treadle_column own = TREADLE_INIT(treadle_column);
  bool seeds = treadle_batch_has(prompts, "seed");
  if (seeds) assert_ok(treadle_batch_column(prompts, "seed", &own));
  for (int64_t r = 0; r < treadle_batch_rows(prompts); r++) {
    int64_t count;
    const int32_t *ids = prompts_ids(prompts, "prompt_ids", r, &count);
    treadle_builder_add(lines, "{\"prompt_token_ids\": ");
    add_ids(lines, ids, count);
    if (seeds) treadle_builder_add(lines, ", \"seed\": %lld", (long long)((const int64_t *)own.data)[r]);
    treadle_builder_add(lines, "}\n");
  }
}

static void say_sampling(const treadle_sampling *s, treadle_builder *text) {
  treadle_builder_add(text, "{\"temperature\": %.17g, \"top_k\": %lld, \"top_p\": %.17g, \"min_p\": %.17g",
                      s->temperature, (long long)s->top_k, s->top_p, s->min_p);
  treadle_builder_add(
      text, ", \"repetition_penalty\": %.17g, \"presence_penalty\": %.17g, \"frequency_penalty\": %.17g",
      s->repetition_penalty, s->presence_penalty, s->frequency_penalty);
  treadle_builder_add(text, ", \"n\": %lld, \"max_tokens\": %lld, \"min_tokens\": %lld, \"ignore_eos\": %s",
                      (long long)s->n, (long long)s->max_tokens, (long long)s->min_tokens,
                      s->ignore_eos ? "true" : "false");
  treadle_builder_add(text, ", \"stop_token_ids\": ");
  add_ids(text, s->stop_token_ids, (int64_t)s->stop_token_id_count);
  treadle_builder_add(text, "}");
}

typedef struct comparison {
  const treadle_batch *answers;
  int64_t row, kept_row; /* the next one */
} comparison;

static treadle_status compare_answer(void *context, const char *line, size_t bytes) {
  comparison *c = context;
  treadle_column logprobs = TREADLE_INIT(treadle_column), finish = TREADLE_INIT(treadle_column),
                 version = TREADLE_INIT(treadle_column);
  json_t *answer = json_loadb(line, bytes, JSON_DECODE_ANY, NULL);
  const json_t *ids = json_object_get(answer, "token_ids"), *wanted = json_object_get(answer, "logprobs");
  int64_t count, r = c->row++;
  const int32_t *own = prompts_ids(c->answers, "ids", r, &count);
  assert_ok(treadle_batch_column(c->answers, "rollout_log_probs", &logprobs));
  assert_ok(treadle_batch_column(c->answers, "finish", &finish));
  assert_ok(treadle_batch_column(c->answers, "version", &version));
  assert_int_equal(json_array_size(ids), count);
  assert_int_equal(logprobs.offsets[r + 1] - logprobs.offsets[r], count);
  for (int64_t i = 0; i < count; i++) { /* 9 digits name the bits of an fp32 */
    float theirs = (float)json_number_value(json_array_get(wanted, (size_t)i));
    assert_int_equal(json_integer_value(json_array_get(ids, (size_t)i)), own[i]);
    assert_memory_equal((const float *)logprobs.data + logprobs.offsets[r] + i, &theirs, sizeof theirs);
  }
  const char *reason = json_string_value(json_object_get(answer, "finish_reason"));
  assert_int_equal(strlen(reason), finish.offsets[r + 1] - finish.offsets[r]);
  assert_memory_equal(reason, (const char *)finish.data + finish.offsets[r], strlen(reason));
  assert_int_equal(json_integer_value(json_object_get(answer, "version")),
                   ((const int64_t *)version.data)[r]);
  json_decref(answer);
  return TREADLE_OK;
}

static treadle_status compare_kept(void *context, const int32_t *counts, size_t tokens, const int32_t *ids,
                                   size_t count) {
  comparison *c = context;
  int64_t own;
  assert_memory_equal(prompts_ids(c->answers, "kept_counts", c->kept_row, &own), counts,
                      tokens * sizeof *counts);
  assert_int_equal(own, tokens);
  assert_memory_equal(prompts_ids(c->answers, "kept", c->kept_row, &own), ids, count * sizeof *ids);
  assert_int_equal(own, count);
  c->kept_row++;
  return TREADLE_OK;
}

/* sampling NULL: the model's own. */
static void compare_with_lines(const machine *m, const treadle_batch *prompts, const treadle_sampling *s) {
  treadle_builder lines = {0}, sampling = {0};
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  treadle_generate_options options = {
      .struct_size = sizeof options, .answer = compare_answer, .kept = compare_kept};
  treadle_batch *answers;
  assert_ok(treadle_generator_generate(m->engine, prompts, s, NULL, &answers));
  comparison c = {.answers = answers};
  options.context = &c;
  say_prompts(prompts, &lines);
  if (s) {
    say_sampling(s, &sampling);
    options.sampling = sampling.text;
    options.seed = s->seed;
    options.never = s->never;
    options.never_count = s->never_count;
    options.most_kept = s->most_kept;
    options.scaled = s->logprobs_of == TREADLE_LOGPROBS_SCALED;
    options.drawn = s->logprobs_of == TREADLE_LOGPROBS_DRAWN;
  }
  assert_ok(treadle_generator_generate_lines(m->engine, lines.text, lines.length, &options, &figures));
  assert_int_equal(c.row, treadle_batch_rows(answers));
  assert_int_equal(c.kept_row, treadle_batch_has(answers, "kept") ? c.row : 0);
  assert_int_equal(treadle_batch_has(answers, "kept_counts"), treadle_batch_has(answers, "kept"));
  treadle_batch_destroy(answers);
  treadle_builder_release(&lines);
  treadle_builder_release(&sampling);
}

/* ---- Samplings ---- */

static const int32_t stops[] = {3, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60}, never[] = {7, 100, 9};

#define SAMPLING(answers, ...)                                                                             \
  {                                                                                                        \
    .struct_size = sizeof(treadle_sampling), .temperature = 1, .top_p = 1, .repetition_penalty = 1,        \
    .n = answers, .max_tokens = 12, __VA_ARGS__                                                            \
  }
static const treadle_sampling greedy = {
    .struct_size = sizeof greedy, .top_p = 1, .repetition_penalty = 1, .n = 1, .max_tokens = 9};
static const treadle_sampling samplings[] = {
    SAMPLING(1, .seed = 5),
    SAMPLING(3, .ignore_eos = true, .seed = -1),
    SAMPLING(2, .top_k = 4),
    SAMPLING(1, .min_p = 0.02, .seed = INT64_MIN),
    SAMPLING(2, .presence_penalty = 0.5, .frequency_penalty = -0.25),
    SAMPLING(1, .stop_token_ids = stops, .stop_token_id_count = TEST_COUNT(stops), .min_tokens = 3),
    SAMPLING(1, .logprobs_of = TREADLE_LOGPROBS_SCALED, .never = never, .never_count = TEST_COUNT(never)),
    SAMPLING(1, .logprobs_of = TREADLE_LOGPROBS_DRAWN, .ignore_eos = true),
    SAMPLING(2, .logprobs_of = TREADLE_LOGPROBS_DRAWN, .top_k = 5),
    SAMPLING(1, .logprobs_of = TREADLE_LOGPROBS_DRAWN, .min_p = 0.01, .most_kept = 3, .never = never,
             .never_count = TEST_COUNT(never), .stop_token_ids = stops,
             .stop_token_id_count = TEST_COUNT(stops), .min_tokens = 2),
};

static void test_lines(void **state) {
  (void)state;
  static const char *const folders[] = {MODELS "qwen2-tied", MODELS "llama-gqa-llama3rope"};
  treadle_random random = {seed()};
  for (size_t i = 0; i < TEST_COUNT(folders); i++) {
    machine m = open_machine(folders[i]);
    for (size_t s = 0; s < TEST_COUNT(samplings) + 4; s++) {
      treadle_batch *prompts = prompts_draw(&random, treadle_random_between(&random, 1, 9), s % 2);
      treadle_sampling given = s < TEST_COUNT(samplings) ? samplings[s] : greedy;
      if (s == TEST_COUNT(samplings)) given.repetition_penalty = 1.3;
      if (s == TEST_COUNT(samplings) + 1) given = TREADLE_SAMPLING_INIT;
      if (s == TEST_COUNT(samplings) + 2) {
        given.temperature = 0.7;
        given.top_p = 0.6;
        given.logprobs_of = TREADLE_LOGPROBS_DRAWN;
      }
      compare_with_lines(&m, prompts, s == TEST_COUNT(samplings) + 3 ? NULL : &given);
      treadle_batch_destroy(prompts);
    }
    assert_int_equal(blocks_used(&m), 0);
    machine_close(&m);
  }
}

/* ---- Scoring ---- */

typedef struct scored {
  const treadle_batch *answers;
  size_t prompt;
} scored;

static treadle_status compare_score(void *context, size_t text, const float *logprobs) {
  const scored *s = context;
  treadle_column own = TREADLE_INIT(treadle_column);
  assert_ok(treadle_batch_column(s->answers, "rollout_log_probs", &own));
  size_t count = (size_t)(own.offsets[text + 1] - own.offsets[text]);
  assert_memory_equal((const float *)own.data + own.offsets[text], logprobs + s->prompt,
                      count * sizeof *logprobs);
  return TREADLE_OK;
}

/* Log-probabilities have the bits that scoring gives: no text on their way. */
static void test_scores(void **state) {
  (void)state;
  treadle_random random = {seed()};
  machine m = open_machine(MODELS "qwen2-tied");
  for (int scales = 0; scales < 2; scales++) {
    treadle_sampling sampling = SAMPLING(4, .ignore_eos = true);
    treadle_batch *prompts = prompts_draw(&random, 1, true), *answers;
    int32_t texts[4][MAX_LEN];
    treadle_score_text list[4];
    int64_t count, more;
    if (scales) {
      sampling.temperature = 0.75;
      sampling.logprobs_of = TREADLE_LOGPROBS_SCALED;
    }
    const int32_t *prompt = prompts_ids(prompts, "prompt_ids", 0, &count);
    assert_ok(treadle_generator_generate(m.engine, prompts, &sampling, NULL, &answers));
    for (int i = 0; i < 4; i++) {
      const int32_t *ids = prompts_ids(answers, "ids", i, &more);
      memcpy(texts[i], prompt, (size_t)count * sizeof *prompt);
      memcpy(texts[i] + count, ids, (size_t)more * sizeof *ids);
      list[i] = (treadle_score_text){texts[i], (size_t)(count + more)};
    }
    scored s = {.answers = answers, .prompt = (size_t)count};
    const treadle_score_options options = {.struct_size = sizeof options,
                                           .temperature = (float)sampling.temperature,
                                           .done = compare_score,
                                           .context = &s};
    assert_ok(treadle_generator_score(m.engine, list, 4, &options));
    treadle_batch_destroy(prompts);
    treadle_batch_destroy(answers);
  }
  machine_close(&m);
}

/* ---- No rows; a part of a larger batch ---- */

/* A batch without rows has the columns of one with rows, so that they can be put together. */
static void test_no_rows(void **state) {
  (void)state;
  treadle_random random = {seed()};
  machine m = open_machine(MODELS "qwen2-tied");
  treadle_batch *some = prompts_draw(&random, 3, true), *none = prompts_draw(&random, 0, true);
  for (size_t i = 0; i < TEST_COUNT(samplings); i++) {
    treadle_batch *parts[2], *both;
    assert_ok(treadle_generator_generate(m.engine, some, &samplings[i], NULL, &parts[0]));
    assert_ok(treadle_generator_generate(m.engine, none, &samplings[i], NULL, &parts[1]));
    assert_int_equal(treadle_batch_rows(parts[1]), 0);
    assert_ok(treadle_batch_concat((const treadle_batch *const *)parts, 2, &both));
    assert_null(prompts_differ(both, parts[0], 0));
    for (int p = 0; p < 2; p++) treadle_batch_destroy(parts[p]);
    treadle_batch_destroy(both);
  }
  treadle_batch_destroy(some);
  treadle_batch_destroy(none);
  machine_close(&m);
}

/* With seeds of their own, rows of a slice are answered as in the whole batch: offsets of a slice do not begin at 0. */
static void test_slices(void **state) {
  (void)state;
  treadle_random random = {seed()};
  machine m = open_machine(MODELS "qwen2-tied");
  treadle_batch *prompts = prompts_draw(&random, 7, true), *all, *part, *out;
  assert_ok(treadle_generator_generate(m.engine, prompts, &samplings[8], NULL, &all));
  assert_true(treadle_batch_has(all, "kept"));
  for (int64_t first = 0; first < 7; first += 3) {
    assert_ok(treadle_batch_slice(prompts, first, first + 1, &part));
    assert_ok(treadle_generator_generate(m.engine, part, &samplings[8], NULL, &out));
    assert_int_equal(treadle_batch_rows(out), samplings[8].n);
    assert_null(prompts_differ(out, all, first * samplings[8].n));
    treadle_batch_destroy(out);
    treadle_batch_destroy(part);
  }
  treadle_batch_destroy(all);
  treadle_batch_destroy(prompts);
  machine_close(&m);
}

/* ---- Who watches ---- */

typedef struct watching {
  machine *m;
  int calls, stop_at, bind_at; /* 0: never */
  int64_t done, total;
} watching;

static void see_progress(void *context, const char *what, int64_t done, int64_t total) {
  watching *w = context;
  assert_string_equal(what, "generating");
  assert_int_equal(total, w->total);
  assert_in_range(done, w->done, total);
  w->done = done;
  if (++w->calls == w->bind_at)
    assert_ok(treadle_generator_bind(w->m->engine, w->m->window, w->m->window_bytes));
}

static bool stop(void *context) {
  watching *w = context;
  return w->calls == w->stop_at;
}

static void test_observer(void **state) {
  (void)state;
  treadle_random random = {seed()};
  machine m = open_machine(MODELS "qwen2-tied");
  treadle_batch *prompts = prompts_draw(&random, 4, true), *wanted, *out = NULL;
  watching w = {.m = &m, .total = 12};
  const treadle_observer observer = {
      .struct_size = sizeof observer, .context = &w, .progress = see_progress, .stop = stop};
  assert_ok(treadle_generator_generate(m.engine, prompts, &samplings[1], NULL, &wanted));
  assert_ok(treadle_generator_generate(m.engine, prompts, &samplings[1], &observer, &out));
  assert_int_equal(w.done, 12);
  assert_null(prompts_differ(out, wanted, 0));
  treadle_batch_destroy(out);
  for (int at = 1, last = w.calls; at <= last; at += 7) {
    w = (watching){.m = &m, .total = 12, .stop_at = at};
    assert_fails(TREADLE_CANCELLED, "cancelled",
                 treadle_generator_generate(m.engine, prompts, &samplings[1], &observer, &out));
    assert_null(out);
    assert_int_equal(w.calls, at);
    assert_int_equal(blocks_used(&m), 0);
  }
  assert_ok(treadle_generator_generate(m.engine, prompts, &samplings[1], NULL, &out));
  assert_null(prompts_differ(out, wanted, 0));
  treadle_batch_destroy(out);
  treadle_batch_destroy(wanted);
  treadle_batch_destroy(prompts);
  machine_close(&m);
}

/* The version is that of the last token, also of an answer that ended before the one in front of it. */
static void test_versions(void **state) {
  (void)state;
  static int64_t offsets[] = {0, 3, 3 + MAX_LEN - 4};
  static int32_t ids[MAX_LEN];
  machine m = open_machine(MODELS "qwen2-tied");
  treadle_batch *prompts =
                    prompts_of(2, (treadle_column){.name = "prompt_ids", .offsets = offsets, .data = ids}),
                *out;
  treadle_sampling sampling = SAMPLING(1, .ignore_eos = true);
  treadle_column version = TREADLE_INIT(treadle_column);
  watching w = {.m = &m, .total = 2, .bind_at = 30};
  const treadle_observer observer = {
      .struct_size = sizeof observer, .context = &w, .progress = see_progress};
  sampling.max_tokens = 256;
  assert_ok(treadle_generator_generate(m.engine, prompts, &sampling, &observer, &out));
  assert_ok(treadle_batch_column(out, "version", &version));
  assert_int_equal(((const int64_t *)version.data)[0], 2);
  assert_int_equal(((const int64_t *)version.data)[1], 1);
  treadle_batch_destroy(out);
  treadle_batch_destroy(prompts);
  machine_close(&m);
}

/* ---- Memory ---- */

static treadle_status work(const machine *m, const treadle_batch *prompts) {
  treadle_batch *out = NULL;
  treadle_status status = treadle_generator_generate(m->engine, prompts, &samplings[8], NULL, &out);
  assert_true((out != NULL) == (status == TREADLE_OK));
  assert_int_equal(blocks_used(m), 0);
  treadle_batch_destroy(out);
  return status;
}

static void test_each_allocation(void **state) {
  (void)state;
  treadle_random random = {seed()};
  machine m = open_machine(MODELS "qwen2-tied");
  treadle_batch *prompts = prompts_draw(&random, 2, true);
  TEST_EACH_ALLOCATION(work(&m, prompts));
  treadle_batch_destroy(prompts);
  machine_close(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines),          cmocka_unit_test(test_scores),
                                     cmocka_unit_test(test_no_rows),        cmocka_unit_test(test_slices),
                                     cmocka_unit_test(test_observer),       cmocka_unit_test(test_versions),
                                     cmocka_unit_test(test_each_allocation)};
  printf("TREADLE_SEED=%llu\n", (unsigned long long)seed());
  return cmocka_run_group_tests(tests, NULL, NULL);
}
