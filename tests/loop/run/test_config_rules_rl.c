/* What keys of reinforcement learning say together: each rule once, with the keys, their lines and the numbers in its refusal; what follows from others;
 * and the resolved text, which is read again to the same. */
#include "test.h"

#include "run/config.h"
#include "train/kl.h"

#include <math.h>

static treadle_status parse(const char *text, treadle_train_config **config_p) {
  return treadle_train_config_parse("rl.yaml", text, strlen(text), NULL, 0, TREADLE_RUN_RL, config_p);
}

/* Lines below are keys of rl_config unless they begin with a section; n is 4 and a step has 6 prompts unless they say otherwise. */
static void complete(char *to, size_t room, const char *lines) {
  const bool has_section =
      strstr(lines, "_config:\n") || strstr(lines, "megatron:\n") || strstr(lines, "actor:\n");
  snprintf(to, room, "megatron_training:\n  global_batch_size: 6\n%s%s%s",
           has_section ? "" : "rl_config:\n  ", lines,
           has_section                  ? ""
           : strstr(lines, "n_samples") ? ""
                                        : "  n_samples_per_prompt: 4\n");
}

#define N "rl_config:\n  n_samples_per_prompt: 4\n"

static const struct {
  const char *lines, *message;
} wrong[] = {
    /* mini batches */
    {"mini_batch_size: 4\n", "rl.yaml: megatron_training.global_batch_size (line 2) is 6 prompts, which "
                             "rl_config.mini_batch_size (line 4), 4, does not divide"},
    {"actor_rollout_ref:\n  actor:\n    ppo_mini_batch_size: 4\n" N,
     "is 6 prompts, which actor_rollout_ref.actor.ppo_mini_batch_size (line 5), 4, does not divide"},
    {"actor_rollout_ref:\n  actor:\n    ppo_mini_batch_size: 12\n" N,
     "is 6 prompts, which actor_rollout_ref.actor.ppo_mini_batch_size (line 5), 12, does not divide"},
    {N "  mini_batch_size: 3\nactor_config:\n  micro_batch_size: 5\n",
     "rl_config.mini_batch_size (line 5) times rl_config.n_samples_per_prompt (line 4) is 12 samples, "
     "which "
     "actor_config.micro_batch_size (line 7), 5, does not divide"},
    {N "actor_config:\n  micro_batch_size: 5\n",
     "megatron_training.global_batch_size (line 2) times rl_config.n_samples_per_prompt (line 4) is 24 "
     "samples, the only mini batch, which actor_config.micro_batch_size (line 6), 5, does not divide"},
    {"use_dynamic_bsz: true\n", "rl_config.use_dynamic_bsz (line 4) needs "
                                "actor_config.max_tokens_per_micro, the tokens of a micro batch"},
    {"mini_batch_size: -1\n",
     "rl.yaml:4: rl_config.mini_batch_size is '-1', and must be a whole number, 0 to 16777216"},
    /* estimators */
    {"n_samples_per_prompt: 1\n",
     "rl_config.n_samples_per_prompt (line 4) is 1, and rl_config.adv_estimator (default), group_norm, "
     "compares the samples of a "
     "prompt: 2 at least"},
    {"n_samples_per_prompt: 1\n  adv_estimator: rloo\n",
     "rl_config.adv_estimator (line 5), rloo, compares"},
    {"n_samples_per_prompt: 1\n  adv_estimator: grpo\n",
     "rl_config.adv_estimator (line 5), grpo, compares"},
    {"n_samples_per_prompt: 1\n  adv_estimator: reinforce_plus_plus_baseline\n",
     "reinforce_plus_plus_baseline, compares"},
    {"n_samples_per_prompt: 0\n", "must be a whole number, 1 to 16777216"},
    {"adv_estimator: group_nrm\n", "did you mean group_norm?"},
    {N "generate_config:\n  sampling_config: {temperature: 0}\n",
     "generate_config.sampling_config.temperature (line 6) is 0: all samples of a prompt would be the "
     "same"},
    {N "generate_config:\n  sampling_config: {temperature: -0.5}\n",
     "temperature is '-0.5', and must be a number, 0 to 1000"},
    /* losses */
    {"clip_ratio: 1.5\n",
     "rl_config.clip_ratio_low (as clip_ratio) is 1.5: a ratio is never below 0, so 1 at most"},
    {"clip_ratio_low: 1.5\n", "rl_config.clip_ratio_low is '1.5', and must be a number, 0 to 1"},
    {"clip_ratio_c: 0.5\n", "rl_config.clip_ratio_c is '0.5', and must be a number, 1 to"},
    {"token_level_loss: true\n  loss_agg_mode: token-mean\n",
     "rl_config.token_level_loss (line 4) and rl_config.loss_agg_mode (line 5) exclude each other"},
    {"loss_agg_mode: token-men\n", "did you mean token-mean?"},
    {"use_kl_loss: true\n  use_kl_in_reward: true\n",
     "rl_config.use_kl_loss (line 4) and rl_config.use_kl_in_reward (line 5): the KL would count twice"},
    {"kl_penalty: k4\n",
     "rl_config.kl_penalty is 'k4', and must be one of kl|k1|abs|mse|k2|low_var_kl|k3|kl+|k1+"},
    {"kl_penalty: full\n", "rl_config.kl_penalty is 'full', and must be one of kl|"},
    {"n_samples: 4\n", "rl_config.n_samples: there is no such key; did you mean 'n_samples_per_prompt'?"},
    {"mini_batch: 4\n", "did you mean 'mini_batch_size'?"},
    /* rewards */
    {"verifier_function: [math, gsm8k]\n  verifier_weight: [1]\n",
     "rl_config.verifier_weight (line 5) has 1 item, and rl_config.verifier_function (line 4) 2: there "
     "must be "
     "as many"},
    {"verifier_function: [math]\n  verifier_weight: [much]\n",
     "rl_config.verifier_weight (line 5): item 0 is 'much', and must be a number"},
    {"verifier_function: [math, command]\n", "rl_config.verifier_function (line 4) has `command`, and "
                                             "needs rl_config.verifier_command: what is run"},
    {"overlong_buffer_enable: true\n",
     "rl_config.overlong_buffer_enable (line 4) needs rl_config.overlong_buffer, 1 token at least"},
    {"overlong_buffer_enable: true\n  overlong_buffer: 65\n  rollout_max_tokens: 64\n",
     "rl_config.overlong_buffer (line 5) is 65, more than rl_config.rollout_max_tokens (line 6), which is "
     "64"},
    {N "  overlong_buffer_enable: true\n  overlong_buffer: 65\n"
       "generate_config:\n  sampling_config: "
       "{max_tokens: 64}\n",
     "rl_config.overlong_buffer (line 6) is 65, more than generate_config.sampling_config.max_tokens (line "
     "8), which is 64"},
    {N "  overlong_buffer_enable: true\n  overlong_buffer: 8\n  rollout_max_tokens: 72\n"
       "generate_config:\n  sampling_config: {max_tokens: 64}\n",
     "rl_config.rollout_max_tokens (line 7) is 72, and rl_config.overlong_buffer (line 6) 8: the penalty "
     "begins behind 64 tokens, and responses have 64 at most"},
    /* layouts and lengths */
    {N "  max_prompt_length: 100\ngenerate_config:\n  max_model_len: 128\n  sampling_config: {max_tokens: "
       "100}\n",
     "generate_config.max_model_len (line 7) is 128, less than prompts of 100 tokens, "
     "rl_config.max_prompt_length (line 5), and responses of 100, "
     "generate_config.sampling_config.max_tokens (line 8)"},
    {N "generate_config:\n  layout: vllm:tp=2\n  infer_tensor_parallel_size: 2\n",
     "generate_config.infer_tensor_parallel_size (line 7) and generate_config.layout (line 6) exclude each "
     "other"},
    {N "generate_config:\n  infer_tensor_parallel_size: 2\n  infer_expert_parallel_size: 5\n",
     "generate_config.infer_expert_parallel_size (line 7) is 5: 1, or a multiple of "
     "generate_config.infer_tensor_parallel_size (line 6), which is 2"},
    {N "actor_config:\n  seq_length: 128\ngenerate_config:\n  max_model_len: 64\n",
     "generate_config.max_model_len (line 8) is 64, less than actor_config.seq_length (line 6), which is "
     "128"},
    {N "  max_prompt_length: 100\ngenerate_config:\n  max_model_len: 128\n  sampling_config: {max_tokens: "
       "100}\nactor_config:\n"
       "  seq_length: 100\n",
     "generate_config.max_model_len (line 7) is 128, less than prompts of 100 tokens"},
    /* tests */
    {N "actor_rollout_ref:\n  rollout:\n    val_kwargs: {temperature: 0, do_sample: true}\n",
     "actor_rollout_ref.rollout.val_kwargs.temperature (line 7) is 0, and by "
     "actor_rollout_ref.rollout.val_kwargs.do_sample (line 7) a test draws"},
    /* the optimizer */
    {N "actor_config:\n  adam_betas: [0.9]\n",
     "actor_config.adam_betas (line 6) has 1 item, and must have two: adam_beta1 and adam_beta2"},
    {N "actor_config:\n  adam_betas: [0.9, 1]\n",
     "actor_config.adam_betas (line 6): item 1 is '1', and must be a number, 0 to below 1"},
    {N "actor_config:\n  adam_betas: [0.9, 0.95]\n  adam_beta2: 0.99\n",
     "actor_config.adam_betas (line 6) has 0.95, and actor_config.adam_beta2 (line 7) is another one"},
    /* DAPO's filter */
    {"filter_groups_enable: true\n  filter_groups_metric: seq_reward\n  overlong_buffer_enable: true\n  "
     "overlong_buffer: 8\n",
     "rl_config.filter_groups_metric (line 5) is seq_reward, which has the penalty of "
     "rl_config.overlong_buffer_enable (line 6) in it"},
    {"filter_groups_enable: true\n  filter_groups_metric: math\n  verifier_function: [math, gsm8k]\n",
     "rl_config.filter_groups_metric (line 5) is 'math': groups are left out by their scores alone"},
    /* where it begins */
    {"resume_mode: resume_path\n",
     "rl_config.resume_mode (line 4) needs rl_config.resume_from_path, the folder global_step_K"},
    /* what weights begin with */
    {N "actor:\n  checkpoint_load_path: x\nmegatron:\n  use_hf_ckpt: true\n",
     "megatron.use_hf_ckpt (line 8) and actor.checkpoint_load_path (line 6) exclude each other"},
    {N "megatron:\n  use_hf_ckpt: true\n",
     "megatron.use_hf_ckpt (line 6) needs megatron.ckpt_convertor.save_path, the folder of what is "
     "converted"},
    {N "megatron:\n  use_hf_ckpt: true\n  ckpt_convertor: {save_path: x, hf_model_path: "
       "a}\nactor_config:\n  model: b\n",
     "megatron.ckpt_convertor.hf_model_path (line 7) is 'a', and actor_config.model (line 9) 'b': the "
     "model that is converted is"},
    {N "megatron:\n  ckpt_format: torch_dist\n",
     "rl.yaml:6: megatron.ckpt_format is 'torch_dist': here it can only be torch"},
    {N "actor:\n  megatron:\n    use_dist_ckpt: True\n",
     "actor.megatron.use_dist_ckpt is 'True': here it can only be false"},
};

