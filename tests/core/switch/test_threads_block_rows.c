/* Switches that quantise and dequantise, with ranks as threads and delays at every wait: one way between layouts of
 * which one holds fp8 blocks, there and back between two that do; windows against what the layouts are loaded with.
 * ctest: stage=gcc label=threads timeout=900 */
#include "carry/planted.h"
#include "group/ranks.h"
#include "plan/one_rank.h"
#include "switch/block_models.h"
#include "switch/switch.h"
#include "test.h"

enum { RANKS = 4, PAGE = 4096 };

static const char *const finer_pairs[][2] = {
    {"megatron:tp=2,ep=2,etp=2", "vllm:tp=4"},
    {"fsdp2", "vllm:tp=2,dp=2"},
    {"vllm:tp=4", "megatron:tp=2,ep=2,etp=2"},
    {"hf", "vllm:tp=4"},
};

static const char *const square_pairs[][2] = {
    {"fsdp2", "vllm:tp=2"},
    {"hf:dtype=bf16", "vllm:tp=2,dp=2,ep=on"},
    {"hf", "sglang:tp=2"},
    {"vllm:tp=2", "zero3"},
};

static const char *const pairs[][2] = {
    {"megatron:tp=2,pp=2,ep=2,etp=1", "vllm:tp=2,dp=2,ep=on"},
    {"megatron:tp=4,ep=2,etp=2", "sglang:tp=2"},
    {"megatron:tp=2,ep=4,etp=1", "hf:root=2"},
    {"vllm:tp=2,dp=2,ep=on", "megatron:tp=2,pp=2,ep=2,etp=1"},
    {"hf", "megatron:tp=4,ep=2,etp=2"},
    {"hf:root=1", "vllm:tp=4,dtype=bf16"},
    {"hf", "vllm:tp=2,dp=2,ep=on"},
    {"vllm:tp=2", "sglang:tp=2"},
};

typedef struct play {
  const treadle_layout *train, *infer;
  size_t cap;
  bool stream; /* the mover that this processor is best served with */
  uint64_t seed;
} play;

