/* Sampling values: ranges, and what generation_config.json says. */
#include "generate/sampling.h"

#include "test.h"

#include <math.h>

static treadle_sampling_values values(void) {
  treadle_sampling_values sampling;
  treadle_sampling_default(&sampling);
  return sampling;
}

#define ASSERT_VALUE(key, good, bad, part)                                                                 \
  do {                                                                                                     \
    treadle_sampling_values s = values();                                                                  \
    s.key = good;                                                                                          \
    assert_ok(treadle_sampling_check("x", &s));                                                            \
    s.key = bad;                                                                                           \
    assert_refused("x: " #key " " part, treadle_sampling_check("x", &s));                                  \
  } while (0)

static void test_ranges(void **state) {
  (void)state;
  ASSERT_VALUE(temperature, 0, -0.1, "must be non-negative, got -0.1");
  ASSERT_VALUE(temperature, 100, INFINITY, "must be finite");
  ASSERT_VALUE(temperature, 1, NAN, "must be finite");
  ASSERT_VALUE(top_p, 1, 0, "must be in (0, 1], got 0");
  ASSERT_VALUE(top_p, 0.001, 1.5, "must be in (0, 1], got 1.5");
  ASSERT_VALUE(top_p, 0.5, NAN, "must be finite");
  ASSERT_VALUE(top_k, -1, -2, "must be 0 (disable), or at least 1, got -2");
  ASSERT_VALUE(min_p, 0, -0.1, "must be in [0, 1]");
  ASSERT_VALUE(min_p, 1, 1.1, "must be in [0, 1]");
  ASSERT_VALUE(repetition_penalty, 0.1, 0, "must be greater than zero, got 0");
  ASSERT_VALUE(presence_penalty, -2, -2.1, "must be in [-2, 2]");
  ASSERT_VALUE(frequency_penalty, 2, 2.1, "must be in [-2, 2]");
  ASSERT_VALUE(n, 1, 0, "must be at least 1, got 0");
  ASSERT_VALUE(n, 64, 65537, "must be at most 65536");
  ASSERT_VALUE(max_tokens, 1, 0, "must be at least 1, got 0");
  ASSERT_VALUE(min_tokens, 256, -1, "must be greater than or equal to 0");
  ASSERT_VALUE(min_tokens, 256, 257, "must be less than or equal to max_tokens=256, got 257");
  ASSERT_VALUE(logprobs, 20, 21, "must be in [0, 20]");
  ASSERT_VALUE(logprobs, 0, -1, "must be in [0, 20]");
}

static void test_stops(void **state) {
  (void)state;
  treadle_sampling_values s = values();
  treadle_text texts[] = {{"a", 1}, {"", 0}};
  int32_t ids[] = {5, 9, -1};
  s.stop = texts;
  s.stop_count = 1;
  s.stop_ids = ids;
  s.stop_id_count = 2;
  assert_ok(treadle_sampling_check("x", &s));
  assert_ok(treadle_sampling_check_ids("x", &s, 10));
  assert_refused("9 is not in the vocabulary of 9 tokens", treadle_sampling_check_ids("x", &s, 9));
  s.stop_count = 2;
  assert_refused("empty string", treadle_sampling_check("x", &s));
  texts[1] = (treadle_text){"b", TREADLE_MOST_STOP_BYTES + 1};
  assert_refused("4097 bytes", treadle_sampling_check("x", &s));
  s.stop_count = 1;
  s.stop_id_count = 3;
  assert_refused("-1 is not a token", treadle_sampling_check("x", &s));
  s.stop_id_count = TREADLE_MOST_STOPS + 1;
  assert_refused("stop_token_ids has more than 1024", treadle_sampling_check("x", &s));
}

static json_t *json(const char *text) {
  json_t *root = json_loads(text, 0, NULL);
  assert_non_null(root);
  return root;
}

static treadle_status read_config(const char *text, treadle_sampling_values *s) {
  json_t *root = json(text);
  *s = values();
  treadle_status status = treadle_sampling_read_config("g.json", root, s);
  json_decref(root);
  return status;
}

static void test_config(void **state) {
  (void)state;
  treadle_sampling_values s;
  assert_ok(read_config("{\"eos_token_id\": 2}", &s));
  assert_true(s.temperature == 1 && s.top_p == 1 && s.top_k == 0 && s.max_tokens == 256);
  assert_ok(read_config(
      "{\"do_sample\": false, \"temperature\": 0.6, \"top_k\": 20, \"top_p\": 0.95, \"min_p\": 0.01,"
      "\"repetition_penalty\": 1.05, \"max_new_tokens\": 2048, \"max_tokens\": 3}",
      &s));
  assert_true(s.temperature == 0.6 && s.top_p == 0.95 && s.top_k == 20 && s.min_p == 0.01);
  assert_true(s.repetition_penalty == 1.05 && s.max_tokens == 2048 && s.presence_penalty == 0);
  assert_ok(read_config("{\"temperature\": null, \"top_k\": null}", &s));
  assert_true(s.temperature == 1 && s.top_k == 0);
  assert_refused("g.json: top_p must be in", read_config("{\"top_p\": 2}", &s));
  assert_refused("g.json: top_k must be a whole number, not a number with a fraction",
                 read_config("{\"top_k\": 2.0}", &s));
  assert_refused("g.json: temperature must be a number, not a text",
                 read_config("{\"temperature\": \"1\"}", &s));
  assert_refused("not an object", read_config("[]", &s));
}

static treadle_status read_eos(const char *text, treadle_arena *arena, treadle_eos *eos) {
  json_t *root = json(text);
  treadle_status status = treadle_eos_read("g.json", root, arena, eos);
  json_decref(root);
  return status;
}

static void test_eos(void **state) {
  (void)state;
  treadle_arena arena = {0};
  treadle_eos eos;
  assert_ok(read_eos("{}", &arena, &eos));
  assert_int_equal(eos.count, 0);
  assert_ok(read_eos("{\"eos_token_id\": null}", &arena, &eos));
  assert_int_equal(eos.count, 0);
  assert_ok(read_eos("{\"eos_token_id\": 2}", &arena, &eos));
  assert_true(eos.count == 1 && eos.ids[0] == 2);
  assert_ok(read_eos("{\"eos_token_id\": [9, 2, 9, 3]}", &arena, &eos));
  assert_true(eos.count == 3 && eos.ids[0] == 9 && eos.ids[1] == 2 && eos.ids[2] == 3);
  assert_refused("eos_token_id: -1 is not a token", read_eos("{\"eos_token_id\": -1}", &arena, &eos));
  assert_refused("eos_token_id must be token ids, not a text",
                 read_eos("{\"eos_token_id\": \"</s>\"}", &arena, &eos));
  treadle_arena_release(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranges), cmocka_unit_test(test_stops),
                                     cmocka_unit_test(test_config), cmocka_unit_test(test_eos)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
