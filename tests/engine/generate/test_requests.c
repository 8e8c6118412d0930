/* Lines of requests: what is read, and what is refused by line. */
#include "generate/requests.h"

#include "base/text.h"
#include "test.h"

static treadle_sampling_values base;

static treadle_status parse(const char *text, treadle_requests *requests_p) {
  const treadle_requests_spec spec = {.what = "in.jsonl", .sampling = &base, .vocabulary = 100};
  return treadle_requests_parse(&spec, text, strlen(text), requests_p);
}

static int setup(void **state) {
  (void)state;
  treadle_sampling_default(&base);
  base.temperature = 0.25;
  base.max_tokens = 64;
  return 0;
}

static void test_read(void **state) {
  (void)state;
  treadle_requests r;
  assert_ok(parse(
      "{\"prompt\": \"Caf\\u00e9 \\u0000!\", \"id\": \"a\\\"b\"}\n"
      "   \t\r\n"
      "{\"id\": -5, \"messages\": [{\"role\": \"user\", \"content\": null}], \"max_tokens\": 7,"
      " \"min_tokens\": 2, \"temperature\": 0, \"top_k\": -1, \"top_p\": 0.5, \"min_p\": 1,"
      " \"repetition_penalty\": 2, \"presence_penalty\": -1, \"frequency_penalty\": 0.5,"
      " \"stop\": [\"x\", \"\\u0000y\"], \"stop_token_ids\": [3, 99], \"ignore_eos\": true, \"n\": 4,"
      " \"seed\": -7, \"logprobs\": 5}\r\n"
      "{\"prompt_token_ids\": [0, 99, 5], \"id\": -5, \"stop\": \"one\", \"seed\": null, \"n\": null}",
      &r));
  assert_int_equal(r.items.count, 3);
  const treadle_request *a = &r.items.items[0], *b = a + 1, *c = a + 2;
  assert_int_equal(a->input.type, TREADLE_REQUEST_TEXT);
  assert_int_equal(a->input.text.count, 8);
  assert_memory_equal(a->input.text.bytes, "Caf\xc3\xa9 \0!", 9);
  assert_string_equal(a->id.text.bytes, "a\"b");
  assert_true(a->sampling.temperature == 0.25 && a->sampling.max_tokens == 64 && !a->sampling.has_seed);
  assert_int_equal(b->line, 3);
  assert_int_equal(b->number, 1);
  assert_null(b->id.text.bytes);
  assert_int_equal(b->id.number, -5);
  assert_int_equal(b->input.type, TREADLE_REQUEST_MESSAGES);
  assert_int_equal(json_array_size(b->input.messages), 1);
  const treadle_sampling_values *s = &b->sampling;
  assert_true(s->temperature == 0 && s->top_k == -1 && s->top_p == 0.5 && s->min_p == 1);
  assert_true(s->repetition_penalty == 2 && s->presence_penalty == -1 && s->frequency_penalty == 0.5);
  assert_true(s->max_tokens == 7 && s->min_tokens == 2 && s->n == 4 && s->logprobs == 5 && s->ignore_eos);
  assert_true(s->has_seed && s->seed == -7);
  assert_true(s->stop_count == 2 && s->stop[1].count == 2 && s->stop[1].bytes[1] == 'y');
  assert_true(s->stop_id_count == 2 && s->stop_ids[0] == 3 && s->stop_ids[1] == 99);
  assert_int_equal(c->input.type, TREADLE_REQUEST_TOKENS);
  assert_int_equal(c->input.token_count, 3);
  assert_int_equal(c->input.tokens[1], 99);
  assert_int_equal(c->id.number, -5); /* ids may repeat */
  assert_true(c->sampling.stop_count == 1 && strcmp(c->sampling.stop[0].bytes, "one") == 0);
  assert_true(!c->sampling.has_seed && c->sampling.n == 1);
  treadle_requests_release(&r);
}

