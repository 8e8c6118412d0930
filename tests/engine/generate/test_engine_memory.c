/* Memory that is out: an engine, its texts and its answers with each allocation failing in turn. */
#include "test.h"

#include "base/alloc.h"
#include "base/status.h"
#include "generate/machine.h"
#include "treadle_builtin.h"

#define LINE                                                                                               \
  "{\"prompt_token_ids\": [1, 5, 9], \"max_tokens\": 3, \"n\": 2, \"logprobs\": 2, \"ignore_eos\": "       \
  "true}\n"
#define TEXT "{\"token_ids\": [3, 1, 4, 1, 5]}\n"

static treadle_status take(void *context, const char *line, size_t bytes) {
  *(size_t *)context += strlen(line);
  assert_true(bytes > 0);
  return TREADLE_OK;
}

/* The model and the layout are there: what they do without memory is tested elsewhere. */
static treadle_status work(const machine *m, bool experts) {
  const treadle_generator_options options = {.struct_size = sizeof options,
                                             .threads = 1,
                                             .kv_bytes = 1 << 16,
                                             .prefill_chunk = 4,
                                             .max_batch = 2,
                                             .experts = experts};
  size_t seen = 0;
  const treadle_generate_options generate = {
      .struct_size = sizeof generate, .answer = take, .context = &seen};
  const treadle_score_lines_options score = {.struct_size = sizeof score, .answer = take, .context = &seen};
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  treadle_score_figures scored = TREADLE_INIT(treadle_score_figures);
  treadle_generator *engine = NULL;
  treadle_status status;
  TRY(treadle_generator_create(NULL, m->layout, &options, &engine));
  TRY(treadle_generator_bind(engine, m->window, m->window_bytes));
  status = treadle_generator_generate_lines(engine, LINE, sizeof LINE - 1, &generate, &figures);
  assert_int_equal(figures.kv_blocks_leaked, 0);
  if (!status) status = treadle_generator_score_lines(engine, TEXT, sizeof TEXT - 1, &score, &scored);
out:
  treadle_generator_destroy(engine);
  return status;
}

static void test_each_allocation(void **state) {
  (void)state;
  static const char *const folders[] = {"qwen2-tied", "qwen2moe", "dsv3-yarn"};
  for (size_t i = 0; i < TEST_COUNT(folders); i++) {
    char path[512];
    machine m;
    snprintf(path, sizeof path, "%s/tests/golden/models/%s", TREADLE_SOURCE_DIR, folders[i]);
    const machine_spec spec = {.folder = path, .layout = "vllm", .options = {.kv_bytes = 1 << 16}};
    assert_ok(machine_open(&m, &spec));
    TEST_EACH_ALLOCATION(work(&m, i > 0));
    machine_close(&m);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_allocation)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
