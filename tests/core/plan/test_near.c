/* Plans over several nodes (src/core/plan/near.h): each byte enters a node once, and relays bring it to the others, bit for bit. TREADLE_PAIRS sets
 * how many random pairs (1000), TREADLE_SEED the first seed (1).
 * ctest: stage=gcc timeout=1500 */
#include "layout/inbound_nodes.h"
#include "messages/net.h"
#include "plan/small.h"

#include "base/larger.h"
#include "test.h"
#include "treadle_tools.h"

#include <inttypes.h>

/* Random numbers of nodes; ranks of a node are seldom neighbours. */
static void draw_nodes(pair *p) {
  treadle_random random = {p->seed * 31 + 7};
  int32_t of[64];
  int64_t count = treadle_random_between(&random, 2, p->ranks < 8 ? p->ranks : 8);
  bool blocks = draw_chance(&random, 40); /* neighbours, as a launcher puts them */
  for (int64_t r = 0; r < p->ranks; r++)
    of[r] = (int32_t)(blocks ? r * count / p->ranks : treadle_random_below(&random, count));
  assert_ok(treadle_nodes_make(of, p->ranks, &p->nodes));
}

static void random_pairs(void **state) {
  (void)state;
  const char *count_text = getenv("TREADLE_PAIRS"), *seed_text = getenv("TREADLE_SEED");
  int64_t count = count_text ? atoll(count_text) : (int64_t)test_seeds(1000),
          seed = seed_text ? atoll(seed_text) : 1, entering = 0, relaying = 0, played = 0, making = 0,
          reading = 0;
  for (int64_t i = 0; i < count; i++) {
    pair p;
    pair_make(&p, (uint64_t)(seed + i), 12000);
    if (p.ranks > 1) {
      draw_nodes(&p);
      pair_result result = pair_play(&p, i % 2 == 0);
      played++;
      entering += result.node_moved > 0;
      relaying += result.relayed > 0;
      making += result.made > 0;
      reading += result.inputs > 0;
    }
    pair_release(&p);
  }
  printf("%" PRId64 " pairs: bytes enter nodes in %" PRId64 ", and are relayed in %" PRId64
         "; blocks are made elsewhere in %" PRId64 ", and here of what other nodes have in %" PRId64 "\n",
         played, entering, relaying, making, reading);
  if (count < 100) return;
  assert_true(entering * 2 > played);
  assert_true(relaying * 5 > played);
  assert_true(making * 50 > played && reading * 50 > played);
}

/* ---- A grid of pairs ---- */

static const small_config
    llama = {.V = 100, .H = 32, .L = 4, .nh = 8, .ng = 4, .hd = 4, .I = 48},
    tied = {.V = 90, .H = 24, .L = 4, .nh = 4, .ng = 2, .hd = 8, .I = 40, .tied = true},
    fp32 = {.dtype = "float32", .V = 64, .H = 16, .L = 4, .nh = 4, .ng = 4, .hd = 4, .I = 24},
    qwen3_moe = {.type = "qwen3_moe",
                 .V = 64,
                 .H = 16,
                 .L = 4,
                 .nh = 4,
                 .ng = 2,
                 .hd = 4,
                 .I = 16,
                 .more = "\"num_experts\": 8, \"moe_intermediate_size\": 8"};

typedef struct row {
  const small_config *config;
  const char *from, *to;
  int64_t f; /* rank map of `to` */
} row;

static const row grid[] = {
    {&llama, "megatron:tp=2,pp=2", "vllm:tp=4", 1},
    {&llama, "megatron:tp=2,pp=4", "vllm:tp=2", 2},
    {&llama, "megatron:tp=4", "sglang:tp=2", 1},
    {&llama, "fsdp:dp=8", "vllm:tp=4", 2},
    {&llama, "fsdp2:dp=8", "vllm:tp=2", 1},
    {&llama, "zero3:dp=8", "sglang:tp=4", 1},
    {&llama, "hf:root=0", "vllm:tp=2", 1},
    {&llama, "megatron:tp=2,on=0-3", "vllm:tp=2,on=4-7", 1},
    {&llama, "megatron:tp=4,on=0-3", "vllm:tp=2,on=1-6", 1},
    {&tied, "megatron:tp=2,pp=2", "vllm:tp=2", 1},
    {&tied, "megatron:pp=4", "vllm:tp=2,pp=2", 1},
    {&tied, "megatron:tp=2,pp=4", "hf", 1},
    {&fp32, "megatron:pp=4", "vllm:tp=2,dtype=bf16", 1},
    {&llama, "megatron:pp=4", "vllm:tp=2,dtype=fp32", 1},
    {&qwen3_moe, "megatron:tp=2,ep=4,etp=1", "vllm:tp=4", 1},
    {&qwen3_moe, "megatron:pp=2,ep=4", "vllm:tp=2,dp=4,ep=on", 1},
    {&qwen3_moe, "megatron:ep=8", "sglang:tp=4", 1},
};

