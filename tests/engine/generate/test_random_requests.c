/* Random requests: lengths, sampling, stops, samples, shared prefixes, caches of a few blocks, chunks, cancels and refused calls in
 * between. Afterwards no block is in use, none was used beyond those that there are, nothing was taken beyond what the engine said at
 * creation, every answer is well formed, and an engine with plenty of everything gives the same answers.
 *
 * TREADLE_REQUESTS is how many there are (make nightly: 10000); else 500. */
/* ctest: timeout=300 */
#include "base/random.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/engine_folder.h"
#include "generate/generator.h"
#include "generate/machine.h"
#include "test.h"

#include <math.h>

enum { USUAL = 500, VOCABULARY = ENGINE_VOCABULARY, MOST_LEN = 160, PREFIX = 40 };

/* ---- Requests ---------------------------------------------------------------------------------------- */

/* What was drawn for a request, to look at its answers. */
typedef struct asked {
  int n, max_tokens, min_tokens, logprobs, stop_ids[2], stop_id_count;
  int prompt_tokens; /* 0: a text */
  bool ignore_eos;
} asked;

typedef struct draw {
  treadle_random random;
  treadle_builder lines;
  asked all[64];
  int count;
} draw;

static int below(draw *d, int limit) { return (int)treadle_random_below(&d->random, limit); }

static const char *one_of(draw *d, const char *const *texts, int count) { return texts[below(d, count)]; }

static void draw_prompt(draw *d, asked *a) {
  int length = 1 + below(d, 4) * below(d, MOST_LEN / 4), shared = below(d, 3) ? below(d, PREFIX) : 0;
  if (below(d, 4) == 0) {
    treadle_builder_add(&d->lines, "{\"prompt\": \"");
    for (int i = 0; i < 1 + length / 2; i++) treadle_builder_add(&d->lines, "%c", 'a' + below(d, 26));
    treadle_builder_add(&d->lines, "\"");
    return;
  }
  a->prompt_tokens = length;
  treadle_builder_add(&d->lines, "{\"prompt_token_ids\": [");
  for (int i = 0; i < length; i++)
    treadle_builder_add(&d->lines, "%s%d", i ? ", " : "",
                        i < shared ? i * 5 % VOCABULARY : below(d, VOCABULARY));
  treadle_builder_add(&d->lines, "]");
}

static void draw_request(draw *d) {
  static const char *const temperatures[] = {"0", "0.3", "0.7", "1", "1.5", "40"};
  static const char *const cuts[] = {"",
                                     ", \"top_k\": 3",
                                     ", \"top_p\": 0.8",
                                     ", \"min_p\": 0.1",
                                     ", \"top_k\": 40, \"top_p\": 0.95, \"min_p\": 0.01",
                                     ", \"repetition_penalty\": 1.3",
                                     ", \"presence_penalty\": 1.5, \"frequency_penalty\": -0.5"};
  static const char *const stops[] = {"", ", \"stop\": [\"e\"]",
                                      ", \"stop\": [\"ab\", \"\\u00e9\", \"zz\"]", ", \"stop\": \"qqqq\""};
  asked *a = &d->all[d->count++];
  *a = (asked){.n = below(d, 5) ? 1 : 1 + below(d, 4),
               .max_tokens = 1 + below(d, 3) * below(d, 30),
               .logprobs = below(d, 3) ? 0 : below(d, 6),
               .ignore_eos = below(d, 2)};
  a->min_tokens = below(d, 4) ? 0 : below(d, a->max_tokens + 1);
  draw_prompt(d, a);
  treadle_builder_add(&d->lines, ", \"id\": %d, \"n\": %d, \"max_tokens\": %d, \"min_tokens\": %d",
                      d->count, a->n, a->max_tokens, a->min_tokens);
  treadle_builder_add(&d->lines, ", \"temperature\": %s%s%s",
                      one_of(d, temperatures, TEST_COUNT(temperatures)), one_of(d, cuts, TEST_COUNT(cuts)),
                      one_of(d, stops, TEST_COUNT(stops)));
  if (a->logprobs) treadle_builder_add(&d->lines, ", \"logprobs\": %d", a->logprobs);
  if (a->ignore_eos) treadle_builder_add(&d->lines, ", \"ignore_eos\": true");
  if (below(d, 2)) treadle_builder_add(&d->lines, ", \"seed\": %d", below(d, 1000));
  if (below(d, 3) == 0) {
    for (a->stop_id_count = 0; a->stop_id_count < 2; a->stop_id_count++)
      a->stop_ids[a->stop_id_count] = below(d, VOCABULARY);
    treadle_builder_add(&d->lines, ", \"stop_token_ids\": [%d, %d]", a->stop_ids[0], a->stop_ids[1]);
  }
  treadle_builder_add(&d->lines, "}\n");
}

