/* Files as other trainers have them, read as they stand: MindSpeed-RL's, verl's (flattened), RLinf's, of tests/data/config; and the blocks of the
 * documents, where these are. What is checked: the values that keys have in the end. */
#include "test.h"

#include "run/config.h"
#include "treadle_loop.h"

#include <math.h>

static treadle_train_config *read_file(const char *name, const char *const *overrides, size_t count) {
  char path[512];
  treadle_train_config *config;
  snprintf(path, sizeof path, TREADLE_SOURCE_DIR "/tests/data/config/%s", name);
  assert_ok(treadle_rl_config_read(path, overrides, count, &config));
  return config;
}

static bool is_warned(const treadle_train_config *config, const char *words) {
  for (size_t i = 0; i < config->warnings.count; i++)
    if (strstr(config->warnings.items[i], words)) return true;
  return false;
}

static bool near(double a, double b) { return fabs(a - b) < 1e-12; }

/* ---- MindSpeed-RL ---- */

static void mindspeed(void **state) {
  (void)state;
  treadle_train_config *config = read_file("mindspeed-grpo.yaml", NULL, 0);
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_string_equal(s->actor.model, "tiny");
  assert_string_equal(s->training.tokenizer_name_or_path, "./tiny-model");
  assert_int_equal(s->training.global_batch_size, 16);
  assert_int_equal(s->rl.batches.n_samples_per_prompt, 4);
  assert_int_equal(s->rl.batches.mini_batch_samples, 32);
  assert_int_equal(s->actor.micro_batch_size, 2);
  assert_int_equal(s->actor.tensor_model_parallel_size, 2);
  assert_int_equal(s->actor.pipeline_model_parallel_size, 2);
  assert_int_equal(s->generate.infer_tensor_parallel_size, 1);
  assert_true(s->generate.offload_train_grad && s->generate.offload_train_optimizer &&
              !s->generate.offload_train_param);
  assert_true(s->training.sequence_parallel && s->training.use_distributed_optimizer &&
              s->rl.filter_groups.enable);
  assert_true(near(s->actor.lr, 3e-6) && near(s->actor.adam_beta2, 0.95) &&
              near(s->sampling.temperature, 0.8));
  assert_true(near(s->rl.loss.clip_ratio_low, 0.15) && near(s->rl.loss.clip_ratio_high, 0.25));
  assert_int_equal(s->actor.lr_decay_style, TREADLE_DECAY_CONSTANT);
  /* the loss has a KL, as there; prompts and responses say how long sequences are */
  assert_true(s->rl.kl.in_loss && near(s->rl.kl.init_coef, 0.002));
  assert_int_equal(s->training.seq_length, 1024);
  assert_true(
      is_warned(config, "seq_length (line 22) is 512, and gives way to rl_config.max_prompt_length"));
  assert_true(is_warned(config, "defaults (line 2)"));
  assert_string_equal(s->rl.filter_groups.metric, "math");
  assert_string_equal(s->actor.load, "./ckpt");
  assert_false(s->training.no_shuffle);
  assert_int_equal(s->rl.verifier.function.count, 1);
  treadle_train_config_destroy(config);
}

static void mindspeeds_switches(void **state) {
  (void)state;
  static const char *const overrides[] = {"rl_config.clip_higher_enable=false",
                                          "rl_config.use_kl_loss=false", "rl_config.use_dynamic_bsz=true",
                                          "rl_config.max_packing_token_size=2048"};
  treadle_train_config *config = read_file("mindspeed-grpo.yaml", overrides, TEST_COUNT(overrides));
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_true(near(s->rl.loss.clip_ratio_low, 0.2) && near(s->rl.loss.clip_ratio_high, 0.2));
  assert_false(s->rl.kl.in_loss);
  assert_int_equal(s->actor.max_tokens_per_micro, 2048);
  assert_int_equal(s->actor.micro_batch_size, 0);
  treadle_train_config_destroy(config);
}

