/* src/core/grid/: every layout that can be made of the golden files' models agrees with itself
 * (layout/consistent.h): dense and with experts, tied, with MTP layers, views, biases, buffers and expert maps. */
/* ctest: label=search timeout=600 */
#include "test.h"

#include "golden_support/golden.h"
#include "layout/consistent.h"

static const struct {
  const char *text;
  int64_t ranks;
  int64_t f; /* rank map */
} texts[] = {
    {"hf", 2, 1},
    {"hf:root=1", 2, 1},
    {"megatron:tp=2", 4, 1},
    {"megatron:tp=2,pp=2", 8, 1},
    {"megatron:pp=2,vpp=2", 2, 1},
    {"megatron:tp=4,spec=local", 4, 1},
    {"megatron:tp=2,ep=2,etp=1,pp=2", 8, 1},
    {"megatron:ep=4", 4, 1},
    {"megatron:tp=2,ep=2,etp=2", 8, 1},
    {"megatron:tp=2,cp=2,ep=2,etp=2,experts=sequential", 4, 1},
    {"megatron:tp=2,ep=2,etp=2,experts=stacked", 4, 1},
    {"megatron:ep=2,etp=2,tp=4,order=tp-cp-ep-pp-dp", 4, 1},
    {"megatron:tp=2,mla_down_proj_fusion=on", 2, 1},
    {"vllm:tp=2", 4, 2},
    {"vllm:tp=4", 4, 1},
    {"vllm:tp=8", 8, 1},
    {"vllm:pp=2,partition=\"1,1\"", 2, 1},
    {"vllm:tp=2,pp=2", 8, 1},
    {"vllm:tp=2,dp=2,pp=2,ep=on", 8, 1},
    {"vllm:tp=2,dp=2", 4, 1},
    {"vllm:tp=2,ep=on", 4, 2},
    {"vllm:dp=3,ep=on", 6, 2},
    {"vllm:dp=16,ep=on", 16, 1},
    {"vllm:tp=2,pcp=2,ep=on,redundant=4", 4, 1},
    {"vllm:dp=2,ep=on,redundant=2", 4, 1},
    {"vllm:tp=4,ep=on,placement=round_robin", 4, 1},
    {"vllm:tp=2,names=old,ep=on,redundant=0", 2, 1},
    {"sglang:tp=2", 4, 2},
    {"sglang:tp=4,attn_dp=2", 4, 1},
    {"sglang:tp=4,attn_dp=2,dp_lm_head=on,moe_dense_tp=1", 4, 1},
    {"sglang:tp=4,attn_cp=2,attn_dp=2,pp=2", 8, 1},
    {"sglang:tp=2,ep=2", 4, 2},
    {"sglang:tp=4,ep=2", 8, 1},
    {"sglang:tp=4,ep=2,attn_cp=2,moe_dp=2", 4, 1},
    {"sglang:tp=2,ep=2,redundant=4", 2, 1},
    {"sglang:tp=4,ep=2,redundant=2,pp=2", 8, 1},
    {"sglang:tp=4,a2a=deepep", 4, 1},
    {"sglang:tp=2,ep=2,shared_fusion=on", 4, 1},
    {"sglang:tp=2,moe=triton", 2, 1},
    {"sglang:tp=2,moe=triton_kernels", 4, 1},
};

static int made[TEST_COUNT(texts)]; /* how many models had each */

static void check_model(const treadle_model *model) {
  for (size_t i = 0; i < TEST_COUNT(texts); i++) {
    treadle_layout *layout;
    treadle_status status = treadle_layout_create(model, texts[i].text, texts[i].ranks, NULL, &layout);
    if (status == TREADLE_REFUSED) continue;
    assert_ok(status);
    made[i]++;
    consistent_layout(layout);
    if (texts[i].f > 1) {
      layout->order = (treadle_rank_order){layout->tp, texts[i].f};
      consistent_layout(layout);
    }
    treadle_layout_destroy(layout);
  }
}

static void check_file(const char *name) {
  char path[300];
  snprintf(path, sizeof path, TREADLE_SOURCE_DIR "/tests/golden/%s.json.gz", name);
  json_t *root = golden_load(path), *models = json_object_get(root, "models");
  assert_non_null(root);
  for (size_t m = 0; m < json_array_size(models); m++) {
    treadle_model *model;
    json_t *config = json_object_get(json_array_get(models, m), "config");
    assert_ok(treadle_model_from_config("config", config, NULL, &model));
    check_model(model);
    treadle_model_close(model);
  }
  json_decref(root);
}