/* ---- Answers ----------------------------------------------------------------------------------------- */

typedef struct receiver {
  const draw *draw;
  int request, sample, count; /* the next one; answers */
  int fail_at;                /* this answer is not taken; 0: all are */
} receiver;

static bool is_a_stop(const asked *a, int64_t token) {
  for (int i = 0; i < a->stop_id_count; i++)
    if (a->stop_ids[i] == token) return true;
  return false;
}

static void check_logprobs(const asked *a, const json_t *answer, size_t count) {
  const json_t *logprobs = json_object_get(answer, "logprobs"),
               *top = json_object_get(answer, "top_logprobs");
  assert_int_equal(json_array_size(logprobs), count);
  for (size_t i = 0; i < count; i++) {
    double logprob = json_number_value(json_array_get(logprobs, i));
    assert_true(isfinite(logprob) && logprob <= 0);
    if (!a->logprobs) continue;
    const json_t *row = json_array_get(top, i);
    double before = 0;
    assert_int_equal(json_array_size(row), (size_t)a->logprobs);
    for (size_t k = 0; k < json_array_size(row); k++) {
      double next = json_number_value(json_array_get(json_array_get(row, k), 1));
      assert_true(next <= before);
      before = next;
    }
  }
  assert_true(a->logprobs ? json_array_size(top) == count : json_is_null(top));
}

static void check_finish(const asked *a, const json_t *answer, size_t count) {
  const char *finish = json_string_value(json_object_get(answer, "finish_reason"));
  const json_t *reason = json_object_get(answer, "stop_reason"),
               *ids = json_object_get(answer, "token_ids"),
               *prompt = json_object_get(answer, "prompt_token_ids");
  int64_t last = json_integer_value(json_array_get(ids, count - 1)),
          left = MOST_LEN - (int64_t)json_array_size(prompt);
  int64_t most = a->max_tokens < left ? a->max_tokens : left;
  assert_in_range(count, 1, most);
  assert_true(count >= (size_t)a->min_tokens || (int64_t)count == most);
  if (strcmp(finish, "length") == 0) {
    assert_int_equal(count, most);
    assert_true(json_is_null(reason));
    return;
  }
  assert_string_equal(finish, "stop");
  if (json_is_integer(reason))
    assert_true(json_integer_value(reason) == last && is_a_stop(a, last));
  else if (json_is_null(reason))
    assert_true(!a->ignore_eos || is_a_stop(a, last));
  else
    assert_true(json_string_length(reason) > 0);
}

static treadle_status take_answer(void *context, const char *line, size_t bytes) {
  receiver *r = context;
  json_error_t error;
  json_t *answer = json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  assert_non_null(answer);
  const asked *a = &r->draw->all[r->request];
  const json_t *ids = json_object_get(answer, "token_ids");
  assert_int_equal(line[bytes - 1], '\n');
  assert_int_equal(json_integer_value(json_object_get(answer, "id")), r->request + 1);
  assert_int_equal(json_integer_value(json_object_get(answer, "index")), r->sample);
  assert_true(json_is_string(json_object_get(answer, "text")));
  size_t prompt = json_array_size(json_object_get(answer, "prompt_token_ids"));
  assert_true(prompt > 0 && (!a->prompt_tokens || prompt == (size_t)a->prompt_tokens));
  for (size_t i = 0; i < json_array_size(ids); i++)
    assert_in_range(json_integer_value(json_array_get(ids, i)), 0, VOCABULARY - 1);
  check_logprobs(a, answer, json_array_size(ids));
  check_finish(a, answer, json_array_size(ids));
  json_decref(answer);
  if (++r->sample == a->n) {
    r->request++;
    r->sample = 0;
  }
  return ++r->count == r->fail_at ? treadle_fail(TREADLE_SYSTEM, "nobody takes it") : TREADLE_OK;
}

