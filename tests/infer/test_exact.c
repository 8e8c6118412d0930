/* Exact mode: token ids and log-probabilities of sampled texts are the same bits whatever the batch, the chunks, the blocks, the threads,
 * the memory of the cache and the layout are; scoring them gives the same bits again. For each kernel of the machine, with dense models,
 * experts and latent attention. */
/* ctest: timeout=300 */
#include "test.h"

#include "base/text.h"
#include "nn/gemm.h"

enum { PROMPTS = 12 };

typedef struct machine { /* one engine with its model */
  treadle_model *model;
  treadle_layout *layout;
  treadle_engine *engine;
  char *window;
} machine;

static void open_machine(machine *m, const char *folder, const char *layout,
                         treadle_engine_options options) {
  char path[512];
  snprintf(path, sizeof path, "%s/tests/golden/models/%s", TREADLE_SOURCE_DIR, folder);
  assert_ok(treadle_model_open(path, NULL, &m->model));
  assert_ok(treadle_layout_create(m->model, layout, 1, NULL, &m->layout));
  options.struct_size = sizeof options;
  assert_ok(treadle_engine_create(NULL, m->layout, &options, &m->engine));
  size_t bytes = treadle_layout_window_bytes(m->layout, 0);
  assert_int_equal(posix_memalign((void **)&m->window, 64, bytes), 0);
  assert_ok(treadle_layout_load(m->layout, 0, m->window));
  assert_ok(treadle_engine_bind(m->engine, m->window, bytes));
}

static void close_machine(machine *m) {
  treadle_engine_destroy(m->engine);
  treadle_layout_destroy(m->layout);
  treadle_model_close(m->model);
  free(m->window);
}

/* Prompts of many lengths; the first half of some is that of others. */
static void make_requests(treadle_builder *lines, int prompts) {
  for (int p = 0; p < prompts; p++) {
    treadle_builder_add(
        lines,
        "{\"max_tokens\": %d, \"n\": %d, \"temperature\": %s, \"top_p\": %s, \"logprobs\": 2,"
        " \"ignore_eos\": true, \"prompt_token_ids\": [",
        20 + p, 1 + p % 2, p % 3 ? "0.7" : "1", p % 4 ? "0.9" : "1");
    for (int i = 0; i < 5 + 9 * (p % 5); i++)
      treadle_builder_add(lines, "%s%d", i ? ", " : "", i < 20 ? i * 7 % 200 : (i * 13 + p * 31) % 200);
    treadle_builder_add(lines, "]}\n");
  }
}

static treadle_status keep(void *context, const char *line, size_t bytes) {
  (void)bytes;
  treadle_builder_add(context, "%s", line);
  return TREADLE_OK;
}

static treadle_generate_figures generate(machine *m, const char *lines, treadle_builder *answers) {
  treadle_generate_options options = {
      .struct_size = sizeof options, .seed = 5, .answer = answers ? keep : NULL, .context = answers};
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  assert_ok(treadle_engine_generate(m->engine, lines, strlen(lines), &options, &figures));
  assert_int_equal(figures.kv_blocks_leaked, 0);
  return figures;
}

static void check_scores(const char *folder, const char *layout, const char *kernel, const char *answers) {
  machine m = {0};
  open_machine(&m, folder, layout, (treadle_engine_options){.kernels = kernel, .kv_bytes = 1 << 21});
  treadle_score_lines_options options = {.struct_size = sizeof options, .check = true};
  treadle_score_figures figures = TREADLE_INIT(treadle_score_figures);
  assert_ok(treadle_engine_score_lines(m.engine, answers, strlen(answers), &options, &figures));
  assert_true(figures.checked > 50);
  assert_int_equal(figures.different, 0);
  close_machine(&m);
}

