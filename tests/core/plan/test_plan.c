/* Plans through the library: cases that papers and other projects state (T numbers: docs/rules.md 13), the
 * peak bound over real shapes, digests, determinism, and failing allocations. */
/* ctest: timeout=600 */
#include "plan/one_rank.h"
#include "test.h"

#include "plan/lanes.h"
#include "plan/small.h"

#include <inttypes.h>

static const size_t mib = 1 << 20;

static treadle_layout *create(const treadle_model *model, const char *text, int64_t ranks) {
  treadle_layout *layout;
  if (treadle_layout_create(model, text, ranks, NULL, &layout) != TREADLE_OK)
    fail_msg("%s on %" PRId64 " ranks: %s", text, ranks, treadle_error_message());
  return layout;
}

static treadle_plan *plan_of(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                             size_t page, size_t cap) {
  treadle_plan *plan;
  treadle_plan_options options = {
      .struct_size = sizeof(treadle_plan_options), .page_bytes = page, .cap_bytes = cap};
  if (treadle_plan_create(from, to, rank, &options, &plan) != TREADLE_OK)
    fail_msg("'%s' to '%s', rank %" PRId64 ": %s", from->text, to->text, rank, treadle_error_message());
  return plan;
}

/* Every tensor but the norms is cut by tp. */
static const small_config all_cut = {.V = 2048, .H = 64, .L = 4, .nh = 8, .ng = 4, .hd = 8, .I = 128};
static const small_config llama_8b = {
    .V = 128256, .H = 4096, .L = 32, .nh = 32, .ng = 8, .hd = 128, .I = 14336};
static const small_config llama_70b = {
    .V = 128256, .H = 8192, .L = 80, .nh = 64, .ng = 8, .hd = 128, .I = 28672};

/* ---- T1: HybridFlow, figure 8 and table 2 ---- */

static void check_figure_8(treadle_rank_map map, const char *map_text, double largest, double mean) {
  treadle_model *model = small_model(&all_cut);
  treadle_layout *train = create(model, "megatron:tp=4", 8), *infer = create(model, "vllm:tp=2", 8);
  assert_ok(treadle_layout_map_ranks(infer, train, map, NULL));
  assert_string_equal(treadle_layout_rank_map(infer), map_text);
  int64_t norms = (2 * all_cut.L + 1) * all_cut.H * 2, bytes = treadle_model_bytes(model),
          cut = bytes - norms;
  int64_t most = 0, sum = 0;
  for (int64_t r = 0; r < 8; r++) {
    treadle_plan *plan = plan_of(train, infer, r, 4096, mib);
    treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
    treadle_plan_get_info(plan, &info);
    assert_int_equal(info.moved_bytes, info.lower_bound_bytes);
    sum += (int64_t)info.moved_bytes;
    if ((int64_t)info.moved_bytes > most) most = (int64_t)info.moved_bytes;
    if (map != TREADLE_CONTIGUOUS) { /* the same on every rank, from holders of the other quarter */
      assert_int_equal(info.moved_bytes * 4, cut);
      size_t inbound[8];
      treadle_plan_inbound(plan, inbound);
      for (int64_t s = 0; s < 8; s++) /* half h of its tp block, from replicas of the other quarter of h */
        if (inbound[s] > 0) assert_int_equal(s % 4, r % 4 ^ 1);
    }
    treadle_plan_destroy(plan);
  }
  assert_true((double)most == largest * (double)cut);
  assert_true((double)sum == mean * 8 * (double)cut);
  assert_true((double)most / (double)bytes > largest - 1e-3 && (double)most / (double)bytes <= largest);
  assert_true((double)sum / 8 / (double)bytes > mean - 1e-3 && (double)sum / 8 / (double)bytes <= mean);
  treadle_layout_destroy(train);
  treadle_layout_destroy(infer);
  treadle_model_close(model);
}

static void figure_8_of_hybridflow(void **state) {
  (void)state;
  check_figure_8(TREADLE_BEST, "strided:2", 0.25, 0.25);
  check_figure_8(TREADLE_STRIDED, "strided", 0.25, 0.25);
  check_figure_8(TREADLE_CONTIGUOUS, "contiguous", 0.5, 0.375);
}