/* ---- Engines ----------------------------------------------------------------------------------------- */

static void see(void *context, const char *what, int64_t done, int64_t total) {
  (void)context;
  (void)what;
  assert_true(done <= total);
}

static bool stop(void *context) {
  int *left = context;
  return *left && --*left == 0;
}

static void check_engine(const machine *m, const treadle_generator_info *before) {
  treadle_generator_info info = TREADLE_INIT(treadle_generator_info);
  assert_ok(treadle_generator_get_info(m->engine, &info));
  assert_int_equal(info.kv_blocks_used, 0);
  assert_true(info.kv_blocks_peak <= info.kv_blocks);
  assert_true(info.kv_blocks == before->kv_blocks && info.work_bytes == before->work_bytes &&
              info.packed_bytes == before->packed_bytes);
}

typedef struct accident { /* what may befall a call */
  int cancel_after, fail_at;
} accident;

static treadle_status generate(const machine *m, const draw *d, const treadle_tokenizer *tokenizer,
                               accident ending, treadle_generate_figures *figures_p) {
  receiver r = {.draw = d, .fail_at = ending.fail_at};
  const treadle_observer observer = {
      .struct_size = sizeof observer, .context = &ending.cancel_after, .progress = see, .stop = stop};
  const treadle_generate_options options = {.struct_size = sizeof options,
                                            .tokenizer = tokenizer,
                                            .seed = 9,
                                            .answer = take_answer,
                                            .context = &r,
                                            .observer = &observer};
  *figures_p = TREADLE_INIT(treadle_generate_figures);
  treadle_status status =
      treadle_generator_generate_lines(m->engine, d->lines.text, d->lines.length, &options, figures_p);
  assert_int_equal(figures_p->kv_blocks_leaked, 0);
  if (!status) assert_int_equal(r.request, d->count);
  return status;
}

static void open_engine(machine *m, const char *folder, treadle_generator_options options) {
  options.threads = 1;
  options.max_len = MOST_LEN;
  const machine_spec spec = {.folder = folder, .layout = "vllm:tp=1", .options = options};
  assert_ok(machine_open(m, &spec));
}

/* An engine with little of everything. */
static treadle_generator_options little(draw *d, size_t token_bytes) {
  treadle_generator_options o = {.max_batch = 1 + below(d, 12),
                                 .prefill_chunk = 1 + below(d, 40),
                                 .block_tokens = 1 + below(d, 24),
                                 .prefix_cache = below(d, 3) ? TREADLE_ON : TREADLE_OFF};
  /* the longest request fits, and a few blocks more */
  size_t blocks = (size_t)((MOST_LEN + o.block_tokens - 1) / o.block_tokens + below(d, 6));
  o.kv_bytes = blocks * (size_t)o.block_tokens * token_bytes;
  return o;
}

static size_t bytes_of_token(const char *folder) {
  treadle_generator_info info = TREADLE_INIT(treadle_generator_info);
  machine m;
  open_engine(&m, folder, (treadle_generator_options){.kv_bytes = 1 << 20, .block_tokens = 1});
  assert_ok(treadle_generator_get_info(m.engine, &info));
  machine_close(&m);
  return (1 << 20) / (size_t)info.kv_blocks + 1;
}

typedef struct tally {
  int64_t requests, calls, cancelled, preemptions, hits, tokens;
} tally;

/* One call on the poor engine; if it ends, the rich one gives the same. */
static void call(draw *d, const machine *poor, const machine *rich, const treadle_tokenizer *tokenizer,
                 tally *t) {
  treadle_generate_figures figures, wanted;
  accident ending = {0};
  d->count = 0;
  d->lines.length = 0;
  for (int i = 1 + below(d, 30); i > 0; i--) draw_request(d);
  if (below(d, 5) == 0) ending.cancel_after = 1 + below(d, 20);
  if (below(d, 8) == 0) ending.fail_at = 1 + below(d, 10);
  treadle_status status = generate(poor, d, tokenizer, ending, &figures);
  t->requests += d->count;
  t->calls++;
  t->preemptions += figures.preemptions;
  t->hits += figures.prefix_hit_tokens;
  t->tokens += figures.new_tokens;
  if (status) {
    t->cancelled++;
    assert_true(status == TREADLE_CANCELLED ? ending.cancel_after > 0
                                            : status == TREADLE_SYSTEM && ending.fail_at > 0);
    return;
  }
  assert_ok(generate(rich, d, tokenizer, (accident){0}, &wanted));
  if (figures.digest != wanted.digest || figures.new_tokens != wanted.new_tokens)
    fail_msg("other bits for:\n%s", d->lines.text);
}

