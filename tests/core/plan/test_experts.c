/* Plans of models with experts: the rows of conformance T4 (Megatron-core's model swap), T16, T26, and training to
 * generation with maps, redundant and shared experts, latent attention and MTP layers, played bit for bit. ctest: stage=gcc */
#include "test.h"

#include "plan/small.h"

#include <inttypes.h>

typedef struct row {
  int64_t ranks;
  const char *from, *to;
  int64_t f; /* rank map; 0 is contiguous */
} row;

static void play_rows(const small_config *config, const row *rows, size_t count) {
  for (size_t i = 0; i < count; i++) {
    pair_result result =
        small_play(config, rows[i].ranks, rows[i].from, rows[i].to, rows[i].f ? rows[i].f : 1);
    if (result.moved != result.bound || !result.lossless)
      fail_msg("%s to %s: %" PRId64 " moved, bound %" PRId64, rows[i].from, rows[i].to, result.moved,
               result.bound);
  }
}

#define SIZES .V = 72, .H = 16, .L = 2, .nh = 4, .ng = 2, .hd = 4, .I = 24
static const small_config qwen3 = {.type = "qwen3_moe",
                                   SIZES,
                                   .more = "\"num_experts\": 4, \"moe_intermediate_size\": 8, "
                                           "\"decoder_sparse_step\": 1, \"mlp_only_layers\": []"};
static const small_config mixtral = {.type = "mixtral", SIZES, .more = "\"num_local_experts\": 4"};
static const small_config qwen2 = {
    .type = "qwen2_moe",
    SIZES,
    .more = "\"num_experts\": 8, \"moe_intermediate_size\": 8, "
            "\"shared_expert_intermediate_size\": 16, \"decoder_sparse_step\": 1, "
            "\"mlp_only_layers\": []"};
#define LATENT                                                                                             \
  "\"n_routed_experts\": 8, \"n_group\": 4, \"n_shared_experts\": 1, "                                     \
  "\"moe_intermediate_size\": 8, \"first_k_dense_replace\": 1, \"moe_layer_freq\": 1, "                    \
  "\"q_lora_rank\": 6, \"kv_lora_rank\": 4, \"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 2, "            \
  "\"v_head_dim\": 3, \"topk_method\": \"noaux_tc\""
static const small_config deepseek = {
    .type = "deepseek_v3", .dtype = "float32", SIZES, .more = LATENT ", \"num_nextn_predict_layers\": 0"};
static const small_config deepseek_mtp = {
    .type = "deepseek_v3", .dtype = "float32", SIZES, .more = LATENT ", \"num_nextn_predict_layers\": 1"};

/* T4: src (tp, pp, ep) to dst (tp, pp, ep), experts cut by etp = tp as there; every row on as many ranks as the larger side
 * needs. */
static void megatron_core_rows(void **state) {
  (void)state;
  static const row rows[] = {
      {4, "megatron:ep=2,etp=1", "megatron:ep=4,etp=1", 0},
      {2, "megatron:ep=2", "megatron", 0},
      {2, "megatron", "megatron:ep=2", 0},
      {4, "megatron:ep=2", "megatron:pp=2,ep=2", 0},
      {4, "megatron:tp=2,ep=2", "megatron", 0},
      {4, "megatron", "megatron:tp=2,ep=2", 0},
      {4, "megatron:tp=4", "megatron:tp=2,ep=2", 0},
      {4, "megatron:tp=2,ep=2", "megatron:tp=4", 0},
      {4, "megatron:tp=4", "megatron:ep=4", 0},
      {4, "megatron:ep=4", "megatron:tp=4", 0},
      {4, "megatron:tp=4,ep=2,etp=1", "megatron:tp=2,ep=4,etp=1", 0},
  };
  play_rows(&qwen3, rows, TEST_COUNT(rows));
  play_rows(&mixtral, rows, TEST_COUNT(rows));
}

