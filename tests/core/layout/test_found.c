/* What random layouts found, each in its smallest form: layouts that differed from the oracle's, and layouts that an
 * engine does not have and that were accepted. */
#include "layout/agree.h"
#include "layout/layout.h"

#include "test.h"

#define ATTENTION "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 2, "
#define SIZES                                                                                              \
  "\"vocab_size\": 20, \"hidden_size\": 8, \"num_hidden_layers\": 2, \"intermediate_size\": 8, "           \
  "\"torch_dtype\": \"bfloat16\""

#define MLA                                                                                                \
  "{\"model_type\": \"deepseek_v3\", \"num_attention_heads\": 2, \"q_lora_rank\": 4, \"kv_lora_rank\": "   \
  "4, "                                                                                                    \
  "\"qk_rope_head_dim\": 2, \"qk_nope_head_dim\": 2, \"v_head_dim\": 2, \"n_routed_experts\": 4, "         \
  "\"n_shared_experts\": 1, \"first_k_dense_replace\": 1, \"n_group\": 1, \"moe_intermediate_size\": 4, "  \
  "\"num_nextn_predict_layers\": "

#define DEEPSEEK(layers) MLA #layers ", " SIZES "}"
#define GEMMA            "{\"model_type\": \"gemma3_text\", " ATTENTION SIZES "}"
#define MIXTRAL          "{\"model_type\": \"mixtral\", \"num_local_experts\": 4, " ATTENTION SIZES "}"
#define MIXTRAL_OF(head)                                                                                   \
  "{\"model_type\": \"mixtral\", \"num_local_experts\": 4, \"num_attention_heads\": 4, "                   \
  "\"num_key_value_heads\": 2, " head ", " SIZES "}"
#define LLAMA_WITH(field) "{\"model_type\": \"llama\", " field ", " ATTENTION SIZES "}"
#define QWEN3_5                                                                                            \
  "{\"model_type\": \"qwen3_5_text\", \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 2, "        \
  "\"linear_key_head_dim\": 2, \"linear_value_head_dim\": 2, \"linear_conv_kernel_dim\": 2, "              \
  "\"full_attention_interval\": 2, " ATTENTION SIZES "}"
static treadle_model *model_of(const char *config, json_t **json_p) {
  treadle_model *model;
  *json_p = json_loads(config, 0, NULL);
  assert_non_null(*json_p);
  assert_ok(treadle_model_from_config("config", *json_p, NULL, &model));
  return model;
}

static void agrees(const char *config, const char *text, int64_t ranks) {
  char why[AGREE_WHY] = "";
  json_t *json;
  treadle_model *model = model_of(config, &json);
  oracle_model *oracle = oracle_model_new(json, why);
  treadle_layout *layout;
  assert_ok(treadle_layout_create(model, text, ranks, NULL, &layout));
  oracle_layout *truth = oracle_layout_new(oracle, text, ranks, 1, why);
  if (truth) agree_trim(layout, truth);
  if (!truth || !agree_layouts(model, layout, truth, why)) fail_msg("%s: %s", text, why);
  oracle_layout_free(truth);
  treadle_layout_destroy(layout);
  oracle_model_free(oracle);
  treadle_model_close(model);
  json_decref(json);
}

static void refuses(const char *config, const char *text, int64_t ranks, const char *part) {
  json_t *json;
  treadle_model *model = model_of(config, &json);
  treadle_layout *layout;
  assert_refused(part, treadle_layout_create(model, text, ranks, NULL, &layout));
  treadle_model_close(model);
  json_decref(json);
}

/* SGLang's Gemma 3 cuts attention by the full tp under attention dp. */
static void gemma_attention_dp(void **state) {
  (void)state;
  agrees(GEMMA, "sglang:tp=4,attn_dp=2", 4);
}

/* Gemma 3 in SGLang does not know of stages, however many: each has every layer. */
static void gemma_stages(void **state) {
  (void)state;
  agrees(GEMMA, "sglang:pp=3", 3);
}

/* Its embedding is whole under attention dp, and padded all the same. */
static void qwen3_5_embedding_is_padded(void **state) {
  (void)state;
  agrees(QWEN3_5, "sglang:tp=2,attn_dp=2", 2);
}

/* The last stage has no decoder layer: the final norm is where the last one is. */
static void norm_of_models_with_mtp(void **state) {
  (void)state;
  agrees(DEEPSEEK(1), "megatron:pp=2,layout=Ett|mL", 2);
}

/* The local spec does not look at the option. */
static void fused_mla_is_of_te(void **state) {
  (void)state;
  agrees(DEEPSEEK(0), "megatron:spec=local,mla_down_proj_fusion=on", 1);
  agrees(DEEPSEEK(0), "megatron:mla_down_proj_fusion=on", 1);
}

/* SGLang has one draft layer; two would have the same names. */
static void one_draft_layer(void **state) {
  (void)state;
  refuses(DEEPSEEK(2), "sglang", 1, "one layer");
  agrees(DEEPSEEK(1), "sglang", 1);
}