/* 2, 4 and 8 nodes of neighbours; 2 of every other rank. The oracle's bound is what pair_play compares with, both ways. */
static void a_grid_of_pairs(void **state) {
  (void)state;
  int64_t relayed = 0;
  for (size_t i = 0; i < TEST_COUNT(grid); i++)
    for (int64_t count = 1; count <= 8; count *= 2) {
      int32_t of[8];
      treadle_nodes nodes;
      for (int32_t r = 0; r < 8; r++) of[r] = count == 1 ? r % 2 : (int32_t)(r * count / 8);
      assert_ok(treadle_nodes_make(of, 8, &nodes));
      pair_result result = small_play_nodes(grid[i].config, &nodes, grid[i].from, grid[i].to, grid[i].f);
      assert_int_equal(result.node_moved, result.node_bound);
      if (count == 8) assert_int_equal(result.relayed, 0); /* a rank alone relays nothing */
      relayed += result.relayed;
      treadle_nodes_release(&nodes);
    }
  assert_true(relayed > 0);
}

/* ---- Cases that others state ---- */

static const small_config wide = {
    .dtype = "float32", .V = 8, .H = 256, .L = 1, .nh = 1, .ng = 1, .hd = 1, .I = 1};

/* NeMo-RL's geometry (conformance T2, 4 and 5): ranks 0 and 1 have rows 0-3 and 4-7; 2 and 4 want the first, 3 and 5 the others.
 * Striped, 0 sends rows to 2 and to 4, 1 to 3 and to 5, and replicas exchange. */
static void replicas_share_inside(void **state) {
  (void)state;
  static const int32_t hosts[] = {0, 0, 1, 1, 1, 1};
  static const char tensor[] = "model.embed_tokens.weight";
  treadle_model *model = small_model(&wide);
  small_pieces from = {0}, to = {0};
  treadle_layout *a, *b;
  treadle_nodes nodes;
  assert_ok(treadle_nodes_make(hosts, 6, &nodes));
  for (int64_t r = 0; r < 2; r++) small_give(&from, r, tensor, 4 * r, 4 * r + 4, 0, 256);
  for (int64_t r = 2; r < 6; r++) small_give(&to, r, tensor, r % 2 * 4, r % 2 * 4 + 4, 0, 256);
  small_give_rest(&from, model);
  small_give_rest(&to, model);
  pair_result result = small_play_pieces_nodes(&wide, &nodes, &from, &to);
  assert_int_equal(result.node_moved, 8 * 256 * 4);
  assert_ok(treadle_layout_from_pieces(model, 6, from.items, from.count, &a));
  assert_ok(treadle_layout_from_pieces(model, 6, to.items, to.count, &b));
  for (int64_t r = 2; r < 6; r++) {
    const treadle_plan_options options = {
        .struct_size = sizeof options, .page_bytes = 4096, .node_of = hosts};
    treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
    treadle_plan *plan;
    size_t inbound[6];
    assert_ok(treadle_plan_create(a, b, r, &options, &plan));
    treadle_plan_get_info(plan, &info);
    treadle_plan_inbound(plan, inbound);
    assert_int_equal(info.node_moved_bytes, 2 * 256 * 4);
    assert_int_equal(info.relayed_bytes, 2 * 256 * 4);
    assert_int_equal(inbound[r % 2], 2 * 256 * 4);
    assert_int_equal(inbound[r < 4 ? r + 2 : r - 2], 2 * 256 * 4);
    treadle_plan_destroy(plan);
  }
  treadle_layout_destroy(a);
  treadle_layout_destroy(b);
  treadle_nodes_release(&nodes);
  treadle_array_release(&from);
  treadle_array_release(&to);
  treadle_model_close(model);
}