/* With consecutive ranks, ranks 2, 3, 6 and 7 of 1..8 hold nothing of the cut tensors that they need. */
static void ranks_that_hold_nothing_they_need(void **state) {
  (void)state;
  treadle_model *model = small_model(&all_cut);
  treadle_layout *train = create(model, "megatron:tp=4", 8), *infer = create(model, "vllm:tp=2", 8);
  int64_t norms = (2 * all_cut.L + 1) * all_cut.H * 2, cut = treadle_model_bytes(model) - norms;
  for (int64_t r = 0; r < 8; r++) {
    treadle_plan *plan = plan_of(train, infer, r, 4096, mib);
    bool nothing = r % 4 == 1 || r % 4 == 2;
    assert_int_equal(plan->forward.resident_bytes, norms + (nothing ? 0 : cut / 4));
    assert_int_equal(plan->forward.moved_bytes, nothing ? cut / 2 : cut / 4);
    treadle_plan_destroy(plan);
  }
  treadle_layout_destroy(train);
  treadle_layout_destroy(infer);
  treadle_model_close(model);
}

/* ---- T3, T4, T19 and what is not covered there: played, both ways, bits and bounds ---- */

typedef struct row {
  int64_t ranks;
  const char *from, *to;
} row;

static void play_rows(const small_config *config, const row *rows, size_t count) {
  for (size_t i = 0; i < count; i++) {
    pair_result result = small_play(config, rows[i].ranks, rows[i].from, rows[i].to, 1);
    if (result.moved != result.bound || !result.lossless)
      fail_msg("%s to %s: %" PRId64 " moved, bound %" PRId64, rows[i].from, rows[i].to, result.moved,
               result.bound);
  }
}

static const small_config dense = {.V = 300, .H = 24, .L = 4, .nh = 8, .ng = 4, .hd = 4, .I = 40};

static void megatron_core_rows(void **state) { /* T3, and the dense rows of T4 as tp, pp */
  (void)state;
  static const row rows[] = {
      {2, "megatron:tp=2", "megatron"},      {2, "megatron", "megatron:tp=2"},
      {4, "megatron:tp=2", "megatron:tp=4"}, {2, "megatron:tp=2", "megatron:tp=2"},
      {4, "megatron:tp=4", "megatron:tp=2"}, {2, "megatron:pp=2", "megatron"},
      {2, "megatron", "megatron:pp=2"},      {4, "megatron:tp=2,pp=2", "megatron"},
      {4, "megatron", "megatron:tp=2,pp=2"}, {2, "megatron:tp=2", "megatron:pp=2"},
      {2, "megatron:pp=2", "megatron:tp=2"}, {8, "megatron:pp=2", "megatron:tp=2,pp=4"},
  };
  play_rows(&dense, rows, TEST_COUNT(rows));
  small_config tied = dense;
  tied.tied = true;
  play_rows(&tied, rows, TEST_COUNT(rows));
}

static void training_to_generation(void **state) {
  (void)state;
  static const row rows[] = {
      {4, "megatron:tp=2,pp=2", "vllm:tp=4"},
      {4, "megatron:tp=4", "vllm:tp=2,pp=2"},
      {8, "megatron:tp=2,pp=2,vpp=2", "vllm:tp=8"}, /* KV heads are replicated */
      {8, "megatron:tp=8", "sglang:tp=8,attn_dp=2"},
      {8, "megatron:tp=2,pp=4,first=1,last=1,dp=1", "sglang:tp=4,pp=2"},
      {4, "megatron:pp=4", "hf"},
      {4, "hf:root=2", "megatron:tp=2,pp=2,order=tp-cp-ep-pp-dp"},
      {4, "megatron:tp=2,layout=\"Et|tt|t|L\",pp=2,spec=local", "vllm:pp=4,partition=\"1,2,0,1\""},
      {6, "megatron:pp=3,embedding_split=on,loss_split=on", "vllm:tp=2,pp=3"},
  };
  play_rows(&dense, rows, TEST_COUNT(rows));
}

