/* Plans from and to flat layouts: played bit for bit in both directions, every byte moved once, peaks within their
 * bound. */
/* ctest: stage=gcc timeout=900 */
#include "flat/flat_truth.h"
#include "plan/any_family.h"

#include "test.h"

#include <inttypes.h>

typedef struct pair_row {
  int64_t ranks;
  const char *from, *to;
} pair_row;

static void play_all(const char *config, const pair_row *rows, size_t count) {
  for (size_t i = 0; i < count; i++) {
    any_family_play(config, rows[i].ranks, rows[i].from, rows[i].to);
    any_family_play(config, rows[i].ranks, rows[i].to, rows[i].from);
  }
}

static void dense(void **state) {
  (void)state;
  static const char config[] =
      "{\"model_type\": \"llama\", \"vocab_size\": 130, \"hidden_size\": 16, \"intermediate_size\": 24, "
      "\"num_hidden_layers\": 4, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 3, "
      "\"tie_word_embeddings\": false, \"torch_dtype\": \"float32\"}";
  static const pair_row rows[] = {
      {4, "fsdp", "vllm:tp=4"},
      {6, "fsdp:wrap=none,orig_params=on", "vllm:tp=2"},
      {8, "fsdp:dp=4,tp=2,orig_params=on", "vllm:tp=4"},
      {8, "fsdp:dp=2,tp=2,replicate=2", "megatron:tp=2,pp=2,vocab_divisible_by=1"},
      {5, "fsdp", "hf"},
      {5, "fsdp2", "vllm"},
      {8, "fsdp2:tp=2,replicate=2", "sglang:tp=4,pp=2"},
      {4, "fsdp2", "fsdp"},
      {4, "zero1", "vllm:tp=2"},
      {6, "zero2:tp=2", "vllm:tp=2,pp=3"},
      {4, "zero3", "vllm:tp=4"},
      {6, "zero3:tp=2", "fsdp2:dp=3,tp=2"},
      {4, "distopt:tp=2,vocab_divisible_by=1", "vllm:tp=4"},
      {8, "distopt:tp=2,pp=2,bucket_size=500,vocab_divisible_by=1", "vllm:tp=2,pp=2"},
      {8, "distopt:cp=2,pp=2,vpp=2", "hf"},
      {4, "distopt:tp=2,vocab_divisible_by=1", "megatron:tp=2,vocab_divisible_by=1"},
      {6, "distopt:order=tp-cp-ep-pp-dp,pp=2", "zero3"},
      {4, "zero1:dtype=fp32", "zero3:dtype=fp32"}};
  play_all(config, rows, TEST_COUNT(rows));
}

/* fp32 main weights and bf16 parameters: one way narrows. */
static void casts(void **state) {
  (void)state;
  static const pair_row rows[] = {{4, "zero1", "vllm:tp=2"},
                                  {4, "distopt:vocab_divisible_by=1", "vllm:tp=2"},
                                  {4, "fsdp:dtype=fp32", "vllm"},
                                  {4, "distopt:dtype=bf16", "fsdp2"}};
  play_all(flat_configs[0], rows, TEST_COUNT(rows));
}

static void tied(void **state) {
  (void)state;
  static const pair_row rows[] = {{4, "fsdp", "vllm:tp=2"},
                                  {4, "distopt:pp=2", "vllm"},
                                  {4, "distopt:pp=2,tp=2,bucket_size=100,vocab_divisible_by=1", "zero3"},
                                  {4, "megatron:pp=2", "fsdp"},
                                  {4, "distopt:pp=2", "sglang:pp=2"}};
  play_all(flat_configs[1], rows, TEST_COUNT(rows));
}

