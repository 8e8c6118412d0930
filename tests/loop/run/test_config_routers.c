/* Keys of routers: what they come to, and to a model that has no use of them. */
#include "run/config.h"

#include "test.h"

static treadle_train_config *read_keys(const char *keys) {
  treadle_train_config *config;
  char text[256];
  snprintf(text, sizeof text, "actor_config: {model: m}\nmegatron_training:\n%s", keys);
  assert_ok(treadle_train_config_parse("x.yaml", text, strlen(text), NULL, 0, TREADLE_RUN_SFT, &config));
  return config;
}

static void without_coefficient(void **state) {
  size_t count;
  (void)state;
  treadle_train_config *config = read_keys("  moe_router_load_balancing_type: aux_loss\n");
  const char *const *warnings = treadle_train_config_warnings(config, &count);
  assert_int_equal(count, 1);
  assert_non_null(strstr(warnings[0], "moe_router_load_balancing_type (line 3) has no effect while "
                                      "moe_aux_loss_coeff is 0"));
  treadle_train_config_destroy(config);
}

static void models(void **state) {
  (void)state;
  static const treadle_config_routers dense = {"m", 0, false}, plain = {"m", 8, false},
                                      biased = {"m", 8, true};
  static const struct {
    const char *keys;
    const treadle_config_routers *of;
    const char *why; /* NULL: it is taken */
  } cases[] = {
      {"  moe_z_loss_coeff: 0.1\n", &dense, "moe_z_loss_coeff (line 3): the model of m has no experts"},
      {"  moe_router_load_balancing_type: aux_loss\n  moe_aux_loss_coeff: 0.1\n", &dense,
       "moe_aux_loss_coeff (line 4): the model of m has no experts"},
      {"  freeze_moe_router: true\n", &dense, "freeze_moe_router (line 3): the model of m has no experts"},
      {"  moe_router_enable_expert_bias: true\n", &plain,
       "moe_router_enable_expert_bias (line 3): the routers of m have no biases"},
      {"  moe_router_enable_expert_bias: true\n", &biased, NULL},
      {"  moe_z_loss_coeff: 0.1\n", &plain, NULL},
      {"  train_iters: 3\n", &dense, NULL},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    treadle_train_config *config = read_keys(cases[i].keys);
    const treadle_status status = treadle_train_config_check_routers(config, cases[i].of);
    if (cases[i].why)
      assert_refused(cases[i].why, status);
    else
      assert_ok(status);
    treadle_train_config_destroy(config);
  }
}

static void of_rows(void **state) {
  const char text[] = "actor_config: {model: m, context_parallel_size: 2}\nmegatron_training:\n  "
                      "moe_router_load_balancing_type: seq_aux_loss\n  moe_aux_loss_coeff: 0.1\n";
  treadle_train_config *config = read_keys(strstr(text, "  moe_router"));
  (void)state;
  assert_true(treadle_train_config_by_sequence(treadle_train_config_settings(config)));
  treadle_train_config_destroy(config);
  assert_refused(
      "moe_router_load_balancing_type (line 3) is seq_aux_loss, with "
      "actor_config.context_parallel_size (line 1)",
      treadle_train_config_parse("x.yaml", text, strlen(text), NULL, 0, TREADLE_RUN_SFT, &config));
}

/* Of reinforcement learning alone. */
static void replay_in_sft(void **state) {
  const char text[] = "actor_config: {model: m, router_replay: {mode: R3}}\n";
  treadle_train_config *config;
  size_t count;
  (void)state;
  assert_ok(treadle_train_config_parse("x.yaml", text, strlen(text), NULL, 0, TREADLE_RUN_SFT, &config));
  const char *const *warnings = treadle_train_config_warnings(config, &count);
  assert_int_equal(count, 1);
  assert_non_null(strstr(warnings[0], "without effect here: actor_config.router_replay (line 1)"));
  treadle_train_config_destroy(config);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(without_coefficient), cmocka_unit_test(models),
                                     cmocka_unit_test(of_rows), cmocka_unit_test(replay_in_sft)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
