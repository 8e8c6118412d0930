/* src/core/plan/tracks.c and src/core/plan/tally.c: pages and bytes that are found once for tensors that lie alike are those of walks of
 * whole windows, on every rank of random pairs of small models. ctest: stage=gcc */
#include "layout/signatures.h"
#include "plan/pairs.h"
#include "plan/sinks.h"
#include "plan/tracks.h"

#include "test.h"

#include <inttypes.h>
#include <jansson.h>

enum { PAGE = 4096 };

static void walk_window(const treadle_lanes *lanes, int side, int64_t rank, treadle_page_life *pages) {
  bool from = side == TREADLE_FROM;
  treadle_page_sink sink = treadle_page_sink_make(pages, PAGE, NULL);
  assert_ok(treadle_direction_walk(lanes, from ? lanes->to : lanes->from, from ? lanes->from : lanes->to,
                                   rank, &sink.sink));
}

/* Both windows of a rank, fast and slow; leaves the slow ones in lives. */
static void check_pages(const treadle_layout *from, const treadle_layout *to, const uint64_t *kin,
                        int64_t rank, int32_t waves, treadle_window_lives *lives) {
  const treadle_layout *layouts[] = {from, to};
  treadle_lanes lanes;
  int64_t count[TREADLE_SIDES];
  treadle_window_lives fast;
  for (int side = 0; side < TREADLE_SIDES; side++)
    count[side] = ((int64_t)treadle_layout_window_bytes(layouts[side], rank) + PAGE - 1) / PAGE;
  assert_ok(treadle_window_lives_create(count[TREADLE_FROM], count[TREADLE_TO], lives));
  assert_ok(treadle_window_lives_create(count[TREADLE_FROM], count[TREADLE_TO], &fast));
  assert_ok(treadle_lanes_create(from, to, PAGE, &lanes));
  lanes.waves = waves;
  for (int side = 0; side < TREADLE_SIDES; side++) {
    treadle_page_life *slow = side == TREADLE_FROM ? lives->from : lives->to;
    treadle_page_life *is = side == TREADLE_FROM ? fast.from : fast.to;
    const treadle_track_target target = {is, NULL};
    walk_window(&lanes, side, rank, slow);
    treadle_tracks *tracks;
    assert_ok(treadle_tracks_create(&lanes, kin, side, rank, NULL, &tracks));
    treadle_tracks_play(tracks, waves, &target, 1);
    treadle_tracks_destroy(tracks);
    for (int64_t i = 0; i < count[side]; i++)
      if (slow[i].first != is[i].first || slow[i].last != is[i].last)
        fail_msg("'%s' to '%s', rank %" PRId64 ", %d waves, side %d: page %" PRId64
                 " lives from %d to %d, and not from %d to %d",
                 from->text, to->text, rank, waves, side, i, slow[i].first, slow[i].last, is[i].first,
                 is[i].last);
  }
  treadle_window_lives_settle(lives);
  treadle_window_lives_release(&fast);
  treadle_lanes_release(&lanes);
}

/* All figures. Behind `waves` and `lossless` compilers may leave bytes as they are. */
static bool alike(const treadle_plan_info *a, const treadle_plan_info *b) {
  static const size_t ranges[3][2] = {
      {0, offsetof(treadle_plan_info, waves)},
      {offsetof(treadle_plan_info, page_bytes), offsetof(treadle_plan_info, lossless)},
      {offsetof(treadle_plan_info, node_moved_bytes), sizeof *a}};
  bool same = a->waves == b->waves && a->lossless == b->lossless;
  for (int i = 0; i < 3; i++)
    same = same && memcmp((const char *)a + ranges[i][0], (const char *)b + ranges[i][0],
                          ranges[i][1] - ranges[i][0]) == 0;
  return same;
}

