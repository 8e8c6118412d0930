/* Sets of equal ranks: every rank has the figures of the one that stands for its set, by measuring each.
 * ctest: stage=gcc timeout=600 */
#include "report/equal_ranks.h"
#include "plan/one_rank.h"
#include "plan/pairs.h"

#include "test.h"

#include <inttypes.h>
#include <jansson.h>

static bool same_figures(const treadle_plan_info *a, const treadle_plan_info *b) {
  return a->from_bytes == b->from_bytes && a->to_bytes == b->to_bytes && a->moved_bytes == b->moved_bytes &&
         a->lower_bound_bytes == b->lower_bound_bytes && a->resident_bytes == b->resident_bytes &&
         a->back_moved_bytes == b->back_moved_bytes &&
         a->back_lower_bound_bytes == b->back_lower_bound_bytes && a->peak_bytes == b->peak_bytes &&
         a->waves == b->waves;
}

/* Returns the number of sets. */
static int32_t check_kinds(const treadle_layout *from, const treadle_layout *to, int32_t waves,
                           const char *what) {
  enum { PAGE = 4096 };
  treadle_equal_ranks equal_ranks;
  assert_ok(treadle_equal_ranks_create(from, to, &equal_ranks));
  treadle_plan_info *infos = calloc((size_t)equal_ranks.count, sizeof *infos);
  int64_t *caps = calloc((size_t)equal_ranks.count, sizeof *caps);
  size_t moved = 0, sum = 0;
  for (int32_t k = 0; k < equal_ranks.count; k++) {
    assert_int_equal(equal_ranks.of[equal_ranks.first[k]], k);
    assert_true(k == 0 || equal_ranks.first[k] > equal_ranks.first[k - 1]);
    assert_ok(one_rank_figures(from, to, equal_ranks.first[k], PAGE, waves, &infos[k]));
    assert_ok(one_rank_cap_min(from, to, equal_ranks.first[k], PAGE, &caps[k]));
  }
  for (int64_t rank = 0; rank < from->ranks; rank++) {
    treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
    int64_t cap;
    int32_t set = equal_ranks.of[rank];
    assert_ok(one_rank_figures(from, to, rank, PAGE, waves, &info));
    assert_ok(one_rank_cap_min(from, to, rank, PAGE, &cap));
    if (!same_figures(&info, &infos[set]) || cap != caps[set])
      fail_msg("%s: rank %" PRId64 " is not as rank %" PRId64
               ": moved %zu and %zu, peak %zu and %zu, cap_min %" PRId64 " and %" PRId64,
               what, rank, equal_ranks.first[set], info.moved_bytes, infos[set].moved_bytes,
               info.peak_bytes, infos[set].peak_bytes, cap, caps[set]);
    moved += info.moved_bytes;
    sum += infos[set].moved_bytes;
  }
  assert_int_equal(moved, sum);
  int32_t count = equal_ranks.count;
  treadle_equal_ranks_release(&equal_ranks);
  free(infos);
  free(caps);
  return count;
}

static void random_pairs(void **state) {
  (void)state;
  int64_t ranks = 0, equal_ranks = 0;
  for (uint64_t seed = 1; seed <= test_seeds(250); seed++) {
    pair p;
    pair_make(&p, seed, 12000);
    equal_ranks +=
        check_kinds(p.from.layout, p.to.layout, 1 + (int32_t)(seed * 37 % 40), pair_describe(&p));
    ranks += p.ranks;
    pair_release(&p);
  }
  print_message("%" PRId64 " ranks are of %" PRId64 " kinds\n", ranks, equal_ranks);
  assert_true(equal_ranks < ranks);
}

/* DeepSeek-V3's structure: MLA, shared and routed experts, the first layer dense, an MTP layer. */
static const char deepseek[] =
    "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 200, \"hidden_size\": 64, \"intermediate_size\": "
    "96, "
    "\"moe_intermediate_size\": 48, \"num_hidden_layers\": 9, \"num_attention_heads\": 8, "
    "\"num_key_value_heads\": 8, "
    "\"n_routed_experts\": 16, \"n_shared_experts\": 1, \"first_k_dense_replace\": 1, \"moe_layer_freq\": "
    "1, "
    "\"q_lora_rank\": 24, \"kv_lora_rank\": 16, \"qk_nope_head_dim\": 16, \"qk_rope_head_dim\": 8, "
    "\"v_head_dim\": 16, "
    "\"num_nextn_predict_layers\": 1, \"num_experts_per_tok\": 4, \"n_group\": 4, \"topk_group\": 2, "
    "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}";

