/* families/llama4.yaml: which class of SGLang takes a config decides how q and k are stored. That of the whole model puts the
 * even rows of each head before the odd ones, as vLLM does; that of the language model alone does not. */
#include "test.h"

#include "io/json.h"
#include "layout/layout.h"
#include "model/model.h"

#include <stdlib.h>

#define TEXT                                                                                               \
  "{\"model_type\": \"llama4_text\", \"vocab_size\": 64, \"hidden_size\": 8, \"num_hidden_layers\": 2, "   \
  "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 4, \"intermediate_size\": 4, "    \
  "\"intermediate_size_mlp\": 8, \"num_local_experts\": 2, \"interleave_moe_layer_step\": 2}"
#define WHOLE "{\"model_type\": \"llama4\", \"text_config\": " TEXT "}"

enum { HIDDEN = 8, HEAD = 4, QUERIES = 4, GROUPS = 2 };

/* Checks the first layer's qkv_proj of a rank: where each row comes from. */
static void check(const char *text, const char *layout_text, int64_t ranks, int64_t rank, const char *name,
                  bool permuted) {
  static const int order[2][HEAD] = {{0, 1, 2, 3}, {0, 2, 1, 3}};
  json_t *config;
  treadle_model *model;
  treadle_layout *layout;
  treadle_run *runs;
  size_t count;
  int64_t rows = 0;
  int32_t i = 0;
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  assert_ok(treadle_json_parse("config", text, strlen(text), &config));
  assert_ok(treadle_model_from_config("config", config, NULL, &model));
  assert_ok(treadle_layout_create(model, layout_text, ranks, NULL, &layout));
  for (;; i++) {
    assert_true(i < treadle_layout_storage_count(layout, rank));
    assert_ok(treadle_layout_storage(layout, rank, i, &info));
    if (strcmp(info.name, name) == 0) break;
  }
  assert_ok(treadle_layout_runs(layout, rank, i, &runs, &count));
  int64_t queries = QUERIES / ranks, groups = ranks > GROUPS ? 1 : GROUPS / ranks;
  int64_t group = ranks > GROUPS ? rank * GROUPS / ranks : rank * groups;
  for (size_t r = 0; r < count; r++)
    for (int64_t e = 0; e < runs[r].count; e += HIDDEN, rows++) {
      int64_t head = rows / HEAD, row = rows % HEAD;
      bool value = head >= queries + groups;
      int64_t first = head < queries ? rank * queries + head
                      : value        ? group + head - queries - groups
                                     : group + head - queries;
      assert_int_equal(runs[r].start + e, (first * HEAD + order[permuted && !value][row]) * HIDDEN);
    }
  assert_int_equal(rows, (queries + 2 * groups) * HEAD);
  free(runs);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
  json_decref(config);
}

static void rows_of_q_and_k(void **state) {
  (void)state;
  static const char name[] = "model.layers.0.self_attn.qkv_proj.weight",
                    outer[] = "language_model.model.layers.0.self_attn.qkv_proj.weight";
  for (int64_t tp = 1; tp <= 4; tp *= 2)
    for (int64_t rank = 0; rank < tp; rank++) {
      char sglang[40], vllm[40];
      snprintf(sglang, sizeof sglang, "sglang:tp=%d", (int)tp);
      snprintf(vllm, sizeof vllm, "vllm:tp=%d", (int)tp);
      check(TEXT, sglang, tp, rank, name, false);
      check(WHOLE, sglang, tp, rank, outer, true);
      check(TEXT, vllm, tp, rank, name, true);
      check(WHOLE, vllm, tp, rank, outer, true);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_q_and_k)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