static void refusals(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(wrong); i++) {
    char text[512];
    treadle_train_config *config;
    complete(text, sizeof text, wrong[i].lines);
    assert_refused(wrong[i].message, parse(text, &config));
    assert_null(config);
  }
}

/* ---- Keys of others that treadle has nothing for ---- */

static treadle_status parse_override(const char *override) {
  static const char text[] = "rl_config:\n  n_samples_per_prompt: 4\n";
  treadle_train_config *config;
  treadle_status status =
      treadle_train_config_parse("rl.yaml", text, strlen(text), &override, 1, TREADLE_RUN_RL, &config);
  treadle_train_config_destroy(config);
  return status;
}

/* They may say what is done anyway. */
static void limits(void **state) {
  (void)state;
  for (int i = 0; i < TREADLE_TRAIN_LIMITS; i++) {
    const treadle_train_limit *limit = &treadle_train_limits[i];
    const bool both = !strchr(limit->path, '.');
    char override[256], message[256];
    for (int j = -1; j < 0 || limit->only[j]; j++) {
      snprintf(override, sizeof override, "%s%s=%s", both ? "actor_config." : "", limit->path,
               j < 0 ? "null" : limit->only[j]);
      assert_ok(parse_override(override));
    }
    snprintf(override, sizeof override, "%s%s=7", both ? "actor_config." : "", limit->path);
    snprintf(message, sizeof message, "override %s%s%s%s", both ? "actor_config." : "", limit->path,
             limit->only[0] ? " is '7': here it can only be " : ": this cannot be done here; ",
             limit->only[0] ? limit->only[0] : "");
    assert_refused(message, parse_override(override));
    assert_refused(limit->instead ? limit->instead : "override", parse_override(override));
  }
}