static void forms_of_experts(void **state) {
  (void)state;
  static const row rows[] = {
      {4, "megatron:tp=2,ep=2,etp=1", "megatron:tp=2,ep=2,etp=1,experts=stacked", 0},
      {4, "megatron:tp=2,ep=2,experts=stacked", "megatron:tp=2,ep=4,etp=1,experts=sequential,spec=local",
       0},
      {2, "hf", "megatron:ep=2,experts=sequential", 0},
      {4, "hf:root=3", "sglang:tp=4,ep=4", 0},
  };
  play_rows(&qwen3, rows, TEST_COUNT(rows));
}

static void training_to_generation(void **state) {
  (void)state;
  static const row rows[] = {
      {4, "megatron:tp=2,ep=2,etp=1", "vllm:tp=4", 0},
      {4, "megatron:tp=2,ep=4,etp=1", "vllm:tp=2,dp=2,ep=on", 0},
      {8, "megatron:tp=2,pp=2,ep=2,etp=1", "vllm:tp=2,dp=2,pp=2,ep=on", 0},
      {4, "megatron:ep=4", "vllm:tp=4,ep=on,redundant=4", 0},
      {4, "megatron:tp=2,ep=2,etp=2", "vllm:tp=2,ep=on", 2},
      {3, "megatron:ep=1", "vllm:dp=3,ep=on", 0}, /* 3 of 4 or 8 experts on the first ranks */
      {4, "megatron:tp=4", "sglang:tp=4,ep=2", 0},
      {4, "megatron:tp=2,ep=2,etp=1", "sglang:tp=4,ep=4,attn_dp=2", 0},
      {4, "megatron:tp=2,ep=2,etp=1", "sglang:tp=2,ep=2,redundant=4", 2},
      {4, "megatron:ep=4", "sglang:tp=4,ep=2,attn_cp=2,moe_dp=2", 0},
      {4, "megatron:ep=4", "sglang:tp=4,a2a=deepep", 0},
  };
  play_rows(&qwen3, rows, TEST_COUNT(rows));
  play_rows(&qwen2, rows, TEST_COUNT(rows));
}

static void latent_attention(void **state) {
  (void)state;
  static const row rows[] = {
      {4, "megatron:tp=2,ep=2,etp=1", "vllm:tp=4,ep=on", 0},
      {4, "megatron:tp=2,ep=4,etp=1", "vllm:tp=2,dp=2,ep=on,redundant=4", 0},
      {4, "megatron:tp=2,ep=4,etp=1", "vllm:tp=4,ep=on,placement=round_robin", 0},
      {2, "megatron:pp=2,mla_down_proj_fusion=on", "hf", 0},
  };
  static const row sglang[] = {
      {4, "megatron:pp=2,ep=2,mla_down_proj_fusion=on", "sglang:tp=4,ep=2,attn_dp=2", 0},
      {4, "megatron:tp=2,ep=2,etp=1", "sglang:tp=4,ep=4,shared_fusion=on", 0},
      {2, "megatron:tp=2", "sglang:tp=2", 0},
  };
  play_rows(&deepseek, rows, TEST_COUNT(rows));
  play_rows(&deepseek, sglang, TEST_COUNT(sglang));
  play_rows(&deepseek_mtp, rows, TEST_COUNT(rows));
}

/* ---- Maps ---- */

