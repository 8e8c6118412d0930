/* Lines that are written: values keep their bits, texts are JSON, and score reads what generate writes. */
#include "generate/answers.h"

#include "base/random.h"
#include "generate/score_lines.h"
#include "test.h"

#include <float.h>
#include <math.h>

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Random patterns, and the neighbours of powers of two and ten. As a JSON reader reads them: as double, then to float. */
static void test_round_trip(void **state) {
  (void)state;
  treadle_random random = {.state = 3};
  for (uint64_t i = 0; i < test_seeds(300000); i++) {
    uint32_t bits = (uint32_t)treadle_random_next(&random);
    if (i < 512) bits = (uint32_t)(i << 23) + (uint32_t)(i % 3) - 1;
    char text[TREADLE_FLOAT_TEXT], line[TREADLE_FLOAT_TEXT + 2];
    treadle_float_text(float_of(bits), text);
    if (!isfinite(float_of(bits))) {
      assert_string_equal(text, "null");
      continue;
    }
    snprintf(line, sizeof line, "[%s]", text);
    json_t *root = json_loads(line, 0, NULL);
    assert_true(json_is_real(json_array_get(root, 0)));
    if (bits_of((float)json_real_value(json_array_get(root, 0))) != bits) fail_msg("%08x: %s", bits, text);
    json_decref(root);
  }
}

static void test_float_text(void **state) {
  (void)state;
  static const struct {
    float value;
    const char *text;
  } cases[] = {{0, "0.0"},
               {-0.0f, "-0.0"},
               {-1, "-1.0"},
               {-0.1f, "-0.100000001"},
               {-12.5f, "-12.5"},
               {FLT_MIN, "1.17549435e-38"},
               {-1e30f, "-1.00000002e+30"}};
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    char text[TREADLE_FLOAT_TEXT];
    treadle_float_text(cases[i].value, text);
    assert_string_equal(text, cases[i].text);
  }
}

/* ---- Whole lines ---- */

static const int32_t prompt[] = {1, 4}, eos_ids[] = {2};
static const treadle_eos eos = {eos_ids, 1};
static const treadle_text stops[] = {{"\"\0", 2}};

static void make_sample(treadle_sampling_values *sampling, treadle_sample *sample) {
  treadle_sampling_default(sampling);
  sampling->stop = stops;
  sampling->stop_count = 1;
  const treadle_sample_spec spec = {
      .sampling = sampling, .eos = &eos, .prompt = prompt, .prompt_count = 2, .index = 3, .most_tokens = 9};
  const treadle_token_logprob top[2][2] = {{{7, -0.25f}, {8, -3}}, {{9, -1}, {3, -1.5f}}};
  assert_ok(treadle_sample_init(sample, &spec));
  for (int i = 0; i < 2; i++) {
    assert_ok(treadle_sample_take(sample, 7 + i, i ? -1e-9f : -0.25f, top[i], 2));
    const char *text = i ? "\\\t\0\xff\xe2\x80\xa8\"\0x" : "\xc3\xa9";
    assert_ok(treadle_sample_add_text(sample, text, i ? 10 : 2));
  }
}

static void test_line(void **state) {
  (void)state;
  treadle_builder out = {0};
  treadle_sampling_values sampling;
  treadle_sample sample;
  treadle_score_lines lines;
  const treadle_requests_spec spec = {.what = "out.jsonl", .vocabulary = 10};
  make_sample(&sampling, &sample);
  treadle_answer_add(&out, &(treadle_request_id){.text = {"a\n\"", 3}}, &sample, 5);
  assert_string_equal(
      out.text,
      "{\"id\": \"a\\u000a\\\"\", \"index\": 3, \"prompt_token_ids\": [1, 4], \"token_ids\": [7, 8], "
      "\"text\": \"\xc3\xa9\\\\\\u0009\\u0000\\ufffd\\u2028\", \"logprobs\": [-0.25, "
      "-9.99999972e-10], \"top_logprobs\": [[[7, -0.25], [8, -3.0]], [[9, -1.0], [3, -1.5]]], "
      "\"finish_reason\": \"stop\", \"stop_reason\": \"\\\"\\u0000\", \"version\": 5}\n");
  assert_ok(treadle_score_lines_parse(&spec, out.text, out.length, &lines));
  const treadle_score_line *line = &lines.items.items[0];
  assert_int_equal(line->input.token_count, 4);
  assert_int_equal(line->first, 2);
  assert_memory_equal(line->input.tokens, ((int32_t[]){1, 4, 7, 8}), 16);
  assert_memory_equal(line->logprobs, sample.logprobs.items, 2 * sizeof(float));
  assert_memory_equal(line->id.text.bytes, "a\n\"", 4);
  treadle_score_lines_release(&lines);
  treadle_sample_release(&sample);
  treadle_builder_release(&out);
}

