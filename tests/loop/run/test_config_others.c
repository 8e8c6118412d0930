/* What others say in other words, or with two keys together: RLinf's KL, entropy, rewards and schedule; verl's names twice on the command line. */
#include "test.h"

#include "run/config.h"

#include <math.h>

/* A file of RLinf with these lines behind its own: 8 prompts of 4 samples. */
static treadle_status parse(const char *lines, treadle_train_config **config_p) {
  char text[2048];
  snprintf(text, sizeof text, "%s%s", strstr(lines, "algorithm:") ? "" : "algorithm: {group_size: 4}\n",
           lines);
  return treadle_train_config_parse("r.yaml", text, strlen(text),
                                    (const char *const[]){"data.rollout_batch_size=8"}, 1, TREADLE_RUN_RL,
                                    config_p);
}

static treadle_train_config *read_ok(const char *lines) {
  treadle_train_config *config;
  assert_ok(parse(lines, &config));
  return config;
}

static void check_refusal(const char *message, const char *lines) {
  treadle_train_config *config;
  assert_refused(message, parse(lines, &config));
}

static bool is_warned(const treadle_train_config *config, const char *words) {
  for (size_t i = 0; i < config->warnings.count; i++)
    if (strstr(config->warnings.items[i], words)) return true;
  return false;
}

static void kl(void **state) {
  (void)state;
  treadle_train_config *config =
      read_ok("algorithm: {group_size: 4, adv_type: grpo, kl_beta: 0.0, reinpp_kl_beta: 0.5}\n");
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_false(s->rl.kl.in_loss || s->rl.kl.in_reward);
  treadle_train_config_destroy(config);
  config = read_ok("algorithm: {group_size: 4, adv_type: grpo, kl_beta: 0.25, reinpp_kl_beta: 0.5}\n");
  s = treadle_train_config_settings(config);
  assert_true(s->rl.kl.in_loss && !s->rl.kl.in_reward && s->rl.kl.init_coef == 0.25);
  treadle_train_config_destroy(config);
  config = read_ok("algorithm: {group_size: 4, adv_type: reinpp, reinpp_kl_beta: 0.5, kl_beta: 0}\n");
  s = treadle_train_config_settings(config);
  assert_true(!s->rl.kl.in_loss && s->rl.kl.in_reward && s->rl.kl.init_coef == 0.5);
  treadle_train_config_destroy(config);
  check_refusal("algorithm.kl_beta is 0.25, and algorithm.reinpp_kl_beta 0.5: the KL would count twice",
                "algorithm: {group_size: 4, adv_type: reinpp, kl_beta: 0.25, reinpp_kl_beta: 0.5}\n");
}

static void router_replay(void **state) {
  (void)state;
  treadle_train_config *config = read_ok("actor_rollout_ref:\n  actor: {router_replay: {mode: R3}}\n"
                                         "  rollout: {enable_rollout_routing_replay: true}\n");
  assert_int_equal(treadle_train_config_settings(config)->actor.router_replay, TREADLE_REPLAY_R3);
  treadle_train_config_destroy(config);
  config = read_ok("actor_rollout_ref:\n  actor: {megatron: {router_replay: {mode: disabled}}}\n");
  assert_int_equal(treadle_train_config_settings(config)->actor.router_replay, TREADLE_REPLAY_DISABLED);
  treadle_train_config_destroy(config);
  check_refusal("router_replay.mode (line 2) is R2, and actor_config.exact (default) is true",
                "actor_rollout_ref: {actor: {router_replay: {mode: R2}}}\n");
}

static void estimators(void **state) {
  (void)state;
  static const struct {
    const char *lines, *word;
  } files[] = {
      {"algorithm: {group_size: 4, adv_type: grpo}\n", "grpo"},
      {"algorithm: {group_size: 4, adv_type: reinpp}\n", "reinforce_plus_plus"},
      {"algorithm: {group_size: 4, adv_type: reinpp, use_reinpp_baseline: False}\n", "reinforce_plus_plus"},
      {"algorithm: {group_size: 4, adv_type: reinpp, use_reinpp_baseline: on}\n",
       "reinforce_plus_plus_baseline"},
      {"algorithm: {group_size: 4, adv_type: grpo, use_reinpp_baseline: True}\n", "grpo"}};
  for (size_t i = 0; i < TEST_COUNT(files); i++) {
    treadle_train_config *config = read_ok(files[i].lines);
    const int32_t word = treadle_train_config_settings(config)->rl.advantage.estimator;
    assert_string_equal(treadle_train_keys[TREADLE_KEY_OF(rl.advantage.estimator)].words[word],
                        files[i].word);
    treadle_train_config_destroy(config);
  }
  check_refusal("algorithm.use_reinpp_baseline is 'maybe', and must be true or false",
                "algorithm: {adv_type: reinpp, use_reinpp_baseline: maybe}\n");
  check_refusal("algorithm.adv_type is 'opd', and must be one of", "algorithm: {adv_type: opd}\n");
}