static void models_of_vllm(void **state) {
  (void)state;
  check_file("vllm_params");
}

static void more_models(void **state) {
  (void)state;
  check_file("sglang_params_more");
  check_file("sglang_params_mtp");
}

/* Families of which no real library's answers are recorded. */
#define SIZES                                                                                              \
  "\"vocab_size\": 70, \"hidden_size\": 16, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, "        \
  "\"num_key_value_heads\": 2, \"intermediate_size\": 24, \"moe_intermediate_size\": 8, "
#define LINEAR                                                                                             \
  "\"full_attention_interval\": 2, \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, "           \
  "\"linear_key_head_dim\": 4, \"linear_value_head_dim\": 4, \"linear_conv_kernel_dim\": 2, "              \
  "\"head_dim\": 4, "
static const char *const others[] = {
    "{\"model_type\": \"smollm3\", " SIZES "\"attention_bias\": true, \"mlp_bias\": true}",
    "{\"model_type\": \"DeepseekOCR\", \"language_config\": {" SIZES
    "\"n_routed_experts\": 8, \"n_shared_experts\": 2, \"first_k_dense_replace\": 1, \"moe_layer_freq\": "
    "1}}",
    "{\"model_type\": \"qwen3_5\", \"text_config\": {" SIZES LINEAR "\"mtp_num_hidden_layers\": 1}}",
    "{\"model_type\": \"qwen3_5_moe\", \"text_config\": {" SIZES LINEAR
    "\"shared_expert_intermediate_size\": 8, \"num_experts\": 8, \"mtp_num_hidden_layers\": 1}}",
    "{\"model_type\": \"gpt_oss\", " SIZES "\"num_local_experts\": 5}",
    "{\"model_type\": \"qwen3_vl_moe\", \"text_config\": {" SIZES
    "\"num_experts\": 8, \"attention_bias\": true}}",
};

static void other_families(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(others); i++) {
    treadle_model *model;
    json_t *config = json_loads(others[i], 0, NULL);
    assert_non_null(config);
    assert_ok(treadle_model_from_config("config", config, NULL, &model));
    check_model(model);
    treadle_model_close(model);
    json_decref(config);
  }
}

/* vLLM gives gpt-oss, too, to the first ranks one expert more than to the others (determine_expert_map); its loader
 * takes them one by one, by number. */
static void uneven_experts(void **state) {
  (void)state;
  enum { H = 16, I = 24, RANKS = 3 };
  static const int64_t first[RANKS] = {0, 2, 4}, count[RANKS] = {2, 2, 1};
  treadle_model *model;
  treadle_layout *layout;
  json_t *config = json_loads("{\"model_type\": \"gpt_oss\", " SIZES "\"num_local_experts\": 5}", 0, NULL);
  assert_non_null(config);
  assert_ok(treadle_model_from_config("config", config, NULL, &model));
  assert_ok(treadle_layout_create(model, "vllm:dp=3,ep=on", RANKS, NULL, &layout));
  for (int64_t rank = 0; rank < RANKS; rank++) {
    int found = 0;
    for (int32_t i = 0; i < treadle_layout_storage_count(layout, rank); i++) {
      treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
      treadle_run *runs;
      size_t run_count;
      assert_ok(treadle_layout_storage(layout, rank, i, &info));
      if (strcmp(info.name, "model.layers.1.mlp.experts.routed_experts.w2_weight") != 0) continue;
      assert_int_equal(info.shape[0], count[rank]);
      assert_int_equal(info.shape[1], H);
      assert_int_equal(info.shape[2], I);
      assert_ok(treadle_layout_runs(layout, rank, i, &runs, &run_count));
      for (size_t k = 0; k < run_count;
           k++) { /* canonical [E, I, H]: element (e, h, i) is one of the tensor's */
        int64_t at = runs[k].local_start, e = at / (H * I), h = at / I % H, column = at % I;
        assert_int_equal(runs[k].start, ((first[rank] + e) * I + column) * H + h);
      }
      free(runs);
      found++;
    }
    assert_int_equal(found, 1);
  }
  treadle_layout_destroy(layout);
  treadle_model_close(model);
  json_decref(config);
}

static void each_layout_was_made(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(texts); i++) {
    if (getenv("TREADLE_TEST_SHOW")) print_message("%3d %s\n", made[i], texts[i].text);
    if (made[i] == 0) fail_msg("%s: every model refuses it", texts[i].text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(models_of_vllm), cmocka_unit_test(more_models),
                                     cmocka_unit_test(other_families), cmocka_unit_test(uneven_experts),
                                     cmocka_unit_test(each_layout_was_made)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