static void test_ends(void **state) {
  (void)state;
  treadle_builder out = {0};
  treadle_sampling_values sampling;
  treadle_sampling_default(&sampling);
  const int32_t all[] = {2, 3};
  const treadle_eos two = {all, 2};
  static const char *const wanted[] = {"\"finish_reason\": \"stop\", \"stop_reason\": null,",
                                       "\"finish_reason\": \"stop\", \"stop_reason\": 3,",
                                       "\"finish_reason\": \"length\", \"stop_reason\": null,"};
  for (int i = 0; i < 3; i++) {
    treadle_sample sample;
    const treadle_sample_spec spec = {
        .sampling = &sampling, .eos = &two, .prompt = prompt, .prompt_count = 2, .most_tokens = 1};
    assert_ok(treadle_sample_init(&sample, &spec));
    assert_ok(treadle_sample_take(&sample, 2 + i, -1, NULL, 0));
    treadle_answer_add(&out, &(treadle_request_id){.number = i}, &sample, 0);
    assert_non_null(strstr(out.text, wanted[i]));
    assert_non_null(strstr(out.text, "\"text\": \"\", \"logprobs\": [-1.0], \"top_logprobs\": null,"));
    treadle_sample_release(&sample);
    treadle_builder_release(&out);
  }
}

static void test_score(void **state) {
  (void)state;
  treadle_builder out = {0};
  treadle_score_lines lines;
  const treadle_requests_spec spec = {.what = "out.jsonl"};
  const int32_t tokens[] = {5, 6, 7};
  const float logprobs[] = {-0.1f, -0.2f};
  treadle_score_logprobs answer = {.tokens = tokens, .count = 3, .logprobs = logprobs}, one = answer;
  one.count = 1;
  treadle_answer_add_score(&out, &(treadle_request_id){.number = 4}, &answer);
  treadle_answer_add_score(&out, &(treadle_request_id){.number = 5}, &one);
  assert_string_equal(out.text, "{\"id\": 4, \"token_ids\": [5, 6, 7], \"logprobs\": [null, -0.100000001, "
                                "-0.200000003], \"sum\": -0.30000000447034836}\n"
                                "{\"id\": 5, \"token_ids\": [5], \"logprobs\": [null], \"sum\": 0}\n");
  assert_ok(treadle_score_lines_parse(&spec, out.text, out.length, &lines));
  assert_memory_equal(lines.items.items[0].logprobs, logprobs, sizeof logprobs);
  assert_int_equal(lines.items.items[1].logprob_count, 0);
  treadle_score_lines_release(&lines);
  treadle_builder_release(&out);
}

/* Each id, each bit and each border counts. */
static void test_digest(void **state) {
  (void)state;
  const int32_t tokens[] = {1, 2, 3};
  const float logprobs[] = {-1, -2, -0.0f}, other[] = {-1, -2, 0.0f};
  uint64_t all[6] = {
      treadle_answer_digest(0, tokens, 3, logprobs, 3), treadle_answer_digest(0, tokens, 3, other, 3),
      treadle_answer_digest(0, tokens, 2, logprobs, 2), treadle_answer_digest(1, tokens, 3, logprobs, 3)};
  all[4] = treadle_answer_digest(treadle_answer_digest(0, tokens, 1, logprobs, 1), tokens + 1, 2,
                                 logprobs + 1, 2);
  all[5] = treadle_answer_digest(treadle_answer_digest(0, tokens, 2, logprobs, 2), tokens + 2, 1,
                                 logprobs + 2, 1);
  for (int i = 0; i < 6; i++)
    for (int k = 0; k < i; k++) assert_true(all[i] != all[k]);
  assert_true(all[0] == treadle_answer_digest(0, (int32_t[]){1, 2, 3}, 3, (float[]){-1, -2, -0.0f}, 3));
}

static treadle_status write_line(const treadle_sample *sample) {
  treadle_builder out = {0};
  treadle_answer_add(&out, &(treadle_request_id){0}, sample, 0);
  treadle_status status = out.failed ? treadle_fail(TREADLE_NO_MEMORY, "no memory") : TREADLE_OK;
  treadle_builder_release(&out);
  return status;
}

static void test_no_memory(void **state) {
  (void)state;
  treadle_sampling_values sampling;
  treadle_sample sample;
  make_sample(&sampling, &sample);
  TEST_EACH_ALLOCATION(write_line(&sample));
  treadle_sample_release(&sample);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip), cmocka_unit_test(test_float_text),
                                     cmocka_unit_test(test_line),       cmocka_unit_test(test_ends),
                                     cmocka_unit_test(test_score),      cmocka_unit_test(test_digest),
                                     cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
