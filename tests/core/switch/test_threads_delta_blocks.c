/* Updates between nodes with changes alone, of pairs that make, read or pass fp8 blocks: what they leave in the infer windows is what updates
 * without leave there, bit for bit, when nothing has changed, signs alone (so no scale), scales, or anything, and after an update that failed.
 * Bytes are compared behind the cast, so where a scale has changed, all codes of its block have, and travel as what is the shortest.
 * ctest: label=threads timeout=600 */
#include "carry/net.h"
#include "group/ranks.h"
#include "seeds.h"
#include "switch/block_models.h"
#include "test.h"

#include "base/hash.h"

enum { RANKS = 4, PAGE = 4096, MANY = 1000000, FEW = MANY / 2000 };

typedef enum change { NOTHING, SIGNS, SCALES, ANYTHING } change;

/* An update each. Beside heads, between `least` and `most` of all there is travels. */
static const struct {
  change what;
  uint32_t share; /* of a million elements */
  double least, most;
  bool fails; /* before it goes well */
} steps[] = {
    {NOTHING, 0, 0, 0, false},        {SIGNS, FEW, 0, 0.05, false},  {SIGNS, MANY, 0.5, 1.01, false},
    {SCALES, FEW, 0, 1.01, false},    {NOTHING, 0, 0, 0, false},     {ANYTHING, MANY / 50, 0, 1.01, false},
    {SIGNS, FEW, 0, 1, true},         {SCALES, FEW, 0, 1.01, false}, {SIGNS, FEW, 0, 0.05, false},
    {ANYTHING, MANY, 0, 1.01, false}, {NOTHING, 0, 0, 0, false}};

enum { STEPS = TEST_COUNT(steps), FIRST_SCALES = 3 /* later ones find codes that are nearly all 0 */ };

static const struct {
  block_model model;
  const char *train, *infer;
  bool makes; /* blocks, of values */
} pairs[] = {{BLOCK_MODEL_FINER, "megatron:tp=2,ep=2,etp=2", "vllm:tp=4", true},
             {BLOCK_MODEL_LATENT, "megatron:tp=2,pp=2,ep=2,etp=1", "vllm:tp=2,dp=2,ep=on", true},
             {BLOCK_MODEL_LATENT, "hf:root=1", "vllm:tp=4,dtype=bf16", false},
             {BLOCK_MODEL_SQUARE, "hf:root=2", "sglang:tp=2", false},
             {BLOCK_MODEL_FINER, "hf:root=0", "vllm:tp=4", false},
             {BLOCK_MODEL_SQUARE, "fsdp2", "vllm:tp=2", true}};

typedef struct act {
  const treadle_layout *train, *infer;
  bool makes;
  size_t cap; /* 0: what is usual */
  _Atomic size_t heads, dense[STEPS], delta[STEPS], turned[STEPS],
      changed[STEPS]; /* bytes; elements, bytes */
} act;

/* ---- Training ---- */

/* Codes and values change their sign. Else a scale is doubled, or a value outgrows all of its block. */
static bool turn(const treadle_tensor *tensor, treadle_dtype dtype, change what, int step, uint8_t *at) {
  bool is_scale = tensor->scale_of >= 0;
  uint16_t large = (uint16_t)(0x4700 + (step << 7)); /* bf16: 32768, twice that in the next step */
  float scale;
  if (what == SIGNS && !is_scale) {
    at[treadle_dtype_bytes(dtype) - 1] ^= 0x80;
  } else if (what == SCALES && is_scale && dtype == TREADLE_FP32) {
    memcpy(&scale, at, sizeof scale);
    scale *= 2;
    memcpy(at, &scale, sizeof scale);
  } else if (what == SCALES && tensor->scale >= 0 && dtype == TREADLE_BF16) {
    memcpy(at, &large, sizeof large);
  } else {
    return false;
  }
  return true;
}

