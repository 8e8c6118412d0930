/* Pieces of a loop of one's own give what a run has: prompts and their order, scores, advantages, learning rates, texts of
 * completions; what is refused, by line or row; no memory. */
#include "test.h"
#include "train/rows.h"

#include "rl/advantages.h"
#include "rl/prompts.h"
#include "run/order.h"
#include "treadle_loop.h"

#include <math.h>

/* ---- Columns ---- */

static treadle_column column_of(const treadle_batch *batch, const char *name) {
  treadle_column column = TREADLE_INIT(treadle_column);
  assert_ok(treadle_batch_column(batch, name, &column));
  return column;
}

static void expect_text(const treadle_batch *batch, const char *name, int64_t row, const char *wanted) {
  const treadle_column c = column_of(batch, name);
  assert_int_equal(c.offsets[row + 1] - c.offsets[row], strlen(wanted));
  assert_memory_equal((const char *)c.data + c.offsets[row], wanted, strlen(wanted));
}

static void add(treadle_batch *batch, const char *name, treadle_column_type type, const void *values) {
  const treadle_column column = {
      .struct_size = sizeof column, .name = name, .type = type, .width = 1, .data = (void *)values};
  assert_ok(treadle_batch_add(batch, &column));
}

/* A batch whose row r has counts[r] ids, from 1 on. */
static treadle_batch *batch_of(const int64_t *counts, int64_t rows) {
  static int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  rows_row each[16];
  treadle_batch *batch;
  for (int64_t r = 0; r < rows; r++) each[r] = (rows_row){ids, NULL, (size_t)counts[r], 0};
  assert_ok(rows_batch(each, (size_t)rows, &batch));
  return batch;
}

/* ---- Prompts ---- */

typedef struct opened {
  char folder[64];
  treadle_tokenizer *tokenizer;
  treadle_prompts_options options;
} opened;

static void open_all(opened *o) {
  static char path[128];
  strcpy(o->folder, test_folder());
  snprintf(path, sizeof path, "%s/sums.jsonl", o->folder);
  assert_ok(treadle_tokenizer_open(TREADLE_SOURCE_DIR "/examples/sequence", &o->tokenizer));
  o->options =
      (treadle_prompts_options){.struct_size = sizeof o->options, .path = path, .tokenizer = o->tokenizer};
}

static void close_all(opened *o) {
  treadle_tokenizer_close(o->tokenizer);
  test_remove(o->folder);
}

static treadle_batch *read_good(opened *o, const char *text, int64_t rows) {
  treadle_batch *prompts = NULL;
  test_write(o->folder, "sums.jsonl", text);
  assert_ok(treadle_prompts_read(&o->options, &prompts));
  assert_int_equal(treadle_batch_rows(prompts), rows);
  return prompts;
}

static void refuse(opened *o, const char *words, const char *text) {
  treadle_batch *prompts = (void *)o;
  test_write(o->folder, "sums.jsonl", text);
  assert_refused(words, treadle_prompts_read(&o->options, &prompts));
  assert_null(prompts);
}

