/* A sample while it grows: end tokens, stop ids, stop texts, lengths, and what is banned before min_tokens. */
#include "generate/sample.h"

#include "base/random.h"
#include "base/status.h"
#include "generate/stops.h"
#include "generate/uniform.h"
#include "test.h"

enum { TOKENS = 8 };
static const int32_t eos_ids[] = {2, 3}, stop_ids[] = {5}, prompt[] = {1, 4};
static const treadle_eos eos = {eos_ids, 2};

typedef struct scene {
  treadle_sampling_values sampling;
  treadle_sample sample;
} scene;

static void begin(scene *s) {
  const treadle_sample_spec spec = {.sampling = &s->sampling,
                                    .eos = &eos,
                                    .prompt = prompt,
                                    .prompt_count = 2,
                                    .seed = 11,
                                    .most_tokens = 100};
  assert_ok(treadle_sample_init(&s->sample, &spec));
}

static void set(scene *s, int64_t least, int64_t most) {
  treadle_sampling_default(&s->sampling);
  s->sampling.min_tokens = least;
  s->sampling.max_tokens = most;
  s->sampling.stop_ids = stop_ids;
  s->sampling.stop_id_count = 1;
}

static treadle_finish take(scene *s, int32_t token, const char *text) {
  assert_ok(treadle_sample_take(&s->sample, token, -0.5f, NULL, 0));
  if (!s->sample.last_is_end) assert_ok(treadle_sample_add_text(&s->sample, text, strlen(text)));
  return s->sample.finish;
}

static void test_end_tokens(void **state) {
  (void)state;
  const struct {
    int32_t token;
    bool ignore;
    treadle_finish finish;
    int32_t stop_id;
  } cases[] = {{2, false, TREADLE_FINISH_STOP, -1}, {3, false, TREADLE_FINISH_STOP, 3},
               {5, false, TREADLE_FINISH_STOP, 5},  {2, true, TREADLE_FINISH_NONE, -1},
               {3, true, TREADLE_FINISH_NONE, -1},  {5, true, TREADLE_FINISH_STOP, 5},
               {6, false, TREADLE_FINISH_NONE, -1}};
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    scene s;
    set(&s, 0, 10);
    s.sampling.ignore_eos = cases[i].ignore;
    begin(&s);
    assert_int_equal(take(&s, 7, "a"), TREADLE_FINISH_NONE);
    assert_int_equal(take(&s, cases[i].token, "b"), cases[i].finish);
    assert_int_equal(s.sample.stop_id, cases[i].stop_id);
    assert_int_equal(s.sample.stop_text, -1);
    assert_int_equal(s.sample.tokens.count, 2); /* the end token is one of them, its text is not */
    assert_string_equal(s.sample.text.text, cases[i].finish ? "a" : "ab");
    treadle_sample_release(&s.sample);
  }
}

/* An end token that is the last one by length is a stop; so is a stop text. */
static void test_length(void **state) {
  (void)state;
  const treadle_text stops[] = {{"bc", 2}};
  for (int kind = 0; kind < 3; kind++) {
    scene s;
    set(&s, 0, 2);
    s.sampling.stop = stops;
    s.sampling.stop_count = 1;
    begin(&s);
    assert_int_equal(take(&s, 7, "ab"), TREADLE_FINISH_NONE);
    assert_int_equal(take(&s, kind == 0 ? 2 : 6, kind == 1 ? "cd" : "x"),
                     kind == 2 ? TREADLE_FINISH_LENGTH : TREADLE_FINISH_STOP);
    assert_int_equal(s.sample.stop_text, kind == 1 ? 0 : -1);
    assert_string_equal(s.sample.text.text, kind == 0 ? "ab" : kind == 1 ? "a" : "abx");
    treadle_sample_release(&s.sample);
  }
  scene s;
  set(&s, 0, 50);
  const treadle_sample_spec spec = {
      .sampling = &s.sampling, .eos = &eos, .prompt = prompt, .prompt_count = 2, .most_tokens = 1};
  assert_ok(treadle_sample_init(&s.sample, &spec));
  assert_int_equal(take(&s, 7, "a"), TREADLE_FINISH_LENGTH); /* of the model */
  treadle_sample_release(&s.sample);
}

/* Until there are min_tokens no end token is chosen, however likely; and stop texts are not looked for. */
static void test_least(void **state) {
  (void)state;
  const treadle_text stops[] = {{"x", 1}};
  const float logits[TOKENS] = {0, 0, 50, 40, 0, 45, 1, 0};
  treadle_sampler *sampler;
  scene s;
  int32_t token;
  set(&s, 3, 10);
  s.sampling.temperature = 0;
  s.sampling.stop = stops;
  s.sampling.stop_count = 1;
  begin(&s);
  assert_ok(treadle_sampler_create(TOKENS, &sampler));
  for (int i = 0; i < 3; i++) {
    assert_ok(treadle_sample_choose(&s.sample, sampler, logits, &token));
    assert_int_equal(token, 6);
    assert_int_equal(take(&s, token, "x"), TREADLE_FINISH_NONE);
  }
  assert_ok(treadle_sample_choose(&s.sample, sampler, logits, &token));
  assert_int_equal(token, 2);
  assert_int_equal(take(&s, 6, "yx"), TREADLE_FINISH_STOP);
  assert_string_equal(s.sample.text.text, "xxxy");
  assert_ok(treadle_sample_add_text(&s.sample, "rest", 4)); /* behind the end of the text */
  assert_string_equal(s.sample.text.text, "xxxy");
  treadle_sampler_destroy(sampler);
  treadle_sample_release(&s.sample);
}