/* A family whose experts the engine places in order takes no map. */
static void map_that_is_ignored(void **state) {
  (void)state;
  refuses(MIXTRAL, "sglang:map=@nowhere.json", 1, "in order, whatever the map says");
}

/* A family without a fused form keeps its shared expert: the option would do nothing. */
static void fusion_of_families_without(void **state) {
  (void)state;
  refuses(MIXTRAL, "sglang:shared_fusion=on", 1, "does not fuse");
}

/* SGLang's moe_dp cuts the experts of each group where ep is 1, and knows no pipeline. */
static void moe_dp_of_experts_that_are_cut(void **state) {
  (void)state;
  agrees(MIXTRAL, "sglang:tp=4,attn_cp=2,moe_dp=2", 4);
  refuses(MIXTRAL, "sglang:tp=2,attn_cp=2,moe_dp=2,pp=2", 4, "pp = 1");
}

/* Its groups are those of the context only where they are fewer ranks. */
static void moe_dp_beside_attention_dp(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t index[4];
  } cases[] = {{"sglang:tp=4,attn_dp=2,attn_cp=2", {0, 1, 0, 1}},
               {"sglang:tp=4,attn_dp=2,attn_cp=2,moe_dp=2,ep=2", {0, 0, 1, 1}}};
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    json_t *json;
    treadle_model *model = model_of(MIXTRAL, &json);
    treadle_layout *layout;
    int64_t index;
    assert_ok(treadle_layout_create(model, cases[i].text, 4, NULL, &layout));
    for (int64_t rank = 0; rank < 4; rank++) {
      assert_ok(treadle_layout_coordinate(layout, rank, "moe_dp", &index));
      assert_int_equal(index, cases[i].index[rank]);
    }
    treadle_layout_destroy(layout);
    treadle_model_close(model);
    json_decref(json);
  }
}

/* Without attention dp SGLang takes the option back. */
static void head_of_attention_without_dp(void **state) {
  (void)state;
  agrees(DEEPSEEK(0), "sglang:tp=2,attn_cp=2,dp_lm_head=on", 2);
  agrees(DEEPSEEK(0), "sglang:tp=4,attn_dp=2,attn_cp=2,dp_lm_head=on", 4);
}

/* SGLang's Mixtral does not read head_dim and refuses the files of such a model by their shapes; here it has a layout. */
static void head_size_of_its_own(void **state) {
  (void)state;
  agrees(MIXTRAL_OF("\"head_dim\": 4"), "sglang", 1);
  agrees(MIXTRAL_OF("\"head_dim\": 4"), "vllm", 1);
}

/* SGLang's Llama has no bias in its MLP, and drops those of the file. */
static void biases_that_are_dropped(void **state) {
  (void)state;
  refuses(LLAMA_WITH("\"mlp_bias\": true"), "sglang", 1, "no biases");
  agrees(LLAMA_WITH("\"mlp_bias\": true"), "vllm", 1);
  agrees(LLAMA_WITH("\"attention_bias\": true"), "sglang:tp=2", 2);
}

/* SGLang's MoE blocks take no more ranks than experts. */
static void ranks_above_the_experts(void **state) {
  (void)state;
  refuses(DEEPSEEK(0), "sglang:tp=8,attn_dp=4,a2a=deepep,redundant=4", 8, "above the number of experts");
  agrees(DEEPSEEK(0), "sglang:tp=4,attn_dp=2,a2a=deepep,redundant=4", 4);
}

/* FusedMoE transposes the experts of every family for triton_kernels, but it knows no fp8 there. */
static void experts_that_are_transposed(void **state) {
  (void)state;
  agrees(MIXTRAL, "sglang:tp=2,moe=triton_kernels", 2);
  agrees(MIXTRAL, "sglang:tp=2,ep=2,moe=triton_kernels", 2);
  agrees(DEEPSEEK(1), "sglang:tp=2,shared_fusion=on,moe=triton_kernels", 2);
  refuses(
      MIXTRAL_OF("\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}"),
      "sglang:moe=triton_kernels", 1, "no fp8 blocks");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gemma_attention_dp),
                                     cmocka_unit_test(gemma_stages),
                                     cmocka_unit_test(qwen3_5_embedding_is_padded),
                                     cmocka_unit_test(norm_of_models_with_mtp),
                                     cmocka_unit_test(fused_mla_is_of_te),
                                     cmocka_unit_test(one_draft_layer),
                                     cmocka_unit_test(map_that_is_ignored),
                                     cmocka_unit_test(fusion_of_families_without),
                                     cmocka_unit_test(moe_dp_of_experts_that_are_cut),
                                     cmocka_unit_test(moe_dp_beside_attention_dp),
                                     cmocka_unit_test(head_of_attention_without_dp),
                                     cmocka_unit_test(head_size_of_its_own),
                                     cmocka_unit_test(biases_that_are_dropped),
                                     cmocka_unit_test(ranks_above_the_experts),
                                     cmocka_unit_test(experts_that_are_transposed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
