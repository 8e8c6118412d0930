/* Scores of a batch: a reward that cannot begin, or that fails, leaves nobody behind who reads the batch. The batch is released at once, so that
 * the address sanitizer sees a thread that still does. */
#include "test.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "rl/rollout.h"

enum { SAMPLES = 3000, BYTES = 400 };

static treadle_reward *open_reward(const char *name) {
  const treadle_reward_options o = {.struct_size = sizeof o, .name = name, .command = "sleep 100"};
  treadle_reward *reward = NULL;
  assert_ok(treadle_reward_create(&o, &reward));
  return reward;
}

static const treadle_rl_prompt prompt = {.text = "1,2:9,1", .answer = "\\frac{1}{2}", .data_source = "x"};

static void fill(treadle_rl_batch *b) {
  for (int i = 0; i < SAMPLES; i++) {
    treadle_rl_made made = {.prompt = &prompt, .group = i, .text = calloc(1, BYTES + 1), .bytes = BYTES};
    assert_non_null(made.text);
    memset(made.text, 'a', BYTES);
    memcpy(made.text, "\\boxed{", 7);
    made.text[BYTES - 1] = '}';
    assert_ok(treadle_array_push(&b->samples, made));
  }
}

static bool asked; /* the run is to stop */

static bool stops(void *context) {
  (void)context;
  return asked;
}

static const treadle_rl_crew crew = {.ranks = 1, .observer = {.stop = stops}};
static treadle_rl_rewards rewards;
static bool stopped;
static const treadle_train_settings settings; /* no reward model */
static const treadle_rl_rollout rollout = {
    .settings = &settings, .crew = &crew, .rewards = &rewards, .stopped = &stopped};

static void open_rewards(const char *first, const char *second) {
  rewards = (treadle_rl_rewards){
      .items = {open_reward(first), open_reward(second)}, .weights = {1, 1}, .count = 2};
  stopped = false;
}

/* The second reward is under way already. */
static void test_no_start(void **state) {
  (void)state;
  open_rewards("math", "length:target=4");
  treadle_rl_batch b = {0};
  const treadle_reward_sample sample = {.id = "x"};
  fill(&b);
  assert_ok(treadle_reward_start(rewards.items[1], &sample, 1));
  assert_fails(TREADLE_STATE, "started before", treadle_rl_score_start(&rollout, &b, 0));
  treadle_rl_batch_release(&b);
  fill(&b);
  assert_ok(treadle_rl_score_start(&rollout, &b, 0)); /* nothing is under way */
  assert_ok(treadle_rl_score_wait(&rollout, &b, 0, NULL));
  assert_true(b.samples.items[SAMPLES - 1].score == 0);
  treadle_rl_batch_release(&b);
  treadle_rl_rewards_release(&rewards);
}

/* The first reward fails at once, the second has much to do. */
static void test_failure(void **state) {
  (void)state;
  open_rewards("regex:(a+)+$", "math");
  treadle_rl_batch b = {0};
  fill(&b);
  assert_ok(treadle_rl_score_start(&rollout, &b, 0));
  assert_refused("too many steps", treadle_rl_score_wait(&rollout, &b, 0, NULL));
  treadle_rl_batch_release(&b);
  fill(&b);
  assert_ok(treadle_rl_score_start(&rollout, &b, 0));
  assert_refused("too many steps", treadle_rl_score_wait(&rollout, &b, 0, NULL));
  treadle_rl_batch_release(&b);
  treadle_rl_rewards_release(&rewards);
}

/* A run that is asked to stop has scores if they come soon, and does not wait for others. */
static void test_stop(void **state) {
  (void)state;
  open_rewards("math", "length:target=4");
  treadle_rl_batch b = {0};
  fill(&b);
  asked = true;
  assert_ok(treadle_rl_score_start(&rollout, &b, 0));
  assert_ok(treadle_rl_score_wait(&rollout, &b, 0, NULL));
  assert_false(stopped);
  treadle_rl_rewards_release(&rewards);
  open_rewards("length:target=4", "command");
  assert_ok(treadle_rl_score_start(&rollout, &b, 0));
  double begin = treadle_clock_seconds();
  assert_ok(treadle_rl_score_wait(&rollout, &b, 0, NULL));
  double seconds = treadle_clock_seconds() - begin;
  assert_true(stopped);
  if (seconds < 0.4 || seconds > 4) fail_msg("it stopped after %.2f s", seconds);
  treadle_rl_batch_release(&b);
  treadle_rl_rewards_release(&rewards);
  asked = false;
}

static treadle_status score_once(treadle_rl_batch *b) {
  treadle_status status = treadle_rl_score_start(&rollout, b, 0);
  return status ? status : treadle_rl_score_wait(&rollout, b, 0, NULL);
}

static void test_no_memory(void **state) {
  (void)state;
  open_rewards("length:target=4", "math");
  treadle_rl_batch b = {0};
  fill(&b);
  for (size_t i = 4; i < b.samples.count; i++) free(b.samples.items[i].text);
  b.samples.count = 4;
  TEST_EACH_ALLOCATION(score_once(&b));
  treadle_rl_batch_release(&b);
  treadle_rl_rewards_release(&rewards);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_start), cmocka_unit_test(test_failure),
                                     cmocka_unit_test(test_stop), cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
