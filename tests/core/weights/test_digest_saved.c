/* src/core/weights/digest_saved.c: the digest of values that are read from a model is that of windows that hold them, in any
 * layout and in any number of shares; also of experts, which are tensors of their own. */
#include "weights/digest.h"

#include "base/alloc.h"
#include "test.h"

#include <stdlib.h>

#define MODELS TREADLE_SOURCE_DIR "/tests/golden/models/"

static uint64_t of_windows(const treadle_model *model, const char *text, int64_t ranks) {
  treadle_layout *layout;
  uint64_t sum = 0, *sums = calloc((size_t)model->entry_count, sizeof *sums);
  assert_ok(treadle_layout_create(model, text, ranks, NULL, &layout));
  for (int64_t rank = 0; rank < ranks; rank++) {
    char *window = malloc(treadle_layout_window_bytes(layout, rank));
    const treadle_rank_window of = {
        .layout = layout, .rank = rank, .device = treadle_device_host(), .window = window};
    assert_ok(treadle_layout_load(layout, rank, window));
    assert_ok(treadle_digest_add(&of, 0, sums));
    free(window);
  }
  for (int64_t i = 0; i < model->entry_count; i++) sum += sums[i];
  free(sums);
  treadle_layout_destroy(layout);
  return sum;
}

static void same_as_windows(void **state) {
  static const struct {
    const char *model, *layout;
    int64_t ranks;
  } cases[] = {{"llama-gqa-llama3rope", "megatron:tp=2", 2},
               {"qwen2-tied", "vllm:tp=2", 2},
               {"qwen2moe", "megatron:tp=1,ep=2", 2},
               {"glm4moe-qknorm", "hf", 1}};
  (void)state;
  for (size_t c = 0; c < TEST_COUNT(cases); c++) {
    char path[300];
    treadle_model *model;
    snprintf(path, sizeof path, MODELS "%s", cases[c].model);
    assert_ok(treadle_model_open(path, NULL, &model));
    const uint64_t wanted = of_windows(model, cases[c].layout, cases[c].ranks);
    for (int shares = 1; shares < 4; shares++) {
      uint64_t sum = 0;
      for (int share = 0; share < shares; share++)
        assert_ok(treadle_digest_saved(model, share, shares, &sum));
      assert_true(sum == wanted);
    }
    treadle_model_close(model);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_as_windows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