/* Replicas whose devices come in another order (conformance T19): nodes of any ranks, and rank maps of any stride. */
static void permuted_devices(void **state) {
  (void)state;
  static const int32_t maps[][8] = {{0, 1, 0, 1, 0, 1, 0, 1},
                                    {3, 1, 2, 0, 0, 2, 1, 3},
                                    {0, 0, 0, 1, 2, 2, 2, 2},
                                    {5, 5, 9, 9, 9, -1, 5, -1}};
  int64_t relayed = 0;
  for (size_t i = 0; i < TEST_COUNT(maps); i++)
    for (int64_t f = 1; f <= 4; f *= 2) {
      treadle_nodes nodes;
      assert_ok(treadle_nodes_make(maps[i], 8, &nodes));
      pair_result result = small_play_nodes(&llama, &nodes, "megatron:tp=2,pp=2", "vllm:tp=2", f);
      assert_int_equal(result.node_moved, result.node_bound);
      relayed += result.relayed;
      treadle_nodes_release(&nodes);
    }
  assert_true(relayed > 0);
}

/* ---- One node, and reports ---- */

static char *text_of(const treadle_plan *plan) {
  char *text;
  size_t length;
  FILE *file = open_memstream(&text, &length);
  assert_non_null(file);
  assert_ok(treadle_plan_print(plan, file));
  fclose(file);
  return text;
}

static void one_node_changes_nothing(void **state) {
  (void)state;
  static const int32_t one[8] = {7, 7, 7, 7, 7, 7, 7, 7};
  for (size_t i = 0; i < TEST_COUNT(grid); i++) {
    treadle_model *model = small_model(grid[i].config);
    treadle_layout *from, *to;
    assert_ok(treadle_layout_create(model, grid[i].from, 8, NULL, &from));
    assert_ok(treadle_layout_create(model, grid[i].to, 8, NULL, &to));
    for (int64_t r = 0; r < 8; r++) {
      treadle_plan_options options = {.struct_size = sizeof options, .page_bytes = 4096, .alias = true};
      treadle_plan *plain, *given;
      assert_ok(treadle_plan_create(from, to, r, &options, &plain));
      options.node_of = one;
      assert_ok(treadle_plan_create(from, to, r, &options, &given));
      char *a = text_of(plain), *b = text_of(given);
      assert_string_equal(a, b); /* the digest is in it */
      free(a);
      free(b);
      treadle_plan_destroy(plain);
      treadle_plan_destroy(given);
    }
    treadle_layout_destroy(from);
    treadle_layout_destroy(to);
    treadle_model_close(model);
  }
}

/* The report of one rank says what its plan does. Returns its staging. */
static size_t check_one_rank(const treadle_layout *from, const treadle_layout *to,
                             const treadle_report_options *like, int64_t rank,
                             const treadle_plan_info *planned) {
  treadle_report_options options = *like;
  treadle_report_info info = TREADLE_INIT(treadle_report_info);
  treadle_node_info node = TREADLE_INIT(treadle_node_info);
  treadle_report *report;
  options.one_rank = true;
  options.rank = rank;
  assert_ok(treadle_report_create(from, to, &options, &report));
  treadle_report_get_info(report, &info);
  assert_ok(treadle_report_node(report, like->node_of[rank], &node));
  assert_int_equal(info.node_moved_bytes, planned->node_moved_bytes);
  assert_int_equal(info.relayed_bytes, planned->relayed_bytes);
  assert_int_equal(node.moved_bytes, planned->node_moved_bytes);
  assert_int_equal(node.sent_bytes, info.node_outbound_max_bytes);
  assert_true(node.lower_bound_bytes >= node.moved_bytes);
  treadle_report_destroy(report);
  return info.staging_bytes;
}

/* A report's figures are those of the plans, and what enters nodes has left others. full: some rank's staging is as large as it may be,
 * and the report walks the others in one wave. */