static void test_read(void **state) {
  (void)state;
  opened o;
  open_all(&o);
  treadle_batch *prompts = read_good(&o,
                                     "{\"prompt\": \"1,2\", \"answer\": \"3\", \"data_source\": \"a\"}\n"
                                     "{\"prompt\": \"4\"}\n"
                                     "{\"prompt_token_ids\": [3, 4, 5, 6], \"answer\": 0.5}\n",
                                     3);
  const treadle_column ids = column_of(prompts, "prompt_ids");
  static const int64_t counts[] = {3, 1, 4};
  for (int r = 0; r < 3; r++) assert_int_equal(ids.offsets[r + 1] - ids.offsets[r], counts[r]);
  for (int i = 0; i < 4; i++) assert_int_equal(((const int32_t *)ids.data)[ids.offsets[2] + i], 3 + i);
  expect_text(prompts, "prompt", 0, "1,2");
  expect_text(prompts, "prompt", 2, "");
  expect_text(prompts, "answer", 0, "3");
  expect_text(prompts, "answer", 1, "");
  expect_text(prompts, "answer", 2, "0.5");
  expect_text(prompts, "data_source", 0, "a");
  expect_text(prompts, "data_source", 1, "sums");
  treadle_batch_destroy(prompts);

  o.options.prompt_key = "question";
  o.options.answer_key = "solution";
  o.options.data_source_key = "from";
  prompts = read_good(
      &o, "[{\"question\": \"5\", \"solution\": 6, \"from\": \"b\"},\n {\"question\": \"7\"}]", 2);
  expect_text(prompts, "prompt", 1, "7");
  expect_text(prompts, "answer", 0, "6");
  expect_text(prompts, "data_source", 0, "b");
  treadle_batch_destroy(prompts);
  close_all(&o);
}

static void test_read_refused(void **state) {
  (void)state;
  opened o;
  open_all(&o);
  refuse(&o, "sums.jsonl: has no prompts", "");
  refuse(&o, "sums.jsonl: line 2: has no 'prompt' (prompt_key)", "{\"prompt\": \"1\"}\n{\"x\": 1}\n");
  refuse(&o, "sums.jsonl: item 1: has no 'prompt'", "[{\"prompt\": \"1\"}, {}]");
  refuse(&o, "sums.jsonl: line 1: 'prompt' must be", "{\"prompt\": 1}\n");
  o.options.need_answers = true;
  refuse(&o, "line 2: has no 'answer' (answer_key); need_answers asks for one",
         "{\"prompt\": \"1\", \"answer\": 1}\n{\"prompt\": \"1\"}\n");
  o.options.need_answers = false;
  o.options.most_tokens = 3;
  refuse(&o, "line 1: the prompt has 4 tokens; at most 3 (most_tokens is the limit)",
         "{\"prompt\": \"1234\"}\n");
  o.options.vocabulary = 5;
  refuse(&o, "line 1: ", "{\"prompt_token_ids\": [5]}\n");
  treadle_batch_destroy(read_good(&o, "{\"prompt_token_ids\": [4, 4, 4]}\n", 1));
  o.options.tokenizer = NULL;
  refuse(&o, "line 1: 'prompt' needs a tokenizer, and there is none; the options name none",
         "{\"prompt\": \"1\"}\n");
  close_all(&o);
}

static treadle_status read_starved(const treadle_prompts_options *options) {
  treadle_batch *prompts = NULL;
  treadle_status status = treadle_prompts_read(options, &prompts);
  assert_true(!prompts == (status != TREADLE_OK));
  treadle_batch_destroy(prompts);
  return status;
}

static void test_read_no_memory(void **state) {
  (void)state;
  opened o;
  open_all(&o);
  treadle_batch_destroy(read_good(&o, "{\"prompt\": \"1\"}\n{\"prompt_token_ids\": [1, 2]}\n", 2));
  TEST_EACH_ALLOCATION(read_starved(&o.options));
  close_all(&o);
}

/* ---- Those of a step ---- */

static const int64_t lengths[] = {1, 2, 3, 4, 5, 6, 7};
enum { PROMPTS = TEST_COUNT(lengths), STEPS = 12 };