static void losses(void **state) {
  (void)state;
  treadle_train_config *config = read_ok(
      "algorithm: {group_size: 4, entropy_bonus: 0.5, calculate_entropy: False, clip_ratio_c: null, "
      "n_minibatches: 4,"
      " loss_agg_func: token-mean, use_valid_token_scale: False, importance_sampling_fix: False}\n");
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_true(s->rl.loss.entropy_coeff == 0 && s->rl.loss.clip_ratio_c == 1e30 &&
              s->rl.logprobs.rollout_is == 0);
  assert_int_equal(s->rl.batches.mini_batch_size, 2);
  assert_int_equal(s->rl.batches.mini_batch_samples, 8);
  assert_true(is_warned(config, "of micro batches of one sample, as without, it is seq-mean-token-mean"));
  treadle_train_config_destroy(config);
  config = read_ok("algorithm: {group_size: 4, entropy_bonus: 0.5, loss_agg_func: token-mean, "
                   "use_valid_token_scale: True, clip_ratio_high: 0.3}\n");
  s = treadle_train_config_settings(config);
  assert_true(s->rl.loss.entropy_coeff == 0.5 && s->rl.loss.clip_ratio_c == 3 && !config->warnings.count);
  assert_true(s->rl.loss.clip_ratio_high == 0.3 && s->rl.loss.clip_ratio_low == 0.2);
  treadle_train_config_destroy(config);
  treadle_train_config_destroy(read_ok("algorithm: {group_size: 4, recompute_logprobs: False}\n"));
  check_refusal("without actor_config.exact the old log-probabilities are always computed again",
                "algorithm: {group_size: 4, recompute_logprobs: False}\nactor_config: {exact: off}\n");
  check_refusal(
      "data.rollout_batch_size (override) is 8 prompts, which algorithm.n_minibatches (line 1), 3, does "
      "not divide",
      "algorithm: {group_size: 4, n_minibatches: 3}\n");
}

static void rewards(void **state) {
  (void)state;
  treadle_train_config *config = read_ok("reward: {reward_type: math, reward_scale: 5.0}\n");
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_string_equal(s->rl.verifier.function.items[0], "math");
  assert_int_equal(s->rl.verifier.weight.count, 1);
  assert_string_equal(s->rl.verifier.weight.items[0], "10");
  treadle_train_config_destroy(config);
  config = read_ok("reward: {reward_type: math, reward_scale: 5, reward_min_val: 0, reward_max_val: 1}\n");
  assert_string_equal(treadle_train_config_settings(config)->rl.verifier.weight.items[0], "5");
  treadle_train_config_destroy(config);
  config = read_ok("reward: {reward_type: math, reward_scale: 5}\nrl_config: {verifier_weight: [2]}\n");
  assert_string_equal(treadle_train_config_settings(config)->rl.verifier.weight.items[0], "2");
  treadle_train_config_destroy(config);
  check_refusal("reward.reward_scale is 'big', and must be a number", "reward: {reward_scale: big}\n");
}

#define SCHEDULE "  lr_sched: {lr_warmup_fraction: 0.5, lr_decay_iters: 2, lr_decay_style: "

static void schedules(void **state) {
  (void)state;
  treadle_train_config *config =
      read_ok("runner: {max_steps: 4}\nactor:\n  training_backend: megatron\n  optim: {lr: 1e-5, min_lr: "
              "1e-6}\n" SCHEDULE "constant, min_lr: 0.0}\n");
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_true(s->actor.lr_warmup_fraction == 0.25 && s->actor.min_lr == 1e-6 &&
              s->training.train_iters == 4);
  assert_int_equal(s->actor.lr_decay_style, TREADLE_DECAY_CONSTANT);
  treadle_train_config_destroy(config);
  config = read_ok("runner: {max_steps: 4}\nactor:\n  training_backend: fsdp\n  optim: {lr: 1e-5, "
                   "use_distributed_optimizer: True}\n" SCHEDULE "cosine}\n");
  s = treadle_train_config_settings(config);
  assert_true(s->actor.lr_warmup_fraction == 0 && !s->training.use_distributed_optimizer);
  assert_int_equal(s->actor.lr_decay_style, TREADLE_DECAY_CONSTANT);
  assert_int_equal(s->actor.strategy, TREADLE_STRATEGY_FSDP2);
  assert_true(is_warned(config, "actor.lr_sched has no effect with FSDP"));
  treadle_train_config_destroy(config);
  config = read_ok("actor: {optim: {lr: 1e-5}}\n"); /* its default, which is not treadle's */
  assert_int_equal(treadle_train_config_settings(config)->actor.lr_decay_style, TREADLE_DECAY_CONSTANT);
  treadle_train_config_destroy(config);
  check_refusal(
      "actor.lr_sched.lr_decay_iters is 2, and the decay ends with the last of the run's 4 steps of the "
      "optimizer",
      "runner: {max_steps: 4}\nactor:\n  training_backend: megatron\n  optim: {lr: 1e-5}\n" SCHEDULE
      "linear}\n");
  check_refusal("is all of the run's steps of the optimizer, 1",
                "runner: {max_steps: 1}\nactor:\n  training_backend: megatron\n" SCHEDULE "constant}\n");
}