static void experts(void **state) {
  (void)state;
  static const struct {
    const char *from, *to;
    int64_t ranks;
    int32_t equal_ranks; /* at most */
  } rows[] = {
      {"megatron:pp=4,first=2,last=1,ep=8", "vllm:dp=8,ep=on", 32, 3},
      {"megatron:pp=4,first=2,last=1,ep=8", "vllm:tp=4,dp=2,ep=on", 32, 6},
      {"megatron:tp=2,pp=2,first=5,ep=4,etp=1", "sglang:tp=8,ep=8", 16, 16},
      {"megatron:tp=2,pp=2,first=5,ep=4,etp=2", "vllm:tp=4", 32, 8},
      {"vllm:tp=4,dp=4,ep=on,placement=round_robin", "megatron:tp=2,pp=2,first=5,ep=8,etp=1", 32, 12},
      {"megatron:pp=2,last=4,ep=8", "vllm:tp=2,dp=3,ep=on", 96, 28}, /* 16 experts on 6 ranks */
      {"hf", "vllm:tp=2,dp=8,ep=on", 16, 2},
      {"fsdp", "vllm:tp=2,dp=2,ep=on", 4, 4},
      {"fsdp2:dp=4,replicate=3", "vllm:tp=2,dp=2,ep=on", 12, 12},
      {"vllm:tp=2,dp=4,ep=on", "zero3", 8, 8},
      {"distopt:pp=2,first=5,ep=2", "vllm:tp=2,dp=4,ep=on", 16, 16},
      {"fsdp:wrap=none,replicate=2", "megatron:tp=2,pp=2,first=5", 8, 8},
  };
  treadle_model *model;
  json_t *json = json_loads(deepseek, 0, NULL);
  assert_non_null(json);
  assert_ok(treadle_model_from_config("config", json, NULL, &model));
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    treadle_layout *from = NULL, *to = NULL;
    assert_ok(treadle_layout_create(model, rows[i].from, rows[i].ranks, NULL, &from));
    assert_ok(treadle_layout_create(model, rows[i].to, rows[i].ranks, NULL, &to));
    int32_t equal_ranks = check_kinds(from, to, 23, rows[i].to);
    print_message("'%s' to '%s': %d kinds of %d ranks\n", rows[i].from, rows[i].to, equal_ranks,
                  (int)rows[i].ranks);
    assert_in_range(equal_ranks, 1, rows[i].equal_ranks);
    treadle_layout_destroy(from);
    treadle_layout_destroy(to);
  }
  treadle_model_close(model);
  json_decref(json);
}

/* Experts that vLLM cuts inside of fp8 blocks: what a rank moves follows from where in a block its shard begins, and from what
 * it holds around it. */
static void finer_blocks(void **state) {
  (void)state;
  static const char *const rows[][2] = {{"megatron:tp=2,ep=2,etp=2", "vllm:tp=4"},
                                        {"megatron:tp=4,etp=4", "vllm:tp=4,dp=2"},
                                        {"megatron:tp=2,ep=4,etp=1", "vllm:tp=2"},
                                        {"fsdp2", "vllm:tp=4"},
                                        {"vllm:tp=4", "megatron:tp=4,etp=4"}};
  static const char config[] =
      "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 80, \"hidden_size\": 64, \"num_hidden_layers\": 2, "
      "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 32, "
      "\"moe_intermediate_size\": 96, \"num_experts\": 4, \"intermediate_size\": 128, "
      "\"decoder_sparse_step\": 1, \"torch_dtype\": \"bfloat16\", \"quantization_config\": "
      "{\"quant_method\": \"fp8\", \"weight_block_size\": [32, 32]}}";
  enum { RANKS = 16 };
  treadle_model *model;
  json_t *json = json_loads(config, 0, NULL);
  assert_non_null(json);
  assert_ok(treadle_model_from_config("config", json, NULL, &model));
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    treadle_layout *from = NULL, *to = NULL;
    assert_ok(treadle_layout_create(model, rows[i][0], RANKS, NULL, &from));
    assert_ok(treadle_layout_create(model, rows[i][1], RANKS, NULL, &to));
    int32_t equal_ranks = check_kinds(from, to, 23, rows[i][1]);
    print_message("'%s' to '%s': %d kinds of %d ranks\n", rows[i][0], rows[i][1], equal_ranks, RANKS);
    treadle_layout_destroy(from);
    treadle_layout_destroy(to);
  }
  treadle_model_close(model);
  json_decref(json);
}