/* One row after the other through all epochs, as a run takes them. Prompts have different lengths. */
static void draw_steps(int64_t seed, int64_t sampling_seed, int64_t count, bool in_place) {
  treadle_batch *prompts = batch_of(lengths, PROMPTS), *drawn;
  treadle_train_order order;
  assert_ok(treadle_train_order_init(&order, (uint64_t)seed, PROMPTS));
  if (in_place) treadle_train_order_keep(&order);
  for (int64_t step = 0; step < STEPS; step++) {
    const treadle_draw_options options = {.struct_size = sizeof options,
                                          .step = step,
                                          .count = count,
                                          .seed = seed,
                                          .sampling_seed = sampling_seed,
                                          .in_place = in_place};
    assert_ok(treadle_prompts_draw(prompts, &options, &drawn));
    assert_int_equal(treadle_batch_rows(drawn), count);
    const treadle_column ids = column_of(drawn, "ids"), seeds = column_of(drawn, "seed"),
                         groups = column_of(drawn, "group");
    for (int64_t i = 0; i < count; i++) {
      const size_t row = treadle_train_order_at(&order, step * count + i);
      assert_int_equal(ids.offsets[i + 1] - ids.offsets[i], lengths[row]);
      assert_true(!in_place || row == (size_t)((step * count + i) % PROMPTS));
      assert_int_equal(((const int64_t *)seeds.data)[i], treadle_rl_seed(sampling_seed, step, i));
      assert_int_equal(((const int64_t *)groups.data)[i], i);
    }
    treadle_batch_destroy(drawn);
  }
  treadle_train_order_release(&order);
  treadle_batch_destroy(prompts);
}

static void test_draw(void **state) {
  (void)state;
  static const int64_t counts[] = {1, 3, PROMPTS, 2 * PROMPTS + 1};
  for (size_t i = 0; i < TEST_COUNT(counts); i++)
    for (int64_t seed = -1; seed < 3; seed++) {
      draw_steps(seed, 1000 * seed + 7, counts[i], false);
      draw_steps(seed, 7, counts[i], true);
    }
}

static treadle_status draw(const treadle_batch *prompts, int64_t step, int64_t count) {
  const treadle_draw_options options = {.struct_size = sizeof options, .step = step, .count = count};
  treadle_batch *drawn = NULL;
  treadle_status status = treadle_prompts_draw(prompts, &options, &drawn);
  assert_true(!drawn == (status != TREADLE_OK));
  treadle_batch_destroy(drawn);
  return status;
}

static void test_draw_refused(void **state) {
  (void)state;
  treadle_batch *prompts = batch_of(lengths, PROMPTS), *none = batch_of(NULL, 0);
  assert_refused("7 prompts, step -1 of 2 each", draw(prompts, -1, 2));
  assert_refused("7 prompts, step 0 of 0 each", draw(prompts, 0, 0));
  assert_refused("step 9223372036854775807 of 2 each", draw(prompts, INT64_MAX, 2));
  assert_refused("0 prompts", draw(none, 0, 1));
  TEST_EACH_ALLOCATION(draw(prompts, 3, 5));
  add(prompts, "seed", TREADLE_COLUMN_INT64, lengths);
  assert_refused("'seed'", draw(prompts, 0, 2));
  treadle_batch_destroy(prompts);
  treadle_batch_destroy(none);
}

/* ---- Texts of ids ---- */

static treadle_status decode(const treadle_tokenizer *tokenizer, treadle_batch *batch) {
  treadle_status status = treadle_tokenizer_decode_rows(tokenizer, batch, "ids", "completion");
  assert_true(treadle_batch_has(batch, "completion") == (status == TREADLE_OK));
  if (!status) status = treadle_batch_remove(batch, "completion");
  return status;
}

static void test_decode(void **state) {
  (void)state;
  static const int64_t counts[] = {2, 0, 9};
  opened o;
  open_all(&o);
  treadle_batch *batch = batch_of(counts, 3);
  const treadle_column ids = column_of(batch, "ids");
  assert_ok(treadle_tokenizer_decode_rows(o.tokenizer, batch, "ids", "completion"));
  for (int r = 0; r < 3; r++) {
    char *text;
    size_t bytes;
    assert_ok(treadle_tokenizer_decode(o.tokenizer, (const int32_t *)ids.data + ids.offsets[r],
                                       (size_t)counts[r], false, &text, &bytes));
    expect_text(batch, "completion", r, text);
    free(text);
  }
  assert_refused("'completion'", treadle_tokenizer_decode_rows(o.tokenizer, batch, "ids", "completion"));
  assert_refused("column 'completion' is not ragged int32",
                 treadle_tokenizer_decode_rows(o.tokenizer, batch, "completion", "again"));
  assert_ok(treadle_batch_remove(batch, "completion"));
  TEST_EACH_ALLOCATION(decode(o.tokenizer, batch));
  ((int32_t *)ids.data)[ids.offsets[2] + 4] = 99999;
  assert_refused("row 2: ", decode(o.tokenizer, batch));
  treadle_batch_destroy(batch);
  close_all(&o);
}