/* The tokens of a sample are those of its parts: penalties, and the number of its position in the sequence. */
static void test_choose(void **state) {
  (void)state;
  treadle_random random = {.state = 1};
  treadle_sampler *sampler;
  treadle_token_counts counts = {0};
  scene s;
  set(&s, 0, 100);
  s.sampling.repetition_penalty = 1.5;
  s.sampling.frequency_penalty = 0.7;
  begin(&s);
  assert_ok(treadle_sampler_create(TOKENS, &sampler));
  for (int i = 0; i < 2; i++) assert_ok(treadle_token_counts_add(&counts, prompt[i], false));
  for (int i = 0; i < 50; i++) {
    float logits[TOKENS];
    int32_t token, wanted;
    for (int k = 0; k < TOKENS; k++) logits[k] = (float)treadle_random_between(&random, -300, 300) / 100;
    const treadle_sampler_row row = {.logits = logits, .sampling = &s.sampling, .counts = &counts};
    assert_ok(treadle_sampler_choose(sampler, &row, treadle_uniform(11, 0, 2 + i), &wanted));
    assert_ok(treadle_sample_choose(&s.sample, sampler, logits, &token));
    assert_int_equal(token, wanted);
    assert_ok(treadle_sample_take(&s.sample, 7, -1, NULL, 0));
    assert_ok(treadle_token_counts_add(&counts, 7, true));
  }
  treadle_token_counts_release(&counts);
  treadle_sampler_destroy(sampler);
  treadle_sample_release(&s.sample);
}

/* ---- Stop texts ---- */

/* Texts of few letters, piece by piece, against a search of the whole text after each letter. */
static void test_stop_texts(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < test_seeds(3000); seed++) {
    treadle_random random = {.state = seed};
    char stop_bytes[3][6], text[60] = "";
    treadle_text stops[3];
    treadle_sampling_values sampling = {.stop = stops, .stop_count = 3};
    size_t length = 0, at = 0, wanted_at = 0;
    int32_t got = -1, wanted = -1;
    for (int i = 0; i < 3; i++) {
      size_t count = (size_t)treadle_random_between(&random, 2, 5);
      for (size_t k = 0; k < count; k++) stop_bytes[i][k] = (char)('a' + treadle_random_below(&random, 2));
      stop_bytes[i][count] = 0;
      stops[i] = (treadle_text){stop_bytes[i], count};
    }
    while (got < 0 && length < 40) {
      size_t added = (size_t)treadle_random_below(&random, 5), before = length;
      for (size_t k = 0; k < added; k++) text[length++] = (char)('a' + treadle_random_below(&random, 2));
      text[length] = 0;
      for (size_t end = before + 1; end <= length && wanted < 0; end++)
        for (int i = 0; i < 3 && wanted < 0; i++) {
          if (end < stops[i].count || memcmp(text + end - stops[i].count, stop_bytes[i], stops[i].count))
            continue;
          wanted = i;
          wanted_at = end - stops[i].count;
        }
      got = treadle_stops_find(&sampling, text, length, added, &at);
      assert_int_equal(got, wanted);
      if (got >= 0) assert_int_equal(at, wanted_at);
      /* What is held back, and no more, can begin a stop text. */
      size_t held = treadle_stops_held(&sampling, text, length);
      for (size_t n = 0; n <= length; n++) {
        bool begins = false;
        for (int i = 0; i < 3; i++)
          begins |= n > 0 && n < stops[i].count && memcmp(text + length - n, stop_bytes[i], n) == 0;
        if (n == held && n > 0) assert_true(begins);
        if (n > held) assert_false(begins);
      }
    }
  }
}

/* ---- Memory ---- */

static treadle_status grow(void) {
  static const treadle_text stops[] = {{"zz", 2}};
  scene s;
  const treadle_token_logprob top[2] = {{1, -1}, {2, -2}};
  set(&s, 1, 100);
  s.sampling.repetition_penalty = 2;
  s.sampling.stop = stops;
  s.sampling.stop_count = 1;
  const treadle_sample_spec spec = {
      .sampling = &s.sampling, .eos = &eos, .prompt = prompt, .prompt_count = 2, .most_tokens = 100};
  treadle_status status;
  TRY(treadle_sample_init(&s.sample, &spec));
  for (int32_t i = 0; i < 20; i++) {
    TRY(treadle_sample_take(&s.sample, 10 + i, -1, top, 2));
    TRY(treadle_sample_add_text(&s.sample, "some text", 9));
  }
out:
  treadle_sample_release(&s.sample);
  return status;
}

static void test_no_memory(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(grow());
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_end_tokens), cmocka_unit_test(test_length),
                                     cmocka_unit_test(test_least),      cmocka_unit_test(test_choose),
                                     cmocka_unit_test(test_stop_texts), cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