/* ---- verl ---- */

static void verl(void **state) {
  (void)state;
  treadle_train_config *config = read_file("verl-flattened.yaml", NULL, 0);
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_string_equal(s->actor.model, "~/models/tiny");
  assert_string_equal(s->actor.save, "checkpoints/project/experiment");
  assert_string_equal(s->rl.data.prompt_key, "question");
  assert_int_equal(s->actor.strategy, TREADLE_STRATEGY_FSDP2);
  assert_true(is_warned(config, "actor_rollout_ref.actor.strategy is fsdp: taken as fsdp2"));
  assert_int_equal(s->training.global_batch_size, 16);
  assert_int_equal(s->rl.batches.mini_batch_samples, 8 * 4);
  assert_int_equal(s->actor.micro_batch_size, 2);
  assert_int_equal(s->actor.max_tokens_per_micro, 0);
  assert_int_equal(s->rl.lengths.max_prompt_length, 96);
  assert_int_equal(s->sampling.max_tokens, 64);
  assert_int_equal(s->generate.max_num_seqs, 48);              /* the `x` of oc.select */
  assert_int_equal(s->generate.infer_tensor_parallel_size, 1); /* a reference */
  assert_int_equal(s->rl.validation.n, 2);
  assert_true(near(s->actor.lr, 2e-6) && near(s->actor.lr_warmup_fraction, 0.1) &&
              near(s->actor.clip_grad, 0.5));
  assert_int_equal(s->actor.lr_decay_style, TREADLE_DECAY_CONSTANT);
  assert_true(s->generate.offload_train_param && !s->generate.offload_train_optimizer &&
              !s->rl.advantage.norm_by_std);
  /* of the two KLs, that of the loss */
  assert_true(s->rl.kl.in_loss && !s->rl.kl.in_reward && near(s->rl.kl.init_coef, 0.004));
  assert_string_equal(treadle_train_keys[TREADLE_KEY_OF(rl.kl.penalty)].words[s->rl.kl.penalty],
                      "low_var_kl");
  assert_true(is_warned(config, "actor_rollout_ref.actor.optim._target_ (line 5)"));
  /* the optimizer's other norm, and keys whose names or values are others here */
  assert_true(is_warned(
      config, "actor_rollout_ref.actor.optim.clip_grad gives way to actor_rollout_ref.actor.grad_clip"));
  assert_true(near(s->actor.adam_beta1, 0.9) && near(s->actor.adam_beta2, 0.98));
  assert_true(s->rl.validation.greedy && !s->training.no_shuffle &&
              s->rl.resume_mode == TREADLE_RESUME_MODE_AUTO);
  assert_int_equal(s->rl.data.too_long, TREADLE_TOO_LONG_LEAVE_OUT);
  assert_int_equal(s->training.seed, 11);
  assert_true(near(s->rl.logprobs.rollout_is_threshold, 2.5));
  treadle_train_config_destroy(config);
}

static void verls_other_kl(void **state) {
  (void)state;
  static const char *const overrides[] = {
      "algorithm.use_kl_in_reward=True", "actor_rollout_ref.actor.use_kl_loss=False",
      "actor_rollout_ref.actor.use_dynamic_bsz=True", "data.max_prompt_length=100"};
  treadle_train_config *config = read_file("verl-flattened.yaml", overrides, TEST_COUNT(overrides));
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_true(s->rl.kl.in_reward && near(s->rl.kl.init_coef, 0.001));
  assert_string_equal(treadle_train_keys[TREADLE_KEY_OF(rl.kl.penalty)].words[s->rl.kl.penalty], "kl");
  assert_int_equal(s->actor.max_tokens_per_micro, 1024);
  assert_int_equal(s->rl.lengths.max_prompt_length, 100);
  treadle_train_config_destroy(config);
}