static void maps(void **state) {
  (void)state;
  static const struct {
    const char *map;
    int redundant;
  } rows[] = {{"[3,2,1,0]", 0},
              {"[[1,0,3,2],[2,3,0,1]]", 0},
              {"[0,0,1,2,3,3,1,2]", 4},
              {"{\"physical_to_logical_map\": [[3,3,0,0,1,1,2,2],[0,1,2,3,0,1,2,3]]}", 4}};
  const char *folder = test_folder();
  char vllm[200], sglang[200];
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    const char *path = test_write(folder, "map.json", rows[i].map);
    snprintf(vllm, sizeof vllm, "vllm:tp=2,ep=on,redundant=%d,map=@%s", rows[i].redundant, path);
    snprintf(sglang, sizeof sglang, "sglang:tp=4,ep=2,redundant=%d,map=@%s", rows[i].redundant, path);
    const row plays[] = {{4, "megatron:tp=2,ep=2,etp=1", vllm, 1},
                         {4, "megatron:tp=4", vllm, 2},
                         {4, sglang, "vllm:tp=2,ep=on", 1},
                         {4, "megatron:ep=4", sglang, 1}};
    play_rows(&qwen3, plays, TEST_COUNT(plays));
  }
  test_remove(folder);
}

/* A map that changes makes another plan. */
static void digests_of_maps(void **state) {
  (void)state;
  const char *folder = test_folder();
  char text[200];
  treadle_model *model = small_model(&qwen3);
  treadle_layout *from, *first, *second, *third;
  treadle_plan *a, *b;
  treadle_plan_info x = TREADLE_INIT(treadle_plan_info), y = TREADLE_INIT(treadle_plan_info);
  assert_ok(treadle_layout_create(model, "megatron:ep=2", 2, NULL, &from));
  snprintf(text, sizeof text, "vllm:tp=2,ep=on,map=@%s", test_write(folder, "map.json", "[0,1,2,3]"));
  assert_ok(treadle_layout_create(model, text, 2, NULL, &first));
  assert_ok(treadle_layout_create(model, text, 2, NULL, &third));
  test_write(folder, "map.json", "[0,1,3,2]");
  assert_ok(treadle_layout_create(model, text, 2, NULL, &second));
  assert_string_equal(treadle_layout_text(first), treadle_layout_text(second));
  assert_true(first->digest == third->digest);
  assert_true(first->digest != second->digest);
  assert_ok(treadle_plan_create(from, first, 0, NULL, &a));
  assert_ok(treadle_plan_create(from, second, 0, NULL, &b));
  treadle_plan_get_info(a, &x);
  treadle_plan_get_info(b, &y);
  assert_true(x.digest != y.digest);
  treadle_plan_destroy(a);
  treadle_plan_destroy(b);
  treadle_layout_destroy(from);
  treadle_layout_destroy(first);
  treadle_layout_destroy(second);
  treadle_layout_destroy(third);
  treadle_model_close(model);
  test_remove(folder);
}

/* ---- Peaks and bounds ---- */

static treadle_layout *create(const treadle_model *model, const char *text, int64_t ranks) {
  treadle_layout *layout;
  assert_ok(treadle_layout_create(model, text, ranks, NULL, &layout));
  return layout;
}

/* T16: 64 experts of gate and up in one tensor of 8 GB. The peak is within the cap, not the cap and the tensor. */
static void one_huge_stack(void **state) {
  (void)state;
  static const small_config huge = {.type = "mixtral",
                                    .V = 1024,
                                    .H = 4096,
                                    .L = 1,
                                    .nh = 32,
                                    .ng = 8,
                                    .hd = 128,
                                    .I = 7680,
                                    .more = "\"num_local_experts\": 64"};
  static const struct {
    int64_t ranks;
    const char *from, *to;
  } pairs[] = {{1, "megatron:experts=stacked", "sglang"},
               {1, "megatron", "vllm"},
               {4, "megatron:tp=4,ep=4,etp=1", "vllm"},
               {4, "hf:root=0", "vllm:tp=4,ep=on"}};
  static const size_t caps[] = {(size_t)256 << 20, (size_t)2 << 30};
  treadle_model *model = small_model(&huge);
  treadle_layout *stack = create(model, "sglang", 1);
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  size_t largest = 0;
  for (int32_t s = 0; s < treadle_layout_storage_count(stack, 0); s++) {
    assert_ok(treadle_layout_storage(stack, 0, s, &info));
    if (info.bytes > largest) largest = info.bytes;
  }
  assert_true(largest >= 8000000000u);
  for (size_t i = 0; i < TEST_COUNT(pairs); i++)
    for (size_t c = 0; c < TEST_COUNT(caps); c++) {
      treadle_layout *from = create(model, pairs[i].from, pairs[i].ranks);
      treadle_layout *to = create(model, pairs[i].to, pairs[i].ranks);
      for (int64_t r = 0; r < pairs[i].ranks; r += 3) {
        const treadle_plan_options options = {.struct_size = sizeof(treadle_plan_options),
                                              .cap_bytes = caps[c]};
        treadle_plan *plan;
        treadle_plan_info plan_info = TREADLE_INIT(treadle_plan_info);
        assert_ok(treadle_plan_create(from, to, r, &options, &plan));
        treadle_plan_get_info(plan, &plan_info);
        size_t larger =
            plan_info.from_bytes > plan_info.to_bytes ? plan_info.from_bytes : plan_info.to_bytes;
        assert_true(plan_info.peak_bytes <= larger + caps[c]);
        assert_int_equal(plan_info.moved_bytes, plan_info.lower_bound_bytes);
        treadle_plan_destroy(plan);
      }
      treadle_layout_destroy(from);
      treadle_layout_destroy(to);
    }
  treadle_layout_destroy(stack);
  treadle_model_close(model);
}