/* Some elements of a run that begins at `at`; returns how many. What each takes is read once: of each access the thread sanitizer makes a call. */
static size_t turn_run(const treadle_run *run, const treadle_tensor *tensor, treadle_dtype dtype, int step,
                       uint8_t *at) {
  const change what = steps[step].what;
  const uint32_t share = steps[step].share * (tensor->scale_of < 0 ? 1 : 50); /* there are few scales */
  const uint64_t key = (uint64_t)step << 32 | (uint64_t)run->tensor;
  const int64_t start = run->start, stride = run->stride, count = run->count;
  const size_t each = treadle_dtype_bytes(dtype);
  size_t turned = 0;
  for (int64_t k = 0; k < count; k++) {
    const uint64_t draw = treadle_hash_more(key, (uint64_t)(start + k * stride));
    if (treadle_mix64(draw) % MANY >= share) continue;
    const change one = what == ANYTHING ? draw >> 40 & 7 ? SIGNS : SCALES : what;
    turned += turn(tensor, dtype, one, step, at + (size_t)k * each);
  }
  return turned;
}

/* The same elements on all ranks. */
static treadle_status train(act *a, treadle_switch *sw, int step) {
  treadle_status status = TREADLE_OK;
  int rank = sw->group->rank;
  uint8_t *window = treadle_switch_train_window(sw);
  const treadle_model *model = a->train->model;
  for (int32_t s = 0; s < treadle_layout_storage_count(a->train, rank); s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    treadle_run *runs = NULL;
    size_t count;
    TRY(treadle_layout_storage(a->train, rank, s, &info));
    TRY(treadle_layout_runs(a->train, rank, s, &runs, &count));
    for (size_t i = 0; i < count; i++)
      if (runs[i].tensor >= 0)
        a->turned[step] += turn_run(
            &runs[i], &model->tensors[model->entries[runs[i].tensor].tensor], info.dtype, step,
            window + info.offset_bytes + (size_t)runs[i].local_start * treadle_dtype_bytes(info.dtype));
    free(runs);
  }
out:
  return status;
}

/* ---- Ranks ---- */

static treadle_status make(treadle_group *group, const act *a, bool delta, treadle_switch **sw_p) {
  treadle_status status = TREADLE_OK;
  treadle_switch_options options = {.struct_size = sizeof options,
                                    .page_bytes = PAGE,
                                    .cap_bytes = a->cap,
                                    .one_way = true,
                                    .timeout_seconds = 100,
                                    .offload_train_param = TREADLE_OFF,
                                    .delta = delta};
  TRY(treadle_switch_create(group, a->train, a->infer, &options, sw_p));
  TRY(treadle_layout_load(a->train, group->rank, treadle_switch_train_window(*sw_p)));
  TRY(treadle_group_barrier(group));
  TRY(treadle_switch_to_infer(*sw_p));
out:
  return status;
}

/* What each update leaves: kept in copies, of STEPS + 1 windows, or compared with them. */
static int look(act *a, treadle_switch *sw, int step, bool with, uint8_t *copies) {
  size_t bytes = treadle_layout_window_bytes(a->infer, sw->group->rank);
  const uint8_t *window = treadle_switch_infer_window(sw);
  uint8_t *copy = copies + (size_t)(step + 1) * bytes;
  if (!with) RANK_TRUE(memcmp(copy, window, bytes) == 0);
  if (with) memcpy(copy, window, bytes);
  size_t changed = 0; /* added once: of each access the thread sanitizer makes a call */
  for (size_t i = 0; with && step >= 0 && i < bytes; i++) changed += copy[i] != (copy - bytes)[i];
  if (step >= 0) a->changed[step] += changed;
  return 0;
}

/* In place of an update: it fails, and the next one does not. */
static int fails(treadle_switch *sw) {
  if (sw->group->rank == 1)
    RANK_OK(treadle_switch_inject(sw, (treadle_injection){TREADLE_INJECT_ENOMEM, TREADLE_AT_WAVE, 1}));
  RANK_OK(treadle_group_barrier(sw->group));
  RANK_TRUE(treadle_switch_update(sw) != TREADLE_OK && !treadle_switch_is_valid(sw));
  return 0;
}

