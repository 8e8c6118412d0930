/* The peak of a switch over a grid of layouts, measured: what the pool accounts, what its file holds
 * (st_blocks), and what the process takes besides (anonymous memory), with the smallest cap and with 256
 * MiB, under a budget of exactly the bound. One page less is refused on every rank before anything is made.
 * ctest: stage=gcc timeout=600 */
#include "plan/one_rank.h"
#include "switch/switch.h"
#include "test.h"
#include "group/ranks.h"

#include <jansson.h>

enum { RANKS = 8, PAGE = 64 << 10, DEFAULT_CAP = 256 << 20, SLACK = 1 << 20 };

static const char config[] =
    "{\"model_type\": \"qwen2\", \"vocab_size\": 5003, \"hidden_size\": 192, \"num_hidden_layers\": 8,"
    " \"num_attention_heads\": 24, \"num_key_value_heads\": 4, \"intermediate_size\": 528,"
    " \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}";

static const char *const grid[][2] = {
    {"megatron:tp=8", "vllm:tp=8"},
    {"megatron:tp=4,pp=2", "vllm:tp=2"},
    {"megatron:tp=2,pp=4", "vllm:tp=8"},
    {"megatron:tp=2,pp=2,vpp=2,cp=2", "sglang:tp=4,pp=2"},
    {"megatron:pp=8", "vllm:tp=4"},
    {"megatron:tp=8", "vllm:tp=2,pp=4"},
    {"megatron:tp=4,pp=2,order=tp-cp-ep-pp-dp", "sglang:tp=8,attn_dp=2"},
    {"megatron:tp=1,pp=4,layout=\"Et|t*3|t*4|L\"", "vllm"},
    {"hf", "vllm:tp=8"},
    {"hf:root=3", "sglang:tp=2"},
    {"vllm:tp=8", "megatron:tp=2,pp=4"},
    {"megatron:tp=4,dtype=bf16", "vllm:tp=8,dtype=fp32"},
};

typedef struct play {
  const treadle_layout *train, *infer;
  size_t cap;    /* 0: not given */
  size_t budget; /* of every rank: the largest bound */
} play;

/* Bytes of private memory of this process that the system has really given. */
static size_t anonymous_bytes(void) {
  char line[128];
  size_t kib = 0;
  FILE *file = fopen("/proc/self/smaps_rollup", "r");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "Anonymous: %zu kB", &kib) == 1) break;
  if (file) fclose(file);
  return kib << 10;
}

static int measure(treadle_group *group, void *context) {
  const play *p = context;
  treadle_switch_options options = {.struct_size = sizeof(treadle_switch_options),
                                    .page_bytes = PAGE,
                                    .cap_bytes = p->cap,
                                    .budget_bytes = p->budget - PAGE};
  treadle_switch *sw;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
  RANK_FAILS(TREADLE_REFUSED, "budget", treadle_switch_create(group, p->train, p->infer, &options, &sw));
  options.budget_bytes = p->budget;
  RANK_OK(treadle_switch_create(group, p->train, p->infer, &options, &sw));
  RANK_OK(treadle_layout_load(p->train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_group_barrier(group));
  size_t before = anonymous_bytes();
  for (int cycle = 0; cycle < 2; cycle++) {
    RANK_OK(treadle_switch_to_infer(sw));
    RANK_OK(treadle_switch_to_train(sw));
  }
  RANK_OK(treadle_group_barrier(group));
  size_t after = anonymous_bytes();
  treadle_switch_get_stats(sw, &stats);
  treadle_plan_get_info(treadle_switch_plan(sw), &info);
  RANK_TRUE(stats.peak_bytes <= info.peak_bytes && info.peak_bytes <= info.peak_bound_bytes);
  RANK_TRUE(stats.pool_bytes == info.peak_bytes && info.peak_bound_bytes <= p->budget);
  RANK_TRUE(after <= before + SLACK); /* a switch takes nothing else */
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static size_t whole_pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static void test_grid(void **state) {
  (void)state;
  json_t *json = json_loads(config, 0, NULL);
  treadle_model *model;
  assert_ok(treadle_model_from_config("config", json, NULL, &model));
  for (size_t i = 0; i < TEST_COUNT(grid); i++) {
    treadle_layout *train, *infer;
    size_t cap_min = 0, window = 0;
    assert_ok(treadle_layout_create(model, grid[i][0], RANKS, NULL, &train));
    assert_ok(treadle_layout_create(model, grid[i][1], RANKS, NULL, &infer));
    for (int64_t rank = 0; rank < RANKS; rank++) {
      int64_t own;
      assert_ok(one_rank_cap_min(train, infer, rank, PAGE, &own));
      if ((size_t)own > cap_min) cap_min = (size_t)own;
      size_t a = whole_pages(treadle_layout_window_bytes(train, rank));
      size_t b = whole_pages(treadle_layout_window_bytes(infer, rank));
      if (a > window) window = a;
      if (b > window) window = b;
    }
    print_message("%-40s %-24s cap_min %6.2f of the largest window\n", grid[i][0], grid[i][1],
                  (double)cap_min / (double)window);
    play tight = {train, infer, cap_min, window + cap_min},
         wide = {train, infer, DEFAULT_CAP, window + DEFAULT_CAP};
    ranks_as_threads(RANKS, 100, i + 1, measure, &tight);
    ranks_as_threads(RANKS, 100, i + 1, measure, &wide);
    treadle_layout_destroy(train);
    treadle_layout_destroy(infer);
  }
  treadle_model_close(model);
  json_decref(json);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_grid)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