static void
sizes_that_are_no_multiples(void **state) { /* tp 2 and 3, 4 and 6; odd stages; odd vocabulary */
  (void)state;
  static const small_config twelve = {.V = 150, .H = 12, .L = 7, .nh = 12, .ng = 12, .hd = 2, .I = 24};
  static const row rows[] = {
      {6, "megatron:tp=2", "vllm:tp=3"},
      {6, "megatron:tp=3", "vllm:tp=2"},
      {6, "megatron:tp=2,pp=3,first=1", "megatron:tp=3,pp=2,last=3"},
      {12, "megatron:tp=4", "vllm:tp=6"},
      {12, "megatron:tp=6", "vllm:tp=4"},
      {12, "megatron:tp=4,pp=3,last=3", "sglang:tp=6,pp=2"},
      {5, "megatron:pp=5,first=2,last=2", "sglang:pp=5"},
  };
  play_rows(&twelve, rows, TEST_COUNT(rows));
  static const small_config odd_words = {
      .V = 101, .H = 5, .L = 1, .nh = 4, .ng = 2, .hd = 3, .I = 4, .dtype = "float32"};
  static const row words[] = {
      {4, "megatron:tp=4,vocab_divisible_by=1", "vllm:tp=2"}, /* 26 rows a rank against 64 */
      {4, "megatron:tp=2,padded_vocab_size=102", "vllm:tp=4"},
      {4, "megatron:tp=4,vocab_divisible_by=30", "sglang:tp=4"},
  };
  play_rows(&odd_words, words, TEST_COUNT(words));
}

static void
replicas_in_permuted_order(void **state) { /* T19: each replica reads its own, and each byte once */
  (void)state;
  for (int64_t f = 1; f <= 4; f *= 2) small_play(&dense, 8, "megatron:tp=4,pp=2", "vllm:tp=2", f);
  small_play(&dense, 8, "megatron:tp=2", "vllm:tp=2,dp=2", 2);
  small_play(&dense, 6, "megatron:tp=2,pp=3,first=1,last=1", "vllm:tp=2", 3);
}

static void casts_on_the_way(void **state) {
  (void)state;
  assert_true(small_play(&dense, 2, "megatron:tp=2,dtype=fp32", "vllm:tp=2", 1).lossless == false);
  assert_true(small_play(&dense, 2, "megatron:tp=2", "vllm:tp=1,dtype=fp32", 1).lossless);
  assert_true(small_play(&dense, 2, "megatron:tp=2,dtype=fp16", "vllm:tp=1,dtype=bf16", 1).lossless ==
              false);
}

/* ---- The bound on the peak ---- */

static void check_bound(const treadle_plan *plan) {
  treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
  treadle_plan_get_info(plan, &info);
  size_t larger = info.from_bytes > info.to_bytes ? info.from_bytes : info.to_bytes;
  assert_int_equal(info.peak_bound_bytes, larger + info.cap_bytes);
  if (info.peak_bytes > info.peak_bound_bytes)
    fail_msg("'%s' to '%s', rank %" PRId64 ": peak %zu over its bound %zu", plan->from->text,
             plan->to->text, plan->rank, info.peak_bytes, info.peak_bound_bytes);
  assert_int_equal(info.moved_bytes, info.lower_bound_bytes);
  assert_int_equal(info.back_moved_bytes, info.back_lower_bound_bytes);
}

/* cap_min is the largest of all ranks; with it and with 256 MiB the bound holds, with a page less a rank
 * refuses. */