static int play_one(treadle_group *group, act *a, bool with, uint8_t *copies) {
  treadle_switch *sw;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  RANK_OK(make(group, a, with, &sw));
  if (with) a->heads += sw->carry.net.out[TREADLE_INFER].traffic.message_count * TREADLE_NET_HEAD;
  RANK_TRUE(block_model_holds(a->infer, a->train, group->rank, treadle_switch_infer_window(sw)));
  if (look(a, sw, -1, with, copies)) return 1;
  for (int step = 0; step < STEPS; step++) {
    RANK_OK(treadle_group_barrier(group));
    RANK_OK(train(a, sw, step));
    if (with && steps[step].fails && fails(sw)) return 1;
    RANK_OK(treadle_switch_update(sw));
    RANK_TRUE(treadle_switch_is_valid(sw));
    if (look(a, sw, step, with, copies)) return 1;
    treadle_switch_get_stats(sw, &stats);
    RANK_TRUE(with || (stats.dense_bytes == 0 && stats.delta_bytes == 0));
    RANK_TRUE(stats.peak_bytes <= treadle_switch_bound(sw));
    a->dense[step] += stats.dense_bytes;
    a->delta[step] += stats.delta_bytes;
  }
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  RANK_OK(treadle_group_barrier(group));
  return 0;
}

static int play_rank(treadle_group *group, void *context) {
  act *a = context;
  uint8_t *copies = malloc((STEPS + 1) * treadle_layout_window_bytes(a->infer, group->rank) + 1);
  RANK_TRUE(copies);
  int result = play_one(group, a, true, copies) || play_one(group, a, false, copies);
  free(copies);
  return result;
}

/* ---- The test ---- */

static void judge(const act *a) {
  for (int step = 0; step < STEPS; step++) {
    assert_true(a->dense[step] > a->heads && a->heads > 0);
    if (steps[step].what == NOTHING) {
      assert_int_equal(a->delta[step], a->heads);
      assert_int_equal(a->changed[step], 0);
      continue;
    }
    assert_true(a->turned[step] > 0 && a->changed[step] > 0);
    double dense = (double)(a->dense[step] - a->heads), delta = (double)(a->delta[step] - a->heads);
    assert_true(delta > 0 && delta >= steps[step].least * dense && delta <= steps[step].most * dense);
    /* Codes of blocks are not what they were, since their scales are not. */
    if (a->makes && step == FIRST_SCALES)
      assert_true(a->changed[step] > 50 * a->turned[step] &&
                  a->delta[step] - a->heads > 5 * (a->delta[1] - a->heads));
  }
}

static void test_pairs(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(pairs); i += (size_t)test_step(TEST_COUNT(pairs))) {
    treadle_model *model = block_model_make(pairs[i].model);
    treadle_layout *train, *infer;
    int64_t cap = 1, own;
    assert_ok(treadle_layout_create(model, pairs[i].train, RANKS, NULL, &train));
    assert_ok(treadle_layout_create(model, pairs[i].infer, RANKS, NULL, &infer));
    for (int rank = 0; rank < RANKS; rank++) {
      const treadle_plan_base_options options = {.page_bytes = PAGE, .keep_params = true};
      treadle_plan_base plan_base = {0};
      assert_ok(treadle_plan_base_create(train, infer, rank, &options, &plan_base));
      own = plan_base.cap_min_bytes;
      if (own > cap) cap = own;
      treadle_plan_base_release(&plan_base);
    }
    for (uint64_t seed = 0; seed < 2; seed++) {
      act a = {.train = train, .infer = infer, .makes = pairs[i].makes, .cap = seed ? (size_t)cap : 0};
      ranks_as_threads(RANKS, 100, seed, play_rank, &a);
      judge(&a);
    }
    treadle_layout_destroy(train);
    treadle_layout_destroy(infer);
    treadle_model_close(model);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs)};
  return RANKS_OVER_NODES(tests);
}