/* ---- Scores ---- */

static const char *const completions[] = {"1,2", "#### 72", "1,3 #### 7", "", "#### 1,000"};
static const char *const answers[] = {"1,2", "72", "1,2", "", "1000"};
static const int64_t tokens[] = {3, 7, 9, 0, 8};
enum { SCORED = TEST_COUNT(tokens) };

static treadle_reward *open_reward(const char *name) {
  const treadle_reward_options options = {.struct_size = sizeof options, .name = name};
  treadle_reward *reward;
  assert_ok(treadle_reward_create(&options, &reward));
  return reward;
}

static treadle_batch *batch_to_score(void) {
  treadle_batch *batch = batch_of(tokens, SCORED);
  assert_ok(treadle_batch_add_texts(batch, "completion", completions, NULL));
  assert_ok(treadle_batch_add_texts(batch, "answer", answers, NULL));
  return batch;
}

static treadle_status score(treadle_reward *reward, treadle_batch *batch) {
  treadle_status status = treadle_reward_score(reward, batch);
  assert_true(treadle_batch_has(batch, "score") == (status == TREADLE_OK));
  if (!status) status = treadle_batch_remove(batch, "score");
  return status;
}

static void test_scores(void **state) {
  (void)state;
  static const char *const names[] = {"sequence", "gsm8k", "length:target=8"};
  for (size_t i = 0; i < TEST_COUNT(names); i++) {
    treadle_reward *reward = open_reward(names[i]);
    treadle_batch *batch = batch_to_score();
    treadle_reward_sample samples[SCORED];
    double wanted[SCORED], sum = 0;
    for (int r = 0; r < SCORED; r++)
      samples[r] = (treadle_reward_sample){.completion = completions[r],
                                           .completion_bytes = strlen(completions[r]),
                                           .answer = answers[r],
                                           .tokens = tokens[r]};
    assert_ok(treadle_reward_start(reward, samples, SCORED));
    assert_ok(treadle_reward_wait(reward, wanted, NULL));
    assert_ok(treadle_reward_score(reward, batch));
    const treadle_column scores = column_of(batch, "score");
    assert_memory_equal(scores.data, wanted, sizeof wanted);
    for (int r = 0; r < SCORED; r++) sum += wanted[r];
    assert_true(sum > 0 && sum < SCORED);
    assert_refused("'score'", treadle_reward_score(reward, batch));
    treadle_batch_destroy(batch);
    treadle_reward_destroy(reward);
  }
}

static void test_scores_refused(void **state) {
  (void)state;
  treadle_reward *length = open_reward("length:target=8"), *gsm8k = open_reward("gsm8k");
  treadle_batch *batch = batch_to_score(), *none = batch_of(NULL, 0);
  TEST_EACH_ALLOCATION(score(gsm8k, batch));
  assert_ok(treadle_batch_rename(batch, "answer", "kept"));
  assert_refused("the reward needs answers, and the batch has no column 'answer'", score(gsm8k, batch));
  add(batch, "answer", TREADLE_COLUMN_INT64, tokens);
  assert_refused("column 'answer' is of another type", score(gsm8k, batch));
  assert_ok(treadle_batch_remove(batch, "answer"));
  assert_ok(treadle_batch_remove(batch, "completion"));
  assert_refused("the reward judges texts, and the batch has no column 'completion'", score(gsm8k, batch));
  assert_ok(score(length, batch));
  assert_ok(treadle_batch_remove(batch, "ids"));
  assert_refused("the reward counts tokens, and the batch has no column 'ids'", score(length, batch));
  assert_ok(score(length, none));
  treadle_batch_destroy(batch);
  treadle_batch_destroy(none);
  treadle_reward_destroy(length);
  treadle_reward_destroy(gsm8k);
}