static void check_pair(const treadle_model *model, int64_t ranks, const char *from_text,
                       const char *to_text) {
  size_t page = 2 * mib, cap_min = 0, cap;
  treadle_layout *from = create(model, from_text, ranks), *to = create(model, to_text, ranks);
  int64_t of_rank, worst = 0;
  for (int64_t r = 0; r < ranks; r++) {
    assert_ok(one_rank_cap_min(from, to, r, (int64_t)page, &of_rank));
    if ((size_t)of_rank > cap_min) cap_min = (size_t)of_rank, worst = r;
  }
  cap = cap_min > 256 * mib ? cap_min : 256 * mib;
  for (int64_t r = 0; r < ranks; r++) {
    treadle_plan *plan = plan_of(from, to, r, page, cap);
    check_bound(plan);
    treadle_plan_destroy(plan);
  }
  if (cap_min > 0) {
    treadle_plan *plan = plan_of(from, to, worst, page, cap_min);
    check_bound(plan);
    treadle_plan_destroy(plan);
  }
  if (cap_min > page) {
    treadle_plan_options less = {
        .struct_size = sizeof(treadle_plan_options), .page_bytes = page, .cap_bytes = cap_min - page};
    treadle_plan *plan;
    assert_refused("less than cap_min", treadle_plan_create(from, to, worst, &less, &plan));
    assert_null(plan);
  }
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
}

/* Dense configs that people run; those that are not here are left out. */
static const char *const configs[] = {"Qwen--Qwen2.5-1.5B",
                                      "Qwen--Qwen2.5-7B",
                                      "Qwen--Qwen2.5-32B",
                                      "Qwen--Qwen3-0.6B",
                                      "Qwen--Qwen3-8B",
                                      "Qwen--Qwen3-32B",
                                      "meta-llama--Meta-Llama-3.1-70B"};
static const row real_pairs[] = {
    {1, "megatron", "vllm"},
    {2, "megatron:tp=2", "vllm"},
    {4, "megatron:tp=4", "vllm:tp=2"},
    {4, "megatron:tp=2", "vllm:tp=4"},
    {4, "megatron:tp=2,pp=2", "sglang:tp=4"},
    {4, "megatron:pp=4", "vllm:tp=4"},
    {8, "megatron:tp=4,pp=2,vpp=2", "vllm:tp=8"},
    {8, "megatron:tp=2,pp=4", "sglang:tp=4,pp=2"},
    {2, "hf", "vllm:tp=2,dtype=fp16"},
};

static int64_t check_real_pairs(const treadle_model *model) {
  int64_t checked = 0;
  for (size_t i = 0; i < TEST_COUNT(real_pairs); i++) {
    treadle_layout *from, *to = NULL; /* some heads do not divide by 8 */
    bool legal =
        treadle_layout_create(model, real_pairs[i].from, real_pairs[i].ranks, NULL, &from) == TREADLE_OK &&
        treadle_layout_create(model, real_pairs[i].to, real_pairs[i].ranks, NULL, &to) == TREADLE_OK;
    treadle_layout_destroy(from);
    treadle_layout_destroy(to);
    if (legal) check_pair(model, real_pairs[i].ranks, real_pairs[i].from, real_pairs[i].to);
    checked += legal;
  }
  return checked;
}

static void peaks_of_real_models(void **state) {
  (void)state;
  treadle_model *model = small_model(&llama_8b);
  assert_int_equal(check_real_pairs(model), TEST_COUNT(real_pairs));
  treadle_model_close(model);
  for (size_t i = 0; i < TEST_COUNT(configs); i += (size_t)test_step(4)) {
    char path[256];
    snprintf(path, sizeof path, "%s/../shared/data/configs/%s.config.json", TREADLE_SOURCE_DIR, configs[i]);
    if (access(path, R_OK) != 0) {
      print_message("%s is not here\n", path);
      continue;
    }
    assert_ok(treadle_model_open(path, NULL, &model));
    int64_t checked = check_real_pairs(model);
    print_message("%s: %" PRId64 " of %zu pairs\n", configs[i], checked, TEST_COUNT(real_pairs));
    assert_true(checked >= 5);
    treadle_model_close(model);
  }
}

static void one_huge_tensor(void **state) { /* T15: an embedding of 1,853,358,080 bytes */
  (void)state;
  static const small_config huge = {
      .V = 180992, .H = 5120, .L = 1, .nh = 4, .ng = 4, .hd = 128, .I = 512, .tied = true};
  treadle_model *model = small_model(&huge);
  treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
  assert_ok(treadle_model_tensor(model, 0, &info));
  assert_int_equal(info.elems * 2, 1853358080);
  check_pair(model, 4, "megatron:tp=4", "vllm:tp=2");
  check_pair(model, 4, "hf", "vllm:tp=4");
  check_pair(model, 4, "hf:root=0", "vllm:tp=4");
  check_pair(model, 2, "megatron:tp=2", "sglang");
  treadle_model_close(model);
}

