/* LoRA in the words of MindSpeed-RL, verl and treadle. */
#include "run/config.h"

#include "test.h"

static treadle_train_config *read_ok(const char *text) {
  treadle_train_config *config;
  static const char *const overrides[] = {"rl_config.n_samples_per_prompt=2"};
  assert_ok(
      treadle_train_config_parse("x.yaml", text, strlen(text), overrides, 1, TREADLE_RUN_RL, &config));
  return config;
}

static void check(const char *text, int64_t rank, double alpha, const char *modules) {
  treadle_train_config *config = read_ok(text);
  const treadle_train_settings *s = treadle_train_config_settings(config);
  treadle_trainer_options options = TREADLE_INIT(treadle_trainer_options);
  treadle_train_lora_options(s, &options);
  assert_int_equal(options.lora_rank, rank);
  if (rank) assert_true(options.lora_alpha == alpha);
  if (rank && modules) assert_string_equal(options.lora_modules, modules);
  if (!modules) assert_null(options.lora_modules);
  treadle_train_config_destroy(config);
}

static void own_words(void **state) {
  (void)state;
  check("actor_config:\n  model: m\n", 0, 0, NULL);
  check("actor_config:\n  model: m\n  lora_rank: 16\n", 16, 16, NULL);
  check(
      "actor_config:\n  model: m\n  lora_rank: 4\n  lora_alpha: 8.5\n  target_modules: [q_proj, v_proj]\n",
      4, 8.5, "q_proj,v_proj");
  check("actor_config:\n  model: m\n  target_modules: [q_proj]\n", 0, 0, NULL);
  check("actor_config:\n  model: m\n  lora_rank: 4\n  target_modules: [all-linear]\n", 4, 16, NULL);
  check("actor_config:\n  model: m\n  lora_rank: 4\n  target_modules: [all-linear, lm_head]\n", 4, 16,
        "all-linear,lm_head");
  treadle_train_config *config = read_ok("actor_config:\n  model: m\n  lora_alpha: 32\n  lora_save_merged: "
                                         "true\n  target_modules: [q_proj]\n");
  assert_int_equal(config->warnings.count, 3);
  assert_non_null(
      strstr(config->warnings.items[2], "target_modules (line 5) has no effect with lora_rank: 0"));
  assert_non_null(strstr(config->warnings.items[0], "lora_alpha (line 3) has no effect with lora_rank: 0"));
  treadle_train_config_destroy(config);
}

static void verls_words(void **state) {
  (void)state;
  check("actor_rollout_ref:\n  model:\n    path: m\n    lora_rank: 32\n    lora_alpha: 64\n    "
        "target_modules: all-linear\n",
        32, 64, NULL);
  check("actor_rollout_ref:\n  model:\n    path: m\n    lora: {rank: 0, alpha: 32}\n    lora_rank: 0\n", 0,
        0, NULL);
}

/* There lora_r counts where lora_target_modules is given, and is 8 unless it is. */
static void mindspeeds_words(void **state) {
  (void)state;
  static const char start[] =
      "actor_config:\n  model: m\n  lora_target_modules: [linear_qkv, linear_fc2]\n";
  char more[256];
  check(start, 8, 16, "q_proj,k_proj,v_proj,down_proj");
  snprintf(more, sizeof more,
           "megatron_training:\n  lora_r: 4\n  lora_target_modules: [linear_proj, "
           "linear_fc1]\nactor_config:\n  model: m\n");
  check(more, 4, 16, "o_proj,gate_proj,up_proj");
  check("actor_config:\n  model: m\n  lora_target_modules: [linear_fc2, output_layer]\n", 8, 16,
        "down_proj,lm_head");
  check("actor_config:\n  model: m\n  lora_target_modules: [linear_q_proj, linear_q_down_proj, "
        "linear_q_up_proj, linear_kv_down_proj, linear_kv_up_proj]\n",
        8, 16, "q_proj,q_a_proj,q_b_proj,kv_a_proj_with_mqa,kv_b_proj");
  treadle_train_config *config = read_ok("megatron_training:\n  lora_r: 4\nactor_config:\n  model: m\n");
  assert_int_equal(treadle_train_config_settings(config)->actor.lora_rank, 0);
  assert_int_equal(config->warnings.count, 1);
  assert_non_null(strstr(config->warnings.items[0],
                         "megatron_training.lora_r (line 2) has no effect without lora_target_modules"));
  treadle_train_config_destroy(config);
}

static void refused(void **state) {
  (void)state;
  static const char *const texts[][2] = {
      {"  lora_adapter_path: here\n", "lora_adapter_path (line 3) is given, and lora_rank is 0"},
      {"actor_rollout_ref: {model: {lora: {rank: 2}}}\n", "of that section rank alone is known"},
      {"  lora_rank: 4\n  lora_alpha: 0\n", "actor_config.lora_alpha (line 4) is 0: a number above 0"},
      {"  lora_rank: 2000\n", "lora_rank is '2000', and must be a whole number, 0 to 1024"},
      {"  lora_rank: 4\n  target_modules: ['a,b']\n", "has 'a,b', which is not a name of a matrix"},
      {"  lora_rank: 4\n  target_modules: []\n",
       "actor_config.target_modules (line 4) is an empty list; name matrices"},
      {"  lora_target_modules: []\n", "actor_config.lora_target_modules (line 3) is an empty list"},
      {"  lora_rank: 4\n  lora_alpha: 1.0e-46\n", "actor_config.lora_alpha (line 4) is 1e-46: divided by "
                                                  "lora_rank, 4, it is beyond the numbers of fp32"},
      {"  lora_rank: 4\n  ulysses_sequence_parallel_size: 2\n",
       "actor_config.lora_rank (line 3) is 4, with actor_config.ulysses_sequence_parallel_size (line 4): "
       "adapters need all tokens"},
      {"  lora_rank: 4\n  layout: 'megatron:cp=2'\n",
       "actor_config.lora_rank (line 3) is 4, with actor_config.layout (line 4): adapters need all tokens"},
      {"  lora_rank: 4\nmegatron_training: {moe_z_loss_coeff: 0.1}\n",
       "actor_config.lora_rank (line 3) is 4, with megatron_training.moe_z_loss_coeff (line 4): routers"}};
  for (size_t i = 0; i < TEST_COUNT(texts); i++) {
    treadle_train_config *config;
    char text[256];
    snprintf(text, sizeof text, "actor_config:\n  model: m\n%s", texts[i][0]);
    assert_refused(texts[i][1], treadle_train_config_parse("x.yaml", text, strlen(text), NULL, 0,
                                                           TREADLE_RUN_SFT, &config));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(own_words), cmocka_unit_test(verls_words),
                                     cmocka_unit_test(mindspeeds_words), cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
