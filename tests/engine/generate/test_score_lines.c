/* Lines to score: plain ones, and what score and generate wrote. */
#include "generate/score_lines.h"

#include "test.h"

static treadle_status parse(const char *text, treadle_score_lines *lines_p) {
  const treadle_requests_spec spec = {.what = "in.jsonl", .vocabulary = 100};
  return treadle_score_lines_parse(&spec, text, strlen(text), lines_p);
}

static void test_read(void **state) {
  (void)state;
  treadle_score_lines l;
  assert_ok(parse(
      "{\"text\": \"a\", \"id\": \"x\"}\n"
      "{\"messages\": [{\"role\": \"user\"}]}\n"
      "{\"token_ids\": [1, 2, 3]}\n"
      "{\"token_ids\": [1, 2, 3], \"logprobs\": [null, -1, -2.5], \"sum\": -3.5, \"id\": 9}\n"
      "{\"id\": 0, \"index\": 1, \"prompt_token_ids\": [4, 5], \"token_ids\": [6, 7, 8], \"text\": "
      "\"z\\u0000\","
      " \"logprobs\": [-0.100000001, -2.0, -0.0], \"top_logprobs\": null, \"finish_reason\": \"stop\","
      " \"stop_reason\": 8, \"version\": 0}\n",
      &l));
  assert_int_equal(l.items.count, 5);
  const treadle_score_line *a = l.items.items;
  assert_int_equal(a[0].input.type, TREADLE_REQUEST_TEXT);
  assert_string_equal(a[0].id.text.bytes, "x");
  assert_int_equal(a[1].input.type, TREADLE_REQUEST_MESSAGES);
  assert_true(a[2].input.token_count == 3 && !a[2].logprobs);
  assert_true(a[3].first == 1 && a[3].logprob_count == 2 && a[3].logprobs[1] == -2.5f);
  assert_true(a[4].input.type == TREADLE_REQUEST_TOKENS && a[4].input.token_count == 5);
  for (int i = 0; i < 5; i++) assert_int_equal(a[4].input.tokens[i], 4 + i);
  assert_true(a[4].first == 2 && a[4].logprob_count == 3 && a[4].logprobs[0] == -0.1f);
  assert_true(1 / a[4].logprobs[2] < 0);
  treadle_score_lines_release(&l);
}

static void test_refused(void **state) {
  (void)state;
  static const struct {
    const char *text, *part;
  } cases[] = {
      {"\n", "in.jsonl: has no lines to score"},
      {"{}", "line 1: has none of text, messages and token_ids"},
      {"{\"text\": \"a\", \"token_ids\": [1]}", "has more than one"},
      {"{\"prompt\": \"a\"}", "'prompt' is not a key"},
      {"{\"text\": \"a\", \"temperature\": 1}", "'temperature' is not a key"},
      {"{\"text\": \"a\", \"logprobs\": [null]}", "logprobs need token_ids"},
      {"{\"token_ids\": [1, 100]}", "token_ids: 100 is not in the vocabulary"},
      {"{\"token_ids\": []}", "token_ids is empty"},
      {"{\"prompt_token_ids\": [1]}", "token_ids must be a list"},
      {"{\"prompt_token_ids\": [], \"token_ids\": [1]}", "prompt_token_ids is empty"},
      {"{\"token_ids\": [1, 2], \"logprobs\": [-1, -2]}", "the first of logprobs must be null"},
      {"{\"token_ids\": [1, 2], \"logprobs\": [null]}", "logprobs must be a list of 2 items"},
      {"{\"token_ids\": [1, 2], \"logprobs\": -1}", "logprobs must be a list of 2 items"},
      {"{\"token_ids\": [1, 2], \"logprobs\": [null, null]}", "logprobs[1] is not a number"},
      {"{\"token_ids\": [1, 2], \"logprobs\": [null, -1e300]}", "logprobs[1] is not a number of fp32"},
      {"{\"prompt_token_ids\": [1], \"token_ids\": [1, 2], \"logprobs\": [null, -1]}",
       "logprobs[0] is not"},
      {"{\"prompt_token_ids\": [1], \"token_ids\": [1, 2], \"logprobs\": [-1]}", "a list of 2 items"},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    treadle_score_lines l;
    assert_refused(cases[i].part, parse(cases[i].text, &l));
    treadle_score_lines_release(&l);
  }
}

static treadle_status read_some(void) {
  treadle_score_lines l;
  treadle_status status = parse("{\"prompt_token_ids\": [4, 5], \"token_ids\": [6], \"logprobs\": [-1]}\n"
                                "{\"text\": \"a\", \"id\": \"x\"}\n{\"messages\": [{\"role\": \"user\"}]}",
                                &l);
  treadle_score_lines_release(&l);
  return status;
}

static void test_no_memory(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(read_some());
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_read), cmocka_unit_test(test_refused),
                                     cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