static void
waves_at_the_border_of_a_cap(void **state) { /* T22: eight windows a cap: one wave; a byte less: two */
  (void)state;
  treadle_model *model = small_model(&all_cut);
  treadle_layout *from = create(model, "megatron", 1), *to = create(model, "vllm", 1);
  int64_t bytes = (treadle_layout_window_max(from) + 4095) / 4096 * 4096;
  assert_int_equal(treadle_plan_waves(from, to, 4096, 8 * bytes), 1);
  assert_int_equal(treadle_plan_waves(from, to, 4096, 8 * bytes - 1), 2);
  assert_int_equal(treadle_plan_waves(from, to, 4096, 8 * bytes / 10 + 1), 10);
  assert_int_equal(treadle_plan_waves(from, to, 4096, 1), 4096);
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
}

/* ---- Digests, text, and what is told ---- */

static char *printed(const treadle_plan *plan) {
  char *text;
  size_t size;
  FILE *file = open_memstream(&text, &size);
  assert_non_null(file);
  assert_ok(treadle_plan_print(plan, file));
  fclose(file);
  return text;
}

static void the_same_plan_twice(void **state) {
  (void)state;
  treadle_model *model = small_model(&all_cut), *again = small_model(&all_cut);
  for (int64_t r = 0; r < 4; r++) {
    char *text[2];
    for (int i = 0; i < 2; i++) { /* all of it from the beginning */
      treadle_layout *from = create(i ? again : model, "megatron:tp=2,pp=2", 4);
      treadle_layout *to = create(i ? again : model, "vllm:tp=4", 4);
      treadle_plan *plan = plan_of(from, to, r, 4096, 65536);
      assert_true(plan->waves > 1);
      text[i] = printed(plan);
      treadle_plan_destroy(plan);
      treadle_layout_destroy(from);
      treadle_layout_destroy(to);
    }
    assert_string_equal(text[0], text[1]);
    assert_non_null(strstr(text[0], "pull rank "));
    assert_non_null(strstr(text[0], "model.layers.3.mlp.down_proj.weight"));
    free(text[0]);
    free(text[1]);
  }
  treadle_model_close(model);
  treadle_model_close(again);
}

static uint64_t digest_of(const small_config *config, const char *from_text, const char *to_text,
                          treadle_rank_map map, int64_t rank, size_t page, size_t cap) {
  treadle_model *model = small_model(config);
  treadle_layout *from = create(model, from_text, 8), *to = create(model, to_text, 8);
  assert_ok(treadle_layout_map_ranks(to, from, map, NULL));
  treadle_plan *plan = plan_of(from, to, rank, page, cap);
  treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
  treadle_plan_get_info(plan, &info);
  treadle_plan_destroy(plan);
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
  return info.digest;
}

static void digests(void **state) {
  (void)state;
  const char *from = "megatron:tp=4", *to = "vllm:tp=2";
  uint64_t one = digest_of(&all_cut, from, to, TREADLE_CONTIGUOUS, 0, 4096, 64 * mib);
  for (int64_t r = 1; r < 8; r++)
    assert_true(digest_of(&all_cut, from, to, TREADLE_CONTIGUOUS, r, 4096, 64 * mib) == one);
  assert_true(digest_of(&all_cut, "megatron:dp=2,tp=4,pp=1", to, TREADLE_CONTIGUOUS, 0, 4096, 64 * mib) ==
              one);
  small_config wider = all_cut, other_dtype = all_cut, other_type = all_cut;
  wider.I = 256;
  other_dtype.dtype = "float16";
  other_type.type = "qwen3";
  const uint64_t others[] = {
      digest_of(&all_cut, from, to, TREADLE_CONTIGUOUS, 0, 4096, 63 * mib),
      digest_of(&all_cut, from, to, TREADLE_CONTIGUOUS, 0, 8192, 64 * mib),
      digest_of(&all_cut, from, to, TREADLE_STRIDED, 0, 4096, 64 * mib),
      digest_of(&all_cut, from, "vllm:tp=2,dp=2", TREADLE_CONTIGUOUS, 0, 4096, 64 * mib),
      digest_of(&all_cut, "megatron:tp=2", to, TREADLE_CONTIGUOUS, 0, 4096, 64 * mib),
      digest_of(&all_cut, from, "vllm:tp=2,dtype=fp32", TREADLE_CONTIGUOUS, 0, 4096, 64 * mib),
      digest_of(&wider, from, to, TREADLE_CONTIGUOUS, 0, 4096, 64 * mib),
      digest_of(&other_dtype, from, to, TREADLE_CONTIGUOUS, 0, 4096, 64 * mib),
      digest_of(&other_type, from, to, TREADLE_CONTIGUOUS, 0, 4096, 64 * mib),
  };
  for (size_t i = 0; i < TEST_COUNT(others); i++) {
    assert_true(others[i] != one);
    for (size_t k = 0; k < i; k++) assert_true(others[i] != others[k]);
  }
}

