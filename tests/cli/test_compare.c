/* src/cli/compare.c: the first difference, named by rank, tensor, coordinate and values. */
#include "cli/compare.c" /* part of the command, not of the library */

#include "cli/command.h"
#include "test.h"

typedef struct compared {
  treadle_model *model;
  treadle_layout *layout;
  char *window, *wanted;
} compared;

static int begin(void **state) {
  static compared made;
  char path[64];
  snprintf(path, sizeof path, "%s/model", command_folder());
  command_result result =
      command_run("make-model %s --layers 2 --hidden 128 --vocab 99 --dtype fp32", path);
  command_expect(&result, 0, "", 0);
  command_release(&result);
  assert_ok(treadle_model_open(path, NULL, &made.model));
  assert_ok(treadle_layout_create(made.model, "vllm:tp=2", 2, NULL, &made.layout));
  size_t bytes = treadle_layout_window_bytes(made.layout, 1);
  made.window = malloc(bytes);
  made.wanted = malloc(bytes);
  assert_ok(treadle_layout_load(made.layout, 1, made.window));
  assert_ok(treadle_layout_load(made.layout, 1, made.wanted));
  *state = &made;
  return 0;
}

static int end(void **state) {
  compared *made = *state;
  free(made->window);
  free(made->wanted);
  treadle_layout_destroy(made->layout);
  treadle_model_close(made->model);
  command_end();
  return 0;
}

static float *element(const compared *made, const char *name, int64_t elem) {
  for (int32_t i = 0; i < treadle_layout_storage_count(made->layout, 1); i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    assert_ok(treadle_layout_storage(made->layout, 1, i, &info));
    if (strcmp(info.name, name) == 0) return (float *)(void *)(made->window + info.offset_bytes) + elem;
  }
  fail_msg("no storage tensor %s", name);
  return NULL;
}

static treadle_status compare(const compared *made) {
  const treadle_window_source window = {.memory = made->window};
  return treadle_compare_window(made->layout, made->model, 1, NULL, &window, made->wanted, "cycle 1");
}

static void equal_is_well(void **state) { assert_ok(compare(*state)); }

static void place_is_named(void **state) {
  static const struct {
    const char *storage;
    int64_t elem;
    const char *words;
  } cases[] = {
      /* hidden 128, 2 heads in 2 groups of 64, tp 2: rank 1 has head 1 of q, k and v, one above the other
       */
      {"model.layers.1.self_attn.qkv_proj.weight", 3 * 128 + 5,
       "rank 1: cycle 1, the first difference is "
       "model.layers.1.self_attn.q_proj.weight[67, 5]"},
      {"model.layers.1.self_attn.qkv_proj.weight", (64 + 2) * 128 + 7, "k_proj.weight[66, 7]"},
      {"model.layers.0.self_attn.o_proj.weight", 3 * 64 + 1, "o_proj.weight[3, 65]"},
      {"model.norm.weight", 17,
       "model.norm.weight[17], element 17 of model.norm.weight: 1.5 (0x3fc00000) instead of "},
      {"lm_head.weight", (99 - 64) * 128, "is padding, element 4480 of lm_head.weight"},
  };
  compared *made = *state;
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    float *at = element(made, cases[i].storage, cases[i].elem), kept = *at;
    *at = 1.5f;
    assert_fails(TREADLE_DIFFERENT, cases[i].words, compare(made));
    *at = kept;
  }
  assert_ok(compare(made));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(equal_is_well), cmocka_unit_test(place_is_named)};
  return cmocka_run_group_tests(tests, begin, end);
}