/* Without an id a request has its number; lines of white space have none. */
static void test_ids(void **state) {
  (void)state;
  treadle_requests r;
  assert_ok(parse("\n{\"prompt\": \"a\"}\n\n{\"prompt\": \"b\", \"id\": null}\n", &r));
  for (int i = 0; i < 2; i++) {
    assert_null(r.items.items[i].id.text.bytes);
    assert_int_equal(r.items.items[i].id.number, i);
    assert_int_equal(r.items.items[i].number, i);
    assert_int_equal(r.items.items[i].line, 2 + 2 * i);
  }
  treadle_requests_release(&r);
}

static void test_own_seeds(void **state) {
  (void)state;
  treadle_requests r;
  assert_ok(parse("{\"prompt\": \"a\"}\n{\"prompt\": \"a\"}\n{\"prompt\": \"b\", \"seed\": "
                  "0}\n{\"prompt\": \"b\", \"seed\": -1}",
                  &r));
  const treadle_request *a = r.items.items;
  assert_true(treadle_request_seed(&a[0], 0) != treadle_request_seed(&a[1], 0));
  assert_true(treadle_request_seed(&a[0], 0) != treadle_request_seed(&a[0], 1));
  assert_int_equal(treadle_request_seed(&a[2], 5), 0);
  assert_false(a[3].sampling.has_seed); /* as vLLM has it */
  treadle_requests_release(&r);
}

#define LINE(rest) "{\"prompt\": \"a\"}\n\n{\"prompt\": \"a\", " rest "}\n"

static void test_refused(void **state) {
  (void)state;
  static const struct {
    const char *text, *part;
  } cases[] = {
      {"", "in.jsonl: has no requests"},
      {" \n\t\n", "in.jsonl: has no requests"},
      {"{\"prompt\": \"a\"}\n{\"prompt\": \"b\"", "in.jsonl: line 2, column 15: "},
      {"{\"prompt\": \"a\"}\nnull", "line 2, column"},
      {"{\"prompt\": \"a\"}\n[]", "line 2: not an object"},
      {"{\"prompt\": \"a\"} {}", "line 1, column"},
      {"{\"prompt\": \"a\xff\"}", "line 1, column"},
      {"{\"prompt\": \"a\\ud800\"}", "prompt must be a text (line 1: "},
      {"{\"prompt\": \"a\", \"prompt\": \"b\"}", "stands twice in one object"},
      {"{\"prompt\": \"\"}", "line 1: prompt is empty"},
      {"{\"prompt\": [1]}", "line 1: prompt must be a text, not a list"},
      {"{}", "line 1: has none of prompt, messages and prompt_token_ids"},
      {"{\"prompt\": null}", "line 1: has none of"},
      {"{\"prompt\": \"a\", \"messages\": []}", "line 1: has more than one of prompt"},
      {"{\"messages\": []}", "line 1: messages is empty"},
      {"{\"messages\": \"hi\"}", "line 1: messages must be a list"},
      {"{\"messages\": [\"hi\"]}", "messages[0] is not an object with a text role"},
      {"{\"messages\": [{\"role\": \"a\"}, {\"role\": 1}]}", "messages[1] is not"},
      {"{\"prompt_token_ids\": []}", "prompt_token_ids is empty"},
      {"{\"prompt_token_ids\": 5}", "prompt_token_ids must be a list"},
      {"{\"prompt_token_ids\": [1, 100]}", "prompt_token_ids: 100 is not in the vocabulary of 100 tokens"},
      {"{\"prompt_token_ids\": [-1]}", "prompt_token_ids: -1 is not a token"},
      {"{\"prompt_token_ids\": [4294967296]}", "prompt_token_ids: 4294967296 is not a token"},
      {"{\"prompt_token_ids\": [1.0]}", "prompt_token_ids must be token ids, not a number with a fraction"},
      {LINE("\"id\": 1.5"), "in.jsonl: line 3: id must be a text or a whole number"},
      {LINE("\"temprature\": 1"), "line 3: 'temprature' is not a key (nearest: temperature)"},
      {LINE("\"max_new_tokens\": 1"), "(nearest: max_tokens)"},
      {LINE("\"text\": \"x\""), "line 3: 'text' is not a key"},
      {LINE("\"temperature\": -1"), "line 3: temperature must be non-negative, got -1"},
      {LINE("\"temperature\": true"), "line 3: temperature must be a number, not true"},
      {LINE("\"temperature\": 1e999"), "line 3: temperature must be a number (line 3: 1e999"},
      {LINE("\"temperature\": NaN"), "line 3: temperature must be a number (line 3: NaN)"},
      {LINE("\"top_p\": 0"), "line 3: top_p must be in (0, 1], got 0"},
      {LINE("\"top_k\": 1.5"), "line 3: top_k must be a whole number, not a number with a fraction"},
      {LINE("\"max_tokens\": 0"), "line 3: max_tokens must be at least 1, got 0"},
      {LINE("\"min_tokens\": 65"),
       "line 3: min_tokens must be less than or equal to max_tokens=64, got 65"},
      {LINE("\"n\": 0"), "line 3: n must be at least 1"},
      {LINE("\"n\": 99999999999999999999"),
       "line 3: n must be a whole number (line 3: 99999999999999999999"},
      {LINE("\"logprobs\": 21"), "line 3: logprobs must be in [0, 20], got 21"},
      {LINE("\"ignore_eos\": 1"), "line 3: ignore_eos must be true or false, not a whole number"},
      {LINE("\"stop\": \"\""), "line 3: stop cannot contain an empty string"},
      {LINE("\"stop\": [\"a\", 1]"), "line 3: stop must be a text, not a whole number"},
      {LINE("\"stop_token_ids\": 5"), "line 3: stop_token_ids must be a list"},
      {LINE("\"stop_token_ids\": [100]"), "line 3: stop_token_ids: 100 is not in the vocabulary"},
      {LINE("\"seed\": \"x\""), "line 3: seed must be a whole number, not a text"},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    treadle_requests r;
    assert_refused(cases[i].part, parse(cases[i].text, &r));
    treadle_requests_release(&r);
  }
}

