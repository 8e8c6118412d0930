/* Rank map `best` where there are several nodes (src/core/layout/rank_map.c): the plans of all maps are made, and none moves less between nodes. */
#include "plan/small.h"

#include "test.h"

#include <inttypes.h>

static const small_config llama = {.V = 100, .H = 32, .L = 4, .nh = 8, .ng = 4, .hd = 4, .I = 48},
                          tied =
                              {.V = 90, .H = 24, .L = 4, .nh = 4, .ng = 2, .hd = 8, .I = 40, .tied = true},
                          qwen3_moe = {.type = "qwen3_moe",
                                       .V = 64,
                                       .H = 16,
                                       .L = 4,
                                       .nh = 4,
                                       .ng = 2,
                                       .hd = 4,
                                       .I = 16,
                                       .more = "\"num_experts\": 8, \"moe_intermediate_size\": 8"};

/* Bytes that the plans of all ranks move between nodes; the most that one of them pulls, and all. */
typedef struct map_cost {
  size_t between, most, sum;
} map_cost;

static map_cost cost_of(const treadle_layout *from, const treadle_layout *to, const int32_t *node_of) {
  const treadle_plan_options options = {
      .struct_size = sizeof options, .page_bytes = 4096, .node_of = node_of};
  map_cost cost = {0};
  for (int64_t r = 0; r < treadle_layout_ranks(from); r++) {
    treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
    treadle_plan *plan;
    assert_ok(treadle_plan_create(from, to, r, &options, &plan));
    treadle_plan_get_info(plan, &info);
    cost.between += info.node_moved_bytes;
    cost.most = info.moved_bytes > cost.most ? info.moved_bytes : cost.most;
    cost.sum += info.moved_bytes;
    treadle_plan_destroy(plan);
  }
  return cost;
}

static bool costs_less(const map_cost *a, const map_cost *b) {
  if (a->between != b->between) return a->between < b->between;
  return a->most != b->most ? a->most < b->most : a->sum < b->sum;
}

/* Of contiguous and all strides, none has plans that move fewer bytes between nodes than the one that is chosen; among equals the rule
 * is that of one node. Returns whether another map is chosen than on one node. */
static bool check_best(const treadle_model *model, const treadle_layout *train, const char *text,
                       const int32_t *node_of) {
  treadle_layout_options options = {
      .struct_size = sizeof options, .rank_map = TREADLE_BEST, .train = train};
  int64_t ranks = treadle_layout_ranks(train), chosen = 0;
  treadle_layout *best, *plain, *other;
  map_cost least = {0};
  assert_ok(treadle_layout_create(model, text, ranks, &options, &plain));
  options.node_of = node_of;
  assert_ok(treadle_layout_create(model, text, ranks, &options, &best));
  assert_ok(treadle_layout_create(model, text, ranks, NULL, &other));
  for (int64_t f = 1; f <= ranks / other->tp; f++) {
    if (ranks / other->tp % f != 0) continue;
    other->order = (treadle_rank_order){other->tp, f};
    map_cost cost = cost_of(train, other, node_of);
    if (chosen == 0 || costs_less(&cost, &least)) {
      least = cost;
      chosen = f;
    }
  }
  if (best->order.f != chosen)
    fail_msg("%s to %s: stride %" PRId64 " is chosen, and %" PRId64 " moves least, %zu bytes between nodes",
             treadle_layout_text(train), text, best->order.f, chosen, least.between);
  bool differs = best->order.f != plain->order.f;
  treadle_layout_destroy(best);
  treadle_layout_destroy(plain);
  treadle_layout_destroy(other);
  return differs;
}

static void best_moves_least_between_nodes(void **state) {
  (void)state;
  static const struct {
    const small_config *config;
    const char *train, *infer;
  } rows[] = {{&llama, "megatron:tp=4", "vllm:tp=2"},
              {&llama, "megatron:tp=2,pp=2", "vllm:tp=4"},
              {&llama, "megatron:pp=4", "vllm:tp=2"},
              {&llama, "fsdp2:dp=8", "sglang:tp=2"},
              {&llama, "hf:root=5", "vllm:tp=4"},
              {&tied, "megatron:tp=2,pp=4", "vllm:tp=2,pp=2"},
              {&qwen3_moe, "megatron:tp=2,ep=4,etp=1", "vllm:tp=4"},
              {&qwen3_moe, "megatron:pp=2,ep=4", "vllm:tp=2,dp=4,ep=on"}};
  static const int32_t maps[][8] = {{0, 0, 1, 1, 2, 2, 3, 3},
                                    {0, 0, 0, 0, 1, 1, 1, 1},
                                    {0, 1, 0, 1, 0, 1, 0, 1},
                                    {5, 5, 9, 9, 9, -1, 5, -1}};
  int differ = 0;
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    treadle_model *model = small_model(rows[i].config);
    treadle_layout *train;
    assert_ok(treadle_layout_create(model, rows[i].train, 8, NULL, &train));
    for (size_t k = 0; k < TEST_COUNT(maps); k++)
      differ += check_best(model, train, rows[i].infer, maps[k]);
    treadle_layout_destroy(train);
    treadle_model_close(model);
  }
  assert_true(differ > 0);
}

/* One node of all says nothing: then best is what it is without. */
static void best_without_a_choice(void **state) {
  (void)state;
  static const int32_t one[8] = {3, 3, 3, 3, 3, 3, 3, 3};
  treadle_model *model = small_model(&llama);
  treadle_layout *train;
  assert_ok(treadle_layout_create(model, "megatron:tp=4", 8, NULL, &train));
  assert_false(check_best(model, train, "vllm:tp=2", one));
  treadle_layout_destroy(train);
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(best_moves_least_between_nodes),
                                     cmocka_unit_test(best_without_a_choice)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