static int play_rank(treadle_group *group, void *context) {
  const play *p = context;
  treadle_switch *sw;
  uint64_t before, after;
  bool one_way = !treadle_plan_is_lossless(p->train, p->infer);
  treadle_switch_options options = {.struct_size = sizeof(treadle_switch_options),
                                    .page_bytes = PAGE,
                                    .cap_bytes = p->cap,
                                    .one_way = one_way,
                                    .timeout_seconds = 100};
  RANK_OK(treadle_switch_create(group, p->train, p->infer, &options, &sw));
  if (!p->stream) sw->device = *treadle_device_plain();
  RANK_OK(treadle_layout_load(p->train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_switch_digest(sw, &before));
  for (uint64_t i = 0; i < 2; i++) {
    treadle_switch_noise(sw, i + 1);
    RANK_OK(treadle_switch_to_infer(sw));
    RANK_TRUE(block_model_holds(p->infer, p->train, group->rank, treadle_switch_infer_window(sw)));
    treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
    treadle_switch_get_stats(sw, &stats);
    RANK_TRUE((int64_t)(stats.copied_bytes + stats.filled_bytes) == sw->carry.plan->forward.written_bytes);
    RANK_TRUE((int64_t)stats.pulled_bytes == sw->carry.plan->forward.moved_bytes);
    RANK_TRUE((int64_t)stats.node_moved_bytes == sw->carry.plan->forward.node_moved_bytes);
    RANK_TRUE((int64_t)stats.relayed_bytes == sw->carry.plan->forward.relayed_bytes);
    RANK_TRUE(stats.peak_bytes <= stats.pool_bytes);
    if (one_way) break;
    RANK_OK(treadle_switch_digest(sw, &after));
    RANK_TRUE(after == before);
    treadle_switch_noise(sw, ~i);
    RANK_OK(treadle_switch_to_train(sw));
    RANK_TRUE(block_model_holds(p->train, NULL, group->rank, treadle_switch_train_window(sw)));
  }
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static int refused_rank(treadle_group *group, void *context) {
  const play *p = context;
  treadle_switch *sw;
  treadle_switch_options options = {
      .struct_size = sizeof(treadle_switch_options), .page_bytes = PAGE, .timeout_seconds = 100};
  RANK_FAILS(TREADLE_REFUSED, "one way only",
             treadle_switch_create(group, p->train, p->infer, &options, &sw));
  return 0;
}

static void play_all(block_model which, const char *const texts[][2], size_t count) {
  treadle_model *model = block_model_make(which);
  for (size_t i = 0; i < count; i++) {
    treadle_layout *train, *infer;
    int64_t cap = 1, own;
    assert_ok(treadle_layout_create(model, texts[i][0], RANKS, NULL, &train));
    assert_ok(treadle_layout_create(model, texts[i][1], RANKS, NULL, &infer));
    for (int rank = 0; rank < RANKS; rank++) {
      assert_ok(one_rank_cap_min(train, infer, rank, PAGE, &own));
      if (own > cap) cap = own;
    }
    for (uint64_t seed = 1; seed <= test_seeds(3); seed++) {
      play p = {train, infer, (size_t)(cap + (int64_t)(seed % 3) * 3 * PAGE), seed == 2, seed};
      ranks_as_threads(RANKS, 100, seed, play_rank, &p);
    }
    if (!treadle_plan_is_lossless(train, infer)) {
      play p = {.train = train, .infer = infer};
      ranks_as_threads(RANKS, 100, 1, refused_rank, &p);
    }
    treadle_layout_destroy(train);
    treadle_layout_destroy(infer);
  }
  treadle_model_close(model);
}

/* ---- Planted faults ---- */

typedef struct spoiling {
  play p;
  treadle_fault fault;
  int rank;
  uint64_t seed;
} spoiling;

/* What is left out or made in a wrong wave is caught by coverage; a wrong scale by comparing the window, on that rank. */
static int spoiled_rank(treadle_group *group, void *context) {
  const spoiling *s = context;
  const play *p = &s->p;
  treadle_switch *sw;
  char words[64];
  treadle_switch_options options = {.struct_size = sizeof(treadle_switch_options),
                                    .page_bytes = PAGE,
                                    .cap_bytes = p->cap,
                                    .one_way = true,
                                    .timeout_seconds = 100};
  RANK_OK(treadle_switch_create(group, p->train, p->infer, &options, &sw));
  RANK_OK(treadle_layout_load(p->train, group->rank, treadle_switch_train_window(sw)));
  treadle_switch_noise(sw, s->seed);
  RANK_OK(treadle_switch_plant(sw, s->fault, s->rank, s->seed));
  treadle_status status = treadle_switch_to_infer(sw);
  if (s->fault == TREADLE_FAULT_BLOCK_ROW_SCALE) {
    RANK_OK(status);
    bool same = block_model_holds(p->infer, p->train, group->rank, treadle_switch_infer_window(sw));
    RANK_TRUE(same == (group->rank != s->rank));
  } else {
    RANK_TRUE(status == (group->rank == s->rank ? TREADLE_DIFFERENT : TREADLE_PEER));
    snprintf(words, sizeof words, "coverage: rank %d: blocks of tensor '", s->rank);
    RANK_TRUE(strstr(treadle_error_message(), words));
    RANK_TRUE(strstr(treadle_error_message(), s->fault == TREADLE_FAULT_BLOCK_ROW_DROP
                                                  ? "were written 0 times"
                                                  : "instead of wave"));
  }
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_planted_faults(void **state) {
  static const treadle_fault faults[] = {TREADLE_FAULT_BLOCK_ROW_DROP, TREADLE_FAULT_BLOCK_ROW_LATE,
                                         TREADLE_FAULT_BLOCK_ROW_SCALE};
  (void)state;
  treadle_model *model = block_model_make(BLOCK_MODEL_LATENT);
  for (int i = 0; i < 12; i++) {
    const char *const *texts = i % 2 ? pairs[3] : pairs[0]; /* to bf16, to fp8 */
    spoiling s = {.fault = faults[i / 2 % 3], .rank = i % RANKS, .seed = (uint64_t)i * 7919};
    treadle_layout *train, *infer;
    int64_t cap = 1, own;
    assert_ok(treadle_layout_create(model, texts[0], RANKS, NULL, &train));
    assert_ok(treadle_layout_create(model, texts[1], RANKS, NULL, &infer));
    for (int rank = 0; rank < RANKS; rank++) {
      assert_ok(one_rank_cap_min(train, infer, rank, PAGE, &own));
      if (own > cap) cap = own;
    }
    s.p = (play){train, infer, (size_t)cap, true, 0};
    ranks_as_threads(RANKS, 100, (uint64_t)i, spoiled_rank, &s);
    treadle_layout_destroy(train);
    treadle_layout_destroy(infer);
  }
  treadle_model_close(model);
}

static void test_pairs(void **state) {
  (void)state;
  play_all(BLOCK_MODEL_LATENT, pairs, TEST_COUNT(pairs));
}

static void test_finer_blocks(void **state) {
  (void)state;
  play_all(BLOCK_MODEL_FINER, finer_pairs, TEST_COUNT(finer_pairs));
}

static void test_square_blocks(void **state) {
  (void)state;
  play_all(BLOCK_MODEL_SQUARE, square_pairs, TEST_COUNT(square_pairs));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs), cmocka_unit_test(test_finer_blocks),
                                     cmocka_unit_test(test_square_blocks)},
                          faults[] = {cmocka_unit_test(test_planted_faults)};
  return cmocka_run_group_tests(tests, NULL, NULL) + cmocka_run_group_tests(faults, NULL, NULL) +
         RANKS_OVER_NODES(tests);
}