static const struct {
  const char *override, *message;
} limited[] = {
    {"actor_rollout_ref.actor.policy_loss.loss_mode=gspo",
     "policy_loss.loss_mode is 'gspo': here it can only be vanilla; the loss of a policy is PPO's"},
    {"actor_rollout_ref.actor.optim.lr_warmup_steps=10",
     "lr_warmup_steps is '10': here it can only be -1 or 0; the warm-up is "
     "actor_config.lr_warmup_fraction"},
    {"custom_reward_function.path=my.py", "rl_config.verifier_function=[command]"},
    {"algorithm.filter_groups.metric=seq_final_reward", NULL}, /* without a filter it says nothing */
    {"algorithm.rollout_correction.rollout_is=sequence", "rollout_is is 'sequence', and must be one of "
                                                         "none|token"},
    {"data.truncation=left", "rl_config.too_long=leave_out leaves long ones out"},
    {"data.shuffle=maybe", "data.shuffle is 'maybe', and must be one of true|false"},
    {"trainer.resume_mode=always", "must be one of disable|auto|resume_path"},
    {"data.apply_chat_template_kwargs={}", NULL},
};

static void limits_by_name(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(limited); i++)
    if (limited[i].message)
      assert_refused(limited[i].message, parse_override(limited[i].override));
    else
      assert_ok(parse_override(limited[i].override));
}