/* ---- Advantages ---- */

static const char *const estimators[] = {"group_norm", "grpo", "rloo", "reinforce_plus_plus",
                                         "reinforce_plus_plus_baseline"};
enum { ROWS = 6, TOKENS = 20 };
static const int64_t row_tokens[ROWS] = {3, 5, 1, 0, 4, 7};
static const int64_t row_groups[ROWS] = {0, 2, 0, 2, 0, 5};
static const double row_rewards[ROWS] = {1, 0.25, 0, 2, -1, 0.5};

/* As the loop computes them: [TOKENS]. */
static void compute(treadle_rl_estimator estimator, bool by_std, double gamma, double *advantages) {
  size_t first[ROWS + 1] = {0};
  double rewards[TOKENS] = {0}, returns[TOKENS], of_rows[ROWS];
  for (int r = 0; r < ROWS; r++) {
    first[r + 1] = first[r] + (size_t)row_tokens[r];
    if (row_tokens[r]) rewards[first[r + 1] - 1] = row_rewards[r];
  }
  const treadle_rl_scored scored = {ROWS, row_groups, first, rewards, row_rewards, NULL};
  assert_int_equal(first[ROWS], TOKENS);
  const treadle_rl_estimator_options options = {.estimator = estimator, .by_std = by_std, .gamma = gamma};
  assert_ok(treadle_rl_advantages(&options, &scored, advantages, returns, of_rows));
}

static treadle_batch *batch_to_estimate(const double *rewards) {
  treadle_batch *batch = batch_of(row_tokens, ROWS);
  add(batch, "group", TREADLE_COLUMN_INT64, row_groups);
  add(batch, "score", TREADLE_COLUMN_FP64, rewards);
  return batch;
}

/* By row only if the tokens of each row have the same. */
static void check_advantages(const treadle_batch *batch, const double *wanted) {
  bool by_row = true;
  int64_t at = 0;
  for (int r = 0; r < ROWS; r++)
    for (int64_t first = at, t = 0; t < row_tokens[r]; t++, at++)
      by_row = by_row && memcmp(&wanted[first], &wanted[at], sizeof *wanted) == 0;
  assert_true(treadle_batch_has(batch, "advantage") == by_row);
  assert_true(treadle_batch_has(batch, "advantages") == !by_row);
  const treadle_column c = column_of(batch, by_row ? "advantage" : "advantages");
  assert_int_equal(c.type, TREADLE_COLUMN_FP64);
  at = 0;
  for (int r = 0; r < ROWS; r++) {
    const double *row = (const double *)c.data + (by_row ? r : c.offsets[r]);
    assert_true(by_row || c.offsets[r + 1] - c.offsets[r] == row_tokens[r]);
    for (int64_t t = 0; t < row_tokens[r]; t++, at++)
      assert_memory_equal(&row[by_row ? 0 : t], &wanted[at], sizeof *wanted);
    if (by_row && !row_tokens[r]) assert_true(*row == 0);
  }
}