static void experts(void **state) {
  (void)state;
  static const pair_row rows[] = {
      {4, "fsdp", "vllm:tp=2,ep=on"},
      {4, "fsdp:tp=2,wrap=none", "vllm:tp=2"},
      {4, "fsdp2", "megatron:ep=2"},
      {6, "fsdp2:tp=2", "hf"},
      {4, "zero1:dtype=bf16", "vllm:tp=2,dp=2,ep=on"},
      {4, "zero3", "distopt:ep=2,dtype=bf16"},
      {4, "distopt:ep=2", "vllm:tp=2,ep=on"},
      {4, "distopt:tp=2,ep=2,etp=1,experts=stacked,vocab_divisible_by=1", "vllm:tp=2"},
      {8, "distopt:ep=2,cp=2,bucket_size=90,experts=sequential", "hf"}};
  for (int c = 3; c < FLAT_CONFIGS; c++) {
    char config[1024], *dtype; /* one type for all, so that bytes are elements times one size */
    strcpy(config, flat_configs[c]);
    if ((dtype = strstr(config, "bfloat16")) != NULL) memcpy(dtype, "float32\"", 8), dtype[8] = ' ';
    play_all(config, rows, TEST_COUNT(rows));
  }
}

/* What other families have: packed and transposed experts, linear attention, biases, shared experts. */
static void families(void **state) {
  (void)state;
  static const char *const configs[] = {
      "{\"model_type\": \"gpt_oss\", \"vocab_size\": 22, \"hidden_size\": 8, \"num_hidden_layers\": 2, "
      "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": 6, \"head_dim\": 2, "
      "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"attention_bias\": true, "
      "\"tie_word_embeddings\": "
      "false, \"torch_dtype\": \"float32\"}",
      "{\"model_type\": \"glm4_moe\", \"vocab_size\": 22, \"hidden_size\": 8, \"num_hidden_layers\": 3, "
      "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": 12, \"head_dim\": 2, "
      "\"first_k_dense_replace\": 1, \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, "
      "\"n_shared_experts\": 1, "
      "\"moe_intermediate_size\": 6, \"n_group\": 1, \"attention_bias\": true, \"use_qk_norm\": true, "
      "\"num_nextn_predict_layers\": 1, \"tie_word_embeddings\": false, \"torch_dtype\": \"float32\"}",
      "{\"model_type\": \"qwen3_next\", \"vocab_size\": 22, \"hidden_size\": 6, \"intermediate_size\": 10, "
      "\"num_hidden_layers\": 4, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"head_dim\": 3, "
      "\"moe_intermediate_size\": 4, \"shared_expert_intermediate_size\": 4, \"num_experts\": 4, "
      "\"num_experts_per_tok\": 1, \"full_attention_interval\": 2, \"linear_conv_kernel_dim\": 3, "
      "\"linear_key_head_dim\": 3, \"linear_value_head_dim\": 2, \"linear_num_key_heads\": 2, "
      "\"linear_num_value_heads\": 4, \"tie_word_embeddings\": false, \"torch_dtype\": \"float32\"}",
      "{\"model_type\": \"gemma3_text\", \"vocab_size\": 22, \"hidden_size\": 8, \"num_hidden_layers\": 2, "
      "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": 12, \"head_dim\": 4, "
      "\"tie_word_embeddings\": true, \"torch_dtype\": \"float32\"}"};
  static const pair_row rows[] = {{4, "fsdp", "vllm:tp=2"},
                                  {3, "fsdp2", "vllm"},
                                  {4, "zero1", "vllm:pp=2"},
                                  {4, "zero3", "fsdp:wrap=none,orig_params=on"}};
  for (size_t c = 0; c < TEST_COUNT(configs); c++) play_all(configs[c], rows, TEST_COUNT(rows));
}

/* Any set to any other, drawn from a seed. */
static void draws(void **state) {
  (void)state;
  static const char *const texts[] = {"fsdp:dtype=fp32",
                                      "fsdp:tp=2,orig_params=on,dtype=fp32",
                                      "fsdp:wrap=none,dtype=fp32",
                                      "fsdp:replicate=2,dtype=fp32",
                                      "fsdp2:dtype=fp32",
                                      "fsdp2:tp=2,dtype=fp32",
                                      "zero1",
                                      "zero2:tp=2",
                                      "zero3:dtype=fp32",
                                      "zero3:tp=2,dtype=fp32",
                                      "distopt:vocab_divisible_by=1,tp=2",
                                      "distopt:pp=2",
                                      "distopt:pp=2,bucket_size=70",
                                      "distopt:spec=local,bucket_size=150",
                                      "megatron:pp=2,dtype=fp32",
                                      "hf:dtype=fp32",
                                      "hf:root=1,dtype=fp32",
                                      "vllm:tp=2,dtype=fp32",
                                      "vllm:pp=2,dtype=fp32",
                                      "vllm:tp=2,pp=2,dtype=fp32"};
  for (uint64_t seed = 1; seed <= test_seeds(100); seed++) {
    treadle_random random = {seed};
    const char *config = flat_configs[treadle_random_below(&random, FLAT_CONFIGS)];
    const char *from = texts[treadle_random_below(&random, TEST_COUNT(texts))];
    const char *to = texts[treadle_random_below(&random, TEST_COUNT(texts))];
    bool deep = strstr(config, "\"num_hidden_layers\": 3") && (strstr(from, "pp=2") || strstr(to, "pp=2"));
    if (deep) config = flat_configs[1]; /* three layers on two stages */
    any_family_play(config, 4, from, to);
  }
}

