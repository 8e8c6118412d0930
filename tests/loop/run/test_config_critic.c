/* Keys of a critic: which runs have them, what a critic has from the actor, verl's names, and what is refused. */
#include "test.h"

#include "run/config.h"

#include <stdlib.h>
#include <string.h>

#define GAE  "rl_config:\n  adv_estimator: gae\n"
#define VERL "algorithm: {adv_estimator: gae}\n"

static treadle_status parse(const char *text, treadle_train_config **config_p) {
  return treadle_train_config_parse("x.yaml", text, strlen(text), NULL, 0, TREADLE_RUN_RL, config_p);
}

static treadle_train_config *read_ok(const char *text) {
  treadle_train_config *config;
  assert_ok(parse(text, &config));
  return config;
}

static const treadle_config_critic *critic_of(const treadle_train_config *config) {
  return &treadle_train_config_settings(config)->critic;
}

static bool is_warned(const treadle_train_config *config, const char *words) {
  for (size_t i = 0; i < config->warnings.count; i++)
    if (strstr(config->warnings.items[i], words)) return true;
  return false;
}

static void test_defaults(void **state) {
  (void)state;
  treadle_train_config *config = read_ok(GAE "actor_config:\n  model: here\n  lr: 1e-3\n  clip_grad: 0.5\n"
                                             "  micro_batch_size: 8\n  tensor_model_parallel_size: 2\n"
                                             "megatron_training:\n  global_batch_size: 16\n");
  const treadle_train_settings *s = treadle_train_config_settings(config);
  const treadle_config_critic *critic = critic_of(config);
  assert_true(treadle_train_has_critic(s));
  assert_int_equal(config->warnings.count, 0);
  assert_string_equal(critic->trained.model, "here");
  assert_true(critic->trained.lr == 1e-5 && critic->trained.clip_grad == 0.5);
  assert_true(critic->trained.adam_eps == s->actor.adam_eps && critic->trained.weight_decay == 0.01);
  assert_int_equal(critic->trained.micro_batch_size, 8);
  assert_int_equal(critic->trained.tensor_model_parallel_size, 2);
  assert_true(critic->offload_param && critic->offload_grad && critic->offload_optimizer);
  assert_true(critic->cliprange_value == 0.5 && critic->warmup == 0);
  assert_true(s->rl.advantage.lam == 1 && s->rl.advantage.whiten);
  char *text;
  assert_ok(treadle_train_config_text(config, &text));
  assert_non_null(strstr(text, "\ncritic_config:\n  model:"));
  assert_non_null(strstr(text, "# as actor_config"));
  free(text);
  treadle_train_config_destroy(config);
}

static const struct {
  const char *lines, *layout;
} layouts[] = {
    {"", "megatron:tp=2,pp=2,dtype=bf16"},
    {"  tensor_model_parallel_size: 4\n", "megatron:tp=4,dtype=bf16"},
    {"  strategy: megatron\n", "megatron:dtype=bf16"},
    {"  strategy: fsdp2\n", "fsdp2:dp=4,dtype=bf16"},
    {"  strategy: fsdp2\n  fsdp_size: 2\n", "fsdp2:dp=2,replicate=2,dtype=bf16"},
    {"  layout: megatron:pp=2\n", "megatron:pp=2,dtype=bf16"},
    {"  layout: fsdp2:dp=4,dtype=bf16\n", "fsdp2:dp=4,dtype=bf16"},
};

/* Read from its own text, it is divided in the same way. */
static void test_layouts(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(layouts); i++) {
    char file[512], layout[128], *text;
    snprintf(file, sizeof file,
             GAE "actor_config:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 2\n"
                 "critic_config:\n  lr: 1e-4\n%s",
             layouts[i].lines);
    treadle_train_config *config = read_ok(file), *again;
    assert_ok(treadle_train_config_layout(config, TREADLE_PART_CRITIC, 4, 4, layout, sizeof layout));
    assert_string_equal(layout, layouts[i].layout);
    assert_ok(treadle_train_config_layout(config, TREADLE_PART_PARAMS, 4, 4, layout, sizeof layout));
    assert_string_equal(layout, "megatron:tp=2,pp=2,dtype=bf16");
    assert_ok(treadle_train_config_text(config, &text));
    again = read_ok(text);
    assert_int_equal(again->warnings.count, 0);
    assert_ok(treadle_train_config_layout(again, TREADLE_PART_CRITIC, 4, 4, layout, sizeof layout));
    assert_string_equal(layout, layouts[i].layout);
    free(text);
    treadle_train_config_destroy(config);
    treadle_train_config_destroy(again);
  }
}