/* ---- What follows ---- */

static treadle_train_config *read_ok(const char *lines) {
  treadle_train_config *config;
  char text[512];
  complete(text, sizeof text, lines);
  assert_ok(parse(text, &config));
  return config;
}

static void follows(void **state) {
  (void)state;
  treadle_train_config *config = read_ok("clip_ratio: 0.3\n");
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_int_equal(s->rl.batches.mini_batch_size, 6);
  assert_int_equal(s->rl.batches.mini_batch_samples, 24);
  assert_int_equal(s->sampling.seed, 1234);
  assert_true(s->rl.loss.clip_ratio_low == 0.3 && s->rl.loss.clip_ratio_high == 0.3 && !s->rl.kl.in_loss);
  treadle_train_config_destroy(config);
  config = read_ok("token_level_loss: false\n  init_kl_coef: 0.5\n");
  s = treadle_train_config_settings(config);
  assert_string_equal(treadle_train_keys[TREADLE_KEY_OF(rl.loss.agg_mode)].words[s->rl.loss.agg_mode],
                      "seq-mean-token-mean");
  assert_true(s->rl.kl.in_loss && !s->rl.kl.in_reward);
  treadle_train_config_destroy(config);
  config = read_ok("n_samples_per_prompt: 1\n  adv_estimator: reinforce_plus_plus\n  init_kl_coef: 0\n");
  assert_false(treadle_train_config_settings(config)->rl.kl.in_loss);
  treadle_train_config_destroy(config);
  config = read_ok(
      "algorithm:\n  rollout_correction: {rollout_is: none}\nactor_rollout_ref:\n  rollout:\n    "
      "val_kwargs: {temperature: 0.5, top_p: 0.7}\n  actor:\n    optim:\n      betas: [0.8, 0.9]\n" N);
  s = treadle_train_config_settings(config);
  assert_true(s->actor.adam_beta1 == 0.8 && s->actor.adam_beta2 == 0.9 && s->rl.logprobs.rollout_is == 0);
  assert_true(s->rl.validation.temperature == 0.5 && !s->rl.validation.greedy &&
              s->rl.validation.top_p == 0.7 && s->rl.validation.top_k == -1);
  treadle_train_config_destroy(config);
  config = read_ok("use_kl_loss: true\n  kl_penalty: k3+\n");
  assert_int_equal(treadle_train_config_settings(config)->rl.kl.penalty, TREADLE_KL_PLUS + TREADLE_KL_K3);
  treadle_train_config_destroy(config);
  config = read_ok("use_kl_in_reward: true\n  init_kl_coef: 0.5\n");
  assert_false(treadle_train_config_settings(config)->rl.kl.in_loss);
  treadle_train_config_destroy(config);
}