static void check_kernel(const char *folder, const char *kernel, const char *lines) {
  static const treadle_engine_options others[] = {
      {.max_batch = 1, .threads = 1},
      {.max_batch = 7, .prefill_chunk = 16},
      {.prefill_chunk = 5, .threads = 2},
      {.block_tokens = 32, .prefix_cache = TREADLE_OFF},
      {.block_tokens = 3},
  };
  static const char *const layouts[] = {"hf", "megatron:tp=1", "sglang:tp=1"};
  machine m = {0};
  treadle_builder answers = {0};
  open_machine(&m, folder, "vllm:tp=1", (treadle_engine_options){.kernels = kernel, .kv_bytes = 1 << 21});
  uint64_t digest = generate(&m, lines, &answers).digest;
  /* Again, with what the cache has by now. */
  treadle_generate_figures again = generate(&m, lines, NULL);
  assert_true(again.digest == digest && again.prefix_hit_tokens > 0);
  treadle_engine_info info = TREADLE_INIT(treadle_engine_info);
  assert_ok(treadle_engine_get_info(m.engine, &info));
  size_t block = (size_t)(1 << 21) / (size_t)info.kv_blocks;
  close_machine(&m);
  for (size_t i = 0; i < TEST_COUNT(others); i++) {
    treadle_engine_options options = others[i];
    options.kernels = kernel;
    options.kv_bytes = 1 << 21;
    open_machine(&m, folder, "vllm:tp=1", options);
    if (generate(&m, lines, NULL).digest != digest)
      fail_msg("%s, %s: options %zu: another digest", folder, kernel, i);
    close_machine(&m);
  }
  /* Seven blocks hold the longest request, and not two of them. */
  open_machine(&m, folder, "vllm:tp=1", (treadle_engine_options){.kernels = kernel, .kv_bytes = 7 * block});
  treadle_generate_figures poor = generate(&m, lines, NULL);
  assert_true(poor.digest == digest && poor.preemptions > 0);
  close_machine(&m);
  for (size_t i = 0; i < TEST_COUNT(layouts); i++) check_scores(folder, layouts[i], kernel, answers.text);
  treadle_builder_release(&answers);
}

static void test_exact(void **state) {
  (void)state;
  static const char *const folders[] = {"llama-gqa-llama3rope", "qwen2moe", "dsv3-yarn"};
  treadle_builder lines = {0}, few = {0};
  make_requests(&lines, PROMPTS);
  make_requests(&few, 4);
  assert_false(lines.failed || few.failed);
  for (int32_t k = 0; treadle_gemm_kernel_at(k); k++) {
    const treadle_gemm_kernel *kernel = treadle_gemm_kernel_at(k);
    if (kernel->lacks()) {
      printf("%s: skipped: %s\n", kernel->name, kernel->lacks());
      continue;
    }
    /* The plain kernel is slow: one model and a few texts. So are sanitizers: one model a kernel, and not that one. */
    size_t count = !k ? 1 : TEST_COUNT(folders);
    if (getenv("TREADLE_PERCENT")) {
      if (k) check_kernel(folders[(size_t)k % TEST_COUNT(folders)], kernel->name, lines.text);
      continue;
    }
    for (size_t f = 0; f < count; f++) check_kernel(folders[f], kernel->name, k ? lines.text : few.text);
  }
  treadle_builder_release(&lines);
  treadle_builder_release(&few);
}

/* Requests that cannot be: refused before anything runs. */
static void test_refused(void **state) {
  (void)state;
  machine m = {0};
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  open_machine(&m, "llama-gqa-llama3rope", "vllm:tp=1",
               (treadle_engine_options){.kv_bytes = 1 << 14, .max_len = 400});
  static const char large[] = "{\"prompt_token_ids\": [1], \"max_tokens\": 399}\n",
                    wrong[] = "{\"prompt_token_ids\": [1]}\n{\"prompt_token_ids\": [203]}\n";
  assert_refused("it takes", treadle_engine_generate(m.engine, large, sizeof large - 1, NULL, &figures));
  assert_refused("line 2", treadle_engine_generate(m.engine, wrong, sizeof wrong - 1, NULL, &figures));
  close_machine(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_exact), cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
