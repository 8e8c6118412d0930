/* Rewards that look at one completion: what each gives, by hand; on the real data of GSM8K and MATH; what is refused; the thread. */
#include "test.h"

#include "reward/reward.h"

typedef struct example {
  const char *answer, *completion;
  int64_t tokens;
  double score;
  const char *pred; /* NULL: none */
} example;

static treadle_status score_all(treadle_reward *reward, const treadle_reward_sample *samples, size_t count,
                                double *scores, char **preds) {
  treadle_status status = treadle_reward_start(reward, samples, count);
  return status ? status : treadle_reward_wait(reward, scores, preds);
}

static treadle_reward *open_reward(const char *name) {
  treadle_reward_options options = TREADLE_INIT(treadle_reward_options);
  treadle_reward *reward = NULL;
  options.name = name;
  assert_ok(treadle_reward_create(&options, &reward));
  return reward;
}

static treadle_status create(const char *name) {
  treadle_reward_options options = TREADLE_INIT(treadle_reward_options);
  treadle_reward *reward = NULL;
  options.name = name;
  treadle_status status = treadle_reward_create(&options, &reward);
  treadle_reward_destroy(reward);
  return status;
}

static treadle_reward_sample sample_of(const char *answer, const char *completion, int64_t tokens) {
  return (treadle_reward_sample){.answer = answer,
                                 .completion = completion,
                                 .completion_bytes = completion ? strlen(completion) : 0,
                                 .tokens = tokens};
}

static void expect(const char *name, const example *examples, size_t count) {
  treadle_reward *reward = open_reward(name);
  for (size_t i = 0; i < count; i++) {
    const example *e = &examples[i];
    treadle_reward_sample sample = sample_of(e->answer, e->completion, e->tokens);
    double score = -1;
    char *pred;
    assert_ok(score_all(reward, &sample, 1, &score, &pred));
    if (score != e->score || (pred && e->pred ? strcmp(pred, e->pred) != 0 : pred != e->pred))
      fail_msg("%s, answer %s, completion %s: score %.17g, pred %s; wanted %.17g, %s", name, e->answer,
               e->completion, score, pred ? pred : "(none)", e->score, e->pred ? e->pred : "(none)");
    free(pred);
    assert_ok(score_all(reward, &sample, 1, &score, NULL));
    assert_true(score == e->score);
  }
  treadle_reward_destroy(reward);
}

static void test_sequence(void **state) {
  (void)state;
  static const example examples[] = {{"1,2", "1,2", 0, 1, "1,2"},
                                     {"1,2", "1,2E", 0, 1, "1,2E"},
                                     {"1,2", "1,2,3", 0, 0.75, "1,2,3"},
                                     {"1,2", "1,2EE", 0, 0.75, "1,2EE"},
                                     {"1,2", "1,3", 0, 0.5, "1,3"},
                                     {"1,2", "1,", 0, 0.5, "1,"},
                                     {"1,2", "2,2", 0, 0, "2,2"},
                                     {"1,2", "", 0, 0, ""},
                                     {"1,2", NULL, 0, 0, ""},
                                     {"", "", 0, 1, ""},
                                     {"", "E", 0, 1, "E"},
                                     {"", "1", 0, 0, "1"}};
  expect("sequence", examples, TEST_COUNT(examples));
}

static void test_length(void **state) {
  (void)state;
  static const example examples[] = {{NULL, "a", 48, 1, NULL},    {NULL, NULL, 0, 0, NULL},
                                     {NULL, "a", 12, 0.25, NULL}, {NULL, "a", 60, 0.75, NULL},
                                     {NULL, "a", 96, 0, NULL},    {NULL, "a", INT64_MAX, 0, NULL}};
  expect("length:target=48", examples, TEST_COUNT(examples));
}