/* MindSpeed-RL and verl count prompts; above a step's there is one update in MindSpeed-RL. */
static void mini_batches(void **state) {
  (void)state;
  static const struct {
    const char *lines;
    int64_t samples;
  } files[] = {
      {"mini_batch_size: 0\n", 24},
      {"mini_batch_size: 1\n", 4},
      {"mini_batch_size: 3\n", 12},
      {"mini_batch_size: 6\n", 24},
      {"mini_batch_size: 7\n", 24},
      {"mini_batch_size: 64\n", 24},
      {"mini_batch_size: 64\n  filter_groups_enable: true\n  filter_groups_train_batch_size: 2\n", 8},
      {"actor_rollout_ref:\n  actor:\n    ppo_mini_batch_size: 2\n" N, 8}};
  for (size_t i = 0; i < TEST_COUNT(files); i++) {
    treadle_train_config *config = read_ok(files[i].lines);
    const treadle_train_settings *s = treadle_train_config_settings(config);
    assert_int_equal(s->rl.batches.mini_batch_samples, files[i].samples);
    assert_int_equal(s->rl.batches.mini_batch_size, files[i].samples / 4);
    treadle_train_config_destroy(config);
  }
}

/* Without its switch a bound of MindSpeed-RL's counts for nothing, and that is said; verl has no switch. */
static void bounds(void **state) {
  (void)state;
  treadle_train_config *config = read_ok("clip_ratio_high: 0.3\n");
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_true(s->rl.loss.clip_ratio_high == 0.2 && !s->rl.loss.clip_higher_enable);
  assert_int_equal(config->warnings.count, 1);
  assert_string_equal(
      config->warnings.items[0],
      "rl.yaml: rl_config.clip_ratio_high (line 4) has no effect without clip_higher_enable");
  treadle_train_config_destroy(config);
  config = read_ok("clip_ratio_high: 0.3\n  clip_higher_enable: true\n");
  s = treadle_train_config_settings(config);
  assert_true(s->rl.loss.clip_ratio_high == 0.3 && s->rl.loss.clip_ratio_low == 0.2 &&
              !config->warnings.count);
  treadle_train_config_destroy(config);
  config = read_ok("actor_rollout_ref:\n  actor:\n    clip_ratio_low: 0.1\n" N);
  s = treadle_train_config_settings(config);
  assert_true(s->rl.loss.clip_ratio_high == 0.2 && s->rl.loss.clip_ratio_low == 0.1 &&
              s->rl.loss.clip_higher_enable);
  treadle_train_config_destroy(config);
}

