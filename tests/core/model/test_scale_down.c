/* src/core/model/scale_down.c: small enough, the same structure, deterministic, and refused when it cannot be. ctest: stage=gcc */
#include "test.h"

#include "io/file.h"
#include "io/json.h"
#include "model/scale_down.h"

#define SHARED TREADLE_SOURCE_DIR "/../shared/data"

static const char DEEPSEEK[] =
    "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 12928, \"hidden_size\": 1024, "
    "\"num_hidden_layers\": 13,"
    " \"num_attention_heads\": 32, \"num_key_value_heads\": 32, \"q_lora_rank\": 512, \"kv_lora_rank\": "
    "256,"
    " \"qk_nope_head_dim\": 64, \"qk_rope_head_dim\": 32, \"v_head_dim\": 64, \"intermediate_size\": 2048,"
    " \"moe_intermediate_size\": 512, \"n_routed_experts\": 64, \"num_experts_per_tok\": 16, \"n_group\": "
    "8,"
    " \"n_shared_experts\": 1, \"first_k_dense_replace\": 3, \"num_nextn_predict_layers\": 1}";
static const char NEXT[] =
    "{\"model_type\": \"qwen3_next\", \"vocab_size\": 5000, \"hidden_size\": 512, \"num_hidden_layers\": "
    "12,"
    " \"num_attention_heads\": 16, \"num_key_value_heads\": 4, \"head_dim\": 64, "
    "\"moe_intermediate_size\": 256,"
    " \"shared_expert_intermediate_size\": 256, \"num_experts\": 32, \"linear_num_key_heads\": 8,"
    " \"linear_num_value_heads\": 16, \"mtp_num_hidden_layers\": 1,"
    " \"layer_types\": [\"a\", \"a\", \"a\", \"b\", \"a\", \"a\", \"a\", \"b\", \"a\", \"a\", \"a\", "
    "\"b\"]}";

static const char GEMMA[] =
    "{\"model_type\": \"gemma4_text\", \"vocab_size\": 5000, \"hidden_size\": 512, \"num_hidden_layers\": "
    "12,"
    " \"num_attention_heads\": 16, \"num_key_value_heads\": 8, \"num_global_key_value_heads\": 2, "
    "\"head_dim\": 64,"
    " \"global_head_dim\": 512, \"attention_k_eq_v\": true, \"intermediate_size\": 512,"
    " \"hidden_size_per_layer_input\": 0}";

static json_t *parse(const char *text) {
  json_t *config;
  assert_ok(treadle_json_parse("config", text, strlen(text), &config));
  return config;
}

static json_int_t field(const json_t *config, const char *name) {
  return json_integer_value(json_object_get(config, name));
}

/* Scales down; the caller ends what comes back. */
static json_t *scale(const char *text, int64_t elems) {
  json_t *config = parse(text), *before = json_deep_copy(config), *smaller;
  treadle_builder changes = {0};
  treadle_model *model;
  assert_ok(treadle_scale_down("config", config, NULL, elems, &smaller, &changes));
  assert_true(json_equal(config, before));
  assert_ok(treadle_model_from_config("smaller", smaller, NULL, &model));
  assert_true(treadle_model_elems(model) <= elems);
  treadle_model_close(model);
  treadle_builder_release(&changes);
  json_decref(before);
  json_decref(config);
  return smaller;
}

static void structure(void **state) {
  (void)state;
  json_t *small = scale(DEEPSEEK, 12000000), *again = scale(DEEPSEEK, 12000000);
  assert_true(json_equal(small, again));
  assert_int_equal(field(small, "num_hidden_layers"), 4);
  assert_int_equal(field(small, "first_k_dense_replace"), 1);
  assert_int_equal(field(small, "num_nextn_predict_layers"), 1);
  assert_int_equal(field(small, "n_routed_experts"), 8);
  assert_int_equal(field(small, "num_experts_per_tok"), 8);
  assert_int_equal(field(small, "num_key_value_heads"), field(small, "num_attention_heads"));
  assert_int_equal(field(small, "hidden_size") % 64, 0);
  json_decref(small);
  json_decref(again);

  small = scale(NEXT, 6000000); /* linear and full attention both stay, and the lists fit */
  assert_int_equal(field(small, "num_hidden_layers"), 4);
  assert_int_equal(json_array_size(json_object_get(small, "layer_types")), 4);
  assert_int_equal(field(small, "num_attention_heads"), 4 * field(small, "num_key_value_heads"));
  assert_int_equal(field(small, "linear_num_value_heads"), 2 * field(small, "linear_num_key_heads"));
  json_decref(small);

  small = scale(GEMMA, 2000000); /* heads of both sorts shrink */
  assert_int_equal(field(small, "num_hidden_layers"), 2);
  assert_true(field(small, "global_head_dim") <= 64);
  assert_int_equal(field(small, "num_global_key_value_heads"), 2);
  json_decref(small);

  small = scale(DEEPSEEK, (int64_t)1 << 40); /* small enough as it is */
  again = parse(DEEPSEEK);
  assert_true(json_equal(small, again));
  json_decref(small);
  json_decref(again);
}

static void refusals(void **state) {
  (void)state;
  json_t *config = parse(DEEPSEEK), *smaller = NULL;
  treadle_builder changes = {0};
  assert_refused("the smallest model of this structure has",
                 treadle_scale_down("config", config, NULL, 1000, &smaller, &changes));
  json_object_set_new(config, "model_type", json_string("deepsick_v3"));
  assert_refused("the nearest is 'deepseek_v3'",
                 treadle_scale_down("config", config, NULL, 1000000, &smaller, &changes));
  json_decref(config);
  treadle_builder_release(&changes);
}

/* Every config of a family that there is, to 20 and to 2 million. */
static void real_configs(void **state) {
  (void)state;
  static const char *const files[] = {
      "Qwen--Qwen2.5-72B",        "Qwen--Qwen3-0.6B",         "Qwen--Qwen3-235B-A22B-FP8",
      "Qwen--Qwen3.5-397B-A17B",  "deepseek-ai--DeepSeek-V3", "meta-llama--Meta-Llama-3.1-70B",
      "openai--gpt-oss-120b",     "zai-org--GLM-4.7-FP8",     "mistralai--Mixtral-8x7B-v0.1",
      "XiaomiMiMo--MiMo-V2-Flash"};
  if (!treadle_file_exists(SHARED "/configs")) {
    print_message("skipped: %s is not there\n", SHARED "/configs");
    skip();
  }
  for (size_t i = 0; i < TEST_COUNT(files); i++)
    for (int64_t elems = 20000000; elems >= 2000000; elems /= 10) {
      char path[400];
      json_t *config;
      snprintf(path, sizeof path, "%s/configs/%s.config.json", SHARED, files[i]);
      assert_ok(treadle_json_load(path, &config));
      char *text = json_dumps(config, 0);
      json_t *smaller = scale(text, elems);
      free(text);
      json_decref(smaller);
      json_decref(config);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(structure), cmocka_unit_test(refusals),
                                     cmocka_unit_test(real_configs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