static void check_pair(const treadle_layout *from, const treadle_layout *to, int32_t waves) {
  uint64_t *kin;
  treadle_sums *sums;
  treadle_lanes lanes;
  assert_ok(treadle_lanes_create(from, to, PAGE, &lanes));
  assert_ok(treadle_kin_list(from, to, &kin));
  assert_ok(treadle_sums_create(&sums));
  for (int64_t rank = 0; rank < from->ranks; rank += test_step(5)) {
    treadle_plan_info slow = TREADLE_INIT(treadle_plan_info), fast = slow;
    treadle_window_lives lives;
    const treadle_plan_base_options options = {.page_bytes = PAGE};
    treadle_plan_base plan_base;
    check_pages(from, to, kin, rank, waves, &lives);
    const treadle_window_tracks tracks = {
        .from = lives.from, .to = lives.to, .lanes = &lanes, .kin = kin, .sums = sums};
    assert_ok(treadle_plan_base_plain(from, to, rank, &options, &plan_base));
    assert_ok(treadle_plan_measure_on(&plan_base, waves, 0, NULL, NULL, &slow));
    assert_ok(treadle_plan_measure_on(&plan_base, waves, 0, &tracks, NULL, &fast));
    if (!alike(&slow, &fast))
      fail_msg("'%s' to '%s', rank %" PRId64
               ": moved %zu and %zu, bound %zu and %zu, resident %zu and %zu, back "
               "%zu and %zu, bound %zu and %zu, written %zu and %zu, peak %zu and %zu",
               from->text, to->text, rank, slow.moved_bytes, fast.moved_bytes, slow.lower_bound_bytes,
               fast.lower_bound_bytes, slow.resident_bytes, fast.resident_bytes, slow.back_moved_bytes,
               fast.back_moved_bytes, slow.back_lower_bound_bytes, fast.back_lower_bound_bytes,
               slow.infer_bytes, fast.infer_bytes, slow.peak_bytes, fast.peak_bytes);
    treadle_plan_base_release(&plan_base);
    treadle_window_lives_release(&lives);
  }
  treadle_lanes_release(&lanes);
  treadle_free(kin);
  treadle_sums_destroy(sums);
}

static void random_pairs(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= test_seeds(150); seed++) {
    pair p;
    pair_make(&p, seed, 12000);
    check_pair(p.from.layout, p.to.layout, 1 + (int32_t)(seed * 37 % 40));
    pair_release(&p);
  }
}

/* DeepSeek-V3's structure with small fp8 blocks, and without. Ranks of ZeRO-3 and FSDP2 have rows of all experts. */
static const char *const configs[] = {
    "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 200, \"hidden_size\": 64, \"intermediate_size\": "
    "96, "
    "\"moe_intermediate_size\": 48, \"num_hidden_layers\": 7, \"num_attention_heads\": 8, "
    "\"num_key_value_heads\": 8, \"n_routed_experts\": 16, \"n_shared_experts\": 1, "
    "\"first_k_dense_replace\": 1, \"moe_layer_freq\": 1, \"q_lora_rank\": 24, \"kv_lora_rank\": 16, "
    "\"qk_nope_head_dim\": 16, \"qk_rope_head_dim\": 8, \"v_head_dim\": 16, "
    "\"num_nextn_predict_layers\": 1, \"num_experts_per_tok\": 4, \"n_group\": 4, \"topk_group\": 2, "
    "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}",
    "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 80, \"hidden_size\": 64, \"num_hidden_layers\": 5, "
    "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 32, "
    "\"moe_intermediate_size\": 96, \"num_experts\": 8, \"intermediate_size\": 128, "
    "\"decoder_sparse_step\": 1, \"torch_dtype\": \"bfloat16\", \"quantization_config\": "
    "{\"quant_method\": \"fp8\", \"weight_block_size\": [32, 32]}}",
};

static void sharded(void **state) {
  (void)state;
  static const struct {
    const char *from, *to;
    int64_t ranks;
  } rows[] = {
      {"zero3", "vllm:tp=1,dp=8,ep=on", 24},
      {"zero3", "vllm:tp=2,dp=2,ep=on,dtype=bf16", 12},
      {"zero3:tp=2", "vllm:tp=4", 16},
      {"fsdp2", "vllm:tp=1,dp=4,ep=on", 20},
      {"fsdp2:dp=4,replicate=3", "vllm:tp=2,dp=2,ep=on", 12},
      {"fsdp2", "vllm:tp=2,dp=4,ep=on,placement=round_robin", 8},
      {"fsdp", "vllm:tp=1,dp=8,ep=on", 24},
      {"fsdp:wrap=none", "vllm:tp=4", 8},
      {"vllm:tp=2,dp=4,ep=on", "zero3", 24},
      {"fsdp2", "zero3", 6},
      {"zero3", "megatron:tp=2,pp=1,ep=4,etp=1", 16},
      {"zero3", "vllm:tp=1,dp=4,ep=on", 192}, /* most parameters end before the last ranks */
  };
  for (size_t c = 0; c < TEST_COUNT(configs); c++) {
    treadle_model *model;
    json_t *json = json_loads(configs[c], 0, NULL);
    assert_non_null(json);
    assert_ok(treadle_model_from_config("config", json, NULL, &model));
    for (size_t i = 0; i < TEST_COUNT(rows); i++) {
      treadle_layout *from = NULL, *to = NULL;
      assert_ok(treadle_layout_create(model, rows[i].from, rows[i].ranks, NULL, &from));
      assert_ok(treadle_layout_create(model, rows[i].to, rows[i].ranks, NULL, &to));
      check_pair(from, to, 23);
      treadle_layout_destroy(from);
      treadle_layout_destroy(to);
    }
    treadle_model_close(model);
    json_decref(json);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_pairs), cmocka_unit_test(sharded)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