/* A layout of the actor's is the critic's, too, unless it has sizes of its own. */
static void test_layout_of_actor(void **state) {
  (void)state;
  char layout[128];
  treadle_train_config *config = read_ok(GAE "actor_config:\n  layout: megatron:tp=2\n");
  assert_ok(treadle_train_config_layout(config, TREADLE_PART_CRITIC, 4, 4, layout, sizeof layout));
  assert_string_equal(layout, "megatron:tp=2,dtype=bf16");
  treadle_train_config_destroy(config);
  config = read_ok(GAE "actor_config:\n  layout: megatron:tp=2\n"
                       "critic_config: {pipeline_model_parallel_size: 2}\n");
  assert_ok(treadle_train_config_layout(config, TREADLE_PART_CRITIC, 4, 4, layout, sizeof layout));
  assert_string_equal(layout, "megatron:pp=2,dtype=bf16");
  assert_refused("the run has 3 ranks, which critic_config.tensor_model_parallel_size",
                 treadle_train_config_layout(config, TREADLE_PART_CRITIC, 4, 3, layout, sizeof layout));
  treadle_train_config_destroy(config);
}

/* With another estimator nothing of a critic is heard, and the resolved text has nothing of it. */
static void test_without(void **state) {
  (void)state;
  char *text;
  treadle_train_config *config =
      read_ok("rl_config: {n_samples_per_prompt: 2, lam: 0.9, critic_warmup: 3}\ncritic_config:\n  lr: x\n"
              "algorithm: {lam: 1.0}\ncritic:\n  optim: {lr: 1, lr_warmup_steps: 9}\n  ppo_epochs: 7\n"
              "trainer: {critic_warmup: 0}\n");
  assert_false(treadle_train_has_critic(treadle_train_config_settings(config)));
  assert_int_equal(config->warnings.count, 1);
  assert_true(is_warned(config, "known, and without effect here: rl_config.lam (line 1), "
                                "rl_config.critic_warmup (line 1), critic_config (line 2), algorithm.lam "
                                "(line 4), critic.*"));
  assert_ok(treadle_train_config_text(config, &text));
  assert_null(strstr(text, "\ncritic_config:"));
  assert_null(strstr(text, "critic_warmup"));
  assert_null(strstr(text, "  lam:"));
  free(text);
  treadle_train_config_destroy(config);
  assert_refused("x.yaml:2: trainer.critic_warmup is '2': here it can only be 0",
                 parse("rl_config: {n_samples_per_prompt: 2}\ntrainer: {critic_warmup: 2}\n", &config));
  assert_refused("critic.enable is 'true': here it can only be false; a critic is there with",
                 parse("rl_config: {n_samples_per_prompt: 2}\ncritic: {enable: true}\n", &config));
}

static void test_verl(void **state) {
  (void)state;
  treadle_train_config *config = read_ok(
      VERL
      "critic:\n  enable: null\n  model: {path: there, enable_gradient_checkpointing: true, lora_rank: 0,"
      " fsdp_config: {param_offload: false, optimizer_offload: false, wrap_policy: {a: 1}}}\n"
      "  megatron: {grad_offload: false}\n"
      "  strategy: fsdp\n  ppo_micro_batch_size_per_gpu: 4\n  cliprange_value: 0.2\n  grad_clip: 2\n"
      "  ppo_epochs: 2\n  ppo_mini_batch_size: ${actor_rollout_ref.actor.ppo_mini_batch_size}\n"
      "  optim: {lr: 3e-5, clip_grad: 2, betas: [0.9, 0.999], lr_warmup_steps: -1}\n"
      "trainer: {critic_warmup: 5}\n"
      "actor_rollout_ref: {actor: {ppo_epochs: 2, ppo_mini_batch_size: 16}}\n"
      "data: {train_batch_size: 16}\n");
  const treadle_config_critic *critic = critic_of(config);
  assert_string_equal(critic->trained.model, "there");
  assert_true(critic->trained.lr == 3e-5 && critic->trained.clip_grad == 2);
  assert_true(critic->cliprange_value == 0.2 && critic->warmup == 5);
  assert_int_equal(critic->trained.strategy, TREADLE_STRATEGY_FSDP2);
  assert_int_equal(critic->trained.micro_batch_size, 4);
  assert_true(!critic->offload_param && !critic->offload_grad && !critic->offload_optimizer);
  assert_true(is_warned(config, "without effect here: critic.*"));
  treadle_train_config_destroy(config);
}

