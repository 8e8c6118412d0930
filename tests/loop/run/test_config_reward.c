/* Keys of a reward model: which runs have one, what it has from the actor, verl's names, and what is refused. */
#include "test.h"

#include "run/config.h"

#include <stdlib.h>
#include <string.h>

#define HAS "reward_config:\n  model: there\n"

static treadle_status parse(const char *text, treadle_train_config **config_p) {
  static const char *const two[] = {"rl_config.n_samples_per_prompt=2"};
  return treadle_train_config_parse("x.yaml", text, strlen(text), two, 1, TREADLE_RUN_RL, config_p);
}

static treadle_train_config *read_ok(const char *text) {
  treadle_train_config *config;
  assert_ok(parse(text, &config));
  return config;
}

static bool is_warned(const treadle_train_config *config, const char *words) {
  for (size_t i = 0; i < config->warnings.count; i++)
    if (strstr(config->warnings.items[i], words)) return true;
  return false;
}

static void test_defaults(void **state) {
  (void)state;
  char *text;
  treadle_train_config *config = read_ok(HAS "actor_config:\n  model: here\n  micro_batch_size: 8\n"
                                             "megatron_training:\n  global_batch_size: 16\n");
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_true(treadle_train_has_reward_model(s) && !treadle_train_has_critic(s));
  assert_string_equal(s->reward.scored.model, "there");
  assert_true(s->reward.weight == 1 && s->reward.offload_param);
  assert_int_equal(s->reward.scored.micro_batch_size, 8);
  assert_ok(treadle_train_config_text(config, &text));
  assert_non_null(strstr(text, "\nreward_config:\n  model:"));
  free(text);
  treadle_train_config_destroy(config);
}

/* A reward model scores all samples of a step: it has no mini batches that its micro batches must divide. */
static void test_micro_batches(void **state) {
  (void)state;
  treadle_train_config *config = read_ok(HAS "  micro_batch_size: 3\n");
  assert_int_equal(treadle_train_config_settings(config)->reward.scored.micro_batch_size, 3);
  treadle_train_config_destroy(config);
}

static const struct {
  const char *lines, *layout;
} layouts[] = {
    {"", "megatron:tp=2,pp=2,dtype=bf16"},
    {"  tensor_model_parallel_size: 4\n", "megatron:tp=4,dtype=bf16"},
    {"  strategy: fsdp2\n", "fsdp2:dp=4,dtype=bf16"},
    {"  layout: megatron:pp=2\n", "megatron:pp=2,dtype=bf16"},
};

/* Read from its own text, it is divided in the same way. */
static void test_layouts(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(layouts); i++) {
    char file[512], layout[128], *text;
    snprintf(file, sizeof file,
             HAS "  weight: 0.5\n%sactor_config:\n  tensor_model_parallel_size: 2\n"
                 "  pipeline_model_parallel_size: 2\n",
             layouts[i].lines);
    treadle_train_config *config = read_ok(file), *again;
    assert_ok(treadle_train_config_layout(config, TREADLE_PART_REWARD, 4, 4, layout, sizeof layout));
    assert_string_equal(layout, layouts[i].layout);
    assert_ok(treadle_train_config_text(config, &text));
    again = read_ok(text);
    assert_true(treadle_train_config_settings(again)->reward.weight == 0.5);
    assert_ok(treadle_train_config_layout(again, TREADLE_PART_REWARD, 4, 4, layout, sizeof layout));
    assert_string_equal(layout, layouts[i].layout);
    free(text);
    treadle_train_config_destroy(config);
    treadle_train_config_destroy(again);
  }
}

/* Without a model nothing of it is heard, and the resolved text has nothing of it. */
static void test_without(void **state) {
  (void)state;
  char *text;
  treadle_train_config *config = read_ok("reward_config: {weight: x, micro_batch_size: 4}\n"
                                         "reward_model: {enable: false, model: {path: there, "
                                         "input_tokenizer: other}}\n");
  assert_false(treadle_train_has_reward_model(treadle_train_config_settings(config)));
  assert_true(is_warned(config, "without effect here: reward_config"));
  assert_ok(treadle_train_config_text(config, &text));
  assert_null(strstr(text, "\nreward_config:"));
  free(text);
  treadle_train_config_destroy(config);
}

/* Its weight is needed where no verifier is. */
static void test_verifiers(void **state) {
  (void)state;
  treadle_train_config *config =
      read_ok(HAS "actor_config: {model: m, save: s}\nmegatron_training: {data_path: d, train_iters: 1}\n");
  assert_ok(treadle_train_config_need(config, false));
  treadle_train_config_destroy(config);
  config =
      read_ok("actor_config: {model: m, save: s}\nmegatron_training: {data_path: d, train_iters: 1}\n");
  assert_refused("rl_config.verifier_function", treadle_train_config_need(config, false));
  treadle_train_config_destroy(config);
}

static void test_names_of_verl(void **state) {
  (void)state;
  treadle_train_config *config = read_ok(
      "reward_model:\n  enable: true\n  strategy: fsdp\n  micro_batch_size_per_gpu: 2\n"
      "  model: {path: there, input_tokenizer: null, fsdp_config: {fsdp_size: 2, param_offload: false}}\n");
  const treadle_config_reward *reward = &treadle_train_config_settings(config)->reward;
  assert_string_equal(reward->scored.model, "there");
  assert_int_equal(reward->scored.strategy, TREADLE_STRATEGY_FSDP2);
  assert_int_equal(reward->scored.micro_batch_size, 2);
  assert_int_equal(reward->scored.fsdp_size, 2);
  assert_false(reward->offload_param);
  treadle_train_config_destroy(config);
  config = read_ok("reward: {reward_model: {enable: true, model_path: there}}\n");
  assert_string_equal(treadle_train_config_settings(config)->reward.scored.model, "there");
  treadle_train_config_destroy(config);
  /* MindSpeed-RL's section has what trains, too */
  config = read_ok(HAS "  lr: 1e-5\n  bf16: true\n");
  assert_true(is_warned(config, "reward_config.lr is without effect: a reward model goes forward only"));
  treadle_train_config_destroy(config);
}

static const struct {
  const char *text, *message;
} refused[] = {
    {"reward_model: {enable: true}\n",
     "there is to be a reward model, and reward_config.model does not say which"},
    {HAS "reward_model: {enable: false}\n", "reward_model.enable is false, and reward_config.model"},
    {HAS "reward_model: {model: {input_tokenizer: other}}\n",
     "reward_model.model.input_tokenizer: this cannot be done here; the reward model reads the ids"},
    {HAS "  wieght: 1\n", "reward_config.wieght: there is no such key"},
    {HAS "  weight: nan\n", "reward_config.weight is 'nan', and must be a number"},
    {HAS "  bf16: false\n", "a reward model has this from the actor"},
    {HAS "  context_parallel_size: 2\n", "reward_config.context_parallel_size is '2': here it"},
    {HAS "  micro_batch_size: 2\n  max_tokens_per_micro: 9\n", "exclude each other"},
    {HAS "  strategy: fsdp2\n  tensor_model_parallel_size: 2\n", "is of Megatron, and reward_config."},
    {HAS "  layout: vllm:tp=2\n", "a layout to train in is megatron, fsdp2"},
};

static void test_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(refused); i++) {
    treadle_train_config *config;
    assert_refused(refused[i].message, parse(refused[i].text, &config));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_defaults),  cmocka_unit_test(test_micro_batches),
                                     cmocka_unit_test(test_layouts),   cmocka_unit_test(test_without),
                                     cmocka_unit_test(test_verifiers), cmocka_unit_test(test_names_of_verl),
                                     cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