static void assert_injective(const int32_t *page, int64_t count, int64_t physical) {
  char *taken = calloc((size_t)physical + 1, 1);
  for (int64_t i = 0; i < count; i++) {
    assert_true(page[i] >= 0 && page[i] < physical && !taken[page[i]]);
    taken[page[i]] = 1;
  }
  free(taken);
}

/* What a plan tells of itself is what its operations add up to, and what measure tells without them. */
static void what_a_plan_tells(void **state) {
  (void)state;
  treadle_model *model = small_model(&dense);
  static const row rows[] = {{4, "megatron:tp=2,pp=2", "vllm:tp=4"},
                             {4, "hf:root=1", "vllm:tp=2"},
                             {4, "megatron:tp=4,dtype=fp32", "sglang:pp=2"}};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    treadle_layout *from = create(model, rows[i].from, 4), *to = create(model, rows[i].to, 4);
    for (int64_t r = 0; r < 4; r++) {
      treadle_plan *plan;
      treadle_plan_info made = TREADLE_INIT(treadle_plan_info), measured = TREADLE_INIT(treadle_plan_info);
      treadle_lanes lanes;
      size_t inbound[4], without[4] = {0}, pulled = 0, stored = 0;
      assert_ok(one_rank_plan(from, to, r, 4096, 9, 40960, &plan));
      assert_ok(one_rank_figures(from, to, r, 4096, 9, &measured));
      assert_ok(treadle_lanes_create(from, to, 4096, &lanes));
      assert_ok(treadle_plan_add_inbound(&lanes, NULL, r, NULL, without));
      treadle_lanes_release(&lanes);
      treadle_plan_get_info(plan, &made);
      treadle_plan_inbound(plan, inbound);
      for (int64_t s = 0; s < 4; s++) {
        assert_int_equal(inbound[s], without[s]);
        pulled += inbound[s];
      }
      assert_int_equal(inbound[r], 0);
      assert_int_equal(pulled, made.moved_bytes);
      for (int32_t s = 0; s < treadle_layout_storage_count(to, r); s++) {
        treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
        assert_ok(treadle_layout_storage(to, r, s, &info));
        stored += info.bytes;
      }
      assert_int_equal(plan->forward.written_bytes, stored);
      assert_injective(plan->from_page, plan->from_pages, plan->physical_pages);
      assert_injective(plan->to_page, plan->to_pages, plan->physical_pages);
      for (int32_t w = 0; w < plan->waves; w++) {
        assert_true(plan->forward.need[w] < 0 || plan->forward.need[w] <= w - TREADLE_LAG);
        assert_true(plan->back.need[w] < 0 || plan->back.need[w] <= w - TREADLE_LAG);
      }
      uint64_t coverage = 0;
      for (size_t k = 0; k < plan->forward.ops.count; k++)
        coverage += treadle_op_mark(&plan->forward.ops.items[k]);
      assert_true(coverage == plan->forward.coverage);
      assert_int_equal(made.from_bytes, measured.from_bytes);
      assert_int_equal(made.to_bytes, measured.to_bytes);
      assert_int_equal(made.moved_bytes, measured.moved_bytes);
      assert_int_equal(made.lower_bound_bytes, measured.lower_bound_bytes);
      assert_int_equal(made.resident_bytes, measured.resident_bytes);
      assert_int_equal(made.back_moved_bytes, measured.back_moved_bytes);
      assert_int_equal(made.back_lower_bound_bytes, measured.back_lower_bound_bytes);
      assert_int_equal(made.waves, measured.waves);
      assert_int_equal(made.page_bytes, measured.page_bytes);
      assert_int_equal(made.peak_bytes, measured.peak_bytes);
      assert_int_equal(made.lossless, measured.lossless);
      treadle_plan_destroy(plan);
    }
    treadle_layout_destroy(from);
    treadle_layout_destroy(to);
  }
  treadle_model_close(model);
}