static void check_report(const small_config *config, bool full) {
  treadle_model *model = small_model(config);
  treadle_layout *from, *to;
  treadle_report *report;
  treadle_report_info info = TREADLE_INIT(treadle_report_info);
  static const int32_t of[8] = {0, 0, 1, 1, 2, 2, 3, 3};
  const treadle_report_options options = {.struct_size = sizeof options, .page_bytes = 4096, .node_of = of};
  assert_ok(treadle_layout_create(model, "megatron:tp=2,pp=2", 8, NULL, &from));
  assert_ok(treadle_layout_create(model, "vllm:tp=2", 8, NULL, &to));
  assert_ok(treadle_report_create(from, to, &options, &report));
  treadle_report_get_info(report, &info);
  size_t moved = 0, relayed = 0, sent = 0, staging = 0, by_node[4] = {0}, sent_by[4] = {0}, inbound[8];
  for (int64_t r = 0; r < 8; r++) {
    const treadle_plan_options terms = {.struct_size = sizeof terms,
                                        .page_bytes = 4096,
                                        .cap_bytes = info.cap_bytes,
                                        .waves = info.waves,
                                        .node_of = of};
    treadle_plan_info one = TREADLE_INIT(treadle_plan_info), said = one;
    treadle_plan *plan;
    assert_ok(treadle_plan_create(from, to, r, &terms, &plan));
    treadle_plan_get_info(plan, &one);
    assert_ok(treadle_report_rank(report, r, &said));
    assert_int_equal(said.node_moved_bytes, one.node_moved_bytes);
    assert_int_equal(said.relayed_bytes, one.relayed_bytes);
    staging = treadle_larger_size(staging, check_one_rank(from, to, &options, r, &one));
    treadle_plan_inbound(plan, inbound);
    for (int64_t source = 0; source < 8; source++)
      if (of[source] != of[r]) sent_by[of[source]] += inbound[source];
    by_node[of[r]] += one.node_moved_bytes;
    moved += one.node_moved_bytes;
    relayed += one.relayed_bytes;
    treadle_plan_destroy(plan);
  }
  assert_true(info.nodes == 4 && info.node_moved_bytes == moved && info.relayed_bytes == relayed);
  assert_int_equal(moved, info.node_lower_bound_bytes);
  assert_true(moved > 0 && info.node_link_load >= 1);
  assert_in_range(info.staging_bytes, 1, 2 * TREADLE_NET_FLIGHT * TREADLE_NET_MESSAGE);
  assert_int_equal(info.staging_bytes, staging);
  assert_true((info.staging_bytes == 2 * TREADLE_NET_FLIGHT * TREADLE_NET_MESSAGE) == full);
  for (int32_t n = 0; n < 4; n++) {
    treadle_node_info node = TREADLE_INIT(treadle_node_info);
    assert_ok(treadle_report_node(report, n, &node));
    assert_int_equal(node.ranks, 2);
    assert_int_equal(node.moved_bytes, by_node[n]);
    assert_int_equal(node.moved_bytes, node.lower_bound_bytes);
    assert_int_equal(node.sent_bytes, sent_by[n]);
    assert_true(node.moved_bytes <= info.node_inbound_max_bytes &&
                node.sent_bytes <= info.node_outbound_max_bytes);
    sent += node.sent_bytes;
  }
  assert_int_equal(sent, moved);
  treadle_report_destroy(report);
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
}

static void reports_add_up(void **state) {
  (void)state;
  static const small_config large = {.V = 4096, .H = 1024, .L = 4, .nh = 8, .ng = 4, .hd = 128, .I = 4096};
  check_report(&llama, false);
  check_report(&large, true);
}

/* Most of 512 nodes are equal. What enters each is its own bound, and has left others. */
static void reports_of_many_ranks(void **state) {
  (void)state;
  enum { RANKS = 2048, NODES = 512 };
  treadle_model *model = small_model(&llama);
  treadle_layout *from, *to;
  treadle_report *report;
  treadle_report_info info = TREADLE_INIT(treadle_report_info);
  static int32_t of[RANKS];
  size_t sent = 0;
  treadle_nodes nodes;
  for (int32_t r = 0; r < RANKS; r++) of[r] = r / (RANKS / NODES);
  const treadle_report_options options = {.struct_size = sizeof options, .page_bytes = 4096, .node_of = of};
  assert_ok(treadle_nodes_make(of, RANKS, &nodes));
  assert_ok(treadle_layout_create(model, "megatron:tp=2,pp=4", RANKS, NULL, &from));
  assert_ok(treadle_layout_create(model, "vllm:tp=4", RANKS, NULL, &to));
  assert_ok(treadle_report_create(from, to, &options, &report));
  treadle_report_get_info(report, &info);
  assert_int_equal(info.nodes, NODES);
  assert_int_equal(info.node_moved_bytes, info.node_lower_bound_bytes);
  for (int32_t n = 0; n < NODES; n++) {
    treadle_node_info node = TREADLE_INIT(treadle_node_info);
    int64_t bound;
    assert_ok(treadle_report_node(report, n, &node));
    assert_ok(treadle_layout_inbound_node(from, to, &nodes, n, &bound));
    assert_int_equal(node.lower_bound_bytes, bound);
    assert_int_equal(node.moved_bytes, bound);
    sent += node.sent_bytes;
  }
  assert_int_equal(sent, info.node_moved_bytes);
  treadle_nodes_release(&nodes);
  treadle_report_destroy(report);
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_grid_of_pairs),  cmocka_unit_test(replicas_share_inside),
      cmocka_unit_test(permuted_devices), cmocka_unit_test(one_node_changes_nothing),
      cmocka_unit_test(reports_add_up),   cmocka_unit_test(reports_of_many_ranks),

      cmocka_unit_test(random_pairs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