static void refused_call(const machine *m) {
  static const char lines[] = "{\"prompt_token_ids\": [1, 2, 3]}\n{\"prompt_token_ids\": []}\n";
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  assert_refused("line 2",
                 treadle_generator_generate_lines(m->engine, lines, sizeof lines - 1, NULL, &figures));
  assert_int_equal(figures.kv_blocks_leaked, 0);
}

static void run_model(const char *golden, uint64_t seed, int64_t requests, tally *t) {
  const char *folder = engine_folder(golden);
  size_t token_bytes = bytes_of_token(folder);
  draw d = {.random = {seed}};
  treadle_tokenizer *tokenizer;
  machine rich;
  assert_ok(treadle_tokenizer_open(folder, &tokenizer));
  open_engine(&rich, folder, (treadle_generator_options){.kv_bytes = 16 << 20});
  for (int64_t until = t->requests + requests; t->requests < until;) {
    treadle_generator_info info = TREADLE_INIT(treadle_generator_info);
    treadle_generator_options options = little(&d, token_bytes);
    machine poor;
    open_engine(&poor, folder, options);
    assert_ok(treadle_generator_get_info(poor.engine, &info));
    for (int calls = 3; calls > 0; calls--) {
      call(&d, &poor, &rich, tokenizer, t);
      refused_call(&poor);
      check_engine(&poor, &info);
    }
    machine_close(&poor);
  }
  machine_close(&rich);
  treadle_tokenizer_close(tokenizer);
  treadle_builder_release(&d.lines);
}

static void serves_all(void **state) {
  (void)state;
  static const char *const models[] = {"llama-gqa-llama3rope", "qwen2moe", "dsv3-yarn"};
  const char *given = getenv("TREADLE_REQUESTS");
  int64_t requests = given ? strtoll(given, NULL, 10) : (int64_t)test_seeds(USUAL);
  tally t = {0};
  for (size_t i = 0; i < TEST_COUNT(models); i++)
    run_model(models[i], 1000 + i, requests / (int64_t)TEST_COUNT(models) + 1, &t);
  printf(
      "%lld requests in %lld calls, %lld of them ended early; %lld tokens, %lld preemptions, %lld tokens "
      "of prefixes\n",
      (long long)t.requests, (long long)t.calls, (long long)t.cancelled, (long long)t.tokens,
      (long long)t.preemptions, (long long)t.hits);
  assert_true(t.cancelled > 0 && t.preemptions > 0 && t.hits > 0);
}

/* ---- Memory ------------------------------------------------------------------------------------------ */

/* All memory of a forward pass is taken before: steps and logits take none. */
static void steps_take_no_memory(void **state) {
  (void)state;
  static const char *const models[] = {"llama-gqa-llama3rope", "qwen2moe", "dsv3-yarn"};
  static const int32_t tokens[] = {1, 5, 9, 30, 77, 150, 2, 2}, table[] = {0, 1}, which[] = {3, 7};
  for (size_t i = 0; i < TEST_COUNT(models); i++) {
    const treadle_pass_span spans[] = {{.rows = 4, .table = table}, {.rows = 4, .table = table + 1}};
    const treadle_pass_step step = {.tokens = tokens, .rows = 8, .stretches = spans, .stretch_count = 2};
    const float *logits;
    machine m;
    open_engine(&m, engine_folder(models[i]), (treadle_generator_options){.kv_bytes = 1 << 20});
    long before = treadle_alloc_count();
    for (int round = 0; round < 3; round++) {
      assert_ok(treadle_pass_run(m.engine->pass, &step));
      assert_ok(treadle_pass_logits(m.engine->pass, which, 2, &logits));
    }
    assert_int_equal(treadle_alloc_count(), before);
    machine_close(&m);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(serves_all), cmocka_unit_test(steps_take_no_memory)};
  return cmocka_run_group_tests(tests, NULL, command_teardown);
}