/* ---- Peaks of real shapes ---- */

static void check_peak(const treadle_model *model, int64_t ranks, const char *from_text,
                       const char *to_text) {
  treadle_layout *from = flat_layout(model, from_text, ranks), *to = flat_layout(model, to_text, ranks);
  static const int64_t some[] = {0, 1, -1};
  for (size_t i = 0; i < TEST_COUNT(some); i++) {
    int64_t rank = (some[i] + ranks) % ranks;
    treadle_plan *plan;
    treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
    assert_ok(treadle_plan_create(from, to, rank, NULL, &plan));
    treadle_plan_get_info(plan, &info);
    size_t larger = info.from_bytes > info.to_bytes ? info.from_bytes : info.to_bytes;
    assert_int_equal(info.moved_bytes, info.lower_bound_bytes);
    assert_int_equal(info.back_moved_bytes, info.back_lower_bound_bytes);
    assert_true(info.peak_bytes <= larger + info.cap_bytes);
    if (info.cap_min_bytes > (size_t)512 << 20)
      fail_msg("%s to %s, rank %" PRId64 ": the smallest cap is %zu bytes", from_text, to_text, rank,
               info.cap_min_bytes);
    treadle_plan_destroy(plan);
  }
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
}

static void peaks(void **state) {
  (void)state;
  treadle_model *llama_70b = flat_model("{\"model_type\": \"llama\", \"vocab_size\": 128256, "
                                        "\"hidden_size\": 8192, \"intermediate_size\": 28672, "
                                        "\"num_hidden_layers\": 80, \"num_attention_heads\": 64, "
                                        "\"num_key_value_heads\": 8, \"torch_dtype\": "
                                        "\"bfloat16\"}");
  treadle_model *qwen3_30b =
      flat_model("{\"model_type\": \"qwen3_moe\", \"vocab_size\": 151936, \"hidden_size\": 2048, "
                 "\"intermediate_size\": 6144, "
                 "\"num_hidden_layers\": 48, \"num_attention_heads\": 32, \"num_key_value_heads\": 4, "
                 "\"head_dim\": 128, "
                 "\"moe_intermediate_size\": 768, \"num_experts\": 128, \"num_experts_per_tok\": 8, "
                 "\"decoder_sparse_step\": 1, "
                 "\"mlp_only_layers\": [], \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}");
  check_peak(llama_70b, 64, "fsdp:dp=64", "vllm:tp=8");
  check_peak(llama_70b, 64, "fsdp:dp=8,tp=8", "vllm:tp=8");
  check_peak(llama_70b, 64, "fsdp2:dp=32,replicate=2", "vllm:tp=8");
  check_peak(llama_70b, 64, "zero3", "vllm:tp=8");
  check_peak(llama_70b, 64, "zero1", "vllm:tp=8");
  check_peak(llama_70b, 64, "distopt:tp=8,pp=4", "vllm:tp=8");
  check_peak(qwen3_30b, 16, "fsdp", "vllm:tp=2,dp=8,ep=on");
  check_peak(qwen3_30b, 16, "fsdp2", "vllm:tp=4");
  check_peak(qwen3_30b, 16, "distopt:ep=8,pp=2", "vllm:tp=4");
  treadle_model_close(llama_70b);
  treadle_model_close(qwen3_30b);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(dense),    cmocka_unit_test(casts),
                                     cmocka_unit_test(tied),     cmocka_unit_test(experts),
                                     cmocka_unit_test(families), cmocka_unit_test(draws),
                                     cmocka_unit_test(peaks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