static treadle_status parse(const char *text) {
  treadle_train_config *config = NULL;
  treadle_status status =
      treadle_train_config_parse("x.yaml", text, strlen(text), NULL, 0, TREADLE_RUN_RL, &config);
  treadle_train_config_destroy(config);
  return status;
}

/* Two names of one key are one value, or refused. */
static void two_names(void **state) {
  (void)state;
  assert_ok(parse("rl_config:\n  n_samples_per_prompt: 2\ndata:\n  max_prompt_length: "
                  "9\nactor_rollout_ref:\n  rollout:\n"
                  "    prompt_length: 9\n"));
  assert_refused(
      "x.yaml:5: actor_rollout_ref.rollout.prompt_length: data.max_prompt_length on line 2 says the same",
      parse("data:\n  max_prompt_length: 9\nactor_rollout_ref:\n  rollout:\n    prompt_length: 8\n"));
  assert_refused("must be one of megatron|fsdp2; did you mean fsdp2?",
                 parse("actor_config:\n  strategy: fsdp\n"));
}

/* In sections of which others' keys are ignored, too. */
static void misspelt(void **state) {
  (void)state;
  assert_refused("x.yaml:3: actor_rollout_ref.actor.clip_ratio_hihg: there is no such key; did you mean "
                 "'clip_ratio_high'?",
                 parse("actor_rollout_ref:\n  actor:\n    clip_ratio_hihg: 1\n"));
  assert_refused("data.max_promt_length: there is no such key; did you mean 'max_prompt_length'?",
                 parse("data:\n  max_promt_length: 1\n"));
  assert_refused("x.yaml:3: actor.megatron.use_hf_chpt: there is no such key; did you mean 'use_hf_ckpt'?",
                 parse("actor:\n  megatron:\n    use_hf_chpt: 1\n"));
  assert_refused("did you mean 'save_path'?", parse("megatron:\n  ckpt_convertor:\n    safe_path: x\n"));
  assert_refused("rl_config.clip_ration: there is no such key; did you mean 'clip_ratio'?",
                 parse("rl_config:\n  clip_ration: 1\n"));
}

/* ---- RLinf ---- */

static void rlinf(void **state) {
  (void)state;
  static const char *const overrides[] = {"rl_config.n_samples_per_prompt=4"};
  treadle_train_config *config = read_file("rlinf-megatron.yaml", overrides, 1);
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_string_equal(s->actor.model, "./models/tiny");
  assert_string_equal(s->megatron.ckpt_convertor.hf_model_path, "./models/tiny");
  assert_string_equal(s->megatron.ckpt_convertor.save_path, "./logs/tiny-4x8/converted_ckpts/actor");
  assert_null(s->megatron.checkpoint_load_path);
  assert_true(s->megatron.use_hf_ckpt && s->training.sequence_parallel);
  assert_int_equal(s->actor.tensor_model_parallel_size, 2);
  assert_int_equal(s->megatron.ckpt_convertor.tensor_model_parallel_size, 2);
  assert_int_equal(s->megatron.ckpt_convertor.pipeline_model_parallel_size, 1);
  assert_int_equal(s->training.recompute_granularity, TREADLE_RECOMPUTE_FULL);
  assert_true(is_warned(config, "actor.megatron.ckpt_convertor.process_num (line 49)"));
  treadle_train_config_destroy(config);
}

/* ---- Documents ---- */

/* Blocks that begin with a line `begin` of a document, without the spaces that all of it begins with. Returns how many. */
static int read_blocks(const char *name, const char *begin, int spaces,
                       void (*check)(int number, const char *block)) {
  char path[256], line[4096], block[16384] = "";
  int count = 0, inside = 0;
  snprintf(path, sizeof path, TREADLE_SOURCE_DIR "/../shared/documents/%s", name);
  FILE *file = fopen(path, "r");
  if (!file) {
    printf("%s: is not there: skipped\n", path);
    return 0;
  }
  while (fgets(line, sizeof line, file)) {
    const bool blank = strspn(line, " \n") == strlen(line);
    const bool ends = spaces ? !blank && strspn(line, " ") < (size_t)spaces : strncmp(line, "```", 3) == 0;
    if (inside && ends) {
      check(count++, block);
      inside = 0;
    } else if (inside) {
      assert_true(strlen(block) + strlen(line) < sizeof block);
      strcat(block, blank ? "\n" : line + spaces);
    } else if (strncmp(line, begin, strlen(begin)) == 0) {
      inside = 1;
      *block = 0;
    }
  }
  if (inside) check(count++, block);
  fclose(file);
  assert_in_range(count, 1, 100);
  return count;
}

