/* Plans over several nodes of pairs that make fp8 blocks, or values of them (src/core/plan/block_rows_near.c, block_rows_share.c). Random pairs are
 * in test_near.c. ctest: stage=gcc */
#include "plan/small.h"

#include "base/alloc.h"
#include "messages/parcels.h"

#include "test.h"

#include <inttypes.h>

typedef struct row {
  const small_config *config;
  const char *from, *to;
  int64_t f; /* rank map of `to` */
} row;

/* tp=4 cuts the 24 rows of an expert inside of blocks of 8. */
static const small_config blocks = {
    .type = "qwen3_moe",
    .V = 16,
    .H = 32,
    .L = 2,
    .nh = 8,
    .ng = 4,
    .hd = 8,
    .I = 32,
    .more = "\"num_experts\": 8, \"moe_intermediate_size\": 24, "
            "\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [8, 8]}"};

static const row block_grid[] = {
    {&blocks, "megatron:tp=2,pp=2,etp=1", "vllm:tp=4", 1},
    {&blocks, "megatron:tp=2,pp=2,etp=1", "vllm:tp=2", 2},
    {&blocks, "megatron:pp=2", "vllm:tp=2", 1},
    {&blocks, "megatron:pp=2,ep=4", "vllm:tp=2,dp=4,ep=on", 1},
    {&blocks, "hf:root=0,dtype=bf16", "vllm:tp=2", 1},
    {&blocks, "hf:root=0", "megatron:tp=2,pp=2,etp=1", 1},
    {&blocks, "hf:root=5", "megatron:pp=2,ep=4", 1},
    {&blocks, "vllm:tp=2", "megatron:pp=2,etp=1", 1},
};

/* Codes enter a node once, and beside them scales alone: one of 4 bytes for 64 codes, twice where ranks of a node have parts of one block. */
static void blocks_enter_once(void **state) {
  (void)state;
  int64_t relayed = 0, made = 0, inputs = 0;
  for (size_t i = 0; i < TEST_COUNT(block_grid); i++)
    for (int64_t count = 1; count <= 8; count *= 2) {
      const row *of = &block_grid[i];
      int32_t hosts[8];
      treadle_nodes nodes;
      for (int32_t r = 0; r < 8; r++) hosts[r] = count == 1 ? r % 2 : (int32_t)(r * count / 8);
      assert_ok(treadle_nodes_make(hosts, 8, &nodes));
      pair_result result = small_play_nodes(of->config, &nodes, of->from, of->to, of->f);
      if (result.node_moved < result.node_bound || result.node_moved * 8 > result.node_bound * 9)
        fail_msg("'%s' to '%s', %d nodes: %" PRId64 " bytes enter nodes, the bound is %" PRId64, of->from,
                 of->to, nodes.count, result.node_moved, result.node_bound);
      relayed += result.relayed;
      made += result.made;
      inputs += result.inputs;
      treadle_nodes_release(&nodes);
    }
  assert_true(relayed > 0 && made > 0 && inputs > 0);
}

/* All that a rank makes of both directions before it can talk. */
static treadle_status make_messages(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                    const treadle_plan_options *options) {
  treadle_status status = TREADLE_OK;
  treadle_plan *plan = NULL;
  treadle_sends sends = {0};
  treadle_ordered ordered = {0};
  treadle_far_inputs inputs = {0};
  treadle_traffic traffic = {0};
  TRY(treadle_plan_create(from, to, rank, options, &plan));
  const treadle_far_input_sources sources = {plan->nodes, rank};
  for (int back = 0; back < 2; back++) {
    treadle_direction *direction = back ? &plan->back : &plan->forward;
    TRY(treadle_far_inputs_make(direction, plan->waves, &sources, &inputs));
    TRY(treadle_parcels_split(direction, plan->waves, rank, plan->nodes, 200));
    TRY(treadle_traffic_in(direction, &inputs, rank, plan->nodes, 200, &traffic));
    treadle_traffic_release(&traffic);
    TRY(treadle_sends_make(plan, back, &sends));
    TRY(treadle_ordered_begin(plan, back, &ordered));
    TRY(treadle_traffic_out(&sends, &ordered, rank, plan->nodes, 200, &traffic));
    treadle_traffic_release(&traffic);
    treadle_ordered_release(&ordered);
    treadle_sends_release(&sends);
  }
out:
  treadle_traffic_release(&traffic);
  treadle_ordered_release(&ordered);
  treadle_sends_release(&sends);
  treadle_far_inputs_release(&inputs);
  treadle_plan_destroy(plan);
  return status;
}

static void memory_is_out(void **state) {
  (void)state;
  static const char *const pairs[][2] = {{"megatron:tp=2,pp=2,etp=1", "vllm:tp=4"},
                                         {"fsdp2:dp=8", "vllm:tp=2"},
                                         {"hf:root=5", "megatron:pp=2,ep=4"}};
  static const int32_t of[8] = {0, 0, 0, 0, 1, 1, 1, 1};
  const treadle_plan_options options = {
      .struct_size = sizeof options, .page_bytes = 4096, .node_of = of, .waves = 3, .cap_bytes = 1 << 20};
  for (size_t i = 0; i < TEST_COUNT(pairs); i++) {
    treadle_model *model = small_model(&blocks);
    treadle_layout *from, *to;
    assert_ok(treadle_layout_create(model, pairs[i][0], 8, NULL, &from));
    assert_ok(treadle_layout_create(model, pairs[i][1], 8, NULL, &to));
    long before = treadle_alloc_count();
    assert_ok(make_messages(from, to, 5, &options));
    long count = treadle_alloc_count() - before, step = count / (long)test_seeds(400) + 1;
    for (long n = 1 + (long)i; n <= count; n += step) {
      treadle_alloc_fail_at(n);
      treadle_status status = make_messages(from, to, 5, &options);
      treadle_alloc_fail_at(0);
      assert_int_equal(status, TREADLE_NO_MEMORY);
    }
    treadle_layout_destroy(from);
    treadle_layout_destroy(to);
    treadle_model_close(model);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_enter_once), cmocka_unit_test(memory_is_out)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