/* Those of MindSpeed-RL, where treadle has its key; a KL there is only where a file asks for one. */
static void defaults(void **state) {
  (void)state;
  treadle_train_config *config = read_ok("n_samples_per_prompt: 4\n");
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_true(s->rl.kl.init_coef == 0.01 && s->rl.kl.horizon == 1000 && s->rl.kl.target == 100);
  assert_true(!s->rl.loss.clip_higher_enable && !s->rl.kl.in_loss && !s->rl.kl.in_reward);
  assert_int_equal(s->rl.filter_groups.max_batches, 1);
  treadle_train_config_destroy(config);
}

static void warned(void **state) {
  (void)state;
  treadle_train_config *config = read_ok("kl_penalty: k1\n  kl_horizon: 1000.0\n");
  assert_int_equal(config->warnings.count, 1);
  assert_string_equal(
      config->warnings.items[0],
      "rl.yaml: rl_config.kl_penalty (line 4) has no effect without use_kl_loss or use_kl_in_reward");
  treadle_train_config_destroy(config);
}

static void text_is_read_again(void **state) {
  (void)state;
  static const char *const files[] = {
      "clip_higher_enable: false\n  clip_ratio_high: 0.5\n",
      "use_dynamic_bsz: true\n  max_packing_token_size: 4096\n",
      "val_temperature: 0\n  filter_groups_metric: score\n  resume_mode: auto\n",
      N "actor_config:\n  adam_betas: [0.8, 0.9]\n  load: x\n  no_shuffle: true\n",
      "init_kl_coef: 0.5\n  verifier_function: ['a,b', \"c\"]\n",
      N "megatron:\n  use_hf_ckpt: true\n  ckpt_convertor: {save_path: x, hf_model_path: a}\n",
      "normalize_advantages: yes\n  chat_template_kwargs: {a: {b: [1, on, 'on', 017, x, null]}, c: 1.5}\n",
      N "  max_prompt_length: 100\ngenerate_config:\n  sampling_config: {max_tokens: 100}\nactor_config:\n "
        " seq_length: 100\n"};
  for (size_t i = 0; i < TEST_COUNT(files); i++) {
    treadle_train_config *config = read_ok(files[i]), *again;
    char *text, *second;
    assert_ok(treadle_train_config_text(config, &text));
    assert_ok(parse(text, &again));
    assert_int_equal(again->warnings.count, 0);
    assert_ok(treadle_train_config_text(again, &second));
    for (int k = 0; k < TREADLE_TRAIN_KEYS; k++) {
      treadle_builder a = {0}, b = {0};
      treadle_train_key_write(&a, &treadle_train_keys[k], treadle_train_config_settings(config));
      treadle_train_key_write(&b, &treadle_train_keys[k], treadle_train_config_settings(again));
      if (strcmp(a.text, b.text) != 0)
        fail_msg("file %zu: %s: %s and %s", i, treadle_train_keys[k].key, a.text, b.text);
      treadle_builder_release(&a);
      treadle_builder_release(&b);
    }
    free(text);
    free(second);
    treadle_train_config_destroy(config);
    treadle_train_config_destroy(again);
  }
}

static treadle_status use(const char *text) {
  treadle_train_config *config;
  treadle_status status = parse(text, &config);
  treadle_train_config_destroy(config);
  return status;
}

static void each_allocation(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(use("megatron_training:\n  seq_length: 9\n" N
                           "  max_prompt_length: 9\n  kl_penalty: k1\n"
                           "generate_config:\n  sampling_config: {max_tokens: 9}\n"
                           "actor_rollout_ref.actor.strategy: fsdp\ndata.max_prompt_length: null\n"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(refusals),           cmocka_unit_test(limits),
      cmocka_unit_test(limits_by_name),     cmocka_unit_test(follows),
      cmocka_unit_test(mini_batches),       cmocka_unit_test(bounds),
      cmocka_unit_test(defaults),           cmocka_unit_test(warned),
      cmocka_unit_test(text_is_read_again), cmocka_unit_test(each_allocation)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