static treadle_train_config *read_block(const char *block, const char *const *overrides, size_t count) {
  treadle_train_config *config;
  assert_ok(treadle_train_config_parse("block.yaml", block, strlen(block), overrides, count, TREADLE_RUN_RL,
                                       &config));
  return config;
}

static void check_mindspeed(int number, const char *block) {
  static const char *const overrides[] = {"rl_config.n_samples_per_prompt=4"};
  (void)number;
  treadle_train_config *config = read_block(block, overrides, 1);
  const treadle_train_settings *s = treadle_train_config_settings(config);
  const bool s0 = s->actor.pipeline_model_parallel_size == 2;
  assert_int_equal(s->actor.tensor_model_parallel_size, 4);
  assert_int_equal(s->generate.infer_tensor_parallel_size, s0 ? 2 : 4);
  assert_int_equal(s->generate.infer_pipeline_parallel_size, 1);
  assert_true(s->generate.offload_train_param && s->generate.offload_train_grad &&
              s->generate.offload_train_optimizer);
  assert_true(treadle_train_config_is_given(config, TREADLE_KEY_OF(generate.offload_train_grad)));
  assert_int_equal(config->warnings.count, 0);
  treadle_train_config_destroy(config);
}

/* The first converts, the second has it converted, the third is the sizes and the converter of a whole file. */
static void check_rlinf(int number, const char *block) {
  static const char *const overrides[] = {"rl_config.n_samples_per_prompt=4", "runner.output_dir=out",
                                          "runner.experiment_name=a", "rollout.model_dir=hf"};
  treadle_train_config *config = read_block(block, overrides, TEST_COUNT(overrides));
  const treadle_train_settings *s = treadle_train_config_settings(config);
  assert_string_equal(s->megatron.ckpt_convertor.save_path, "out/a/converted_ckpts/actor");
  assert_string_equal(s->actor.model, "hf");
  assert_true(s->megatron.use_hf_ckpt == (number != 1));
  assert_true((s->megatron.checkpoint_load_path != NULL) == (number == 1));
  if (number == 1) assert_string_equal(s->megatron.checkpoint_load_path, "out/a/converted_ckpts/actor");
  assert_int_equal(s->actor.tensor_model_parallel_size, number == 2 ? 2 : 1);
  assert_int_equal(s->megatron.ckpt_convertor.tensor_model_parallel_size, number == 2 ? 2 : 1);
  assert_true(s->training.sequence_parallel == (number == 2));
  treadle_train_config_destroy(config);
}

static void documents(void **state) {
  (void)state;
  read_blocks("S0_mindspeed_rl_resharding.md", "```yaml", 0, check_mindspeed);
  read_blocks("S1_mindspeed_rl_hybrid_actor.md", "```yaml", 0, check_mindspeed);
  int count = read_blocks("S3_rlinf_new_model_megatron_sglang.rst", ".. code-block:: yaml", 3, check_rlinf);
  assert_true(count == 0 || count == 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(mindspeed), cmocka_unit_test(mindspeeds_switches),
                                     cmocka_unit_test(verl),      cmocka_unit_test(verls_other_kl),
                                     cmocka_unit_test(two_names), cmocka_unit_test(misspelt),
                                     cmocka_unit_test(rlinf),     cmocka_unit_test(documents)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