/* The real model on many ranks: sets are counted, and one rank of another place compared. */
static const char deepseek_v3[] =
    "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 129280, \"hidden_size\": 7168, "
    "\"intermediate_size\": 18432, "
    "\"moe_intermediate_size\": 2048, \"num_hidden_layers\": 61, \"num_attention_heads\": 128, "
    "\"num_key_value_heads\": 128, \"n_routed_experts\": 256, \"n_shared_experts\": 1, "
    "\"first_k_dense_replace\": 3, "
    "\"moe_layer_freq\": 1, \"q_lora_rank\": 1536, \"kv_lora_rank\": 512, \"qk_nope_head_dim\": 128, "
    "\"qk_rope_head_dim\": 64, \"v_head_dim\": 128, \"num_nextn_predict_layers\": 1, "
    "\"num_experts_per_tok\": 8, "
    "\"n_group\": 8, \"topk_group\": 4, \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}";

static void many_ranks(void **state) {
  (void)state;
  static const struct {
    const char *from, *to;
    int64_t ranks, other; /* a rank that is like others before it */
    int32_t equal_ranks;
  } rows[] = {
      {"megatron:pp=16,first=4,last=1,ep=64", "vllm:dp=64,ep=on", 1024, 517, 3},
      {"megatron:tp=4,pp=8,last=5,ep=32,etp=1", "vllm:tp=8,dp=4,ep=on", 16384, 6007, 19},
  };
  enum { PAGE = 2 << 20, WAVES = 500 };
  treadle_model *model;
  json_t *json = json_loads(deepseek_v3, 0, NULL);
  assert_ok(treadle_model_from_config("config", json, NULL, &model));
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    treadle_layout *from, *to;
    treadle_equal_ranks equal_ranks;
    treadle_plan_info one = TREADLE_INIT(treadle_plan_info), other = TREADLE_INIT(treadle_plan_info);
    assert_ok(treadle_layout_create(model, rows[i].from, rows[i].ranks, NULL, &from));
    assert_ok(treadle_layout_create(model, rows[i].to, rows[i].ranks, NULL, &to));
    assert_ok(treadle_equal_ranks_create(from, to, &equal_ranks));
    assert_int_equal(equal_ranks.count, rows[i].equal_ranks);
    int64_t first = equal_ranks.first[equal_ranks.of[rows[i].other]];
    assert_true(first < rows[i].other);
    assert_ok(one_rank_figures(from, to, first, PAGE, WAVES, &one));
    assert_ok(one_rank_figures(from, to, rows[i].other, PAGE, WAVES, &other));
    assert_true(same_figures(&one, &other));
    treadle_equal_ranks_release(&equal_ranks);
    treadle_layout_destroy(from);
    treadle_layout_destroy(to);
  }
  treadle_model_close(model);
  json_decref(json);
}

static treadle_status try_kinds(const treadle_layout *from, const treadle_layout *to) {
  treadle_equal_ranks equal_ranks;
  treadle_status status = treadle_equal_ranks_create(from, to, &equal_ranks);
  if (status == TREADLE_OK) treadle_equal_ranks_release(&equal_ranks);
  return status;
}

static void failing_allocations(void **state) {
  (void)state;
  pair p;
  pair_make(&p, 5, 12000);
  TEST_EACH_ALLOCATION(try_kinds(p.from.layout, p.to.layout));
  pair_release(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_pairs), cmocka_unit_test(experts),
                                     cmocka_unit_test(finer_blocks), cmocka_unit_test(many_ranks),
                                     cmocka_unit_test(failing_allocations)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