static const struct {
  const char *text, *message;
} refused[] = {
    {VERL "critic: {ppo_epochs: 2}\n",
     "x.yaml:2: critic.ppo_epochs is '2', and actor_rollout_ref.actor.ppo_epochs is '1': a critic has this "
     "from the actor"},
    {VERL "critic: {ppo_mini_batch_size: 3}\n", "a critic has this from the actor"},
    {VERL "critic: {optim: {lr_warmup_steps: 9}}\n",
     "critic.optim.lr_warmup_steps is '9': here it can only"},
    {VERL "critic: {model: {lora_rank: 8}}\n",
     "critic.model.lora_rank is '8': here it can only be 0; adapters are the policy's"},
    {VERL "critic: {enable: false}\n", "critic.enable is false, and adv_estimator is gae"},
    {GAE "critic_config: {weight_dacay: 1}\n",
     "critic_config.weight_dacay: there is no such key; did you mean"},
    {GAE "critic_config: {save: x}\n",
     "critic_config.save is 'x', and actor_config.save is not given: a critic"},
    {GAE "actor_config: {lora_rank: 8}\ncritic_config: {lora_rank: 8}\n",
     "critic_config.lora_rank is '8': here it"},
    {GAE "critic_config: {context_parallel_size: 2}\n",
     "critic_config.context_parallel_size is '2': here it"},
    {GAE "critic_config: {exact: false}\n",
     "critic_config.exact is 'false', and actor_config.exact is 'true'"},
    {GAE "critic_config: {lr: -1}\n", "critic_config.lr is '-1', and must be a number, 0 to 1000"},
    {GAE "critic_config: {lr: 1e-5, min_lr: 1e-4}\n",
     "critic_config.min_lr (line 3) is 0.0001, more than critic_config.lr (line 3)"},
    {GAE "critic_config: {micro_batch_size: 2, max_tokens_per_micro: 9}\n", "exclude each other"},
    {GAE "critic_config: {micro_batch_size: 3}\n", "a mini batch has 64 samples, which critic_config."},
    {GAE "critic_config: {max_tokens_per_micro: 9}\nmegatron_training: {seq_length: 10}\n",
     "a row of megatron_training.seq_length (line 4), 10, does not fit"},
    {GAE "critic_config: {layout: 'megatron:tp=2', tensor_model_parallel_size: 2}\n", "exclude each other"},
    {GAE "critic_config: {layout: 'vllm:tp=2'}\n", "a layout to train in is megatron, fsdp2"},
    {GAE "critic_config: {layout: 'megatron:dtype=fp32'}\n",
     "has dtype=fp32, and the run computes in bf16"},
    {GAE "critic_config: {layout: 'megatron'}\nactor_config: {lr: 1}\nmegatron_training: {bf16: 7}\n",
     "bf16"},
    {GAE "critic_config: {strategy: fsdp2, tensor_model_parallel_size: 2}\n",
     "is of Megatron, and critic_config."},
    {GAE "critic_config: {strategy: megatron, fsdp_size: 2}\n", "is of fsdp2, and critic_config.strategy"},
    {GAE "critic_config: {num_layers_per_virtual_pipeline_stage: 2}\n",
     "pipeline_model_parallel_size above 1"},
    {GAE "critic_config: {offload_optimizer: false}\n",
     "critic_config.offload_optimizer (line 3) is false, and critic_config.offload_param (default) true"},
    {GAE "critic_config: {offload_grad: false}\n", "stay on the device with the parameters alone"},
    {GAE "  lam: 1.5\n", "rl_config.lam is '1.5', and must be a number, 0 to 1"},
    {"algorithm: {adv_type: gae}\n",
     "algorithm.adv_type is 'gae', and keys of RLinf's critic are not read"},
};

static void test_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(refused); i++) {
    treadle_train_config *config;
    assert_refused(refused[i].message, parse(refused[i].text, &config));
  }
}

static treadle_status use(const char *text) {
  treadle_train_config *config = NULL;
  treadle_status status = parse(text, &config);
  treadle_train_config_destroy(config);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(use(GAE "critic_config: {lr: 1, layout: 'megatron:tp=2'}\n"));
  TEST_EACH_ALLOCATION(use(VERL "critic: {ppo_epochs: 1, optim: {lr: 1}}\n"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_defaults),
                                     cmocka_unit_test(test_layouts),
                                     cmocka_unit_test(test_layout_of_actor),
                                     cmocka_unit_test(test_without),
                                     cmocka_unit_test(test_verl),
                                     cmocka_unit_test(test_refused),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