static void models(void **state) {
  (void)state;
  treadle_train_config *config = read_ok(
      "runner: {max_steps: -1, max_epochs: 3}\nrollout: {model: {model_path: a}}\nactor: {model: "
      "{model_path: a, "
      "precision: fp16}}\ndata: {train_data_paths: [x.jsonl, y.jsonl], filter_prompt_by_length: True}\n");
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_string_equal(s->actor.model, "a");
  assert_string_equal(s->training.data_path, "x.jsonl,y.jsonl");
  assert_true(s->training.bf16 && s->training.train_iters == 0 && config->most_epochs == 3);
  assert_int_equal(s->rl.data.too_long, TREADLE_TOO_LONG_LEAVE_OUT);
  assert_true(is_warned(config, "actor.model.precision is fp16: computed in bf16"));
  treadle_train_config_destroy(config);
  check_refusal("actor.model.model_path: rollout.model.model_path on line 2 says the same",
                "rollout: {model: {model_path: a}}\nactor: {model: {model_path: b}}\n");
}

/* ---- verl's scripts ---- */

static treadle_status give(const char *const *overrides, size_t count, treadle_train_config **config_p) {
  static const char text[] = "rl_config: {n_samples_per_prompt: 4}\n";
  return treadle_train_config_parse("v.yaml", text, strlen(text), overrides, count, TREADLE_RUN_RL,
                                    config_p);
}

static void twice_on_the_command_line(void **state) {
  (void)state;
  static const char *const kls[] = {"actor_rollout_ref.actor.use_kl_loss=True",
                                    "actor_rollout_ref.actor.kl_loss_coef=0.5",
                                    "algorithm.kl_ctrl.kl_coef=0.25"};
  static const char *const lengths[] = {"data.max_prompt_length=64",
                                        "actor_rollout_ref.rollout.prompt_length=64",
                                        "actor_rollout_ref.rollout.gpu_memory_utilization=0.5",
                                        "actor_rollout_ref.rollout.gpu_memory_utilization=0.25"};
  static const char *const others[] = {"data.max_prompt_length=64",
                                       "actor_rollout_ref.rollout.prompt_length=65"};
  treadle_train_config *config;
  assert_ok(give(kls, TEST_COUNT(kls), &config));
  assert_true(treadle_train_config_settings(config)->rl.kl.init_coef == 0.5);
  treadle_train_config_destroy(config);
  assert_ok(give(lengths, TEST_COUNT(lengths), &config));
  assert_true(treadle_train_config_settings(config)->generate.gpu_memory_utilization ==
              0.25); /* the last, as in Hydra */
  treadle_train_config_destroy(config);
  assert_refused("override actor_rollout_ref.rollout.prompt_length is given twice, the first time as "
                 "data.max_prompt_length",
                 give(others, TEST_COUNT(others), &config));
}

static treadle_status use(const char *lines) {
  treadle_train_config *config;
  treadle_status status = parse(lines, &config);
  treadle_train_config_destroy(config);
  return status;
}

static void each_allocation(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(
      use("algorithm: {group_size: 4, adv_type: reinpp, kl_beta: 0.5, loss_agg_func: token-mean, "
          "use_valid_token_scale: False}\nreward: {reward_type: math, reward_scale: 5}\n"
          "data: {train_data_paths: [x, y], apply_chat_template_kwargs: {a: {b: [1, on, x]}}}\n"
          "runner: {max_steps: 4}\nactor: {model: {precision: fp16}}\n"));
  TEST_EACH_ALLOCATION((use("algorithm: {adv_type: opd, loss_type: x, y: 1}\n") == TREADLE_REFUSED
                            ? TREADLE_OK
                            : TREADLE_NO_MEMORY));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(kl),
                                     cmocka_unit_test(router_replay),
                                     cmocka_unit_test(estimators),
                                     cmocka_unit_test(losses),
                                     cmocka_unit_test(rewards),
                                     cmocka_unit_test(schedules),
                                     cmocka_unit_test(models),
                                     cmocka_unit_test(twice_on_the_command_line),
                                     cmocka_unit_test(each_allocation)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