static void test_regex(void **state) {
  (void)state;
  static const example words[] = {{NULL, "the answer is 42.", 0, 1, "42"},
                                  {NULL, "answer is \xff and answer is 7", 0, 1, "7"},
                                  {NULL, "no", 0, 0, NULL},
                                  {NULL, "", 0, 0, NULL}},
                       whole[] = {{NULL, "xaby", 0, 1, "ab"}, {NULL, "a", 0, 0, NULL}},
                       optional[] = {{NULL, "xyz", 0, 1, "y"}},
                       letters[] = {{NULL, "\xc3\xa9t\xc3\xa9", 0, 1, "\xc3\xa9t\xc3\xa9"}};
  expect("regex:answer is (\\d+)", words, TEST_COUNT(words));
  expect("regex:ab", whole, TEST_COUNT(whole));
  expect("regex:(q)?y", optional, TEST_COUNT(optional));
  expect("regex:^\\w+$", letters, TEST_COUNT(letters));
}

static void test_gsm8k(void **state) {
  (void)state;
  static const example examples[] = {{"so\n#### 18", "first #### 17 then\n#### 18", 0, 1, "18"},
                                     {"so\n#### 18", "first #### 18 then\n#### 17", 0, 0, "17"},
                                     {"#### 1,000", "#### 1000", 0, 1, "1000"},
                                     {"1000", "#### 1,000", 0, 1, "1000"},
                                     {" 1,000\n", "##### 1000 dollars", 0, 1, "1000"},
                                     {"#### -5", "#### -5", 0, 1, "-5"},
                                     {"#### 5", "#### -5", 0, 0, "-5"},
                                     {"#### 18", "#### 18.", 0, 0, "18."},
                                     {"#### 18", "#### $18", 0, 0, NULL},
                                     {"#### 18", "####18", 0, 0, NULL},
                                     {"#### 18", "#### -", 0, 0, NULL},
                                     {"#### 18", "#### ", 0, 0, NULL},
                                     {"#### 18", "18", 0, 0, NULL},
                                     {"#### 18", NULL, 0, 0, NULL}};
  expect("gsm8k", examples, TEST_COUNT(examples));
}

static void test_refused(void **state) {
  (void)state;
  double score;
  assert_refused("'gsm8' is not a reward (did you mean gsm8k?): there are sequence", create("gsm8"));
  assert_refused("not a reward", create(""));
  assert_refused("reward sequence:x: nothing may stand behind sequence", create("sequence:x"));
  assert_refused("reward regex: it is regex:P", create("regex"));
  assert_refused("reward regex:: it is regex:P", create("regex:"));
  assert_refused("reward regex:a(b: missing closing parenthesis, at offset 3 of the pattern",
                 create("regex:a(b"));
  assert_refused("reward length: it is length:target=T", create("length"));
  assert_refused("reward length:target=0: it is length:target=T, with T tokens from 1",
                 create("length:target=0"));
  assert_refused("reward length:48", create("length:48"));
  treadle_reward *reward = open_reward("sequence");
  treadle_reward_sample samples[] = {sample_of("1", "1", 1), sample_of(NULL, "1", 1)};
  assert_refused("reward sequence: sample 1 has no answer", score_all(reward, samples, 2, &score, NULL));
  treadle_reward_destroy(reward);
  reward = open_reward("length:target=4");
  samples[0].tokens = -1;
  assert_refused("reward length: sample 0: it has -1 tokens", score_all(reward, samples, 1, &score, NULL));
  treadle_reward_destroy(reward);
}