static void test_limits(void **state) {
  (void)state;
  treadle_requests r;
  treadle_builder text = {0};
  for (int i = 0; i < 257; i++) treadle_builder_add(&text, "{\"prompt\": \"a\", \"n\": 65536}\n");
  assert_refused("line 257: the limit is 16777216 samples", parse(text.text, &r));
  treadle_requests_release(&r);
  treadle_builder_release(&text);
  char *line = malloc((size_t)TREADLE_MOST_LINE_BYTES + 32);
  assert_non_null(line);
  memset(line, ' ', TREADLE_MOST_LINE_BYTES);
  strcpy(line + TREADLE_MOST_LINE_BYTES, "{}");
  assert_refused("line 1: has 67108866 bytes; the limit is 67108864", parse(line, &r));
  treadle_requests_release(&r);
  free(line);
}

static void test_tokens(void **state) {
  (void)state;
  const treadle_requests_spec spec = {.what = "in.jsonl", .sampling = &base, .vocabulary = 100};
  const int32_t tokens[] = {1, 2, 100};
  treadle_requests r;
  assert_ok(parse("\n{\"messages\": [{\"role\": \"user\"}]}", &r));
  const treadle_request *request = &r.items.items[0];
  assert_ok(treadle_request_check_tokens(&spec, request, tokens, 2, 3));
  assert_refused("in.jsonl: line 2: messages has 2 tokens; with a new one it must not be longer than 2",
                 treadle_request_check_tokens(&spec, request, tokens, 2, 2));
  assert_refused("line 2: messages is empty", treadle_request_check_tokens(&spec, request, tokens, 0, 3));
  assert_refused("line 2: messages: 100 is not in",
                 treadle_request_check_tokens(&spec, request, tokens, 3, 9));
  treadle_requests_release(&r);
}

static treadle_status read_some(void) {
  treadle_requests r;
  treadle_status status =
      parse("{\"prompt\": \"a\", \"stop\": [\"b\"], \"stop_token_ids\": [1], \"id\": \"x\"}\n"
            "{\"prompt_token_ids\": [1]}\n{\"messages\": [{\"role\": \"user\"}]}",
            &r);
  treadle_requests_release(&r);
  return status;
}

static void test_no_memory(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(read_some());
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_read),      cmocka_unit_test(test_ids),
                                     cmocka_unit_test(test_own_seeds), cmocka_unit_test(test_refused),
                                     cmocka_unit_test(test_limits),    cmocka_unit_test(test_tokens),
                                     cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, setup, NULL);
}