static void test_advantages(void **state) {
  (void)state;
  static const double gammas[] = {0, 0.5};
  for (size_t e = 0; e < TEST_COUNT(estimators); e++)
    for (size_t g = 0; g < TEST_COUNT(gammas); g++)
      for (int keep_scale = 0; keep_scale < 2; keep_scale++) {
        const treadle_advantage_options options = {.struct_size = sizeof options,
                                                   .estimator = estimators[e],
                                                   .keep_scale = keep_scale,
                                                   .gamma = gammas[g]};
        double wanted[TOKENS];
        treadle_batch *batch = batch_to_estimate(row_rewards);
        compute((treadle_rl_estimator)e, !keep_scale, gammas[g] != 0 ? gammas[g] : 1, wanted);
        assert_ok(treadle_advantages(batch, &options));
        check_advantages(batch, wanted);
        assert_true(treadle_batch_has(batch, "advantages") ==
                    (e == TREADLE_RL_REINFORCE_PLUS_PLUS && gammas[g] != 0));
        treadle_batch_destroy(batch);
      }
}

/* reward goes before score; without options it is group_norm. */
static void test_rewards(void **state) {
  (void)state;
  static const double others[ROWS] = {0, 0, 1, 1, 1, 0};
  double wanted[TOKENS];
  treadle_batch *batch = batch_to_estimate(others);
  add(batch, "reward", TREADLE_COLUMN_FP64, row_rewards);
  compute(TREADLE_RL_GROUP_NORM, true, 1, wanted);
  assert_ok(treadle_advantages(batch, NULL));
  check_advantages(batch, wanted);
  assert_refused("'advantage'", treadle_advantages(batch, NULL));
  treadle_batch_destroy(batch);
}

static treadle_status estimate(treadle_batch *batch, const char *name, double gamma) {
  const treadle_advantage_options options = {
      .struct_size = sizeof options, .estimator = name, .gamma = gamma};
  treadle_status status = treadle_advantages(batch, &options);
  const bool by_row = treadle_batch_has(batch, "advantage");
  assert_true((by_row || treadle_batch_has(batch, "advantages")) == (status == TREADLE_OK));
  if (!status) status = treadle_batch_remove(batch, by_row ? "advantage" : "advantages");
  return status;
}

static void test_advantages_refused(void **state) {
  (void)state;
  static const double bad[] = {NAN, INFINITY, -INFINITY, 1e300};
  static const int64_t no_groups[] = {-1, ROWS, INT64_MAX, INT64_MIN};
  static const int64_t one[] = {1};
  treadle_batch *batch = batch_to_estimate(row_rewards);
  const treadle_column group = column_of(batch, "group"), reward = column_of(batch, "score");
  for (size_t i = 0; i < TEST_COUNT(bad); i++)
    for (size_t e = 0; e < TEST_COUNT(estimators); e++) {
      ((double *)reward.data)[4] = bad[i];
      assert_refused("4: its reward is", estimate(batch, estimators[e], 0));
      ((double *)reward.data)[4] = row_rewards[4];
    }
  for (size_t i = 0; i < TEST_COUNT(no_groups); i++) {
    ((int64_t *)group.data)[2] = no_groups[i];
    assert_refused("row 2: group is", estimate(batch, NULL, 0));
  }
  ((int64_t *)group.data)[2] = row_groups[2];
  assert_refused("estimator 'gpo': group_norm, grpo, rloo", estimate(batch, "gpo", 0));
  assert_refused("gamma -0.5: 0 to 1", estimate(batch, NULL, -0.5));
  assert_refused("gamma 1.5: 0 to 1", estimate(batch, NULL, 1.5));
  assert_refused("gamma nan: 0 to 1", estimate(batch, NULL, NAN));
  TEST_EACH_ALLOCATION(estimate(batch, NULL, 0));
  TEST_EACH_ALLOCATION(estimate(batch, "reinforce_plus_plus", 0.5));
  static const char *const needed[] = {"ids", "group", "score"};
  for (size_t i = 0; i < TEST_COUNT(needed); i++) {
    assert_ok(treadle_batch_rename(batch, needed[i], "kept"));
    assert_refused(needed[i], estimate(batch, NULL, 0));
    assert_ok(treadle_batch_rename(batch, "kept", needed[i]));
  }
  assert_ok(treadle_batch_remove(batch, "group"));
  add(batch, "group", TREADLE_COLUMN_FP64, row_rewards);
  assert_refused("column 'group' is of another type", estimate(batch, NULL, 0));
  treadle_batch_destroy(batch);
  batch = batch_of(one, 1); /* nothing to be whitened by */
  add(batch, "group", TREADLE_COLUMN_INT64, (const int64_t[]){0});
  add(batch, "score", TREADLE_COLUMN_FP64, row_rewards);
  assert_int_equal(estimate(batch, "reinforce_plus_plus", 0), TREADLE_REFUSED);
  assert_ok(estimate(batch, "rloo", 0));
  treadle_batch_destroy(batch);
}