/* (a+)+$ tries every way to divide the letters. */
static void test_steps(void **state) {
  (void)state;
  treadle_reward *reward = open_reward("regex:(a+)+$");
  char *preds[] = {NULL, NULL};
  double scores[2];
  treadle_reward_sample samples[] = {sample_of(NULL, "aa", 1),
                                     sample_of(NULL, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", 1)};
  assert_refused("reward regex: sample 1: pattern (a+)+$ takes too many steps in its 41 bytes",
                 score_all(reward, samples, 2, scores, preds));
  assert_null(preds[0]);
  assert_ok(score_all(reward, samples, 1, scores, NULL));
  treadle_reward_destroy(reward);
}

static void test_thread(void **state) {
  (void)state;
  treadle_reward *reward = open_reward("sequence");
  treadle_reward_sample samples[] = {sample_of("1,2", "1,2", 1), sample_of("1,2", "1", 1)};
  double scores[2] = {-1, -1};
  char *preds[2];
  assert_fails(TREADLE_STATE, "without treadle_reward_start", treadle_reward_wait(reward, scores, preds));
  assert_ok(treadle_reward_start(reward, samples, 2));
  assert_fails(TREADLE_STATE, "started before", treadle_reward_start(reward, samples, 2));
  assert_ok(treadle_reward_wait(reward, scores, preds));
  assert_true(scores[0] == 1 && scores[1] == 0.25);
  assert_string_equal(preds[1], "1");
  free(preds[0]);
  free(preds[1]);
  assert_ok(treadle_reward_start(reward, NULL, 0));
  assert_ok(treadle_reward_wait(reward, NULL, NULL));
  assert_ok(treadle_reward_start(reward, samples, 2)); /* and never waited for */
  treadle_reward_destroy(reward);
  reward = open_reward("regex:(a+)+$");
  samples[0] = sample_of(NULL, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", 1);
  assert_ok(treadle_reward_start(reward, samples, 1));
  assert_refused("too many steps", treadle_reward_wait(reward, scores, preds));
  assert_null(preds[0]);
  treadle_reward_destroy(reward);
}

static treadle_status score_once(const char *name) {
  treadle_reward_options options = TREADLE_INIT(treadle_reward_options);
  treadle_reward_sample sample = sample_of("#### \\frac12", "\\boxed{\\frac{1}{2}} #### 1,2 x", 3);
  treadle_reward *reward = NULL;
  char *pred = NULL;
  double score;
  options.name = name;
  treadle_status status = treadle_reward_create(&options, &reward);
  if (!status) status = score_all(reward, &sample, 1, &score, &pred);
  free(pred);
  treadle_reward_destroy(reward);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  char *text;
  TEST_EACH_ALLOCATION(score_once("sequence"));
  TEST_EACH_ALLOCATION(score_once("gsm8k"));
  TEST_EACH_ALLOCATION(score_once("math"));
  TEST_EACH_ALLOCATION(score_once("regex:(\\d)x|b"));
  TEST_EACH_ALLOCATION(score_once("length:target=3"));
  TEST_EACH_ALLOCATION((treadle_reward_help(&text)) ? TREADLE_NO_MEMORY : (free(text), TREADLE_OK));
}

/* As the rows of the table say. */
static void test_needs(void **state) {
  (void)state;
  static const struct {
    const char *name;
    bool needs;
  } rewards[] = {
      {"sequence", true}, {"gsm8k", true}, {"math", true}, {"regex:x", false}, {"length:target=4", false}};
  for (size_t i = 0; i < TEST_COUNT(rewards); i++) {
    treadle_reward *reward = open_reward(rewards[i].name);
    assert_int_equal(treadle_reward_needs_answers(reward), rewards[i].needs);
    treadle_reward_destroy(reward);
  }
}

static void test_help(void **state) {
  (void)state;
  char *text;
  assert_ok(treadle_reward_help(&text));
  assert_non_null(strstr(text, "\nlength:target=T   1 - |tokens - T| / T, at least 0\n"));
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_sequence), cmocka_unit_test(test_length),
                                     cmocka_unit_test(test_regex),    cmocka_unit_test(test_gsm8k),
                                     cmocka_unit_test(test_refused),  cmocka_unit_test(test_steps),
                                     cmocka_unit_test(test_thread),   cmocka_unit_test(test_memory),
                                     cmocka_unit_test(test_needs),    cmocka_unit_test(test_help)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