static void refusals(void **state) {
  (void)state;
  treadle_model *model = small_model(&all_cut), *other = small_model(&all_cut);
  treadle_layout *from = create(model, "megatron:tp=4", 4), *to = create(model, "vllm:tp=2", 4);
  treadle_layout *foreign = create(other, "vllm:tp=2", 4), *eight = create(model, "vllm:tp=2", 8);
  treadle_layout *three = create(model, "vllm:tp=1", 4);
  treadle_plan *plan;
  assert_refused("two models", treadle_plan_create(from, foreign, 0, NULL, &plan));
  assert_null(plan);
  assert_refused("4 ranks and 'vllm:tp=2' of 8", treadle_plan_create(from, eight, 0, NULL, &plan));
  assert_refused("rank 4", treadle_plan_create(from, to, 4, NULL, &plan));
  assert_refused("rank -1", treadle_plan_create(from, to, -1, NULL, &plan));
  const size_t pages[] = {1, 2048, 4095, 6000, 3 << 20, SIZE_MAX, (size_t)1 << 63};
  for (size_t i = 0; i < TEST_COUNT(pages); i++) {
    treadle_plan_options options = {.struct_size = sizeof(treadle_plan_options), .page_bytes = pages[i]};
    assert_refused("power of two", treadle_plan_create(from, to, 0, &options, &plan));
  }
  treadle_plan_options waves = {.struct_size = sizeof(treadle_plan_options), .waves = 4097};
  assert_refused("4097 waves", treadle_plan_create(from, to, 0, &waves, &plan));
  waves.waves = -1;
  assert_refused("-1 waves", treadle_plan_create(from, to, 0, &waves, &plan));
  treadle_plan_options tight = {
      .struct_size = sizeof(treadle_plan_options), .page_bytes = 4096, .cap_bytes = 1};
  assert_refused("less than cap_min", treadle_plan_create(from, to, 0, &tight, &plan));
  assert_refused("of 4 and 8 ranks", treadle_layout_map_ranks(eight, from, TREADLE_STRIDED, NULL));
  assert_refused("not a multiple", treadle_layout_map_ranks(from, three, TREADLE_STRIDED, NULL));
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_layout_destroy(foreign);
  treadle_layout_destroy(eight);
  treadle_layout_destroy(three);
  treadle_model_close(model);
  treadle_model_close(other);
}

/* Caps and pages larger than anything: numbers that must not overflow. */
static void huge_caps_and_pages(void **state) {
  (void)state;
  treadle_model *model = small_model(&dense);
  treadle_layout *from = create(model, "megatron:tp=2", 2), *to = create(model, "vllm:tp=1", 2);
  treadle_plan *plan = plan_of(from, to, 0, (size_t)1 << 40, (size_t)1 << 60);
  check_bound(plan);
  assert_int_equal(plan->waves, 1);
  treadle_plan_destroy(plan);
  const treadle_plan_options caps[] = {
      {.struct_size = sizeof(treadle_plan_options), .cap_bytes = INT64_MAX},
      {.struct_size = sizeof(treadle_plan_options), .cap_bytes = SIZE_MAX}};
  for (size_t i = 0; i < TEST_COUNT(caps); i++)
    assert_refused("2^60", treadle_plan_create(from, to, 0, &caps[i], &plan));
  const treadle_plan_options pages[] = {
      {.struct_size = sizeof(treadle_plan_options), .page_bytes = (size_t)1 << 41},
      {.struct_size = sizeof(treadle_plan_options), .page_bytes = (size_t)1 << 62}};
  for (size_t i = 0; i < TEST_COUNT(pages); i++)
    assert_refused("1 TiB", treadle_plan_create(from, to, 0, &pages[i], &plan));
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
}