/* ---- Learning rates ---- */

static double rate(const char *style, double warmup, int64_t done) {
  const treadle_lr_options options = {.struct_size = sizeof options,
                                      .style = style,
                                      .lr = 1,
                                      .min_lr = 0.2,
                                      .warmup_fraction = warmup,
                                      .steps = 10};
  double lr = -1;
  assert_ok(treadle_learning_rate(&options, done, &lr));
  return lr;
}

static void test_rates(void **state) {
  (void)state;
  static const struct {
    const char *style;
    double warmup;
    int64_t done;
    double wanted;
  } cases[] = {
      {NULL, 0, 0, 1},          {"constant", 0, 10, 1},  {"constant", 0, 99, 1},  {"constant", 0.5, 0, 0},
      {"constant", 0.5, 2, .4}, {"constant", 0.5, 5, 1}, {"linear", 0, 0, 1},     {"linear", 0, 5, 0.6},
      {"linear", 0, 10, 0.2},   {"linear", 0, 11, 0.2},  {"linear", 0.2, 1, 0.5}, {"linear", 0.2, 6, 0.6},
      {"cosine", 0, 0, 1},      {"cosine", 0, 5, 0.6},   {"cosine", 0, 10, 0.2},  {"cosine", 0, 1000, 0.2},
      {"cosine", 0.2, 2, 1},    {"cosine", 0.2, 6, 0.6},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++)
    assert_true(fabs(rate(cases[i].style, cases[i].warmup, cases[i].done) - cases[i].wanted) < 1e-12);
  assert_true(rate("cosine", 0, 2) > rate("linear", 0, 2));
}

static void test_rates_refused(void **state) {
  (void)state;
  const treadle_lr_options good = {.struct_size = sizeof good, .lr = 1, .steps = 10};
  treadle_lr_options o = good;
  double lr;
  o.style = "step";
  assert_refused("style 'step': constant, linear or cosine", treadle_learning_rate(&o, 0, &lr));
  o = good;
  o.lr = -1;
  assert_refused("lr -1, ", treadle_learning_rate(&o, 0, &lr));
  o = good;
  o.min_lr = INFINITY;
  assert_refused("min_lr inf, ", treadle_learning_rate(&o, 0, &lr));
  o = good;
  o.warmup_fraction = 1;
  assert_refused("warmup_fraction 1: ", treadle_learning_rate(&o, 0, &lr));
  o = good;
  o.steps = 0;
  assert_refused("0 steps, of which 0 are done", treadle_learning_rate(&o, 0, &lr));
  assert_refused("10 steps, of which -1 are done", treadle_learning_rate(&good, -1, &lr));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_read),
                                     cmocka_unit_test(test_read_refused),
                                     cmocka_unit_test(test_read_no_memory),
                                     cmocka_unit_test(test_draw),
                                     cmocka_unit_test(test_draw_refused),
                                     cmocka_unit_test(test_decode),
                                     cmocka_unit_test(test_scores),
                                     cmocka_unit_test(test_scores_refused),
                                     cmocka_unit_test(test_advantages),
                                     cmocka_unit_test(test_rewards),
                                     cmocka_unit_test(test_advantages_refused),
                                     cmocka_unit_test(test_rates),
                                     cmocka_unit_test(test_rates_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