/* T26: each of 256 ranks pulls its own expert and no other. */
static void an_expert_a_rank(void **state) {
  (void)state;
  static const small_config config = {.type = "qwen3_moe",
                                      .V = 64,
                                      .H = 64,
                                      .L = 1,
                                      .nh = 4,
                                      .ng = 4,
                                      .hd = 4,
                                      .I = 8,
                                      .more = "\"num_experts\": 256, \"moe_intermediate_size\": 32, "
                                              "\"decoder_sparse_step\": 1, \"mlp_only_layers\": []"};
  static const char *const sources[] = {"megatron:ep=8", "megatron:ep=64", "megatron:tp=2,ep=32,etp=1",
                                        "megatron:ep=256"};
  const int64_t expert = 3 * 64 * 32 * 2;
  treadle_model *model = small_model(&config);
  treadle_layout *to = create(model, "vllm:dp=256,ep=on", 256);
  for (size_t i = 0; i < TEST_COUNT(sources); i++) {
    treadle_layout *from = create(model, sources[i], 256);
    for (int64_t r = 0; r < 256; r++) {
      int64_t bytes;
      treadle_pieces own = {0};
      assert_ok(treadle_layout_inbound(from, to, r, NULL, &bytes));
      for (int32_t t = 0; t < model->tensor_count; t++) /* what is not of experts may come beside it */
        if (!model->tensors[t].by_expert) assert_ok(treadle_layout_pieces_of(to, r, t, &own));
      int64_t dense = 0;
      for (size_t k = 0; k < own.count; k++) dense += treadle_box_elems(&own.items[k].box) * 2;
      treadle_array_release(&own);
      assert_true(bytes <= expert + dense);
      if (i == 3) assert_int_equal(bytes, 0);
      if (i == 0) assert_true(bytes == expert || bytes == 0);
      treadle_plan *plan;
      if (r % 85 != 1) continue;
      assert_ok(treadle_plan_create(from, to, r, NULL, &plan));
      treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
      treadle_plan_get_info(plan, &info);
      assert_int_equal(info.moved_bytes, bytes);
      treadle_plan_destroy(plan);
    }
    treadle_layout_destroy(from);
  }
  treadle_layout_destroy(to);
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(megatron_core_rows),
                                     cmocka_unit_test(forms_of_experts),
                                     cmocka_unit_test(training_to_generation),
                                     cmocka_unit_test(latent_attention),
                                     cmocka_unit_test(maps),
                                     cmocka_unit_test(digests_of_maps),
                                     cmocka_unit_test(one_huge_stack),
                                     cmocka_unit_test(an_expert_a_rank)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