/* ---- Scale ---- */

static size_t ops_on(const treadle_model *model, int64_t ranks, int64_t rank) {
  treadle_layout *from = create(model, "megatron:tp=8,pp=16", ranks),
                 *to = create(model, "vllm:tp=16", ranks);
  treadle_plan *plan = plan_of(from, to, rank, 0, 0);
  check_bound(plan);
  size_t count = plan->forward.ops.count + plan->back.ops.count;
  treadle_plan_destroy(plan);
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  return count;
}

static void many_ranks(void **state) {
  (void)state;
  treadle_model *model = small_model(&llama_70b);
  size_t few = ops_on(model, 256, 77), many = ops_on(model, 16384, 77), last = ops_on(model, 16384, 16383);
  print_message("operations on 256 ranks: %zu, on 16384: %zu and %zu\n", few, many, last);
  assert_true(many < 2 * few && few < 2 * many);
  assert_true(last < 2 * few && few < 2 * last);
  treadle_model_close(model);
}

/* ---- Each allocation fails ---- */

static treadle_status try_plan(const treadle_layout *from, const treadle_layout *to) {
  treadle_plan *plan;
  treadle_plan_options options = {
      .struct_size = sizeof(treadle_plan_options), .page_bytes = 4096, .cap_bytes = 65536};
  treadle_status status = treadle_plan_create(from, to, 1, &options, &plan);
  assert_true((status == TREADLE_OK) == (plan != NULL));
  treadle_plan_destroy(plan);
  return status;
}

static treadle_status try_measure(const treadle_layout *from, const treadle_layout *to) {
  treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
  return one_rank_figures(from, to, 1, 4096, 7, &info);
}

static void failing_allocations(void **state) {
  (void)state;
  static const small_config tiny = {
      .V = 70, .H = 8, .L = 2, .nh = 4, .ng = 2, .hd = 4, .I = 8, .tied = true};
  treadle_model *model = small_model(&tiny);
  treadle_layout *from = create(model, "megatron:tp=2,pp=2", 4), *to = create(model, "vllm:tp=4", 4);
  small_pieces pieces = {0};
  small_give(&pieces, 1, "model.embed_tokens.weight", 0, 70, 0, 3);
  small_give(&pieces, 3, "model.embed_tokens.weight", 0, 70, 3, 8);
  small_give_rest(&pieces, model);
  treadle_layout *given;
  assert_ok(treadle_layout_from_pieces(model, 4, pieces.items, pieces.count, &given));
  TEST_EACH_ALLOCATION(try_plan(from, to));
  TEST_EACH_ALLOCATION(try_plan(given, to));
  TEST_EACH_ALLOCATION(try_measure(from, given));
  TEST_EACH_ALLOCATION(treadle_layout_map_ranks(to, from, TREADLE_BEST, NULL));
  treadle_array_release(&pieces);
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_layout_destroy(given);
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(figure_8_of_hybridflow),
      cmocka_unit_test(ranks_that_hold_nothing_they_need),
      cmocka_unit_test(megatron_core_rows),
      cmocka_unit_test(training_to_generation),
      cmocka_unit_test(sizes_that_are_no_multiples),
      cmocka_unit_test(replicas_in_permuted_order),
      cmocka_unit_test(casts_on_the_way),
      cmocka_unit_test(peaks_of_real_models),
      cmocka_unit_test(one_huge_tensor),
      cmocka_unit_test(waves_at_the_border_of_a_cap),
      cmocka_unit_test(the_same_plan_twice),
      cmocka_unit_test(digests),
      cmocka_unit_test(what_a_plan_tells),
      cmocka_unit_test(refusals),
      cmocka_unit_test(huge_caps_and_pages),
      cmocka_unit_test(many_ranks),
      cmocka_unit_test(failing_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
